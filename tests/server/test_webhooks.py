"""Calling webhooks: only checked addresses are called, and none blocks the server."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket

import pytest

from fourfold.errors import WebhookRefused
from fourfold.server import webhooks
from fourfold.server.webhooks import WebhookFailed, check_address, check_url

INSIDE = [
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "192.0.0.192",
    "192.0.0.9",
    "::ffff:192.0.0.192",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "224.0.0.1",
    "255.255.255.255",
    "198.18.0.1",
    "::",
    "fe80::1",
    "fc00::1",
    "ff02::1",
    "::ffff:192.168.0.1",
    "2002:0a00:0001::1",
    "64:ff9b::10.0.0.1",
]


LOOPBACK = ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"]


@pytest.mark.parametrize("address", [*INSIDE, *LOOPBACK])
def test_internal_address_is_refused(address):
    with pytest.raises(WebhookRefused):
        check_address(ipaddress.ip_address(address), "public")
    check_address(ipaddress.ip_address(address), "private")


@pytest.mark.parametrize("address", INSIDE)
def test_local_targets_add_only_this_machine(address):
    check_address(ipaddress.ip_address("127.0.0.1"), "local")
    with pytest.raises(WebhookRefused):
        check_address(ipaddress.ip_address(address), "local")


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "2606:2800:220:1::1", "64:ff9b::808:808", "::ffff:8.8.8.8"]
)
def test_public_address_may_be_called(address):
    check_address(ipaddress.ip_address(address), "public")


def test_http_is_allowed_for_this_machine_only():
    check_url("http://localhost:8080/x", "local")
    check_url("http://127.0.0.1/x", "local")
    check_url("https://example.org/x?y=z", "public")
    for url in ("http://localhost/", "http://127.0.0.1/", "https://localhost/"):
        with pytest.raises(WebhookRefused):
            check_url(url, "public")
    check_url("http://intranet/", "private")


async def posted(answer, *, targets="local", timeout_s=10.0, host="127.0.0.1", ended=True):
    """Call a webhook whose receiver sends these pieces; return the result and what was received."""
    sent, over = bytearray(), asyncio.Event()

    async def receive(reader, writer):
        try:
            sent.extend(await reader.readuntil(b"\r\n\r\n"))
            for piece in answer:
                if isinstance(piece, float):
                    await asyncio.sleep(piece)
                else:
                    writer.write(piece)
                    await writer.drain()
            if not ended:
                await reader.read()
        except ConnectionError:
            pass
        finally:
            writer.close()
            over.set()

    server = await asyncio.start_server(receive, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        url = f"http://{host}:{port}/hook?a=b"
        try:
            result = await webhooks.post(url, b"{}", {"x-y": "z"}, targets, timeout_s)
        finally:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), 5)
        return result, bytes(sent)


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        [OK + b'content-length: 13\r\n\r\n{"done":true}'],
        [OK + b"transfer-encoding: chunked\r\n\r\n5\r\n", b'{"don\r\n8\r\ne":true}\r\n0\r\n\r\n'],
        [OK, b"connection: close\r\n\r\n", b'{"done":true}'],
    ],
)
def test_response_is_read_with_any_framing(answer):
    result, sent = asyncio.run(posted(answer))
    assert result == (200, b'{"done":true}')
    assert sent.startswith(b"POST /hook?a=b HTTP/1.1\r\nhost: 127.0.0.1:")
    assert b"\r\nx-y: z\r\n" in sent


@pytest.mark.parametrize(
    "answer", [[], [b"nonsense\r\n\r\n"], [b"HTTP/1.1 "], [b"\x16\x03\x01\x02\x00"]]
)
def test_invalid_response_is_a_failure(answer):
    with pytest.raises(WebhookFailed):
        asyncio.run(posted(answer))


def test_redirect_is_an_ordinary_response():
    moved = b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n"
    assert asyncio.run(posted([moved]))[0].status == 302


def test_slow_response_does_not_block_the_server():
    with pytest.raises(WebhookFailed, match="within"):
        asyncio.run(posted([OK, *([b"x: y\r\n", 0.02] * 50)], timeout_s=0.3))


def test_endless_response_is_read_up_to_a_limit():
    endless = [OK + b"\r\n", *([b"x" * 65536] * 4)]
    result, _ = asyncio.run(posted(endless, ended=False))
    assert result.status == 200
    assert len(result.body) <= 65536


def test_name_is_resolved_once_and_the_checked_address_is_called(monkeypatch):
    """The name resolves to a public address when checked and to an internal one when called."""
    query = []
    real = socket.getaddrinfo

    def lookup(host, port, *more, **named):
        if host == "rebind.example":
            query.append(host)
            inside = "127.0.0.1" if len(query) == 1 else "10.0.0.1"
            return real(inside, port, *more, **named)
        return real(host, port, *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    monkeypatch.setattr(webhooks, "check_url", lambda url, _targets: webhooks.urlsplit(url))
    answer = [OK + b"content-length: 0\r\n\r\n"]
    result, sent = asyncio.run(posted(answer, host="rebind.example"))
    assert result.status == 200
    assert query == ["rebind.example"]
    assert b"\r\nhost: rebind.example:" in sent.replace(b"HTTP/1.1\r\nhost", b"\r\nhost")


@pytest.mark.parametrize("inside", ["127.0.0.1", "10.0.0.1"])
def test_name_of_an_internal_address_is_not_called(monkeypatch, inside):
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda _host, port, *_more, **_named: [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (item, port))
            for item in ("93.184.216.34", inside)
        ],
    )
    with pytest.raises(WebhookRefused):
        asyncio.run(webhooks.post("https://example.org/", b"{}", {}, "public", 5.0))


def test_server_with_a_wrong_certificate_is_not_called():
    """TLS is verified against the name: a receiver without a certificate gets no request."""
    with pytest.raises(WebhookFailed):
        asyncio.run(_to_plain_server())


async def _to_plain_server():
    async def receive(reader, writer):
        writer.write(OK + b"content-length: 0\r\n\r\n")
        await reader.read(1)
        writer.close()

    server = await asyncio.start_server(receive, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        await webhooks.post(f"https://127.0.0.1:{port}/", b"{}", {}, "private", 5.0)
