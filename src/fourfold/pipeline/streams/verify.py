"""Units of work for the verification of streams: the file of a node, or published objects.

    file        its pages, and the invariants of streams and segments, by the rules of the model
    objects     some manifests each: the manifest itself, its origin, and every object that it
                refers to: size, digest, rows, offsets without gaps, sums, times

Objects are verified without the node: they must be consistent by themselves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from fourfold import limits
from fourfold.archive import manifest as manifest_module
from fourfold.archive.manifest import Manifest, PublishedSegment
from fourfold.archive.segment_writer import OFFSET, PAYLOAD, TIME
from fourfold.errors import FourfoldError, NotFound
from fourfold.kernel import Database, inspection
from fourfold.models.streams import MIGRATIONS, PROFILE, validation, verify
from fourfold.objects import ObjectStore, open_objects
from fourfold.pipeline.store_files import StoreFile
from fourfold.pipeline.streams.published_cut import read_manifest
from fourfold.pipeline.verify_tasks import Unit, Verifier, VerifyProblem
from fourfold.query.tables import arrow
from fourfold.retry import Retries

MODEL: Final = "streams"
OBJECTS: Final = "objects"
_LOG: Final = f"{manifest_module.ROOT}/_delta_log/"


class ListedObjects(NamedTuple):
    """The listing of an object store."""

    manifests: tuple[str, ...]
    objects: int
    bytes: int
    state: str
    """A digest that changes whenever an object changes."""


def list_objects(url: str) -> ListedObjects:
    """List the objects of an object store."""
    digest = hashlib.sha256()
    keys: list[str] = []
    count = size = 0
    with open_objects(url) as objects:
        for info in objects.list(f"{manifest_module.ROOT}/"):
            if info.key.startswith(_LOG):
                # The log of the table of all records; no manifest refers to it.
                continue
            digest.update(f"{info.key} {info.version}\n".encode())
            count += 1
            size += info.size
            if info.key.endswith(f"/{manifest_module.MANIFEST}"):
                keys.append(info.key)
    return ListedObjects(tuple(keys), count, size, digest.hexdigest()[:16])


def units(file: StoreFile) -> list[Unit]:
    """Return the units of a node's file."""
    return [Unit(file.path, file.space, file.bytes, model=MODEL)]


