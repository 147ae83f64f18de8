"""The manifest of a folder of tables that a job wrote: its origin, positions and files.

The pipeline writes it beside the tables; the pipeline and the server read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from fourfold.errors import CorruptData

CURRENT: Final = "current"
"""The link to the current version of the tables."""
MANIFEST: Final = "manifest.json"
FORMAT: Final = 1

Key = tuple[str, ...]


class MaterializedFile(msgspec.Struct, frozen=True):
    """A file of a table. `first` and `last` are the least and greatest key; None if it is empty."""

    name: str
    rows: int
    bytes: int
    first: Key | None = None
    last: Key | None = None


class FolderManifest(msgspec.Struct, frozen=True):
    """The description of a version. `spaces` has the seq of each space in it."""

    version: int
    work: str
    origin: Mapping[str, Any]
    """Origin of the tables; another origin needs another folder."""
    spaces: Mapping[str, int]
    files: tuple[MaterializedFile, ...]
    tables: tuple[str, ...] = ("state",)
    format: int = FORMAT
    generations: Mapping[str, int] = {}
    """Numbers that change when rows disappear without a new position."""
    file_ids: Mapping[str, str] = {}
    """The file id of each space: a space created again has another id."""

    @property
    def rows(self) -> int:
        """Total number of rows."""
        return sum(file.rows for file in self.files)

    @property
    def folder(self) -> str:
        """Name of the folder of this version."""
        return f"{self.version:06}-{self.work[-24:]}"


def read_manifest(into: Path) -> FolderManifest:
    """Return the manifest of the current version of the tables in a folder.

    Raises:
        CorruptData: it cannot be read, or was written by a newer version of Fourfold.
    """
    path = into / CURRENT / MANIFEST
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=FolderManifest)
    except (OSError, msgspec.MsgspecError) as error:
        raise CorruptData(
            f"{path}: invalid manifest: {error}",
            hint=f"Remove {into} and run the job again; it only contains derived data.",
        ) from error
    if manifest.format > FORMAT:
        raise CorruptData(f"{path}: written by a newer version of Fourfold")
    return manifest
