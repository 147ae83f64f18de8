"""Transcripts of sessions that adapters wrote: the conversation as the other library reads it."""

from __future__ import annotations

import asyncio
from typing import Annotated, TypedDict

from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

import fourfold
from fourfold.adapters.langgraph import FourfoldSaver
from fourfold.adapters.openai_agents import AgentsSession

CONFIG = {"configurable": {"thread_id": "one"}}
SID = "langgraph/one/0"
CALL = {"name": "search", "args": {"q": "folds"}, "id": "c1", "type": "tool_call"}


class State(TypedDict):
    messages: Annotated[list, add_messages]
    topic: str


def agent(saver):
    def call(state):
        return {"messages": [AIMessage("", id="a1", tool_calls=[CALL])], "topic": "folds"}

    def answer(state):
        result = ToolMessage("two rows", tool_call_id="c1", id="r1")
        return {"messages": [result, AIMessage("A pure function. " * 60, id="a2")]}

    builder = StateGraph(State)
    builder.add_node("call", call)
    builder.add_node("answer", answer)
    builder.add_edge(START, "call")
    builder.add_edge("call", "answer")
    builder.add_edge("answer", END)
    return builder.compile(checkpointer=saver)


def roles(transcript):
    return [entry.title for entry in transcript.entries]


def test_langgraph_thread_is_read_with_calls_results_and_state(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        graph = agent(FourfoldSaver(store.sessions))
        graph.invoke({"messages": [HumanMessage("What is a fold?", id="q1")]}, CONFIG)
    with fourfold.open(tmp_path / "store", mode="r") as store:
        transcript = store.sessions.transcript(SID)
        assert roles(transcript) == ["user", "assistant", "tool", "assistant", "state"]
        assert transcript.entries[3].content == "A pure function. " * 60
        assert transcript.entries[4].content == {"topic": "folds"}
        assert transcript.to_openai()["messages"] == [
            {"role": "user", "content": "What is a fold?"},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "search", "arguments": '{"q": "folds"}'},
                    }
                ],
            },
            {"role": "tool", "content": "two rows", "tool_call_id": "c1"},
            {"role": "assistant", "content": "A pure function. " * 60},
        ]
        assert 'call search {"q": "folds"}' in transcript.to_markdown()
        newest = store.sessions.transcript(SID, limit=2)
        assert (roles(newest), newest.complete) == (["assistant", "state"], False)
        # A message has the event of the checkpoint that added it, and is not there before.
        events = [entry.event for entry in transcript.entries]
        assert events == sorted(events)
        for entry in transcript.entries[:4]:
            assert entry.at == store.sessions.events(SID, after=entry.event - 1)[0].at
            before = store.sessions.transcript(SID, at=entry.event - 1)
            contents = [earlier.content for earlier in before.entries]
            assert entry.content not in contents
            then = store.sessions.transcript(SID, at=entry.event)
            assert entry in then.entries


def test_langgraph_thread_at_every_event_equals_its_history(sessions):
    saver = FourfoldSaver(sessions)
    graph = agent(saver)
    graph.invoke({"messages": [HumanMessage("one", id="q1")]}, CONFIG)
    graph.update_state(CONFIG, {"messages": [RemoveMessage("a1"), AIMessage("other", id="a2")]})
    graph.invoke({"messages": [HumanMessage("two", id="q2")]}, CONFIG)
    states = {
        state.config["configurable"]["checkpoint_id"]: [
            message.text for message in state.values.get("messages", [])
        ]
        for state in graph.get_state_history(CONFIG)
    }
    compared = 0
    for event in sessions.events(SID):
        entries = sessions.transcript(SID, at=event.id).entries
        texts = [
            entry.content["content"] if isinstance(entry.content, dict) else entry.content
            for entry in entries
            if entry.kind == "message"
        ]
        newest = saver._log("one", "").newest_at(event.id)
        if newest is not None:
            compared += 1
            assert texts == states[newest.id]
    assert compared >= len(states)


def test_agents_conversation_is_read_without_popped_items(sessions):
    async def talk():
        session = AgentsSession("u", sessions)
        await session.add_items([{"role": "user", "content": "What is a fold?"}])
        await session.add_items([{"role": "assistant", "content": "wrong " * 1_000}])
        await session.pop_item()
        await session.add_items(
            [
                {"type": "reasoning", "id": "r", "summary": []},
                {"type": "function_call", "call_id": "c1", "name": "a", "arguments": "{}"},
                {"type": "function_call", "call_id": "c2", "name": "b", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": "one"},
                {"type": "function_call_output", "call_id": "c2", "output": "two"},
            ]
        )
        text = {"type": "output_text", "text": "A pure function. " * 400, "annotations": []}
        await session.add_items(
            [{"role": "assistant", "type": "message", "id": "m", "content": [text]}]
        )
        return await session.get_items()

    items = asyncio.run(talk())
    sid = "openai-agents/u/0"
    sessions.append_event(sid, {"type": "app/note", "text": "of another program"})
    transcript = sessions.transcript(sid)
    assert [entry.content for entry in transcript.entries] == items
    messages = transcript.to_openai()["messages"]
    assert [message["role"] for message in messages] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
    ]
    assert [call["id"] for call in messages[1]["tool_calls"]] == ["c1", "c2"]
    assert messages[4] == {"role": "assistant", "content": "A pure function. " * 400}
    # At the event before it was popped, the other answer is there.
    then = sessions.transcript(sid, at=3)
    assert [entry.title for entry in then.entries] == ["user", "assistant"]
    assert then.entries[1].content["content"] == "wrong " * 1_000
    assert sessions.transcript(sid, at=1).entries == []
