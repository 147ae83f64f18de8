"""Reads of a stream over HTTP: pages for catching up, long-polls and server-sent events at the end.

The range of a catch-up response is decided first, by offsets, so its headers are sent before its
records are read. While one piece is being sent the next one is read; a slow client holds no more
than these two.

Cursors and ETags let caches between the server and its readers collapse equal requests. A cursor is
the number of the 20-second interval in which a response was made. A reader sends the last one back;
if it is still the current one, a later one is returned, so that no two requests of a reader are the
same to a cache.

Server-sent events are data and control events; no data can pose as either. As in other feeds, the
`id:` of an event is the offset after it, with which `Last-Event-ID` continues, `gap` states that
records before its id were deleted meanwhile, and `end` that there is nothing to reconnect for.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import re
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final, Literal

from msgspec import UNSET

from fourfold import limits
from fourfold.errors import FourfoldError, InvalidInput, NotFound, OffsetGone, StreamGone
from fourfold.kernel import Listener
from fourfold.kernel.process_writes import PROCESS_WRITES
from fourfold.models.streams import Chunk, StreamInfo, Streams, feed
from fourfold.models.streams.json_messages import join
from fourfold.models.streams.reader import NotInTheLog
from fourfold.models.streams.records import RecordFilter
from fourfold.models.streams.validation import (
    JSON,
    NOW,
    START,
    check_key,
    format_offset,
    plain_type,
)
from fourfold.server import headers, listing
from fourfold.server.event_stream import SSE_KEEP_ALIVE_S, SSE_S
from fourfold.server.request import Headers, Request, Response
from fourfold.server.routes import Ok, Route, bind
from fourfold.wire.streams import ReadHeaders, ReadQuery, ReadResultHeaders

STREAM: Final = f"{headers.STREAM_PREFIX}{{name:stream}}"
"""Path of a stream in the route table."""
_SMALL_BYTES = limits.STREAM_PIECE_BYTES // 8


def is_small(info: StreamInfo, page: Chunk) -> bool:
    """Return True if a page is read at once, since passing it to a thread would take longer."""
    records = page.next_offset - page.start_offset
    return info.size_bytes * records <= _SMALL_BYTES * max(1, info.next_offset)


def read_whole_page(streams: Streams, info: StreamInfo, page: Chunk) -> bytes | None:
    """Return the body of a small page, or None if part of it is not in the log."""
    parts: list[bytes] = []
    at = page.start_offset
    try:
        while at < page.next_offset:
            part, at = streams.read_joined_from_log(info, at, page.next_offset)
            parts.append(part)
    except NotInTheLog:
        return None
    if info.is_json:
        return b"[" + b",".join(parts) + b"]"
    return b"".join(parts)


async def iter_body(streams: Streams, info: StreamInfo, page: Chunk) -> AsyncIterator[bytes]:
    """Yield the body of a page in pieces, with pauses between them while other clients write.

    Even the look for writes that begins a pause takes longer than most pieces, so a piece during
    which nothing was written is not followed by one.

    If a part is deleted before it is read, the response is aborted and the reader retries.
    """
    prefix, separator, suffix = (b"[", b",", b"]") if info.is_json else (b"", b"", b"")
    end = page.next_offset

    def read(start: int) -> tuple[bytes, int, float]:
        began, written = time.perf_counter(), PROCESS_WRITES.count()
        part, position = streams.read_joined(info, start, end)
        if PROCESS_WRITES.count() == written and not PROCESS_WRITES.is_writing():
            return part, position, 0.0
        return part, position, time.perf_counter() - began

    async def read_next(start: int, took: float) -> tuple[bytes, int, float]:
        await streams.database.pauses.pause_after_async(took)
        return await asyncio.to_thread(read, start)

    reading = asyncio.ensure_future(asyncio.to_thread(read, page.start_offset))
    try:
        while True:
            part, position, took = await reading
            if position >= end:
                yield prefix + part + suffix
                return
            reading = asyncio.ensure_future(read_next(position, took))
            yield prefix + part
            prefix = separator
    finally:
        reading.cancel()


_EPOCH_MS = 1_728_432_000_000
"""2024-10-09, which the protocol counts from."""
_INTERVAL_MS = 20_000
_JITTER_INTERVALS = 180


def make_cursor(now_ms: int, previous: str | None) -> str:
    """Return the cursor of a response, later than the reader's previous one."""
    current = (now_ms - _EPOCH_MS) // _INTERVAL_MS
    if (
        previous is not None
        and previous.isdecimal()
        and len(previous) < 19
        and int(previous) >= current
    ):
        return str(int(previous) + random.randint(1, _JITTER_INTERVALS))  # noqa: S311 - no secret
    return str(current)


