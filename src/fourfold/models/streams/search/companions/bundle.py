"""Bundles: ZIP files without compression, whose sections are read in place.

meta.json           what the bundle covers
col.parquet
fts.sqlite
agg/0.parquet       one per rollup
mblk/0.parquet
"""

from __future__ import annotations

import hashlib
import io
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from fourfold.errors import CorruptData
from fourfold.kernel import failpoints

META: Final = "meta.json"
COL: Final = "col.parquet"
FTS: Final = "fts.sqlite"
_HEADER: Final = struct.Struct("<4s5H3I2H")
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)


class BundleMeta(msgspec.Struct, frozen=True, kw_only=True):
    """Segment and fields that a bundle covers."""

    format: int
    plan_hash: str
    segment: str
    """The id of the segment, which contains its digest."""
    rows: int
    rollups: list[int]
    """The rollups that are present."""
    with_containers: list[int]
    """Rollups that cannot be filtered."""


class SectionEntry(NamedTuple):
    """The place of a section in a bundle."""

    start: int
    size: int


def rollup_entry(family: str, ordinal: int) -> str:
    """Return the name of a section of a rollup."""
    return f"{family}/{ordinal}.parquet"


def write_bundle(path: Path, meta: BundleMeta, sections: Mapping[str, Path]) -> tuple[int, str]:
    """Write a bundle and remove its parts; return its size and digest."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        _add(archive, META, msgspec.json.encode(meta))
        for name, source in sections.items():
            _add(archive, name, source.read_bytes())
            source.unlink()
    if failpoints.armed:
        failpoints.hit("archive.run.built")
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return path.stat().st_size, digest


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    # A fixed time, so that equal sections make equal bundles.
    archive.writestr(zipfile.ZipInfo(name, _EPOCH), data)


def section_sizes(sections: Mapping[str, Path]) -> dict[str, int]:
    """Return the bytes of each family of sections."""
    sizes: dict[str, int] = {}
    for name, path in sections.items():
        family = name.partition("/")[0].partition(".")[0]
        sizes[family] = sizes.get(family, 0) + path.stat().st_size
    return sizes


_DAMAGES = (
    zipfile.BadZipFile,
    EOFError,
    KeyError,
    NotImplementedError,
    OSError,
    OverflowError,
    RuntimeError,
    ValueError,
    msgspec.MsgspecError,
    struct.error,
)
"""What `zipfile` and the decoder raise for damaged files."""


def read_directory(source: Any, what: str) -> tuple[BundleMeta, dict[str, SectionEntry]]:
    """Return what a bundle contains; raise CorruptData if it is damaged."""
    try:
        with zipfile.ZipFile(source) as archive:
            entries = {}
            for info in archive.infolist():
                if info.compress_type != zipfile.ZIP_STORED:
                    raise CorruptData(f"{what}: section {info.filename!r} is compressed")
                source.seek(info.header_offset)
                header = _HEADER.unpack(source.read(_HEADER.size))
                start = info.header_offset + _HEADER.size + header[9] + header[10]
                entries[info.filename] = SectionEntry(start, info.file_size)
            meta = msgspec.json.decode(archive.read(META), type=BundleMeta)
    except _DAMAGES as error:
        raise CorruptData(f"{what} is not a companion: {error}") from error
    return meta, entries


class SectionFile(io.RawIOBase):
    """A section of a bundle as a seekable file."""

    def __init__(self, source: Any, entry: SectionEntry) -> None:
        super().__init__()
        self._source = source
        self._entry = entry
        self._at = 0

    def readable(self) -> bool:
        """Return True if the file can be read."""
        return True

    def seekable(self) -> bool:
        """Return True if the position can be set."""
        return True

    def tell(self) -> int:
        """Return the position in the file."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position in the file and return it."""
        bases = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._entry.size}
        self._at = bases[whence] + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Read up to `size` bytes, all that are left by default."""
        left = self._entry.size - self._at
        length = left if size is None or size < 0 else min(size, left)
        if length <= 0:
            return b""
        self._source.seek(self._entry.start + self._at)
        data: bytes = self._source.read(length)
        self._at += len(data)
        return data
