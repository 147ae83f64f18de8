"""Timers, signals and retries of turns: recorded once, whichever process goes on."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from fourfold.errors import CallFailed, InvalidInput
from fourfold.models.sessions.runtime import Final, Retry, Runtime

START = datetime(2026, 3, 1, tzinfo=UTC)


class Clock:
    """A clock that a test moves."""

    def __init__(self):
        self.now = START

    def __call__(self):
        return self.now

    def advance(self, seconds):
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def runtime(sessions, clock):
    def make(step, **options):
        options = {"suspend_after_s": 0.0, **options}
        made = Runtime(sessions, step, now=clock, **options)
        made.start({"id": "s"})
        return made

    return make


def types(sessions, sid="s"):
    return [event.type for event in sessions.events(sid)]


def test_long_sleep_suspends_the_turn_until_it_is_due(runtime, sessions, clock):
    calls = []

    def step(turn):
        turn.call("before", lambda: calls.append("before"))
        turn.sleep(3_600)
        turn.call("after", lambda: calls.append("after"))
        return Final("slept")

    first = runtime(step)
    result = first.run_turn("s", "sleep", key="k")
    assert (result.status, result.due_at, result.failed) == (
        *("suspended", "2026-03-01T01:00:00.000Z", False),
    )
    assert sessions.info("s").turn_status == "suspended"
    assert sessions.list_leases() == []
    clock.advance(3_599)
    other = runtime(step)
    assert other.run_due() == []
    assert other.resume("s").status == "suspended"
    assert types(sessions).count("turn/put") == 1
    clock.advance(1)
    assert [result.value for result in other.run_due()] == ["slept"]
    assert calls == ["before", "after"]
    assert other.run_due() == []
    assert other.run_turn("s", "sleep", key="k").value == "slept"
    assert types(sessions).count("timer/set") == 1
    assert sessions.verify() == []


def test_short_sleep_keeps_the_worker(sessions):
    made = Runtime(sessions, lambda turn: turn.sleep(0.01) or Final(turn.number))
    made.start({"id": "s"})
    assert made.run_turn("s", "x").value == 1
    assert types(sessions).count("turn/put") == 1


def test_sleep_does_not_outlast_the_time_of_the_turn(sessions):
    times = iter([0.0, 0.0, 0.0, 0.995])
    made = Runtime(
        sessions,
        lambda turn: turn.sleep(4),
        timeout_s=1,
        clock=lambda: next(times, 2.0),
    )
    made.start({"id": "s"})
    assert made.run_turn("s", "x").status == "timeout"


def test_signal_is_received_once_by_the_turn_that_waits(runtime, sessions, clock):
    def step(turn):
        first, second = turn.wait_signal("paid"), turn.wait_signal("paid")
        return Final([first, second])

    made = runtime(step)
    made.signal("s", "paid", {"amount": 1, "note": "x" * 1_000})
    result = made.run_turn("s", "wait")
    assert (result.status, result.signal, result.due_at) == ("suspended", "paid", None)
    made.signal("s", "other")
    assert made.run_due() == []
    assert made.signal("s", "paid", 2, key="again") == made.signal("s", "paid", 2, key="again")
    [result] = runtime(step).run_due()
    assert result.value == [{"amount": 1, "note": "x" * 1_000}, 2]
    # Received signals are not for the next turn.
    assert made.run_turn("s", "wait").status == "suspended"


def test_wait_for_a_signal_ends_after_its_time(runtime, clock):
    made = runtime(lambda turn: Final(turn.wait_signal("paid", timeout_s=60, default="no one")))
    result = made.run_turn("s", "wait")
    assert (result.signal, result.due_at) == ("paid", "2026-03-01T00:01:00.000Z")
    clock.advance(60)
    assert [result.value for result in made.run_due()] == ["no one"]


def test_call_is_repeated_with_backoff_until_it_returns(runtime, sessions, clock):
    times = []

    def flaky():
        times.append((clock.now - START).total_seconds())
        if len(times) < 4:
            raise OSError(f"try {len(times)}")
        return "done"

    def step(turn):
        return Final(turn.call("flaky", flaky, retry=Retry(5, delay_s=10, delay_max_s=30)))

    made = runtime(step)
    result = made.run_turn("s", "x")
    while result.status == "suspended":
        clock.now = datetime.fromisoformat(result.due_at)
        [result] = runtime(step).run_due()
    assert result.value == "done"
    assert times == [0, 10, 30, 60]
    failed = [event.data["attempt"] for event in sessions.events("s") if "attempt" in event.data]
    assert [(each["number"], each["error"]["message"]) for each in failed] == [
        (1, "try 1"),
        (2, "try 2"),
        (3, "try 3"),
    ]
    [call] = sessions.current_view("s").evals
    assert (call["status"], call["attempts"]) == ("ok", 4)


def test_call_fails_after_its_last_attempt_or_another_error(runtime, sessions):
    calls = []

    def broken(error):
        calls.append(error)
        raise error

    def step(turn):
        retry = Retry(3, delay_s=0, on=(OSError,))
        with pytest.raises(CallFailed, match="last"):
            turn.call("one", broken, OSError("last"), retry=retry)
        with pytest.raises(CallFailed, match="KeyError"):
            turn.call("two", broken, KeyError("x"), retry=retry)
        return Final(None)

    assert runtime(step).run_turn("s", "x").status == "final"
    assert [type(error) for error in calls] == [OSError] * 3 + [KeyError]
    assert [call.get("attempts") for call in sessions.current_view("s").evals] == [3, None]


def test_parent_is_suspended_with_its_children(runtime, sessions, clock):
    def child(turn):
        if turn.task:
            turn.sleep(turn.task)
        return Final(turn.task)

    def step(turn):
        results = turn.map_children([0, 60, 120], step=child)
        return Final([result.value for result in results])

    made = runtime(step)
    assert made.run_turn("s", "x").status == "suspended"
    assert made.run_due() == []
    clock.advance(60)
    assert [result.status for result in made.run_due()] == ["suspended"]
    clock.advance(60)
    assert [result.value for result in made.run_due()] == [[0, 60, 120]]
    assert len(sessions.lineage("s")) == 3


def test_coroutines_sleep_wait_and_retry(sessions, clock):
    async def fail():
        raise OSError("no")

    async def step(turn):
        await turn.sleep(60)
        with pytest.raises(CallFailed):
            await turn.call("fail", fail, retry=Retry(2, delay_s=0))
        return Final(await turn.wait_signal("go"))

    made = Runtime(sessions, step, now=clock, suspend_after_s=0)
    made.start({"id": "s"})

    async def main():
        assert (await made.run_turn_async("s", "x")).status == "suspended"
        clock.advance(60)
        assert [r.signal for r in await made.run_due_async()] == ["go"]
        assert await made.run_due_async() == []
        await made.signal_async("s", "go", 7)
        return await made.run_due_async()

    assert [result.value for result in asyncio.run(main())] == [7]


def test_new_turn_and_abandon_end_a_suspended_one(runtime, sessions):
    made = runtime(lambda turn: turn.sleep(60) if turn.task == "sleep" else Final("awake"))
    made.run_turn("s", "sleep")
    assert made.run_turn("s", "other").value == "awake"
    first = sessions.current_view("s").turns[0]
    assert (first["status"], "due_at" in first) == ("error", False)
    made.run_turn("s", "sleep")
    assert made.abandon("s") == 3
    assert made.run_due() == []


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        (lambda turn: turn.sleep(-1), "seconds must be a number"),
        (lambda turn: turn.sleep(1e12), "seconds must be a number"),
        (lambda turn: turn.wait_signal(""), "a signal has a name"),
        (lambda turn: Retry(0), "attempts must be at least 1"),
        (lambda turn: Retry(on=(KeyboardInterrupt,)), "on must be a tuple of exception"),
    ],
)
def test_invalid_waits_are_errors_of_the_turn(runtime, step, problem):
    result = runtime(step).run_turn("s", "x")
    assert result.status == "error"
    assert problem in result.error["message"]


def test_signal_without_a_name_is_refused(runtime):
    with pytest.raises(InvalidInput, match="a signal has a name"):
        runtime(lambda turn: Final(None)).signal("s", "")


def test_step_that_sleeps_differently_is_refused(runtime, clock):
    first = runtime(lambda turn: turn.sleep(60))
    first.run_turn("s", "x")
    clock.advance(60)
    result = runtime(lambda turn: turn.sleep(61)).resume("s")
    assert result.error["type"] == "replay_mismatch"
