"""Write ownership of threads: the 15 clauses that LangGraph's users proposed, and what lies beyond.

The clauses are those of a proposed capability `write_ownership` of the conformance suite; each
stands here once, and runs in memory, in a folder, and over HTTP. Reads go through the checkpointer
without a claim.
"""

from __future__ import annotations

import asyncio
import itertools
import operator
from typing import Annotated, TypedDict

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from served_streams import Served

import fourfold
from fourfold.adapters.langgraph import FourfoldSaver
from fourfold.errors import FourfoldError, HeadMoved, InvalidInput, LeaseLost, Refused
from fourfold.models.sessions import Sessions

NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    server = Served(tmp_path_factory.mktemp("served") / "store")
    yield f"http://127.0.0.1:{server.port}"
    server.kill()


@pytest.fixture(params=["memory", "folder", "server"])
def saver(request, tmp_path):
    if request.param == "memory":
        sessions = Sessions()
        yield FourfoldSaver(sessions)
        assert sessions.verify() == []
        sessions.close()
    elif request.param == "folder":
        with fourfold.open(tmp_path / "store") as store:
            yield FourfoldSaver(store.sessions)
            assert store.sessions.verify() == []
    else:
        with fourfold.connect(request.getfixturevalue("url")) as store:
            yield FourfoldSaver(store.sessions)


@pytest.fixture
def thread():
    return f"thread {next(NUMBERS)}"


def config_of(thread, checkpoint_id=None, ns=""):
    named = {"thread_id": thread, "checkpoint_ns": ns}
    if checkpoint_id is not None:
        named["checkpoint_id"] = checkpoint_id
    return {"configurable": named}


def put(writer, thread, parent=None, ns=""):
    """Put a checkpoint with an id after all others; return the id."""
    checkpoint_id = f"{next(NUMBERS):08d}"
    checkpoint = {
        "v": 4,
        "id": checkpoint_id,
        "ts": "2026-01-02T03:04:05+00:00",
        "channel_values": {},
        "channel_versions": {},
        "versions_seen": {},
        "updated_channels": None,
    }
    metadata = {"source": "loop", "step": 1, "parents": {}}
    stored = asyncio.run(writer.aput(config_of(thread, parent, ns), checkpoint, metadata, {}))
    assert stored["configurable"]["checkpoint_id"] == checkpoint_id
    return checkpoint_id


def put_writes(writer, thread, checkpoint_id, value, channel="ch", task="a task"):
    config = config_of(thread, checkpoint_id)
    asyncio.run(writer.aput_writes(config, [(channel, value)], task))


def claim(saver, thread):
    return asyncio.run(saver.aclaim_write_ownership(thread))


def ids(saver, thread):
    return [item.checkpoint["id"] for item in saver.list(config_of(thread))]


def tip(saver, thread):
    return saver.get_tuple(config_of(thread)).checkpoint["id"]


def writes(saver, thread, checkpoint_id):
    item = saver.get_tuple(config_of(thread, checkpoint_id))
    return [(channel, value) for _, channel, value in item.pending_writes]


def check_refused(owner, write):
    """Check that a write fails with the proposed mark, and that the barrier reports it too."""
    with pytest.raises(LeaseLost) as refused:
        write()
    assert refused.value.is_stale_write_owner_error is True
    with pytest.raises(LeaseLost):
        asyncio.run(owner.acheck_write_ownership())


def test_claim_returns_a_writer(saver, thread):
    writer = claim(saver, thread)
    assert callable(writer.aput)
    assert callable(writer.aput_writes)
    assert asyncio.run(writer.acheck_write_ownership()) is None


def test_current_owner_can_put(saver, thread):
    stored = put(claim(saver, thread), thread)
    assert tip(saver, thread) == stored


def test_current_owner_can_put_writes(saver, thread):
    owner = claim(saver, thread)
    stored = put(owner, thread)
    put_writes(owner, thread, stored, "owned")
    assert writes(saver, thread, stored) == [("ch", "owned")]


