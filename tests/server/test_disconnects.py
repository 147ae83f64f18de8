"""Readers that disconnect at once: a few of their requests end in each iteration of the loop."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter

import pytest
from both_fronts import JSON, Front, append, request
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from fourfold.server import connections

READERS = 60
PER_ITERATION = 4


@pytest.fixture(params=[True, False], ids=["fast", "plain"])
def front(request, tmp_path, monkeypatch):
    monkeypatch.setattr(connections, "DISCONNECTS_PER_ITERATION", PER_ITERATION)
    server = Front(tmp_path / "store", fast=request.param)
    yield server
    server.stop()


class Iterations:
    """Counts, on the event loop of a server, how many requests end in each of its iterations."""

    def __init__(self, front, expected, monkeypatch):
        self.loop = front.server._loop
        self.number = 0
        self.ended = Counter()
        self.all_ended = threading.Event()
        self._lost = HttpToolsProtocol.connection_lost

        def lost(protocol, error):
            self._lost(protocol, error)
            self.ended[self.number] += 1
            if self.ended.total() == expected:
                self.all_ended.set()

        monkeypatch.setattr(HttpToolsProtocol, "connection_lost", lost)
        self.loop.call_soon_threadsafe(self._count)

    def _count(self):
        self.number += 1
        if not self.all_ended.is_set():
            self.loop.call_soon(self._count)

    def hold(self):
        """Hold the loop until the returned event is set."""
        held, release = threading.Event(), threading.Event()

        def wait():
            held.set()
            release.wait(30)

        self.loop.call_soon_threadsafe(wait)
        held.wait(30)
        return release


def open_readers(front, query):
    readers = [front.connect() for _ in range(READERS)]
    for reader in readers:
        reader.send(request("GET", f"crowd?offset=-1&live={query}"))
    return readers


def test_requests_of_readers_that_leave_at_once_end_in_slices(front, monkeypatch):
    front.streams.create("crowd", JSON)
    readers = open_readers(front, "sse")
    for reader in readers:
        assert reader._until(b"upToDate") is not None
    assert front.streams.notifier.has_listeners("crowd")
    iterations = Iterations(front, READERS, monkeypatch)
    release = iterations.hold()
    for reader in readers:
        reader.socket.close()
    release.set()
    assert iterations.all_ended.wait(30)
    # A slice may end in the iteration in which the next one begins.
    assert max(iterations.ended.values()) <= 2 * PER_ITERATION
    assert iterations.ended.total() == READERS
    with front.connect() as connection:
        connection.send(append("crowd"))
        assert connection.answer()[0] == 204
    # The server stops listening for them, and waits for none of their tasks.
    front.server.stop()
    front.thread.join(30)
    assert not front.thread.is_alive()
    assert not front.streams.notifier.has_listeners("crowd")


def test_a_few_disconnects_are_handled_at_once():
    async def run():
        disconnects = connections.Disconnects()
        calls = []
        for number in range(3 * connections.DISCONNECTS_PER_ITERATION + 1):
            disconnects.add(lambda number=number: calls.append(number))
        counts = [len(calls)]
        while len(calls) < 3 * connections.DISCONNECTS_PER_ITERATION + 1:
            await asyncio.sleep(0)
            counts.append(len(calls))
        # Later ones are not held up by earlier ones.
        await asyncio.sleep(0)
        disconnects.add(lambda: calls.append("later"))
        assert calls[-1] == "later"
        assert calls[:-1] == sorted(calls[:-1])
        return counts

    step = connections.DISCONNECTS_PER_ITERATION
    assert asyncio.run(run()) == [step, 2 * step, 3 * step, 3 * step + 1]
