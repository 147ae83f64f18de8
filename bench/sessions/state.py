"""State that grows or changes: 800 bytes a turn, as messages, files of a dict, a text, or one task
of a plan. Each runs through a graph of two nodes, on one checkpointer or another.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Annotated, Any

from typing_extensions import TypedDict

import fourfold
from bench.measurement import cpu_seconds
from bench.sessions.conversation import words
from bench.sessions.task import Run

SHAPES = ("messages", "files", "text", "plan")
_TASKS = 100


def _merge(before: dict[str, str] | None, added: dict[str, str] | None) -> dict[str, str]:
    return {**(before or {}), **(added or {})}


def _change(shape: str, state: Any, answers: list[str]) -> dict[str, Any]:
    """Return what a node writes in one turn."""
    from langchain_core.messages import AIMessage

    turn = state.get("count", 0)
    text = answers[turn]
    if shape == "messages":
        return {"messages": [AIMessage(text)]}
    if shape == "files":
        return {"files": {f"file {turn}": text}}
    if shape == "text":
        return {"text": state.get("text", "") + text}
    plan = state.get("plan") or [{"task": answers[0][:60], "status": ""} for _ in range(_TASKS)]
    changed = {"task": plan[turn % _TASKS]["task"], "status": f"done in turn {turn}"}
    return {"plan": [changed if at == turn % _TASKS else task for at, task in enumerate(plan)]}


def _graph(saver: Any, shape: str, count: int) -> Any:
    from langgraph.graph import END, START, StateGraph
    from langgraph.graph.message import add_messages

    answers = [answer for _, answer in words(count)]
    typed: Any = TypedDict
    fields = {"text": str, "plan": list, "count": int, "turn": int}
    lists = {"messages": Annotated[list, add_messages], "files": Annotated[dict, _merge]}
    builder: Any = StateGraph(typed("state", {**lists, **fields}))
    builder.add_node("work", lambda state: _change(shape, state, answers))
    builder.add_node("count", lambda state: {"count": state.get("count", 0) + 1})
    builder.add_edge(START, "work")
    builder.add_edge("work", "count")
    builder.add_edge("count", END)
    return builder.compile(checkpointer=saver)


def state(run: Run, folder: Path) -> dict[str, float]:
    """Run the turns, close everything, and read the state with a new checkpointer."""
    from langchain_core.messages import HumanMessage

    _, kind, shape = run.form.split()
    config: Any = {"configurable": {"thread_id": "state"}}
    with _saver(kind, folder) as saver:
        graph = _graph(saver, shape, run.count)
        before = cpu_seconds()
        for turn, (question, _) in enumerate(words(run.count)):
            asked = {"messages": [HumanMessage(question)]} if shape == "messages" else {}
            graph.invoke({"turn": turn, **asked}, config)
        seconds = cpu_seconds() - before
        expected = graph.get_state(config).values
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    with _saver(kind, folder) as saver:
        graph = _graph(saver, shape, run.count)
        before = cpu_seconds()
        found = graph.get_state(config).values
        cold = cpu_seconds() - before
        if found != expected:
            raise AssertionError("the state is not what was written")
    return {"cpu": seconds, "bytes": float(sum(sizes)), "cold_ms": cold * 1e3}


@contextmanager
def _saver(kind: str, folder: Path) -> Iterator[Any]:
    if kind == "fourfold":
        from fourfold.adapters.langgraph import FourfoldSaver

        with fourfold.open(folder / "store", settings={"sessions.synchronous": "FULL"}) as store:
            yield FourfoldSaver(store.sessions)
        return
    from langgraph.checkpoint.sqlite import SqliteSaver

    connection = sqlite3.connect(folder / "checkpoints.sqlite", check_same_thread=False)
    saver = SqliteSaver(connection)
    saver.setup()
    connection.execute("PRAGMA synchronous = FULL")
    yield saver
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def items(run: Run, folder: Path) -> dict[str, float]:
    """A conversation of the OpenAI Agents SDK: each turn reads all items and adds two."""
    said = words(run.count)

    async def talk(session: Any) -> dict[str, float]:
        reading: list[float] = []
        for question, answer in said:
            before = time.process_time()
            await session.get_items()
            reading.append(time.process_time() - before)
            user, assistant = ("user", question), ("assistant", answer)
            pair = [{"role": role, "content": text} for role, text in (user, assistant)]
            await session.add_items(pair)
        if len(await session.get_items()) != 2 * run.count:
            raise AssertionError("items are missing")
        return {"cpu": sum(reading), "last_ms": median(reading[-9:]) * 1e3}

    if run.form == "read fourfold":
        from fourfold.adapters.openai_agents import AgentsSession

        with fourfold.open(folder / "store", settings={"sessions.synchronous": "FULL"}) as store:
            return asyncio.run(talk(AgentsSession("conversation", store.sessions)))
    from agents import SQLiteSession

    session = SQLiteSession("conversation", folder / "items.sqlite")
    found = asyncio.run(talk(session))
    session.close()
    return found
