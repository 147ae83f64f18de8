"""HTTP transport of the client and its retries.

The library is httpx, from the extra `client`; only this module uses it. A failure before anything
was sent may always be retried; after that, only calls that may be repeated.

Pauses between retries grow and are partly random, so that clients of one failed server do not all
return at the same time. A Retry-After of the server is respected, up to a limit.
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
    """Connection settings of a client."""

    address: Address
    key: str | None = None
    timeout: float = limits.CLIENT_TIMEOUT_S
    retry_for: float | None = limits.CLIENT_RETRY_S
    verify: bool | str | Path | ssl.SSLContext = True
    headers: tuple[tuple[str, str], ...] = ()

    def arguments(self, httpx: Any, verify: ssl.SSLContext | bool) -> dict[str, Any]:
        """Return the arguments of both httpx clients."""
        headers = {"user-agent": f"fourfold/{__version__}", **dict(self.headers)}
        if self.key is not None:
            if not self.key.isascii() or not self.key.isprintable():
                raise InvalidInput(
                    "key: must be printable ASCII text", hint="Create one with `fourfold key add`."
                )
            headers["authorization"] = f"Bearer {self.key}"
        return {
            "headers": headers,
            "verify": verify,
            "timeout": httpx.Timeout(self.timeout, connect=limits.CLIENT_CONNECT_S),
            # A redirect would send the key to another address.
            "follow_redirects": False,
        }


def import_httpx() -> Any:
    """Import httpx; raise MissingDependency if it is not installed."""
    try:
        import httpx  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingDependency(
            "the stream client requires httpx, which is not installed",
            hint="pip install 'fourfold[client]'",
        ) from None
    return httpx


def make_ssl_context(verify: bool | str | Path | ssl.SSLContext) -> ssl.SSLContext | bool:
    """Return the trusted certificates: the usual ones, those of a file, or a context."""
    if isinstance(verify, bool | ssl.SSLContext):
        return verify
    try:
        return ssl.create_default_context(cafile=str(verify))
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(f"{verify}: cannot read certificates: {error}") from None


class Transport:
    """HTTP connections for threads."""

    def __init__(self, settings: Settings, on_socket: Callable[[Any], None] | None = None) -> None:
        self._httpx = import_httpx()
        self._settings = settings
        self._on_socket = on_socket
        arguments = settings.arguments(self._httpx, make_ssl_context(settings.verify))
        self._client = self._httpx.Client(**arguments)

    def send(self, call: Call) -> Response:
        """Send a request once and return its response, or raise its error."""
        with self.open(call) as (response, pieces):
            return response._replace(body=b"".join(pieces))

    @contextmanager
    def open(self, call: Call) -> Iterator[tuple[Response, Iterator[bytes]]]:
        """Send a request whose response is read in pieces within the block."""
        if self._client.is_closed:
            raise Closed("the client is closed", hint="Create another client.")
        options = _request(self._httpx, call, self._settings)
        if self._on_socket is not None:
            options["extensions"] = {**options.get("extensions", {}), "trace": self._on_trace_event}
        try:
            with self._client.stream(call.method, call.url, **options) as http_response:
                response = Response(http_response.status_code, http_response.headers)
                if not 200 <= response.status < 300:
                    raise responses.parse_error(call, response._replace(body=http_response.read()))
                yield response, http_response.iter_bytes()
        except self._httpx.HTTPError as error:
            raise _failure(self._httpx, call, error) from error

    def _on_trace_event(self, event: str, info: dict[str, Any]) -> None:
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            assert self._on_socket is not None
            self._on_socket(info["return_value"].get_extra_info("socket"))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


class AsyncTransport:
    """HTTP connections for coroutines."""

    def __init__(self, settings: Settings) -> None:
        self._httpx = import_httpx()
        self._settings = settings
        arguments = settings.arguments(self._httpx, make_ssl_context(settings.verify))
        self._client = self._httpx.AsyncClient(**arguments)

    async def send(self, call: Call) -> Response:
        """Send a request once and return its response, or raise its error."""
        async with self.open(call) as (response, pieces):
            return response._replace(body=b"".join([piece async for piece in pieces]))

    @asynccontextmanager
    async def open(self, call: Call) -> AsyncIterator[tuple[Response, AsyncIterator[bytes]]]:
        """Send a request whose response is read in pieces within the block."""
        if self._client.is_closed:
            raise Closed("the client is closed", hint="Create another client.")
        options = _request(self._httpx, call, self._settings)
        try:
            async with self._client.stream(call.method, call.url, **options) as http_response:
                response = Response(http_response.status_code, http_response.headers)
                if not 200 <= response.status < 300:
                    raise responses.parse_error(
                        call, response._replace(body=await http_response.aread())
                    )
                yield response, http_response.aiter_bytes()
        except self._httpx.HTTPError as error:
            raise _failure(self._httpx, call, error) from error

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()


def _request(httpx: Any, call: Call, settings: Settings) -> dict[str, Any]:
    options: dict[str, Any] = {"headers": call.headers, "params": call.params}
    if call.body:
        options["content"] = call.body
    if call.live:
        read_timeout = max(limits.CLIENT_LIVE_TIMEOUT_S, settings.timeout)
        connect = limits.CLIENT_CONNECT_S
        options["timeout"] = httpx.Timeout(settings.timeout, read=read_timeout, connect=connect)
    return options


def _failure(httpx: Any, call: Call, error: Exception) -> FourfoldError:
    reason = str(error) or type(error).__name__
    unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
    if unsent or call.repeatable:
        return ServerUnreachable(
            f"{call.operation}: no response from {httpx.URL(call.url).netloc.decode()}: {reason}",
            details={"sent": not unsent},
        )
    return OutcomeUnknown(f"{call.operation}: the connection was lost before a response: {reason}")


class RetryPolicy:
    """Retry state of one request."""

    def __init__(self, for_s: float | None) -> None:
        self._retry_for_s = for_s
        self.restart()

    def restart(self) -> None:
        """Reset the pauses and the deadline after a success."""
        self._deadline: float | None = None
        self._pause = limits.CLIENT_BACKOFF_S

    def pause(self, error: FourfoldError) -> float:
        """Return the seconds until the next attempt, or raise the error if there is none."""
        if not error.retryable:
            raise error
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = float("inf") if self._retry_for_s is None else now + self._retry_for_s
        left = self._deadline - now
        if left <= 0:
            raise error
        seconds = random.uniform(0.5, 1.0) * self._pause  # noqa: S311 - no secret
        self._pause = min(2 * self._pause, limits.CLIENT_BACKOFF_S_MAX)
        if error.retry_after is not None:
            seconds = max(seconds, min(error.retry_after, limits.CLIENT_BACKOFF_S_MAX))
        return min(seconds, left)
