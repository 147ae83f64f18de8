"""The session of the OpenAI Agents SDK: the SDK's protocol, and what a log adds to it."""

from __future__ import annotations

import asyncio
import copy
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from served_streams import Served

import fourfold
from fourfold.adapters.openai_agents import AgentsSession
from fourfold.errors import ContentError, InvalidInput, PayloadMissing, Refused
from fourfold.models.sessions import Sessions
from fourfold.models.sessions.sqlite_log import SqliteLogReader
from fourfold.testing.session_log_contract import mutate
from support.properties import examples


def item(number, size=10):
    return {"role": "user" if number % 2 else "assistant", "content": f"{number} " + "x" * size}


def run(coroutine):
    return asyncio.run(coroutine)


def test_agents_session_implements_the_sdk_protocol(sessions):
    memory = pytest.importorskip("agents.memory", reason="openai-agents is not installed")
    assert isinstance(AgentsSession("s", sessions), memory.Session)


def test_get_items_returns_items_in_order_up_to_a_limit(sessions):
    session = AgentsSession("s", sessions)
    assert run(session.get_items()) == []
    run(session.add_items([item(number, 900) for number in range(300)]))
    run(session.add_items([]))
    run(session.add_items([{"type": "function_call", "id": "fc_1", "arguments": "{}"}]))
    result = run(session.get_items())
    assert result[:300] == [item(number, 900) for number in range(300)]
    assert result[300]["id"] == "fc_1"
    assert run(session.get_items(3)) == result[-3:]
    assert run(session.get_items(0)) == []
    run(session.add_items([item(1, 9_000)]))
    assert run(session.get_items(1)) == [item(1, 9_000)]
    stored = sessions.current_view("openai-agents/s/0").messages
    assert (stored[0]["item"], stored[-1]["item"].size > 9_000) == (item(0, 900), True)
    assert sessions.verify_no_dangling_refs() == []


def test_conversation_on_server_has_items_of_one_in_folder(sessions, tmp_path):
    server = Served(tmp_path / "served")
    try:
        with fourfold.connect(f"http://127.0.0.1:{server.port}") as remote:
            ours, theirs = AgentsSession("s", sessions), AgentsSession("s", remote.sessions)
            for session in (ours, theirs):
                run(session.add_items([item(number) for number in range(5)]))
                run(session.add_items([item(5, 9_000), item(6)]))
                assert run(session.pop_item()) == item(6)
                run(AgentsSession("s", session._sessions).add_items([item(7)]))
            assert run(ours.get_items()) == run(theirs.get_items())
            assert run(ours.get_items(2)) == run(theirs.get_items(2)) == [item(5, 9_000), item(7)]
            stored = [
                s.current_view("openai-agents/s/0").messages for s in (sessions, remote.sessions)
            ]
            assert [*stored[0]] == [*stored[1]]
            for session in (ours, theirs):
                run(session.clear_session())
                assert run(session.get_items()) == []
                run(session.add_items([item(1)]))
                assert run(session.get_items()) == [item(1)]
    finally:
        server.kill()


FOREIGN = (
    {"type": "app/note", "text": "hello"},
    {"type": "message/appended", "message": {"role": "user", "content": "hello"}},
    {"type": "session/compacted", "vars_ref": {}, "message": {"content": "all of it"}},
)


def append_foreign_event(sessions, choice):
    """Append what other programs append to sessions of conversations: events, a head, an edge."""
    for info in sessions.list_sessions():
        if choice < len(FOREIGN):
            sessions.append_event(info.id, FOREIGN[choice])
            continue
        head = sessions.publish_head(info.id)
        if choice > len(FOREIGN):
            edge = {"type": "derivation", "to_session": info.id, "to_head": head.id}
            sessions.append_lineage_edge(info.id, edge)


@pytest.mark.parametrize("choice", range(len(FOREIGN) + 2))
def test_foreign_event_leaves_the_conversation(sessions, choice):
    session = AgentsSession("s", sessions)
    run(session.add_items([item(1), item(2)]))
    append_foreign_event(sessions, choice)
    for result in (session, AgentsSession("s", sessions)):
        assert run(result.get_items()) == [item(1), item(2)]
    run(AgentsSession("s", sessions).add_items([item(3)]))
    append_foreign_event(sessions, choice)
    assert run(session.pop_item()) == item(3)
    append_foreign_event(sessions, choice)
    assert run(AgentsSession("s", sessions).get_items()) == [item(1), item(2)]


