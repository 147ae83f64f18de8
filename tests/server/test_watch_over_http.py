"""Live commits over HTTP: every commit once, over any number of connections."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from urllib.parse import quote

import pytest
from both_fronts import Front
from served_spaces import Spaces

from fourfold.models.documents import GcPolicy


class Reader:
    """A connection for server-sent events."""

    def __init__(self, space, query="", **headers):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.connection = http.client.HTTPConnection("127.0.0.1", space.spaces.port, timeout=30)
        self.connection.request("GET", f"/v1/spaces/{space.did}/watch?{query}", None, named)
        self.response = self.connection.getresponse()
        self.last_id = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        # Without this the buffered reader keeps the socket open.
        self.response.close()
        self.connection.close()

    def next(self):
        """Return name and data of the next event; None at the end of the connection."""
        fields = {}
        while True:
            line = self.response.readline()
            if not line:
                return None
            line = line.decode().rstrip("\n")
            if line:
                name, _, value = line.partition(": ")
                fields[name] = value
                continue
            self.last_id = fields.get("id", self.last_id)
            if "data" in fields:
                return fields.get("event"), json.loads(fields["data"])
            if "" in fields:
                return "comment", fields[""]
            fields = {}


@pytest.fixture(scope="module")
def front(tmp_path_factory):
    front = Front(tmp_path_factory.mktemp("spaces") / "store", fast=True)
    yield front
    front.stop()


@pytest.fixture
def space(front):
    return Spaces(front.port).create()


def seqs(reader, count):
    return [reader.next()[1]["seq"] for _ in range(count)]


def test_commits_arrive_with_their_operations(space):
    with Reader(space) as reader:
        assert reader.response.headers["content-type"] == "text/event-stream"
        space.put("a", {"n": 1})
        space.transact([{"op": "delete", "id": "a"}, {"op": "set", "id": "b", "value": {}}])
        name, data = reader.next()
        assert (name, data["seq"], reader.last_id) == ("commit", 1, "1")
        assert data["revisions"] == [{"id": "a", "op_index": 0, "op": "set", "data": {"n": 1}}]
        assert [row["op"] for row in reader.next()[1]["revisions"]] == ["delete", "set"]


def test_feed_of_some_entities_or_of_a_branch(space):
    space.put("a", {})
    space.ask("POST", "/branches", {"name": "w"})
    with Reader(space, "id=a&id=c/d&after=0") as some, Reader(space, "branch=w") as branch:
        space.put("b", {})
        space.put("c/d", {})
        space.put("a", {}, "branch=w")
        assert seqs(some, 2) == [1, 4]
        assert seqs(branch, 1) == [5]


def test_feed_of_a_filter_continues_after_the_last_event(space):
    where = quote('{"n": {"$gt": 0}}')
    with Reader(space, f"where={where}") as reader:
        space.put("a", {"n": 0})
        space.put("a", {"n": 1})
        name, data = reader.next()
        assert (name, data["seq"], reader.last_id) == ("match", 2, "2")
        assert data["changes"] == [{"kind": "enter", "id": "a", "op": "set", "document": {"n": 1}}]
    space.put("a", {"n": 2})
    space.ask("DELETE", "/documents/a")
    with Reader(space, f"where={where}", last_event_id="2") as reader:
        kinds = [row["kind"] for _ in range(2) for row in reader.next()[1]["changes"]]
        assert kinds == ["change", "leave"]
    for wrong in ("[]", "{", '{"a": {"$x": 1}}'):
        with Reader(space, f"where={quote(wrong)}") as reader:
            assert reader.response.status == 400


def test_reader_that_reconnects_neither_misses_nor_repeats_a_commit(space):
    """A writer goes on while a reader is cut after every few events."""
    count = 60

    def write():
        for number in range(count):
            space.put(f"n{number % 3}", {"n": number})

    writer = threading.Thread(target=write)
    found, last = [], None
    with Reader(space) as first:
        assert first.response.readline()
        assert first.response.readline() == b"id: 0\n"
        last = "0"
    writer.start()
    while len(found) < count:
        # `after` is of the first connection, and loses against Last-Event-ID.
        with Reader(space, "after=0", last_event_id=last) as reader:
            for _ in range(min(7, count - len(found))):
                found.append(reader.next()[1]["seq"])
                last = reader.last_id
    writer.join()
    assert found == list(range(1, count + 1))


def test_position_is_known_before_the_first_event(space):
    space.put("a", {})
    with Reader(space) as reader:
        assert reader.response.readline().startswith(b"retry: ")
        assert reader.response.readline() == b"id: 1\n"
    space.put("a", {"n": 2})
    with Reader(space, last_event_id="1") as reader:
        assert seqs(reader, 1) == [2]


def test_feed_of_a_deleted_branch_ends(space):
    space.ask("POST", "/branches", {"name": "w"})
    with Reader(space, "branch=w") as reader:
        space.put("a", {}, "branch=w")
        space.ask("DELETE", "/branches/w")
        assert [reader.next()[0] for _ in range(2)] == ["commit", "end"]
        assert reader.next() is None
    with Reader(space, "branch=w&after=0") as reader:
        assert [reader.next()[0] for _ in range(2)] == ["commit", "end"]


def test_collected_commits_are_a_gap(front, space):
    for number in range(6):
        space.put("a", {"n": number})
    front.store.space(space.did).gc(GcPolicy(keep_seqs=2))
    horizon = front.store.space(space.did).horizon()
    assert horizon > 1
    with Reader(space, last_event_id="1") as reader:
        assert reader.next() == ("gap", {"after": 1, "horizon": horizon})
        assert reader.last_id == str(horizon)
        assert seqs(reader, 6 - horizon) == list(range(horizon + 1, 7))


@pytest.mark.parametrize(
    ("query", "last", "status"),
    [
        ("after=x", None, 400),
        ("after=99", None, 400),
        ("after=01", None, 400),
        ("", "x", 400),
        ("", "-1", 400),
        ("", "9" * 30, 400),
        ("branch=unknown", None, 404),
        ("id=", None, 400),
        ("ids=a", None, 400),
    ],
)
def test_invalid_feed_is_refused_before_it_starts(space, query, last, status):
    headers = {} if last is None else {"last_event_id": last}
    assert space.ask("GET", "/watch", query=query, **headers).status == status


def test_head_of_a_feed_has_no_events(space):
    head = space.ask("HEAD", "/watch")
    assert (head.status, head.headers["content-type"]) == (200, "text/event-stream")


def test_reader_that_leaves_is_forgotten(front, space):
    waiters = front.store.space(space.did).waiters
    readers = [Reader(space) for _ in range(5)]
    until = time.monotonic() + 20
    while not waiters._listeners:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert len(waiters._listeners) == 1, "one reader of the log for all"
    for reader in readers:
        reader.connection.sock.shutdown(socket.SHUT_RDWR)
        reader.close()
    until = time.monotonic() + 20
    while waiters._listeners or waiters._waiting:
        assert time.monotonic() < until, "a reader is still registered"
        time.sleep(0.01)


def test_server_that_stops_ends_its_feeds(tmp_path):
    front = Front(tmp_path / "store", fast=True)
    space = Spaces(front.port).create()
    with Reader(space) as reader:
        space.put("a", {})
        assert reader.next()[0] == "commit"
        front.protocol.stop()
        assert reader.next() in {("comment", "keep-alive"), None}
        assert reader.next() is None
    front.stop()
