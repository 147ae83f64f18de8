"""Delivery of webhooks and wakes, to allowed addresses only.

A URL is checked when it is registered, and again at every call: its name is resolved, every address
that it has must be allowed, and the connection is made to a checked address, not to the name. So a
name that resolves differently the second time is not followed. Redirects are not followed either.
One timeout covers everything from name resolution to the end of the response.

`Deliverer` notifies webhooks and wake streams of pending records, on its own thread. All state is
in
the database, so nothing is lost when the process dies: a webhook call in flight is repeated. The
deliverer wakes after commits, at the next due time, and periodically. While there are no
subscriptions it does not listen to appends.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any, Final, Literal, NamedTuple, Self
from urllib.parse import SplitResult, quote, urlsplit

import msgspec

from fourfold import limits
from fourfold.errors import FourfoldError, MissingDependency, Refused, WebhookRefused
from fourfold.models.streams.subscriptions import Link, Subscriptions, Wake
from fourfold.models.streams.validation import format_offset
from fourfold.server.signing_keys import Keys
from fourfold.wire.subscriptions import PendingStream, WakeNotification

WEBHOOK_ANSWER_BYTES: Final = 64 * limits.KIB
"""Bytes of a webhook's response that are read."""
WEBHOOK_OWNER_SHARE: Final = 4
"""Divisor of the webhook calls that one of several owners may have in flight."""
WEBHOOK_BATCH_S: Final = 0.005
WEBHOOK_IDLE_S: Final = 5.0
WEBHOOK_DRAIN_S: Final = 2.0
"""Time for pending webhook calls when the server stops."""

Targets = Literal["public", "local", "private"]
"""Addresses that may be called: public over https; also this machine over http; or all."""
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_PROTOCOLS = ipaddress.ip_network("192.0.0.0/24")
"""Reserved for protocols; some clouds use it. Not private in every Python version."""
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class WebhookResponse(NamedTuple):
    """Status and body of a webhook's response."""

    status: int
    body: bytes


class WebhookFailed(Exception):
    """A webhook could not be called, or its response was incomplete; internal to the server."""


def check_url(url: str, targets: Targets) -> SplitResult:
    """Parse a webhook URL and check that it may be called, without resolving its name."""
    if len(url) > limits.SUBSCRIPTION_TEXT_MAX or not url.isascii() or not url.isprintable():
        raise WebhookRefused("webhook URL: must be short, printable ASCII text")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise WebhookRefused(f"webhook URL: invalid, got {url!r:.200}") from None
    if parts.scheme not in {"http", "https"} or not host or port == 0 or " " in url:
        raise WebhookRefused(f"webhook URL: must be http or https, got {url!r:.200}")
    if parts.username is not None or parts.password is not None:
        raise WebhookRefused("webhook URL: must not contain a user or a password")
    if targets == "private":
        return parts
    try:
        address: _Address | None = ipaddress.ip_address(host)
    except ValueError:
        address = None
    if address is not None:
        check_address(address, targets)
    local = host == "localhost" or (address is not None and address.is_loopback)
    if parts.scheme == "http" and not local:
        raise WebhookRefused("webhook URL: must be https")
    if local and targets != "local":
        raise WebhookRefused("webhook URL: must not be an address of the server's own machine")
    return parts


def check_address(address: _Address, targets: Targets) -> None:
    """Raise WebhookRefused unless an address, or the one embedded in it, may be called."""
    if targets == "private":
        return
    inner = _embedded_address(address)
    if inner.is_loopback and targets == "local":
        return
    is_odd = inner.is_multicast or inner.is_reserved or inner.is_unspecified
    if not inner.is_global or is_odd or inner in _PROTOCOLS:
        raise WebhookRefused(f"webhook address: must be public, got {address}")


