"""Runs of one thread beside each other: a stale one is refused, a fork is not."""

from __future__ import annotations

import asyncio
import operator
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from fourfold.adapters.langgraph import FourfoldSaver
from fourfold.adapters.langgraph.saver import TIP
from fourfold.errors import HeadMoved, InvalidInput


class State(TypedDict):
    log: Annotated[list, operator.add]


THREAD = {"configurable": {"thread_id": "1"}}
DURABILITY = pytest.mark.parametrize("durability", ["sync", "async", "exit"])


def graph_of(saver, work=lambda: None):
    """A graph of three nodes; the second does `work`, the third asks a person."""

    def second(_state):
        work()
        return {"log": ["second"]}

    builder = StateGraph(State)
    builder.add_node("first", lambda state: {"log": ["first"]})
    builder.add_node("second", second)
    builder.add_node("third", lambda state: {"log": [interrupt("?")]})
    for edge in ((START, "first"), ("first", "second"), ("second", "third"), ("third", END)):
        builder.add_edge(*edge)
    return builder.compile(checkpointer=saver)


def meanwhile(other, work, durability="sync"):
    """Work with another graph in another thread, which does not inherit the config of the run.

    The checkpoints of the run so far are stored first, which LangGraph does in the background.
    """

    def overtake():
        while durability != "exit" and other.get_state(THREAD).next != ("second",):
            time.sleep(0.005)
        work()

    def do():
        with ThreadPoolExecutor(1) as pool:
            pool.submit(overtake).result()

    return do


def values(graph, config=None):
    return graph.get_state(config or THREAD).values["log"]


def waiting(graph):
    """The checkpoint at which the graph asks, of the first turn."""
    return [state for state in graph.get_state_history(THREAD) if state.next == ("third",)][-1]


@pytest.fixture
def saver(sessions):
    """A saver with a thread whose first turn has ended."""
    saver = FourfoldSaver(sessions)
    graph = graph_of(saver)
    graph.invoke({"log": ["begin"]}, THREAD)
    graph.invoke(Command(resume="yes"), THREAD)
    return saver


@DURABILITY
def test_stale_run_is_refused_and_the_newer_answer_stays(sessions, saver, durability):
    """While the second node of one run works, another run of the thread ends its turn."""
    other = graph_of(FourfoldSaver(sessions))

    def overtake():
        other.invoke({"log": ["fast"]}, THREAD)
        other.invoke(Command(resume="no"), THREAD)

    slow = graph_of(saver, meanwhile(other, overtake, durability))
    with pytest.raises(HeadMoved) as refused:
        slow.invoke({"log": ["slow"]}, THREAD, durability=durability)
    assert (
        refused.value.details["current"]
        == other.get_state(THREAD).config["configurable"]["checkpoint_id"]
    )
    assert values(other)[-4:] == ["fast", "first", "second", "no"]
    before = sessions.position()
    assert values(graph_of(saver)) == values(other)
    assert sessions.position() == before
    assert sessions.verify() == []


def test_stale_coroutine_is_refused(sessions, saver):
    other = graph_of(FourfoldSaver(sessions))
    slow = graph_of(saver, meanwhile(other, lambda: other.invoke({"log": ["fast"]}, THREAD)))

    with pytest.raises(HeadMoved):
        asyncio.run(slow.ainvoke({"log": ["slow"]}, THREAD, durability="sync"))
    assert values(other)[-3:] == ["fast", "first", "second"]


def test_stale_writes_can_be_accepted(sessions, saver):
    other = graph_of(FourfoldSaver(sessions))
    accepting = FourfoldSaver(sessions, stale_writes="accept")
    slow = graph_of(accepting, meanwhile(other, lambda: other.invoke({"log": ["fast"]}, THREAD)))
    slow.invoke({"log": ["slow"]}, THREAD, durability="sync")
    assert values(graph_of(saver))[-3:] == ["slow", "first", "second"]
    with pytest.raises(InvalidInput, match="stale_writes must be"):
        FourfoldSaver(sessions, stale_writes="ignore")


@DURABILITY
def test_resume_from_an_older_checkpoint_is_accepted(sessions, durability):
    states = []
    for saver in (FourfoldSaver(sessions), InMemorySaver()):
        graph = graph_of(saver)
        for turn in ("one", "two"):
            graph.invoke({"log": [turn]}, THREAD, durability=durability)
        old = waiting(graph).config
        graph.invoke(Command(resume="late"), old, durability=durability)
        states.append(values(graph))
    assert states[0] == states[1] == ["one", "first", "second", "late"]


@DURABILITY
def test_replay_from_an_older_checkpoint_is_accepted(saver, durability):
    graph = graph_of(saver)
    old = [state for state in graph.get_state_history(THREAD) if state.next == ("second",)][-1]
    graph.invoke(None, old.config, durability=durability)
    assert values(graph) == ["begin", "first", "second"]
    graph.invoke(Command(resume="replayed"), THREAD, durability=durability)
    assert values(graph) == ["begin", "first", "second", "replayed"]


