"""A folder of tables that changes atomically: the output of jobs.

    INTO/
      current -> versions/000003-...     what readers open: INTO/current/state/*.parquet
      versions/000003-.../
        manifest.json                    its origin, and the files
        state/*.parquet
      versions/000002-.../               the previous version, for readers that still use it

A version is written to a staging folder, moved into place by a rename, and made visible by
replacing one link. A process that dies before that leaves the link unchanged, and the next one
sweeps its files. Unchanged files are shared between versions by hard links.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from fourfold import limits
from fourfold.durability import sync_file
from fourfold.errors import InvalidInput, StorageError
from fourfold.kernel import sync_folder
from fourfold.store.table_manifest import (
    CURRENT,
    MANIFEST,
    FolderManifest,
    MaterializedFile,
    read_manifest,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MATERIALIZED_VERSIONS_KEPT: Final = 2
"""The current version, and the previous one for readers that still use it."""

VERSIONS: Final = "versions"
_STAGING: Final = ".staging-"


class FolderTable(NamedTuple):
    """A table of a folder and its key columns. If it `grows`, its rows never change."""

    name: str
    key: tuple[str, ...]
    grows: bool = False


class TableFolder:
    """A folder of tables. One process at a time replaces them; any number read."""

    def __init__(self, into: Path) -> None:
        self.into = into

    def current(self) -> FolderManifest | None:
        """Return the manifest of the current version, or None before the first."""
        link = self.into / CURRENT
        if not link.is_symlink():
            if self.into.exists() and any(not _is_ours(path) for path in self.into.iterdir()):
                raise InvalidInput(
                    f"{self.into}: contains other files than tables",
                    hint="Choose an empty or new folder.",
                )
            return None
        return read_manifest(self.into)

    def table(self, name: str = "state") -> Path:
        """Return the folder of a table in the current version, with the link resolved."""
        return (self.into / CURRENT).resolve() / name

    def staging(self, work: str) -> Path:
        """Return an empty staging folder, after sweeping those of others."""
        self.sweep()
        folder = self.into / f"{_STAGING}{work}"
        try:
            folder.mkdir(mode=0o700, parents=True)
        except OSError as error:
            raise StorageError(f"{folder}: cannot create: {error.strerror}") from error
        return folder

    def replace(self, staging: Path, manifest: FolderManifest) -> None:
        """Make a staged version current."""
        (staging / MANIFEST).write_bytes(msgspec.json.encode(manifest))
        for path in _tree(staging):
            _sync(path)
        versions = self.into / VERSIONS
        versions.mkdir(mode=0o700, exist_ok=True)
        staging.rename(versions / manifest.folder)
        sync_folder(versions)
        fresh = self.into / f"{_STAGING}{manifest.work}.link"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(Path(VERSIONS) / manifest.folder, target_is_directory=True)
        fresh.replace(self.into / CURRENT)
        sync_folder(self.into)
        self.sweep()

    def sweep(self) -> None:
        """Remove staging folders, and old versions that no reader uses any more."""
        if not self.into.is_dir():
            return
        for path in self.into.iterdir():
            if path.name.startswith(_STAGING):
                _remove(path)
        versions = self.into / VERSIONS
        if not versions.is_dir():
            return
        link = self.into / CURRENT
        current = link.readlink().name if link.is_symlink() else ""
        for path in versions.iterdir():
            if path.name > current:
                _remove(path)
        names = sorted(path.name for path in versions.iterdir())
        for name in names[:-MATERIALIZED_VERSIONS_KEPT]:
            _remove(versions / name)


def write_table(
    rows: DataFrame, staging: Path, table: FolderTable, work: str
) -> list[MaterializedFile]:
    """Write rows as files of a table with unique names, in a folder of its name."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - an optional dependency

    folder = staging / f"{table.name}-written"
    writer = rows.write.option("compression", "zstd")
    writer.option("maxRecordsPerFile", limits.MATERIALIZED_FILE_ROWS).parquet(str(folder))
    target = staging / table.name
    target.mkdir(exist_ok=True)
    files = []
    for number, path in enumerate(sorted(folder.glob("*.parquet"))):
        name = f"{work[-24:]}-{number:05}.parquet"
        path.rename(target / name)
        count = pq.read_metadata(target / name).num_rows
        files.append(
            MaterializedFile(f"{table.name}/{name}", count, (target / name).stat().st_size)
        )
    shutil.rmtree(folder)
    full = [file for file in files if file.rows]
    for file in files:
        # An empty file is kept only if no other file has the schema.
        if full and not file.rows:
            (staging / file.name).unlink()
    return full or files[:1]


def link_or_copy(source: Path, target: Path) -> None:
    """Create a hard link, or a copy if the file system has no hard links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _is_ours(path: Path) -> bool:
    names = {CURRENT, VERSIONS, "_delta_log", ".fourfold"}
    return path.name in names or path.name.startswith(_STAGING)


def _tree(folder: Path) -> Iterator[Path]:
    for where, _, names in os.walk(folder):
        for name in names:
            yield Path(where, name)
        yield Path(where)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync_file(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    else:
        shutil.rmtree(path)
