"""The check of streams as units of work: the file of a node, or what is published of them.

    file        its pages, and the invariants of streams and segments, by the rules of the model
    objects     some manifests each: what a manifest says, where it goes on from, and every object
                that it speaks of: size, digest, rows, offsets without a hole, sums, times

Nothing is taken from the node to check objects: they must be sound among themselves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from fourfold import limits
from fourfold.archive import manifest as manifest_module
from fourfold.archive.manifest import Manifest, PublishedSegment
from fourfold.archive.retry import Retries
from fourfold.archive.segment_writer import OFFSET, PAYLOAD, TIME
from fourfold.errors import FourfoldError, NotFound
from fourfold.kernel import Database, inspection
from fourfold.models.streams import MIGRATIONS, PROFILE, validation, verify
from fourfold.objects import ObjectStore, open_objects
from fourfold.pipeline.cut import StoreFile
from fourfold.pipeline.streams.published_cut import read_manifest
from fourfold.pipeline.tables import arrow
from fourfold.pipeline.verify_tasks import Unit, VerifyProblem

MODEL: Final = "streams"
OBJECTS: Final = "objects"


class ListedObjects(NamedTuple):
    """What is in an object store, by name alone."""

    manifests: tuple[str, ...]
    objects: int
    bytes: int
    state: str
    """Another text whenever one of them has changed."""


def listed(url: str) -> ListedObjects:
    digest = hashlib.sha256()
    keys: list[str] = []
    count = size = 0
    with open_objects(url) as objects:
        for info in objects.list(f"{manifest_module.ROOT}/"):
            digest.update(f"{info.key} {info.version}\n".encode())
            count += 1
            size += info.size
            if info.key.endswith(f"/{manifest_module.MANIFEST}"):
                keys.append(info.key)
    return ListedObjects(tuple(keys), count, size, digest.hexdigest()[:16])


def units(file: StoreFile) -> list[Unit]:
    """The work that the file of a node is."""
    return [Unit(file.path, file.space, file.bytes, model=MODEL)]


def object_units(url: str, found: ListedObjects) -> list[Unit]:
    """The work that published streams are: some manifests each, with what they speak of."""
    if not found.manifests:
        return []
    share = found.bytes // len(found.manifests) + 1
    most = limits.MANIFESTS_PER_TASK
    size = min(max(limits.VERIFY_TASK_BYTES_MIN // share, 1), most)
    return [
        Unit(url, "", share * len(part), (OBJECTS,), part, MODEL)
        for part in (found.manifests[at : at + size] for at in range(0, len(found.manifests), size))
    ]


def iter_problems(unit: Unit) -> Iterator[VerifyProblem]:
    """What is wrong in a unit."""
    if OBJECTS in unit.only:
        with open_objects(unit.path) as objects:
            check = _Check(objects)
            for key in unit.part:
                yield from check.manifest(key)
        return
    try:
        for problem in inspection.check(Path(unit.path), ()):
            yield VerifyProblem(unit.path, unit.space, "pages", problem)
        opened = Database.open(unit.path, profile=PROFILE, migrations=MIGRATIONS, mode="r")
        with opened as database, database.read(deadline_s=float("inf")) as snapshot:
            for problem in verify.problems(snapshot):
                table, _, said = problem.partition(": ")
                yield VerifyProblem(unit.path, unit.space, table, said)
    except FourfoldError as error:
        if error.retryable:
            raise
        yield VerifyProblem(unit.path, unit.space, "file", error.message, found=error.kind)


def problems_of(objects: ObjectStore, manifest: Manifest) -> Iterator[str]:
    """What is wrong with the objects that a manifest speaks of."""
    for found in _Check(objects).objects(manifest):
        yield f"object {found.file!r} of {manifest.name!r}: {found.problem}"


class _Check:
    """Checks manifests, one after the other."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._retries = Retries()

    def manifest(self, key: str) -> Iterator[VerifyProblem]:
        try:
            told = read_manifest(self._objects, self._retries, key)
            validation.check_name(told.name)
        except NotFound:
            # It went since it was listed.
            return
        except FourfoldError as error:
            if error.retryable:
                raise
            yield VerifyProblem(key, "", "manifest", error.message, found=error.kind)
            return
        if told.deleted:
            return
        for problem in (*_contradictions(told), *self._origin(told)):
            yield VerifyProblem(key, told.name, "manifest", problem)
        yield from self.objects(told)

    def objects(self, told: Manifest) -> Iterator[VerifyProblem]:
        for segment in told.kept():
            yield from self._segment(told, segment)
        for run in told.runs():
            yield from self._bytes(told, run.key, run.size_bytes, run.sha256, _sound)

    def _origin(self, told: Manifest) -> Iterator[str]:
        """Where a fork goes on from: that must be published, as far as the fork shares it."""
        origin = told.origin
        if origin is None:
            return
        try:
            source = read_manifest(
                self._objects, self._retries, manifest_module.manifest_key(origin.name)
            )
        except NotFound:
            yield f"it was forked from {origin.name!r}, which has no manifest"
            return
        except FourfoldError as error:
            if error.retryable:
                raise
            yield f"it was forked from {origin.name!r}, whose manifest is damaged"
            return
        if source.deleted or source.incarnation != origin.incarnation:
            yield f"it was forked from another {origin.name!r} than is published"
        elif source.uploaded_through < origin.offset - 1:
            yield (
                f"it shares {origin.name!r} up to {origin.offset}, which is published only up to "
                f"{source.uploaded_through + 1}"
            )

    def _segment(self, told: Manifest, segment: PublishedSegment) -> Iterator[VerifyProblem]:
        def check(data: bytes) -> Iterator[tuple[str, Any, Any]]:
            return _content(data, segment)

        key, size, digest = segment.key, segment.size_bytes, segment.digest
        yield from self._bytes(told, key, size, digest, check)

    def _bytes(
        self,
        told: Manifest,
        key: str,
        size: int,
        digest: str,
        content: Callable[[bytes], Iterator[tuple[str, Any, Any]]],
    ) -> Iterator[VerifyProblem]:
        """An object: there, as large as it should be, of the bytes that it should have; and then
        what the bytes say.
        """
        try:
            data = self._retries.run(lambda: self._objects.get(key)).data
        except NotFound:
            yield VerifyProblem(key, told.name, "object", "it is missing")
            return
        except FourfoldError as error:
            if error.retryable:
                raise
            yield VerifyProblem(key, told.name, "object", error.message, found=error.kind)
            return
        if len(data) != size:
            yield _differs(key, told, "its size is another one", size, len(data))
            return
        found = hashlib.sha256(data).hexdigest()
        if found != digest:
            yield _differs(key, told, "its content is another one", digest, found)
            return
        try:
            for problem, expected, seen in content(data):
                yield _differs(key, told, problem, expected, seen)
        except (OSError, ValueError, KeyError) as error:
            yield VerifyProblem(key, told.name, "object", f"it is no segment: {error}")


