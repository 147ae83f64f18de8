"""Streams at a restore point: their published positions, and manifests that end there.

A bootstrap reads manifests. To restore streams to an earlier point it reads `ObjectsAt` instead of
the object store: it returns each manifest as of that point. A stream whose records compaction or
retention removed since cannot be restored, and raises HistoryTruncated.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import Any, NamedTuple

import msgspec

from fourfold.archive.manifest import (
    LEFT,
    MANIFEST,
    LogIndex,
    Manifest,
    Segments,
    decode,
    encode,
    name_hash,
)
from fourfold.archive.restore_points import Place
from fourfold.archive.stream_records import RecordSegment
from fourfold.archive.uploads import put_once, upload_of
from fourfold.errors import HistoryTruncated, NotFound, PreconditionFailed, PublisherFenced
from fourfold.kernel import ReadTransaction, load_queries
from fourfold.models.streams.archive import manifest_rules
from fourfold.objects import Object, ObjectInfo, ObjectStore
from fourfold.retry import Retries

_SQL = load_queries("fourfold.models.streams", "publication.sql")


class TrimmedRecords(NamedTuple):
    """The published position of a stream; the incarnation of a deleted one is empty."""

    name: str
    generation: int
    uploaded_through: int
    incarnation: str


def moved_since(snapshot: ReadTransaction, since_ms: int) -> Iterator[TrimmedRecords]:
    """Yield the streams whose manifests were written at or after a time."""
    for row in snapshot.rows(_SQL.moved_since, (since_ms,)):
        yield TrimmedRecords._make(row)


def labeled_segments(snapshot: ReadTransaction, stream: str) -> Iterator[RecordSegment]:
    """Yield the published segments of a stream whose rows name it, in order."""
    return map(RecordSegment._make, snapshot.rows(_SQL.labeled_segments, (stream,)))


class ObjectsAt:
    """An object store that returns stream manifests as of a restore point.

    With `take_over` it also writes them, so that the restored store publishes from there; it keeps
    the newer manifests under another key.
    """

    def __init__(
        self,
        objects: ObjectStore,
        places: Mapping[str, Place],
        *,
        take_over: bool,
        retries: Retries,
    ) -> None:
        self._objects = objects
        self._places = places
        self._take_over = take_over
        self._retries = retries

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """List objects, as the wrapped object store does."""
        return self._objects.list(prefix, start_after=start_after)

    def get(self, key: str) -> Object:
        """Return an object; the manifest of a stream is that of the restore point."""
        read = self._objects.get(key)
        if not key.endswith(f"/{MANIFEST}"):
            return read
        newest = decode(read.data, key)
        place = self._places.get(newest.name)
        if place is None or not place.incarnation:
            if self._take_over and not newest.deleted:
                self._replace(read, _ended(newest))
            raise NotFound(f"{key}: the stream did not exist at that restore point")
        earlier = _cut(self._as_of(newest, place), place)
        if earlier.segments == newest.segments and not newest.deleted:
            return read
        if self._take_over:
            return self._replace(read, earlier)
        # A version that the object store never returns, so a conditional put with it fails.
        info = ObjectInfo(key, read.info.size, f'"{uuid.uuid4().hex}"', read.info.modified)
        return Object(encode(earlier), info)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._objects, name)

    def _as_of(self, newest: Manifest, place: Place) -> Manifest:
        """Return the manifest of a generation, or the next later one."""
        prefix = f"{LEFT}/{name_hash(newest.name)}/"
        for info in self._objects.list(prefix):
            if int(info.key.removeprefix(prefix).split("-")[0]) >= place.generation:
                return decode(self._objects.get(info.key).data, info.key)
        return newest

    def _replace(self, read: Object, earlier: Manifest) -> Object:
        """Replace the newest manifest by an earlier one, and keep a copy of the newest."""
        key, newest = read.info.key, decode(read.data, read.info.key)
        digest = hashlib.sha256(read.data).hexdigest()
        folder = f"{LEFT}/{name_hash(newest.name)}"
        copy_key = f"{folder}/{newest.generation:012d}-{digest[:16]}.json"
        put_once(self._objects, upload_of(copy_key, read.data), self._retries)
        manifest = msgspec.structs.replace(
            earlier, generation=newest.generation + 1, token=uuid.uuid4().hex
        )
        data = encode(manifest)
        try:
            info = self._objects.put(key, data, if_version=read.info.version)
        except PreconditionFailed as error:
            raise PublisherFenced(
                f"stream {newest.name!r}: another node published meanwhile",
                hint="Run the restore again.",
            ) from error
        return Object(data, info)


def _cut(manifest: Manifest, place: Place) -> Manifest:
    """Return a manifest up to an offset, or raise HistoryTruncated if it is not covered."""
    through, columns = place.position, manifest.segments
    count = sum(1 for end in columns.end_offset if end <= through)
    reached = columns.end_offset[count - 1] if count else -1
    begins = manifest.origin is not None and count == 0
    if (
        manifest.deleted
        or manifest.incarnation != place.incarnation
        or manifest.first_segment > count
        or (reached != through and not begins)
    ):
        raise HistoryTruncated(
            f"stream {manifest.name!r}: cannot restore to record {through}, it was deleted, "
            "compacted or trimmed since"
        )
    left = sum(columns.payload_bytes[count:])
    whole = count == manifest.segment_count
    return msgspec.structs.replace(
        manifest,
        segments=Segments(*(getattr(columns, name)[:count] for name in _COLUMNS)),
        uploaded_through=through,
        next_offset=max(through + 1, manifest.first_offset),
        logical_size_bytes=manifest.logical_size_bytes - left,
        closed=manifest.closed and whole,
        closed_by=manifest.closed_by if whole else None,
        stream_seq=manifest.stream_seq if whole else None,
        schema_json=manifest.schema_json if whole else manifest_rules.until(manifest, through + 1),
        index=None if manifest.index is None else _cut_index(manifest.index, through),
        secondary={name: _cut_index(index, through) for name, index in manifest.secondary.items()},
    )


def _cut_index(index: LogIndex, through: int) -> LogIndex:
    """Return an index without runs after an offset, where other records may be appended."""
    runs = list(takewhile(lambda run: run.end_offset <= through, index.runs))
    if len(runs) == len(index.runs):
        return msgspec.structs.replace(index, indexed_offset=min(index.indexed_offset, through + 1))
    ends = runs[-1].end_offset + 1 if runs else index.runs[0].start_offset
    return msgspec.structs.replace(index, runs=runs, indexed_offset=ends)


_COLUMNS = Segments.__struct_fields__


def _ended(manifest: Manifest) -> Manifest:
    return Manifest(
        manifest.format,
        manifest.token,
        manifest.generation,
        manifest.publisher,
        manifest.name,
        "",
        deleted=True,
        published_at_ms=manifest.published_at_ms,
        incarnation_number=manifest.incarnation_number,
    )