def make_etag(info: StreamInfo, chunk: Chunk) -> str:
    """Return the ETag of a range of a stream.

    It changes when the stream is closed at its end, and when messages are read in another version.
    """
    suffix = ":c" if chunk.closed else ""
    if info.schema_version:
        suffix += f":v{info.schema_version}"
    return f'"{info.incarnation}:{chunk.start_offset}:{chunk.next_offset}{suffix}"'


KEEP_ALIVE = b": keep-alive\n\n"
_LINE_END = re.compile(rb"\r\n|\n|\r")


def is_text(info: StreamInfo) -> bool:
    """Return True if the data is sent as text; other data is sent as base64."""
    return info.is_json or plain_type(info.content_type).startswith("text/")


def format_data_event(info: StreamInfo, chunk: Chunk) -> bytes:
    """Return one event with the records of a chunk; every line of it is marked as data."""
    body = join([record.payload for record in chunk.records], info.content_type)
    if not is_text(info):
        body = base64.b64encode(body)
    lines = b"".join(b"data:" + _shield(line) + line + b"\n" for line in _LINE_END.split(body))
    return _format_id(chunk.offset) + b"event: data\n" + lines + b"\n"


def _format_id(offset: str) -> bytes:
    return b"id: %s\n" % offset.encode()


def _shield(line: bytes) -> bytes:
    # A reader drops one space after the colon, which must not be the line's own.
    return b" " if line.startswith(b" ") else b""


def format_control_event(chunk: Chunk, cursor: str) -> bytes:
    """Return an event with the reader's position."""
    control: dict[str, object] = {"streamNextOffset": chunk.offset}
    if chunk.closed:
        control["streamClosed"] = True
        control["upToDate"] = True
    else:
        control["streamCursor"] = cursor
        if chunk.up_to_date:
            control["upToDate"] = True
    data = json.dumps(control).encode()
    return _format_id(chunk.offset) + b"event: control\ndata:" + data + b"\n\n"


def format_end_event(reason: Literal["closed", "deleted"]) -> bytes:
    """Return the last event of a stream: its readers need not connect again."""
    return b'event: end\ndata:{"reason": "%s"}\n\n' % reason.encode()


def format_gap_event(info: StreamInfo) -> bytes:
    """Return an event for a reader whose next records were deleted; it continues after them."""
    first = format_offset(info.first_offset, info.incarnation_number)
    data = json.dumps({"streamNextOffset": first}).encode()
    return _format_id(first) + b"event: gap\ndata:" + data + b"\n\n"


