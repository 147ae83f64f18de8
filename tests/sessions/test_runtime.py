"""The runtime of sessions: how turns end, and what they leave."""

from __future__ import annotations

import threading

import pytest
from runtime_session import SID, runtime, sound, types

import fourfold
from fourfold.content import PayloadRef
from fourfold.errors import (
    Busy,
    CallFailed,
    ContentError,
    InvalidInput,
    Refused,
)
from fourfold.kernel import failpoints
from fourfold.models.sessions import Sessions
from fourfold.models.sessions.runtime import Final, Runtime


def test_final_turn_is_recorded_in_order_and_publishes_head(sessions):
    def step(turn):
        if turn.number == 1:
            turn.vars["corpus"] = "x" * 5000
            turn.say("assistant", "thinking")
            return None
        assert [each["content"] for each in turn.messages()] == ["question", "thinking"]
        return Final({"length": len(turn.vars["corpus"])})

    result = runtime(sessions, step).run_turn(SID, "question")
    assert (result.status, result.value, result.failed) == ("final", {"length": 5000}, False)
    assert types(sessions) == [
        "session/started",
        "message/appended",
        "turn/started",
        "step/started",
        "message/appended",
        "step/put",
        "step/started",
        "step/put",
        "session/vars-snapshotted",
        "turn/put",
        "head/published",
    ]
    view = sessions.current_view(SID)
    head = sessions.head(result.head)
    assert (head.event_range, head.turn_id, head.kind) == ((1, 10), 1, "turn-final")
    assert head.vars_ref == view.vars_ref
    assert isinstance(head.vars_ref["vars"]["corpus"]["ref"], PayloadRef)
    assert view.turns[0]["user_message_id"] == 1
    assert view.messages[0]["turn_id"] == view.messages[1]["turn_id"] == 1
    sound(sessions)


def test_no_commit_shows_a_final_turn_without_its_head(tmp_path):
    seen = []

    def look(_point):
        with fourfold.open(tmp_path / "store", mode="r") as store:
            if store.sessions.list_sessions():
                view = store.sessions.current_view(SID)
                turns = [turn["id"] for turn in view.turns if turn.get("final_ref")]
                seen.append((turns, [head.turn_id for head in view.heads]))

    with fourfold.open(tmp_path / "store") as store:
        failpoints.arm("kernel.commit.after", look, repeat=True)
        try:
            for _ in range(2):
                runtime(store.sessions, lambda _: Final("answer")).run_turn(SID, "question")
        finally:
            failpoints.disarm()
    assert ([], []) in seen
    assert ([1, 2], [1, 2]) in seen
    assert all(turns == heads for turns, heads in seen)


def test_variables_persist_and_only_changes_are_stored(sessions):
    def step(turn):
        turn.vars.setdefault("corpus", "y" * 100_000)
        turn.vars["n"] = turn.vars.get("n", 0) + 1
        turn.vars.setdefault("seen", []).append(turn.task)
        return Final(turn.vars["n"])

    made = runtime(sessions, step)
    assert [made.run_turn(SID, task).value for task in "abc"] == [1, 2, 3]
    assert dict(made.vars(SID)) == {"corpus": "y" * 100_000, "n": 3, "seen": ["a", "b", "c"]}
    refs = {head.vars_ref["vars"]["corpus"]["ref"] for head in sessions.current_view(SID).heads}
    assert len(refs) == 1
    with sessions.log.read() as reading:
        assert len(reading.payloads(b"", 100)) == 1


def test_large_variable_that_changed_or_was_replaced_is_stored_again(sessions):
    def step(turn):
        turn.vars.setdefault("grows", ["x" * 600]).append(turn.task)
        turn.vars["replaced"] = str(turn.task) * 600
        return Final()

    made = runtime(sessions, step)
    for task in (1, 2):
        made.run_turn(SID, task)
    assert dict(made.vars(SID)) == {"grows": ["x" * 600, 1, 2], "replaced": "2" * 600}
    first = sessions.current_view(SID).heads[0]
    assert first.vars_ref["vars"]["grows"] != made.vars(SID)._entries["grows"]