def object_units(url: str, listing: ListedObjects) -> list[Unit]:
    """Return the units of published streams: some manifests each, with their objects."""
    if not listing.manifests:
        return []
    share = listing.bytes // len(listing.manifests) + 1
    limit = limits.MANIFESTS_PER_TASK
    size = min(max(limits.VERIFY_TASK_BYTES_MIN // share, 1), limit)
    return [
        Unit(url, "", share * len(part), (OBJECTS,), part, MODEL)
        for part in (
            listing.manifests[at : at + size] for at in range(0, len(listing.manifests), size)
        )
    ]


def iter_problems(unit: Unit) -> Iterator[VerifyProblem]:
    """Yield the problems of a unit."""
    if OBJECTS in unit.only:
        with open_objects(unit.path) as objects:
            check = _ManifestCheck(objects)
            for key in unit.part:
                yield from check.manifest(key)
        return
    try:
        for problem in inspection.check(Path(unit.path), ()):
            yield VerifyProblem(unit.path, unit.space, "pages", problem)
        opened = Database.open(unit.path, profile=PROFILE, migrations=MIGRATIONS, mode="r")
        with opened as database, database.read(deadline_s=float("inf")) as snapshot:
            for problem in verify.problems(snapshot):
                table, _, message = problem.partition(": ")
                yield VerifyProblem(unit.path, unit.space, table, message)
    except FourfoldError as error:
        if error.retryable:
            raise
        yield VerifyProblem(unit.path, unit.space, "file", error.message, found=error.kind)


def problems_of(objects: ObjectStore, manifest: Manifest) -> Iterator[str]:
    """Yield the problems of the objects of a manifest."""
    for problem in _ManifestCheck(objects).objects(manifest):
        yield f"object {problem.file!r} of {manifest.name!r}: {problem.problem}"


class _ManifestCheck:
    """Verifies manifests, one after the other."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._retries = Retries()

    def manifest(self, key: str) -> Iterator[VerifyProblem]:
        """Yield the problems of a manifest and its objects."""
        try:
            manifest = read_manifest(self._objects, self._retries, key)
            validation.check_name(manifest.name)
        except NotFound:
            # Deleted since it was listed.
            return
        except FourfoldError as error:
            if error.retryable:
                raise
            yield VerifyProblem(key, "", "manifest", error.message, found=error.kind)
            return
        if manifest.deleted:
            return
        for problem in (*_contradictions(manifest), *self._origin(manifest)):
            yield VerifyProblem(key, manifest.name, "manifest", problem)
        yield from self.objects(manifest)

    def objects(self, manifest: Manifest) -> Iterator[VerifyProblem]:
        """Yield the problems of the objects of a manifest."""
        for segment in manifest.kept():
            yield from self._segment(manifest, segment)
        for key, size, digest in manifest.others():
            yield from self._bytes(manifest, key, size, digest, _sound)

    def _origin(self, manifest: Manifest) -> Iterator[str]:
        """Yield the problems of a fork's source, which must be published as far as it is shared."""
        origin = manifest.origin
        if origin is None:
            return
        try:
            source = read_manifest(
                self._objects, self._retries, manifest_module.manifest_key(origin.name)
            )
        except NotFound:
            yield f"source {origin.name!r} has no manifest"
            return
        except FourfoldError as error:
            if error.retryable:
                raise
            yield f"the manifest of source {origin.name!r} is damaged"
            return
        if source.deleted or source.incarnation != origin.incarnation:
            yield f"source {origin.name!r} is published with another incarnation"
        elif source.uploaded_through < origin.offset - 1:
            yield (
                f"source {origin.name!r} must be published until {origin.offset}, "
                f"found {source.uploaded_through + 1}"
            )

    def _segment(self, manifest: Manifest, segment: PublishedSegment) -> Iterator[VerifyProblem]:
        def check(data: bytes) -> Iterator[tuple[str, Any, Any]]:
            return _content(data, segment)

        key, size, digest = segment.key, segment.size_bytes, segment.digest
        yield from self._bytes(manifest, key, size, digest, check)

    def _bytes(
        self,
        manifest: Manifest,
        key: str,
        size: int,
        digest: str,
        content: Callable[[bytes], Iterator[tuple[str, Any, Any]]],
    ) -> Iterator[VerifyProblem]:
        """Yield the problems of an object: existence, size, digest, and then its content."""
        try:
            data = self._retries.run(lambda: self._objects.get(key)).data
        except NotFound:
            yield VerifyProblem(key, manifest.name, "object", "object is missing")
            return
        except FourfoldError as error:
            if error.retryable:
                raise
            yield VerifyProblem(key, manifest.name, "object", error.message, found=error.kind)
            return
        if len(data) != size:
            yield _differs(key, manifest, "size differs", size, len(data))
            return
        actual = hashlib.sha256(data).hexdigest()
        if actual != digest:
            yield _differs(key, manifest, "digest differs", digest, actual)
            return
        try:
            for problem, expected, value in content(data):
                yield _differs(key, manifest, problem, expected, value)
        except (OSError, ValueError, KeyError) as error:
            yield VerifyProblem(key, manifest.name, "object", f"not a segment: {error}")


def _differs(
    key: str, manifest: Manifest, problem: str, expected: Any, found: Any
) -> VerifyProblem:
    return VerifyProblem(
        key, manifest.name, "object", problem, expected=str(expected), found=str(found)
    )


def _sound(data: bytes) -> Iterator[tuple[str, Any, Any]]:
    del data
    yield from ()


def _contradictions(manifest: Manifest) -> Iterator[str]:
    """Yield the contradictions within a manifest that decoding does not detect."""
    start = max(manifest.first_offset, 0 if manifest.origin is None else manifest.origin.offset)
    if manifest.generation < 1:
        yield f"generation must be positive, found {manifest.generation}"
    if manifest.uploaded_through >= manifest.next_offset:
        end = manifest.uploaded_through + 1
        yield f"published until {end}, after its end {manifest.next_offset}"
    if (
        manifest.closed
        and max(manifest.uploaded_through + 1, manifest.first_offset) != manifest.next_offset
    ):
        yield "the stream is closed but not completely published"
    at = start
    for segment in manifest.kept():
        if segment.end_offset < manifest.first_offset:
            yield f"the segment at {segment.start_offset} is below the first offset"
        if segment.start_offset > at:
            yield f"no segment has the records from {at} to {segment.start_offset - 1}"
        at = max(at, segment.end_offset + 1)
    if at <= manifest.uploaded_through:
        yield f"no segment has the records from {at} to {manifest.uploaded_through}"


def _content(data: bytes, segment: PublishedSegment) -> Iterator[tuple[str, Any, Any]]:
    """Yield the differences between a segment and its manifest."""
    import pyarrow.compute as pc  # noqa: PLC0415 - an optional dependency
    import pyarrow.parquet as pq  # noqa: PLC0415

    pa = arrow()
    file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
    rows = segment.end_offset - segment.start_offset + 1
    if file.metadata.num_rows != rows:
        yield "number of rows differs", rows, file.metadata.num_rows
    if file.metadata.num_row_groups != segment.groups:
        yield "number of row groups differs", segment.groups, file.metadata.num_row_groups
    following, size, last = segment.start_offset, 0, -1
    for batch in file.iter_batches(columns=[OFFSET, TIME, PAYLOAD], use_threads=False):
        offsets = batch.column(OFFSET).to_pylist()
        if offsets != list(range(following, following + len(offsets))):
            wrong = next(
                (offset for at, offset in enumerate(offsets, following) if at != offset), offsets[0]
            )
            yield "offsets are not consecutive", f"from {following}", wrong
            return
        following += len(offsets)
        size += pc.sum(pc.binary_length(batch.column(PAYLOAD))).as_py() or 0
        last = max(last, pc.max(batch.column(TIME).cast(pa.int64())).as_py())
    if size != segment.payload_bytes:
        yield "size of the payloads differs", segment.payload_bytes, size
    if last != segment.last_ts_ms:
        yield "time of the last record differs", segment.last_ts_ms, last


VERIFIER: Final = Verifier(units, iter_problems)
