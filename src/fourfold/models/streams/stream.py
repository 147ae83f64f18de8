"""Handle of one stream: append, read, follow, fork, schema and profile."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fourfold import html, limits
from fourfold.arguments import check_arguments
from fourfold.content.filters import parse_filter
from fourfold.errors import InvalidInput
from fourfold.models.streams import (
    inspection,
    json_messages,
    reader,
    routing_keys,
    rule_changes,
    validation,
)
from fourfold.models.streams.append import Append
from fourfold.models.streams.archive.indexes import fields
from fourfold.models.streams.profiles import GenericProfile
from fourfold.models.streams.record_headers import encode_headers
from fourfold.models.streams.records import (
    AppendResult,
    Chunk,
    Producer,
    Record,
    RecordFilter,
    StreamInfo,
    Where,
)
from fourfold.models.streams.rule_changes import UNCHANGED, FieldsChange, KeyChange
from fourfold.models.streams.search.request import (
    SEARCH_BYTES,
    SEARCH_LIMIT,
    SEARCH_TIMEOUT_S,
    check_aggregate,
    check_search,
)
from fourfold.models.streams.settings import Setting, SettingsChange
from fourfold.models.streams.times import Time, check_start, parse_time_ms, read_start
from fourfold.models.streams.validation import Offset, format_offset
from fourfold.models.streams.writer import Fork, get_stream

if TYPE_CHECKING:
    from fourfold.content.filters import Filter
    from fourfold.kernel import ReadTransaction
    from fourfold.models.streams.compaction_result import CompactionResult
    from fourfold.models.streams.inspection import (
        LifecycleEvent,
        ProducerState,
        SegmentInfo,
        StreamSubscription,
    )
    from fourfold.models.streams.routing_keys import KeyPage
    from fourfold.models.streams.schemas.registry import Registry
    from fourfold.models.streams.search.results import Aggregates, SearchPage
    from fourfold.models.streams.streams import Streams
    from fourfold.tabular import Rows


def sought(key: str | bytes | None = None, where: Where | None = None) -> RecordFilter | None:
    """Return the filter of a read by key or by the values of messages, or None for all records."""
    routing_key = None if key is None else validation.check_key(key)
    if where is None:
        return None if routing_key is None else RecordFilter(routing_key)
    if not isinstance(where, tuple):
        return RecordFilter(routing_key, where=parse_filter(where))
    if routing_key is not None:
        raise InvalidInput("pass key, or a field and its value, not both", hint="Use a filter.")
    field, value = where
    encoded = fields.key_of_value(value)
    if encoded is None:
        raise InvalidInput(
            f"field {field!r}: value must be text, a number, a boolean or null, got {value!r:.80}"
        )
    return RecordFilter(encoded, fields.check_field(field))


@check_arguments()
class Stream:
    """A handle of one stream, by its name. It holds no resources.

    stream = store.streams.create("clicks", "application/json")
    stream.append({"id": 1})
    for record in stream: print(record.value)      # up to the end
    for chunk in stream.follow(): ...              # and on, as records arrive
    """

    def __init__(self, streams: Streams, name: str) -> None:
        self._streams = streams
        self.name = name

    @property
    def info(self) -> StreamInfo:
        """The metadata of the stream."""
        return self._streams.info(self.name)

    def append(
        self,
        values: Any,
        *,
        producer: Producer | None = None,
        seq: str | None = None,
        close: bool = False,
        key: str | bytes | None = None,
        expected: str | int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AppendResult:
        """Append one or several records; return when they are on disk.

            stream.append({"id": 1})                  # one message of a JSON stream
            stream.append([{"id": 1}, {"id": 2}])     # two, in one transaction
            stream.append("a line\\n")                # a stream of text
            stream.append(b"...")                     # bytes, as `append_bytes`

        Args:
            values: For a JSON stream, a JSON value, or a list of values that become one message
                each. For others, bytes or a list of bytes; text for a stream of text.
            producer: The id, epoch and number of an idempotent producer, to retry safely.
            seq: A text that must be greater than that of the append before.
            close: Close the stream after these records.
            key: A routing key, by which the records can be read.
            expected: Append only if the stream ends exactly here: an offset, or a number of
                records. A repeated request of a producer is a duplicate all the same.
            headers: Short texts by name, which each of the records has: `record.headers`.

        Raises:
            InvalidInput: A value does not fit the content type of the stream.
            PreconditionFailed: The stream does not end at `expected`; `details["next_offset"]`
                is where it ends.
            StreamClosed: The stream takes no more records.
        """
        request = self._request(
            values, producer, seq, key, close=close, expected=expected, headers=headers
        )
        return self._streams.append(self.name, request)

    def append_bytes(
        self,
        records: Iterable[bytes] | bytes,
        *,
        producer: Producer | None = None,
        seq: str | None = None,
        close: bool = False,
        key: str | bytes | None = None,
        expected: str | int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AppendResult:
        """Append records as bytes; an array of JSON text becomes one message per element."""
        data = [records] if isinstance(records, bytes) else list(records)
        for item in data:
            if not isinstance(item, bytes):
                raise InvalidInput(
                    f"stream {self.name!r}: a record must be bytes, got {type(item).__name__}",
                    hint="Use append() for values.",
                )
        return self.append(
            data,
            producer=producer,
            seq=seq,
            close=close,
            key=key,
            expected=expected,
            headers=headers,
        )

    async def append_async(
        self,
        values: Any,
        *,
        producer: Producer | None = None,
        seq: str | None = None,
        close: bool = False,
        key: str | bytes | None = None,
        expected: str | int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AppendResult:
        """Append one or several records like `append`, from a coroutine."""
        request = self._request(
            values, producer, seq, key, close=close, expected=expected, headers=headers
        )
        return await self._streams.append_async(self.name, request)

    def close(self) -> AppendResult:
        """Close the stream: it accepts no more appends, and readers receive an end marker."""
        return self._streams.append(self.name, Append((), None, close=True))

    def read(
        self,
        after: str | int = validation.START,
        limit: int | None = None,
        *,
        at: datetime | str | int | None = None,
        since: Time | None = None,
        key: str | bytes | None = None,
        where: Where | None = None,
        offset: str | int | None = None,
    ) -> Chunk:
        """Return the records after an offset: all, or those with `key` that match `where`.

        A chunk of a read by `key` or `where` may be empty and end before the stream does: continue
        until it is `up_to_date`.

            stream.read(where={"status": "open", "/total": {"$gte": 10}})
            stream.read(at=datetime(2026, 3, 1, tzinfo=UTC))

        Args:
            after: An offset, "-1" for the start, "now", or the number of the next record to read.
            at: The stream as it was then: only records before this offset, or that were appended
                up to this datetime.
            since: Start at the first record that was appended at or after this time, instead of
                `after`: a datetime, ISO 8601 text, or milliseconds since 1970.
            where: A filter of JSON messages, as they are read: in the current schema version. Or a
                field and its value, which an index can find, as they are stored.
            offset: Another name of `after`.
        """
        start = self._start(read_start(after, offset), since)
        records_max = limits.STREAM_READ_RECORDS if limit is None else validation.check_limit(limit)
        end = None if at is None else self._end(at)
        record_filter = sought(key, where)
        _, chunk = self._streams.read(
            self.name, start, records_max=records_max, sought=record_filter
        )
        return chunk if end is None else chunk.cut(end)

    def search(
        self,
        query: str = "",
        *,
        where: Mapping[str, Any] | Filter | None = None,
        since: Time | None = None,
        until: Time | None = None,
        order: str = "newest",
        limit: int = SEARCH_LIMIT,
        after: str | None = None,
        total: bool = False,
        timeout_s: float = SEARCH_TIMEOUT_S,
        max_bytes: int = SEARCH_BYTES,
    ) -> SearchPage:
        """Return the messages that match a query and a filter, the newest first.

            page = stream.search('service:auth status:>=500 "slow plan"', limit=20)
            for hit in page:
                print(hit.offset, hit.value, hit.snippets)
            more = stream.search('service:auth status:>=500 "slow plan"', after=page.next)

        Everything up to the end of the stream is searched. If the budget of time or bytes runs out,
        `page.coverage.complete` is False, and the next page continues the search.

        Args:
            query: Words, `"phrases"`, `pre*`, `field:value`, `field:>=5`, `has:field`, `-not`,
                `a OR b`, and parentheses.
            where: A filter, as in `space.find`.
            since: Only messages at or after this time: their declared timestamp, or when they were
                appended.
            until: Only messages at or before this time.
            order: "newest", or "score" for the best of the newest 10,000 matches first.
            limit: Maximum number of messages, up to 1,000.
            after: The `next` of the page before.
            total: Count all matches; only for the first page.
            timeout_s: Maximum time.
            max_bytes: Maximum payload that is read record by record.

        Raises:
            InvalidInput: The query, the filter or a cursor is invalid, or the stream is not JSON.
        """
        request = check_search(
            query,
            where=where,
            since=since,
            until=until,
            order=order,
            limit=limit,
            after=after,
            total=total,
            timeout_s=timeout_s,
            max_bytes=max_bytes,
        )
        return self._streams.search(self.name, request)

    def aggregate(
        self,
        query: str = "",
        *,
        by: Sequence[str] = (),
        every: str | None = None,
        measures: Sequence[str] = ("count",),
        where: Mapping[str, Any] | Filter | None = None,
        since: Time | None = None,
        until: Time | None = None,
        timeout_s: float = SEARCH_TIMEOUT_S,
        max_bytes: int = SEARCH_BYTES,
    ) -> Aggregates:
        """Return groups of the messages that match, with their measures.

            stream.aggregate(by=["service"], every="1m", measures=["count", "p95(duration)"])

        Args:
            query: As in `search`.
            by: Fields to group by; a missing value is grouped as None.
            every: Group by intervals of this length, such as "10s", "1m", "1h" or "1d".
            measures: "count", or "sum", "min", "max", "avg" or a percentile of a field, such as
                "p95(duration)".
            where: A filter, as in `space.find`.
            since: Only messages at or after this time, as in `search`.
            until: Only messages at or before this time.
            timeout_s: Maximum time.
            max_bytes: Maximum payload that is read record by record.

        Raises:
            InvalidInput: An argument is invalid, or the stream is not JSON.
            LimitExceeded: There are more than 50,000 groups.
        """
        request = check_aggregate(
            query,
            by=by,
            every=every,
            measures=measures,
            where=where,
            since=since,
            until=until,
            timeout_s=timeout_s,
            max_bytes=max_bytes,
        )
        return self._streams.aggregate(self.name, request)

    def compact(
        self,
        horizon: str | int | None = None,
        *,
        since: Time | None = None,
        timeout_s: float | None = None,
    ) -> CompactionResult:
        """Remove the history of a state stream before a horizon, and keep its state.

            stream.compact(since=datetime.now(UTC) - timedelta(days=7))

        The newest change of each key before the horizon is appended once more; then all records
        before it are removed for good. Reading them raises OffsetGone. A call that was interrupted
        can be repeated.

        Args:
            horizon: An offset, or "now" for the end.
            since: The horizon is the first record that was appended at or after this time.
            timeout_s: Stop after this time; `result.complete` is False then. Repeat the call with
                `result.horizon`.

        Raises:
            Refused: The stream has another profile than "state-protocol", or forks.
            StreamClosed: The stream is closed.
        """
        return self._streams.compact(self.name, horizon, since=since, timeout_s=timeout_s)

    def fork(self, name: str, at: str | int | None = None, *, sub_offset: int = 0) -> Stream:
        """Create a stream that shares the records before `at`, by default all, without copying."""
        offset = at if at is None or type(at) is int else validation.parse_offset(at)
        return self._streams.create(name, fork=Fork(self.name, offset, sub_offset))

    def configure(
        self,
        *,
        ttl: Setting = UNCHANGED,
        expires_at_ms: Setting = UNCHANGED,
        retention_seconds: Setting = UNCHANGED,
        retention_bytes: Setting = UNCHANGED,
    ) -> StreamInfo:
        """Change the lifetime or the retention of the stream, and return its new metadata.

        None removes a setting; omitted settings do not change. A TTL and a fixed expiry replace
        each other. Trimmed records stay trimmed.
        """
        settings = SettingsChange(ttl, expires_at_ms, retention_seconds, retention_bytes)
        return self._streams.configure(self.name, settings)

    def schema(self) -> Registry:
        """Return the schema registry: versions, lenses, routing key and search fields."""
        return self._streams.schemas.get(self.name)

    def producers(
        self, *, after: str = "", limit: int = limits.PAGE_ITEMS_MAX
    ) -> Rows[ProducerState]:
        """Return idempotent producers of the stream, in the order of their ids.

        Args:
            after: Only producers after this id.
            limit: Maximum number of producers.
        """
        with self._snapshot() as (snapshot, info):
            return inspection.read_producers(snapshot, info, after, limit)

    def segments(self, *, after: int = -1, limit: int = limits.PAGE_ITEMS_MAX) -> Rows[SegmentInfo]:
        """Return sealed segments of the stream, in the order of their records.

        The newest records are in no segment yet; a fork has segments of its own records only.

        Args:
            after: Only segments whose first record is after this one.
            limit: Maximum number of segments.
        """
        with self._snapshot() as (snapshot, info):
            return inspection.read_segments(snapshot, info, after, limit)

    def keys(
        self,
        *,
        prefix: str | bytes = "",
        after: str | bytes | None = None,
        limit: int = limits.PAGE_ITEMS_MAX,
    ) -> KeyPage:
        """Return the routing keys of the stream, each with the offset of its newest record.

        Keys are in the order of their bytes. A fork has those of its own records only.

        Args:
            prefix: Only keys that begin with this.
            after: Only keys after this one; pass `page.after` to continue.
            limit: Maximum number of keys.
        """
        with self._snapshot() as (snapshot, info):
            return routing_keys.read_keys(snapshot, info, prefix, after, limit)

    def subscriptions(
        self, *, after: str = "", limit: int = limits.PAGE_ITEMS_MAX
    ) -> Rows[StreamSubscription]:
        """Return the subscriptions that follow the stream, with their cursors.

        Args:
            after: Only subscriptions after this id.
            limit: Maximum number of subscriptions.
        """
        with self._snapshot() as (snapshot, info):
            return inspection.read_subscriptions(snapshot, info, after, limit)

    def set_schema(
        self,
        schema: Any = UNCHANGED,
        *,
        lens: Any = None,
        routing_key: KeyChange = UNCHANGED,
        search: FieldsChange = UNCHANGED,
    ) -> Registry:
        """Add a schema version, or set the routing key or the search fields.

        `lens` converts messages of the previous version; `routing_key` is where messages contain
        their key, `search` the fields to find them by, or a search declaration: a dictionary with
        `fields`, `text`, `columns`, `timestamp` and `rollups`. Omitted parts do not change.
        """
        change = rule_changes.registry_change(schema, lens, routing_key, search)
        return self._streams.schemas.put(self.name, change)

    def profile(self) -> GenericProfile:
        """Return the profile of the stream."""
        return self._streams.profiles.get(self.name)

    def set_profile(
        self,
        kind: str,
        *,
        touch: bool | None = None,
        redact: Sequence[str] | None = None,
        routing_key: Sequence[str] | None = None,
    ) -> GenericProfile:
        """Set the profile of the stream; omitted options have their defaults.

        The kind is "generic", "state-protocol" (with `touch`), or "evlog" (with `redact` and
        `routing_key`).
        """
        profile = rule_changes.profile(kind, touch, redact, routing_key)
        return self._streams.profiles.put(self.name, profile)

    def follow(
        self,
        after: str | int = validation.START,
        *,
        since: Time | None = None,
        timeout: float | None = None,
        key: str | bytes | None = None,
        where: Where | None = None,
        offset: str | int | None = None,
    ) -> Iterator[Chunk]:
        """Yield chunks and wait for more, until the stream is closed.

        Ends after `timeout` seconds without new records. `after` is an offset, "-1" for the start
        or "now"; `offset` is another name of it. `key`, `where` and `since` select records as in
        `read`.
        """
        at = self._start(read_start(after, offset), since)
        while True:
            count = self._streams.notifier.count
            chunk = self.read(at, key=key, where=where)
            at = chunk.offset
            if not chunk.records and not chunk.up_to_date:
                continue
            if chunk.records or chunk.closed:
                yield chunk
                if chunk.closed:
                    return
                continue
            until = None if timeout is None else time.monotonic() + timeout
            if not self._wait(chunk, count, until):
                return

    def _wait(self, chunk: Chunk, count: int, until: float | None) -> bool:
        """Wait for records after a chunk; return False on timeout."""
        while True:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return False
            pause = (
                limits.WATCH_HEARTBEAT_S if left is None else min(left, limits.WATCH_HEARTBEAT_S)
            )
            self._streams.notifier.wait(count, pause)
            count = self._streams.notifier.count
            info = self.info
            if info.closed or chunk.offset != format_offset(
                info.next_offset, info.incarnation_number
            ):
                return True

    async def follow_async(
        self,
        after: str | int = validation.START,
        *,
        since: Time | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - silence ends it, not an error
        key: str | bytes | None = None,
        where: Where | None = None,
        offset: str | int | None = None,
    ) -> AsyncIterator[Chunk]:
        """Yield chunks and wait for more, until the stream is closed.

        Ends after `timeout` seconds without new records. `after` is an offset, "-1" for the start
        or "now"; `offset` is another name of it. `key`, `where` and `since` select records as in
        `read`.
        """
        at = await asyncio.to_thread(self._start, read_start(after, offset), since)
        until: float | None = None
        with self._streams.notifier.listen(self.name) as listener:
            while True:
                listener.drain()
                chunk = await asyncio.to_thread(self.read, at, key=key, where=where)
                at = chunk.offset
                if not chunk.records and not chunk.up_to_date:
                    continue
                if chunk.records or chunk.closed:
                    yield chunk
                    if chunk.closed:
                        return
                    until = None
                    continue
                pause = limits.WATCH_HEARTBEAT_S
                if timeout is not None:
                    until = time.monotonic() + timeout if until is None else until
                    if (left := until - time.monotonic()) <= 0:
                        return
                    pause = min(left, pause)
                await listener.wait(pause)

    def _request(
        self,
        values: Any,
        producer: Producer | None,
        seq: str | None,
        key: str | bytes | None,
        *,
        close: bool,
        expected: str | int | None,
        headers: Mapping[str, str] | None,
    ) -> Append:
        records = encode_records(values, self.info)
        return Append(
            records,
            None,
            producer,
            seq,
            close,
            routing_key=None if key is None else validation.check_key(key),
            expected=None if expected is None else validation.check_expected(expected),
            headers=encode_headers(headers),
        )

    @contextmanager
    def _snapshot(self) -> Iterator[tuple[ReadTransaction, StreamInfo]]:
        """Open a read transaction, and read the metadata of the stream in it."""
        with self._streams.database.read_current() as snapshot:
            yield snapshot, get_stream(snapshot, self.name, self._streams.read_clock())

    def _start(self, offset: str | int, since: Time | None) -> str | int:
        """Return where a read begins: at `offset`, or at the first record of a time."""
        since_ms = check_start(offset, since)
        return offset if since_ms is None else self._streams.offset_since(self.name, since_ms)

    def _end(self, at: datetime | str | int) -> int:
        """Return the record before which a read at a point ends."""
        if isinstance(at, datetime):
            return self._streams.offset_since(self.name, parse_time_ms(at) + 1).record
        with self._snapshot() as (snapshot, info):
            return reader.start_of(snapshot, info, at)

    def history(
        self, *, after: int = -1, limit: int = limits.PAGE_ITEMS_MAX
    ) -> Rows[LifecycleEvent]:
        """Return what happened to the stream as a whole, in the order of its records.

        It was created or forked, got versions of its schema, was trimmed and closed. The records
        themselves are read by `read`.

        Args:
            after: Only events after this record.
            limit: Maximum number of events.
        """
        return inspection.list_events(self.info, self.schema(), after, limit)

    def position(self) -> Offset:
        """Return the end of the stream: the offset of the next record to be appended."""
        info = self.info
        return Offset(info.next_offset, info.incarnation_number)

    def delete(self) -> None:
        """Delete the stream; its forks stay readable."""
        self._streams.delete(self.name)

    def __iter__(self) -> Iterator[Record]:
        """Yield the retained records up to the end of the stream at the time of each read."""
        offset: str | int = validation.START
        while True:
            chunk = self.read(offset)
            yield from chunk
            if chunk.up_to_date:
                return
            offset = chunk.offset

    def __len__(self) -> int:
        """Return the number of retained records."""
        info = self.info
        return info.next_offset - info.first_offset

    def __bool__(self) -> bool:
        """Always True: an empty stream is still a stream."""
        return True

    def __repr__(self) -> str:
        return f"<Stream {self.name!r}>"

    def _repr_html_(self) -> str:
        return show_stream(self.info)


def show_stream(info: StreamInfo) -> str:
    """Return the metadata of a stream as HTML."""
    facts = {
        "content type": info.content_type,
        "records": info.next_offset - info.first_offset,
        "bytes": info.size_bytes,
        "state": "closed" if info.closed else "open",
    }
    return html.fragment(html.facts(facts), caption=f"Stream {info.name}")


def encode_records(values: Any, info: StreamInfo) -> list[bytes]:
    """Return the records that `Stream.append` makes of its values; raise InvalidInput."""
    return [record for value in _values(values, info) for record in _encode(value, info)]


def _values(values: Any, info: StreamInfo) -> list[Any]:
    """Return the values that become records; iterables of a non-JSON stream hold bytes."""
    if isinstance(values, bytes | bytearray | memoryview | str | dict):
        return [values]
    if isinstance(values, set | frozenset):
        raise InvalidInput(
            f"stream {info.name!r}: the records of an append have an order, got a set",
            hint="Pass a list, such as sorted(values).",
        )
    if isinstance(values, Iterable):
        return list(values)
    if not info.is_json:
        raise _unfit(values, info)
    return [values]


def _encode(value: Any, info: StreamInfo) -> list[bytes]:
    """Return the records that a value becomes: several for JSON text that is an array."""
    if isinstance(value, bytearray | memoryview):
        value = bytes(value)
    if isinstance(value, bytes):
        if info.is_json:
            return list(json_messages.split(value, validation.JSON))
        if not value:
            raise InvalidInput(f"stream {info.name!r}: a record must not be empty")
        return [value]
    if info.is_json:
        try:
            return [_encode_json(value)]
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(
                f"stream {info.name!r}: a message must be a JSON value: {error}",
                hint="Convert dates, sets and objects first, or append JSON text as bytes.",
            ) from None
    if isinstance(value, str) and value and validation.plain_type(info.content_type)[:5] == "text/":
        return [value.encode()]
    raise _unfit(value, info)


def _encode_json(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        # A lone surrogate is valid JSON only as an escape.
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def _unfit(value: Any, info: StreamInfo) -> InvalidInput:
    return InvalidInput(
        f"stream {info.name!r} holds {info.content_type}: a record must be bytes, got "
        f"{type(value).__name__}",
        hint="Encode the value, or create the stream with the content type application/json.",
    )
