"""Appends that fall into the gaps of a feed: between its start and its joining, while it looks at
the log, and after its look but before it waits. Each is brought about, not hoped for.
"""

from __future__ import annotations

import asyncio
import threading

import pytest

from fourfold import limits
from fourfold.errors import NotFound

WAIT_S = 20.0
EVENT = {"type": "message/appended", "message": {"content": "."}}


@pytest.fixture(autouse=True)
def only_the_bell_wakes(monkeypatch):
    """Disable polling, so that a feed that missed a notification never sees the event."""
    monkeypatch.setattr(limits, "WATCH_HEARTBEAT_S", 3_600.0)
    monkeypatch.setattr(limits, "WATCH_POLL_S", 3_600.0)


@pytest.fixture
def log(sessions):
    sessions.create_session({"id": "s", "model": "any"})
    return sessions


def append(sessions):
    """From another thread; returns when it is committed and notified."""
    thread = threading.Thread(target=sessions.append_event, args=("s", EVENT))
    thread.start()
    thread.join(WAIT_S)
    assert not thread.is_alive()


def appending_around(sessions, monkeypatch, *, before, after):
    """Append before and after the looks with these numbers."""
    looks = iter(range(1_000))
    look = sessions._broadcast.page

    def page(sid, cursor):
        number = next(looks)
        if number in before:
            append(sessions)
        found = look(sid, cursor)
        if number in after:
            append(sessions)
        return found

    monkeypatch.setattr(sessions._broadcast, "page", page)


def taken(feed, count):
    """The next items, from a thread that may wait for ever."""
    items = []

    def take():
        while len(items) < count:
            items.append(feed.next())

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    thread.join(WAIT_S)
    ended = not thread.is_alive()
    feed.close()
    assert ended, f"the feed hangs after {items}"
    return [item.id for item in items]


@pytest.mark.parametrize("everything", [False, True])
def test_an_append_right_after_a_look_wakes_the_feed(log, monkeypatch, everything):
    """Every other look finds nothing, and before the feed can wait there is something."""
    feed = log.follow_all(after=0) if everything else log.follow("s", after=0)
    appending_around(log, monkeypatch, before=set(), after={1, 3, 5})
    assert taken(feed, 4) == [1, 2, 3, 4]


@pytest.mark.parametrize("everything", [False, True])
def test_an_append_right_after_a_look_wakes_a_coroutine(log, monkeypatch, everything):
    appending_around(log, monkeypatch, before=set(), after={1, 3, 5})

    async def follow():
        feed = log.follow_all(after=0) if everything else log.follow("s", after=0)
        found = []
        async with asyncio.timeout(WAIT_S):
            async for item in feed:
                found.append(item.id)
                if len(found) == 4:
                    return found
        return found

    assert asyncio.run(follow()) == [1, 2, 3, 4]


@pytest.mark.parametrize("everything", [False, True])
def test_appends_before_and_after_every_look_come_once_each(log, monkeypatch, everything):
    for _ in range(3):
        log.append_event("s", EVENT)
    appending_around(log, monkeypatch, before=set(range(20)), after=set(range(20)))
    feed = log.follow_all(after=2) if everything else log.follow("s", after=2)
    assert taken(feed, 12) == list(range(3, 15))


@pytest.mark.parametrize("everything", [False, True])
def test_append_between_start_of_feed_and_its_joining_is_heard(log, monkeypatch, everything):
    """A feed that has not joined is not notified; its first read must find the event."""
    join = log._broadcast.join

    def late(feed):
        append(log)
        return join(feed)

    monkeypatch.setattr(log._broadcast, "join", late)
    feed = log.follow_all() if everything else log.follow("s")
    assert taken(feed, 1) == [2]


def test_a_subscriber_that_begins_while_others_append_misses_nothing(log):
    """Twelve subscribers begin at different moments of one busy log."""
    over = threading.Event()
    log.append_event("s", EVENT)

    def work():
        while not over.is_set():
            log.append_event("s", EVENT)

    writer = threading.Thread(target=work)
    writer.start()
    heard, stops = [], []
    for number in range(12):
        start = number % 3
        found = []
        heard.append((start, found))
        stops.append(log.subscribe("s", found.append, after=start))
    over.set()
    writer.join(WAIT_S)
    last = log.peek_next_id("s") - 1
    for stop in stops:
        stop.drain()
    for start, found in heard:
        assert [event.id for event in found] == list(range(start + 1, last + 1))


def test_commit_wakes_the_feeds_of_its_session_only(sessions):
    for sid in ("busy", "idle", "other"):
        sessions.create_session({"id": sid})
    feeds = {sid: sessions.follow(sid) for sid in ("busy", "idle")}
    everything = sessions.follow_all()
    before = {name: feed.wakes for name, feed in feeds.items()}
    for number in range(20):
        sessions.append_event("busy", {"type": "turn/started", "turn": {"n": number}})
        sessions.publish_head("busy")
        sessions.notify_transient("busy", number)
        sessions.append_event("other", {"type": "turn/started", "turn": {}})
    assert feeds["idle"].wakes == before["idle"]
    assert feeds["busy"].wakes == before["busy"] + 60
    assert everything.wakes == 80
    sessions.delete_session("idle")
    assert feeds["idle"].wakes > before["idle"]
    with pytest.raises(NotFound):
        feeds["idle"].next(0)
