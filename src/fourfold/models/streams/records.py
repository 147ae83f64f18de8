"""What streams give back, and what callers hand in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from fourfold.errors import InvalidInput
from fourfold.models.streams.validation import JSON, Offset, plain_type

if TYPE_CHECKING:
    from fourfold.kernel import ReadTransaction
    from fourfold.models.streams.archive.status import ArchiveStatus


class Producer(NamedTuple):
    """Who appends: an id, an epoch that goes up when the producer starts anew, and the number of
    the request in it, from 0.
    """

    id: str
    epoch: int
    seq: int


class StreamInfo(NamedTuple):
    """A stream as its row says."""

    sid: int
    name: str
    created_at_ms: int
    next_offset: int
    content_type: str
    stream_seq: str | None
    closed: bool
    closed_by: Producer | None
    ttl_seconds: int | None
    expires_at_ms: int | None
    deleted: bool
    size_bytes: int
    first_offset: int
    forked_from: int | None
    fork_offset: int | None
    forks: int
    incarnation: str
    profile: str
    retention_seconds: int | None
    retention_bytes: int | None
    wal_bytes: int
    fork_asked: int | None
    fork_sub_offset: int | None
    schema_version: int | None = None
    """The version that its messages are in; 0 without a schema, None without a registry."""
    incarnation_number: int = 0
    """How many streams had its name before, or more; the first half of its offsets."""

    @property
    def has_rules(self) -> bool:
        """Whether it asks more of its records than that they are of its type."""
        return self.schema_version is not None or self.profile != "generic"

    @property
    def is_json(self) -> bool:
        return plain_type(self.content_type) == JSON


class Appended(NamedTuple):
    """What became of an append. `duplicate` means that it was there already, and nothing was
    written; `producer` is the highest request of that producer that was accepted.
    """

    next_offset: int
    duplicate: bool
    closed: bool
    producer: Producer | None = None
    incarnation_number: int = 0

    @property
    def offset(self) -> Offset:
        """The end of the stream, as an offset to read from."""
        return Offset(self.next_offset, self.incarnation_number)


class Record(NamedTuple):
    """One entry of a stream: its place, its bytes, and when it was appended."""

    offset: int
    payload: bytes
    ts_ms: int

    @property
    def value(self) -> Any:
        """The JSON value of the record; InvalidInput if it is not JSON."""
        try:
            return json.loads(self.payload)
        except ValueError as error:
            raise InvalidInput(
                f"record {self.offset} is not JSON: {error}", hint="Read its bytes: record.payload."
            ) from None


class RecordFilter(NamedTuple):
    """What a read by key asks for: records with a routing key; with `field`, messages whose field
    has a value, of which `key` is the JSON.
    """

    key: bytes
    field: str | None = None


class Step(NamedTuple):
    """A step of a read by key: a record that was found, or that there are none below an offset; and
    what was examined for it.
    """

    reached: int
    record: Record | None
    rows: int = 0
    bytes: int = 0
    segments: int = 0


class ColdRecords(Protocol):
    """Reads what is in segments, and no longer in the log."""

    def records(
        self, snapshot: ReadTransaction, sid: int, start: int, end: int
    ) -> Iterator[Record]:
        """The records from `start` up to, and without, `end`."""
        ...

    def joined(
        self, snapshot: ReadTransaction, sid: int, start: int, end: int, separator: bytes
    ) -> tuple[bytes, int]:
        """The payloads of some of them, from `start` on, as one; and the offset to go on from."""
        ...

    def sought(
        self, snapshot: ReadTransaction, sid: int, sought: RecordFilter, start: int, end: int
    ) -> Iterator[Step]:
        """Those of them with a key."""
        ...

    def size_from(self, snapshot: ReadTransaction, sid: int, start: int, end: int) -> int:
        """Their bytes."""
        ...


class Chunk(msgspec.Struct, frozen=True):
    """A part of a stream: records, and where to continue. Iterating yields the records."""

    records: tuple[Record, ...]
    start_offset: int
    next_offset: int
    up_to_date: bool
    closed: bool
    """True if the stream is closed and this chunk reaches its end."""
    incarnation_number: int = 0

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def __bool__(self) -> bool:
        """Always True: a chunk without records still says where to continue."""
        return True

    @property
    def offset(self) -> Offset:
        """Where to continue, as an offset to read from."""
        return Offset(self.next_offset, self.incarnation_number)


class CreateResult(NamedTuple):
    """A stream that was asked for, and whether it is new."""

    info: StreamInfo
    created: bool


class Details(NamedTuple):
    """A stream, and what is counted of it."""

    info: StreamInfo
    pending_rows: int
    pending_bytes: int
    wal_rows: int
    wal_bytes: int
    updated_at_ms: int
    forked_from: str | None
    producers: int
    subscriptions: int
    archived: ArchiveStatus


class Totals(NamedTuple):
    """How much there is in all streams, in the log and in segments. What forks share with their
    sources counts once.
    """

    streams: int
    records: int
    bytes: int
