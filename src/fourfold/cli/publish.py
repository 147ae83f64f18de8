"""`fourfold publish`: the streams of a store into an object store, now."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fourfold.cli.archived import objects_option, published_store
from fourfold.cli.options import command as _command
from fourfold.cli.options import root_argument
from fourfold.cli.output import counted, size

if TYPE_CHECKING:
    from fourfold.cli.output import Output
    from fourfold.models.streams.archive import Archive, Round
    from fourfold.models.streams.archive.records import Retired


@_command("publish")
@root_argument(required=True)
@objects_option
@click.option("--collect", is_flag=True, help="Then delete objects that nothing needs any more.")
@click.option("--dry-run", is_flag=True, help="Publish nothing; list what --collect would delete.")
def command(out: Output, root: Path, *, objects: str | None, collect: bool, dry_run: bool) -> None:
    """Seal every stream of ROOT into segments and publish them, everything that is there now.

    A server that was started with --objects does this by itself. What is published can be read
    without this store, and a store can be built from it: `fourfold bootstrap`.
    """
    with published_store(root, objects) as store:
        archive = store.archive
        if dry_run:
            _show_retired(out, archive.collect(dry_run=True), deleted=False)
            return
        done = _publish(out, archive)
        retired = archive.collect() if collect else []
        standing = archive.standing()
    if out.as_json:
        out.document(
            {
                "root": str(root),
                "segments": done.sealed,
                "manifests": len(done.published),
                "unpublished_records": standing.unpublished_records,
                "deleted_objects": len(retired),
                "failures": {name: error.as_dict() for name, error in done.failures.items()},
            }
        )
    else:
        out.line(
            f"published {counted(len(done.published), 'manifest')}, "
            f"{counted(done.sealed, 'new segment')}; "
            f"{counted(standing.unpublished_records, 'record')} not published"
        )
        if collect:
            _show_retired(out, retired, deleted=True)
    for error in done.failures.values():
        raise error


def _publish(out: Output, archive: Archive) -> Round:
    with out.progress("publishing") as advance:
        count = 0

        def progress(done: Round) -> None:
            nonlocal count
            count += len(done.published)
            advance("", count, 0)

        return archive.publish_all(progress)


def _show_retired(out: Output, found: list[Retired], *, deleted: bool) -> None:
    if out.as_json:
        rows = [each._asdict() for each in found]
        out.document({"deleted" if deleted else "would_delete": rows})
        return
    held = size(sum(each.size_bytes for each in found))
    verb = "deleted" if deleted else "would delete"
    out.line(f"{verb} {counted(len(found), 'object')}, {held}")
    if not deleted and found:
        out.table(("object", "size"), [(each.key, size(each.size_bytes)) for each in found])
