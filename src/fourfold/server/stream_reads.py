"""Reads of a stream over HTTP: pages for those who catch up, long-polls and server-sent events for
those who wait at its end.

The body of an answer to a reader that catches up: read and sent piece by piece.

What the answer covers is decided first, by offsets, so its headers can be told before its records
are read. While one piece is on its way to the client the next one is being read; a client that
takes its time holds no more than these two.

Cursors and ETags: what lets caches between a server and its readers collapse equal requests.

A cursor is the number of the 20-second interval in which an answer was made. A reader hands the
last one back; when it is the current one already, a later one is given, so that no two requests of
a reader are the same to a cache.

Server-sent events: data and control, with nothing in the data that could pose as either.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from fourfold import limits
from fourfold.errors import FourfoldError, InvalidInput
from fourfold.kernel import Listener
from fourfold.kernel.pauses import Pauses
from fourfold.models.streams import Chunk, StreamInfo, Streams, feed
from fourfold.models.streams.json_messages import join
from fourfold.models.streams.reader import NotInTheLog
from fourfold.models.streams.records import RecordFilter
from fourfold.models.streams.validation import JSON, NOW, plain_type
from fourfold.server import headers, listing
from fourfold.server.request import Headers, Request, Response

_SMALL_BYTES = limits.STREAM_PIECE_BYTES // 8


def is_small(info: StreamInfo, page: Chunk) -> bool:
    """Whether a page is read at once, since handing it to a thread would take longer."""
    records = page.next_offset - page.start_offset
    return info.size_bytes * records <= _SMALL_BYTES * max(1, info.next_offset)


def whole(streams: Streams, info: StreamInfo, page: Chunk) -> bytes | None:
    """The body of a small page; None when some of it must be fetched from elsewhere."""
    parts: list[bytes] = []
    at = page.start_offset
    try:
        while at < page.next_offset:
            part, at = streams.piece_of_log(info, at, page.next_offset)
            parts.append(part)
    except NotInTheLog:
        return None
    if info.is_json:
        return b"[" + b",".join(parts) + b"]"
    return b"".join(parts)


async def pieces(streams: Streams, info: StreamInfo, page: Chunk) -> AsyncIterator[bytes]:
    """The body of any page. When a part of it is gone by the time it is read, the answer breaks off
    and the reader asks again.
    """
    before, between, behind = (b"[", b",", b"]") if info.is_json else (b"", b"", b"")
    end = page.next_offset
    reading = asyncio.ensure_future(asyncio.to_thread(streams.piece, info, page.start_offset, end))
    try:
        while True:
            part, at = await reading
            if at >= end:
                yield before + part + behind
                return
            reading = asyncio.ensure_future(asyncio.to_thread(streams.piece, info, at, end))
            yield before + part
            before = between
    finally:
        reading.cancel()


_EPOCH_MS = 1_728_432_000_000
"""2024-10-09, which the protocol counts from."""
_INTERVAL_MS = 20_000
_JITTER_INTERVALS = 180


def make_cursor(now_ms: int, given: str | None) -> str:
    current = (now_ms - _EPOCH_MS) // _INTERVAL_MS
    if given is not None and given.isdecimal() and len(given) < 19 and int(given) >= current:
        return str(int(given) + random.randint(1, _JITTER_INTERVALS))  # noqa: S311 - no secret
    return str(current)


def make_etag(info: StreamInfo, chunk: Chunk) -> str:
    """Names a range of a stream; it changes when the stream is closed at its end, and when its
    messages are read in another version.
    """
    mark = ":c" if chunk.closed else ""
    if info.schema_version:
        mark += f":v{info.schema_version}"
    return f'"{info.incarnation}:{chunk.start_offset}:{chunk.next_offset}{mark}"'


KEEP_ALIVE = b": keep-alive\n\n"
_LINE_END = re.compile(rb"\r\n|\n|\r")


def is_text(info: StreamInfo) -> bool:
    """Whether the data goes out as it is; anything else goes as base64."""
    return info.is_json or plain_type(info.content_type).startswith("text/")


def format_data_event(info: StreamInfo, chunk: Chunk) -> bytes:
    """One event with the records of a chunk. Every line of it is marked as data, whatever ends
    it.
    """
    body = join([record.payload for record in chunk.records], info.content_type)
    if not is_text(info):
        body = base64.b64encode(body)
    lines = b"".join(b"data:" + _shield(line) + line + b"\n" for line in _LINE_END.split(body))
    return b"event: data\n" + lines + b"\n"


def _shield(line: bytes) -> bytes:
    # A reader drops one space behind the colon: it shall not be the line's own.
    return b" " if line.startswith(b" ") else b""


def format_control_event(chunk: Chunk, cursor: str) -> bytes:
    """Where the reader is now."""
    told: dict[str, object] = {"streamNextOffset": chunk.offset}
    if chunk.closed:
        told["streamClosed"] = True
        told["upToDate"] = True
    else:
        told["streamCursor"] = cursor
        if chunk.up_to_date:
            told["upToDate"] = True
    return b"event: control\ndata:" + json.dumps(told).encode() + b"\n\n"


_FRESH: Final = "max-age=60, stale-while-revalidate=300"


@dataclass(frozen=True, slots=True)
class ReadTimeouts:
    """How long live readers are kept waiting."""

    long_poll_s: float = limits.LONG_POLL_S
    sse_s: float = limits.SSE_S
    keep_alive_s: float = limits.SSE_KEEP_ALIVE_S


class StreamRead:
    """Answers reads of the streams of one store."""

    def __init__(
        self, streams: Streams, timing: ReadTimeouts, is_open: Callable[[], bool] = lambda: True
    ) -> None:
        self._streams = streams
        self._timing = timing
        self._is_open = is_open
        """Whether nobody needs a key; only then may a cache give an answer to somebody else."""
        self._stopping = False

    def stop(self) -> None:
        """End those who wait, as if their time were over."""
        self._stopping = True
        self._streams.notifier.notify()

    async def answer(self, request: Request, name: str) -> Response:
        given = request.parameters()
        live, offset = given.get("live"), given.get("offset")
        if offset is None and live is not None:
            raise InvalidInput("a live read needs an offset")
        start = "-1" if offset is None else offset
        sought = listing.sought(given)
        if live == "sse":
            return await self._sse(name, start, given.get("cursor"), sought)
        if live == "long-poll":
            return await self._long_poll(name, start, given, sought)
        if live is not None:
            raise InvalidInput(f"live is long-poll or sse, not {live!r:.80}")
        if listing.by_record(given):
            count = listing.most(given)
            info, chunk = await self._streams.read_async(
                name, start, records_max=count, sought=sought
            )
            return await _records(info, chunk, self._streams.database.pauses)
        if sought is not None:
            return await self._by_key(name, start, listing.most(given), sought)
        most = listing.most(given) if "limit" in given else None
        info, page = self._streams.page(name, start, records_max=most)
        return self._page(request, info, page, start)

    async def _by_key(self, name: str, start: str, most: int, sought: RecordFilter) -> Response:
        """The records with a key; what is told says how far the search has come."""
        info, chunk = await self._streams.read_async(name, start, records_max=most, sought=sought)
        told = {
            **_told(info, chunk),
            **headers.content(info),
            "cache-control": "no-store",
        }
        return Response(200, told, _body(info, chunk))

    def _page(self, request: Request, info: StreamInfo, page: Chunk, start: str) -> Response:
        told = _told(info, page)
        told |= headers.content(info)
        if start == NOW:
            told["cache-control"] = "no-store"
        else:
            told |= {"etag": make_etag(info, page), "cache-control": self._cacheable()}
            if headers.is_known(request, told["etag"]):
                return Response(304, told)
        if is_small(info, page):
            body = whole(self._streams, info, page)
            if body is not None:
                return Response(200, told, body)
        return Response(200, told, pieces=pieces(self._streams, info, page))

    def _cacheable(self) -> str:
        return f"{'public' if self._is_open() else 'private'}, {_FRESH}"

    async def _long_poll(
        self, name: str, start: str, given: Mapping[str, str], sought: RecordFilter | None
    ) -> Response:
        by_record, most = listing.by_record(given), listing.most(given)
        until = time.monotonic() + self._timing.long_poll_s
        at = start
        with self._streams.notifier.listen(name) as listener:
            follower = _Follower(self._streams, name, listener, sought, most)
            while True:
                info, chunk = await follower.read(at)
                at = chunk.offset
                left = until - time.monotonic()
                if chunk.records or chunk.closed or left <= 0 or self._stopping:
                    break
                if not chunk.up_to_date:
                    continue
                await listener.wait(min(left, limits.WATCH_HEARTBEAT_S))
        told = _told(info, chunk)
        told["stream-cursor"] = make_cursor(self._streams.clock(), given.get("cursor"))
        if not chunk.records:
            return Response(204, {**told, "cache-control": "no-store"})
        if by_record:
            return await _records(info, chunk, self._streams.database.pauses)
        told |= headers.content(info)
        if sought is not None:
            told["cache-control"] = "no-store"
        else:
            told |= {"cache-control": self._cacheable(), "etag": make_etag(info, chunk)}
        return Response(200, told, _body(info, chunk))

    async def _sse(
        self, name: str, start: str, cursor: str | None, sought: RecordFilter | None
    ) -> Response:
        info, chunk = await self._streams.read_async(name, start, sought=sought)
        told = {
            "content-type": "text/event-stream",
            "cache-control": "no-cache",
            "x-accel-buffering": "no",
            **headers.first_offset(info),
        }
        if not is_text(info):
            told["stream-sse-data-encoding"] = "base64"
        return Response(200, told, pieces=self._events(name, info, chunk, cursor, sought))

    async def _events(
        self,
        name: str,
        info: StreamInfo,
        chunk: Chunk,
        cursor: str | None,
        sought: RecordFilter | None,
    ) -> AsyncIterator[bytes]:
        """Data and control in turn until the stream is closed or the time of the connection is
        over; a comment now and then while nothing happens.
        """
        until = time.monotonic() + self._timing.sse_s
        first = True
        with self._streams.notifier.listen(name) as listener:
            follower = _Follower(self._streams, name, listener, sought, limits.STREAM_READ_RECORDS)
            while True:
                # A search that found nothing yet reports where it is, for a reader that reconnects.
                if chunk.records or chunk.closed or first or not chunk.up_to_date:
                    cursor = make_cursor(self._streams.clock(), cursor)
                    # Together: a reader that has the data knows where it is.
                    data = format_data_event(info, chunk) if chunk.records else b""
                    yield data + format_control_event(chunk, cursor)
                left = until - time.monotonic()
                if chunk.closed or left <= 0 or self._stopping:
                    return
                # What came before anybody listened has to be looked up first.
                waits = chunk.up_to_date and not first
                if waits and not await listener.wait(min(self._timing.keep_alive_s, left)):
                    yield KEEP_ALIVE
                first = False
                try:
                    info, chunk = await follower.read(chunk.offset)
                except FourfoldError:
                    # It was deleted or has expired: the reader finds out when it asks again.
                    return


class _Follower:
    """Reads on from where the last read ended: what was heard, if that is all there is, and the log
    otherwise.
    """

    def __init__(
        self,
        streams: Streams,
        name: str,
        listener: Listener,
        sought: RecordFilter | None,
        most: int,
    ) -> None:
        self._streams = streams
        self._name = name
        self._listener = listener
        self._sought = sought
        self._most = most
        self._info: StreamInfo | None = None

    async def read(self, at: str) -> tuple[StreamInfo, Chunk]:
        heard = self._listener.drain()
        info = self._info
        if info is not None and self._sought is None and heard:
            found = feed.chunk(info, at, heard, self._most)
            if found is not None:
                return info, found
        info, found = await self._streams.read_async(
            self._name, at, records_max=self._most, sought=self._sought
        )
        self._info = info
        return info, found


def _told(info: StreamInfo, chunk: Chunk) -> Headers:
    told = headers.position(info, chunk.next_offset, closed=chunk.closed) | headers.first_offset(
        info
    )
    if chunk.up_to_date:
        told["stream-up-to-date"] = "true"
    return told


async def _records(info: StreamInfo, chunk: Chunk, pauses: Pauses) -> Response:
    told = {**_told(info, chunk), "content-type": JSON, "cache-control": "no-store"}
    if len(chunk.records) <= limits.STREAM_SHORT_READ_RECORDS:
        return Response(200, told, listing.records(chunk))
    return Response(200, told, await asyncio.to_thread(listing.records, chunk, pauses))


def _body(info: StreamInfo, chunk: Chunk) -> bytes:
    return join([record.payload for record in chunk.records], info.content_type)
