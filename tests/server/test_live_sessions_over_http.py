"""Live sessions over HTTP: feeds that resume, and transient items that are not stored."""

from __future__ import annotations

import random
import threading
import time

import pytest
from both_fronts import Front
from served_graphs import Events
from served_sessions import ServedSessions, message

from fourfold.server import models
from fourfold.server.session_feeds import SessionFeeds


@pytest.fixture(scope="module", params=[True, False], ids=["fast", "plain"])
def front(request, tmp_path_factory):
    front = Front(tmp_path_factory.mktemp("live") / "store", fast=request.param)
    yield front
    front.stop()


@pytest.fixture
def session(front):
    return ServedSessions(front.port).create()


def ids_of(items):
    return [int(data["id"]) for name, _, data in items if name == "event"]


def until_followed(front, session, count=1):
    """Wait until so many readers follow a session: transient items reach current readers only."""
    broadcast = front.store.sessions._broadcast
    deadline = time.monotonic() + 30
    while len(broadcast._feeds.get(session.sid, ())) < count:
        assert time.monotonic() < deadline, "no reader came"
        time.sleep(0.01)


def test_feed_has_old_events_and_then_new_ones(session):
    session.append(message("a"), message("b"))
    with session.follow("after=0") as reader:
        assert reader.response.headers["content-type"] == "text/event-stream"
        assert ids_of(reader.take(2)) == [1, 2]
        session.append(message("c"))
        name, event_id, data = reader.next()
        assert (name, event_id, data["data"]["message"]["content"]) == ("event", "3", "c")
        session.append(message("d"), idempotency_key=f"{session.sid}-live")
        assert reader.next()[1] == "4"


def test_feed_of_all_sessions_has_those_with_a_prefix(front, session):
    other = ServedSessions(front.port).create()
    target = f"/v1/sessions/live?after=0&prefix={session.sid}"
    with Events(front.port, target) as reader:
        other.append(message("other"))
        session.append(message("mine"))
        events = (event for event in reader if event[1] == "event")
        position, _, data = next(events)
        assert (data["session"], data["id"], data["position"]) == (session.sid, 1, int(position))
        session.append(message("again"))
    with Events(front.port, target, last_event_id=position) as reader:
        assert next(event for event in reader if event[1] == "event")[2]["id"] == 2


def test_feed_without_a_position_has_new_events_only(session):
    session.append(message("old"))
    with session.follow() as reader:
        # The first bytes carry the position, so a reader that is cut off now misses nothing.
        assert reader.response.readline() == b"retry: 100\n"
        assert reader.response.readline() == b"id: 1\n"
        session.append(message("new"))
        assert reader.next()[2]["data"]["message"]["content"] == "new"


def test_last_event_id_wins_over_after(session):
    session.append(*(message(number) for number in range(5)))
    with session.follow("after=0", last_event_id="3") as reader:
        assert ids_of(reader.take(2)) == [4, 5]
    for query, headers in (("after=6", {}), ("", {"last_event_id": "x"}), ("after=-1", {})):
        with session.follow(query, **headers) as reader:
            assert reader.response.status == 400


def test_transient_items_have_no_id_and_are_not_in_log(front, session):
    session.append(message("a"))
    with session.follow() as reader:
        until_followed(front, session)
        sent = session.post("transients", {"items": ["to", {"~bytes": "AAEC"}, None]})
        assert (sent.status, sent.text) == (204, b"")
        session.append(message("b"))
        items = reader.take(4)
        assert [(name, own) for name, own, _ in items] == [
            *[("transient", None)] * 3,
            ("event", "2"),
        ]
        assert [data["item"] for _, _, data in items[:3]] == ["to", {"~bytes": "AAEC"}, None]
        assert {data["after"] for _, _, data in items[:3]} == {1}
        last_id = reader.last_id
    with session.follow(last_event_id=last_id) as reader:
        session.append(message("c"))
        assert reader.next()[1] == "3", "a transient item was sent again"
    assert [event["type"] for event in session.get("events").value["items"]] == [
        "message/appended"
    ] * 3
    assert session.post("transients", {"items": []}).status == 400
    assert session.post("transients", {"items": ["x" * 70_000]}).status == 413
    assert (
        ServedSessions(front.port)
        .ask("POST", "/v1/sessions/transients/unknown", {"items": [1]})
        .status
        == 404
    )


def test_slow_reader_gets_a_gap_and_every_event(front, session):
    with session.follow() as reader:
        until_followed(front, session)
        feed = next(iter(front.store.sessions._broadcast._feeds[session.sid]))
        # The reader is slow: it takes nothing while items arrive.
        feed._lock.acquire()
        threading.Timer(1.0, feed._lock.release).start()
        senders = [
            threading.Thread(target=session.post, args=("transients", {"items": list(range(256))}))
            for _ in range(3)
        ]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join(60)
        session.append(message("a"))
        items, dropped = [], 0
        while not items or items[-1][0] != "event":
            items.append(reader.next())
            if items[-1][0] == "gap":
                dropped += items[-1][2]["dropped"]
        transients = [item for item in items if item[0] == "transient"]
        assert len(transients) + dropped == 3 * 256
        assert ids_of(items) == [1]


def test_feed_ends_when_its_session_is_deleted(front, session):
    with session.follow() as reader:
        until_followed(front, session)
        assert session.sessions.ask("DELETE", f"/v1/session/{session.sid}").status == 204
        name, _, data = reader.next()
        assert (name, data["reason"]) == ("end", "the session is deleted")
        assert reader.next() is None
    with session.follow() as reader:
        assert reader.response.status == 404


def test_reader_that_reconnects_neither_loses_nor_repeats_events(session):
    count, seen, last = 300, [], "0"
    draw = random.Random(7)

    def write():
        for number in range(count):
            session.append(message(number))

    writer = threading.Thread(target=write)
    writer.start()
    while len(seen) < count:
        with session.follow(last_event_id=last) as reader:
            for _ in range(draw.randrange(1, 60)):
                if len(seen) == count:
                    break
                seen.append(reader.next()[2]["data"]["message"]["content"])
            last = reader.last_id
    writer.join(60)
    assert seen == list(range(count))


@pytest.fixture
def quick(tmp_path, monkeypatch):
    """Return a server whose feeds send comments often and end soon."""
    monkeypatch.setattr(
        models,
        "SessionFeeds",
        lambda *parts: SessionFeeds(*parts, keep_alive_s=0.05, lifetime_s=1.0),
    )
    front = Front(tmp_path / "store", fast=True)
    yield front
    front.stop()


def test_silent_feed_sends_comments_and_ends_without_an_end_event(quick):
    session = ServedSessions(quick.port).create("s")
    session.append(message("a"))
    with session.follow() as reader:
        assert reader.next() is None
        assert reader.comments >= 2
        assert reader.last_id == "1"


def test_stopping_server_ends_feeds(tmp_path):
    front = Front(tmp_path / "store", fast=True)
    session = ServedSessions(front.port).create("s")
    with session.follow() as reader:
        until_followed(front, session)
        front.protocol.stop()
        assert reader.next() is None
    front.stop()
