"""A folder of tables that changes all at once: what jobs publish, for anybody to read.

    INTO/
      current -> versions/000003-...     what readers open: INTO/current/state/*.parquet
      versions/000003-.../
        manifest.json                    what it was made of, and the files
        state/*.parquet
      versions/000002-.../               the version before, for readers that are still at it

A version is made where no reader looks, put into its place by a rename, and shown by replacing one
link. A process that dies on the way leaves the link as it was, and what it left is swept by the
next. Files that did not change are the same files in both versions, by hard links.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from fourfold import limits
from fourfold.errors import CorruptData, InvalidInput, StorageError
from fourfold.kernel import sync_folder

CURRENT: Final = "current"
VERSIONS: Final = "versions"
MANIFEST: Final = "manifest.json"
_STAGING: Final = ".staging-"
_FORMAT: Final = 1

Key = tuple[str, ...]


class File(msgspec.Struct, frozen=True):
    """A file of a table. `first` and `last` are the keys that bound its rows; none if it has no
    rows.
    """

    name: str
    rows: int
    bytes: int
    first: Key | None = None
    last: Key | None = None


class FolderManifest(msgspec.Struct, frozen=True):
    """What a version is. `spaces` says up to which seq each space is in it."""

    version: int
    work: str
    origin: Mapping[str, Any]
    """What the tables were made of, and how: another origin makes another folder."""
    spaces: Mapping[str, int]
    files: tuple[File, ...]
    tables: tuple[str, ...] = ("state",)
    format: int = _FORMAT
    generations: Mapping[str, int] = {}
    """Where rows can also go away: which of them the tables show."""
    file_ids: Mapping[str, str] = {}
    """The file of each space: one that was deleted and made again has another id."""

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def folder(self) -> str:
        return f"{self.version:06}-{self.work[-24:]}"


class TableFolder:
    """The folder. One process at a time publishes; any number read."""

    def __init__(self, into: Path) -> None:
        self.into = into

    def current(self) -> FolderManifest | None:
        """What readers see now; None before the first version."""
        link = self.into / CURRENT
        if not link.is_symlink():
            if self.into.exists() and any(not _is_ours(path) for path in self.into.iterdir()):
                raise InvalidInput(
                    f"{self.into}: holds something else than published tables",
                    hint="Choose an empty or new folder.",
                )
            return None
        path = link / MANIFEST
        try:
            manifest = msgspec.json.decode(path.read_bytes(), type=FolderManifest)
        except (OSError, msgspec.MsgspecError) as error:
            raise CorruptData(
                f"{path}: is no manifest of published tables: {error}",
                hint=f"Remove {self.into} and run the job again: it is made of the store alone.",
            ) from error
        if manifest.format > _FORMAT:
            raise CorruptData(f"{path}: was written by a newer Fourfold")
        return manifest

    def table(self, name: str = "state") -> Path:
        """The folder of a table as it is now, past the link: it stays this version's."""
        return (self.into / CURRENT).resolve() / name

    def staging(self, work: str) -> Path:
        """An empty folder in which a version is made; what others left is swept."""
        self.sweep()
        folder = self.into / f"{_STAGING}{work}"
        try:
            folder.mkdir(mode=0o700, parents=True)
        except OSError as error:
            raise StorageError(f"{folder}: cannot be made: {error.strerror}") from error
        return folder

    def publish(self, staging: Path, manifest: FolderManifest) -> None:
        """Show a version instead of the one before."""
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
        """Remove what was never shown, and versions that nobody can be reading any more."""
        if not self.into.is_dir():
            return
        for path in self.into.iterdir():
            if path.name.startswith(_STAGING):
                _remove(path)
        versions = self.into / VERSIONS
        if not versions.is_dir():
            return
        link = self.into / CURRENT
        shown = link.readlink().name if link.is_symlink() else ""
        for path in versions.iterdir():
            if path.name > shown:
                _remove(path)
        names = sorted(path.name for path in versions.iterdir())
        for name in names[: -limits.PUBLISHED_VERSIONS_KEPT]:
            _remove(versions / name)


def link_or_copy(source: Path, target: Path) -> None:
    """The same file under another name; a copy where the file system has no hard links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _is_ours(path: Path) -> bool:
    return path.name in {CURRENT, VERSIONS, "_delta_log"} or path.name.startswith(_STAGING)


def _tree(folder: Path) -> Iterator[Path]:
    for where, _, names in os.walk(folder):
        for name in names:
            yield Path(where, name)
        yield Path(where)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    else:
        shutil.rmtree(path)