def test_variables_are_removable_and_large_ones_lazy(sessions):
    def first(turn):
        turn.vars.update(a=1, b="z" * 1000)
        return Final()

    def second(turn):
        del turn.vars["a"]
        with pytest.raises(KeyError):
            del turn.vars["nothing"]
        with pytest.raises(InvalidInput):
            turn.vars[1] = 2
        assert (list(turn.vars), len(turn.vars), "a" in turn.vars) == (["b"], 1, False)
        return Final()

    runtime(sessions, first).run_turn(SID, 1)
    made = runtime(sessions, second)
    assert not made.run_turn(SID, 2).failed
    assert dict(made.vars(SID)) == {"b": "z" * 1000}


@pytest.mark.parametrize(
    ("options", "status", "error", "steps"),
    [
        ({"max_steps": 3}, "budget-exceeded", "max-steps", 3),
        ({"max_steps": 0}, "budget-exceeded", "max-steps", 0),
        ({"budget": {"tokens": 25}}, "budget-exceeded", "budget-exceeded", 3),
        ({"timeout_s": 4.5}, "timeout", "timeout", 5),
    ],
)
def test_a_turn_that_ends_otherwise_publishes_no_head(sessions, options, status, error, steps):
    now = [0.0]

    def step(turn):
        now[0] += 1.0
        turn.use(tokens=10)
        turn.vars["lost"] = True

    made = runtime(sessions, step, clock=lambda: now[0], **options)
    result = made.run_turn(SID, "go")
    view = sessions.current_view(SID)
    assert (result.status, result.error["type"], result.head) == (status, error, None)
    assert (view.current_head, view.turns[0]["status"]) == (None, status)
    assert (view.turns[0]["steps"], len(view.steps)) == (steps, steps)
    assert view.turns[0]["usage"] == ({"tokens": 10 * steps} if steps else {})
    assert dict(made.vars(SID)) == {}
    sound(sessions)


def test_step_that_raises_ends_turn_and_session_goes_on(sessions):
    def step(turn):
        turn.vars["x"] = 1
        if turn.task == "bad":
            raise ValueError("no \ud800 good")
        return Final(dict(turn.vars))

    made = runtime(sessions, step)
    bad = made.run_turn(SID, "bad")
    assert (bad.status, bad.error["type"]) == ("error", "ValueError")
    assert "good" in bad.error["message"]
    view = sessions.current_view(SID)
    assert (view.turns[0]["status"], view.steps[0]["status"]) == ("error", "error")
    assert made.run_turn(SID, "good").value == {"x": 1}
    sound(sessions)


@pytest.mark.parametrize("value", [object(), float("nan"), "\ud800"])
def test_what_cannot_be_stored_ends_the_turn_with_its_name(sessions, value):
    def as_variable(turn):
        turn.vars["odd one"] = value
        return Final()

    def as_answer(turn):
        return Final(value)

    made = runtime(sessions, as_variable)
    result = made.run_turn(SID, "go")
    assert (result.status, result.error["type"]) == ("error", "content")
    assert "odd one" in result.error["message"]
    assert runtime(sessions, as_answer).run_turn(SID, "go").status == "error"
    before = types(sessions)
    with pytest.raises(ContentError):
        made.run_turn(SID, value)
    assert types(sessions) == before
    sound(sessions)


def test_step_that_returns_a_wrong_type_gets_an_error(sessions):
    result = runtime(sessions, lambda turn: 42).run_turn(SID, "go")
    assert (result.status, result.error["type"]) == ("error", "invalid_input")