class EventCache:
    """The latest events of server-sent events, for all readers that are at the same position.

    A stream with thousands of readers is encoded once: nearly all of them receive the same bytes.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._key: tuple[object, ...] = ()
        self._cursor = ""
        self._events = b""

    def encode(self, info: StreamInfo, chunk: Chunk, cursor: str | None) -> tuple[bytes, str]:
        """Return the events of a chunk for a reader with a cursor, and its next cursor."""
        now_ms = self._clock()
        key = (
            *(info.sid, info.schema_version, cursor, (now_ms - _EPOCH_MS) // _INTERVAL_MS),
            *(chunk.start_offset, chunk.next_offset, chunk.closed, chunk.up_to_date),
        )
        if key != self._key:
            self._cursor = make_cursor(now_ms, cursor)
            self._events = format_events(info, chunk, self._cursor)
            self._key = key
        return self._events, self._cursor


class NoticeChunks:
    """The latest chunk made from notifications, for all readers that are at the same position."""

    def __init__(self) -> None:
        self._key: tuple[object, ...] = ()
        self._notices: list[object] = []
        self._chunk: Chunk | None = None
        self._offset = ""

    def read(
        self, info: StreamInfo, at: str, notices: list[object], limit: int
    ) -> tuple[Chunk, str] | None:
        """Return the chunk after `at` and the offset after it; None if the log must be read."""
        key = (at, limit, info.sid, info.incarnation_number, info.expires_at_ms, info.closed)
        # The readers receive the same notices, and these are compared by identity first.
        if key != self._key or notices != self._notices:
            self._key, self._notices = key, notices
            self._chunk = feed.chunk_from_notices(info, at, notices, limit)
            self._offset = "" if self._chunk is None else self._chunk.offset
        return None if self._chunk is None else (self._chunk, self._offset)


def format_events(info: StreamInfo, chunk: Chunk, cursor: str) -> bytes:
    """Return the data and the control event of a chunk.

    They are sent together: a reader that has the data knows its position.
    """
    data = format_data_event(info, chunk) if chunk.records else b""
    return data + format_control_event(chunk, cursor)


_FRESH: Final = "max-age=60, stale-while-revalidate=300"


@dataclass(frozen=True, slots=True)
class ReadTimeouts:
    """Timeouts of live reads."""

    long_poll_s: float = limits.LONG_POLL_S
    sse_s: float = SSE_S
    keep_alive_s: float = SSE_KEEP_ALIVE_S


class StreamRead:
    """Handle reads of the streams of one store."""

    def __init__(
        self, streams: Streams, timing: ReadTimeouts, is_open: Callable[[], bool] = lambda: True
    ) -> None:
        self._streams = streams
        self._timing = timing
        self._is_open = is_open
        """Returns True if no key is required; only then may shared caches store responses."""
        self._stopping = False
        self._events_cache = EventCache(streams.clock)
        self._notice_chunks = NoticeChunks()

    def stop(self) -> None:
        """End waiting reads as if they had timed out."""
        self._stopping = True
        self._streams.notifier.notify()

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of this handler."""
        return bind(_ROUTES, self)

    async def handle(self, request: Request, name: str, query: ReadQuery) -> Response:
        """Return the response to a read."""
        start = await self._start(name, query)
        record_filter = listing.parse_filter(query)
        if query.live == "sse":
            return await self._sse(request, name, start, query.cursor or None, record_filter)
        if query.live == "long-poll":
            return await self._long_poll(name, start, query, record_filter)
        if query.format == "records":
            info, chunk = await self._streams.read_async(
                name, start, records_max=_limit(query), sought=record_filter
            )
            return await self._records(name, info, chunk, query)
        if record_filter is not None:
            return await self._filtered(name, start, _limit(query), record_filter)
        limit = None if query.limit is UNSET else query.limit
        info, page = self._streams.page(name, start, records_max=limit)
        # What a time means changes until a record has a later one.
        is_fixed = start != NOW and query.since is UNSET
        return self._page(request, info, page, is_fixed=is_fixed)

    async def _start(self, name: str, query: ReadQuery) -> str:
        """Return the offset at which a read begins."""
        if query.since is not UNSET:
            if query.offset is not UNSET:
                raise InvalidInput("parameters offset and since must not be sent together")
            return await self._streams.offset_since_async(name, query.since)
        if query.offset is UNSET and query.live is not UNSET:
            raise InvalidInput("offset: required for a live read")
        return START if query.offset is UNSET else query.offset

    async def _records(
        self, name: str, info: StreamInfo, chunk: Chunk, query: ReadQuery
    ) -> Response:
        """Return single records as JSON, with their offsets and times."""
        response_headers = {
            **_response_headers(info, chunk),
            "content-type": JSON,
            "cache-control": "no-store",
        }
        keys = None
        if query.routing_keys is not UNSET:
            keys = await self._routing_keys(name, chunk, query)
        if len(chunk.records) <= limits.STREAM_SHORT_READ_RECORDS:
            return Response(200, response_headers, listing.encode_records(chunk, keys=keys))
        pauses = self._streams.database.pauses
        body = await asyncio.to_thread(listing.encode_records, chunk, pauses, keys)
        return Response(200, response_headers, body)

    async def _routing_keys(self, name: str, chunk: Chunk, query: ReadQuery) -> dict[int, bytes]:
        """Return the routing keys of records; a filter by key says what it is."""
        if query.key is UNSET:
            return await self._streams.routing_keys_async(name, chunk)
        key = check_key(query.key)
        return {record.offset: key for record in chunk.records}

    async def _filtered(
        self, name: str, start: str, limit: int, record_filter: RecordFilter
    ) -> Response:
        """Return the records that match a filter; the offset is how far the search has come."""
        info, chunk = await self._streams.read_async(
            name, start, records_max=limit, sought=record_filter
        )
        response_headers = {
            **_response_headers(info, chunk),
            **headers.content_headers(info),
            "cache-control": "no-store",
        }
        return Response(200, response_headers, _join_body(info, chunk))

    def _page(self, request: Request, info: StreamInfo, page: Chunk, *, is_fixed: bool) -> Response:
        """Return a page; caches may store it if its start is fixed by the request."""
        response_headers = _response_headers(info, page)
        response_headers |= headers.content_headers(info)
        if not is_fixed:
            response_headers["cache-control"] = "no-store"
        else:
            response_headers |= {"etag": make_etag(info, page), "cache-control": self._cacheable()}
            if headers.matches_etag(request, response_headers["etag"]):
                return Response(304, response_headers)
        if is_small(info, page):
            body = read_whole_page(self._streams, info, page)
            if body is not None:
                return Response(200, response_headers, body)
        return Response(200, response_headers, pieces=iter_body(self._streams, info, page))

    def _cacheable(self) -> str:
        return f"{'public' if self._is_open() else 'private'}, {_FRESH}"

    async def _long_poll(
        self,
        name: str,
        start: str,
        query: ReadQuery,
        record_filter: RecordFilter | None,
    ) -> Response:
        deadline = time.monotonic() + self._timing.long_poll_s
        at = start
        with self._streams.notifier.listen(name) as listener:
            follower = _Follower(
                self._streams,
                name,
                listener,
                record_filter,
                _limit(query),
                notice_chunks=self._notice_chunks,
            )
            while True:
                info, chunk, at = await follower.read(at)
                left = deadline - time.monotonic()
                if chunk.records or chunk.closed or left <= 0 or self._stopping:
                    break
                if not chunk.up_to_date:
                    continue
                await listener.wait(min(left, limits.WATCH_HEARTBEAT_S))
        response_headers = _response_headers(info, chunk)
        response_headers["stream-cursor"] = make_cursor(self._streams.clock(), query.cursor or None)
        if not chunk.records:
            return Response(204, {**response_headers, "cache-control": "no-store"})
        if query.format == "records":
            return await self._records(name, info, chunk, query)
        response_headers |= headers.content_headers(info)
        if record_filter is not None:
            response_headers["cache-control"] = "no-store"
        else:
            response_headers |= {"cache-control": self._cacheable(), "etag": make_etag(info, chunk)}
        return Response(200, response_headers, _join_body(info, chunk))

    async def _sse(
        self,
        request: Request,
        name: str,
        start: str,
        cursor: str | None,
        record_filter: RecordFilter | None,
    ) -> Response:
        resumed = request.header("last-event-id") or None
        has_gap = False
        try:
            info, chunk = await self._streams.read_async(
                name, resumed or start, sought=record_filter
            )
        except OffsetGone:
            if resumed is None:
                raise
            # A browser that reconnects by itself cannot choose another offset.
            info, chunk = await self._streams.read_async(name, START, sought=record_filter)
            has_gap = True
        response_headers = {
            "content-type": "text/event-stream",
            "cache-control": "no-cache",
            "x-accel-buffering": "no",
            **headers.first_offset_header(info),
        }
        if not is_text(info):
            response_headers["stream-sse-data-encoding"] = "base64"
        events = self._events(name, info, chunk, cursor, record_filter, has_gap=has_gap)
        return Response(200, response_headers, pieces=events)

    async def _events(
        self,
        name: str,
        info: StreamInfo,
        chunk: Chunk,
        cursor: str | None,
        record_filter: RecordFilter | None,
        *,
        has_gap: bool,
    ) -> AsyncIterator[bytes]:
        """Yield data and control events until the stream is closed or the connection times out.

        A comment is sent now and then while nothing happens.
        """
        deadline = time.monotonic() + self._timing.sse_s
        first = True
        if has_gap:
            yield format_gap_event(info)
        with self._streams.notifier.listen(name) as listener:
            at: str = chunk.offset
            follower = _Follower(
                self._streams,
                name,
                listener,
                record_filter,
                limits.STREAM_READ_RECORDS,
                notice_chunks=self._notice_chunks,
            )
            while True:
                # A search that found nothing yet reports where it is, for a reader that reconnects.
                if chunk.records or chunk.closed or first or not chunk.up_to_date:
                    if record_filter is None:
                        events, cursor = self._events_cache.encode(info, chunk, cursor)
                    else:
                        cursor = make_cursor(self._streams.clock(), cursor)
                        events = format_events(info, chunk, cursor)
                    yield events
                left = deadline - time.monotonic()
                if chunk.closed:
                    yield format_end_event("closed")
                    return
                if left <= 0 or self._stopping:
                    return
                # Records from before the listener was registered are read first.
                waits = chunk.up_to_date and not first
                if waits and not await listener.wait(min(self._timing.keep_alive_s, left)):
                    yield KEEP_ALIVE
                first = False
                try:
                    info, chunk, at = await follower.read(at)
                except (NotFound, StreamGone):
                    yield format_end_event("deleted")
                    return
                except FourfoldError:
                    # The reader receives the error when it reconnects.
                    return


