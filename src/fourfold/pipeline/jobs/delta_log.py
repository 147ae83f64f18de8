"""A Delta log over published files: for readers that know Delta tables.

The manifest is the truth, and the log is derived from it: every version of the tables becomes one
commit that replaces all files by those of the version. It carries the number of the version as an
application transaction, so a commit that was made is recognised and not made again. Files of
versions that were swept are gone, so time travel reaches as far back as the versions that are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fourfold.errors import MissingDependency
from fourfold.pipeline.documents.fold import folded_schema
from fourfold.pipeline.jobs.table_folder import VERSIONS, FolderManifest, TableFolder

if TYPE_CHECKING:
    from deltalake import DeltaTable

_APPLICATION: Final = "fourfold"


def version(published: TableFolder) -> int | None:
    """The version that the log shows; None when there is no log."""
    table = _table(published)
    found = None if table is None else table.transaction_version(_APPLICATION)
    return found if found is None else int(found)


def commit(published: TableFolder, manifest: FolderManifest) -> None:
    """Let the log show a version; nothing happens when it does already."""
    if version(published) == manifest.version:
        return
    delta = _package()
    from deltalake.transaction import (  # noqa: PLC0415 - _package has looked for it
        AddAction,
        create_table_with_add_actions,
    )

    folder = published.into / VERSIONS / manifest.folder / "state"
    actions: list[Any] = [
        AddAction(
            path=f"{VERSIONS}/{manifest.folder}/state/{file.name}",
            size=file.bytes,
            partition_values={},
            modification_time=int((folder / file.name).stat().st_mtime * 1000),
            data_change=True,
            stats=f'{{"numRecords":{file.rows}}}',
        )
        for file in manifest.files
    ]
    schema = delta.Schema.from_arrow(folded_schema())
    told = delta.CommitProperties(
        app_transactions=[delta.Transaction(_APPLICATION, manifest.version)]
    )
    table = _table(published)
    if table is None:
        create_table_with_add_actions(
            str(published.into),
            schema,
            actions,
            mode="error",
            name="state",
            commit_properties=told,
        )
    else:
        table.create_write_transaction(
            actions, mode="overwrite", schema=schema, commit_properties=told
        )


def _table(published: TableFolder) -> DeltaTable | None:
    delta = _package()
    if not (published.into / "_delta_log").is_dir():
        return None
    table: DeltaTable = delta.DeltaTable(str(published.into))
    return table


def _package() -> Any:
    try:
        import deltalake  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise MissingDependency(
            "deltalake is not installed", hint="Install it: `pip install 'fourfold[delta]'`."
        ) from error
    return deltalake
