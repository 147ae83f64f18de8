"""The conversation store of Pydantic AI: the framework's own store as the model, and the log."""

from __future__ import annotations

import asyncio
import copy
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from served_streams import Served

import fourfold
from fourfold.errors import InvalidInput, NotFound
from support.properties import examples

pytest.importorskip("pydantic_ai", reason="pydantic-ai-slim is not installed")

from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationRecord,
    InMemoryConversationStore,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    BinaryContent,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.test import TestModel

from fourfold.adapters.pydantic_ai import FourfoldConversationStore

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def run(coroutine):
    return asyncio.run(coroutine)


def said(text):
    return ModelRequest(parts=[UserPromptPart(text, timestamp=NOON)])


def answered(text):
    return ModelResponse(parts=[TextPart(text)], timestamp=NOON)


def talk(*texts):
    return [said(text) if number % 2 == 0 else answered(text) for number, text in enumerate(texts)]


def begin(conversations, name, *texts, scope=None):
    conversation = Conversation(conversation_id=name, messages=talk(*texts))
    run(conversations.save(conversation, scope=scope))
    return conversation


@pytest.fixture
def conversations(sessions):
    return FourfoldConversationStore(sessions)


@pytest.fixture(params=["folder", "server"])
def either(request, sessions, tmp_path):
    """Conversations in a folder, and on a server."""
    if request.param == "folder":
        yield FourfoldConversationStore(sessions)
        return
    server = Served(tmp_path / "served")
    try:
        with fourfold.connect(f"http://127.0.0.1:{server.port}") as remote:
            yield FourfoldConversationStore(remote.sessions)
    finally:
        server.kill()


def test_an_agent_continues_its_conversation(either):
    agent = Agent(TestModel())

    @agent.tool_plain
    def weather(city: str) -> str:
        return f"sun in {city}"

    async def turn(prompt):
        conversation = await either.load("ada") or Conversation(conversation_id="ada")
        result = await agent.run(prompt, conversation=conversation)
        await either.save(result)
        return result

    for number in range(3):
        result = run(turn(f"question {number}"))
    loaded = run(either.load("ada"))
    assert loaded.messages == result.all_messages()
    assert loaded.usage == result.conversation.usage
    assert loaded.usage.requests >= 4
    assert len(run(either.load("ada", limit=2)).messages) == 2
    transcript = either._sessions.transcript("pydantic-ai/ada/0").entries
    assert [entry.title for entry in transcript][:2] == ["user", "assistant"]
    assert {entry.title for entry in transcript} == {"user", "assistant", "tool"}
    calls = [entry.content for entry in transcript if isinstance(entry.content, dict)]
    assert calls[0]["tool_calls"][0]["name"] == "weather"
    assert calls[1]["name"] == "weather"


def test_large_and_binary_messages_are_read_as_they_were(conversations, sessions):
    file = BinaryContent(data=bytes(range(256)) * 40, media_type="application/pdf")
    messages = [
        ModelRequest(parts=[UserPromptPart(["what is this?", file])]),
        ModelResponse(parts=[ToolCallPart("look", {"at": "x" * 9_000}, tool_call_id="1")]),
        ModelRequest(parts=[ToolReturnPart("look", {"seen": ["é", None, 2**60]}, "1")]),
    ]
    run(conversations.save(Conversation(conversation_id="a", messages=messages)))
    assert run(conversations.load("a")).messages == messages
    fork = run(conversations.fork("a", at=2))
    assert run(conversations.load(fork.conversation_id)).messages == messages[:2]
    assert sessions.verify_no_dangling_refs() == []


def test_each_message_is_stored_once(conversations, sessions):
    conversation = begin(conversations, "a", "0", "1")
    for number in range(2, 20, 2):
        conversation.messages += talk(str(number), str(number + 1))
        assert len(run(conversations.save(conversation))) == 2
    assert run(conversations.save(conversation)) == []
    assert sessions.current_view("pydantic-ai/a/0").counters.message == 20