def test_stop_is_heard_at_next_step_and_is_for_good(sessions):
    def step(turn):
        made.request_stop(SID)
        made.request_stop(SID)

    made = runtime(sessions, step)
    result = made.run_turn(SID, "go")
    assert (result.status, len(sessions.current_view(SID).steps)) == ("stopped", 1)
    assert types(sessions)[-3:] == ["step/put", "turn/put", "session/stopped"]
    before = types(sessions)
    again = made.run_turn(SID, "more")
    assert (again.status, again.turn_id, again.error["type"]) == (
        "stopped",
        None,
        "session-stopped",
    )
    made.request_stop(SID)
    assert types(sessions) == before


def test_a_session_without_a_turn_stops_at_once(sessions):
    made = runtime(sessions, lambda turn: Final())
    made.request_stop(SID)
    assert types(sessions)[-2:] == ["session/stop-requested", "session/stopped"]
    assert sessions.current_view(SID).session["status"] == "stopped"


def test_one_turn_runs_at_a_time(sessions):
    inside, go = threading.Event(), threading.Event()

    def step(turn):
        inside.set()
        go.wait()
        return Final()

    made = runtime(sessions, step)
    thread = threading.Thread(target=made.run_turn, args=(SID, "one"))
    thread.start()
    inside.wait()
    other = runtime(sessions, step)
    for call in (lambda: made.run_turn(SID, "two"), lambda: other.compact(SID)):
        with pytest.raises(Busy, match="under way"):
            call()
    go.set()
    thread.join()
    assert not made.run_turn(SID, "two").failed


def test_a_call_is_recorded_and_its_failure_too(sessions):
    def step(turn):
        assert turn.call("add", lambda a, b: (a, b), 1, 2) == [1, 2]
        with pytest.raises(CallFailed, match="divide raised ZeroDivisionError") as failed:
            turn.call("divide", lambda: 1 / 0)
        assert failed.value.details["error"]["type"] == "ZeroDivisionError"
        with pytest.raises(InvalidInput):
            turn.call("", lambda: 1)
        kept.append(turn)
        return Final()

    kept = []
    assert not runtime(sessions, step).run_turn(SID, "go").failed
    evals = sessions.current_view(SID).evals
    assert [each["status"] for each in evals] == ["ok", "error"]
    for late in (lambda: kept[0].say("a", "b"), lambda: kept[0].use(n=1)):
        with pytest.raises(Refused, match="is over"):
            late()


def test_compaction_keeps_the_summary_the_variables_and_the_whole_history(sessions):
    def step(turn):
        turn.vars["n"] = turn.vars.get("n", 0) + 1
        turn.say("assistant", f"answer {turn.vars['n']}")
        return Final(len(turn.messages()))

    def summarize(messages):
        return f"{len(messages)} messages until {messages[-1]['content']}"

    made = runtime(sessions, step, summarize=summarize)
    for task in "ab":
        last = made.run_turn(SID, task)
    head = sessions.head(made.compact(SID))
    assert (head.kind, head.basis) == ("compaction", last.head)
    assert [each["content"] for each in made.messages(SID)] == ["4 messages until answer 2"]
    assert types(sessions).count("session/compacted") == 1
    assert made.run_turn(SID, "c").value == 3
    assert (dict(made.vars(SID)), len(sessions.current_view(SID).messages)) == ({"n": 3}, 7)
    sound(sessions)


def test_a_long_transcript_is_compacted_before_the_next_turn(sessions):
    def step(turn):
        turn.say("assistant", "x" * 300)
        return Final(len(turn.messages()))

    made = runtime(sessions, step, summarize=lambda messages: "short", compact_chars=800)
    counts = [made.run_turn(SID, "y" * 600).value for _ in range(3)]
    assert counts == [2, 3, 3]
    with pytest.raises(InvalidInput):
        runtime(sessions, step, compact_chars=10)
    with pytest.raises(InvalidInput, match="summarizes"):
        runtime(sessions, step).compact(SID)


@pytest.mark.parametrize(
    "options",
    [{"max_steps": 1.5}, {"timeout_s": "1"}, {"budget": {"tokens": None}}, {"summarize": 1}],
)
def test_settings_are_checked_when_the_runtime_is_made(sessions, options):
    with pytest.raises(InvalidInput):
        Runtime(sessions, lambda turn: None, **options)
    with pytest.raises(InvalidInput):
        Runtime(sessions, None)


