"""Agents that run in a process of their own, until they are done or killed.

research ROOT        the scenario of a research agent: two turns, then a third that never ends
several ROOT EFFECTS  a program of several turns; each real effect is a line of the file EFFECTS
waiting ROOT EFFECTS  a turn with retries, timers, a child that sleeps, and two signals
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import fourfold
from fourfold.models.sessions import Sessions
from fourfold.models.sessions.runtime import Final, Retry, Runtime
from support.crash import acknowledge

SID = "research"
CORPUS = "All that is known about folds. " * 100_000


def research_step(turn):
    """A scripted model: what it does follows from the task."""
    if turn.task == "define":
        turn.vars["corpus"] = CORPUS
        return Final("defined")
    if turn.task == "split":
        results = turn.map_children([f"part {n}" for n in range(12)], step=lane_step)
        turn.use(tokens=7)
        turn.vars["answers"] = [None if each.failed else each.value for each in results]
        return Final([each.status for each in results])
    if turn.task == "never ends":
        turn.vars["corpus"] = "half an idea"
        if turn.number == 1:
            return None
        acknowledge("waiting")
        sys.stdin.read()
    return Final([turn.task, len(turn.vars["corpus"])])


def lane_step(turn):
    turn.use(tokens=100)
    if turn.task == "part 4":
        raise RuntimeError("lane 4 fails")
    if turn.task == "part 9":
        return Final(turn.run_child("inner", step=lambda turn: Final("from the inside")).value)
    return Final(turn.task.upper())


def research(root):
    store = fourfold.open(root)
    heard = []
    runtime = Runtime(store.sessions, research_step)
    runtime.start({"id": SID, "model": "scripted", "capability": ["read", "write"]})
    subscription = store.sessions.subscribe(SID, heard.append, after=0)
    for task in ("define", "split"):
        acknowledge(f"{runtime.run_turn(SID, task).head}")
    events = store.sessions.events_since(SID, 0)
    while subscription.cursor < events[-1].id:
        pass
    assert [event.id for event in heard] == list(range(1, len(events) + 1))
    acknowledge(f"{len(events)} {events[-1].digest.hex()}")
    sys.stdin.readline()
    runtime.run_turn(SID, "never ends")


def several_step(effects):
    def effect(name):
        with Path(effects).open("a", encoding="utf-8") as file:
            file.write(f"{name}\n")
        return f"{name} {'.' * 600}"

    def step(turn):
        name = f"{turn.session} {turn.id}.{turn.number}"
        turn.vars[name] = turn.call("effect", effect, name)
        turn.say("assistant", name)
        if turn.number < 2:
            return None
        if "/" not in turn.session:
            turn.map_children(["a", "b"])
        return Final(sorted(turn.vars))

    return step


def several(sessions, effects):
    runtime = Runtime(sessions, several_step(effects), summarize=lambda messages: "so far, so good")
    runtime.start({"id": SID, "model": "scripted"})
    for number in range(3):
        yield runtime.run_turn(SID, f"task {number}", key=f"turn {number}")
    if sessions.current_view(SID).compact_from_event_id is None:
        runtime.compact(SID)
    yield runtime.run_turn(SID, "last", key="last")


def waiting_step(effects):
    def effect(name):
        with Path(effects).open("a", encoding="utf-8") as file:
            file.write(f"{name}\n")
        return name

    def flaky():
        effect("flaky")
        if Path(effects).read_text(encoding="utf-8").count("flaky") < 3:
            raise OSError("not yet")
        return "flaky"

    def child(turn):
        turn.sleep(0.005)
        return Final(turn.call("child", effect, "child"))

    def step(turn):
        values = [turn.call("flaky", flaky, retry=Retry(100, delay_s=0.002, delay_max_s=0.01))]
        turn.sleep(0.01)
        values.append(turn.call("slept", effect, "slept"))
        values.append(turn.run_child("child", step=child).value)
        values += [turn.wait_signal("go"), turn.wait_signal("go", timeout_s=1_000)]
        return Final(values)

    return step


def waiting(sessions, effects):
    runtime = Runtime(sessions, waiting_step(effects), suspend_after_s=0)
    runtime.start({"id": SID, "model": "scripted"})
    for number in range(2):
        runtime.signal(SID, "go", number, key=f"signal {number}")
    result = runtime.run_turn(SID, "wait", key="wait")
    while result.status == "suspended":
        [result] = runtime.run_due() or [result]
    return result


def undisturbed(effects):
    """The result of the program when it is not killed."""
    sessions = Sessions()
    results = list(several(sessions, effects))
    return sessions, results


if __name__ == "__main__":
    mode, root, *rest = sys.argv[1:]
    if mode == "research":
        research(root)
    else:
        with fourfold.open(root) as opened:
            if mode == "waiting":
                acknowledge(waiting(opened.sessions, rest[0]).status)
            for each in () if mode == "waiting" else several(opened.sessions, rest[0]):
                acknowledge(each.status)
        os.write(1, b"done\n")
