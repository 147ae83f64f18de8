"""An agent over HTTP in a process of its own: agent_child.py URL EFFECTS STUCK_AT.

Each real effect is a line of the file EFFECTS. The effect STUCK_AT never returns; 0 is none.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import fourfold
from fourfold.models.sessions.runtime import Final, Runtime

SID, TASK, PARTS = "remote/agent", "explain folds", 4


def agent(sessions, effects, stuck_at=0):
    def model(number):
        with Path(effects).open("a", encoding="utf-8") as file:
            file.write(f"{number}\n")
        while number == stuck_at:
            print("stuck", flush=True)
            time.sleep(3600)
        return f"{number} {'.' * 600}"

    def step(turn):
        answer = turn.call("model", model, turn.number)
        turn.vars["parts"] = [*turn.vars.get("parts", []), answer]
        turn.emit({"token": turn.number})
        turn.say("assistant", answer)
        if turn.number < PARTS:
            return None
        checked = turn.map_children(turn.vars["parts"], step=lambda child: Final(len(child.task)))
        return Final([result.value for result in checked])

    runtime = Runtime(sessions, step)
    runtime.start({"id": SID, "model": "scripted"})
    return runtime


if __name__ == "__main__":
    url, effects, stuck_at = sys.argv[1:]
    with fourfold.connect(url) as store:
        agent(store.sessions, effects, int(stuck_at)).run_turn(SID, TASK, key="first")