def test_the_same_program_leaves_the_same_log_in_every_store(tmp_path):
    """No clock and no chance in what is recorded, but for the times that the store stamps."""

    def step(turn):
        turn.call("tool", lambda: {"b": 1, "a": [1, 2]})
        turn.map_children(["a", "b"], step=lambda turn: Final(turn.task))
        return Final(turn.task)

    seen = []
    for number in range(2):
        sessions = Sessions()
        runtime(sessions, step).run_turn(SID, "go")
        seen.append(
            [
                (info.id, event.id, event.type, event.data if "head" not in event.data else None)
                for info in sorted(sessions.list_sessions(), key=lambda each: each.id)
                for event in sessions.events_since(info.id, 0)
                if event.type != "lineage/edge-added"
            ]
        )
        sessions.close()
        assert number == len(seen) - 1
    assert seen[0] == seen[1]


@pytest.mark.parametrize("origin", ["snapshot", "child"])
def test_failed_step_leaves_no_variable_changed_in_place(sessions, origin):
    seen = []

    def step(turn):
        seen.append(list(turn.vars["todo"]))
        turn.vars["todo"].append("of a failed turn")
        turn.task.append("of a failed turn")
        raise ValueError(turn.task)

    def parent(turn):
        turn.run_child(["go"], step=step, vars={"todo": ["x"]})
        return Final()

    if origin == "child":
        runtime(sessions, parent).run_turn(SID, "go")
        sid = sessions.list_sessions(prefix=f"{SID}/")[0].id
    else:
        sid = sessions.create_session({"id": "made"}).id
        event = {"type": "session/vars-snapshotted", "vars_ref": {"todo": ["x"]}}
        sessions.append_event(sid, event)
    made = Runtime(sessions, step)
    for _ in range(3):
        assert made.run_turn(sid, ["again"]).error["message"] == "['again']"
    assert all(each == ["x"] for each in seen)
    assert dict(made.vars(sid)) == {"todo": ["x"]}


def test_turn_ends_as_error_when_another_head_is_published_first(sessions, monkeypatch):
    def step(turn):
        turn.vars["x"] = turn.vars.get("x", 0) + 1
        return Final(turn.vars["x"])

    made = runtime(sessions, step)
    made.run_turn(SID, "first")
    publish = sessions.publish_head

    def second(sid, head=None, **options):
        monkeypatch.undo()
        publish(sid, {"kind": "external", "vars_ref": {"x": 100}})
        return publish(sid, head, **options)

    monkeypatch.setattr(sessions, "publish_head", second)
    result = made.run_turn(SID, "second")
    assert (result.status, result.error["type"], result.head) == ("error", "head_moved", None)
    assert [turn["status"] for turn in sessions.current_view(SID).turns] == ["final", "error"]
    assert dict(made.vars(SID)) == {"x": 100}
    assert made.run_turn(SID, "third").value == 101
    sound(sessions)


class Unreadable(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def test_turn_ends_as_error_when_error_has_no_readable_message(sessions):
    def step(turn):
        if turn.task == "call":
            turn.call("tool", fail)
        fail()

    def fail():
        raise Unreadable

    made = runtime(sessions, step)
    for task, kind in (("raise", "Unreadable"), ("call", "call_failed")):
        result = made.run_turn(SID, task)
        assert (result.status, result.error["type"]) == ("error", kind)
    assert made.interrupted(SID) is None


@pytest.mark.parametrize("role", [None, "", 7, ["user"]])
def test_message_needs_a_role(sessions, role):
    def step(turn):
        turn.say(role, "hello")

    assert runtime(sessions, step).run_turn(SID, "go").error["type"] == "invalid_input"
    assert [each["role"] for each in sessions.current_view(SID).messages] == ["user"]
