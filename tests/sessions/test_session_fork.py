"""Forks, lists by status, views at a time, and feeds inside transactions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import fourfold
from fourfold.errors import AlreadyExists, InvalidInput, NotFound, PayloadMissing
from fourfold.kernel import failpoints
from fourfold.models.sessions import Payload, Sessions
from fourfold.testing.session_log_contract import message, turn

START = datetime(2026, 1, 2, tzinfo=UTC)


class Clock:
    """A clock that a test moves."""

    def __init__(self):
        self.now = START

    def __call__(self):
        return self.now


@pytest.fixture(params=["memory", "sqlite"])
def sessions(request, tmp_path):
    if request.param == "memory":
        yield Sessions()
        return
    with fourfold.open(tmp_path / "store") as store:
        yield store.sessions


def filled(sessions):
    session = sessions.create({"id": "s", "model": "any", "status": "running"})
    session.append([turn(), message("a"), message(Payload("b" * 1000))])
    head = session.publish_head({"vars_ref": {"n": 1}, "turn_id": 1})
    session.append([message("c")])
    return session, head


def contents(session):
    read = session.sessions.read_payload
    return [read(item["content"]) for item in session.read().messages]


def test_fork_has_what_counts_at_its_point(sessions):
    session, head = filled(sessions)
    before = session.log()
    fork = session.fork({"id": "f", "title": "other"}, at=head.id)
    assert fork.created
    assert contents(fork) == ["a", "b" * 1000]
    view = fork.read()
    assert view.session == {
        "id": "f",
        "model": "any",
        "title": "other",
        "kind": "fork",
        "status": "running",
        "source_session": "s",
        "source_head": head.id,
        "source_event_id": head.event_range[1],
    }
    assert (view.vars_ref, view.counters.turn) == ({"n": 1}, 0)
    [own] = view.heads
    assert (own.kind, own.vars_ref, view.current_head) == ("fork", {"n": 1}, own.id)
    [edge] = sessions.lineage("s")
    assert (edge.type, edge.from_head, edge.to_session, edge.to_head) == (
        *("derivation", head.id, "f", own.id),
    )
    assert sessions.ancestors(own.id) == [head.id]
    assert session.log() == before
    assert sessions.verify() == []


def test_fork_starts_at_any_event_or_now_and_after_compaction(sessions):
    session, head = filled(sessions)
    assert contents(session.fork(at=3)) == ["a"]
    assert contents(session.fork()) == ["a", "b" * 1000, "c"]
    assert sessions.fork("s", {"id": "empty"}, at=0).read().session["source_head"] is None
    compacted = {"type": "session/compacted", "vars_ref": {"n": 2}, "message": {"content": "sum"}}
    session.append([compacted, message("d")])
    fork = session.fork({"id": "late"})
    assert contents(fork) == ["sum", "d"]
    # As in a resume, the variables of the head come before a later snapshot.
    assert fork.read().session["source_head"] == head.id
    assert fork.read().vars_ref == {"n": 1}


def test_fork_is_refused_as_a_whole(sessions):
    session, _ = filled(sessions)
    position = sessions.position()
    for error, fork in (
        (AlreadyExists, lambda: session.fork({"id": "s"})),
        (NotFound, lambda: session.fork({"id": "f"}, at=99)),
        (NotFound, lambda: sessions.fork("unknown")),
        (InvalidInput, lambda: session.fork({"id": "not an id"})),
        (InvalidInput, lambda: session.fork(["f"])),
    ):
        with pytest.raises(error):
            fork()
    assert sessions.position() == position
    assert [info.id for info in sessions.list()] == ["s"]


def test_failure_inside_a_fork_leaves_nothing(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        session, _ = filled(store.sessions)
        for at in range(1, 6):
            failpoints.arm("kernel.statement.before", "raise", at=at)
            with pytest.raises(fourfold.errors.StorageError):
                session.fork({"id": "f"})
            failpoints.disarm()
            with pytest.raises(NotFound):
                store.sessions.open("f")
        assert session.fork({"id": "f"}).created


def test_list_has_status_and_both_orders(sessions):
    for sid in ("a/1", "a/2", "b/1"):
        sessions.create({"id": sid, "model": "any"})
    sessions.create({"id": "a/3"})
    sessions.append_event("a/2", {"type": "session/stopped"})
    sessions.append_event("b/1", {"type": "session/error", "error": "no"})
    found = {info.id: (info.status, info.events) for info in sessions.list()}
    assert found == {
        "a/1": ("running", 1),
        "a/2": ("stopped", 2),
        "b/1": ("error", 2),
        "a/3": (None, 0),
    }
    order = ["a/1", "a/2", "b/1", "a/3"]
    assert [info.id for info in sessions.list(newest_first=True)] == order[::-1]
    assert [info.id for info in sessions.list(newest_first=True, prefix="a/")] == [
        "a/3",
        "a/2",
        "a/1",
    ]
    assert [info.id for info in sessions.list(newest_first=True, after="b/1", limit=1)] == ["a/2"]
    sessions.delete_session("a/2")
    assert [info.id for info in sessions.list(newest_first=True, prefix="a")] == ["a/3", "a/1"]
    deleted = sessions.list(newest_first=True, prefix="a/", deleted=True)
    assert [info.id for info in deleted] == ["a/3", "a/2", "a/1"]
    assert sessions.info("b/1") == sessions.list(prefix="b/")[0]
    with pytest.raises(NotFound):
        sessions.info("a/2")


def test_created_is_true_for_the_call_that_created_it(sessions):
    assert [sessions.create({"id": "s"}).created for _ in range(2)] == [True, False]
    assert not sessions.open("s").created


def test_view_at_time_is_state_at_or_before_it():
    clock = Clock()
    sessions = Sessions(clock=clock)
    session = sessions.create({"id": "s"})
    for number in range(300):
        clock.now = START + timedelta(seconds=number)
        session.append(message(number))
    for number in (0, 1, 7, 255, 256, 299):
        moment = START + timedelta(seconds=number)
        assert session.read(at=moment).counters.event == number + 1
        assert (
            session.read(at=moment + timedelta(microseconds=999_000)).counters.event == number + 1
        )
    assert session.read(at=START - timedelta(seconds=1)).counters.event == 0
    assert session.read(at=datetime.max.replace(tzinfo=UTC)).counters.event == 300
    with pytest.raises(InvalidInput, match="time zone"):
        session.read(at=START.replace(tzinfo=None))


def test_payload_bytes_are_canonical_and_read_in_parts(sessions):
    for size in (10, 100_000):
        ref = sessions.intern_payload("x" * size)
        data = b'"' + b"x" * size + b'"'
        assert sessions.payload_size(ref.id) == len(data)
        assert sessions.payload_bytes(ref.id) == data
        assert sessions.payload_bytes(ref.id, 1, 3) == b"xxx"
        assert sessions.payload_bytes(ref.id, len(data) - 1, 9) == b'"'
    for call in (sessions.payload_size, sessions.payload_bytes):
        with pytest.raises(PayloadMissing):
            call(f"sha256:{'0' * 64}")


def test_feed_wakes_when_the_transaction_around_an_append_commits(tmp_path):
    """The append returns before the commit, so a feed that was woken then would find nothing."""
    with fourfold.open(tmp_path / "store") as store:
        session = store.sessions.create({"id": "s"})
        feed = session.follow()
        with store.sessions.log.database.write():
            session.append(message("a"))
            assert feed.wakes == 0
        assert feed.wakes == 1
        assert feed.next(0).id == 1
        with store.sessions.log.database.write():
            session.delete()
            assert feed.wakes == 1
        assert feed.wakes == 2
