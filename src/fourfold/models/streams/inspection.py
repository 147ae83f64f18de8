"""Lists about one stream: its producers, its segments, and the subscriptions that follow it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from fourfold.kernel import ReadTransaction
from fourfold.models.streams import validation
from fourfold.models.streams.records import StreamInfo
from fourfold.models.streams.writer import SQL
from fourfold.tabular import Rows

if TYPE_CHECKING:
    from fourfold.models.streams.schemas.registry import Registry


class ProducerState(NamedTuple):
    """An idempotent producer of a stream, and the last of its appends."""

    id: str
    epoch: int
    last_seq: int
    updated_at_ms: int


class SegmentInfo(NamedTuple):
    """A sealed segment of a stream: the records from `first_offset` up to before `next_offset`."""

    first_offset: int
    next_offset: int
    size_bytes: int
    """Size of the Parquet file."""
    payload_bytes: int
    last_append_ms: int
    created_at_ms: int
    published_at_ms: int | None
    """None while it is only on this disk."""

    @property
    def location(self) -> Literal["published", "local"]:
        """Location of the file: the object store, or only this disk."""
        return "local" if self.published_at_ms is None else "published"


class StreamSubscription(NamedTuple):
    """A subscription that follows a stream, and its cursor there."""

    id: str
    kind: Literal["webhook", "pull-wake"]
    pattern: str | None
    explicit: bool
    """False if it follows the stream only because its pattern matches the name."""
    acked: int
    """The next record to process."""
    failures: int
    created_at_ms: int
    pending: int
    """Number of records after the cursor."""
    owner_prefix: str | None = None
    """Prefix of the key that created it; None if it was created without one."""


class LifecycleEvent(NamedTuple):
    """A change of a stream as a whole."""

    event: Literal["created", "forked", "schema", "trimmed", "closed"]
    offset: int
    """The first record after it: the fork, the first record of a schema version, the earliest
    retained record, or the end."""
    at_ms: int | None = None
    """Milliseconds since 1970, if the time is known."""
    schema_version: int | None = None


def list_events(
    info: StreamInfo, registry: Registry, after: int, limit: int
) -> Rows[LifecycleEvent]:
    """Return the changes of a stream as a whole, in the order of its records."""
    fork = info.fork_offset
    began: Literal["created", "forked"] = "created" if fork is None else "forked"
    events = [LifecycleEvent(began, fork or 0, info.created_at_ms)]
    for boundary in registry.boundaries:
        start = validation.parse_offset(boundary.offset)
        assert start is not None
        events.append(LifecycleEvent("schema", start.record, schema_version=boundary.version))
    if info.first_offset:
        events.append(LifecycleEvent("trimmed", info.first_offset))
    events.sort(key=lambda event: event.offset)
    if info.closed:
        events.append(LifecycleEvent("closed", info.next_offset))
    chosen = [event for event in events if event.offset > after]
    return Rows(chosen[: validation.check_limit(limit)], LifecycleEvent)


def read_producers(
    snapshot: ReadTransaction, info: StreamInfo, after: str, limit: int
) -> Rows[ProducerState]:
    """Return producers of a stream in the order of their ids."""
    rows = snapshot.all(SQL.producers_of, (info.sid, validation.check_storable(after), limit))
    return Rows(map(ProducerState._make, rows), ProducerState)


def read_segments(
    snapshot: ReadTransaction, info: StreamInfo, after: int, limit: int
) -> Rows[SegmentInfo]:
    """Return segments of a stream in the order of their records."""
    rows = snapshot.all(SQL.segments_of, (info.name, after, limit))
    return Rows(map(SegmentInfo._make, rows), SegmentInfo)


def read_subscriptions(
    snapshot: ReadTransaction, info: StreamInfo, after: str, limit: int
) -> Rows[StreamSubscription]:
    """Return the subscriptions that follow a stream, in the order of their ids."""
    rows = snapshot.all(SQL.subscriptions_of, (info.name, validation.check_storable(after), limit))
    subscriptions = (
        StreamSubscription(
            *(id_, kind, pattern, bool(explicit), acked, failures, created_at_ms),
            pending=max(0, info.next_offset - acked),
            owner_prefix=owner_prefix,
        )
        for id_, kind, pattern, explicit, acked, failures, created_at_ms, owner_prefix in rows
    )
    return Rows(subscriptions, StreamSubscription)
