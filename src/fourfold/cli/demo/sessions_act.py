"""The demo's act on sessions: an agent is killed in the middle of a turn, and the next goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import fourfold
from fourfold.cli.demo.scripted_agent import SID, TASK, agent, last_word
from fourfold.models.sessions.runtime import Runtime

if TYPE_CHECKING:
    from fourfold.cli.demo.acts import Shown, Stage


def an_agent_is_killed_and_resumes(stage: Stage) -> Shown:
    """An agent is killed in the middle of its turn; the next process goes on from there."""
    child = subprocess.Popen(
        [sys.executable, "-m", "fourfold.cli.demo.killed_agent", str(stage.root)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    asked = [child.stdout.readline().strip() for _ in range(3)]
    os.kill(child.pid, signal.SIGKILL)
    child.stdout.close()
    child.wait()
    again: list[str] = []
    with fourfold.open(stage.root) as store:
        sessions = store.sessions
        runtime = agent(sessions, again.append)
        interrupted = runtime.interrupted(SID)
        result = runtime.run_turn(SID, TASK, key=TASK)
        recorded = len(sessions.current_view(SID).evals)
        children = len(sessions.current_view(SID).edges)
        assert result.head is not None
        fork = Runtime(sessions, last_word).attach(result.head, "what was last?", sid="demo/fork")
        sound = not sessions.verify()
    repeated = len(set(asked) & set(again))
    lines = [
        f"process {child.pid} asked its model {len(asked)} questions, then got SIGKILL",
        f"turn {interrupted} went on with {len(again)}, {repeated} of them the one that was open",
        f"one turn in the log, {recorded} answers, {children} children, {result.status}",
        f"a new session starts from its head and knows {fork.value!r}; sound: {sound}",
    ]
    facts: dict[str, object] = {
        "asked": len(asked),
        "repeated": repeated,
        "recorded": recorded,
        "status": result.status,
        "sound": sound,
    }
    return lines, facts
