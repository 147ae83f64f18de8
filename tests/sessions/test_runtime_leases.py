"""Turns under leases: claimed, renewed, released, lost, and taken over from dead processes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time

import pytest

from fourfold.errors import AlreadyClaimed, InvalidInput, LeaseLost
from fourfold.models.sessions.runtime import Final, Runtime
from fourfold.models.sessions.runtime.ownership import running_of

SID = "agent"


@pytest.fixture
def agent(sessions):
    def make(step, **options):
        made = Runtime(sessions, step, **options)
        made.start({"id": SID, "ownership": "required"})
        return made

    return make


@pytest.fixture(scope="module")
def dead_process():
    done = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
    )
    return int(done.stdout)


def test_turn_runs_under_a_lease_that_is_released(sessions, agent):
    leases = []

    def step(turn):
        leases.append(sessions.find_lease(SID))
        turn.run_child("inner", step=lambda child: Final(child.task))
        return Final("done")

    runtime = agent(step)
    for _ in range(2):
        assert runtime.run_turn(SID, "go").status == "final"
    first, second = leases
    assert first.holder.split("/")[1] == str(os.getpid())
    assert second.epoch > first.epoch
    assert sessions.list_leases() == []


def test_turn_is_refused_while_another_worker_has_the_session(sessions, agent):
    runtime = agent(lambda turn: Final("done"))
    other = sessions.claim(SID, "another worker", 60)
    for call in (
        lambda: runtime.run_turn(SID, "go"),
        lambda: runtime.resume(SID),
        lambda: runtime.abandon(SID),
    ):
        with pytest.raises(AlreadyClaimed):
            call()
    assert sessions.find_lease(SID) == other
    sessions.release(SID, other.epoch)
    assert runtime.run_turn(SID, "go").value == "done"


@pytest.mark.parametrize("write", ["say", "call", "vars", "raise", "final"])
def test_turn_that_lost_its_lease_writes_nothing(sessions, agent, write):
    def step(turn):
        sessions.claim(SID, "another worker", steal=True)
        if write == "say":
            turn.say("assistant", "too late")
        elif write == "call":
            turn.call("model", lambda: "too late")
        elif write == "vars":
            turn.vars["x"] = "too late"
            return None
        elif write == "raise":
            raise ValueError
        return Final("too late")

    runtime = agent(step)
    with pytest.raises(LeaseLost):
        runtime.run_turn(SID, "go")
    view = sessions.current_view(SID)
    assert [event.type for event in sessions.events(SID)][1:] == [
        "message/appended",
        "turn/started",
        "step/started",
    ]
    assert view.current_head is None
    assert sessions.find_lease(SID).holder == "another worker"


def test_coroutine_that_lost_its_lease_writes_nothing(sessions, agent):
    async def step(turn):
        await sessions.claim_async(SID, "another worker", steal=True)
        await turn.say("assistant", "too late")
        return Final("too late")

    runtime = agent(step)
    with pytest.raises(LeaseLost):
        asyncio.run(runtime.run_turn_async(SID, "go"))
    assert len(sessions.events(SID)) == 4


def test_lease_is_renewed_while_the_turn_runs(sessions, agent):
    def step(_turn):
        claimed = sessions.find_lease(SID)
        while sessions.find_lease(SID) == claimed:
            time.sleep(0.005)
        return Final(sessions.find_lease(SID).epoch == claimed.epoch)

    assert agent(step, lease_s=0.05).run_turn(SID, "go").value is True


def test_lease_of_a_dead_process_is_taken_over_at_once(sessions, agent, dead_process):
    runtime = agent(lambda turn: Final("done"))
    machine = running_of(sessions).holder.split("/")[0]
    sessions.claim(SID, f"{machine}/{dead_process}/0", 3_600)
    assert runtime.run_turn(SID, "go").value == "done"
    for holder in (f"{machine}/{os.getppid()}/0", f"{machine}x/{dead_process}/0", "a/b/c", "a"):
        sessions.claim(SID, holder, 3_600, steal=True)
        with pytest.raises(AlreadyClaimed):
            runtime.run_turn(SID, "go")


def test_lease_that_this_process_left_is_taken_over_at_once(sessions, agent):
    runtime = agent(lambda turn: Final("done"))
    sessions.claim(SID, running_of(sessions).holder, 3_600)
    assert runtime.run_turn(SID, "go").value == "done"


def test_turn_of_dead_worker_is_resumed_after_its_newest_event(sessions, agent):
    calls = []

    def step(turn):
        calls.append(turn.call("look", lambda: len(calls)))
        if len(calls) == 1:
            raise KeyboardInterrupt
        return Final(calls[-1])

    runtime = agent(step)
    with pytest.raises(KeyboardInterrupt):
        runtime.run_turn(SID, "go")
    newest = sessions.current_view(SID).counters.event
    assert runtime.resume(SID).value == 0
    (resumption,) = sessions.resumptions(SID)
    assert resumption.after == newest
    assert resumption.holder == running_of(sessions).holder
    runtime.run_turn(SID, "again")
    assert sessions.resumptions(SID) == [resumption]


def test_invalid_lease_duration_is_refused(sessions):
    with pytest.raises(InvalidInput, match="ttl_s must be"):
        Runtime(sessions, lambda turn: Final(1), lease_s=0)
