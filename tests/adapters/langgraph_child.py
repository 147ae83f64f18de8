"""A process that runs turns of a graph until it is killed, and reports completed ones."""

from __future__ import annotations

import operator
import sys
from typing import Annotated, TypedDict

from langgraph.graph import END, START, StateGraph

import fourfold
from fourfold.adapters.langgraph import FourfoldSaver
from support.crash import acknowledge, ready


class State(TypedDict):
    notes: Annotated[list, operator.add]
    count: int


def think(state):
    return {"count": state["count"] + 1}


def answer(state):
    return {"notes": [{"answer": state["count"], "text": "y" * 600}]}


def graph(saver):
    builder = StateGraph(State)
    builder.add_node("think", think)
    builder.add_node("answer", answer)
    builder.add_edge(START, "think")
    builder.add_edge("think", "answer")
    builder.add_edge("answer", END)
    return builder.compile(checkpointer=saver)


if __name__ == "__main__":
    root = sys.argv[1]
    with fourfold.open(root) as store:
        compiled = graph(FourfoldSaver(store.sessions))
        config = {"configurable": {"thread_id": "Gespräch 一"}}
        found = compiled.get_state(config).values
        number = found.get("count", 0)
        ready()
        while True:
            number += 1
            question = [{"question": number, "text": "x" * 200}]
            compiled.invoke({"notes": question, "count": number - 1}, config, durability="sync")
            acknowledge(str(number))
