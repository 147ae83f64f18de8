"""The scripted conversation: 200 bytes of a user and 800 of an assistant a turn, through a graph of
two nodes and five channels, on one checkpointer or another. No model is asked.
"""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Annotated, Any

from typing_extensions import TypedDict

import fourfold
from bench.sessions.task import Run

SEED = 20_260_102
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def words(count: int) -> list[tuple[str, str]]:
    """Questions and answers of made-up words, the same in every run."""
    chance = random.Random(SEED)
    known = ["".join(chance.choices(_LETTERS, k=chance.randint(2, 9))) for _ in range(5_000)]

    def text(size: int) -> str:
        said = ""
        while len(said) < size:
            said += chance.choice(known) + " "
        return said[:size]

    return [(text(200), text(800)) for _ in range(count)]


def _joined(value: Any, writes: Any) -> list[Any]:
    return [*(value or []), *(each for write in writes for each in write)]


def _graph(saver: Any, said: list[tuple[str, str]], *, delta: bool) -> Any:
    from langchain_core.messages import AIMessage
    from langgraph.graph import END, START, StateGraph
    from langgraph.graph.message import add_messages

    channel: Any = add_messages
    if delta:
        from langgraph.channels.delta import DeltaChannel

        channel = DeltaChannel(_joined, snapshot_frequency=100)
    fields = {"count": int, "topic": str, "plan": str, "last": str}
    typed: Any = TypedDict  # Its fields are not known before it runs.
    state = typed("state", {"messages": Annotated[list, channel], **fields})

    def think(found: Any) -> Any:
        return {"count": found.get("count", 0) + 1, "plan": "answer", "topic": "words"}

    def answer(found: Any) -> Any:
        return {"messages": [AIMessage(said[found["count"] - 1][1])], "last": "answer"}

    builder: Any = StateGraph(state)
    builder.add_node("think", think)
    builder.add_node("answer", answer)
    builder.add_edge(START, "think")
    builder.add_edge("think", "answer")
    builder.add_edge("answer", END)
    return builder.compile(checkpointer=saver)


def talk(run: Run, folder: Path) -> dict[str, float]:
    kind = run.form.split()[1]
    said = words(run.count)
    if kind == "fourfold":
        store = fourfold.open(folder / "store", settings={"sessions.synchronous": "FULL"})
        from fourfold.adapters.langgraph import FourfoldSaver

        found = _talked(FourfoldSaver(store.sessions), said, delta=False)
        if problems := store.sessions.verify():
            raise AssertionError(problems)
        store.close()
    else:
        from langgraph.checkpoint.sqlite import SqliteSaver

        connection = sqlite3.connect(folder / "checkpoints.sqlite", check_same_thread=False)
        found = _talked(SqliteSaver(connection), said, delta=kind == "delta")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return {**found, "bytes": float(sum(sizes))}


def _talked(saver: Any, said: list[tuple[str, str]], *, delta: bool) -> dict[str, float]:
    from langchain_core.messages import HumanMessage

    graph = _graph(saver, said, delta=delta)
    config: Any = {"configurable": {"thread_id": "conversation"}}
    taken = []
    started = time.perf_counter()
    for question, _ in said:
        before = time.perf_counter()
        graph.invoke({"messages": [HumanMessage(question)]}, config)
        taken.append(time.perf_counter() - before)
    seconds = time.perf_counter() - started
    state = graph.get_state(config).values["messages"]
    if [m.content for m in state] != [text for turn in said for text in turn]:
        raise AssertionError("the conversation is not what was said")
    return {
        "seconds": seconds,
        "turn_10_ms": _window(taken, 10),
        "turn_100_ms": _window(taken, 100),
        "last_ms": _window(taken, len(taken)),
        "get_ms": _best(lambda: saver.get_tuple(config)) * 1e3,
    }


def _window(taken: list[float], turn: int) -> float:
    """The median of nine turns, the last of which is `turn`."""
    return median(taken[max(0, turn - 9) : turn] or taken) * 1e3


def _best(ask: Callable[[], object]) -> float:
    taken = []
    for _ in range(5):
        before = time.perf_counter()
        ask()
        taken.append(time.perf_counter() - before)
    return median(taken)
