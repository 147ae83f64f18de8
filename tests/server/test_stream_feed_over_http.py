"""`GET /v1/streams/live`: records of all streams as server-sent events."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from contextlib import ExitStack

import pytest
from both_fronts import JSON, TEXT, Front

from fourfold.server.stream_feed import SharedPages


@pytest.fixture
def front(tmp_path):
    made = Front(tmp_path / "store", fast=True, access=True)
    for number in range(4):
        made.streams.create(f"s{number % 2}", JSON).append({"n": number})
    made.streams.create("raw", TEXT).append_bytes(b"\xff\n")
    yield made
    made.stop()


class Events:
    """The events of one connection."""

    def __init__(self, front, query="", **headers):
        self.connection = front.connect()
        line = f"GET /v1/streams/live{query} HTTP/1.1\r\nhost: localhost\r\n"
        fields = "".join(f"{key.replace('_', '-')}: {value}\r\n" for key, value in headers.items())
        self.connection.send(f"{line}{fields}\r\n".encode())
        head = self.connection._until(b"\r\n\r\n").decode()
        self.status = int(head.split()[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.socket.close()

    def next(self):
        """Return (id, name, data) of the next event."""
        text = self.connection._until(b"\n\n").decode()
        # Chunks of the response may begin anywhere between events.
        text = re.sub(r"(?m)^\r?$\n?|^[0-9a-f]+\r$\n", "", text)
        fields = dict(line.partition(": ")[::2] for line in text.splitlines() if ": " in line)
        data = fields.get("data")
        return fields.get("id"), fields.get("event"), None if data is None else json.loads(data)


def test_feed_continues_after_its_last_event(front):
    with Events(front, "?after=-1") as events:
        assert events.next()[0] == "-1"
        seen = [events.next() for _ in range(5)]
    assert [name for _, name, _ in seen] == ["record"] * 5
    assert [data["stream"] for _, _, data in seen] == ["s0", "s1", "s0", "s1", "raw"]
    assert json.loads(seen[2][2]["text"]) == {"n": 2}
    assert (seen[4][2]["base64"], "text" in seen[4][2]) == ("/wo=", False)
    with Events(front, "?after=-1", last_event_id=seen[1][0]) as events:
        assert events.next()[0] == seen[1][0]
        assert events.next() == seen[2]


def test_feed_has_new_records_by_default(front):
    with Events(front) as events:
        start = events.next()[0]
        front.streams.open("s0").append({"n": 9})
        cursor, name, data = events.next()
        assert (name, json.loads(data["text"])) == ("record", {"n": 9})
    with Events(front, f"?after={start}") as events:
        events.next()
        assert events.next() == (cursor, name, data)


def test_removed_records_are_a_gap(front):
    streams = front.streams
    cursor = streams.read_feed().cursor
    streams.create("short", JSON, retention_bytes=1).append([1, 2])
    streams.sweep()
    with Events(front, f"?after={cursor}") as events:
        events.next()
        after, name, data = events.next()
        assert (name, data) == ("gap", {"stream": "short", "records": 1})
        assert json.loads(events.next()[2]["text"]) == 2
    with Events(front, last_event_id=after) as events:
        events.next()
        assert json.loads(events.next()[2]["text"]) == 2


def test_key_reads_the_feed_of_its_prefix(front):
    _, secret = front.access.add(("read",), prefix="s1")
    with Events(front, "?after=-1&prefix=s1", authorization=f"Bearer {secret}") as events:
        events.next()
        assert [events.next()[2]["stream"] for _ in range(2)] == ["s1", "s1"]
    for query in ("?after=-1", "?after=-1&prefix=s"):
        with Events(front, query, authorization=f"Bearer {secret}") as events:
            assert events.status == 403


@pytest.mark.parametrize("query", ["?after=x", "?after=0-999", "?other=1"])
def test_invalid_request_is_400(front, query):
    with Events(front, query) as events:
        assert events.status == 400


def test_stopping_server_ends_the_feed(tmp_path):
    front = Front(tmp_path / "other", fast=True)
    with Events(front) as events:
        events.next()
        front.protocol.stop()
        front.stop()


def test_clients_at_the_same_cursor_share_reads(front, monkeypatch):
    with ExitStack() as stack:
        feeds = [stack.enter_context(Events(front)) for _ in range(20)]
        for events in feeds:
            events.next()
        reads, read_feed = [], front.streams.read_feed

        def counting(after=None, **options):
            page = read_feed(after, **options)
            if page.items:
                reads.append(after)
            return page

        monkeypatch.setattr(front.streams, "read_feed", counting)
        for number in range(5):
            front.streams.open("s0").append({"n": number})
            for events in feeds:
                assert json.loads(events.next()[2]["text"]) == {"n": number}
    # A read that began before is not counted; no cursor is read twice.
    assert reads
    assert len(reads) == len(set(reads))


def test_page_being_read_is_not_shared_after_new_records(front):
    cursor = front.streams.read_feed().cursor
    began, goes_on = threading.Event(), threading.Event()
    read_feed = front.streams.read_feed

    def late(after, **options):
        page = read_feed(after, **options)
        if not began.is_set():
            began.set()
            goes_on.wait(30)
        return page

    class Late:
        read_feed = staticmethod(late)

    pages = SharedPages(Late())

    async def read_twice():
        first = asyncio.ensure_future(pages.read(cursor, ""))
        await asyncio.to_thread(began.wait, 30)
        await asyncio.to_thread(front.streams.open("s0").append, {"n": 9})
        second = asyncio.ensure_future(pages.read(cursor, ""))
        await asyncio.sleep(0)
        goes_on.set()
        return await first, await second, await pages.read(cursor, "")

    first, second, third = asyncio.run(read_twice())
    assert first.items == ()
    assert [item.record.value for item in second.items] == [{"n": 9}]
    assert third is second
