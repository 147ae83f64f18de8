"""Publish a stream: upload its sealed segments, replace its manifest, and trim the log.

    upload, oldest first ──> intend ──> replace the manifest ──> one transaction

The manifest is the commit point. It is replaced only if it is the version that this node wrote, so
of two nodes that act as the owner of a stream one publishes; the other gets PublisherFenced. The
transaction marks the segments as uploaded, records the manifest, advances `uploaded_through`, and
trims the covered records from the log. The intent is recorded first, so that a node whose response
was lost recognizes its manifest.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from fourfold import limits
from fourfold.archive import manifest_format
from fourfold.archive.cache import DiskCache
from fourfold.archive.manifest import (
    FORMAT,
    ForkOrigin,
    Manifest,
    decode,
    encode,
    key_of,
    manifest_key,
    segment_key,
)
from fourfold.errors import (
    AlreadyExists,
    CorruptData,
    FourfoldError,
    NotFound,
    PreconditionFailed,
    PublisherFenced,
)
from fourfold.kernel import Database, ReadTransaction, Transaction, failpoints
from fourfold.models.streams.archive import manifest_rules
from fourfold.models.streams.archive.indexes.catalog import manifest_fields as index_fields
from fourfold.models.streams.archive.manifest_rows import KnownRows, record
from fourfold.models.streams.archive.records import (
    SQL,
    PublishResult,
    Segment,
    SegmentArrays,
    Swap,
    meta_of,
)
from fourfold.models.streams.archive.throttle import NO_THROTTLE, Throttle
from fourfold.models.streams.search.companions.catalog import manifest_fields as companion_fields
from fourfold.models.streams.writer import SQL as STREAMS
from fourfold.objects import Object, ObjectStore
from fourfold.retry import Retries

ARCHIVE_PUBLISH_ROWS: Final = 100_000
"""Approximate records that one manifest adds; they are trimmed in the same transaction."""


class LocalSegmentLost(Exception):
    """The file of an unpublished segment is missing or damaged; it is sealed again."""


class _UploadPlan(NamedTuple):
    """Facts that are known before anything is uploaded."""

    row: tuple[Any, ...] | None
    missing: tuple[Segment, ...]
    meta: SegmentArrays
    generation: int
    version: str | None
    token: str | None
    swaps: tuple[Swap, ...] = ()
    retired: frozenset[str] = frozenset()
    """Keys of earlier objects of this node that are not deleted yet."""


class Publisher:
    """Publishes the streams of one database."""

    def __init__(
        self,
        database: Database,
        objects: ObjectStore,
        folder: Path,
        cache: DiskCache,
        *,
        name: str,
        clock: Callable[[], int],
        retries: Retries,
        trim_rows: int = limits.ARCHIVE_TRIM_ROWS,
    ) -> None:
        self._database = database
        self._trim_rows = trim_rows
        self._objects = objects
        self._folder = folder
        self._cache = cache
        self._name = name
        self._clock = clock
        self._retries = retries

    def publish(self, stream: str, pace: Throttle = NO_THROTTLE) -> PublishResult | None:
        """Publish sealed segments of a stream, up to a bound; return None if there was nothing to
        do.
        """
        with pace.piece():
            plan = self._plan(stream)
        if plan.token is not None:
            # The outcome of the last manifest replacement is unknown.
            found = self._fetch(stream)
            if found is not None and manifest_format.token_of(found.data) == plan.token:
                settled = self._record_lost_response(stream, plan, found, pace)
                if settled is not None:
                    return settled
                plan = plan._replace(version=found.info.version)
        if plan.row is None and plan.version is None:
            self._forget(stream)
            return None
        etags, failure = self._upload_all(plan.missing, pace)
        if failure is not None and not etags:
            raise failure
        # The oldest missing segment is never skipped: those before it can be published.
        plan = plan._replace(missing=plan.missing[: len(etags)])
        token = plan.token or uuid.uuid4().hex
        with pace.piece():
            manifest = self._manifest(stream, plan, token)
            pace.transact(
                self._database,
                lambda txn: txn.execute(SQL.intend, (stream, manifest.generation, token)),
            )
        if failpoints.armed:
            failpoints.hit("archive.manifest.intended")
        known = self._replace(stream, plan, manifest)
        if failpoints.armed:
            failpoints.hit("archive.manifest.uploaded")
        done = self._record(stream, plan, known, etags, pace)
        if failure is not None:
            raise failure
        return done

    # What there is to do

    def _plan(self, stream: str) -> _UploadPlan:
        with self._database.read() as snapshot:
            row = snapshot.one(SQL.published_row, (stream,))
            missing = tuple(_bounded(snapshot, stream)) if row is not None else ()
            meta = meta_of(snapshot.one(SQL.meta, (stream,)))
            known = snapshot.one(SQL.manifest, (stream,))
            swaps = tuple(Swap._make(entry) for entry in snapshot.all(SQL.swaps, (stream,)))
            retired = frozenset(entry[0] for entry in snapshot.all(SQL.retired_keys, (stream,)))
        if known is None:
            # The stream is newer than the last scan for new streams.
            self._database.transact(lambda txn: txn.execute(SQL.note_stream, (stream,)))
            known = (1, 0, None, None)
        _, generation, version, token = known
        return _UploadPlan(row, missing, meta, generation + 1, version, token, swaps, retired)

    def _manifest(self, stream: str, plan: _UploadPlan, token: str) -> Manifest:
        shared: dict[str, Any] = {
            "format": FORMAT,
            "token": token,
            "generation": plan.generation,
            "publisher": self._name,
            "name": stream,
            "published_at_ms": self._clock(),
        }
        with self._database.read() as snapshot:
            if plan.row is None:
                number = snapshot.value(STREAMS.past_incarnation_of, (stream,)) or 0
                return Manifest(incarnation="", deleted=True, incarnation_number=number, **shared)
            return Manifest(deleted=False, **shared, **_build_manifest(snapshot, stream, plan))

    # Segments

    def _upload_all(
        self, missing: tuple[Segment, ...], pace: Throttle
    ) -> tuple[dict[int, str], FourfoldError | None]:
        """Upload segments; return the versions in order, and the error that stopped it, if any."""
        etags: dict[int, str] = {}
        for segment in missing:
            try:
                etags[segment.start_offset] = self._upload(segment, pace)
            except FourfoldError as error:
                return etags, error
        return etags, None

    def _upload(self, segment: Segment, pace: Throttle) -> str:
        """Upload a segment unless it exists; return its version."""
        if failpoints.armed:
            failpoints.hit("archive.upload.before")
        path = self._folder / segment.local_path
        key = key_of(segment.segment_id)
        if not _is_whole(path, segment):
            found = self._retries.run(lambda: self._objects.head(key))
            if found is not None and self._retries.run(lambda: self._digest(key)) == segment.digest:
                # It is already uploaded, and trimming of its records may have begun.
                return found.version
            raise LocalSegmentLost(f"{path}: segment file is missing or damaged")
        version = self.put_file(key, path, segment.size_bytes, segment.digest, pace)
        if failpoints.armed:
            failpoints.hit("archive.upload.after")
        return version

    def put_file(
        self, key: str, path: Path, size: int, digest: str, pace: Throttle = NO_THROTTLE
    ) -> str:
        """Upload a file unless it exists; return its version."""
        return self._retries.run(lambda: self._put_file(key, path, size, digest, pace))

    def _put_file(self, key: str, path: Path, size: int, digest: str, pace: Throttle) -> str:
        try:
            chunks = pace.each(_chunks(path))
            return self._objects.upload(key, chunks, if_absent=True).version
        except AlreadyExists:
            found = self._objects.head(key)
            if found is None:
                raise NotFound(f"object {key!r} disappeared during the upload") from None
            if found.size == size and self._digest(key) == digest:
                # An earlier try succeeded, and its response was lost.
                return found.version
            # The name of an object contains its digest, so this one is truncated. No manifest ever
            # referred to it.
            return self._objects.put(key, path.read_bytes(), if_version=found.version).version

    def _digest(self, key: str) -> str:
        hashing = hashlib.sha256()
        for chunk in self._objects.read(key, limits.ARCHIVE_CHUNK_BYTES):
            hashing.update(chunk)
        return hashing.hexdigest()

    # The manifest

    def _fetch(self, stream: str) -> Object | None:
        key = manifest_key(stream)

        def get() -> Object | None:
            try:
                return self._objects.get(key)
            except NotFound:
                return None

        return self._retries.run(get)

    def _replace(self, stream: str, plan: _UploadPlan, manifest: Manifest) -> KnownRows:
        """Replace the manifest that this node wrote before."""
        key, data = manifest_key(stream), encode(manifest)
        version = plan.version

        def put() -> KnownRows:
            nonlocal version
            try:
                if version is None:
                    info = self._objects.put(key, data, if_absent=True)
                else:
                    info = self._objects.put(key, data, if_version=version)
            except (AlreadyExists, PreconditionFailed):
                found = self._objects.get(key)
                if found.data == data:
                    info = found.info
                else:
                    version = self._version_to_replace(stream, plan, manifest, found)
                    info = self._objects.put(key, data, if_version=version)
            return KnownRows(manifest, info.version, len(data))

        try:
            return self._retries.run(put)
        except (PreconditionFailed, NotFound) as error:
            raise _fenced(stream, "the manifest changed during the replacement") from error

    def _version_to_replace(
        self, stream: str, plan: _UploadPlan, manifest: Manifest, found: Object
    ) -> str:
        """Return the version of a conflicting manifest if it may be replaced.

        Raises PublisherFenced if another node wrote it.
        """
        own = manifest_format.token_of(found.data) == manifest.token
        try:
            other = decode(found.data, found.info.key)
        except CorruptData:
            if own:
                # This very manifest, truncated.
                return found.info.version
            raise
        if other.deleted:
            # The name is free.
            return found.info.version
        # An earlier try that arrived late, or the object store returned to an older manifest of
        # this node.
        mine = own or (other.publisher == self._name and other.generation < plan.generation)
        if mine and (plan.row is None or _continues(other, plan)):
            return found.info.version
        raise _fenced(stream, f"generation {other.generation} was written by {other.publisher!r}")

    def _record_lost_response(
        self, stream: str, plan: _UploadPlan, found: Object, pace: Throttle
    ) -> PublishResult | None:
        """Record a manifest of this node whose upload was not recorded.

        Returns None if it is damaged and must be written again.
        """
        try:
            manifest = decode(found.data, found.info.key)
        except CorruptData:
            return None
        # The manifest of an earlier stream with this name; the next manifest replaces it.
        same = plan.row is not None and manifest.incarnation == plan.row[1]
        if same and not _continues(manifest, plan):
            raise _fenced(stream, "the manifest lists other segments than this node")
        known = KnownRows(manifest, found.info.version, len(found.data))
        return self._record(stream, plan, known, {}, pace)

    # The record of it

    def _record(
        self,
        stream: str,
        plan: _UploadPlan,
        known: KnownRows,
        etags: dict[int, str],
        pace: Throttle,
    ) -> PublishResult:
        done = record(
            self._database,
            stream,
            known,
            etags,
            now=self._clock(),
            trim_rows=self._trim_rows,
            pace=pace,
        )
        if failpoints.armed:
            failpoints.hit("archive.manifest.recorded")
        for segment in plan.missing:
            if segment.end_offset <= known.manifest.uploaded_through:
                self._cache.adopt(segment.segment_id, self._folder / segment.local_path)
        return done

    def _forget(self, stream: str) -> None:
        """Retire the objects of a deleted stream that was never published.

        A node may have uploaded segments without reaching the manifest; no manifest will ever drop
        them, so their grace period starts here.
        """

        def work(txn: Transaction) -> None:
            if txn.one(SQL.is_stream, (stream,)) is None:
                txn.execute(SQL.begin_grace, (stream, self._clock()))
                txn.execute(SQL.forget_manifest, (stream,))

        self._database.transact(work)


def _bounded(snapshot: ReadTransaction, stream: str) -> Iterator[Segment]:
    """Return the oldest segments to upload, as many as one transaction can trim."""
    rows = 0
    for row in snapshot.rows(SQL.missing_segments, (stream, limits.ARCHIVE_STREAMS_PER_ROUND)):
        segment = Segment._make(row)
        rows += segment.end_offset - segment.start_offset + 1
        yield segment
        if rows >= ARCHIVE_PUBLISH_ROWS:
            return


def _build_manifest(snapshot: ReadTransaction, stream: str, plan: _UploadPlan) -> dict[str, Any]:
    """Return the manifest of a stream after the missing segments are uploaded."""
    assert plan.row is not None
    (
        sid,
        incarnation,
        created_at_ms,
        content_type,
        profile,
        stream_seq,
        closed,
        closed_id,
        closed_epoch,
        closed_number,
        ttl_seconds,
        expires_at_ms,
        flags,
        retention_seconds,
        retention_bytes,
        first_offset,
        next_offset,
        _,
        uploaded_through,
        uploaded_count,
        _,
        fork_offset,
        fork_asked,
        fork_sub_offset,
        source,
        source_incarnation,
        _,
        incarnation_number,
    ) = plan.row
    count = uploaded_count + len(plan.missing)
    through = plan.missing[-1].end_offset if plan.missing else uploaded_through
    meta = plan.meta.first(count).swapped(plan.swaps)
    origin = None
    if source is not None:
        origin = ForkOrigin(source, source_incarnation, fork_offset, fork_asked, fork_sub_offset)
    return {
        "incarnation": incarnation,
        "incarnation_number": incarnation_number,
        "created_at_ms": created_at_ms,
        "content_type": content_type,
        "profile": profile,
        "stream_seq": stream_seq,
        # A stream whose end is not published may have to continue at the published end.
        "closed": bool(closed) and through == next_offset - 1,
        "closed_by": None if closed_id is None else (closed_id, closed_epoch, closed_number),
        "ttl_seconds": ttl_seconds,
        "expires_at_ms": expires_at_ms,
        "hidden": bool(flags & 1),
        "retention_seconds": retention_seconds,
        "retention_bytes": retention_bytes,
        "origin": origin,
        "first_offset": first_offset,
        "next_offset": next_offset,
        "uploaded_through": through,
        "logical_size_bytes": _size_through(snapshot, sid, through),
        "first_segment": sum(1 for end in meta.ends if end < first_offset),
        "segments": meta.columns(),
        "unlabeled": _unlabeled(snapshot, stream, meta, plan.swaps),
        **manifest_rules.manifest_fields(snapshot, stream),
        **index_fields(snapshot, stream, first_offset),
        **companion_fields(snapshot, stream, _digests(meta, first_offset)),
    }


def _unlabeled(
    snapshot: ReadTransaction, stream: str, meta: SegmentArrays, swaps: tuple[Swap, ...]
) -> list[int]:
    """Return the first offsets of the segments of a manifest whose rows do not name the stream."""
    compacted = {swap.start_offset for swap in swaps if swap.digest in meta.digests}
    listed = set(meta.starts) - compacted
    return [row[0] for row in snapshot.all(SQL.unlabeled_starts, (stream,)) if row[0] in listed]


def _digests(meta: SegmentArrays, first_offset: int) -> dict[int, str]:
    """Return the digests of the segments that are kept, by their first offsets."""
    rows = zip(meta.starts, meta.ends, meta.digests, strict=True)
    return {start: digest for start, end, digest in rows if end >= first_offset}


def _size_through(snapshot: ReadTransaction, sid: int, through: int) -> int:
    """Return the bytes of a stream up to an offset, including removed records."""
    size, size_after = snapshot.one(SQL.size_and_size_after, (sid, through)) or (0, 0)
    return int(size) - int(size_after)


def _continues(manifest: Manifest, plan: _UploadPlan) -> bool:
    """Return True if all segments of a manifest belong to this node.

    These are segments that it has, has compacted, or had before it compacted them.
    """
    assert plan.row is not None
    known = {*plan.meta.digests, *(swap.digest for swap in plan.swaps)}
    columns = manifest.segments
    keys = (
        segment_key(manifest.name, manifest.incarnation, start, digest)
        for start, digest in zip(columns.start_offset, columns.sha256, strict=True)
        if digest not in known
    )
    return manifest.incarnation == plan.row[1] and all(key in plan.retired for key in keys)


def _is_whole(path: Path, segment: Segment) -> bool:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == segment.digest
    except FileNotFoundError:
        return False


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(limits.ARCHIVE_CHUNK_BYTES):
            yield chunk


def _fenced(stream: str, why: str) -> PublisherFenced:
    return PublisherFenced(f"another node publishes the stream {stream!r}: {why}")