def _differs(key: str, told: Manifest, problem: str, expected: Any, found: Any) -> VerifyProblem:
    return VerifyProblem(
        key, told.name, "object", problem, expected=str(expected), found=str(found)
    )


def _sound(data: bytes) -> Iterator[tuple[str, Any, Any]]:
    del data
    yield from ()


def _contradictions(told: Manifest) -> Iterator[str]:
    """What a manifest says against itself, beyond what makes it unreadable."""
    start = max(told.first_offset, 0 if told.origin is None else told.origin.offset)
    if told.generation < 1:
        yield f"its generation is {told.generation}"
    if told.uploaded_through >= told.next_offset:
        yield f"it ends at {told.next_offset}, and is published up to {told.uploaded_through + 1}"
    if told.closed and max(told.uploaded_through + 1, told.first_offset) != told.next_offset:
        yield "it says that the stream ended, and not all of it is published"
    at = start
    for segment in told.kept():
        if segment.end_offset < told.first_offset:
            yield f"it keeps the segment at {segment.start_offset}, all of which was given up"
        if segment.start_offset > at:
            yield f"it has no segment with the records from {at} to {segment.start_offset - 1}"
        at = max(at, segment.end_offset + 1)
    if at <= told.uploaded_through:
        yield f"it has no segment with the records from {at} to {told.uploaded_through}"


def _content(data: bytes, segment: PublishedSegment) -> Iterator[tuple[str, Any, Any]]:
    """What a segment holds, against what its manifest says of it."""
    import pyarrow.compute as pc  # noqa: PLC0415 - an optional dependency
    import pyarrow.parquet as pq  # noqa: PLC0415

    pa = arrow()
    file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
    rows = segment.end_offset - segment.start_offset + 1
    if file.metadata.num_rows != rows:
        yield "it has another number of rows", rows, file.metadata.num_rows
    if file.metadata.num_row_groups != segment.groups:
        yield "it has another number of row groups", segment.groups, file.metadata.num_row_groups
    following, size, last = segment.start_offset, 0, -1
    for batch in file.iter_batches(columns=[OFFSET, TIME, PAYLOAD], use_threads=False):
        offsets = batch.column(OFFSET).to_pylist()
        if offsets != list(range(following, following + len(offsets))):
            seen = next(
                (each for at, each in enumerate(offsets, following) if at != each), offsets[0]
            )
            yield "its offsets do not follow on each other", f"from {following} on", seen
            return
        following += len(offsets)
        size += pc.sum(pc.binary_length(batch.column(PAYLOAD))).as_py() or 0
        last = max(last, pc.max(batch.column(TIME).cast(pa.int64())).as_py())
    if size != segment.payload_bytes:
        yield "its payloads have another size", segment.payload_bytes, size
    if last != segment.last_ts_ms:
        yield "its last record came at another time", segment.last_ts_ms, last
