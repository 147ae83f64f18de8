"""The HTTP library, and what its failures mean.

It is httpx, from the extra `client`; nothing else in Fourfold knows it. A failure before anything
was sent may always be followed by another try. After that, only where the call may be repeated.

How long a request is repeated, and with which pauses between.

Pauses grow, and are partly up to chance, so that clients which lost one server do not all come
back at the same moment. A server that says when to come back is believed, within reason.
"""

from __future__ import annotations

import random
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fourfold import limits
from fourfold._version import __version__
from fourfold.client import responses
from fourfold.client.requests import Address, Call
from fourfold.client.responses import Response
from fourfold.errors import (
    Closed,
    FourfoldError,
    InvalidInput,
    MissingDependency,
    OutcomeUnknown,
    ServerUnreachable,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a client talks with its server."""

    address: Address
    key: str | None = None
    timeout: float = limits.CLIENT_TIMEOUT_S
    retry_for: float | None = limits.CLIENT_RETRY_S
    verify: bool | str | Path | ssl.SSLContext = True
    headers: tuple[tuple[str, str], ...] = ()

    def arguments(self, httpx: Any, verify: ssl.SSLContext | bool) -> dict[str, Any]:
        """What both kinds of a client are made with."""
        told = {"user-agent": f"fourfold/{__version__}", **dict(self.headers)}
        if self.key is not None:
            if not self.key.isascii() or not self.key.isprintable():
                raise InvalidInput("a key is printable text", hint="`fourfold key add` makes one.")
            told["authorization"] = f"Bearer {self.key}"
        return {
            "headers": told,
            "verify": verify,
            "timeout": httpx.Timeout(self.timeout, connect=limits.CLIENT_CONNECT_S),
            # A redirect would take the key to wherever it points.
            "follow_redirects": False,
        }


def library() -> Any:
    try:
        import httpx  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingDependency(
            "the client of streams needs httpx, which is not installed",
            hint="pip install 'fourfold[client]'",
        ) from None
    return httpx


def trust(verify: bool | str | Path | ssl.SSLContext) -> ssl.SSLContext | bool:
    """Whose certificates are believed: everybody's usual ones, those of a file, or a context's."""
    if isinstance(verify, bool | ssl.SSLContext):
        return verify
    try:
        return ssl.create_default_context(cafile=str(verify))
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(f"{verify}: certificates cannot be read: {error}") from None


class Transport:
    """Connections for threads."""

    def __init__(self, settings: Settings, on_socket: Callable[[Any], None] | None = None) -> None:
        self._httpx = library()
        self._settings = settings
        self._on_socket = on_socket
        given = settings.arguments(self._httpx, trust(settings.verify))
        self._client = self._httpx.Client(**given)

    def send(self, call: Call) -> Response:
        """One request, tried once: its answer, or its error."""
        with self.open(call) as (answer, pieces):
            return answer._replace(body=b"".join(pieces))

    @contextmanager
    def open(self, call: Call) -> Iterator[tuple[Response, Iterator[bytes]]]:
        """A request whose answer is read piece by piece within the block."""
        if self._client.is_closed:
            raise Closed("the client is closed", hint="Make another one.")
        asked = _request(self._httpx, call, self._settings)
        if self._on_socket is not None:
            asked["extensions"] = {**asked.get("extensions", {}), "trace": self._traced}
        try:
            with self._client.stream(call.method, call.url, **asked) as response:
                answer = Response(response.status_code, response.headers)
                if not 200 <= answer.status < 300:
                    raise responses.error_of(call, answer._replace(body=response.read()))
                yield answer, response.iter_bytes()
        except self._httpx.HTTPError as error:
            raise _failure(self._httpx, call, error) from error

    def _traced(self, event: str, told: dict[str, Any]) -> None:
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            assert self._on_socket is not None
            self._on_socket(told["return_value"].get_extra_info("socket"))

    def close(self) -> None:
        self._client.close()


class AsyncTransport:
    """Connections for coroutines."""

    def __init__(self, settings: Settings) -> None:
        self._httpx = library()
        self._settings = settings
        given = settings.arguments(self._httpx, trust(settings.verify))
        self._client = self._httpx.AsyncClient(**given)

    async def send(self, call: Call) -> Response:
        async with self.open(call) as (answer, pieces):
            return answer._replace(body=b"".join([piece async for piece in pieces]))

    @asynccontextmanager
    async def open(self, call: Call) -> AsyncIterator[tuple[Response, AsyncIterator[bytes]]]:
        if self._client.is_closed:
            raise Closed("the client is closed", hint="Make another one.")
        asked = _request(self._httpx, call, self._settings)
        try:
            async with self._client.stream(call.method, call.url, **asked) as response:
                answer = Response(response.status_code, response.headers)
                if not 200 <= answer.status < 300:
                    raise responses.error_of(call, answer._replace(body=await response.aread()))
                yield answer, response.aiter_bytes()
        except self._httpx.HTTPError as error:
            raise _failure(self._httpx, call, error) from error

    async def close(self) -> None:
        await self._client.aclose()


def _request(httpx: Any, call: Call, settings: Settings) -> dict[str, Any]:
    asked: dict[str, Any] = {"headers": call.headers, "params": call.params}
    if call.body:
        asked["content"] = call.body
    if call.live:
        longest = max(limits.CLIENT_LIVE_TIMEOUT_S, settings.timeout)
        connect = limits.CLIENT_CONNECT_S
        asked["timeout"] = httpx.Timeout(settings.timeout, read=longest, connect=connect)
    return asked


def _failure(httpx: Any, call: Call, error: Exception) -> FourfoldError:
    reason = str(error) or type(error).__name__
    unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
    if unsent or call.repeatable:
        return ServerUnreachable(
            f"{call.what}: no answer from {httpx.URL(call.url).netloc.decode()}: {reason}",
            details={"sent": not unsent},
        )
    return OutcomeUnknown(f"{call.what}: the connection broke before an answer came: {reason}")


class RetryPolicy:
    """The repetitions of one request."""

    def __init__(self, for_s: float | None) -> None:
        self._for_s = for_s
        self.restart()

    def restart(self) -> None:
        """It went well: the next failure is a first one again."""
        self._until: float | None = None
        self._pause = limits.CLIENT_BACKOFF_S

    def pause(self, error: FourfoldError) -> float:
        """How long to wait before the next try; the error itself when there is none."""
        if not error.retryable:
            raise error
        now = time.monotonic()
        if self._until is None:
            self._until = float("inf") if self._for_s is None else now + self._for_s
        left = self._until - now
        if left <= 0:
            raise error
        wanted = random.uniform(0.5, 1.0) * self._pause  # noqa: S311 - no secret
        self._pause = min(2 * self._pause, limits.CLIENT_BACKOFF_S_MAX)
        if error.retry_after is not None:
            wanted = max(wanted, min(error.retry_after, limits.CLIENT_BACKOFF_S_MAX))
        return min(wanted, left)
