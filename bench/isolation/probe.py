"""Writes at a fixed rate, each timed from when it was due.

As a program it appends over HTTP until its standard input ends: `python -m bench.isolation.probe
PORT STREAM RATE`; a rate of 0 means as fast as the server answers. It prints one line of JSON. In a
process of its own it is not delayed by what the benchmark does.

It wakes up every millisecond and sends what is due by then, each append timed from its own moment.
With a wake-up for each append it takes a core by itself, and on a machine with two cores the
measurement shows how the operating system shares them between the load and the task.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import cast

import msgspec

from bench.measurement import quantile

CONNECTIONS = 16
TICK_S = 0.001
BODY = b'{"n":1,"text":"' + b"x" * 180 + b'"}'


class Latency(msgspec.Struct, frozen=True):
    """What writes waited, in milliseconds from when each was due."""

    writes: int
    rate: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    failed: int = 0


def summarize(waits_s: list[float], seconds: float, failed: int = 0) -> Latency:
    if not waits_s:
        return Latency(0, 0.0, 0.0, 0.0, 0.0, failed)
    ordered = sorted(waits_s)
    p50, p99 = (round(1e3 * quantile(ordered, q), 3) for q in (0.5, 0.99))
    count = len(ordered)
    return Latency(count, round(count / seconds, 1), p50, p99, round(1e3 * ordered[-1], 3), failed)


class _Connection(asyncio.Protocol):
    """One keep-alive connection with at most one request on its way."""

    def __init__(self, done: Callable[[_Connection], None]) -> None:
        self._done = done
        self.due = 0.0
        self.ok = True
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not instances of asyncio.Transport.
        self._transport = cast("asyncio.Transport", transport)

    def send(self, request: bytes, due: float) -> None:
        assert self._transport is not None
        self.due = due
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        # An append is answered without a body, in one packet.
        self.ok = data.startswith(b"HTTP/1.1 20")
        self._done(self)


class HttpProbe:
    """Appends to one stream over a few connections."""

    def __init__(self, port: int, stream: str, rate: float) -> None:
        self._port = port
        self._interval = 1 / rate if rate else 0.0
        self._idle: deque[_Connection] = deque()
        self._waiting: deque[float] = deque()
        """When writes were due that no connection was free for."""
        self._waits: list[float] = []
        self._failed = 0
        self._request = (
            b"POST /v1/stream/%b HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n"
            b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
            % (stream.encode(), port, len(BODY), BODY)
        )

    def _done(self, connection: _Connection) -> None:
        self._waits.append(time.perf_counter() - connection.due)
        self._failed += not connection.ok
        if self._waiting:
            connection.send(self._request, self._waiting.popleft())
        elif self._interval:
            self._idle.append(connection)
        else:
            connection.send(self._request, time.perf_counter())

    async def run(self, ended: asyncio.Event) -> Latency:
        loop = asyncio.get_running_loop()
        for _ in range(CONNECTIONS):
            _, connection = await loop.create_connection(
                lambda: _Connection(self._done), "127.0.0.1", self._port
            )
            self._idle.append(connection)
        began = due = time.perf_counter()
        if not self._interval:
            while self._idle:
                self._idle.popleft().send(self._request, time.perf_counter())
            await ended.wait()
        while not ended.is_set():
            now = time.perf_counter()
            while due <= now:
                if self._idle:
                    self._idle.popleft().send(self._request, due)
                else:
                    self._waiting.append(due)
                due += self._interval
            await asyncio.sleep(TICK_S)
        return summarize(self._waits, time.perf_counter() - began, self._failed)


async def _main(port: int, stream: str, rate: float) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()

    def wait_for_end() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=wait_for_end, daemon=True).start()
    latency = await HttpProbe(port, stream, rate).run(ended)
    print(json.dumps(msgspec.to_builtins(latency)), flush=True)


class ThreadProbe:
    """Calls `write` at a fixed rate in a thread of this process, until `stop`."""

    def __init__(self, write: Callable[[], object], rate: float) -> None:
        self._write = write
        self._interval = 1 / rate if rate else 0.0
        self._ended = threading.Event()
        self._waits: list[float] = []
        self._failed = 0
        self._thread = threading.Thread(target=self._run)
        self._began = 0.0

    def start(self) -> None:
        self._began = time.perf_counter()
        self._thread.start()

    def _run(self) -> None:
        due = time.perf_counter()
        while not self._ended.is_set():
            now = time.perf_counter()
            if due > now:
                time.sleep(due - now)
            try:
                self._write()
            except Exception:  # noqa: BLE001 - counted, whatever it is
                self._failed += 1
            self._waits.append(time.perf_counter() - due)
            due = due + self._interval if self._interval else time.perf_counter()

    def stop(self) -> Latency:
        self._ended.set()
        self._thread.join()
        return summarize(self._waits, time.perf_counter() - self._began, self._failed)


if __name__ == "__main__":
    import uvloop

    uvloop.run(_main(int(sys.argv[1]), sys.argv[2], float(sys.argv[3])))
