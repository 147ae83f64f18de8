"""Sessions that work for others: children, attached sessions, and what they may do."""

from __future__ import annotations

import pytest
from runtime_session import SID, Death, runtime, sound, types

from fourfold.errors import (
    CapabilityDenied,
    InvalidInput,
    LimitExceeded,
    NotFound,
    ReplayMismatch,
)
from fourfold.models.sessions.runtime import Final, Runtime


def test_children_run_beside_each_other_and_failed_one_is_result(sessions):
    def child(turn):
        if turn.task == 3:
            raise RuntimeError("lane 3")
        if turn.task == 5:
            inner = turn.run_child("inner", step=lambda turn: Final(turn.vars["given"]), vars=given)
            return Final(inner.value)
        turn.use(tokens=100)
        return Final(turn.task * 10)

    given = {"given": "v" * 600}

    def step(turn):
        if turn.task == "first":
            return Final()
        results = turn.map_children(list(range(8)), step=child)
        turn.use(tokens=1)
        return Final([each.value for each in results])

    made = runtime(sessions, step)
    first = made.run_turn(SID, "first")
    result = made.run_turn(SID, "second")
    assert result.value == [0, 10, 20, None, 40, "v" * 600, 60, 70]
    assert result.usage == {"tokens": 1}
    view = sessions.current_view(SID)
    assert len(view.edges) == 7
    assert {(edge.type, edge.from_head) for edge in view.edges} == {("invocation", first.head)}
    assert len(sessions.list_sessions()) == 10
    [nested] = sessions.current_view(f"{SID}/2.2.6").edges
    assert (nested.from_head, nested.to_session) == (None, f"{SID}/2.2.6/1.1.1")
    failed = sessions.current_view(f"{SID}/2.2.4")
    assert (failed.turns[0]["status"], failed.current_head) == ("error", None)
    assert first.head in sessions.ancestors(view.edges[0].to_head)
    sound(sessions)


def test_children_are_bounded_in_number_and_depth(sessions):
    def many(turn):
        with pytest.raises(LimitExceeded):
            turn.map_children(range(51))
        with pytest.raises(InvalidInput):
            turn.map_children("tasks")
        return Final(len(turn.map_children(range(50), step=lambda turn: Final())))

    assert runtime(sessions, many).run_turn(SID, "go").value == 50

    def deeper(turn):
        result = turn.run_child(turn.task + 1)
        return Final(turn.task if result.failed else result.value)

    assert runtime(sessions, deeper).run_turn(SID, 0).value == 15
    sound(sessions)


def test_a_child_may_do_no_more_than_its_parent(sessions):
    def step(turn):
        if turn.task == "child":
            return Final([name for name in ("net", "disk", "mail") if turn.may(name)])
        with pytest.raises(CapabilityDenied):
            turn.require("mail")
        turn.require("net")
        plain = turn.run_child("child").value
        return Final([plain, turn.run_child("child", capability=["mail", "disk"]).value])

    made = Runtime(sessions, step)
    made.start({"id": SID, "capability": ["net", "disk"]})
    assert made.run_turn(SID, "go").value == [["net", "disk"], ["disk"]]
    with pytest.raises(InvalidInput):
        made.start({"id": "other", "capability": "net"})


def test_attaching_starts_from_any_head_and_leaves_the_source_alone(sessions):
    def step(turn):
        turn.vars["base"] = turn.vars.get("base", 0) + turn.task
        return Final(turn.vars["base"])

    made = runtime(sessions, step)
    heads = [made.run_turn(SID, 40).head, made.run_turn(SID, 100).head]
    before = types(sessions)
    old = made.attach(heads[0], 2, sid="fork")
    new = made.attach(SID, 2, sid="fork-2")
    by_head = made.attach(sessions.head(heads[0]), 3, sid="fork-3")
    assert [each.value for each in (old, new, by_head)] == [42, 142, 43]
    assert types(sessions) == before
    [edge] = sessions.lineage("fork")
    assert (edge.type, edge.from_session, edge.from_head) == ("derivation", SID, heads[0])
    assert (edge.to_head, edge.id) == (old.head, old.edge)
    assert made.attach(heads[0], 2, sid="fork") == old
    with pytest.raises(ReplayMismatch):
        made.attach(heads[1], 2, sid="fork")
    # The attached session goes on by itself.
    assert made.run_turn("fork", 1).value == 43
    sound(sessions)


def test_attached_session_without_a_head_recovers_its_variables(sessions):
    def step(turn):
        if turn.task == "die" and turn.number == 1 and alive:
            alive.clear()
            raise Death
        return Final(dict(turn.vars))

    def first(turn):
        turn.vars["a"] = 1
        return Final()

    alive = [True]
    runtime(sessions, first).run_turn(SID, "go")
    made = runtime(sessions, step)
    with pytest.raises(Death):
        made.attach(SID, "die", sid="fork")
    assert dict(made.vars("fork")) == {"a": 1}
    assert made.attach(SID, "die", sid="fork").value == {"a": 1}
    assert len(sessions.lineage("fork")) == 1


def test_attaching_to_a_more_privileged_session_is_refused(sessions):
    def step(turn):
        if turn.task == "attach":
            turn.attach("rich", "x")
        return Final()

    made = Runtime(sessions, step)
    made.start({"id": "rich", "capability": ["net", "disk"]})
    made.start({"id": "poor", "capability": ["net"]})
    made.start({"id": "all"})
    assert not made.run_turn("rich", "go").failed
    count = len(sessions.list_sessions())
    assert made.run_turn("poor", "attach").error["type"] == "capability_denied"
    for source, capability in (("rich", ["net"]), ("all", ["net", "disk"])):
        made.run_turn("all", "go")
        with pytest.raises(CapabilityDenied):
            made.attach(source, "x", sid="child", capability=capability)
    with pytest.raises(NotFound):
        made.attach("unknown", "x", sid="child")
    with pytest.raises(NotFound, match="no head"):
        made.attach("poor", "x", sid="child")
    assert len(sessions.list_sessions()) == count
    done = made.run_turn("all", "attach")
    assert not done.failed
    [edge] = sessions.current_view("all").edges
    assert (edge.type, edge.extra["caller_session"]) == ("derivation", "all")
    assert sessions.current_view(edge.to_session).session["capability"] == ["disk", "net"]
