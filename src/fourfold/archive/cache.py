"""Segments that were fetched, or published from here, kept on disk up to so many bytes.

Whatever was not used for longest goes first. A file in the cache has a name that says its content,
and is written whole before it gets that name; losing any of them, or all, loses nothing. One
process uses a cache folder at a time.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from fourfold.errors import CorruptData, StorageError

_SUFFIX = ".parquet"
_UNFINISHED = re.compile(r"\..+\.parquet\.[0-9]+\.partial")


class DiskCache:
    """A folder of files of at most `bytes_max` together. Safe for many threads. One of no bytes
    keeps nothing, and never looks at its folder.
    """

    def __init__(self, folder: Path, bytes_max: int) -> None:
        self.folder = folder
        self.bytes_max = bytes_max
        self._lock = threading.Lock()
        self._held: OrderedDict[str, int] = OrderedDict()
        self._bytes = 0
        self._scanned = False

    @property
    def size(self) -> int:
        """How much is held."""
        with self._lock:
            self._scan()
            return self._bytes

    def path(self, segment: str) -> Path:
        """Where a segment is, if it is here."""
        return self.folder / f"{segment}{_SUFFIX}"

    def find(self, segment: str) -> Path | None:
        """The file of a segment, which thereby counts as used; None when it is not here."""
        with self._lock:
            self._scan()
            if segment not in self._held:
                return None
            self._held.move_to_end(segment)
        return self.path(segment)

    def fits(self, size: int) -> bool:
        return size <= self.bytes_max

    def add(self, segment: str, chunks: Iterable[bytes], digest: str) -> Path | None:
        """Keep a segment; its file, or None when it is larger than the cache. An error when the
        bytes are not those of the digest.
        """
        final = self.path(segment)
        temporary = final.with_name(f".{final.name}.{threading.get_ident()}.partial")
        hashing = hashlib.sha256()
        size = 0
        try:
            final.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with temporary.open("wb") as file:
                for chunk in chunks:
                    size += len(chunk)
                    hashing.update(chunk)
                    file.write(chunk)
            if hashing.hexdigest() != digest:
                raise CorruptData(
                    f"segment {segment} has {size} bytes of another digest than it should",
                    hint="Run `fourfold verify --objects` to see all that is damaged.",
                )
            if not self.fits(size):
                return None
            # Not brought to disk: what a power cut takes is fetched again.
            temporary.rename(final)
        except OSError as error:
            raise StorageError(f"{final}: cannot be written: {error}") from error
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
        self._note(segment, size)
        return final

    def adopt(self, segment: str, file: Path) -> None:
        """Take over a file that is no longer needed where it is."""
        try:
            size = file.stat().st_size
        except FileNotFoundError:
            return
        if not self.fits(size):
            file.unlink(missing_ok=True)
            return
        final = self.path(segment)
        final.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            file.rename(final)
            self._note(segment, size)

    def drop(self, segment: str) -> None:
        """Forget a segment: it is damaged, or nobody may read it any more."""
        with self._lock:
            self._scan()
            self._bytes -= self._held.pop(segment, 0)
        self.path(segment).unlink(missing_ok=True)

    def _note(self, segment: str, size: int) -> None:
        with self._lock:
            self._scan()
            self._bytes += size - self._held.pop(segment, 0)
            self._held[segment] = size
            gone = []
            while self._bytes > self.bytes_max:
                oldest, freed = self._held.popitem(last=False)
                self._bytes -= freed
                gone.append(oldest)
        for each in gone:
            self.path(each).unlink(missing_ok=True)

    def _scan(self) -> None:
        """Look once what is there, oldest first; what was not finished is swept."""
        if self._scanned or not self.bytes_max:
            return
        self._scanned = True
        found = []
        for folder, _, names in os.walk(self.folder):
            for name in names:
                path = Path(folder, name)
                if _UNFINISHED.fullmatch(name):
                    path.unlink(missing_ok=True)
                elif name.endswith(_SUFFIX):
                    with suppress(FileNotFoundError):
                        stat = path.stat()
                        segment = str(path.relative_to(self.folder)).removesuffix(_SUFFIX)
                        found.append((stat.st_mtime, segment, stat.st_size))
        for _, segment, size in sorted(found):
            self._held[segment] = size
            self._bytes += size