def test_two_writers_conflict_and_a_foreign_event_does_not(conversations, sessions):
    begin(conversations, "a", "0", "1")
    mine, theirs = run(conversations.load("a")), run(conversations.load("a"))
    sessions.append_event("pydantic-ai/a/0", {"type": "app/note", "text": "hello"})
    foreign = {"role": "user", "content": "hello"}
    sessions.append_event("pydantic-ai/a/0", {"type": "message/appended", "message": foreign})
    mine.messages += talk("mine")
    run(conversations.save(mine))
    theirs.messages += talk("theirs")
    before = sessions.events("pydantic-ai/a/0")
    with pytest.raises(ConversationConflict):
        run(conversations.save(theirs))
    assert sessions.events("pydantic-ai/a/0") == before
    assert run(conversations.load("a")).messages == talk("0", "1") + talk("mine")


def test_concurrent_first_saves_keep_one(conversations):
    async def save_all():
        many = [
            Conversation(conversation_id="a", messages=talk(str(number))) for number in range(8)
        ]
        return await asyncio.gather(*map(conversations.save, many), return_exceptions=True)

    outcomes = run(save_all())
    assert sum(not isinstance(outcome, ConversationConflict) for outcome in outcomes) == 1
    [stored] = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, list)]
    assert run(conversations.load("a")).messages == talk(str(stored))


def test_a_fork_outlives_what_it_was_forked_from(conversations, sessions):
    begin(conversations, "a", "0", "1", "2")
    fork = run(conversations.fork("a", at=2, new_conversation_id="b"))
    run(conversations.delete("a"))
    sessions.gc(0)
    assert run(FourfoldConversationStore(sessions).load("b")).messages == talk("0", "1")
    fork.messages += talk("new")
    run(conversations.save(fork))
    assert run(conversations.load("b")).messages == talk("0", "1") + talk("new")
    with pytest.raises(ConversationConflict):
        run(
            conversations.write_record(
                ConversationRecord(conversation_id="c", head_id="unknown"), expected_revision=None
            )
        )


def test_a_deleted_conversation_is_erased_and_starts_again(conversations, sessions):
    stale = begin(conversations, "a", "secret")
    run(conversations.delete("a"))
    assert run(conversations.load("a")) is None
    with pytest.raises(NotFound):
        sessions.current_view("pydantic-ai/a/0")
    with pytest.raises(ConversationConflict):
        run(conversations.save(stale))
    begin(conversations, "a", "again")
    assert run(conversations.load("a")).messages == talk("again")
    sessions.delete_session("pydantic-ai/a/1")
    assert run(conversations.load("a")) is None
    begin(conversations, "a", "once more")
    assert run(conversations.load("a")).messages == talk("once more")
    assert len(run(conversations.list_conversations())) == 1


def test_a_deletion_that_was_interrupted_is_completed(conversations, sessions):
    begin(conversations, "a", "secret")
    sessions.append_event("pydantic-ai/a/0", {"type": "pydantic-ai/deleted"})
    assert run(conversations.list_conversations()) == []
    begin(conversations, "a", "again")
    assert run(conversations.load("a")).messages == talk("again")
    with pytest.raises(NotFound):
        sessions.current_view("pydantic-ai/a/0")


def test_entries_are_found_by_another_process(conversations, sessions):
    begin(conversations, "a", "0", "1", "2")
    entries = run(conversations.load_entries("a"))
    other = FourfoldConversationStore(sessions)
    assert run(other.read_entry(entries[1].id)) == entries[1]
    assert run(other.read_history(entries[1].id)) == entries[:2]
    with pytest.raises(LookupError):
        run(other.read_entry("unknown"))


def test_every_past_history_stays_readable(conversations, sessions):
    conversation = begin(conversations, "a", "0", "1", "2")
    event = sessions.current_view("pydantic-ai/a/0").counters.event
    branched = run(conversations.branch("a", at=1, expected_revision=conversation.revision))
    branched.messages += [answered("other")]
    run(conversations.save(branched))
    now = sessions.transcript("pydantic-ai/a/0").entries
    then = sessions.transcript("pydantic-ai/a/0", at=event).entries
    assert [entry.content for entry in now] == ["0", "other"]
    assert [entry.content for entry in then] == ["0", "1", "2"]


def test_only_sessions_are_accepted(store):
    with pytest.raises(InvalidInput, match=r"store\.sessions"):
        FourfoldConversationStore(store)
    with pytest.raises(InvalidInput, match="conversation_id"):
        run(FourfoldConversationStore(store.sessions).read_record(""))


