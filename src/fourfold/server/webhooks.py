"""Calling webhooks, and only those that may be called.

An address is checked when it is given, and again each time it is called: its name is looked up,
every address that it has must be allowed, and the connection goes to an address that was checked,
not to the name. So a name that leads elsewhere the second time leads nowhere. Redirects are not
followed. Everything together, from the look-up to the end of the answer, has a time limit.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from typing import Any, Literal, NamedTuple
from urllib.parse import SplitResult, urlsplit

from fourfold import limits
from fourfold.errors import MissingDependency, WebhookRefused

Targets = Literal["public", "local", "private"]
"""Which addresses may be called: public ones over https; those and this machine over http; all."""
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_PROTOCOLS = ipaddress.ip_network("192.0.0.0/24")
"""Kept for protocols; some clouds answer there. Not every Python knows all of it as private."""
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class Answer(NamedTuple):
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
) -> Answer:
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
) -> Answer:
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


async def _read(reader: asyncio.StreamReader) -> Answer:
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
    return Answer(status, bytes(response.body[: limits.WEBHOOK_ANSWER_BYTES]))


def _httptools() -> Any:
    try:
        import httptools  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingDependency(
            "webhooks are called with httptools, which is not installed",
            hint="pip install 'fourfold[server]'",
        ) from None
    return httptools
