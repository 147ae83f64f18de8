"""Others that keep conversations or events, each as its users call it, with its defaults."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import uuid4

import fourfold
from bench.sessions import child
from bench.sessions.lines import BATCH
from bench.sessions.task import Run


def _items(run: Run) -> list[list[dict[str, str]]]:
    """The items of each call: a question of 200 bytes, an answer of 800, and so on."""
    together = int(run.form.split()[2])
    listed = []
    for number in range(run.count):
        answer = number % 2
        role = "assistant" if answer else "user"
        listed.append({"role": role, "content": f"{number:08d}" * (100 if answer else 25)})
    return [listed[at : at + together] for at in range(0, len(listed), together)]


def _added(session: Any, calls: list[list[dict[str, str]]], run: Run) -> dict[str, float]:
    async def add() -> None:
        for items in calls:
            await session.add_items(items)

    found = child.timed(lambda: asyncio.run(add()), run.count)
    if len(asyncio.run(session.get_items())) != run.count:
        raise AssertionError("items are missing")
    return found


def agents(run: Run, folder: Path) -> dict[str, float]:
    from fourfold.adapters.openai_agents import AgentsSession

    with fourfold.open(folder / "store", settings=child.FULL) as store:
        return _added(AgentsSession("conversation", store.sessions), _items(run), run)


def sqlite_session(run: Run, folder: Path) -> dict[str, float]:
    from agents import SQLiteSession

    session = SQLiteSession("conversation", folder / "items.sqlite")
    found = _added(session, _items(run), run)
    session.close()
    return found


def recorder(run: Run, folder: Path) -> dict[str, float]:
    """The application recorder, which like ours has an order over all logs. It takes bytes: made
    by its own transcoder while the clock runs, or, in the runs that say so, ready before.
    """
    from eventsourcing.persistence import JSONTranscoder, StoredEvent
    from eventsourcing.sqlite import SQLiteApplicationRecorder, SQLiteDatastore

    store = SQLiteApplicationRecorder(SQLiteDatastore(str(folder / "events.sqlite")))
    store.create_table()
    log = uuid4()
    encode = JSONTranscoder().encode
    messages = [child.event(number, run.size)["message"] for number in range(run.count)]
    _, form, *ready = run.form.split()
    together = 1 if form == "single" else BATCH

    def stored(at: int) -> list[Any]:
        part = enumerate(messages[at : at + together], start=at)
        return [StoredEvent(log, number, "message", encode(each)) for number, each in part]

    starts = range(0, run.count, together)
    prepared = [stored(at) for at in starts] if ready else None

    def insert() -> None:
        for number, at in enumerate(starts):
            store.insert_events(stored(at) if prepared is None else prepared[number])

    found = child.timed(insert, run.count)
    if len(store.select_events(log)) != run.count:
        raise AssertionError("events are missing")
    return found
