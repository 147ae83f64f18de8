"""Immutable objects: named by their content, put once, never overwritten.

An existing object that does not match the digest in its name was truncated by an interrupted
upload, before any manifest referred to it; only such an object is replaced, by compare-and-swap.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from fourfold import limits
from fourfold.errors import AlreadyExists, CorruptData, NotFound
from fourfold.kernel import failpoints
from fourfold.objects import ObjectStore
from fourfold.retry import Retries


class Upload(NamedTuple):
    """An object to upload."""

    key: str
    chunks: Callable[[], Iterator[bytes]]
    size: int
    digest: str


def upload_of(key: str, data: bytes) -> Upload:
    return Upload(key, lambda: iter((data,)), len(data), hashlib.sha256(data).hexdigest())


def upload_of_file(key: str, path: Path, size: int, digest: str) -> Upload:
    return Upload(key, lambda: _chunks(path), size, digest)


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


def digest_of(objects: ObjectStore, key: str) -> str:
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
