"""Immutable objects: named by their content, put once, never overwritten.

An existing object that does not match the digest in its name was truncated by an interrupted
upload, before any manifest referred to it; only such an object is replaced, by compare-and-swap.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from fourfold import limits
from fourfold.errors import AlreadyExists, CorruptData, NotFound
from fourfold.kernel import failpoints
from fourfold.kernel.pauses import Pauses
from fourfold.objects import ObjectStore
from fourfold.retry import Retries

BLOBS: Final = "blobs/"
"""Prefix of large values, which are objects named by their content."""


class Upload(NamedTuple):
    """An object to upload."""

    key: str
    chunks: Callable[[], Iterator[bytes]]
    size: int
    digest: str


def upload_of(key: str, data: bytes) -> Upload:
    """Return the upload of bytes that are in memory."""
    return Upload(key, lambda: iter((data,)), len(data), hashlib.sha256(data).hexdigest())


def upload_of_file(
    key: str, path: Path, size: int, digest: str, pauses: Pauses | None = None
) -> Upload:
    """Return the upload of a file whose size and digest are known; it pauses between parts."""
    between = iter if pauses is None else pauses.between
    return Upload(key, lambda: between(_chunks(path)), size, digest)


def put_once(objects: ObjectStore, wanted: Upload, retries: Retries) -> bool:
    """Upload an object unless it exists; return True if this call created it.

    Of several concurrent uploads of the same object, one returns True.
    """
    if failpoints.armed:
        failpoints.hit("archive.upload.before")
    new = retries.run(lambda: _put(objects, wanted))
    if failpoints.armed:
        failpoints.hit("archive.upload.after")
    return new


def _put(objects: ObjectStore, wanted: Upload) -> bool:
    key = wanted.key
    try:
        objects.upload(key, wanted.chunks(), if_absent=True)
    except AlreadyExists:
        found = objects.head(key)
        if found is None:
            raise NotFound(f"object {key!r} disappeared during the upload") from None
        if found.size != wanted.size or digest_of(objects, key) != wanted.digest:
            objects.put(key, b"".join(wanted.chunks()), if_version=found.version)
        else:
            return False
    return True


def blob_key(digest: str) -> str:
    """Return the key of a large value, as in a blob store on these objects."""
    return f"{BLOBS}{digest[:2]}/{digest}.blob"


class ValueUploads:
    """Uploads values, each once."""

    def __init__(self, objects: ObjectStore, retries: Retries) -> None:
        self._objects = objects
        self._retries = retries
        self.count = 0
        self.bytes = 0

    def carry(self, digest: str, chunks: Callable[[], Iterator[bytes]], size: int | None) -> None:
        """Upload a value unless it exists; see `sealer.Carry`."""
        key = blob_key(digest)
        found = self._retries.run(lambda: self._objects.head(key))
        if size is None:
            size = sum(map(len, chunks()))
        if found is not None and found.size == size:
            age = datetime.now(UTC) - found.modified
            if age.total_seconds() < limits.PUBLISH_ORPHAN_S / 2:
                return
            # The object may be about to be deleted as unreferenced: put the same bytes once more,
            # which makes it new, and restores it if it is already gone.
            self._retries.run(lambda: self._objects.upload(key, chunks()))
            return
        # Another database of this store may upload the same value concurrently.
        if put_once(self._objects, Upload(key, chunks, size, digest), self._retries):
            self.count += 1
            self.bytes += size


def digest_of(objects: ObjectStore, key: str) -> str:
    """Return the SHA-256 of a stored object in hex."""
    hashing = hashlib.sha256()
    for chunk in objects.read(key, limits.ARCHIVE_CHUNK_BYTES):
        hashing.update(chunk)
    return hashing.hexdigest()


def get_checked(objects: ObjectStore, key: str, digest: str, retries: Retries) -> bytes:
    """Return an object with a known digest; raise CorruptData if it is missing or different."""
    try:
        data = retries.run(lambda: objects.get(key)).data
    except NotFound as error:
        raise _missing(key) from error
    if hashlib.sha256(data).hexdigest() != digest:
        raise _different(key)
    return data


def download_checked(objects: ObjectStore, key: str, digest: str | None, path: Path) -> None:
    """Download an object; raise CorruptData if it is missing, or does not have a known digest."""
    hashing = hashlib.sha256()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with path.open("wb") as target:
            for chunk in objects.read(key, limits.ARCHIVE_CHUNK_BYTES):
                hashing.update(chunk)
                target.write(chunk)
    except NotFound as error:
        raise _missing(key) from error
    if digest is not None and hashing.hexdigest() != digest:
        raise _different(key)


def _missing(key: str) -> CorruptData:
    return CorruptData(f"object {key!r} is missing", hint="Run `fourfold verify --objects`.")


def _different(key: str) -> CorruptData:
    return CorruptData(
        f"object {key!r} does not match its digest",
        hint="Run `fourfold verify --objects` to list all damage.",
    )


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(limits.ARCHIVE_CHUNK_BYTES):
            yield chunk
