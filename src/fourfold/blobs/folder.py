"""Blobs as files in a sharded folder: the bytes of a file are the bytes of the blob.

    ROOT/ba/ba7816bf...15ad.blob       a blob, under the 64 digits of its id
    ROOT/ba/blob-<random>.tmp          a write in progress
    ROOT/blob-<random>.tmp             a stream in progress, whose id is not known yet

A write goes to a temporary file, which is synced, then renamed atomically, then the folder is
synced. So a `.blob` file is always complete, and a crash leaves at worst a temporary file, which
`sweep` deletes. Files have mode 0600, folders 0700.

An existing file of the right size is assumed to be the blob, without reading it; one of another
size is replaced. An empty file under the id of a non-empty blob counts as absent.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from fourfold import limits
from fourfold.blobs.protocol import (
    BlobUsage,
    Data,
    Source,
    check_age,
    check_data,
    is_leftover,
    not_found,
    pieces_of,
    verified,
    verified_chunks,
)
from fourfold.content import Hasher, content_id, parse_content_id
from fourfold.durability import sync_file, sync_folder
from fourfold.objects.folder import (
    DurableFolders,
    TempFile,
    remove_if_dead,
    storage_errors,
)
from fourfold.objects.validation import check_chunk_bytes, check_range

_SHARD = re.compile(r"[0-9a-f]{2}")
_BLOB = re.compile(r"([0-9a-f]{64})\.blob")
_TEMP = re.compile(r"blob-[0-9a-f]{32}\.tmp")
_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


class FolderBlobs:
    """A BlobStore in a local folder, which is created by the first write."""

    def __init__(
        self, root: str | os.PathLike[str], *, max_bytes: int = limits.BLOB_BYTES_MAX
    ) -> None:
        self.root = Path(os.fspath(root)).absolute()
        self.max_bytes = max_bytes
        self._folders = DurableFolders(self.root)

    def __repr__(self) -> str:
        return f"<FolderBlobs {self.root}>"

    def path(self, blob_id: str) -> Path:
        """Return the path of the file of a blob, whether or not it exists; only for reading."""
        digits = parse_content_id(blob_id)
        return self.root / digits[:2] / f"{digits}.blob"

    def put(self, data: Data) -> str:
        """Store the bytes unless they exist; return their id."""
        flat = check_data(data, self.max_bytes)
        blob_id = content_id(flat)
        path = self.path(blob_id)
        with storage_errors(f"write blob {path}", writing=True):
            if not self._is_stored(path, len(flat)):
                self._create_shard(path.parent)
                with _temp_file(path.parent) as temp:
                    temp.write(flat)
                    temp.rename_to(path)
        return blob_id

    def put_stream(self, source: Source) -> str:
        """Store the bytes of a stream; return their id."""
        hasher = Hasher()
        with storage_errors(f"write to {self.root}", writing=True):
            self._folders.ensure_root()
        with _temp_file(self.root) as temp:
            # Errors of the caller's stream pass unchanged.
            for piece in pieces_of(source, hasher, self.max_bytes):
                with storage_errors(f"write to {self.root}", writing=True):
                    temp.write(piece)
            path = self.path(hasher.id)
            with storage_errors(f"write blob {path}", writing=True):
                if not self._is_stored(path, hasher.size):
                    self._create_shard(path.parent)
                    temp.rename_to(path)
        return hasher.id

    def _is_stored(self, path: Path, size: int) -> bool:
        try:
            status = path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        if not stat.S_ISREG(status.st_mode) or status.st_size != size:
            return False
        # Its writer synced the file before renaming it, but may have died before this.
        sync_folder(path.parent)
        return True

    def _create_shard(self, shard: Path) -> None:
        if not shard.is_dir():
            # Missing, or deleted by another process.
            self._folders.clear()
            self._folders.ensure_root()
        self._folders.ensure((shard.name,))

    def get(self, blob_id: str) -> bytes:
        """Return the bytes after verifying their hash."""
        with self._opened(blob_id) as (fd, path, size):
            return verified(blob_id, _read(fd, path, 0, size), str(path))

    def chunks(self, blob_id: str, chunk_bytes: int = limits.BLOB_CHUNK_BYTES) -> Iterator[bytes]:
        """Yield the bytes in pieces, verified as a whole."""
        parse_content_id(blob_id)
        return self._chunks(blob_id, check_chunk_bytes(chunk_bytes))

    def _chunks(self, blob_id: str, chunk_bytes: int) -> Iterator[bytes]:
        with self._opened(blob_id) as (fd, path, size):
            steps = range(0, size, chunk_bytes)
            pieces = (_read(fd, path, at, min(chunk_bytes, size - at)) for at in steps)
            yield from verified_chunks(blob_id, pieces, str(path))

    def get_range(self, blob_id: str, start: int, length: int) -> bytes:
        """Return up to `length` bytes from `start`, without verification."""
        start, length = check_range(start, length)
        with self._opened(blob_id) as (fd, path, size):
            return _read(fd, path, start, min(length, size - start))

    @contextmanager
    def _opened(self, blob_id: str) -> Iterator[tuple[int, Path, int]]:
        path = self.path(blob_id)
        with storage_errors(f"read blob {path}", writing=False):
            try:
                fd = os.open(path, _READ)
            except OSError as error:
                # A symbolic link (ELOOP) is not a blob: the store never creates one.
                if error.errno not in _ABSENT:
                    raise
                raise not_found(blob_id, str(self.root)) from None
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode) or is_leftover(blob_id, status.st_size):
                raise not_found(blob_id, str(self.root))
            yield fd, path, status.st_size
        finally:
            os.close(fd)

    def has(self, blob_id: str) -> bool:
        """Return True if the blob exists, without reading its bytes."""
        return self._size(blob_id) is not None

    def size(self, blob_id: str) -> int:
        """Return the stored size of the blob."""
        size = self._size(blob_id)
        if size is None:
            raise not_found(blob_id, str(self.root))
        return size

    def _size(self, blob_id: str) -> int | None:
        path = self.path(blob_id)
        with storage_errors(f"read the metadata of blob {path}", writing=False):
            try:
                status = path.lstat()
            except (FileNotFoundError, NotADirectoryError):
                return None
        if not stat.S_ISREG(status.st_mode) or is_leftover(blob_id, status.st_size):
            return None
        return status.st_size

    def ids(self) -> Iterator[str]:
        """Yield every id, sorted."""
        return (blob_id for blob_id, _ in self._iter_blobs())

    def usage(self) -> BlobUsage:
        """Count all blobs. Slow: it visits every one of them."""
        return BlobUsage.of(size for _, size in self._iter_blobs())

    def _iter_blobs(self) -> Iterator[tuple[str, int]]:
        for shard in self._shards():
            blobs = []
            for entry in _scan(shard):
                match = _BLOB.fullmatch(entry.name)
                if match is None or not entry.name.startswith(shard.name):
                    continue
                # A file may be deleted after the listing.
                with suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    blob_id = f"sha256:{match[1]}"
                    if stat.S_ISREG(status.st_mode) and not is_leftover(blob_id, status.st_size):
                        blobs.append((blob_id, status.st_size))
            yield from sorted(blobs)

    def _shards(self) -> list[Path]:
        names = (entry.name for entry in _scan(self.root))
        return [self.root / name for name in sorted(names) if _SHARD.fullmatch(name)]

    def delete(self, blob_id: str) -> bool:
        """Delete the blob, even if it is referenced; return False if it did not exist."""
        path = self.path(blob_id)
        existed = self._size(blob_id) is not None
        with storage_errors(f"delete blob {path}", writing=True):
            try:
                path.unlink()
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                return False
            sync_folder(path.parent)
        return existed

    def sweep(self, older_than_s: float = limits.BLOB_SWEEP_AGE_S) -> int:
        """Delete temporary files of dead writers older than this; return their number."""
        check_age(older_than_s)
        newest = time.time() - older_than_s
        removed = 0
        for folder in (self.root, *self._shards()):
            for entry in _scan(folder):
                if _TEMP.fullmatch(entry.name):
                    with storage_errors(f"remove {entry.path}", writing=True):
                        removed += remove_if_dead(folder / entry.name, newest)
        return removed


class _TempFile(TempFile):
    def rename_to(self, path: Path) -> None:
        sync_file(self.fd)
        self.path.replace(path)
        sync_folder(path.parent)


@contextmanager
def _temp_file(folder: Path) -> Iterator[_TempFile]:
    """Create a temporary file that is deleted afterwards, unless it was renamed."""
    with storage_errors(f"create a temporary file in {folder}", writing=True):
        temp = _TempFile(folder / f"blob-{uuid.uuid4().hex}.tmp")
    try:
        yield temp
    finally:
        temp.discard()


def _scan(folder: Path) -> list[os.DirEntry[str]]:
    with storage_errors(f"list folder {folder}", writing=False):
        try:
            with os.scandir(folder) as entries:
                return list(entries)
        except (FileNotFoundError, NotADirectoryError):
            return []


def _read(fd: int, path: Path, start: int, length: int) -> bytes:
    parts: list[bytes] = []
    with storage_errors(f"read blob {path}", writing=False):
        while length > 0 and (part := os.pread(fd, length, start)):
            parts.append(part)
            start += len(part)
            length -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
