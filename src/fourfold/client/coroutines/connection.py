"""Connections to a server, for coroutines: requests, retries and followers."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from fourfold import limits
from fourfold.client import requests, responses
from fourfold.client.reader import ResponseReader
from fourfold.client.requests import Address, Call
from fourfold.client.responses import Response
from fourfold.client.transport import (
    AsyncSignal,
    ConnectionSettings,
    failure,
    import_httpx,
    make_ssl_context,
    request_options,
    start_retries,
)
from fourfold.errors import BadAnswer, Closed, DeadlineExceeded, FourfoldError
from fourfold.wire.pages import Page

Out = TypeVar("Out")
P = TypeVar("P", bound=Page)


class AsyncTransport:
    """HTTP connections for coroutines."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self._httpx = import_httpx()
        self._settings = settings
        arguments = settings.arguments(self._httpx, make_ssl_context(settings))
        self._client = self._httpx.AsyncClient(**arguments)

    async def send(self, call: Call) -> Response:
        """Send a request once and return its response, or raise its error."""
        async with self.open(call) as (response, pieces):
            body, size = [], 0
            async for piece in pieces:
                body.append(piece)
                size += len(piece)
                if call.response_max is not None and size > call.response_max:
                    raise BadAnswer(
                        f"{call.operation}: the response is larger than {call.response_max} bytes"
                    )
            return response._replace(body=b"".join(body))

    @asynccontextmanager
    async def open(self, call: Call) -> AsyncIterator[tuple[Response, AsyncIterator[bytes]]]:
        """Send a request whose response is read in pieces within the block."""
        if self._client.is_closed:
            raise Closed("the client is closed", hint="Create another client.")
        options = request_options(self._httpx, call, self._settings) | self._extensions()
        try:
            async with self._client.stream(call.method, call.url, **options) as http_response:
                response = Response(http_response.status_code, http_response.headers)
                if not 200 <= response.status < 300 and response.status not in call.accepted:
                    body = await http_response.aread()
                    raise responses.parse_error(call, response._replace(body=body))
                yield response, http_response.aiter_bytes()
        except self._httpx.HTTPError as error:
            raise failure(self._httpx, call, error) from error

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    def _extensions(self) -> dict[str, Any]:
        return {}


class AsyncLiveTransport(AsyncTransport):
    """The connection of one follower, which can be interrupted while a request waits."""

    def __init__(self, settings: ConnectionSettings) -> None:
        super().__init__(settings)
        self._socket: Any = None
        self._interrupted = False

    def interrupt(self) -> None:
        """Shut the connection down: the request that waits fails."""
        self._interrupted = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def _extensions(self) -> dict[str, Any]:
        return {"extensions": {"trace": self._on_trace_event}}

    async def _on_trace_event(self, event: str, info: dict[str, Any]) -> None:
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            self._socket = info["return_value"].get_extra_info("socket")
            if self._interrupted:
                self.interrupt()


class AsyncConnection:
    """A connection to a server: requests are retried while that is safe."""

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        timeout: float = limits.CLIENT_TIMEOUT_S,
        retry_for: float | None = limits.CLIENT_RETRY_S,
        verify: bool | str | Path | ssl.SSLContext = True,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.settings = ConnectionSettings(
            address=Address(url),
            key=key,
            timeout=timeout,
            retry_for=retry_for,
            verify=verify,
            headers=tuple((headers or {}).items()),
        )
        self.transport = AsyncTransport(self.settings)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; producers and followers close their own."""
        await self.transport.close()

    async def send(self, call: Call) -> Response:
        """Send a request, and retry it while that is safe."""
        retries = start_retries(self.settings.retry_for)
        while True:
            try:
                return await self.transport.send(call)
            except FourfoldError as error:
                if call.bounded and isinstance(error, DeadlineExceeded):
                    raise
                await asyncio.sleep(retries.pause(error))

    async def pages(
        self, call: Call, kind: type[P], limit: int = limits.PAGE_ITEMS_MAX
    ) -> AsyncIterator[P]:
        """Yield the pages of a list of a Fourfold server; all show the same state."""
        cursor = None
        while True:
            response = await self.send(requests.with_cursor(call, cursor, limit))
            page = responses.decode(response, kind, "a list")
            yield page
            cursor = page.next_cursor
            if cursor is None:
                return

    async def run(self, reader: ResponseReader[Out]) -> AsyncGenerator[Out]:
        """Yield what a reader produces, over as many connections as needed."""
        retries = start_retries(self.settings.retry_for)
        while not reader.ended():
            try:
                async with self.transport.open(reader.call()) as (response, pieces):
                    reader.begin(response.headers)
                    async for piece in pieces:
                        for item in reader.feed(piece):
                            yield item
                        retries.restart()
                for item in reader.end():
                    yield item
            except FourfoldError as error:
                await asyncio.sleep(retries.pause(error))


class AsyncLiveFeed(Generic[Out]):
    """Iterator over a live feed, over as many connections as needed.

    Leave its block, or call `stop()`, to end it.
    """

    def __init__(
        self, settings: ConnectionSettings, reader: ResponseReader[Out], retry_for: float | None
    ) -> None:
        self.reader = reader
        self._retries = start_retries(retry_for)
        self._stopped = AsyncSignal()
        # Its own connection, so that it can be interrupted while a request waits.
        self._transport = AsyncLiveTransport(settings)
        self._items = self._run()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Out:
        return await anext(self._items)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()
        with contextlib.suppress(RuntimeError, ValueError):
            # Another iteration may be in it; it ends there, since its connection was closed.
            await self._items.aclose()
        await self._transport.close()

    def stop(self) -> None:
        """Stop following: an iteration that waits ends."""
        self._stopped.set()
        self._transport.interrupt()

    async def _run(self) -> AsyncGenerator[Out]:
        reader = self.reader
        try:
            while not reader.ended() and not self._stopped.is_set():
                try:
                    async with self._transport.open(reader.call()) as (response, pieces):
                        reader.begin(response.headers)
                        async for piece in pieces:
                            for item in reader.feed(piece):
                                self._retries.restart()
                                yield item
                            if reader.ended():
                                break
                    for item in reader.end():
                        yield item
                    if not reader.progress:
                        raise reader.empty_response()
                    self._retries.restart()
                except FourfoldError as error:
                    if self._stopped.is_set():
                        return
                    await self._stopped.wait(self._retries.pause(error))
        finally:
            await self._transport.close()