def test_read_after_foreign_events_costs_the_same_in_long_conversations(store, monkeypatch):
    costs, reads, read = [], [], SqliteLogReader.events
    monkeypatch.setattr(SqliteLogReader, "events", lambda *args: reads.append(args) or read(*args))
    for name, count in (("short", 30), ("long", 3_000)):
        run(AgentsSession(name, store.sessions).add_items([item(n) for n in range(count)]))
        sid = f"openai-agents/{name}/0"
        store.sessions.append_events(sid, [FOREIGN[0]] * 20)
        reads.clear()
        assert run(AgentsSession(name, store.sessions).get_items(1)) == [item(count - 1)]
        costs.append(len(reads))
    assert costs[0] == costs[1] <= 5


def test_items_that_were_read_are_not_read_again(store, monkeypatch):
    session = AgentsSession("known", store.sessions)
    run(session.add_items([item(number) for number in range(300)]))
    assert len(run(session.get_items())) == 300
    reads = Counter()
    method = AgentsSession._item

    def counted(self, message):
        reads["items"] += 1
        return method(self, message)

    monkeypatch.setattr(AgentsSession, "_item", counted)
    other = AgentsSession("known", store.sessions)
    run(session.add_items([item(300)]))
    assert run(session.get_items())[-2:] == [item(299), item(300)]
    assert reads.total() == 1
    assert run(session.get_items(limit=2)) == [item(299), item(300)]
    assert reads.total() == 1
    assert run(other.pop_item()) == item(300)
    run(other.add_items([item(301)]))
    assert run(session.get_items(limit=2)) == [item(299), item(301)]
    assert reads.total() == 3


def test_changing_returned_items_changes_nothing(store):
    session = AgentsSession("own", store.sessions)
    nested = {"role": "user", "content": [{"type": "text", "text": "hello"}]}
    run(session.add_items([nested]))
    for _ in range(2):
        result = run(session.get_items())
        assert result == [nested]
        result[0]["content"][0]["text"] = "changed"
        result[0]["role"] = "system"


def test_missing_payload_is_reported_and_pops_nothing(store):
    session = AgentsSession("s", store.sessions)
    run(session.add_items([item(1, 90_000)]))
    for path in store.root.rglob("*.blob"):
        path.unlink()
    before = store.sessions.position()
    for call in (session.get_items, session.pop_item):
        with pytest.raises(PayloadMissing):
            run(asyncio.wait_for(call(), 20))
    assert store.sessions.position() == before


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(0, 4)),
            st.tuples(st.just("pop"), st.just(0)),
            st.tuples(st.just("clear"), st.just(0)),
            st.tuples(st.just("again"), st.just(0)),
            st.tuples(st.just("foreign"), st.integers(0, 4)),
        ),
        max_size=20,
    ),
    st.integers(1, 6),
)
def test_any_script_matches_a_list(script, limit):
    sessions = Sessions()
    session, model, number = AgentsSession("日本語", sessions), [], 0

    async def play():
        nonlocal session, number
        for action, count in script:
            if action == "add":
                new = [item(number + at, 5_000 * (at % 2)) for at in range(count)]
                number += count
                given_items = copy.deepcopy(new)
                await session.add_items(given_items)
                mutate(given_items)
                model.extend(new)
            elif action == "pop":
                popped = await session.pop_item()
                assert popped == (model.pop() if model else None)
                mutate(popped)
            elif action == "clear":
                await session.clear_session()
                model.clear()
            elif action == "foreign":
                append_foreign_event(sessions, count)
            else:
                session = AgentsSession("日本語", sessions)
            # What was given and what is handed out are the caller's to change.
            for items, expected in (
                (await session.get_items(), model),
                (await session.get_items(limit), model[-limit:]),
            ):
                assert items == expected
                mutate(items)
            assert await session.get_items() == model

    run(play())
    assert sessions.verify() == []
    sessions.close()


@pytest.mark.timeout(20)
def test_write_inside_a_transaction_is_refused_at_once(store):
    """It would wait for the end of the transaction, which waits for it."""
    session = AgentsSession("s", store.sessions)
    new = AgentsSession("new", store.sessions)
    run(session.add_items([item(1)]))

    async def write():
        with store.sessions.log.database.write():
            for call in (
                lambda: session.add_items([item(2)]),
                session.pop_item,
                session.clear_session,
                lambda: new.add_items([item(2)]),
            ):
                with pytest.raises(Refused, match="inside a transaction"):
                    await call()
            assert await session.get_items() == [item(1)]

    run(write())
    assert run(session.get_items()) == [item(1)]
    assert run(new.get_items()) == []
    assert store.sessions.verify() == []


