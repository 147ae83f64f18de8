"""The ASGI application: any ASGI server can run it, and any ASGI application can mount it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    MutableMapping,
)
from typing import Any, Final

import msgspec

from fourfold import limits
from fourfold.errors import FourfoldError, Refused
from fourfold.server.budget import Lease
from fourfold.server.framework import GZipMiddleware
from fourfold.server.headers import DEFAULT_HEADERS
from fourfold.server.request import Request, Response
from fourfold.server.request_head import check_head, parse_headers
from fourfold.server.streams import StreamProtocol

GZIP_BYTES_MIN: Final = 1 * limits.KIB
"""Shorter responses are not compressed."""
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class StreamsApp:
    """ASGI application of a protocol: `StreamsApp(Protocol(store.streams))`."""

    def __init__(self, protocol: StreamProtocol, *, body_max: int = limits.HTTP_BODY_MAX) -> None:
        self._protocol = protocol
        self._body_max = body_max
        self._compressed = GZipMiddleware(self._serve, minimum_size=GZIP_BYTES_MIN, compresslevel=6)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            raise Refused(
                f"connection type: must be http, got {scope['type']!r}",
                hint="Follow a stream by long-poll or by server-sent events.",
            )
        await (self._compressed if _accepts_gzip(scope) else self._serve)(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = _build_request(scope)
        try:
            check_head(scope["headers"], scope.get("http_version", ""), scope.get("raw_path"))
            response = await self._respond(request, receive)
        except ConnectionResetError:
            # The request is incomplete and its client is gone: do nothing.
            return
        except FourfoldError as error:
            response = self._protocol.error_response(error, request)
        head = scope["method"] == "HEAD"
        if response.pieces is None or head:
            await _send(send, response, head=head)
        else:
            in_flight = self._protocol.observer.metrics.in_flight
            await _stream(receive, send, response, response.pieces, in_flight)

    async def _respond(self, request: Request, receive: Receive) -> Response:
        """Return the response to a request whose body is still to be received.

        The head decides whether the request is admitted, before any of its body is stored.
        """
        await self._protocol.prepare(request)
        call = self._protocol.admit(request)
        lease = self._protocol.lease(call) if _has_body(request) else None
        try:
            body = await self._receive_body(receive, lease)
            if body is None:
                return Response(413, {**DEFAULT_HEADERS, "connection": "close"})
            request = msgspec.structs.replace(request, body=body) if body else request
            work = self._protocol.run(call, request)
            return await (_until_disconnect(receive, work) if call.is_cancellable else work)
        finally:
            if lease is not None:
                lease.release()

    async def _receive_body(self, receive: Receive, lease: Lease | None) -> bytes | None:
        """Return the whole body, or None if it is too large.

        Without a lease the body is received and discarded.

        Raises:
            ConnectionResetError: the client disconnected before the end of the body.
        """
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                raise ConnectionResetError
            part = message.get("body", b"")
            size += len(part)
            if size > self._body_max:
                return None
            if lease is not None:
                lease.hold(size)
                parts.append(part)
            if not message.get("more_body"):
                return b"".join(parts)


def _accepts_gzip(scope: Scope) -> bool:
    """Return True if the response may be compressed; those of streams are sent as they are."""
    return "/v1/stream" not in scope["path"] and any(
        name == b"accept-encoding" and b"gzip" in value for name, value in scope["headers"]
    )


def _has_body(request: Request) -> bool:
    """Return True if a request may have a body, according to its head."""
    headers = request.headers
    return (
        request.method not in {"GET", "HEAD", "OPTIONS", "DELETE"}
        or headers.get("content-length", "0") != "0"
        or "transfer-encoding" in headers
    )


def _build_request(scope: Scope) -> Request:
    root: str = scope.get("root_path", "").rstrip("/")
    path: str = scope["path"]
    client = scope.get("client")
    # Some servers pass the path as the client sent it, some without the root.
    if path == root or path.startswith(f"{root}/"):
        path = path.removeprefix(root)
    return Request(
        scope["method"],
        path,
        scope["query_string"].decode("latin-1"),
        parse_headers(scope["headers"]),
        scheme=scope.get("scheme", "http"),
        root=root,
        client=client[0] if client else "",
    )


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await send({"type": "lifespan.shutdown.complete"})
            return


async def _send(send: Send, response: Response, *, head: bool, more: bool = False) -> None:
    headers = [
        (name.encode("latin-1"), value.encode("latin-1", "replace"))
        for name, value in response.headers.items()
    ]
    if response.pieces is None and response.status not in {204, 304} and not head:
        headers.append((b"content-length", str(len(response.body)).encode()))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    if not more:
        await send({"type": "http.response.body", "body": b"" if head else response.body})


async def _until_disconnect(receive: Receive, work: Coroutine[Any, Any, Response]) -> Response:
    """Return the response, or cancel the work when the client disconnects.

    Raises:
        ConnectionResetError: the client disconnected.
    """
    running = asyncio.ensure_future(work)
    # The whole request was received: the next event is that the client disconnected.
    disconnected = asyncio.ensure_future(receive())
    try:
        await asyncio.wait((running, disconnected), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            return running.result()
        raise ConnectionResetError
    finally:
        running.cancel()
        disconnected.cancel()


async def _stream(
    receive: Receive,
    send: Send,
    response: Response,
    pieces: AsyncIterator[bytes],
    in_flight: Counter[str],
) -> None:
    """Send a body as it is produced, until its end or until the client disconnects."""
    await _send(send, response, head=False, more=True)
    in_flight["feed"] += 1
    task = asyncio.current_task()
    assert task is not None
    disconnected = asyncio.ensure_future(receive())
    # The whole request was received: the next event is that the client disconnected.
    disconnected.add_done_callback(lambda done: done.cancelled() or task.cancel())
    try:
        async for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    except asyncio.CancelledError:
        if not disconnected.done() or disconnected.cancelled():
            raise
        task.uncancel()
    finally:
        in_flight["feed"] -= 1
        disconnected.cancel()
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()
