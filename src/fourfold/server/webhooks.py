"""Calling webhooks, and only those that may be called.

An address is checked when it is given, and again each time it is called: its name is looked up,
every address that it has must be allowed, and the connection goes to an address that was checked,
not to the name. So a name that leads elsewhere the second time leads nowhere. Redirects are not
followed. Everything together, from the look-up to the end of the answer, has a time limit.

Tells webhooks and wake streams of what is pending, beside the server, on a thread of its own.

All state is in the database, so nothing is lost when the process dies: a webhook that was under way
is called again. A look is taken when something was committed, when a time has come, and now and
then. While there are no subscriptions, appends are not listened to.
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
from typing import Any, Literal, NamedTuple, Self
from urllib.parse import SplitResult, quote, urlsplit

from fourfold import limits
from fourfold.errors import FourfoldError, MissingDependency, Refused, WebhookRefused
from fourfold.models.streams.subscriptions import Link, Subscriptions, Wake
from fourfold.models.streams.validation import show_offset
from fourfold.server.signing_keys import Keys

Targets = Literal["public", "local", "private"]
"""Which addresses may be called: public ones over https; those and this machine over http; all."""
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_PROTOCOLS = ipaddress.ip_network("192.0.0.0/24")
"""Kept for protocols; some clouds answer there. Not every Python knows all of it as private."""
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class WebhookResponse(NamedTuple):
    status: int
    body: bytes


class WebhookFailed(Exception):
    """A webhook could not be called, or gave no whole answer. It stays inside of the server."""


def check_url(url: str, targets: Targets) -> SplitResult:
    """An address that may be called, as far as one can tell without looking its name up."""
    if len(url) > limits.SUBSCRIPTION_TEXT_MAX or not url.isascii() or not url.isprintable():
        raise WebhookRefused("the address of a webhook is short, printable ASCII text")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise WebhookRefused(f"{url!r:.200} is not an address") from None
    if parts.scheme not in {"http", "https"} or not host or port == 0 or " " in url:
        raise WebhookRefused(f"{url!r:.200} is not an http or https address")
    if parts.username is not None or parts.password is not None:
        raise WebhookRefused("the address of a webhook has no user and no password in it")
    if targets == "private":
        return parts
    try:
        address: _Address | None = ipaddress.ip_address(host)
    except ValueError:
        address = None
    if address is not None:
        refuse(address, targets)
    local = host == "localhost" or (address is not None and address.is_loopback)
    if parts.scheme == "http" and not local:
        raise WebhookRefused("a webhook is called over https")
    if local and targets != "local":
        raise WebhookRefused("this server does not call webhooks on its own machine")
    return parts


def refuse(address: _Address, targets: Targets) -> None:
    """WebhookRefused unless the address may be called. One that carries another inside is as good
    as that.
    """
    if targets == "private":
        return
    inner = _inside(address)
    if inner.is_loopback and targets == "local":
        return
    is_odd = inner.is_multicast or inner.is_reserved or inner.is_unspecified
    if not inner.is_global or is_odd or inner in _PROTOCOLS:
        raise WebhookRefused(f"{address} is not a public address")


def _inside(address: _Address) -> _Address:
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
    """Send a body to a webhook; its answer, or WebhookFailed, or WebhookRefused."""
    parts = check_url(url, targets)
    try:
        async with asyncio.timeout(timeout_s):
            return await _post(parts, body, headers, targets)
    except TimeoutError:
        raise WebhookFailed(f"there was no answer within {timeout_s:g} s") from None
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
        shown = f"[{host}]" if ":" in host else host
        told = {
            "host": shown if parts.port is None else f"{shown}:{parts.port}",
            "user-agent": "fourfold",
            "accept": "application/json",
            "connection": "close",
            "content-length": str(len(body)),
            **headers,
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in told.items())
        writer.write(f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + body)
        await writer.drain()
        return await _read(reader)
    finally:
        # What the other side still sends is not waited for.
        writer.transport.abort()


async def _resolve(host: str, port: int, targets: Targets) -> _Address:
    """An address of a host, when all that it has may be called."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [ipaddress.ip_address(str(each[4][0]).partition("%")[0]) for each in found]
    for address in addresses:
        refuse(address, targets)
    if not addresses:
        raise WebhookFailed(f"{host} has no address")
    return addresses[0]


class _Response:
    """What the parser of httptools tells of an answer."""

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
    taken = 0
    while not response.complete:
        data = await reader.read(16 * limits.KIB)
        taken += len(data)
        if not data:
            break
        try:
            parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise WebhookFailed(f"the answer is not HTTP: {error}") from None
        if taken > limits.WEBHOOK_ANSWER_BYTES:
            # The status is known, and an answer that matters is short.
            break
    status = parser.get_status_code()
    if not status:
        raise WebhookFailed("the connection ended before an answer came")
    return WebhookResponse(status, bytes(response.body[: limits.WEBHOOK_ANSWER_BYTES]))


def _httptools() -> Any:
    try:
        import httptools  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingDependency(
            "webhooks are called with httptools, which is not installed",
            hint="pip install 'fourfold[server]'",
        ) from None
    return httptools


CONTROL = "/v1/stream/__ds"


