"""Real graphs on the checkpointer: memory, resume, history, forks and kills."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, interrupt
from langgraph_child import graph as child_graph

import fourfold
from fourfold.adapters.langgraph import FourfoldSaver
from support.crash import Moment, run

SCRIPT = Path(__file__).with_name("langgraph_child.py")
CONFIG = {"configurable": {"thread_id": "one"}}


class State(TypedDict):
    messages: Annotated[list, add_messages]
    count: int
    note: Any


def conversation(saver, answer=None):
    def think(state):
        return {"count": state.get("count", 0) + 1}

    def reply(state):
        return {"messages": [AIMessage("a" * 800 + str(state["count"]))]}

    builder = StateGraph(State)
    builder.add_node("think", think)
    builder.add_node("reply", answer or reply)
    builder.add_edge(START, "think")
    builder.add_edge("think", "reply")
    builder.add_edge("reply", END)
    return builder.compile(checkpointer=saver)


def turn(graph, number, config=CONFIG):
    return graph.invoke({"messages": [HumanMessage(f"question {number} " + "q" * 200)]}, config)


def contents(graph, config=CONFIG):
    return [message.content for message in graph.get_state(config).values["messages"]]


def shape(history):
    """Return a history without what differs between runs."""
    return [
        (
            [(message.type, message.content) for message in state.values.get("messages", [])],
            state.values.get("count"),
            state.next,
            state.metadata["source"],
            state.metadata["step"],
        )
        for state in history
    ]


def test_history_equals_that_of_the_memory_saver(sessions):
    graphs = [conversation(InMemorySaver()), conversation(FourfoldSaver(sessions))]
    for graph in graphs:
        for number in range(5):
            turn(graph, number)
    theirs, ours = [shape(graph.get_state_history(CONFIG)) for graph in graphs]
    assert ours == theirs
    assert len(ours) == 20


def test_restart_finds_the_stored_state(tmp_path):
    for life in range(3):
        with fourfold.open(tmp_path / "store") as store:
            graph = conversation(FourfoldSaver(store.sessions))
            if life:
                assert len(contents(graph)) == 2 * life
                assert len(list(graph.get_state_history(CONFIG))) == 4 * life
            turn(graph, life)
            assert graph.get_state(CONFIG).values["count"] == life + 1


def test_conversation_is_stored_as_its_messages(store):
    """Sixty turns of a kilobyte each; complete states would be megabytes."""
    graph = conversation(FourfoldSaver(store.sessions))
    for number in range(60):
        turn(graph, number)
    events = store.sessions.events_since("langgraph/one/0")
    stored = {ref.id: ref.size for event in events for ref in refs(event.data)}
    body = sum(len(str(event.data)) for event in events)
    message = sum(len(content) for content in contents(graph))
    assert body + sum(stored.values()) < 8 * message
    # Of each list of messages, an event holds one more.
    lists = [e.data["step"].get("channels", {}).get("messages") for e in events if "step" in e.data]
    grown = [node for node in lists if node is not None and "list" in node]
    assert len(grown) == 120
    assert {len(node["list"]) for node in grown} == {1}


def refs(data):
    return [item for item in data.get("values", {}).values() if not isinstance(item, (str, bytes))]


def test_message_changed_in_place_is_stored_as_changed(sessions):
    def changing(state):
        state["messages"][0].content = f"changed {state['count']}"
        state["messages"][0].additional_kwargs["seen"] = state["count"]
        return {"messages": [AIMessage("done")]}

    saver = FourfoldSaver(sessions)
    graph = conversation(saver, changing)
    for number in range(3):
        turn(graph, number)
        again = conversation(FourfoldSaver(sessions))
        first = again.get_state(CONFIG).values["messages"][0]
        assert first.content == f"changed {number + 1}"
        assert first.additional_kwargs == {"seen": number + 1}


def test_changing_a_read_value_changes_nothing_stored(sessions):
    saver = FourfoldSaver(sessions)
    graph = conversation(saver)
    turn(graph, 0)
    for _ in range(2):
        result = saver.get_tuple(CONFIG).checkpoint["channel_values"]["messages"]
        assert result[0].content.startswith("question 0")
        assert result[0].additional_kwargs == {}
        result[0].content = "overwritten"
        result[0].additional_kwargs["a"] = 1
        result.clear()


def test_removed_and_replaced_messages_stay_in_the_past(sessions):
    graph = conversation(FourfoldSaver(sessions))
    for number in range(4):
        turn(graph, number)
    before = graph.get_state(CONFIG)
    messages = before.values["messages"]
    graph.update_state(CONFIG, {"messages": [RemoveMessage(id=m.id) for m in messages[:3]]})
    graph.update_state(CONFIG, {"messages": [HumanMessage("changed", id=messages[4].id)]})
    turn(graph, 9)
    fresh = conversation(FourfoldSaver(sessions))
    assert contents(fresh)[:3] == [messages[3].content, "changed", messages[5].content]
    assert len(contents(fresh)) == 7
    assert fresh.get_state(before.config).values["messages"] == messages


def test_fork_leaves_the_original_unchanged(sessions):
    graph = conversation(FourfoldSaver(sessions))
    for number in range(3):
        turn(graph, number)
    states = list(graph.get_state_history(CONFIG))
    past = next(state for state in states if len(state.values["messages"]) == 2 and not state.next)
    graph.invoke({"messages": [HumanMessage("another way")]}, past.config)
    assert contents(graph)[2] == "another way"
    assert len(contents(graph)) == 4
    fresh = conversation(FourfoldSaver(sessions))
    assert contents(fresh) == contents(graph)
    assert len(fresh.get_state(states[0].config).values["messages"]) == 6


def test_interrupted_graph_continues_in_another_process(tmp_path):
    def asking(state):
        return {"note": interrupt("what now?")}

    with fourfold.open(tmp_path / "store") as store:
        graph = conversation(FourfoldSaver(store.sessions), asking)
        turn(graph, 0)
        assert graph.get_state(CONFIG).next == ("reply",)
    with fourfold.open(tmp_path / "store") as store:
        graph = conversation(FourfoldSaver(store.sessions), asking)
        assert graph.get_state(CONFIG).tasks[0].interrupts[0].value == "what now?"
        graph.invoke(Command(resume={"go": ["on", 1]}), CONFIG)
        assert graph.get_state(CONFIG).values["note"] == {"go": ["on", 1]}


def test_subgraphs_have_their_own_sessions(sessions):
    inner = StateGraph(State)
    inner.add_node("ask", lambda state: {"note": interrupt("inner?")})
    inner.add_edge(START, "ask")
    graph = conversation(FourfoldSaver(sessions), inner.compile())
    turn(graph, 0)
    assert graph.get_state(CONFIG, subgraphs=True).tasks[0].state.next == ("ask",)
    graph.invoke(Command(resume="yes"), CONFIG)
    assert graph.get_state(CONFIG).values["note"] == "yes"
    names = [info.id for info in sessions.list_sessions()]
    assert names[0] == "langgraph/one/0"
    assert len(names) == 2
    saver = FourfoldSaver(sessions)
    saver.delete_thread("one")
    assert list(saver.list(None)) == []


def test_delta_channels_are_read_as_written(sessions):
    delta = pytest.importorskip("langgraph.channels.delta", reason="this LangGraph has no deltas")

    def joined(value, writes):
        return [*(value or []), *(item for write in writes for item in write)]

    channel = delta.DeltaChannel(joined, snapshot_frequency=4)
    Delta = TypedDict("Delta", {"log": Annotated[list, channel]})  # noqa: UP013 - a local name
    builder = StateGraph(Delta)
    builder.add_node("add", lambda state: {"log": [f"seen {len(state['log'])}"]})
    builder.add_edge(START, "add")
    graph = builder.compile(checkpointer=FourfoldSaver(sessions))
    for number in range(7):
        graph.invoke({"log": [f"in {number}"]}, CONFIG)
    expected = [text for n in range(7) for text in (f"in {n}", f"seen {2 * n + 1}")]
    assert graph.get_state(CONFIG).values["log"] == expected
    saver = FourfoldSaver(sessions)
    again = builder.compile(checkpointer=saver)
    assert again.get_state(CONFIG).values["log"] == expected
    saver.prune(["one"])
    assert again.get_state(CONFIG).values["log"] == expected
    assert len(list(saver.list(CONFIG))) < 28


def test_threads_and_coroutines_share_a_checkpointer(store):
    graph = conversation(FourfoldSaver(store.sessions))

    async def one(name):
        config = {"configurable": {"thread_id": name}}
        for number in range(3):
            await graph.ainvoke({"messages": [HumanMessage(f"{name} {number}")]}, config)

    async def crowd():
        await asyncio.gather(*(one(f"thread-{number}") for number in range(6)))

    asyncio.run(crowd())
    fresh = conversation(FourfoldSaver(store.sessions))
    for number in range(6):
        message = contents(fresh, {"configurable": {"thread_id": f"thread-{number}"}})
        assert message[::2] == [f"thread-{number} {at}" for at in range(3)]
    assert store.sessions.verify() == []


def test_two_checkpointers_on_one_thread_see_each_other(sessions):
    first, second = (conversation(FourfoldSaver(sessions)) for _ in range(2))
    for number in range(6):
        turn(first if number % 2 else second, number)
        assert contents(first) == contents(second)
    assert len(contents(first)) == 12


@pytest.mark.parametrize("seed", [1])
def test_killed_graph_loses_no_completed_turn(tmp_path, seed):
    random, done = Random(seed), 0
    for moment in (Moment(acknowledgements=random.randint(5, 20)), Moment(seconds=0.15)):
        crash = run(SCRIPT, str(tmp_path / "store"), kill=moment)
        assert crash.killed, crash
        done = max([done, *map(int, crash.lines)])
        with fourfold.open(tmp_path / "store") as store:
            assert store.sessions.verify() == []
            assert store.sessions.verify_no_dangling_refs() == []
            graph = child_graph(FourfoldSaver(store.sessions))
            config = {"configurable": {"thread_id": "Gespräch 一"}}
            states = list(graph.get_state_history(config, limit=6))
            if done:
                assert states[0].values["count"] >= done
                assert len(states) >= 4
            for state in states:
                sent = [n["question"] for n in state.values.get("notes", []) if "question" in n]
                assert sent == list(range(1, len(sent) + 1))
