"""The Durable Streams protocol over requests and responses, without any transport.

    PUT create    POST append, close    GET read, long-poll, SSE    HEAD    DELETE    OPTIONS

Both fronts of the server call `Protocol.answer`; what it says is what goes out.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from fourfold import limits
from fourfold.errors import (
    Busy,
    CorruptData,
    FourfoldError,
    InvalidInput,
    NotFound,
    StorageError,
)
from fourfold.kernel import prometheus_text
from fourfold.models.streams import Append, Appended, Chunk, Fork, StreamInfo, Streams, Wanted
from fourfold.models.streams.messages import join, split
from fourfold.models.streams.names import JSON, NOW, plain_type, read_offset, show_offset
from fourfold.server import cursors, headers, sse
from fourfold.server.access import Access
from fourfold.server.exchange import Headers, Request, Response

PREFIX: Final = headers.STREAM_PREFIX
LIST: Final = "/v1/streams"
_CACHEABLE: Final = "public, max-age=60, stale-while-revalidate=300"
_STATUS: Final[dict[str, int]] = {
    "stream_gone": 410,
    "offset_gone": 410,
    "producer_fenced": 403,
    "unauthorized": 401,
    "forbidden": 403,
    "stream_closed": 409,
    "read_only": 403,
    "too_large": 413,
}


@dataclass(frozen=True, slots=True)
class Timing:
    """How long live readers are kept waiting."""

    long_poll_s: float = limits.LONG_POLL_S
    sse_s: float = limits.SSE_S
    keep_alive_s: float = limits.SSE_KEEP_ALIVE_S


class Protocol:
    """Answers requests about the streams of one store."""

    def __init__(
        self, streams: Streams, timing: Timing | None = None, access: Access | None = None
    ) -> None:
        self._streams = streams
        self._access = access
        self._timing = timing or Timing()
        self._methods = {
            "PUT": self._create,
            "POST": self._append,
            "GET": self._read,
            "HEAD": self._head,
            "DELETE": self._delete,
        }

    async def answer(self, request: Request) -> Response:
        """The response to any request; an error becomes one too."""
        try:
            response = await self._route(request)
        except FourfoldError as error:
            response = _of_error(error)
        response.headers = {**headers.ALWAYS, **response.headers}
        return response

    async def _route(self, request: Request) -> Response:
        self._admit(request)
        if request.method == "OPTIONS":
            return Response(204, dict(headers.PREFLIGHT))
        if request.path == "/health":
            failure = self._streams.sweep_failure
            ready = self._streams.database.health().ready and failure is None
            told = {"ok": ready, "error": None if failure is None else failure.as_dict()}
            return _json(200 if ready else 503, told)
        if request.path == "/metrics" and request.method == "GET":
            text = prometheus_text([self._streams.database.metrics()])
            return Response(200, {"content-type": "text/plain; version=0.0.4"}, text.encode())
        if request.path == LIST and request.method == "GET":
            return self._list(request)
        if not request.path.startswith(PREFIX):
            raise NotFound(f"there is nothing at {request.path!r:.200}")
        answer = self._methods.get(request.method)
        if answer is None:
            return Response(405, {"allow": headers.PREFLIGHT["access-control-allow-methods"]})
        return await answer(request, request.path.removeprefix(PREFIX))

    def _admit(self, request: Request) -> None:
        """Refuse a request that its key does not allow, before anything else is said."""
        if self._access is None:
            return
        name = None
        if request.path.startswith(PREFIX):
            name = request.path.removeprefix(PREFIX)
        elif request.path == LIST:
            name = request.parameters().get("prefix", "")
        self._access.check(request, name)

    # Whole streams

    async def _create(self, request: Request, name: str) -> Response:
        fork = self._fork(request)
        kind = request.header("content-type")
        wanted = Wanted(
            name,
            kind or (None if fork else "application/octet-stream"),
            headers.number(request, "stream-ttl"),
            headers.expiry_ms(request),
            headers.is_closed(request),
            fork,
        )
        made = await self._streams.make_async(wanted, request.body)
        info = made.info
        found: Headers = {
            "content-type": info.content_type,
            **headers.position(info.next_offset, closed=info.closed),
        }
        if made.created:
            host, path = request.header("host"), quote(request.path)
            found["location"] = f"http://{host}{path}" if host else path
        return Response(201 if made.created else 200, found)

    def _fork(self, request: Request) -> Fork | None:
        source = headers.fork_source(request)
        offset = request.header("stream-fork-offset")
        sub = headers.number(request, "stream-fork-sub-offset")
        if source is None:
            if sub is not None or offset is not None:
                raise InvalidInput("a fork offset needs Stream-Forked-From")
            return None
        at = None if offset is None else read_offset(offset)
        if sub and offset is None:
            raise InvalidInput("Stream-Fork-Sub-Offset needs Stream-Fork-Offset")
        return Fork(source, at, sub or 0)

    async def _delete(self, _request: Request, name: str) -> Response:
        await self._streams.delete_async(name)
        return Response(204)

    async def _head(self, _request: Request, name: str) -> Response:
        info = self._streams.info(name)
        return Response(
            200,
            {
                "content-type": info.content_type,
                "cache-control": "no-store",
                **headers.position(info.next_offset, closed=info.closed),
                **headers.lifetime(info),
            },
        )

    def _list(self, request: Request) -> Response:
        given = request.parameters()
        limit = given.get("limit", "100")
        if not limit.isdecimal() or not 1 <= int(limit) <= limits.LIST_STREAMS_MAX:
            raise InvalidInput(f"limit is a number from 1 to {limits.LIST_STREAMS_MAX}")
        found = self._streams.list(
            prefix=given.get("prefix", ""), after=given.get("after", ""), limit=int(limit)
        )
        rows = [
            {
                "name": each.name,
                "content_type": each.content_type,
                "created_at_ms": each.created_at_ms,
                "expires_at_ms": each.expires_at_ms,
                "next_offset": show_offset(each.next_offset),
                "size_bytes": each.size_bytes,
                "closed": each.closed,
            }
            for each in found
        ]
        return _json(200, {"streams": rows, "next_after": rows[-1]["name"] if rows else None})

    # Appending

    async def _append(self, request: Request, name: str) -> Response:
        close, kind = headers.is_closed(request), request.header("content-type")
        producer = headers.producer(request)
        if not request.body and not close:
            self._streams.info(name)
            raise InvalidInput("there is nothing to append", hint="Send a body.")
        if request.body and kind is None:
            raise InvalidInput("an append needs a Content-Type")
        records: list[bytes] = []
        if request.body:
            assert kind is not None
            records = await self._split(request.body, kind, name)
        asked = Append(records, kind, producer, request.header("stream-seq"), close)
        done = await self._streams.append_async(name, asked)
        return _appended(done, wrote=bool(records))

    async def _split(self, body: bytes, kind: str, name: str) -> list[bytes]:
        try:
            return split(body, kind)
        except InvalidInput:
            # What the stream is decides first: a body of another type is that, not bad JSON.
            info = self._streams.info(name)
            if plain_type(info.content_type) != plain_type(kind) and not info.closed:
                return [body]
            raise

    # Reading

    async def _read(self, request: Request, name: str) -> Response:
        given = request.parameters()
        live, offset = given.get("live"), given.get("offset")
        if offset is None and live is not None:
            raise InvalidInput("a live read needs an offset")
        start = "-1" if offset is None else offset
        if live == "sse":
            return await self._sse(name, start, given.get("cursor"))
        if live == "long-poll":
            return await self._long_poll(name, start, given.get("cursor"))
        if live is not None:
            raise InvalidInput(f"live is long-poll or sse, not {live!r:.80}")
        info, chunk = self._streams.read(name, start)
        return _chunk(request, info, chunk, start)

    async def _long_poll(self, name: str, start: str, cursor: str | None) -> Response:
        until = time.monotonic() + self._timing.long_poll_s
        at = start
        with self._streams.bell.heard() as ear:
            while True:
                ear.forget()
                info, chunk = self._streams.read(name, at)
                at = show_offset(chunk.next_offset) if at == NOW else at
                left = until - time.monotonic()
                if chunk.records or chunk.closed or left <= 0:
                    break
                await ear.wait(min(left, limits.WATCH_HEARTBEAT_S))
        told = _told(chunk)
        told["stream-cursor"] = cursors.cursor(self._streams.clock(), cursor)
        if not chunk.records:
            return Response(204, {**told, "cache-control": "no-store"})
        told |= {
            "content-type": info.content_type,
            "cache-control": _CACHEABLE,
            "etag": cursors.etag(info, chunk),
        }
        return Response(200, told, _body(info, chunk))

    async def _sse(self, name: str, start: str, cursor: str | None) -> Response:
        info, chunk = self._streams.read(name, start)
        told = {
            "content-type": "text/event-stream",
            "cache-control": "no-cache",
            "x-accel-buffering": "no",
        }
        if not sse.is_text(info):
            told["stream-sse-data-encoding"] = "base64"
        return Response(200, told, pieces=self._events(name, info, chunk, cursor))

    async def _events(
        self, name: str, info: StreamInfo, chunk: Chunk, cursor: str | None
    ) -> AsyncIterator[bytes]:
        """Data and control in turn until the stream is closed or the time of the connection is
        over; a comment now and then while nothing happens.
        """
        until = time.monotonic() + self._timing.sse_s
        first = True
        with self._streams.bell.heard() as ear:
            while True:
                if chunk.records or chunk.closed or first:
                    cursor = cursors.cursor(self._streams.clock(), cursor)
                    # Together: a reader that has the data knows where it is.
                    data = sse.data(info, chunk) if chunk.records else b""
                    yield data + sse.control(chunk, cursor)
                first = False
                if chunk.closed or time.monotonic() >= until:
                    return
                ear.forget()
                try:
                    info, chunk = self._streams.read(name, show_offset(chunk.next_offset))
                except FourfoldError:
                    # It was deleted or has expired: the reader finds out when it asks again.
                    return
                if chunk.records or chunk.closed:
                    continue
                pause = min(self._timing.keep_alive_s, max(0.0, until - time.monotonic()))
                if not await ear.wait(pause):
                    yield sse.KEEP_ALIVE


def _appended(done: Appended, *, wrote: bool) -> Response:
    told: Headers = {"stream-next-offset": show_offset(done.next_offset)}
    if done.closed:
        told["stream-closed"] = "true"
    if done.producer is not None:
        told["producer-epoch"] = str(done.producer.epoch)
        told["producer-seq"] = str(done.producer.seq)
    fresh = wrote and done.producer is not None and not done.duplicate
    return Response(200 if fresh else 204, told)


def _told(chunk: Chunk) -> Headers:
    told = headers.position(chunk.next_offset, closed=chunk.closed)
    if chunk.up_to_date:
        told["stream-up-to-date"] = "true"
    return told


def _chunk(request: Request, info: StreamInfo, chunk: Chunk, start: str) -> Response:
    told = _told(chunk)
    told["content-type"] = info.content_type
    if start == NOW:
        return Response(200, {**told, "cache-control": "no-store"}, _body(info, chunk))
    told |= {"etag": cursors.etag(info, chunk), "cache-control": _CACHEABLE}
    if request.header("if-none-match") == told["etag"]:
        return Response(304, told)
    return Response(200, told, _body(info, chunk))


def _body(info: StreamInfo, chunk: Chunk) -> bytes:
    return join([record.payload for record in chunk.records], info.content_type)


def _json(status: int, document: object) -> Response:
    body = json.dumps(document).encode()
    return Response(status, {"content-type": JSON, "cache-control": "no-store"}, body)


def _of_error(error: FourfoldError) -> Response:
    response = _json(_status(error), {"error": error.as_dict()})
    response.headers |= headers.of_error(error)
    return response


def _status(error: FourfoldError) -> int:
    if error.kind in _STATUS:
        return _STATUS[error.kind]
    if isinstance(error, InvalidInput):
        return 400
    if isinstance(error, NotFound):
        return 404
    if isinstance(error, Busy):
        return 429 if error.kind == "overloaded" else 503
    if isinstance(error, StorageError | CorruptData):
        return 503
    return 409
