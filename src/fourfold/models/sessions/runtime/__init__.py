"""A small runtime over the session store: turns, outcomes, variables, children, compaction.

    runtime = Runtime(sessions, step)
    runtime.start({"id": "research", "model": "any"})
    runtime.run_turn("research", "What is a fold?").value

You provide the step function, and with it the model and the tools. Everything that it receives and
returns is recorded before it continues, so after a process was killed at any point, another one can
resume from there.
"""

from __future__ import annotations

from fourfold.models.sessions.runtime.records import Final, Question, Retry, TurnResult
from fourfold.models.sessions.runtime.runtime import Runtime
from fourfold.models.sessions.runtime.turn import AsyncTurn, Turn
from fourfold.models.sessions.runtime.variables import Vars

__all__ = ["AsyncTurn", "Final", "Question", "Retry", "Runtime", "Turn", "TurnResult", "Vars"]
