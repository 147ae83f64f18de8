"""A Delta log over materialized files, for readers of Delta tables.

The manifest is authoritative, and the log is derived from it: every version of the tables is one
commit that replaces all files. It has the number of the version as an application transaction, so
an existing commit is detected and not repeated. Files of swept versions are gone, so time travel is
limited to the retained versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fourfold.errors import MissingDependency
from fourfold.pipeline.documents.fold import folded_schema
from fourfold.pipeline.jobs.table_folder import VERSIONS, TableFolder
from fourfold.store.table_manifest import FolderManifest

if TYPE_CHECKING:
    from deltalake import DeltaTable

_APPLICATION: Final = "fourfold"


def check_installed() -> None:
    """Raise MissingDependency if the package that writes the log is not installed."""
    _package()


def is_current(folder: TableFolder, manifest: FolderManifest) -> bool:
    """Return True if the log has this version."""
    table = _table(folder)
    version = None if table is None else table.transaction_version(_APPLICATION)
    return version is not None and int(version) == manifest.version


def commit(table_folder: TableFolder, manifest: FolderManifest) -> None:
    """Add a version to the log unless it is already there."""
    if is_current(table_folder, manifest):
        return
    delta = _package()
    from deltalake.transaction import (  # noqa: PLC0415 - checked by _package
        AddAction,
        create_table_with_add_actions,
    )

    state_folder = table_folder.into / VERSIONS / manifest.folder / "state"
    actions: list[Any] = [
        AddAction(
            path=f"{VERSIONS}/{manifest.folder}/state/{file.name}",
            size=file.bytes,
            partition_values={},
            modification_time=int((state_folder / file.name).stat().st_mtime * 1000),
            data_change=True,
            stats=f'{{"numRecords":{file.rows}}}',
        )
        for file in manifest.files
    ]
    schema = delta.Schema.from_arrow(folded_schema())
    properties = delta.CommitProperties(
        app_transactions=[delta.Transaction(_APPLICATION, manifest.version)]
    )
    table = _table(table_folder)
    if table is None:
        create_table_with_add_actions(
            str(table_folder.into),
            schema,
            actions,
            mode="error",
            name="state",
            commit_properties=properties,
        )
    else:
        table.create_write_transaction(
            actions, mode="overwrite", schema=schema, commit_properties=properties
        )


def _table(folder: TableFolder) -> DeltaTable | None:
    delta = _package()
    if not (folder.into / "_delta_log").is_dir():
        return None
    table: DeltaTable = delta.DeltaTable(str(folder.into))
    return table


def _package() -> Any:
    try:
        import deltalake  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise MissingDependency(
            "deltalake is not installed", hint="Install it: `pip install 'fourfold[delta]'`."
        ) from error
    return deltalake
