"""The ASGI front: any ASGI server can run it, and any ASGI application can mount it."""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    MutableMapping,
)
from dataclasses import replace
from typing import Any
from urllib.parse import unquote_to_bytes

from fourfold import limits
from fourfold.errors import FourfoldError, InvalidInput, Refused
from fourfold.server.budget import Lease
from fourfold.server.headers import ALWAYS
from fourfold.server.request import Request, Response
from fourfold.server.streams import Protocol, refusal
from fourfold.server.subscriptions import is_control

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class StreamsApp:
    """`StreamsApp(Protocol(store.streams))` is an ASGI application."""

    def __init__(self, protocol: Protocol, *, body_max: int = limits.HTTP_BODY_MAX) -> None:
        self._protocol = protocol
        self._body_max = body_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            raise Refused(
                f"streams are served over HTTP, not over {scope['type']!r}",
                hint="Follow a stream by long-poll or as server-sent events.",
            )
        try:
            response = await self._answer(_request(scope), receive)
        except ConnectionResetError:
            # Half a request is none: nobody is left to hear an answer, and nothing is done.
            return
        except FourfoldError as error:
            response = refusal(error, control=is_control(scope["path"]))
        head = scope["method"] == "HEAD"
        if response.pieces is None or head:
            await _send(send, response, head=head)
        else:
            await _stream(receive, send, response, response.pieces)

    async def _answer(self, request: Request, receive: Receive) -> Response:
        """The response to a request whose body is still to be read. Whether it may be made is
        decided by its head, before anything is kept of its body.
        """
        lease = self._protocol.lease(request) if _has_body(request) else None
        try:
            body = await self._body(receive, lease)
            if body is None:
                return Response(413, {**ALWAYS, "connection": "close"})
            return await self._protocol.answer(replace(request, body=body) if body else request)
        finally:
            if lease is not None:
                lease.release()

    async def _body(self, receive: Receive, lease: Lease | None) -> bytes | None:
        """The whole body; None when it is more than is taken, an error when it ends half-way.
        Without a lease it is read and dropped.
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


def _has_body(request: Request) -> bool:
    """Return True if a request may have a body, by its head."""
    headers = request.headers
    return (
        request.method not in {"GET", "HEAD", "OPTIONS", "DELETE"}
        or headers.get("content-length", "0") != "0"
        or "transfer-encoding" in headers
    )


def _request(scope: Scope) -> Request:
    """What a head asks for, as the protocol reads it; InvalidInput when its path is no text."""
    hosts = [value for name, value in scope["headers"] if name == b"host"]
    if len(hosts) > 1 or (not hosts and scope.get("http_version") == "1.1"):
        # Where it leads could be read in two ways.
        raise InvalidInput(f"a request needs exactly one Host, got {len(hosts)}")
    raw: bytes | None = scope.get("raw_path")
    if raw is not None:
        try:
            unquote_to_bytes(raw).decode()
        except UnicodeDecodeError:
            # Decoded leniently, different names would become the same one.
            raise InvalidInput("the path is not UTF-8") from None
    root: str = scope.get("root_path", "").rstrip("/")
    path: str = scope["path"]
    # Some servers tell the path as the client sent it, some what is left of it behind the root.
    if path == root or path.startswith(f"{root}/"):
        path = path.removeprefix(root)
    return Request(
        scope["method"],
        path,
        scope["query_string"].decode("latin-1"),
        {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]},
        scheme=scope.get("scheme", "http"),
        root=root,
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
    told = [
        (name.encode("latin-1"), value.encode("latin-1", "replace"))
        for name, value in response.headers.items()
    ]
    if response.pieces is None and response.status not in {204, 304} and not head:
        told.append((b"content-length", str(len(response.body)).encode()))
    await send({"type": "http.response.start", "status": response.status, "headers": told})
    if not more:
        await send({"type": "http.response.body", "body": b"" if head else response.body})


async def _stream(
    receive: Receive, send: Send, response: Response, pieces: AsyncIterator[bytes]
) -> None:
    """Send a body as it comes, until its end or until its reader is gone."""
    await _send(send, response, head=False, more=True)
    sending = asyncio.current_task()
    assert sending is not None
    gone = asyncio.ensure_future(receive())
    # All of the request was read: what comes next is that the connection ended.
    gone.add_done_callback(lambda done: done.cancelled() or sending.cancel())
    try:
        async for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    except asyncio.CancelledError:
        if not gone.done() or gone.cancelled():
            raise
        sending.uncancel()
    finally:
        gone.cancel()
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()