def test_forks_of_states_are_accepted(saver):
    graph = graph_of(saver)
    old = waiting(graph).config
    forked = graph.update_state(old, {"log": ["changed"]})
    assert values(graph) == values(graph, forked) == ["begin", "first", "second", "changed"]
    graph.update_state(THREAD, {"log": ["newer"]})
    graph.update_state(forked, {"log": ["older"]})
    assert values(graph) == ["begin", "first", "second", "changed", "older"]


@pytest.mark.parametrize("durability", ["sync", "exit"])
def test_replay_that_is_overtaken_is_refused(sessions, saver, durability):
    other = graph_of(FourfoldSaver(sessions))
    slow = graph_of(
        saver, meanwhile(other, lambda: other.update_state(THREAD, {"log": ["fast"]}), durability)
    )
    old = [state for state in slow.get_state_history(THREAD) if state.next == ("second",)][-1]
    with pytest.raises(HeadMoved):
        slow.invoke(None, old.config, durability=durability)
    assert values(other)[-1] == "fast"


def test_subgraphs_have_tips_of_their_own(sessions):
    inner = StateGraph(State)
    inner.add_node("ask", lambda state: {"log": [interrupt("?")]})
    inner.add_edge(START, "ask")
    outer = StateGraph(State)
    outer.add_node("inner", inner.compile())
    outer.add_edge(START, "inner")
    graph = outer.compile(checkpointer=FourfoldSaver(sessions))
    for turn in ("one", "two"):
        graph.invoke({"log": [turn]}, THREAD)
        graph.invoke(Command(resume="yes"), THREAD)
    assert [entry for entry in values(graph) if entry == "yes"]


def test_tip_is_not_part_of_the_metadata(saver):
    graph = graph_of(saver)
    graph.invoke({"log": ["again"]}, THREAD)
    for item in saver.list(THREAD):
        assert not [name for name in item.metadata if "tip" in name]
    loaded = saver.get_tuple(THREAD).config["configurable"]
    assert loaded[TIP].split(" ")[1] == loaded["checkpoint_id"]


def test_exactly_one_of_racing_runs_ends_its_turn(sessions, saver):
    """All runs have loaded the same checkpoint before the first of them stores one."""
    graph_of(saver).update_state(THREAD, {"log": ["asked"]}, as_node="second")
    ready = threading.Barrier(4)

    def run(number):
        racing = FourfoldSaver(sessions)
        loaded = racing.get_tuple(THREAD)
        ready.wait(60)
        checkpoint = {**loaded.checkpoint, "id": f"{loaded.checkpoint['id']}-{number}"}
        try:
            racing.put(loaded.config, checkpoint, {"source": "loop", "step": 9}, {})
        except HeadMoved:
            return None
        return checkpoint["id"]

    with ThreadPoolExecutor(4) as pool:
        stored = [done for done in pool.map(run, range(4)) if done is not None]
    assert len(stored) == 1
    assert saver.get_tuple(THREAD).checkpoint["id"] == stored[0]
    assert sessions.verify() == []


@DURABILITY
def test_first_run_of_a_thread_loses_to_a_faster_one(sessions, durability):
    """Both runs have found an empty thread; the slow one works while the other ends its turn."""
    other = graph_of(FourfoldSaver(sessions))
    saver = FourfoldSaver(sessions)
    load = saver.get_tuple

    def overtaken(config):
        loaded = load(config)
        saver.get_tuple = load
        with ThreadPoolExecutor(1) as pool:
            pool.submit(other.invoke, {"log": ["fast"]}, THREAD, durability=durability).result()
        return loaded

    saver.get_tuple = overtaken
    with pytest.raises(HeadMoved, match="this run found none"):
        graph_of(saver).invoke({"log": ["slow"]}, THREAD, durability=durability)
    assert values(other) == ["fast", "first", "second"]
    assert len([item for item in saver.list(THREAD) if item.parent_config is None]) == 1
    assert sessions.verify() == []


def test_config_of_a_caller_is_not_changed(sessions):
    saver = FourfoldSaver(sessions)
    config = {"configurable": {"thread_id": "1"}}
    assert saver.get_tuple(config) is None
    graph = graph_of(saver)
    assert graph.get_state(config).values == {}
    graph.invoke({"log": ["begin"]}, config)
    assert config == {"configurable": {"thread_id": "1"}}


@DURABILITY
@pytest.mark.parametrize("change", ["prune", "delete"])
def test_run_of_a_thread_that_is_pruned_meanwhile_is_refused(sessions, saver, durability, change):
    other = FourfoldSaver(sessions)
    rewrite = {"prune": lambda: other.prune(["1"]), "delete": lambda: other.delete_thread("1")}
    before = values(graph_of(saver))
    slow = graph_of(saver, meanwhile(graph_of(other), rewrite[change], durability))
    with pytest.raises(HeadMoved, match="was deleted or pruned"):
        slow.invoke({"log": ["slow"]}, THREAD, durability=durability)
    if change == "delete":
        assert other.get_tuple(THREAD) is None
        assert list(sessions.list(prefix="langgraph/1/")) == []
    else:
        assert values(graph_of(other))[: len(before)] == before
        assert "second" not in values(graph_of(other))[len(before) :]
    accepting = FourfoldSaver(sessions, stale_writes="accept")
    graph_of(accepting).invoke({"log": ["again"]}, THREAD, durability=durability)
    assert sessions.verify() == []
