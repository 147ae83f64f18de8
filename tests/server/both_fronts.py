"""A server in a thread of this process, with either HTTP protocol, and raw requests to it."""

from __future__ import annotations

import asyncio
import itertools
import re
import socket
import threading
import time
from contextlib import suppress

import uvicorn

import fourfold
from fourfold.server.app import StreamsApp
from fourfold.server.auth import Access
from fourfold.server.fast_append import make_protocol_class
from fourfold.server.models import model_routes
from fourfold.server.stream_reads import ReadTimeouts
from fourfold.server.streams import StreamProtocol
from fourfold.server.workers import Workers

JSON = "application/json"
TEXT = "text/plain"


def store_protocol(store, *arguments, **options):
    """Return the protocol of all models of a store."""
    workers = Workers()
    models = model_routes(store, workers)
    return StreamProtocol(
        store.streams,
        *arguments,
        models=models,
        workers=workers,
        database_metrics=store.metrics_by_model,
        **options,
    )


class PromptServer(uvicorn.Server):
    """A server that stops at once; uvicorn looks only every tenth of a second whether it should."""

    _loop = None

    async def main_loop(self):
        self._stop, self._loop = asyncio.Event(), asyncio.get_running_loop()
        for tick in itertools.count():
            if await self.on_tick(tick):
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), 0.1)

    def stop(self):
        self.should_exit = True
        if self._loop is not None:
            with suppress(RuntimeError):  # The loop has ended already.
                self._loop.call_soon_threadsafe(self._stop.set)


class Front:
    """A server of a store, with or without the fast append path."""

    def __init__(
        self,
        root,
        *,
        fast,
        access=False,
        timeouts=None,
        settings=None,
        hosts=None,
        origins=None,
        budget=None,
        observer=None,
        store_settings=None,
        port=0,
        **options,
    ):
        self.store = fourfold.open(root, settings=store_settings)
        self.streams = self.store.streams
        self.access = Access(root)
        self.protocol = protocol = store_protocol(
            self.store,
            ReadTimeouts(long_poll_s=0.3),
            self.access if access else None,
            hosts=hosts,
            origins=origins,
            budget=budget,
            observer=observer,
        )
        protocol_class = make_protocol_class(protocol, settings, fast=fast)
        if timeouts is not None:
            protocol_class.timeouts = timeouts
        config = uvicorn.Config(
            StreamsApp(protocol),
            port=port,
            http=protocol_class,
            ws="none",
            log_level="critical",
            access_log=False,
            **options,
        )
        self.server = PromptServer(config)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        until = time.monotonic() + 30
        while not self.server.started:
            assert time.monotonic() < until, "the server did not start"
            time.sleep(0.001)
        self.port = self.server.servers[0].sockets[0].getsockname()[1]

    def stop(self):
        self.server.stop()
        self.thread.join(30)
        assert not self.thread.is_alive()
        self.store.close()

    def connect(self):
        return Connection(self.port)

    def ask(self, *parts, answers=1):
        """Send parts one after the other on a new connection and return the responses."""
        with self.connect() as connection:
            for part in parts:
                connection.send(part)
            return [connection.answer() for _ in range(answers)]


class Connection:
    """A socket and the responses received on it."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.kept = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def _more(self):
        data = self.socket.recv(1 << 16)
        self.kept += data
        return bool(data)

    def _until(self, mark):
        while mark not in self.kept:
            if not self._more():
                return None
        result, _, self.kept = self.kept.partition(mark)
        return result

    def _exactly(self, count):
        while len(self.kept) < count:
            assert self._more(), "the answer was cut"
        result, self.kept = self.kept[:count], self.kept[count:]
        return result

    def answer(self, *, head=False):
        """Return (status, headers, body), or None after the end of the connection."""
        try:
            start = self._until(b"\r\n\r\n")
        except ConnectionResetError:
            return None
        if start is None:
            assert not self.kept
            return None
        first, *lines = start.decode("latin-1").split("\r\n")
        headers = [tuple(line.split(": ", 1)) for line in lines]
        response, status = dict(headers), int(first.split()[1])
        body = b""
        if response.get("transfer-encoding") == "chunked" and not head:
            while size := int(self._until(b"\r\n"), 16):
                body += self._exactly(size)
                self._exactly(2)
            self._exactly(2)
        elif status not in {204, 304} and not head:
            body = self._exactly(int(response.get("content-length", 0)))
        return status, headers, body

    def is_ended(self):
        try:
            return not self._more()
        except ConnectionResetError:
            return True


def request(method, name, body=b"", *, chunks=None, **headers):
    """Return the bytes of a request; `chunks` splits the body into chunks of that size."""
    lines = [f"{method} /v1/stream/{name} HTTP/1.1", "Host: x"]
    lines += [f"{key.replace('_', '-')}: {value}" for key, value in headers.items()]
    if chunks:
        lines.append("Transfer-Encoding: chunked")
        cut = [body[at : at + chunks] for at in range(0, len(body), chunks)]
        sent = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in cut) + b"0\r\n\r\n"
    else:
        if body or method in {"POST", "PUT"}:
            lines.append(f"Content-Length: {len(body)}")
        sent = body
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + sent


def append(name, body=b'{"n": 1}', kind=JSON, **headers):
    return request("POST", name, body, content_type=kind, **headers)


def stored(front, name):
    """Return the records of a stream from the log."""
    return [record.payload for record in front.streams.open(name).read().records]


def comparable(answer):
    """Return a response without what differs between servers: the time, and random ids."""
    if answer is None:
        return None
    status, headers, body = answer
    retained = [
        (name, re.sub(r'^"[0-9a-f]{12}:', '"', value)) for name, value in headers if name != "date"
    ]
    return status, retained, re.sub(rb"key [0-9a-f]{8}:|\"key\": \"[0-9a-f]{8}\"", b"key:", body)
