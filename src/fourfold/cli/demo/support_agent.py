"""A support agent with a scripted model: one process is killed in its turn, another resumes it.

    python -m fourfold.cli.demo.support_agent URL

runs the turn over HTTP and hangs in the last call of the model until it is killed. It prints the
name of each call before it makes it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, Final, cast

from fourfold.cli.demo.check import expect
from fourfold.cli.demo.shop import DID, ORDER, SESSION
from fourfold.client import RemoteStore, connect
from fourfold.models.sessions import Sessions
from fourfold.models.sessions.runtime import Final as FinalAnswer
from fourfold.models.sessions.runtime import Runtime, Turn

TASK: Final = "Where is my order 1042, and is the blue cup still in stock?"
CALLS: Final = ("model.plan", "tool.read_order", "model.next", "tool.read_stock", "model.answer")
STUCK: Final = "model.answer"
_TOKENS: Final = {"model.plan": 412, "model.next": 530, "model.answer": 655}
_THINKING_S: Final = 3_600.0

Call = Callable[..., Any]


def make_agent(
    store: RemoteStore, report: Callable[[str], object], *, stuck_at: str = ""
) -> Runtime:
    """Return an agent that reports each call before it makes it."""
    space = store.space(DID)

    def call(turn: Turn, name: str, function: Call, *args: Any) -> Any:
        def reported(*values: Any) -> Any:
            report(name)
            if name == stuck_at:
                time.sleep(_THINKING_S)
            return function(*values)

        result = turn.call(name, reported, *args)
        turn.use(tokens=_TOKENS.get(name, 0))
        return result

    def step(turn: Turn) -> FinalAnswer | None:
        if turn.number == 1:
            plan = call(turn, "model.plan", lambda: {"tool": "read_order", "id": ORDER})
            turn.say("assistant", f"I look up {plan['id']}.")
            turn.vars["order"] = call(turn, "tool.read_order", lambda: space[ORDER])
            return None
        if turn.number == 2:
            plan = call(turn, "model.next", lambda: {"tool": "read_stock", "id": "sku:cup-7"})
            turn.vars["stock"] = call(turn, "tool.read_stock", lambda: space[plan["id"]]["stock"])
            return None
        order, stock = turn.vars["order"], turn.vars["stock"]
        answer = call(
            turn,
            "model.answer",
            lambda: f"Your order is {order['status']}, and {stock} blue cups are in stock.",
        )
        turn.say("assistant", answer)
        return FinalAnswer(answer)

    # Sessions of a server have the methods of `Sessions` that the runtime calls.
    runtime = Runtime(cast("Sessions", store.sessions), step)
    runtime.start({"id": SESSION, "model": "scripted", "title": "Order 1042"})
    return runtime


def kill_and_resume(store: RemoteStore, url: str) -> tuple[list[str], dict[str, object]]:
    """Kill a process in the middle of its turn, and resume the turn in this one."""
    child = subprocess.Popen(
        [sys.executable, "-m", "fourfold.cli.demo.support_agent", url],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    first = [child.stdout.readline().strip() for _ in CALLS]
    os.kill(child.pid, signal.SIGKILL)
    child.stdout.close()
    child.wait()
    expect("calls before the kill", first, list(CALLS))
    again: list[str] = []
    agent = make_agent(store, again.append)
    turn_id = agent.interrupted(SESSION)
    expect("interrupted turn", turn_id, 1)
    result = agent.resume(SESSION)
    assert result is not None
    expect("calls after the kill", again, [STUCK])
    expect("outcome of the turn", result.status, "final")
    view = store.sessions.current_view(SESSION)
    tokens = sum(_TOKENS.values())
    expect("tokens of the turn", view.turns[0]["usage"]["tokens"], tokens)
    lines = [
        f"process {child.pid} made {len(first)} calls and got SIGKILL in the last one",
        f"this process resumed turn {turn_id}: {len(first) - 1} calls were recorded, 1 was made",
        f"{len(view.events)} events, {len(view.evals)} calls, {tokens:,} tokens (a scripted model)",
        f"answer: {result.value}",
    ]
    facts: dict[str, object] = {
        "calls": len(first),
        "repeated": again,
        "status": result.status,
        "answer": result.value,
        "tokens": tokens,
    }
    return lines, facts


def _print(name: str) -> None:
    sys.stdout.write(f"{name}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    with connect(sys.argv[1]) as connected:
        make_agent(connected, _print, stuck_at=STUCK).run_turn(SESSION, TASK)