def test_superseded_owner_put_is_rejected(saver, thread):
    stale = claim(saver, thread)
    put(stale, thread)
    claim(saver, thread)
    check_refused(stale, lambda: put(stale, thread))


def test_superseded_owner_put_is_not_durable(saver, thread):
    stale = claim(saver, thread)
    first = put(stale, thread)
    claim(saver, thread)
    check_refused(stale, lambda: put(stale, thread))
    assert ids(saver, thread) == [first]


def test_superseded_owner_cannot_fork_the_chain(saver, thread):
    stale = claim(saver, thread)
    first = put(stale, thread)
    second = put(claim(saver, thread), thread, first)
    check_refused(stale, lambda: put(stale, thread, first))
    assert tip(saver, thread) == second
    assert ids(saver, thread) == [second, first]


def test_superseded_owner_put_writes_is_rejected(saver, thread):
    stale = claim(saver, thread)
    first = put(stale, thread)
    claim(saver, thread)
    check_refused(stale, lambda: put_writes(stale, thread, first, "stale"))


def test_superseded_owner_put_writes_is_not_durable(saver, thread):
    stale = claim(saver, thread)
    first = put(stale, thread)
    claim(saver, thread)
    check_refused(stale, lambda: put_writes(stale, thread, first, "stale", task="its own"))
    assert writes(saver, thread, first) == []


@pytest.mark.parametrize("channel", ["ch", "__resume__"])
def test_superseded_owner_cannot_displace_a_write(saver, thread, channel):
    """Two clauses: an ordinary channel, and one whose later write replaces the earlier."""
    stale = claim(saver, thread)
    first = put(stale, thread)
    put_writes(claim(saver, thread), thread, first, "current", channel)
    check_refused(stale, lambda: put_writes(stale, thread, first, "stale", channel))
    assert writes(saver, thread, first) == [(channel, "current")]


def test_superseded_owner_stays_superseded(saver, thread):
    stale = claim(saver, thread)
    first = put(stale, thread)
    claim(saver, thread)
    for _ in range(3):
        check_refused(stale, lambda: put(stale, thread, first))
    claim(saver, thread)
    check_refused(stale, lambda: put(stale, thread, first))
    assert ids(saver, thread) == [first]


def test_ownership_is_per_thread(saver, thread):
    owner = claim(saver, thread)
    claim(saver, f"{thread} 2")
    stored = put(owner, thread)
    assert tip(saver, thread) == stored


def test_new_owner_can_write_after_superseding(saver, thread):
    first = put(claim(saver, thread), thread)
    new = claim(saver, thread)
    second = put(new, thread, first)
    put_writes(new, thread, second, "recovered")
    assert tip(saver, thread) == second
    assert writes(saver, thread, second) == [("ch", "recovered")]


def test_duplicate_put_writes_from_current_owner_is_not_a_rejection(saver, thread):
    owner = claim(saver, thread)
    first = put(owner, thread)
    for _ in range(2):
        put_writes(owner, thread, first, "same")
    asyncio.run(owner.acheck_write_ownership())
    assert writes(saver, thread, first) == [("ch", "same")]


def test_reads_do_not_require_ownership(saver, thread):
    stored = put(claim(saver, thread), thread)
    assert tip(saver, thread) == stored
    assert ids(saver, thread) == [stored]


# Beyond the clauses


def test_repeated_write_of_a_superseded_owner_is_rejected(saver, thread):
    """Nothing new would be stored, but the owner must learn that it lost the thread."""
    stale = claim(saver, thread)
    first = put(stale, thread)
    put_writes(stale, thread, first, "same")
    claim(saver, thread)
    check_refused(stale, lambda: put_writes(stale, thread, first, "same"))


def test_superseded_owner_creates_no_namespace(saver, thread):
    stale = claim(saver, thread)
    put(stale, thread)
    claim(saver, thread)
    before = [info.id for info in saver.sessions.list()]
    for _ in range(2):
        check_refused(stale, lambda: put(stale, thread, ns="inner:1"))
    assert [info.id for info in saver.sessions.list()] == before


