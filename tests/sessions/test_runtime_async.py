"""The runtime with coroutines: the same promises, and a timeout that interrupts."""

from __future__ import annotations

import asyncio

import pytest

from fourfold.errors import CallFailed, InvalidInput
from fourfold.models.sessions.runtime import Final, Runtime

SID = "root"


def runtime(sessions, step, **options):
    made = Runtime(sessions, step, **options)
    made.start({"id": SID, "model": "any"})
    return made


def test_a_turn_of_coroutines_is_recorded_like_one_of_functions(sessions):
    async def ask(question):
        await asyncio.sleep(0)
        return question.upper()

    async def step(turn):
        answer = await turn.call("model", ask, turn.task)
        plain = await turn.call("tool", len, "abc")
        with pytest.raises(CallFailed):
            await turn.call("fails", int, "x")
        await turn.say("assistant", answer)
        turn.vars["answer"] = answer
        lanes = await turn.map_children(["a", "b"], step=child)
        one = await turn.run_child("c", step=child)
        return Final([answer, plain, *(each.value for each in [*lanes, one])])

    async def child(turn):
        return Final(await turn.call("model", ask, turn.task))

    made = runtime(sessions, step)
    result = asyncio.run(made.run_turn_async(SID, "why"))
    assert result.value == ["WHY", 3, "A", "B", "C"]
    assert len(sessions.current_view(SID).edges) == 3
    assert sessions.verify() == []


def test_children_really_run_at_the_same_time(sessions):
    async def step(turn):
        gate = asyncio.Barrier(3)

        async def child(turn):
            await gate.wait()
            return Final(turn.task)

        return Final([each.value for each in await turn.map_children([1, 2, 3], step=child)])

    assert asyncio.run(runtime(sessions, step).run_turn_async(SID, "go")).value == [1, 2, 3]


def test_a_coroutine_is_interrupted_when_its_time_is_over(sessions):
    async def step(turn):
        assert turn.remaining_s is not None
        await asyncio.Event().wait()

    made = runtime(sessions, step, timeout_s=0.05)
    result = asyncio.run(made.run_turn_async(SID, "go"))
    assert (result.status, result.head) == ("timeout", None)
    assert sessions.current_view(SID).steps[0]["status"] == "error"


def test_timeout_of_its_own_is_error_of_step(sessions):
    async def step(turn):
        raise TimeoutError("the model's, not the turn's")

    result = asyncio.run(runtime(sessions, step, timeout_s=60).run_turn_async(SID, "go"))
    assert (result.status, result.error["type"]) == ("error", "TimeoutError")


def test_turn_that_is_cancelled_is_interrupted_and_can_be_resumed(sessions):
    calls = []

    def effect():
        calls.append(1)
        called.set()

    async def step(turn):
        await turn.call("once", effect)
        if len(calls) == 1 and not resumed:
            await asyncio.Event().wait()
        return Final("done")

    resumed = []
    called = asyncio.Event()
    made = runtime(sessions, step)

    async def scenario():
        task = asyncio.create_task(made.run_turn_async(SID, "go"))
        await called.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        resumed.append(True)
        return await made.resume_async(SID)

    result = asyncio.run(scenario())
    assert (result.value, calls, made.interrupted(SID)) == ("done", [1], None)


def test_functions_and_coroutine_functions_are_not_mixed_up(sessions):
    async def waits(turn):
        return Final("waited")

    def plain(turn):
        return Final("plain")

    async def mixed(turn):
        await turn.run_child("x", step=plain)

    def calls_a_coroutine(turn):
        turn.call("model", asyncio.sleep, 0)

    with pytest.raises(InvalidInput, match="coroutine"):
        runtime(sessions, waits).run_turn(SID, "go")
    assert asyncio.run(runtime(sessions, plain).run_turn_async(SID, "go")).value == "plain"
    result = asyncio.run(runtime(sessions, mixed).run_turn_async(SID, "go"))
    assert result.error["type"] == "invalid_input"
    result = runtime(sessions, calls_a_coroutine).run_turn(SID, "go")
    assert result.error["type"] == "call_failed"


def test_compaction_and_attaching_have_twins(sessions):
    async def step(turn):
        turn.vars["n"] = turn.vars.get("n", 0) + 1
        return Final(turn.vars["n"])

    async def summarize(messages):
        return f"{len(messages)} messages"

    made = runtime(sessions, step, summarize=summarize)

    async def scenario():
        await made.run_turn_async(SID, "go")
        await made.compact_async(SID)
        return await made.attach_async(SID, "on", sid="fork")

    assert asyncio.run(scenario()).value == 2
    assert [each["content"] for each in made.messages(SID)] == ["1 messages"]


def test_children_of_a_timed_out_turn_are_stopped(sessions):
    async def step(turn):
        await turn.map_children(["a", "b"], step=waits)

    async def waits(turn):
        await asyncio.Event().wait()

    made = runtime(sessions, step, timeout_s=0.1)
    assert asyncio.run(made.run_turn_async(SID, "go")).status == "timeout"
    for child in (f"{SID}/1.1.1", f"{SID}/1.1.2"):
        assert sessions.current_view(child).turns[0]["status"] in {"timeout", "error"}
        assert made.interrupted(child) is None
