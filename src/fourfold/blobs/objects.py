"""Blobs as objects of an object store: memory, a local folder or S3.

    PREFIX ba/ba7816bf...15ad.blob     a blob, under the 64 digits of its id

An object is written completely or not at all, so `sweep` has nothing to do; the object store sweeps
its own uploads. A stream is spooled to a temporary file first, because its key is known only at its
end.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import IO

from fourfold import limits
from fourfold.blobs.protocol import (
    BlobUsage,
    Data,
    Source,
    check_age,
    check_data,
    corrupt,
    is_leftover,
    not_found,
    pieces_of,
    verified,
    verified_chunks,
)
from fourfold.content import Hasher, content_id, parse_content_id
from fourfold.errors import AlreadyExists, NotFound
from fourfold.objects import ObjectInfo, ObjectStore, check_prefix
from fourfold.objects.folder import storage_errors
from fourfold.objects.validation import check_chunk_bytes, check_range

_NAME = re.compile(r"([0-9a-f]{2})/(\1[0-9a-f]{62})\.blob")


class ObjectBlobs:
    """A BlobStore in an object store, under keys that start with `prefix`."""

    def __init__(
        self,
        objects: ObjectStore,
        prefix: str = "blobs/",
        *,
        max_bytes: int = limits.BLOB_BYTES_MAX,
    ) -> None:
        self.objects = objects
        self.prefix = check_prefix(prefix)
        self.max_bytes = max_bytes

    def __repr__(self) -> str:
        return f"<ObjectBlobs {self._location}>"

    @property
    def _location(self) -> str:
        return f"{self.objects!r} {self.prefix}"

    def key(self, blob_id: str) -> str:
        """Return the key of a blob, whether or not it exists."""
        digits = parse_content_id(blob_id)
        return f"{self.prefix}{digits[:2]}/{digits}.blob"

    def put(self, data: Data) -> str:
        """Store the bytes unless they exist; return their id."""
        flat = check_data(data, self.max_bytes)
        blob_id = content_id(flat)
        key = self.key(blob_id)
        # A HEAD request is cheaper than sending a large blob, but not a small one.
        check_first = len(flat) > limits.BLOB_CHUNK_BYTES
        self._store(key, len(flat), check_first, lambda absent: self._put(key, flat, absent))
        return blob_id

    def _put(self, key: str, data: bytes | memoryview, if_absent: bool) -> None:
        self.objects.put(key, data, if_absent=if_absent)

    def put_stream(self, source: Source) -> str:
        """Store the bytes of a stream; return their id."""
        hasher = Hasher()
        with tempfile.SpooledTemporaryFile(max_size=limits.BLOB_CHUNK_BYTES) as spool:
            for piece in pieces_of(source, hasher, self.max_bytes):
                with storage_errors("write to a temporary file", writing=True):
                    spool.write(piece)
            key = self.key(hasher.id)
            self._store(key, hasher.size, True, lambda absent: self._upload(key, spool, absent))
        return hasher.id

    def _upload(self, key: str, spool: IO[bytes], if_absent: bool) -> None:
        spool.seek(0)
        pieces = iter(partial(spool.read, limits.BLOB_CHUNK_BYTES), b"")
        self.objects.upload(key, pieces, if_absent=if_absent)

    def _store(self, key: str, size: int, check_first: bool, write: Callable[[bool], None]) -> None:
        existing = self.objects.head(key) if check_first else None
        if existing is None:
            try:
                write(True)
            except AlreadyExists:
                existing = self.objects.head(key)
            else:
                return
        if existing is None or existing.size != size:
            # Whatever it is, it is not the blob; every writer replaces it with the same bytes.
            write(False)

    def get(self, blob_id: str) -> bytes:
        """Return the bytes after verifying their hash."""
        key = self.key(blob_id)
        try:
            data = self.objects.get(key).data
        except NotFound:
            raise not_found(blob_id, self._location) from None
        if is_leftover(blob_id, len(data)):
            raise not_found(blob_id, self._location)
        return verified(blob_id, data, self._object(key))

    def chunks(self, blob_id: str, chunk_bytes: int = limits.BLOB_CHUNK_BYTES) -> Iterator[bytes]:
        """Yield the bytes in pieces, verified as a whole."""
        key = self.key(blob_id)
        return self._chunks(blob_id, key, check_chunk_bytes(chunk_bytes))

    def _chunks(self, blob_id: str, key: str, chunk_bytes: int) -> Iterator[bytes]:
        self.size(blob_id)
        pieces = self.objects.read(key, chunk_bytes)
        try:
            yield from verified_chunks(blob_id, pieces, self._object(key))
        except NotFound:
            raise not_found(blob_id, self._location) from None

    def get_range(self, blob_id: str, start: int, length: int) -> bytes:
        """Return up to `length` bytes from `start`, without verification."""
        start, length = check_range(start, length)
        size = self.size(blob_id)
        count = max(0, min(length, size - start))
        if count == 0:
            return b""
        data = self.objects.get_range(self.key(blob_id), start, count)
        if len(data) != count:
            raise corrupt(blob_id, self._object(self.key(blob_id)))
        return data

    def has(self, blob_id: str) -> bool:
        """Return True if the blob exists, without reading its bytes."""
        return self._info(blob_id) is not None

    def size(self, blob_id: str) -> int:
        """Return the stored size of the blob."""
        info = self._info(blob_id)
        if info is None:
            raise not_found(blob_id, self._location)
        return info.size

    def _info(self, blob_id: str) -> ObjectInfo | None:
        info = self.objects.head(self.key(blob_id))
        return None if info is None or is_leftover(blob_id, info.size) else info

    def ids(self) -> Iterator[str]:
        """Yield every id, sorted."""
        return (blob_id for blob_id, _ in self._iter_blobs())

    def usage(self) -> BlobUsage:
        """Count all blobs. Slow: it visits every one of them."""
        return BlobUsage.of(size for _, size in self._iter_blobs())

    def _iter_blobs(self) -> Iterator[tuple[str, int]]:
        for info in self.objects.list(self.prefix):
            match = _NAME.fullmatch(info.key.removeprefix(self.prefix))
            if match is not None:
                blob_id = f"sha256:{match[2]}"
                if not is_leftover(blob_id, info.size):
                    yield blob_id, info.size

    def delete(self, blob_id: str) -> bool:
        """Delete the blob, even if it is referenced; return False if it did not exist."""
        existed = self.has(blob_id)
        return self.objects.delete(self.key(blob_id)) and existed

    def sweep(self, older_than_s: float = limits.BLOB_SWEEP_AGE_S) -> int:
        """Delete temporary files of dead writers older than this; return their number."""
        check_age(older_than_s)
        return 0

    def _object(self, key: str) -> str:
        return f"object {key!r} of {self.objects!r}"