def test_namespaces_of_a_thread_have_one_owner(saver, thread):
    stale = claim(saver, thread)
    put(stale, thread, ns="inner:1")
    current = claim(saver, thread)
    check_refused(stale, lambda: put(stale, thread, ns="inner:1"))
    put(current, thread, ns="inner:2")
    check_refused(stale, lambda: put(stale, thread, ns="inner:2"))


def test_ownership_continues_after_the_thread_was_pruned(saver, thread):
    stale = claim(saver, thread)
    first = put(stale, thread)
    put(stale, thread, first)
    saver.prune([thread])
    put(stale, thread)
    claim(saver, thread)
    check_refused(stale, lambda: put(stale, thread))


def test_owner_writes_no_other_thread_and_deletes_none(saver, thread):
    owner = claim(saver, thread)
    for refused in (
        lambda: put(owner, f"{thread} 2"),
        lambda: owner.delete_thread(thread),
        lambda: owner.prune([thread]),
        lambda: owner.copy_thread(thread, f"{thread} 2"),
    ):
        with pytest.raises(Refused, match="claim"):
            refused()


def test_released_owner_is_refused(saver, thread):
    owner = claim(saver, thread)
    put(owner, thread)
    asyncio.run(owner.arelease_write_ownership())
    check_refused(owner, lambda: put(owner, thread))
    for call in (saver.check_write_ownership, saver.release_write_ownership):
        with pytest.raises(InvalidInput, match="has claimed no thread"):
            call()


def test_claim_is_listed_with_its_holder(saver, thread):
    owner = saver.claim_write_ownership(thread, holder="worker 7", ttl_s=60)
    [lease] = [item for item in saver.sessions.list_leases() if item.holder == "worker 7"]
    owner.release_write_ownership()
    assert lease not in saver.sessions.list_leases()


class State(TypedDict):
    log: Annotated[list, operator.add]


def graph_of(saver, work=lambda: None):
    """A graph with a subgraph; its node does `work`, then a person is asked."""

    def node(_state):
        work()
        return {"log": ["inner"]}

    inner = StateGraph(State)
    inner.add_node("node", node)
    inner.add_edge(START, "node")
    builder = StateGraph(State)
    builder.add_node("inner", inner.compile(checkpointer=True))
    builder.add_node("ask", lambda state: {"log": [interrupt("?")]})
    builder.add_edge(START, "inner")
    builder.add_edge("inner", "ask")
    return builder.compile(checkpointer=saver)


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_owner_runs_graphs_until_it_is_superseded(saver, thread, durability):
    config = {"configurable": {"thread_id": thread}}
    owner = claim(saver, thread)
    graph = graph_of(owner)
    graph.invoke({"log": ["one"]}, config, durability=durability)
    graph.invoke(Command(resume="yes"), config, durability=durability)
    before = graph.get_state(config).values["log"]
    superseded = graph_of(owner, lambda: claim(saver, thread))
    with pytest.raises(FourfoldError) as refused:
        superseded.invoke({"log": ["two"]}, config, durability=durability)
    assert getattr(refused.value, "is_stale_write_owner_error", False)
    values = graph_of(saver).get_state(config).values["log"]
    assert values in (before, [*before, "two"])


def test_stale_owner_learns_of_the_claim_before_the_newer_checkpoint(saver, thread):
    """A run knows an older tip and has lost its claim: the claim is what it can act on."""
    config = {"configurable": {"thread_id": thread}}
    owner = claim(saver, thread)
    loaded = None
    put(owner, thread)
    loaded = owner.get_tuple(config)
    put(claim(saver, thread), thread)
    checkpoint = {**loaded.checkpoint, "id": f"{next(NUMBERS):08d}"}
    with pytest.raises(LeaseLost):
        owner.put(loaded.config, checkpoint, {"source": "loop"}, {})
    with pytest.raises(HeadMoved):
        saver.put(loaded.config, checkpoint, {"source": "loop"}, {})
