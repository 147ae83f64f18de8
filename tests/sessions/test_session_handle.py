"""The handle of a session: its verbs give what the calls of the store give."""

from __future__ import annotations

import asyncio

import pytest

from fourfold.errors import NotFound, PreconditionFailed
from fourfold.models.sessions import Sessions

STARTED = {"type": "turn/started", "turn": {"status": "running"}}


@pytest.fixture
def sessions():
    opened = Sessions()
    yield opened
    opened.close()


@pytest.fixture
def session(sessions):
    return sessions.create({"id": "s"})


def test_create_open_and_list_agree(sessions, session):
    assert sessions.open("s") == session == sessions["s"]
    assert [info.id for info in sessions.list()] == ["s"]
    assert sessions.list(prefix="x") == []


def test_open_of_an_unknown_session_raises_not_found(sessions):
    with pytest.raises(NotFound):
        sessions.open("unknown")


def test_append_takes_one_event_or_several(session):
    [first] = session.append(STARTED)
    several = session.append([STARTED, STARTED])
    assert [event.id for event in (first, *several)] == [1, 2, 3]
    assert session.position() == len(session) == 3


def test_append_of_no_events_writes_nothing(session):
    assert list(session.append([])) == []
    assert session.position() == 0
    assert session


def test_append_checks_the_newest_event(session):
    session.append(STARTED)
    with pytest.raises(PreconditionFailed):
        session.append(STARTED, expected_last_id=0)


def test_append_async_appends(session):
    [event] = asyncio.run(session.append_async(STARTED))
    assert event.id == 1


def test_read_at_an_event_or_a_head(session):
    session.append(STARTED)
    head = session.publish_head({"kind": "turn-final", "turn_id": 1})
    session.append(STARTED)
    assert len(session.read().turns) == 2
    assert len(session.read(at=1).turns) == 1
    assert len(session.read(at=head.id).turns) == 1
    assert len(session.read(at=0).turns) == 0
    with pytest.raises(NotFound, match="no event 99"):
        session.read(at=99)


def test_log_is_bounded_on_both_sides(session):
    session.append([STARTED] * 5)
    assert [event.id for event in session.log()] == [1, 2, 3, 4, 5]
    assert [event.id for event in session.log(after=1, until=4)] == [2, 3, 4]
    assert [event.id for event in session.log(after=1, limit=2)] == [2, 3]
    assert session.log(after=5) == []


def test_follow_yields_the_events_after_a_position(session):
    session.append([STARTED] * 3)
    assert [event.id for event in session.follow(after=1, timeout=0)] == [2, 3]


def test_delete_ends_the_session(sessions, session):
    session.delete()
    with pytest.raises(NotFound):
        sessions.open("s")
