"""`fourfold publish`: what is new in a store into an object store, now."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fourfold.cli import publish_reports as reports
from fourfold.cli.ages import Kept
from fourfold.cli.archived import objects_option, published_store
from fourfold.cli.options import command as _command
from fourfold.cli.options import root_argument
from fourfold.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fourfold.archive.publishing import Standing
    from fourfold.cli.output import Output
    from fourfold.store import Store
    from fourfold.store.keeping import CollectReport
    from fourfold.store.publishing import PublishReport

_MODELS = ("documents", "sessions", "graphs", "streams")


@_command("publish")
@root_argument(required=True)
@objects_option
@click.option(
    "--model",
    "models",
    type=click.Choice(_MODELS),
    multiple=True,
    help="Only this model; may be given several times.",
)
@click.option("--points", is_flag=True, help="Publish nothing; list the points to restore to.")
@click.option("--compact", is_flag=True, help="Then make large objects of small ones.")
@click.option("--index", is_flag=True, help="Then index the routing keys of what is published.")
@click.option("--collect", is_flag=True, help="Then delete objects that nothing needs any more.")
@click.option(
    "--keep",
    multiple=True,
    type=Kept("points"),
    help="With --collect: points that stay, the newest or by time; the others are given up.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Publish nothing; tell how far everything is, and what --collect would delete.",
)
def command(out: Output, root: Path, *, objects: str | None, **given: Any) -> None:
    """Publish what is new in every space, the sessions, the graphs and the streams of ROOT.

    Each run is a point that `fourfold bootstrap` can restore to, from the object store alone. What
    is published can be read without this store. A server that was started with --objects publishes
    by itself.
    """
    chosen = given["models"] or _MODELS
    keep = _keep(given["keep"])
    if given["keep"] and not (given["collect"] or given["dry_run"]):
        raise click.UsageError("--keep goes with --collect, or with --dry-run.")
    with published_store(root, objects) as store:
        if given["points"]:
            reports.show_points(out, store.points())
        elif given["dry_run"]:
            _show_standing(out, store, chosen, keep)
        else:
            done = reports.Done(_publish(out, store, chosen))
            if given["compact"]:
                _compact(store, chosen, done)
            if given["index"] and "streams" in chosen:
                done.indexed = store.archive.index()
            if given["collect"]:
                _collect(store, chosen, keep, done)
            reports.show(out, store, done)
            done.raise_if_failed()


def _keep(given: tuple[int | float, ...]) -> tuple[int, float] | None:
    """The points that stay, by number and by age; None when it is up to the settings."""
    numbers = [each for each in given if isinstance(each, int)]
    ages = [each for each in given if isinstance(each, float)]
    if len(numbers) > 1 or len(ages) > 1:
        raise InvalidInput("--keep was given twice for the same kind of bound")
    if not given:
        return None
    return (numbers or [0])[0], (ages or [0.0])[0]


def _compact(store: Store, models: Sequence[str], done: reports.Done) -> None:
    from fourfold.store import keeping  # noqa: PLC0415 - imports every model

    if set(models) - {"streams"}:
        done.merged = keeping.merge(store)
    if "streams" in models:
        done.compacted = store.archive.compact()


def _collect(
    store: Store, models: Sequence[str], keep: tuple[int, float] | None, done: reports.Done
) -> None:
    done.retired = []
    if set(models) - {"streams"}:
        done.collected = _collected(store, keep, dry_run=False)
        done.retired += done.collected.deleted
    if "streams" in models:
        done.retired += store.archive.collect()


def _collected(store: Store, keep: tuple[int, float] | None, *, dry_run: bool) -> CollectReport:
    from fourfold.store import keeping  # noqa: PLC0415 - imports every model

    wanted = None if keep is None else keeping.Keep(points=keep[0], for_s=keep[1])
    return keeping.collect(store, keep=wanted, dry_run=dry_run)


def _publish(out: Output, store: Store, models: Sequence[str]) -> PublishReport:
    from fourfold.store import publishing  # noqa: PLC0415 - imports every model

    with out.progress("publishing") as advance:
        return publishing.publish(store, models, advance)


def _show_standing(
    out: Output, store: Store, models: Sequence[str], keep: tuple[int, float] | None
) -> None:
    from fourfold.store import publishing  # noqa: PLC0415 - imports every model

    found: list[Standing] = publishing.standings(store, models)
    retired: list[reports.Gone] = []
    unpublished, collected = 0, None
    if set(models) - {"streams"}:
        collected = _collected(store, keep, dry_run=True)
        retired += collected.deleted
    if "streams" in models:
        retired += store.archive.collect(dry_run=True)
        unpublished = store.archive.standing().unpublished_records
    reports.show_standing(
        out, found, unpublished if "streams" in models else None, retired, collected
    )
    for error in {} if collected is None else collected.failures.values():
        raise error
