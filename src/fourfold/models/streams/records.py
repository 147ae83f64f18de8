"""Records of the streams API: inputs, results and metadata."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import msgspec

from fourfold import html
from fourfold.content.filters import Filter
from fourfold.errors import InvalidInput
from fourfold.models.streams.record_headers import decode_headers
from fourfold.models.streams.validation import JSON, Offset, plain_type
from fourfold.tabular import RecordColumn, Table, Tabular, show_record

if TYPE_CHECKING:
    from fourfold.kernel import ReadTransaction
    from fourfold.models.streams.archive.records import Segment
    from fourfold.models.streams.archive.status import ArchiveStatus
    from fourfold.models.streams.search.companions.reader import Companions


class Producer(NamedTuple):
    """An idempotent producer: its id, its epoch, and the seq of the request in that epoch.

    The epoch increases with each restart of the producer; seq starts at 0.
    """

    id: str
    epoch: int
    seq: int


class StreamInfo(NamedTuple):
    """The metadata of a stream."""

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
    """Schema version of its messages; 0 without a schema, None without a registry."""
    incarnation_number: int = 0
    """First half of its offsets; greater than that of every earlier stream of the name."""
    updated_at_ms: int = 0
    """Time of its last change, which never steps back; no record is later."""

    def _repr_html_(self) -> str:
        return show_record(self)

    @property
    def has_rules(self) -> bool:
        """True if a schema or a profile constrains the records."""
        return self.schema_version is not None or self.profile != "generic"

    @property
    def is_json(self) -> bool:
        """True if the content type is JSON."""
        return plain_type(self.content_type) == JSON


class AppendResult(NamedTuple):
    """The result of an append.

    `duplicate` is True if it was accepted before, and nothing was written; `producer` is the last
    accepted request of the producer.
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
    """One entry of a stream: its offset, its payload, when it was appended, and its headers."""

    offset: int
    payload: bytes
    ts_ms: int
    encoded_headers: bytes | None = None
    """The headers as JSON; None without any."""

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the record, by name."""
        return decode_headers(self.encoded_headers)

    @property
    def size(self) -> int:
        """Bytes of the payload and the headers."""
        return len(self.payload) + len(self.encoded_headers or b"")

    @property
    def value(self) -> Any:
        """The JSON value of the record; InvalidInput if it is not JSON."""
        try:
            return json.loads(self.payload)
        except ValueError as error:
            raise InvalidInput(
                f"record {self.offset} is not JSON: {error}", hint="Read its bytes: record.payload."
            ) from None

    def _repr_html_(self) -> str:
        return html.fragment(html.block(self.payload), caption=f"Record {self.offset}")


Where: TypeAlias = Mapping[str, Any] | Filter | tuple[str, Any]
"""Selects JSON messages: a filter, or a field and its value."""


class RecordFilter(NamedTuple):
    """Selects records by routing key, by the value of a JSON field, or by a filter of messages.

    With `field`, `key` is the value of the field as JSON. Without a key, all records are examined.
    """

    key: bytes | None = None
    field: str | None = None
    where: Filter | None = None
    """Filter of messages as they are read, in the current schema version."""

    @property
    def decodes_messages(self) -> bool:
        """True if a search decodes many messages that do not match."""
        return self.field is not None or self.where is not None


class KeyStep(NamedTuple):
    """One step of a read by key: a matching record or None, and the cost of the search.

    There are no other matches below `reached`.
    """

    reached: int
    record: Record | None
    rows: int = 0
    bytes: int = 0
    segments: int = 0


class ColdRecords(Protocol):
    """Reader of records that are in segments only."""

    def records(
        self, snapshot: ReadTransaction, sid: int, start: int, end: int
    ) -> Iterator[Record]:
        """Yield the records from `start` up to `end`, exclusive."""
        ...

    @property
    def companions(self) -> Companions:
        """Search companions of segments."""
        ...

    def pick(self, segment: Segment, offsets: Sequence[int]) -> Iterator[Record]:
        """Yield the records at some offsets of a segment, in the order of `offsets`."""
        ...

    def keyed_records(
        self, snapshot: ReadTransaction, sid: int, offsets: Sequence[int]
    ) -> Iterator[tuple[Record, bytes | None]]:
        """Yield the records at some offsets, in ascending order, with their routing keys."""
        ...

    def joined(
        self, snapshot: ReadTransaction, sid: int, start: int, end: int, separator: bytes
    ) -> tuple[bytes, int]:
        """Return payloads from `start` on, joined, and the next offset."""
        ...

    def sought(
        self, snapshot: ReadTransaction, sid: int, sought: RecordFilter, start: int, end: int
    ) -> Iterator[KeyStep]:
        """Yield the steps of a search for records that match `sought`."""
        ...

    def size_from(self, snapshot: ReadTransaction, sid: int, start: int, end: int) -> int:
        """Return the payload bytes of the records from `start` up to `end`."""
        ...


RECORD_COLUMNS = (
    RecordColumn("offset", "int"),
    RecordColumn("time", "time"),
    RecordColumn("payload", "bytes"),
    RecordColumn("headers", "json"),
)


class Chunk(msgspec.Struct, Tabular, frozen=True):
    """A part of a stream: records, and where to continue. Iterating yields the records.

    `to_arrow()`, `to_pandas()` and `to_polars()` have the columns `offset`, `time`, `payload` and
    `headers`.
    """

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
        """Always True: a chunk without records still has an offset to continue from."""
        return True

    def _table(self) -> Table:
        rows = (
            (record.offset, record.ts_ms, record.payload, record.headers or None)
            for record in self.records
        )
        return RECORD_COLUMNS, rows

    def _repr_html_(self) -> str:
        rows = ((record.offset, html.block(record.payload)) for record in self.records)
        state = "closed" if self.closed else "up to date" if self.up_to_date else "more to read"
        caption = f"{len(self.records):,} records, {state}; next offset {self.offset}"
        return html.fragment(html.table(("offset", "payload"), rows), caption=caption)

    def cut(self, end: int) -> Chunk:
        """Return the chunk without records from `end` on; up to date if it reaches that."""
        if self.next_offset < end:
            return self
        records = tuple(record for record in self.records if record.offset < end)
        end = max(end, self.start_offset)
        return msgspec.structs.replace(
            self, records=records, next_offset=end, up_to_date=True, closed=False
        )

    @property
    def offset(self) -> Offset:
        """Offset to continue from."""
        return Offset(self.next_offset, self.incarnation_number)


class CreateResult(NamedTuple):
    """The requested stream; `created` is False if it existed."""

    info: StreamInfo
    created: bool


class Details(NamedTuple):
    """The metadata of a stream with its counters and archive status."""

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


class GcReport(msgspec.Struct, frozen=True):
    """Counts of what gc of the streams removed or, in a dry run, would remove."""

    expired: int
    """Streams that had expired."""
    deleted: int
    """Deleted streams of which records were left."""
    records: int
    """Records of all of these, and those that retention excluded."""
    bytes: int
    """Bytes of these records in the database; those in segments are removed by the archive."""
    dry_run: bool = False


class Totals(NamedTuple):
    """Totals over all streams, in the log and in segments.

    Records that forks share with their sources count once.
    """

    streams: int
    records: int
    bytes: int
