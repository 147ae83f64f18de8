"""An agent with a scripted model; its state is in its session, so any process can run it."""

from __future__ import annotations

import time
from collections.abc import Callable

from fourfold.models.sessions import Sessions
from fourfold.models.sessions.runtime import Final, Runtime, Turn

SID = "demo/agent"
TASK = "explain folds in four parts"
_PARTS = 4
_THINKING_S = 3600.0


def agent(sessions: Sessions, report: Callable[[str], object], *, stuck_at: int = 0) -> Runtime:
    """Return an agent that sends its model one question a step, and reports each one first."""

    def model(number: int) -> str:
        report(f"part {number}")
        if number == stuck_at:
            time.sleep(_THINKING_S)
        return f"part {number} of {_PARTS}"

    def step(turn: Turn) -> Final | None:
        answer = turn.call("model", model, turn.number)
        turn.vars["parts"] = [*turn.vars.get("parts", []), answer]
        turn.say("assistant", answer)
        if turn.number < _PARTS:
            return None
        checked = turn.map_children(turn.vars["parts"], step=check)
        return Final([result.value for result in checked])

    runtime = Runtime(sessions, step)
    runtime.start({"id": SID, "model": "scripted"})
    return runtime


def check(turn: Turn) -> Final:
    """Return the length of the task, as a child agent."""
    return Final(len(turn.task))


def last_word(turn: Turn) -> Final:
    """Return the last part that was recorded."""
    return Final(turn.vars["parts"][-1])
