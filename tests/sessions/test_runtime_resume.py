"""The runtime goes on where another one died, and repeats nothing that was recorded."""

from __future__ import annotations

import pytest
from runtime_session import SID, Death, runtime, sound, types

from fourfold.errors import (
    CallFailed,
    ReplayMismatch,
)
from fourfold.models.sessions.runtime import Final


def dying(after, log):
    """A step function of two steps, which dies at its n-th breath, and logs every real effect."""

    def breathe():
        after[0] -= 1
        if after[0] == 0:
            raise Death

    def effect(name):
        log.append(name)
        return name.upper()

    def step(turn):
        breathe()
        turn.vars["seen"] = [*turn.vars.get("seen", []), turn.number]
        first = turn.call("first", effect, f"a{turn.number}")
        breathe()
        turn.say("assistant", first)
        breathe()
        with pytest.raises(CallFailed):
            turn.call("fails", lambda: log.append(f"f{turn.number}") or 1 / 0)
        breathe()
        child = turn.run_child(f"task {turn.number}", step=child_step)
        breathe()
        turn.use(tokens=5)
        return None if turn.number == 1 else Final([child.value, turn.vars["seen"]])

    def child_step(turn):
        breathe()
        value = turn.call("work", effect, f"child {turn.task}")
        breathe()
        return Final(value)

    return step


@pytest.mark.parametrize("moment", range(1, 15))
def test_a_turn_that_is_resumed_repeats_nothing_that_was_recorded(sessions, moment):
    log = []
    after = [moment]
    made = runtime(sessions, dying(after, log))
    with pytest.raises(Death):
        made.run_turn(SID, "go", key="one")
    assert made.interrupted(SID) == 1
    again = runtime(sessions, dying(after, log))
    result = again.run_turn(SID, "go", key="one") if moment % 2 else again.resume(SID)
    assert result.value == ["CHILD TASK 2", [1, 2]]
    assert result.usage == {"tokens": 10}
    assert log == ["a1", "f1", "child task 1", "a2", "f2", "child task 2"]
    view = sessions.current_view(SID)
    assert [each["content"] for each in view.messages] == ["go", "A1", "A2"]
    assert (len(view.steps), len(view.evals), len(view.edges), len(view.turns)) == (2, 4, 2, 1)
    before = types(sessions)
    assert again.run_turn(SID, "go", key="one") == result
    assert (again.resume(SID), again.abandon(SID)) == (None, None)
    assert types(sessions) == before
    with pytest.raises(ReplayMismatch):
        again.run_turn(SID, "something else", key="one")
    sound(sessions)


def test_resumed_step_that_differs_is_detected(sessions):
    def dies(turn):
        turn.say("assistant", "one")
        turn.call("tool", int)
        raise Death

    def other(turn):
        turn.say("assistant", "one" if turn.task != "content" else "two")
        turn.call("another tool", int)

    for task in ("content", "name"):
        with pytest.raises(Death):
            runtime(sessions, dies).run_turn(SID, task)
        result = runtime(sessions, other).resume(SID)
        assert (result.status, result.error["type"]) == ("error", "replay_mismatch")


def test_next_turn_closes_an_interrupted_one_without_its_variables(sessions):
    def step(turn):
        turn.vars["topic"] = turn.task
        if turn.task == "half an idea" and turn.number == 2:
            raise Death
        return Final(turn.task) if turn.task != "half an idea" else None

    made = runtime(sessions, step)
    first = made.run_turn(SID, "folds")
    with pytest.raises(Death):
        made.run_turn(SID, "half an idea")
    sessions.append_event(SID, {"type": "session/vars-snapshotted", "vars_ref": {"topic": "late"}})
    made = runtime(sessions, step)
    assert (dict(made.vars(SID)), made.interrupted(SID)) == ({"topic": "folds"}, 2)
    third = made.run_turn(SID, "heads")
    view = sessions.current_view(SID)
    assert [each["status"] for each in view.turns] == ["final", "error", "final"]
    assert view.turns[1]["error"]["type"] == "interrupted"
    assert view.steps[2]["status"] == "error"
    assert sessions.head(third.head).basis == first.head
    sound(sessions)


class Failing:
    """Sessions as an earlier version left them, which died between the end of a turn and its head:
    it wrote them in two transactions.
    """

    def __init__(self, sessions):
        self._sessions = sessions

    def __getattr__(self, name):
        return getattr(self._sessions, name)

    def publish_head(self, sid, *_, events=(), **__):
        self._sessions.append_events(sid, events)
        raise Death


def test_head_that_an_earlier_version_left_out_is_published_later(sessions):
    options = {"summarize": lambda messages: f"{len(messages)} messages"}
    made = runtime(Failing(sessions), lambda turn: Final(7), **options)
    with pytest.raises(Death):
        made.run_turn(SID, "go", key="one")
    assert sessions.current_view(SID).current_head is None
    made = runtime(sessions, lambda turn: Final(8), **options)
    result = made.run_turn(SID, "go", key="one")
    assert (result.value, result.head) == (7, sessions.current_view(SID).current_head)
    with pytest.raises(Death):
        runtime(Failing(sessions), lambda turn: Final(), **options).compact(SID)
    made.resume(SID)
    head = sessions.head(sessions.current_view(SID).current_head)
    assert (head.kind, head.basis, len(sessions.current_view(SID).heads)) == (
        "compaction",
        result.head,
        2,
    )
    sound(sessions)


def test_head_of_another_publisher_is_not_skipped(sessions):
    def step(turn):
        sessions.publish_head(SID)
        return Final()

    made = runtime(sessions, step)
    result = made.run_turn(SID, "go")
    assert (result.status, result.error["type"]) == ("error", "head_moved")
    [head] = sessions.current_view(SID).heads
    assert (made.resume(SID), sessions.current_view(SID).current_head) == (None, head.id)
