"""Disk cache of segments, limited by bytes, with LRU eviction.

The name of a cached file contains the digest of its content, and the file is complete before it
gets that name; losing it loses no data. One process uses a cache folder at a time.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from fourfold.cache import LruCache
from fourfold.errors import CorruptData, StorageError

_SUFFIX = ".parquet"
_UNFINISHED = re.compile(r"\..+\.parquet\.[0-9]+\.partial")


class DiskCache:
    """A folder of files with at most `bytes_max` in total. Thread-safe.

    With `bytes_max=0` it stores nothing, and never reads its folder.
    """

    def __init__(self, folder: Path, bytes_max: int) -> None:
        self.folder = folder
        self.bytes_max = bytes_max
        self._lock = threading.Lock()
        self._sizes: LruCache[str, int] = LruCache(bytes_max, lambda size: size)
        self._scanned = False

    @property
    def size(self) -> int:
        """Total size of the cached files in bytes."""
        with self._lock:
            self._scan()
            return self._sizes.weight

    def path(self, segment: str) -> Path:
        """Return the path of a segment, whether it is cached or not."""
        return self.folder / f"{segment}{_SUFFIX}"

    def find(self, segment: str) -> Path | None:
        """Return the file of a segment and mark it as used; None if it is not cached."""
        with self._lock:
            self._scan()
            if self._sizes.get(segment) is None:
                return None
        return self.path(segment)

    def fits(self, size: int) -> bool:
        """Return True if an object of this size may be cached."""
        return size <= self.bytes_max

    def add(self, segment: str, chunks: Iterable[bytes], digest: str) -> Path | None:
        """Store a segment and return its file, or None if it is larger than the cache.

        Raises CorruptData if the bytes do not match the digest.
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
                    f"segment {segment} has {size} bytes that do not match its digest",
                    hint="Run `fourfold verify --objects` to list all damage.",
                )
            if not self.fits(size):
                return None
            # Not synced: after a power loss it is fetched again.
            temporary.rename(final)
        except OSError as error:
            raise StorageError(f"cannot write {final}: {error}") from error
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
        self._note(segment, size)
        return final

    def adopt(self, segment: str, file: Path) -> None:
        """Move a file that is no longer needed elsewhere into the cache."""
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
        """Remove a segment that is damaged or no longer readable."""
        with self._lock:
            self._scan()
            self._sizes.pop(segment)
        self.path(segment).unlink(missing_ok=True)

    def _note(self, segment: str, size: int) -> None:
        with self._lock:
            self._scan()
            evicted = self._sizes.put(segment, size)
        for key in evicted:
            self.path(key).unlink(missing_ok=True)

    def _scan(self) -> None:
        """Scan the folder once, oldest first, and delete unfinished files."""
        if self._scanned or not self.bytes_max:
            return
        self._scanned = True
        files = []
        for folder, _, names in os.walk(self.folder):
            for name in names:
                path = Path(folder, name)
                if _UNFINISHED.fullmatch(name):
                    path.unlink(missing_ok=True)
                elif name.endswith(_SUFFIX):
                    with suppress(FileNotFoundError):
                        stat = path.stat()
                        segment = str(path.relative_to(self.folder)).removesuffix(_SUFFIX)
                        files.append((stat.st_mtime, segment, stat.st_size))
        for _, segment, size in sorted(files):
            self._sizes.put(segment, size)
