"""Turns that end with a question to a person."""

from __future__ import annotations

import pytest
from runtime_session import SID, runtime, sound

from fourfold.errors import ContentError
from fourfold.models.sessions.runtime import Final, Question, Runtime

LARGE = "Refund it? " * 100


def ask(turn):
    if turn.task == "begin":
        turn.vars["amount"] = 120
        return Question(LARGE)
    return Final([turn.task, turn.vars["amount"]])


def test_question_is_answered_by_the_next_turn(sessions):
    agent = runtime(sessions, ask)
    result = agent.run_turn(SID, "begin", key="once")
    assert (result.status, result.value, result.failed) == ("waiting", LARGE, False)
    head = sessions.head(result.head)
    assert (head.kind, head.turn_id, head.final_ref) == ("turn-waiting", 1, None)
    assert agent.interrupted(SID) is None
    assert agent.resume(SID) is None
    # The turn is over: a repeated request returns its result.
    assert agent.run_turn(SID, "begin", key="once") == result
    assert agent.run_turn(SID, "yes").value == ["yes", 120]
    assert [turn["status"] for turn in sessions.current_view(SID).turns] == ["waiting", "final"]
    sound(sessions)


def test_list_finds_sessions_that_wait(sessions):
    agent = runtime(sessions, ask)
    assert sessions.info(SID).turn_status is None
    agent.run_turn(SID, "begin")
    asked = sessions.position()
    sessions.create_session({"id": "other", "model": "any"})
    waiting = {"turn_status": "waiting"}
    assert [info.id for info in sessions.list(where=waiting)] == [SID]
    agent.run_turn(SID, "no")
    assert sessions.list(where=waiting) == []
    assert sessions.info(SID).turn_status == "final"
    assert sessions.info(SID, at=asked).turn_status == "waiting"
    assert sessions.info(SID, at=3).turn_status == "running"


def test_status_of_turn_that_is_no_text_is_left_out(sessions):
    sessions.create_session({"id": "odd", "model": "any"})
    sessions.append_event("odd", {"type": "turn/started", "turn": {"status": [1]}})
    assert sessions.info("odd").turn_status is None


def test_invalid_question_ends_the_turn_with_an_error(sessions):
    result = runtime(sessions, lambda _turn: Question(object())).run_turn(SID, "begin")
    assert (result.status, result.error["type"]) == ("error", ContentError.kind)


def test_child_passes_its_question_to_the_parent(sessions):
    def step(turn):
        result = turn.run_child("begin", step=ask)
        return Question([result.status, len(result.value)])

    result = runtime(sessions, step).run_turn(SID, "go")
    assert (result.status, result.value) == ("waiting", ["waiting", len(LARGE)])
    assert len(sessions.current_view(SID).edges) == 1


@pytest.mark.parametrize("value", [None, "", {"tool": "refund", "amount": 120}])
def test_question_is_any_value(sessions, value):
    agent = Runtime(sessions, lambda _turn: Question(value))
    agent.start({"id": "s", "model": "any"})
    assert agent.run_turn("s", "go").value == value
