"""Live readers receive every record once and in order, mostly without reading the log."""

from __future__ import annotations

import gc
import json
import re
import threading
import time

import pytest
from both_fronts import JSON, Front, append, request
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from fourfold.kernel.commit_request import BatchRequest
from fourfold.models.streams import Append, Streams, feed
from fourfold.models.streams.validation import format_offset
from fourfold.server import fast_append, stream_reads

LIVE = {"sse": "feed", "long-poll": "long-poll"}
OF_A_REQUEST = (BatchRequest, RequestResponseCycle, fast_append._AppendCycle)


@pytest.fixture
def front(tmp_path):
    made = Front(tmp_path / "store", fast=True)
    yield made
    made.stop()


class EventStream:
    """Numbers received by server-sent events."""

    def __init__(self, front, name, at=0):
        self.connection = front.connect()
        self.connection.send(request("GET", f"{name}?offset={format_offset(at)}&live=sse"))
        self.text = b""
        # The first control event: from here on it waits.
        self.until(b"upToDate")

    def until(self, mark):
        while mark not in self.text:
            data = self.connection.socket.recv(1 << 16)
            assert data, "the events ended"
            self.text += data

    def numbers(self):
        events = re.findall(rb"event: data\ndata:(.*)\n", self.text)
        return [number for event in events for number in json.loads(event)]


def polled(front, name, count):
    """Return numbers received by consecutive long-polls."""
    result, at = [], 0
    with front.connect() as connection:
        while len(result) < count:
            sent = f"{name}?offset={format_offset(at)}&live=long-poll"
            connection.send(request("GET", sent))
            status, response, body = connection.answer()
            assert status in {200, 204}
            result += json.loads(body or b"[]")
            at = int(dict(response)["stream-next-offset"].partition("_")[2])
            assert at == len(result)
    return result


def test_every_record_arrives_once_and_in_order(front):
    front.streams.create("all", JSON)
    events = EventStream(front, "all")
    result = []
    poller = threading.Thread(target=lambda: result.extend(polled(front, "all", 400)))

    def by_thread(first):
        for number in range(first, first + 100):
            front.streams.append("all", Append([b"%d" % number], JSON))

    def by_http(first):
        with front.connect() as connection:
            for number in range(first, first + 100):
                connection.send(append("all", b"%d" % number))
                assert connection.answer()[0] == 204

    poller.start()
    writers = [
        threading.Thread(target=work, args=(100 * number,))
        for number, work in enumerate((by_thread, by_http, by_thread, by_http))
    ]
    for item in writers:
        item.start()
    for item in (*writers, poller):
        item.join(60)
    records = [int(item.payload) for item in front.streams.open("all").read().records]
    events.until(b'"streamNextOffset": "%s"' % format_offset(400).encode())
    assert sorted(records) == list(range(400))
    assert result == records
    assert events.numbers() == records
    events.connection.socket.close()


def test_waiting_reader_is_woken_without_reading_the_log(front, monkeypatch):
    front.streams.create("tip", JSON)
    events = EventStream(front, "tip")
    # The second read, after which it waits.
    front.ask(request("HEAD", "tip"))
    reads = []
    on_the_way = Streams._read

    def noted(self, *given, **options):
        reads.append(given)
        return on_the_way(self, *given, **options)

    monkeypatch.setattr(Streams, "_read", noted)
    with front.connect() as connection:
        for number in range(20):
            connection.send(append("tip", b"%d" % number))
            assert connection.answer()[0] == 204
            events.until(format_offset(number + 1).encode())
    assert events.numbers() == list(range(20))
    assert reads == []
    events.connection.socket.close()


def test_close_ends_the_events_after_the_last_record(front):
    front.streams.create("ends", JSON)
    events = EventStream(front, "ends")
    front.ask(append("ends", b"1"))
    front.ask(append("ends", b"2", stream_closed="true"))
    events.until(b'"streamClosed": true')
    assert events.numbers() == [1, 2]
    events.until(b"0\r\n\r\n")
    events.connection.socket.close()


def test_deleted_stream_ends_the_events(front):
    front.streams.create("gone", JSON)
    events = EventStream(front, "gone")
    front.ask(append("gone", b"1"))
    events.until(b"event: data")
    front.streams.delete("gone")
    events.until(b"0\r\n\r\n")
    assert events.numbers() == [1]
    events.connection.socket.close()


def test_readers_at_the_same_position_share_the_encoded_events(front, monkeypatch):
    formatted = []
    format_events = stream_reads.format_events

    def note(*given):
        formatted.append(given)
        return format_events(*given)

    chunks, chunk_from_notices = [], feed.chunk_from_notices

    def note_chunk(*given):
        chunks.append(given)
        return chunk_from_notices(*given)

    monkeypatch.setattr(stream_reads, "format_events", note)
    monkeypatch.setattr(feed, "chunk_from_notices", note_chunk)
    front.streams.create("crowd", JSON)
    readers = [EventStream(front, "crowd") for _ in range(20)]
    formatted.clear()
    with front.connect() as connection:
        for number in range(10):
            connection.send(append("crowd", b"%d" % number))
            assert connection.answer()[0] == 204
            for reader in readers:
                reader.until(format_offset(number + 1).encode())
    for reader in readers:
        assert reader.numbers() == list(range(10))
        reader.connection.socket.close()
    # Readers with different cursors receive different events; most of these have the same.
    assert len(formatted) < 10 * len(readers) // 2
    # Once a record; the first is read from the log by each.
    assert len(chunks) <= 10


def test_events_of_reader_are_those_of_its_position_and_cursor(front):
    """Law: the cached events equal those made for each reader alone; its cursor is a later one."""
    front.streams.create("s", JSON)
    front.streams.append("s", Append([b"1", b"2"], JSON))
    now_ms = stream_reads._EPOCH_MS + 7 * stream_reads._INTERVAL_MS
    cache = stream_reads.EventCache(lambda: now_ms)
    ends = [
        front.streams.read("s", offset, records_max=most) for offset in (0, 1) for most in (1, 2)
    ]
    front.streams.append("s", Append([], JSON, close=True))
    ends.append(front.streams.read("s", 1))
    for cursor in (None, "6", "7", "500", "7", None):
        for info, chunk in (*ends, *reversed(ends)):
            events, later = cache.encode(info, chunk, cursor)
            assert events == stream_reads.format_events(info, chunk, later)
            assert int(later) >= 7
            assert cursor is None or int(later) > int(cursor)


def await_in_flight(front, live, count):
    """Return when as many readers wait in the server."""
    deadline = time.monotonic() + 30
    while front.protocol.observer.metrics.in_flight[LIVE[live]] != count:
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.mark.parametrize("live", ["sse", "long-poll"])
def test_requests_that_end_leave_nothing_to_the_garbage_collector(front, live):
    """A full collection is rare in a server: until then, it would have all earlier readers."""
    front.streams.create("s", JSON)
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            front.ask(append("s"), request("GET", "s"), answers=2)
            readers = [front.connect() for _ in range(5)]
            for reader in readers:
                reader.send(request("GET", f"s?offset=now&live={live}"))
            await_in_flight(front, live, 5)
            for reader in readers:
                reader.socket.close()
            await_in_flight(front, live, 0)
        front.server.stop()
        front.thread.join(30)
        left = [type(item).__name__ for item in gc.get_objects() if isinstance(item, OF_A_REQUEST)]
    finally:
        gc.enable()
    assert left == []
