"""Workers that run turns of sessions of a server, in processes of their own.

one URL SID NAME GO      one turn; its second step waits until the file GO exists
many URL PREFIX TURNS    turns of all sessions with a prefix, until each has so many
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

import fourfold
from fourfold.errors import AlreadyClaimed, FourfoldError, LeaseLost
from fourfold.models.sessions.runtime import Final, Runtime
from support.crash import acknowledge

KEY = "the turn"
LEASE_S = 1.0
PAUSE_S = 0.02


def one(url, sid, name, go):
    def step(turn):
        turn.say("assistant", turn.call("model", lambda: f"step {turn.number} by {name}"))
        if turn.number == 1:
            return None
        acknowledge("waiting")
        while not Path(go).exists():
            time.sleep(PAUSE_S)
        turn.vars["by"] = name
        turn.say("assistant", f"the end by {name}")
        return Final(name)

    with fourfold.connect(url) as store:
        runtime = Runtime(store.sessions, step, lease_s=LEASE_S)
        while True:
            try:
                acknowledge(runtime.run_turn(sid, "go", key=KEY).value)
            except AlreadyClaimed as error:
                time.sleep(error.retry_after)
                continue
            except FourfoldError as error:
                acknowledge(error.kind)
            return


def many(url, prefix, turns):
    def step(turn):
        turn.call("model", lambda: turn.number)
        if turn.number == 1:
            return None
        turn.vars["done"] = [*turn.vars.get("done", []), turn.task]
        return Final(turn.task)

    with fourfold.connect(url) as store:
        sessions = store.sessions
        runtime = Runtime(sessions, step, lease_s=LEASE_S)
        pending = [info.id for info in sessions.list(prefix=prefix)]
        while pending:
            sid = random.choice(pending)
            ended = [turn["status"] for turn in sessions.current_view(sid).turns].count("final")
            if ended == int(turns):
                pending.remove(sid)
                continue
            try:
                runtime.run_turn(sid, ended, key=f"turn {ended}")
            except (AlreadyClaimed, LeaseLost):
                time.sleep(PAUSE_S)
    acknowledge("done")


if __name__ == "__main__":
    {"one": one, "many": many}[sys.argv[1]](*sys.argv[2:])