def test_concurrent_callers_lose_nothing_and_pop_nothing_twice(store):
    async def crowd():
        one, other = (AgentsSession("s", store.sessions) for _ in range(2))
        adds = [(one if n % 2 else other).add_items([item(n), item(n)]) for n in range(20)]
        await asyncio.gather(*adds)
        result = await one.get_items()
        pairs = sorted(entry["content"] for entry in result)
        assert pairs == sorted(item(n)["content"] for n in range(20) for _ in range(2))
        assert all(result[at] == result[at + 1] for at in range(0, 40, 2))
        popped = await asyncio.gather(*(one.pop_item() for _ in range(10)))
        assert sorted(map(str, popped)) == sorted(map(str, result[30:]))
        assert await other.get_items() == result[:30]

    run(crowd())
    assert store.sessions.verify() == []


def test_restart_finds_the_items_and_popped_ones_in_the_past(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        session = AgentsSession("s", store.sessions)
        run(session.add_items([item(1), item(2)]))
        run(session.pop_item())
    with fourfold.open(tmp_path / "store") as store:
        session = AgentsSession("s", store.sessions)
        assert run(session.get_items()) == [item(1)]
        stored = store.sessions.current_view("openai-agents/s/0").messages
        assert [message["item"] for message in stored] == [item(1), item(2)]
        run(session.clear_session())
        store.sessions.gc(0)
        assert all("message" not in e.data for e in store.sessions.all_events_since(0))


@pytest.mark.parametrize("name", [None, "", 1.5, "\ud800", b"s"])
def test_bad_name_is_refused(sessions, name):
    with pytest.raises(InvalidInput):
        run(AgentsSession(name, sessions).add_items([item(1)]))
    assert sessions.list_sessions() == []


def test_bad_items_are_refused_and_write_nothing(sessions):
    session = AgentsSession("s", sessions)
    run(session.add_items([item(1)]))
    for bad in ("text", {"role": "user"}):
        with pytest.raises(InvalidInput):
            run(session.add_items(bad))
    for bad in (object(), float("nan"), {"content": "\ud800"}):
        with pytest.raises(ContentError):
            run(session.add_items([item(2), bad]))
    with pytest.raises(InvalidInput):
        run(session.get_items("all"))
    with pytest.raises(InvalidInput):
        AgentsSession("s", Path("store"))
    assert run(session.get_items()) == [item(1)]


def test_sdk_runner_keeps_its_conversation_over_a_restart(tmp_path):
    """The SDK with its scripted model: a tool is called, and the next process continues."""
    agents = pytest.importorskip("agents", reason="openai-agents is not installed")
    scripted = pytest.importorskip("agents.testing", reason="this SDK has no scripted model")

    @agents.function_tool
    def weather(city: str) -> str:
        return f"rain in {city}"

    def asked(question, *steps):
        model = scripted.ScriptedModel(list(steps))
        agent = agents.Agent(name="helper", model=model, tools=[weather])
        with fourfold.open(tmp_path / "store") as store:
            session = AgentsSession("user-42", store.sessions)
            silent = agents.RunConfig(tracing_disabled=True)
            done = run(agents.Runner.run(agent, question, session=session, run_config=silent))
            assert store.sessions.verify() == []
            return done.final_output, run(session.get_items()), model.last_call.input

    message = scripted.assistant_message
    call = scripted.function_call("weather", {"city": "Ghent"}, call_id="c1")
    answer, items, _ = asked("Weather in Ghent?", [call], [message("It rains.")])
    assert answer == "It rains."
    kinds = [entry.get("type", entry.get("role")) for entry in items]
    assert kinds == ["user", "function_call", "function_call_output", "message"]
    answer, later, heard = asked("And tomorrow?", [message("No idea.")])
    assert (answer, later[:4]) == ("No idea.", items)
    assert [entry.get("output") for entry in heard][2] == "rain in Ghent"
    assert len(later) == 6


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 4)),
        st.tuples(st.just("pop"), st.just(0)),
        st.tuples(st.just("clear"), st.just(0)),
        st.tuples(st.just("get"), st.integers(0, 6)),
    ),
    max_size=20,
)


@settings(max_examples=examples(60), deadline=None)
@given(STEPS)
def test_programs_match_the_default_session_of_the_sdk(steps):
    agents = pytest.importorskip("agents", reason="openai-agents is not installed")
    theirs, sessions = agents.SQLiteSession("s"), Sessions()
    ours = AgentsSession("s", sessions)

    async def play():
        for at, (action, count) in enumerate(steps):
            if action == "add":
                items = [item(at * 10 + number, 3_000 * number) for number in range(count)]
                results = [await one.add_items(items) for one in (ours, theirs)]
            elif action == "get":
                results = [await one.get_items(count) for one in (ours, theirs)]
            else:
                call = "pop_item" if action == "pop" else "clear_session"
                results = [await getattr(one, call)() for one in (ours, theirs)]
            assert results[0] == results[1]
            assert await ours.get_items() == await theirs.get_items()

    run(play())
    theirs.close()
    sessions.close()