def _embedded_address(address: _Address) -> _Address:
    """Return the IPv4 address that an IPv6 address embeds, or the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


async def post(
    url: str,
    body: bytes,
    headers: dict[str, str],
    targets: Targets,
    timeout_s: float = limits.WEBHOOK_TIMEOUT_S,
) -> WebhookResponse:
    """Send a body to a webhook and return its response; raise WebhookFailed or WebhookRefused."""
    parts = check_url(url, targets)
    try:
        async with asyncio.timeout(timeout_s):
            return await _post(parts, body, headers, targets)
    except TimeoutError:
        raise WebhookFailed(f"no response within {timeout_s:g} s") from None
    except (OSError, ssl.SSLError, UnicodeError) as error:
        raise WebhookFailed(str(error) or repr(error)) from None


async def _post(
    parts: SplitResult, body: bytes, headers: dict[str, str], targets: Targets
) -> WebhookResponse:
    host, secure = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    address = await _resolve(host, port, targets)
    reader, writer = await asyncio.open_connection(
        str(address),
        port,
        ssl=ssl.create_default_context() if secure else None,
        server_hostname=host if secure else None,
    )
    try:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        named_host = f"[{host}]" if ":" in host else host
        all_headers = {
            "host": named_host if parts.port is None else f"{named_host}:{parts.port}",
            "user-agent": "fourfold",
            "accept": "application/json",
            "connection": "close",
            "content-length": str(len(body)),
            **headers,
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in all_headers.items())
        writer.write(f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + body)
        await writer.drain()
        return await _read(reader)
    finally:
        # Do not wait for data that the peer still sends.
        writer.transport.abort()


async def _resolve(host: str, port: int, targets: Targets) -> _Address:
    """Return an address of a host, if all of its addresses may be called."""
    loop = asyncio.get_running_loop()
    infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [ipaddress.ip_address(str(info[4][0]).partition("%")[0]) for info in infos]
    for address in addresses:
        check_address(address, targets)
    if not addresses:
        raise WebhookFailed(f"{host}: no address found")
    return addresses[0]


class _Response:
    """Callbacks of httptools for a response."""

    def __init__(self) -> None:
        self.body = bytearray()
        self.complete = False

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.complete = True


async def _read(reader: asyncio.StreamReader) -> WebhookResponse:
    httptools = _httptools()
    response = _Response()
    parser = httptools.HttpResponseParser(response)
    received = 0
    while not response.complete:
        data = await reader.read(16 * limits.KIB)
        received += len(data)
        if not data:
            break
        try:
            parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise WebhookFailed(f"invalid HTTP response: {error}") from None
        if received > WEBHOOK_ANSWER_BYTES:
            # The status is known, and a valid response is short.
            break
    status = parser.get_status_code()
    if not status:
        raise WebhookFailed("the connection was closed before a response")
    return WebhookResponse(status, bytes(response.body[:WEBHOOK_ANSWER_BYTES]))


def _httptools() -> Any:
    try:
        import httptools  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingDependency(
            "calling webhooks requires httptools, which is not installed",
            hint="pip install 'fourfold[server]'",
        ) from None
    return httptools


CONTROL = "/v1/stream/__ds"


class Deliverer:
    """Deliver wakes on a thread, within a `with` block."""

    def __init__(
        self,
        subscriptions: Subscriptions,
        keys: Keys,
        targets: Callable[[], Targets],
        *,
        concurrency: int = limits.WEBHOOK_CONCURRENCY,
        timeout_s: float = limits.WEBHOOK_TIMEOUT_S,
        outcomes: Counter[str] | None = None,
    ) -> None:
        self._outcomes = Counter[str]() if outcomes is None else outcomes
        self._subscriptions = subscriptions
        self._keys = keys
        self._targets = targets
        self._concurrency = concurrency
        self._timeout_s = timeout_s
        self._stopping = False
        self._notified = False
        self._loop = asyncio.new_event_loop()
        self._wake = asyncio.Event()
        self._in_flight: dict[str, tuple[str, asyncio.Task[None]]] = {}
        """Calls in flight by subscription, each with its owner."""
        self._thread = threading.Thread(target=self._run, name="fourfold-deliverer", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping = True
        self._notify()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._deliver())
        except BaseException as error:
            self._subscriptions.failure = Refused(f"deliverer stopped: {error!r:.200}")
            raise
        finally:
            self._loop.close()

    def _notify(self, _notice: object = None) -> None:
        # Called for every commit, from any thread: only the first since the last wake does work.
        if not self._notified:
            self._notified = True
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._wake.set)

    async def _deliver(self) -> None:
        with self._subscriptions.notifier.call(self._notify), ExitStack() as listening:
            listens = False
            while not self._stopping:
                self._wake.clear()
                self._notified = False
                pause = WEBHOOK_IDLE_S
                try:
                    if bool(self._subscriptions.count()) != listens:
                        listens = not listens
                        listening.pop_all().close()
                        if listens:
                            notifier = self._subscriptions.streams_notifier
                            listening.enter_context(notifier.call(self._notify))
                    pause = self._process_due() if listens else pause
                    self._subscriptions.failure = None
                except FourfoldError as error:
                    self._subscriptions.failure = error
                await self._sleep(pause)
        await self._drain()

    def _process_due(self) -> float:
        """Process what is due and start webhook calls; return the seconds to the next due time."""
        due = self._subscriptions.due()
        if due.now:
            self._subscriptions.reconcile()
            due = self._subscriptions.due()
        if len(self._in_flight) < self._concurrency:
            self._begin_calls()
        if due.now:
            return 0.0
        if due.next_ms is None:
            return WEBHOOK_IDLE_S
        left = due.next_ms / 1000 - time.time()
        # Overdue calls are in flight or wait for a slot; a call that ends notifies.
        return min(WEBHOOK_IDLE_S, left) if left > 0 else WEBHOOK_IDLE_S

    def _begin_calls(self) -> None:
        """Call webhooks that are due, taking owners in turn.

        With several owners, each has at most a quarter of the slots, so that webhooks which do not
        respond
        delay only those of their owner.
        """
        share = self._concurrency
        if self._subscriptions.webhook_owners() > 1:
            share = max(1, share // WEBHOOK_OWNER_SHARE)
        busy = Counter(owner for owner, _ in self._in_flight.values())
        # Calls in flight are still due, so twice as many are fetched.
        for subscription, owner in self._subscriptions.webhooks(2 * share):
            if len(self._in_flight) >= self._concurrency:
                return
            if subscription not in self._in_flight and busy[owner] < share:
                busy[owner] += 1
                task = self._loop.create_task(self._call(subscription))
                self._in_flight[subscription] = (owner, task)

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(WEBHOOK_BATCH_S)
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _call(self, subscription_id: str) -> None:
        try:
            wake = self._subscriptions.attempt(subscription_id)
            if wake is not None:
                await self._deliver_wake(wake)
        except FourfoldError as error:
            self._subscriptions.failure = error
        finally:
            del self._in_flight[subscription_id]
            self._notify()

    async def _deliver_wake(self, wake: Wake) -> None:
        try:
            body = msgspec.json.encode(notification(wake, self._keys))
            headers = {
                "content-type": "application/json",
                "webhook-signature": self._keys.signature(body, int(time.time())),
            }
            url = wake.subscription.webhook_url or ""
            response = await post(url, body, headers, self._targets(), self._timeout_s)
        except (WebhookFailed, WebhookRefused) as error:
            self._outcomes["refused" if isinstance(error, WebhookRefused) else "failed"] += 1
            # Retried later: a refused address may be allowed by then.
            self._subscriptions.failed(wake)
            return
        except FourfoldError:
            # Keys or extras are missing: retried later, and reported by `/health`.
            self._outcomes["error"] += 1
            self._subscriptions.failed(wake)
            raise
        self._outcomes[f"{response.status // 100}xx"] += 1
        if 200 <= response.status < 300:
            self._subscriptions.delivered(wake, done=_is_done(response.body))
        else:
            self._subscriptions.failed(wake)

    async def _drain(self) -> None:
        """Wait a short time for calls in flight, then cancel them."""
        if self._in_flight:
            tasks = [task for _, task in self._in_flight.values()]
            await asyncio.wait(tasks, timeout=WEBHOOK_DRAIN_S)
        remaining = [task for _, task in self._in_flight.values()]
        for task in remaining:
            task.cancel()
        await asyncio.gather(*remaining, return_exceptions=True)


def notification(wake: Wake, keys: Keys) -> WakeNotification:
    """Return the body of a webhook call."""
    subscription = wake.subscription
    return WakeNotification(
        subscription_id=subscription.id,
        wake_id=wake.wake_id,
        generation=wake.generation,
        streams=[pending_stream(link) for link in wake.streams],
        callback_url=address(subscription.address, subscription.id, "callback"),
        callback_token=keys.token(subscription.id, wake.generation),
    )


def pending_stream(link: Link) -> PendingStream:
    """Return a followed stream of a wake."""
    return PendingStream(
        path=link.stream,
        link_type="explicit" if link.explicit else "glob",
        acked_offset=format_offset(link.acked, link.incarnation_number),
        tail_offset=format_offset(link.tail, link.incarnation_number),
        has_pending=link.pending,
    )


def address(base: str, subscription_id: str, action: str) -> str:
    """Return the URL of an action of a subscription."""
    return f"{base}{CONTROL}/subscriptions/{quote(subscription_id, safe='')}/{action}"


def _is_done(body: bytes) -> bool:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and document.get("done") is True
