"""Agents whose sessions are on a server: a killed one is resumed, and repeats nothing."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from agent_child import PARTS, SID, TASK, agent
from served_streams import Served

import fourfold
from fourfold.errors import ReplayMismatch
from fourfold.models.sessions.runtime import Final, Runtime

SCRIPT = Path(__file__).with_name("agent_child.py")


def run_until_stuck(url, effects, stuck_at):
    """Start the agent in a process, and kill it in the middle of a turn."""
    arguments = [sys.executable, str(SCRIPT), url, str(effects), str(stuck_at)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline()
        process.kill()
        assert (line, process.wait()) == ("stuck\n", -9)


def test_agent_killed_in_the_middle_of_its_turn_is_resumed(tmp_path):
    served, effects = Served(tmp_path / "store", long_poll="1"), tmp_path / "effects"
    url = f"http://127.0.0.1:{served.port}"
    try:
        run_until_stuck(url, effects, 3)
        # The server dies as well, and nothing that was recorded is lost.
        served.kill()
        served.start()
        with fourfold.connect(url) as store:
            runtime = agent(store.sessions, effects)
            assert runtime.interrupted(SID) == 1
            result = runtime.resume(SID)
            assert (result.status, result.value) == ("final", [602] * PARTS)
            assert runtime.interrupted(SID) is runtime.resume(SID) is None
            # Only the effect that was not recorded happened twice.
            assert effects.read_text().split() == ["1", "2", "3", "3", "4"]
            again = runtime.run_turn(SID, TASK, key="first")
            assert (again.value, again.head) == (result.value, result.head)
            with pytest.raises(ReplayMismatch):
                runtime.run_turn(SID, "another task", key="first")
            assert len(runtime.vars(SID)["parts"]) == PARTS
            assert [message["role"] for message in runtime.messages(SID)] == [
                "user",
                *["assistant"] * PARTS,
            ]
    finally:
        served.kill()
    # The folder has the session of a local agent.
    with fourfold.open(tmp_path / "store") as store:
        assert store.sessions.verify() == []
        assert agent(store.sessions, effects).vars(SID)["parts"][0].startswith("1 ")


def test_runtime_runs_same_turns_on_folder_and_on_server(store, tmp_path):
    result = agent(store.sessions, tmp_path / "effects").run_turn(SID, TASK)
    assert (result.status, result.value) == ("final", [602] * PARTS)
    view = store.sessions.current_view(SID)
    assert [(step["number"], step["status"]) for step in view.steps] == [
        (number, "done") for number in range(1, PARTS + 1)
    ]
    assert [head.kind for head in view.heads] == ["turn-final"]
    assert len(store.sessions.lineage(SID)) == PARTS
    forked = Runtime(store.sessions, lambda turn: Final(turn.vars["parts"][-1][0]))
    assert forked.attach(result.head, "the last?", sid="remote/fork").value == str(PARTS)


def test_step_that_is_a_coroutine_runs_on_a_server(served, name):
    async def step(turn):
        turn.vars["x"] = await turn.call("double", lambda n: 2 * n, 21)
        return Final(turn.vars["x"])

    with fourfold.connect(f"http://127.0.0.1:{served.port}") as store:
        runtime = Runtime(store.sessions, step)
        runtime.start({"id": name})
        assert asyncio.run(runtime.run_turn_async(name, "go")).value == 42
