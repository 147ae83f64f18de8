"""Workers that run turns of LangGraph threads on a server, in processes of their own.

one URL THREAD WORKER GO MODE      one turn; its second node waits until the file GO exists
many URL THREADS TURNS             turns of many threads, each claimed first, until each has so many

The mode is `claimed` if the worker claims the thread, else `free`.
"""

from __future__ import annotations

import operator
import random
import sys
import time
from pathlib import Path
from typing import Annotated, TypedDict

from langgraph.graph import START, StateGraph

import fourfold
from fourfold.adapters.langgraph import FourfoldSaver
from fourfold.errors import FourfoldError, LeaseLost
from support.crash import acknowledge

PAUSE_S = 0.02
LOSS_PAUSE_S_MAX = 3.0


class State(TypedDict):
    log: Annotated[list, operator.add]


def graph_of(saver, worker, work=lambda: None):
    """A graph of two nodes; the second one does `work`."""

    def second(_state):
        work()
        return {"log": [f"second by {worker}"]}

    builder = StateGraph(State)
    builder.add_node("first", lambda state: {"log": [f"first by {worker}"]})
    builder.add_node("second", second)
    builder.add_edge(START, "first")
    builder.add_edge("first", "second")
    return builder.compile(checkpointer=saver)


def config_of(thread):
    return {"configurable": {"thread_id": thread}}


def advance(graph, thread, turn):
    """Begin a turn of a thread, or go on with the one that another worker has left."""
    state = graph.get_state(config_of(thread))
    task = None if state.tasks else {"log": [f"turn {turn}"]}
    return graph.invoke(task, config_of(thread), durability="sync")["log"]


def one(url, thread, worker, go, mode):
    def work():
        acknowledge("waiting")
        while not Path(go).exists():
            time.sleep(PAUSE_S)

    with fourfold.connect(url) as store:
        saver = FourfoldSaver(store.sessions)
        if mode == "claimed":
            saver = saver.claim_write_ownership(thread)
        try:
            log = advance(graph_of(saver, worker, work), thread, 0)
        except FourfoldError as error:
            acknowledge(error.kind)
        else:
            acknowledge(log[-1].replace(" ", "-"))


def many(url, threads, turns):
    with fourfold.connect(url) as store:
        saver = FourfoldSaver(store.sessions)
        pending = [str(number) for number in range(int(threads))]
        losses = 0
        while pending:
            thread = random.choice(pending)
            try:
                owner = saver.claim_write_ownership(thread)
                graph = graph_of(owner, "any")
                state = graph.get_state(config_of(thread))
                done = [entry for entry in state.values.get("log", ()) if "turn" in entry]
                if len(done) == int(turns) and not state.tasks:
                    pending.remove(thread)
                else:
                    advance(graph, thread, len(done))
                losses = 0
            except LeaseLost:
                # A claim takes the thread from a worker at once: with equal pauses, none would end.
                losses += 1
                time.sleep(random.random() * min(LOSS_PAUSE_S_MAX, PAUSE_S * 2**losses))
    acknowledge("done")


if __name__ == "__main__":
    {"one": one, "many": many}[sys.argv[1]](*sys.argv[2:])