class Deliverer:
    """Runs from `with` to the end of the block."""

    def __init__(
        self,
        subscriptions: Subscriptions,
        keys: Keys,
        targets: Callable[[], Targets],
        *,
        concurrency: int = limits.WEBHOOK_CONCURRENCY,
        timeout_s: float = limits.WEBHOOK_TIMEOUT_S,
    ) -> None:
        self._subscriptions = subscriptions
        self._keys = keys
        self._targets = targets
        self._concurrency = concurrency
        self._timeout_s = timeout_s
        self._stopping = False
        self._notified = False
        self._loop = asyncio.new_event_loop()
        self._wake = asyncio.Event()
        self._under_way: dict[str, tuple[str, asyncio.Task[None]]] = {}
        """The calls that are running, by subscription, each with its owner."""
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
            self._subscriptions.failure = Refused(f"nobody is woken any more: {error!r:.200}")
            raise
        finally:
            self._loop.close()

    def _notify(self, _payload: object = None) -> None:
        # Called for every commit, from any thread: all but the first since the last look are free.
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
                pause = limits.WEBHOOK_IDLE_S
                try:
                    if bool(self._subscriptions.count()) != listens:
                        listens = not listens
                        listening.pop_all().close()
                        if listens:
                            notifier = self._subscriptions.streams_notifier
                            listening.enter_context(notifier.call(self._notify))
                    pause = self._look() if listens else pause
                    self._subscriptions.failure = None
                except FourfoldError as error:
                    self._subscriptions.failure = error
                await self._sleep(pause)
        await self._drain()

    def _look(self) -> float:
        """Settle what is due, begin with webhooks that are; how long until the next is."""
        due = self._subscriptions.due()
        if due.now:
            self._subscriptions.settle()
            due = self._subscriptions.due()
        if len(self._under_way) < self._concurrency:
            self._begin_calls()
        if due.now:
            return 0.0
        if due.next_ms is None:
            return limits.WEBHOOK_IDLE_S
        left = due.next_ms / 1000 - time.time()
        # What is overdue is under way, or waits for a free place; its end rings.
        return min(limits.WEBHOOK_IDLE_S, left) if left > 0 else limits.WEBHOOK_IDLE_S

    def _begin_calls(self) -> None:
        """Call webhooks that are due, the owners in turn. With several owners, one has at most a
        quarter of the slots, so that webhooks which do not answer delay those of their owner.
        """
        share = self._concurrency
        if self._subscriptions.webhook_owners() > 1:
            share = max(1, share // limits.WEBHOOK_OWNER_SHARE)
        busy = Counter(owner for owner, _ in self._under_way.values())
        # Those under way are still due: as many more are looked at.
        for subscription, owner in self._subscriptions.webhooks(2 * share):
            if len(self._under_way) >= self._concurrency:
                return
            if subscription not in self._under_way and busy[owner] < share:
                busy[owner] += 1
                task = self._loop.create_task(self._call(subscription))
                self._under_way[subscription] = (owner, task)

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(limits.WEBHOOK_LOOK_S)
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _call(self, subscription_id: str) -> None:
        try:
            wake = self._subscriptions.attempt(subscription_id)
            if wake is not None:
                await self._tell(wake)
        except FourfoldError as error:
            self._subscriptions.failure = error
        finally:
            del self._under_way[subscription_id]
            self._notify()

    async def _tell(self, wake: Wake) -> None:
        try:
            body = json.dumps(notification(wake, self._keys)).encode()
            told = {
                "content-type": "application/json",
                "webhook-signature": self._keys.signature(body, int(time.time())),
            }
            url = wake.subscription.webhook_url or ""
            answer = await post(url, body, told, self._targets(), self._timeout_s)
        except (WebhookFailed, WebhookRefused):
            # It shows as failed, and is tried again: what is refused may be allowed by then.
            self._subscriptions.failed(wake)
            return
        except FourfoldError:
            # Its keys or its extras are not there: `/health` tells, and it is tried again too.
            self._subscriptions.failed(wake)
            raise
        if 200 <= answer.status < 300:
            self._subscriptions.delivered(wake, done=_says_done(answer.body))
        else:
            self._subscriptions.failed(wake)

    async def _drain(self) -> None:
        """Let what is under way come to its end, for a moment."""
        if self._under_way:
            tasks = [task for _, task in self._under_way.values()]
            await asyncio.wait(tasks, timeout=limits.WEBHOOK_DRAIN_S)
        left = [task for _, task in self._under_way.values()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


def notification(wake: Wake, keys: Keys) -> dict[str, object]:
    """What a webhook is told."""
    found = wake.subscription
    return {
        "subscription_id": found.id,
        "wake_id": wake.wake_id,
        "generation": wake.generation,
        "streams": [shown(link) for link in wake.streams],
        "callback_url": address(found.address, found.id, "callback"),
        "callback_token": keys.token(found.id, wake.generation),
    }


def shown(link: Link) -> dict[str, object]:
    return {
        "path": link.stream,
        "link_type": "explicit" if link.explicit else "glob",
        "acked_offset": show_offset(link.acked, link.incarnation_number),
        "tail_offset": show_offset(link.tail, link.incarnation_number),
        "has_pending": link.pending,
    }


def address(base: str, subscription_id: str, action: str) -> str:
    return f"{base}{CONTROL}/subscriptions/{quote(subscription_id, safe='')}/{action}"


def _says_done(body: bytes) -> bool:
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(said, dict) and said.get("done") is True
