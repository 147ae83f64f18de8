"""Branches and usage of OpenAI Agents conversations, beside the SDK's own session that has them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fourfold.adapters.openai_agents_branches import BranchedAgentsSession
from fourfold.errors import AlreadyExists, InvalidInput
from fourfold.models.sessions import Sessions
from support.properties import examples


def run(coroutine):
    return asyncio.run(coroutine)


def user(text):
    return {"role": "user", "content": text}


def answer(text):
    return {"role": "assistant", "content": text}


def result(tokens):
    """Return what `store_run_usage` reads of a result of the SDK."""
    from agents.usage import Usage  # noqa: PLC0415 - optional

    usage = Usage(requests=1, input_tokens=tokens, output_tokens=2, total_tokens=tokens + 2)
    return SimpleNamespace(context_wrapper=SimpleNamespace(usage=usage))


def plain(rows):
    """Return rows without times."""
    return [
        {name: value for name, value in row.items() if name not in {"created_at", "timestamp"}}
        for row in rows
    ]


async def state(session):
    """Return everything that a session tells."""
    usage = [
        {name: row[name] for name in ("user_turn_number", "requests", "total_tokens")}
        for row in await session.get_turn_usage()
    ]
    return {
        "items": await session.get_items(),
        "branches": {row["branch_id"]: row for row in plain(await session.list_branches())},
        "turns": plain(await session.get_conversation_turns()),
        "usage": usage,
        "sum": await session.get_session_usage(),
    }


@pytest.fixture
def session(sessions):
    return BranchedAgentsSession("s", sessions)


async def talk(session, *texts):
    for text in texts:
        await session.add_items([user(text), answer(f"re {text}")])


def test_branch_begins_before_a_turn_and_keeps_the_other(session, sessions):
    async def work():
        await talk(session, "one", "two")
        name = await session.create_branch_from_turn(2, "shorter")
        await talk(session, "three")
        there = [item["content"] for item in await session.get_items()]
        await session.switch_to_branch("main")
        here = [item["content"] for item in await session.get_items()]
        return name, there, here

    assert run(work()) == (
        "shorter",
        ["one", "re one", "three", "re three"],
        ["one", "re one", "two", "re two"],
    )
    again = BranchedAgentsSession("s", sessions)
    assert [item["content"] for item in run(again.get_items(1))] == ["re two"]
    run(again.switch_to_branch("shorter"))
    # The first object sees what another one did.
    assert [item["content"] for item in run(session.get_items(1))] == ["re three"]
    assert sessions.current_view("openai-agents/s/0").counters.message == 6
    said = sessions.transcript("openai-agents/s/0").entries
    assert [entry.content["content"] for entry in said][-1] == "re three"
    assert sessions.verify() == []


def test_bad_branches_are_refused_and_write_nothing(session, sessions):
    run(talk(session, "one"))
    events = sessions.events("openai-agents/s/0")
    for error, call in (
        (InvalidInput, session.create_branch_from_turn(0)),
        (InvalidInput, session.create_branch_from_turn(2)),
        (InvalidInput, session.create_branch_from_turn(True)),
        (InvalidInput, session.create_branch_from_turn(1, " ")),
        (AlreadyExists, session.create_branch_from_turn(1, "main")),
        (InvalidInput, session.switch_to_branch("absent")),
        (InvalidInput, session.get_conversation_turns("absent")),
    ):
        with pytest.raises(error):
            run(call)
    assert sessions.events("openai-agents/s/0") == events


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("talk"), st.integers(0, 9)),
        st.tuples(st.just("usage"), st.integers(1, 9)),
        st.tuples(st.just("branch"), st.integers(1, 3)),
        st.tuples(st.just("switch"), st.integers(0, 3)),
    ),
    max_size=14,
)


@settings(max_examples=examples(40), deadline=None)
@given(STEPS)
def test_programs_match_the_advanced_session_of_the_sdk(steps):
    advanced = pytest.importorskip("agents.extensions.memory.advanced_sqlite_session")
    theirs = advanced.AdvancedSQLiteSession(session_id="s", create_tables=True)
    sessions = Sessions()
    ours = BranchedAgentsSession("s", sessions)

    async def work():
        await asyncio.gather(talk(ours, "first"), talk(theirs, "first"))
        names = ["main"]
        for number, (kind, argument) in enumerate(steps):
            if kind == "talk":
                await asyncio.gather(*(talk(one, f"t{argument}") for one in (ours, theirs)))
            elif kind == "usage":
                for one in (ours, theirs):
                    await one.store_run_usage(result(argument))
            elif kind == "branch":
                turns = len(await ours.get_conversation_turns())
                if turns:
                    turn, name = min(argument, turns), f"b{number}"
                    for one in (ours, theirs):
                        assert await one.create_branch_from_turn(turn, name) == name
                    # Their branches exist from the first item on.
                    await asyncio.gather(*(talk(one, name) for one in (ours, theirs)))
                    names.append(name)
            else:
                for one in (ours, theirs):
                    await one.switch_to_branch(names[argument % len(names)])
            assert await state(ours) == await state(theirs)

    run(work())
    theirs.close()
    sessions.close()
