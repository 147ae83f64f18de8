"""Parts that both transports share: settings, the HTTP library, failures and retries.

The library is httpx, from the extra `client`; `connection` has the transports. A failure before
anything was sent may always be retried; after that, only calls that may be repeated.

Pauses between retries grow and are partly random, so that clients of one failed server do not all
return at the same time. A Retry-After of the server is respected, up to a limit.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fourfold import limits
from fourfold._version import __version__
from fourfold.client.requests import Address, Call
from fourfold.errors import (
    FourfoldError,
    InvalidInput,
    MissingDependency,
    OutcomeUnknown,
    ServerUnreachable,
)
from fourfold.retry import Attempts, Retries

CLIENT_CONNECT_S: Final = 10.0
CLIENT_BACKOFF_S: Final = 0.05
CLIENT_BACKOFF_S_MAX: Final = 5.0
"""First and longest pause between two attempts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
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
            "timeout": httpx.Timeout(self.timeout, connect=CLIENT_CONNECT_S),
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


def make_ssl_context(settings: ConnectionSettings) -> ssl.SSLContext | bool:
    """Return the trusted certificates: the usual ones, those of a file, or a context."""
    verify = settings.verify
    if isinstance(verify, str | Path):
        try:
            return ssl.create_default_context(cafile=str(verify))
        except (OSError, ssl.SSLError) as error:
            raise InvalidInput(f"{verify}: cannot read certificates: {error}") from None
    # Loading the usual certificates takes long, and redirects are not followed.
    return verify if settings.address.root.lower().startswith("https:") else False


def request_options(httpx: Any, call: Call, settings: ConnectionSettings) -> dict[str, Any]:
    """Return the arguments of a request of both httpx clients."""
    options: dict[str, Any] = {"headers": call.headers, "params": call.params}
    if call.body:
        options["content"] = call.body
    if call.live:
        read_timeout = max(limits.CLIENT_LIVE_TIMEOUT_S, settings.timeout)
        connect = CLIENT_CONNECT_S
        options["timeout"] = httpx.Timeout(settings.timeout, read=read_timeout, connect=connect)
    return options


def failure(httpx: Any, call: Call, error: Exception) -> FourfoldError:
    """Return the error for a request without a response."""
    reason = str(error) or type(error).__name__
    unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
    if unsent or call.repeatable:
        return ServerUnreachable(
            f"{call.operation}: no response from {httpx.URL(call.url).netloc.decode()}: {reason}",
            details={"sent": not unsent},
        )
    return OutcomeUnknown(f"{call.operation}: the connection was lost before a response: {reason}")


def was_sent(error: FourfoldError) -> bool:
    """Return True unless the request of a failure is known not to have been sent."""
    return error.details.get("sent") is not False


def start_retries(retry_for: float | None) -> Attempts:
    """Return the retry state of one request, which is retried for `retry_for` seconds."""
    return Attempts(Retries(None, CLIENT_BACKOFF_S, CLIENT_BACKOFF_S_MAX, within_s=retry_for))


Signal = threading.Event


class AsyncSignal:
    """The `threading.Event` of coroutines: `wait` has a timeout."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        """Wake the coroutines that wait."""
        self._event.set()

    def is_set(self) -> bool:
        """Return True once `set` was called."""
        return self._event.is_set()

    async def wait(self, timeout: float) -> bool:  # noqa: ASYNC109 - as `threading.Event` has it
        """Wait for `set`, at most `timeout` seconds; return True if it was called."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._event.wait()
        return self.is_set()