# A model: the framework's own store

NAMES = st.sampled_from(["a", "b", "ü/1"])
STEPS = st.one_of(
    st.tuples(st.just("say"), NAMES, st.lists(st.sampled_from("xyz"), max_size=3)),
    st.tuples(st.just("rewrite"), NAMES, st.integers(0, 4)),
    st.tuples(st.just("stale"), NAMES, st.just(0)),
    st.tuples(st.just("branch"), NAMES, st.integers(0, 5)),
    st.tuples(st.just("back"), NAMES, st.integers(0, 2)),
    st.tuples(st.just("fork"), NAMES, st.tuples(st.integers(0, 5), NAMES)),
    st.tuples(st.just("delete"), NAMES, st.just(0)),
    st.tuples(st.just("scope"), NAMES, st.sampled_from(["u", "v"])),
    st.tuples(st.just("mutate"), NAMES, st.just(0)),
    st.tuples(st.just("restart"), NAMES, st.just(0)),
)


async def perform(conversations, step, kept):
    """Carry out a step, and return what it answers, without ids and revisions."""
    verb, name, value = step
    try:
        loaded = await conversations.load(name)
        if verb == "say":
            conversation = loaded or Conversation(conversation_id=name)
            conversation.messages += talk(*value)
            conversation.usage = replace(conversation.usage, requests=len(conversation.messages))
            kept[name] = copy.deepcopy(loaded)
            return len(await conversations.save(conversation))
        if verb == "rewrite" and loaded is not None:
            messages = [*loaded.messages[:value], answered("rewritten")]
            changed = replace(loaded, messages=messages, new_message_index=None)
            return len(await conversations.save(changed))
        if verb == "stale" and kept.get(name) is not None:
            return len(await conversations.save(kept[name]))
        if verb == "branch" and loaded is not None:
            made = await conversations.branch(name, at=value, expected_revision=loaded.revision)
            return made.messages
        if verb == "back" and loaded is not None:
            record = await conversations.read_record(name)
            if value < len(record.branches):
                made = await conversations.branch(
                    name, from_entry=record.branches[value], expected_revision=loaded.revision
                )
                return made.messages
        if verb == "fork":
            at, target = value
            return (await conversations.fork(name, at=at, new_conversation_id=target)).messages
        if verb == "delete":
            return await conversations.delete(name)
        if verb == "scope":
            conversation = loaded or Conversation(conversation_id=name, messages=talk("s"))
            await conversations.save(conversation, scope=value)
        if verb == "mutate" and loaded is not None:
            loaded.messages.clear()
            loaded.usage.requests = 99
    except (ConversationConflict, UserError) as error:
        return type(error), str(error)
    return None


async def state(conversations):
    """Return everything that a user sees, without ids, revisions and times."""
    found = []
    for record in await conversations.list_conversations():
        loaded = await conversations.load(record.conversation_id)
        left = [
            [entry.message for entry in await conversations.read_history(tip)]
            for tip in record.branches
        ]
        shown = (record.conversation_id, record.scope, record.forked_from, record.usage)
        found.append((shown, loaded.messages, left))
    newest = await conversations.list_conversations(limit=2)
    assert [record.conversation_id for record in newest] == [shown[0] for shown, *_ in found[:2]]
    assert await conversations.list_conversations(limit=0) == []
    scoped = [
        record.conversation_id for record in await conversations.list_conversations(scope="u")
    ]
    return found, scoped


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(STEPS, max_size=14))
def test_random_programs_match_the_store_of_the_framework(steps):
    async def compare():
        with fourfold.open(":memory:") as store:
            ours, model = FourfoldConversationStore(store.sessions), InMemoryConversationStore()
            kept = {}, {}
            for step in steps:
                if step[0] == "restart":
                    ours = FourfoldConversationStore(store.sessions)
                result = await perform(ours, step, kept[0])
                assert result == await perform(model, step, kept[1]), step
                assert await state(ours) == await state(model), step
            assert store.sessions.verify() == []
            assert store.sessions.verify_no_dangling_refs() == []

    run(compare())
