"""One run, in a process of its own: `python -m bench.sessions.child TASK` prints what it found."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

import fourfold
from bench.measurement import cpu_seconds
from bench.sessions import conversation, limit, peers, state
from bench.sessions.lines import BATCH
from bench.sessions.task import Found, Run, Task

CALLERS = 64
FULL = {"sessions.synchronous": "FULL"}


def event(number: int, size: int) -> dict[str, Any]:
    """A message whose event has about `size` bytes."""
    content = f"{number:08d}" * (max(8, size - 50) // 8)
    return {"type": "message/appended", "message": {"role": "user", "content": content}}


def timed(work: Callable[[], object], operations: int) -> dict[str, float]:
    gc.collect()
    gc.freeze()
    before = time.perf_counter()
    work()
    seconds = time.perf_counter() - before
    return {"rate": operations / seconds, "us": seconds / operations * 1e6}


def appends(run: Run, folder: Path) -> dict[str, float]:
    """Our own: one by one, in batches, or from coroutines that share their commits."""
    with fourfold.open(folder / "store", settings=FULL) as store:
        sessions = store.sessions
        sessions.create_session({"id": "s"})
        events = [event(number, run.size) for number in range(run.count)]

        def single() -> None:
            for each in events:
                sessions.append_event("s", each)

        def batched() -> None:
            for at in range(0, len(events), BATCH):
                sessions.append_events("s", events[at : at + BATCH])

        async def crowd() -> None:
            waiting = iter(events)

            async def caller() -> None:
                for each in waiting:
                    await sessions.append_event_async("s", each)

            await asyncio.gather(*(caller() for _ in range(CALLERS)))

        forms = {"single": single, "batch": batched, "coroutines": lambda: asyncio.run(crowd())}
        found = timed(forms[run.form], run.count)
        if sessions.peek_next_id("s") != run.count + 1:
            raise AssertionError("events are missing")
        return found


def reopen(run: Run, folder: Path) -> dict[str, float]:
    """Open the store for reading, and look at the session; nothing is in memory yet."""
    taken = []
    for _ in range(run.count):
        before = time.perf_counter()
        with fourfold.open(folder, mode="r") as store:
            assert store.sessions.current_view("s").counters.event > 0
        taken.append(time.perf_counter() - before)
    return {"us": median(taken) * 1e6}


def views(run: Run, folder: Path) -> dict[str, float]:
    mode = "rw" if run.form == "view" else "r"
    with fourfold.open(folder, mode=mode) as store:
        sessions = store.sessions
        sessions.current_view("s")

        def look() -> None:
            for _ in range(run.count):
                assert sessions.current_view("s").counters.event

        def last() -> None:
            for _ in range(run.count):
                assert sessions.current_view("s").messages[-1]

        return timed(last if run.form == "last message" else look, run.count)


def form_of(run: Run) -> Callable[[Run, Path], dict[str, float]]:
    kind = run.form.split()[0]
    if kind in {"single", "batch", "coroutines"}:
        return appends
    if kind in {"view", "last"}:
        return views
    forms: dict[str, Callable[[Run, Path], dict[str, float]]] = {
        "kernel": limit.kernel,
        "reopen": reopen,
        "talk": conversation.talk,
        "agents": peers.agents,
        "sqlitesession": peers.sqlite_session,
        "eventsourcing": peers.recorder,
        "state": state.state,
        "read": state.items,
    }
    return forms[kind]


def main() -> None:
    task = msgspec.json.decode(sys.argv[1], type=Task)
    cpu = cpu_seconds()
    try:
        figures = form_of(task.run)(task.run, Path(task.folder))
        found = Found(figures, cpu_seconds() - cpu)
    except ImportError as error:
        found = Found({}, 0.0, f"not installed: {error.name or error}")
    sys.stdout.write(msgspec.json.encode(found).decode() + "\n")


if __name__ == "__main__":
    main()