def _limit(query: ReadQuery) -> int:
    return limits.STREAM_READ_RECORDS if query.limit is UNSET else query.limit


class _Follower:
    """Read on after the last read: from notifications if they are complete, else from the log."""

    def __init__(
        self,
        streams: Streams,
        name: str,
        listener: Listener,
        record_filter: RecordFilter | None,
        limit: int,
        *,
        notice_chunks: NoticeChunks,
    ) -> None:
        self._streams = streams
        self._name = name
        self._listener = listener
        self._record_filter = record_filter
        self._limit = limit
        self._notice_chunks = notice_chunks
        self._info: StreamInfo | None = None

    async def read(self, at: str) -> tuple[StreamInfo, Chunk, str]:
        """Return the next chunk after `at`, and the offset after it."""
        notices = self._listener.drain()
        info = self._info
        if info is not None and self._record_filter is None and notices:
            shared = self._notice_chunks.read(info, at, notices, self._limit)
            if shared is not None:
                return info, *shared
        info, chunk = await self._streams.read_async(
            self._name, at, records_max=self._limit, sought=self._record_filter
        )
        self._info = info
        return info, chunk, chunk.offset


def _response_headers(info: StreamInfo, chunk: Chunk) -> Headers:
    response_headers = headers.position_headers(
        info, chunk.next_offset, closed=chunk.closed
    ) | headers.first_offset_header(info)
    if chunk.up_to_date:
        response_headers["stream-up-to-date"] = "true"
    return response_headers


def _join_body(info: StreamInfo, chunk: Chunk) -> bytes:
    return join([record.payload for record in chunk.records], info.content_type)


FILTER_PARAMETERS: Final = frozenset(
    {"after", "at", "before", "order", "prefix", "q", "query", "reverse", "search"}
    | {"timestamp", "until", "where"}
)
"""Parameters by which other servers filter records. Ignoring one would return wrong records."""
_ROUTES: Final = (
    Route(
        *("GET", STREAM, StreamRead.handle),
        operation="read",
        summary="Read a stream, or follow it.",
        scope="read",
        resource="name",
        query=ReadQuery,
        refused_parameters=FILTER_PARAMETERS,
        headers=ReadHeaders,
        ok={
            200: Ok("The records after the offset.", "any", ReadResultHeaders),
            204: Ok("No record arrived in time.", headers=ReadResultHeaders),
            304: Ok("The reader has the content already.", headers=ReadResultHeaders),
        },
        errors=(NotFound, StreamGone, OffsetGone),
    ),
)
