"""Suspended turns are found by what was updated, and by their times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fourfold.models.sessions import Sessions
from fourfold.models.sessions.runtime import Final, Runtime
from fourfold.models.sessions.runtime.due import SESSION_DUE_SCAN_S, DueTurns

START = datetime(2026, 3, 1, tzinfo=UTC)


class Clock:
    """The time of the store and of timers, and the seconds of a process."""

    def __init__(self):
        self.passed_s = 0.0

    def now(self):
        return START + timedelta(seconds=self.passed_s)

    def monotonic(self):
        return self.passed_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def sessions(clock):
    made = Sessions(clock=clock.now)
    yield made
    made.close()


def suspend(sessions, clock, count):
    def step(turn):
        paid = turn.wait_signal("paid", timeout_s=3_600, default="no one")
        return Final(f"{turn.session} {paid}")

    runtime = Runtime(sessions, step, now=clock.now)
    for number in range(count):
        runtime.start({"id": f"s-{number}"})
        assert runtime.run_turn(f"s-{number}", "wait").status == "suspended"
    return runtime


def test_later_calls_examine_only_updated_sessions(sessions, clock, monkeypatch):
    runtime = suspend(sessions, clock, 20)
    clock.passed_s = 100
    assert runtime.run_due() == []
    runtime.signal("s-7", "other")
    assert runtime.run_due() == []
    examined = []
    method = Sessions.current_view
    monkeypatch.setattr(
        Sessions, "current_view", lambda self, sid: examined.append(sid) or method(self, sid)
    )
    assert runtime.run_due() == []
    assert set(examined) == {"s-7"}
    monkeypatch.undo()
    runtime.signal("s-3", "paid", "ada")
    assert [result.value for result in runtime.run_due()] == ["s-3 ada"]
    clock.passed_s = 3_600
    assert len(runtime.run_due(limit=5)) == 5
    assert len(runtime.run_due()) == 14
    assert runtime.run_due() == []


def test_new_and_deleted_sessions_are_noticed(sessions, clock):
    runtime = suspend(sessions, clock, 3)
    assert runtime.run_due() == []
    sessions.delete_session("s-1")
    runtime.start({"id": "late"})
    assert runtime.run_turn("late", "wait").status == "suspended"
    runtime.signal("late", "paid", 1)
    assert [result.value for result in runtime.run_due()] == ["late 1"]
    clock.passed_s = 3_600
    assert [result.value for result in runtime.run_due()] == ["s-0 no one", "s-2 no one"]


def test_update_is_found_after_a_clock_was_set_back(sessions, clock):
    runtime = suspend(sessions, clock, 2)
    seconds = [0.0]
    due = DueTurns(sessions, "", lambda: seconds[0])
    assert list(due.iter_due(clock.now())) == []
    clock.passed_s = -600
    runtime.signal("s-1", "paid", 1)
    assert list(due.iter_due(clock.now())) == []
    seconds[0] = SESSION_DUE_SCAN_S
    assert list(due.iter_due(clock.now())) == ["s-1"]
