"""Streams of a server with the methods of `fourfold.Streams`, for coroutines."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from fourfold import limits
from fourfold.arguments import check_arguments
from fourfold.client import compactions, requests, search, stream_records
from fourfold.client.containers import AsyncStreamContainer, AsyncStreamsContainer
from fourfold.client.coroutines.connection import P
from fourfold.client.coroutines.remote_rules import AsyncRemoteProfiles, AsyncRemoteSchemas
from fourfold.client.coroutines.remote_subscriptions import AsyncRemoteSubscriptions
from fourfold.client.coroutines.remote_touches import AsyncRemoteTouches
from fourfold.client.coroutines.streams import AsyncStreamClient
from fourfold.client.follower import AsyncRemoteFollower, AsyncRemoteRecordFollower
from fourfold.client.reader import MessageReader
from fourfold.client.stream_records import (
    FeedEventReader,
    RecordsReader,
    to_text,
    to_time,
)
from fourfold.content.filters import Filter
from fourfold.errors import ContentTypeMismatch, InvalidInput, NotFound
from fourfold.models.streams import fold, json_messages, rule_changes, validation
from fourfold.models.streams.append import Append
from fourfold.models.streams.compaction_result import CompactionResult, check_horizon
from fourfold.models.streams.inspection import (
    LifecycleEvent,
    ProducerState,
    SegmentInfo,
    StreamSubscription,
    list_events,
)
from fourfold.models.streams.profiles import GenericProfile
from fourfold.models.streams.record_headers import encode_headers
from fourfold.models.streams.records import (
    AppendResult,
    Chunk,
    CreateResult,
    Producer,
    Record,
    StreamInfo,
    Totals,
    Where,
)
from fourfold.models.streams.routing_keys import KeyPage
from fourfold.models.streams.rule_changes import UNCHANGED, FieldsChange, KeyChange
from fourfold.models.streams.schemas.registry import Registry
from fourfold.models.streams.search.request import (
    SEARCH_BYTES,
    SEARCH_LIMIT,
    SEARCH_TIMEOUT_S,
    AggregateRequest,
    SearchRequest,
    check_aggregate,
    check_search,
)
from fourfold.models.streams.search.results import Aggregates, SearchPage
from fourfold.models.streams.settings import Setting, SettingsChange
from fourfold.models.streams.stream import encode_records
from fourfold.models.streams.times import Time, check_start, parse_time_ms, read_start
from fourfold.models.streams.validation import Offset
from fourfold.models.streams.writer import Fork, StreamOptions
from fourfold.tabular import Rows
from fourfold.wire.streams import ProducerPage, SegmentPage, StreamSubscriptionPage


@check_arguments()
class AsyncRemoteStreams(AsyncStreamsContainer):
    """All streams of a server, with the methods of `fourfold.Streams`."""

    def __init__(self, client: AsyncStreamClient) -> None:
        self._client = client
        self._address = client.settings.address
        self.schemas = AsyncRemoteSchemas(client)
        self.profiles = AsyncRemoteProfiles(client)
        self.touches = AsyncRemoteTouches(client)
        self.subscriptions = AsyncRemoteSubscriptions(client)

    async def create(
        self,
        name: str,
        content_type: str | None = None,
        *,
        ttl: int | None = None,
        expires_at_ms: int | None = None,
        closed: bool = False,
        body: bytes = b"",
        fork: Fork | None = None,
        retention_seconds: int | None = None,
        retention_bytes: int | None = None,
    ) -> AsyncRemoteStream:
        """Create a stream, or return the existing one if its settings match.

        Raises:
            AlreadyExists: a stream of that name has other settings.
        """
        options = StreamOptions(
            name,
            content_type,
            ttl,
            expires_at_ms,
            closed,
            fork,
            retention_seconds,
            retention_bytes,
        )
        await self._create(options, body)
        return AsyncRemoteStream(self, self._client, name)

    async def create_with_options(self, options: StreamOptions, body: bytes = b"") -> CreateResult:
        """Create a stream from `options`; `result.created` is False if it existed."""
        created = await self._create(options, body)
        return CreateResult(await self.info(options.name), created)

    async def _create(self, options: StreamOptions, body: bytes) -> bool:
        fork = options.fork
        offset = None if fork is None else fork.offset
        if fork is not None and type(offset) is int:
            # Only the server knows the incarnation that a bare number belongs to.
            offset = Offset(offset, (await self.info(fork.source)).incarnation_number)
        call = requests.create(
            self._address,
            options.name,
            options.content_type,
            ttl=options.ttl_seconds,
            expires_at=to_time(options.expires_at_ms),
            closed=options.closed,
            body=body,
            retention_seconds=options.retention_seconds,
            retention_bytes=options.retention_bytes,
            fork_from=None if fork is None else fork.source,
            fork_offset=None if offset is None else str(offset),
            fork_sub_offset=(fork.sub_offset or None) if fork is not None else None,
        )
        return (await self._client.send(call)).status == 201

    async def open(self, name: str) -> AsyncRemoteStream:
        """Return a handle of an existing stream.

        Raises:
            NotFound: there is no stream of that name.
        """
        await self.info(name)
        return AsyncRemoteStream(self, self._client, name)

    async def info(self, name: str) -> StreamInfo:
        """Return the metadata of a stream, without extending its TTL."""
        call = requests.details(self._address, name)
        return stream_records.parse_info(await self._client.send(call))

    async def list(
        self, *, prefix: str = "", after: str = "", limit: int = 1000, content_type: str = ""
    ) -> tuple[StreamInfo, ...]:
        """Return streams with a name prefix in name order, at most `limit` after `after`.

        With a `content_type`, only streams of it, whatever its parameters.
        """
        infos: builtins.list[StreamInfo] = []
        start: str | None = after
        while start is not None and len(infos) < limit:
            most = min(limit - len(infos), limits.LIST_STREAMS_MAX)
            call = requests.list_page(self._address, prefix, start, most, content_type)
            page, start = stream_records.parse_page(await self._client.send(call))
            infos += page
        return tuple(infos)

    async def delete(self, name: str) -> None:
        """Delete a stream; its forks stay readable."""
        await self._client.delete(name)

    async def configure(self, name: str, settings: SettingsChange) -> StreamInfo:
        """Change the lifetime or the retention of a stream, and return its new metadata."""
        call = requests.configure(
            self._address,
            name,
            ttl=settings.ttl_seconds,
            expires_at=to_time(settings.expires_at_ms),
            retention_seconds=settings.retention_seconds,
            retention_bytes=settings.retention_bytes,
        )
        await self._client.send(call)
        return await self.info(name)

    async def offset_since(self, name: str, since: Time) -> Offset:
        """Return the offset of the first record at or after a time; the end if there is none.

        `since` is a datetime, ISO 8601 text, or milliseconds since 1970.
        """
        since_ms = parse_time_ms(since)
        call = requests.read(self._address, name, None, records=True, limit=1, since_ms=since_ms)
        chunk = stream_records.parse_chunk(await self._client.send(call), validation.START)
        return Offset(chunk.start_offset, chunk.incarnation_number)

    async def search(self, name: str, request: SearchRequest) -> SearchPage:
        """Return a page of the messages of a JSON stream that match a request."""
        return search.parse_page(
            await self._client.send(search.search(self._address, name, request))
        )

    async def aggregate(self, name: str, request: AggregateRequest) -> Aggregates:
        """Return groups of the messages of a JSON stream that match a request."""
        call = search.aggregate(self._address, name, request)
        return search.parse_groups(await self._client.send(call))

    async def compact(
        self,
        name: str,
        horizon: str | int | None = None,
        *,
        since: Time | None = None,
        timeout_s: float | None = None,
    ) -> CompactionResult:
        """Remove the history of a state stream, as `compact` of its handle does."""
        check_horizon(horizon, since)
        if type(horizon) is int:
            # Only the server knows the incarnation that a bare number belongs to.
            horizon = Offset(horizon, (await self.info(name)).incarnation_number)
        elif since is not None:
            horizon = await self.offset_since(name, since)
        work = compactions.Compaction(self._address, name, str(horizon), timeout_s)
        while not work.is_done:
            work.receive(await self._client.send(work.next_call()))
        return work.result

    async def append(self, name: str, request: Append) -> AppendResult:
        """Append to a stream; return once the records are on disk.

        A request has one record of a stream of bytes: several are sent one after the other.
        """
        kind = request.content_type or (await self.info(name)).content_type
        records = list(request.records)
        if requests.is_json(kind) and records:
            records = [json_messages.join(records, kind)]
        conditions = (request.producer, request.stream_seq, request.expected)
        if len(records) > 1 and any(condition is not None for condition in conditions):
            raise InvalidInput(
                f"stream {name!r}: several records of {kind} cannot be one request of a producer, "
                "or be appended at an expected offset",
                hint="Append them one by one.",
            )
        expected = request.expected
        if type(expected) is int:
            # Only the server knows the incarnation that a bare number belongs to.
            expected = Offset(expected, (await self.info(name)).incarnation_number)
        result = None
        for number, body in enumerate(records or [b""], 1):
            call = requests.append(
                self._address,
                name,
                kind,
                body,
                producer=request.producer,
                seq=request.stream_seq,
                close=request.close and number >= len(records),
                key=to_text(request.routing_key),
                expected=None if expected is None else str(expected),
                headers=request.headers,
            )
            result = stream_records.parse_appended(call, await self._client.send(call))
        assert result is not None
        return result

    async def state(self, name: str) -> dict[fold.Key, Any]:
        """Return the newest value of each key of a state stream."""
        state: dict[fold.Key, Any] = {}
        reader = MessageReader(self._address, name, validation.START)
        async for message in self._client.run(reader):
            fold.apply(state, json_messages.decode(message))
        return state

    def follow(
        self, *, prefix: str = "", after: str | None = None, timeout: float | None = None
    ) -> AsyncRemoteRecordFollower:
        """Iterate over the records of all streams and wait for more.

        Records come in the order of their commits, each once, also across broken connections and
        restarts: store the cursor with what you made of the records.

        Args:
            prefix: Only streams whose names have this prefix.
            after: A cursor; `-1` is before the earliest record, None after the newest one.
            timeout: End after this many seconds without a record.

        Raises:
            HistoryTruncated: records after the cursor were removed; `details["cursor"]` is where
                to continue.
        """
        reader = FeedEventReader(requests.live(self._address, prefix, after))
        return AsyncRemoteRecordFollower(self._client.settings, reader, timeout)

    async def totals(self) -> Totals:
        """Count the streams, records and bytes of the store."""
        return stream_records.parse_totals(await self._client.send(requests.totals(self._address)))

    def __repr__(self) -> str:
        return f"<Streams at {self._address.root}>"


@check_arguments()
class AsyncRemoteStream(AsyncStreamContainer):
    """A handle of one stream of a server, with the methods of `fourfold.Stream`."""

    def __init__(self, streams: AsyncRemoteStreams, client: AsyncStreamClient, name: str) -> None:
        self._streams = streams
        self._client = client
        self._address = client.settings.address
        self._known: StreamInfo | None = None
        self.name = name

    @property
    async def info(self) -> StreamInfo:
        """The metadata of the stream."""
        return await self._streams.info(self.name)

    async def append(
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
            OutcomeUnknown: No response arrived; with a `producer` the append is repeated instead.
        """
        # The content type of a stream does not change, unless another one takes its name.
        info = self._known = self._known or await self.info
        records = encode_records(values, info)
        request = Append(
            records,
            info.content_type,
            producer,
            seq,
            close,
            routing_key=None if key is None else validation.check_key(key),
            expected=None if expected is None else validation.check_expected(expected),
            headers=encode_headers(headers),
        )
        try:
            return await self._streams.append(self.name, request)
        except (ContentTypeMismatch, NotFound):
            self._known = None
            raise

    async def compact(
        self,
        horizon: str | int | None = None,
        *,
        since: Time | None = None,
        timeout_s: float | None = None,
    ) -> CompactionResult:
        """Remove the history of a state stream before a horizon, and keep its state.

        The newest change of each key before the horizon is appended once more; then all records
        before it are removed for good. A call that was interrupted can be repeated.

        Args:
            horizon: An offset, or "now" for the end.
            since: The horizon is the first record that was appended at or after this time.
            timeout_s: Stop after this time; repeat the call with `result.horizon` then.

        Raises:
            Refused: The stream has another profile than "state-protocol", or forks.
            StreamClosed: The stream is closed.
        """
        return await self._streams.compact(self.name, horizon, since=since, timeout_s=timeout_s)

    async def append_bytes(
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
        return await self.append(
            data,
            producer=producer,
            seq=seq,
            close=close,
            key=key,
            expected=expected,
            headers=headers,
        )

    async def close(self) -> AppendResult:
        """Close the stream: it accepts no more appends, and readers receive an end marker."""
        return await self._streams.append(self.name, Append((), None, close=True))

    async def read(
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
        start = read_start(after, offset)
        since_ms = check_start(start, since)
        end = None if at is None else await self._end(at)
        start = await self._offset(start)
        call = requests.read(
            self._address,
            self.name,
            start if since_ms is None else None,
            records=True,
            limit=limits.STREAM_READ_RECORDS if limit is None else limit,
            key=to_text(key),
            where=where,
            since_ms=since_ms,
        )
        chunk = stream_records.parse_chunk(await self._client.send(call), start)
        return chunk if end is None else chunk.cut(end)

    async def _end(self, at: datetime | str | int) -> int:
        """Return the record before which a read at a point ends."""
        if isinstance(at, datetime):
            return (await self._streams.offset_since(self.name, parse_time_ms(at) + 1)).record
        return (await self.read(at, 1)).start_offset

    async def history(
        self, *, after: int = -1, limit: int = limits.PAGE_ITEMS_MAX
    ) -> Rows[LifecycleEvent]:
        """Return what happened to the stream as a whole, in the order of its records.

        It was created or forked, got versions of its schema, was trimmed and closed. The records
        themselves are read by `read`.

        Args:
            after: Only events after this record.
            limit: Maximum number of events.
        """
        return list_events(await self.info, await self.schema(), after, limit)

    async def search(
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
        return await self._streams.search(self.name, request)

    async def aggregate(
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
        return await self._streams.aggregate(self.name, request)

    async def fork(
        self, name: str, at: str | int | None = None, *, sub_offset: int = 0
    ) -> AsyncRemoteStream:
        """Create a stream that shares the records before `at`, by default all, without copying."""
        offset = at if at is None or type(at) is int else validation.parse_offset(at)
        return await self._streams.create(name, fork=Fork(self.name, offset, sub_offset))

    async def configure(
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
        return await self._streams.configure(self.name, settings)

    async def schema(self) -> Registry:
        """Return the schema registry: versions, lenses, routing key and search fields."""
        return await self._streams.schemas.get(self.name)

    async def producers(
        self, *, after: str = "", limit: int = limits.PAGE_ITEMS_MAX
    ) -> Rows[ProducerState]:
        """Return idempotent producers of the stream, in the order of their ids.

        Args:
            after: Only producers after this id.
            limit: Maximum number of producers.
        """
        producers: Rows[ProducerState] = Rows((), ProducerState)
        async for page in self._pages("producers", ProducerPage):
            rows = map(stream_records.to_producer, page.items)
            producers += [row for row in rows if row.id > after]
            if len(producers) >= limit:
                break
        return producers[:limit]

    async def keys(
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
        call = requests.list_keys(self._address, self.name, prefix, after, limit)
        return stream_records.parse_keys(await self._client.send(call))

    async def segments(
        self, *, after: int = -1, limit: int = limits.PAGE_ITEMS_MAX
    ) -> Rows[SegmentInfo]:
        """Return sealed segments of the stream, in the order of their records.

        The newest records are in no segment yet; a fork has segments of its own records only.

        Args:
            after: Only segments whose first record is after this one.
            limit: Maximum number of segments.
        """
        segments: Rows[SegmentInfo] = Rows((), SegmentInfo)
        async for page in self._pages("segments", SegmentPage):
            rows = map(stream_records.to_segment, page.items)
            segments += [row for row in rows if row.first_offset > after]
            if len(segments) >= limit:
                break
        return segments[:limit]

    async def subscriptions(
        self, *, after: str = "", limit: int = limits.PAGE_ITEMS_MAX
    ) -> Rows[StreamSubscription]:
        """Return the subscriptions that follow the stream, with their cursors.

        Args:
            after: Only subscriptions after this id.
            limit: Maximum number of subscriptions.
        """
        subscriptions: Rows[StreamSubscription] = Rows((), StreamSubscription)
        async for page in self._pages("subscriptions", StreamSubscriptionPage):
            rows = map(stream_records.to_subscription, page.items)
            subscriptions += [row for row in rows if row.id > after]
            if len(subscriptions) >= limit:
                break
        return subscriptions[:limit]

    def _pages(self, verb: str, kind: type[P]) -> AsyncIterator[P]:
        call = requests.list_of_stream(self._address, verb, self.name)
        return self._client.pages(call, kind)

    async def set_schema(
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
        return await self._streams.schemas.put(self.name, change)

    async def profile(self) -> GenericProfile:
        """Return the profile of the stream."""
        return await self._streams.profiles.get(self.name)

    async def set_profile(
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
        return await self._streams.profiles.put(self.name, profile)

    def follow(
        self,
        after: str | int = validation.START,
        *,
        since: Time | None = None,
        timeout: float | None = None,
        key: str | bytes | None = None,
        where: Where | None = None,
        offset: str | int | None = None,
    ) -> AsyncRemoteFollower[Chunk]:
        """Iterate over chunks and wait for more, until the stream is closed.

        Ends after `timeout` seconds without new records. `after` is an offset, "-1" for the start
        or "now"; `offset` is another name of it. `key`, `where` and `since` select records as in
        `read`. It continues after broken connections.
        """
        start = read_start(after, offset)
        since_ms = check_start(start, since)
        reader = RecordsReader(
            self._address, self.name, start, key=to_text(key), where=where, since_ms=since_ms
        )
        return AsyncRemoteFollower(self._client.settings, reader, timeout, wait=False)

    async def position(self) -> Offset:
        """Return the end of the stream: the offset of the next record to be appended."""
        info = await self.info
        return Offset(info.next_offset, info.incarnation_number)

    async def delete(self) -> None:
        """Delete the stream; its forks stay readable."""
        await self._streams.delete(self.name)

    async def __aiter__(self) -> AsyncIterator[Record]:
        """Yield the retained records up to the end of the stream at the time of each read."""
        offset: str | int = validation.START
        while True:
            chunk = await self.read(offset)
            for record in chunk:
                yield record
            if chunk.up_to_date:
                return
            offset = chunk.offset

    def __repr__(self) -> str:
        return f"<Stream {self.name!r}>"

    async def _offset(self, offset: str | int) -> str:
        """Return an offset as text; only the server knows the incarnation of a bare number."""
        if type(offset) is int and offset >= 0:
            return Offset(offset, (await self.info).incarnation_number)
        return str(offset)
