"""Search of LangGraph threads: the messages of checkpoints are hits, also in the past."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph_calls import put

import fourfold
from fourfold.adapters.langgraph import FourfoldSaver


class Trap(HumanMessage):
    """A message whose class must not be built by an index."""

    def __init__(self, *args, **kwargs):
        assert not getattr(type(self), "armed", False)
        super().__init__(*args, **kwargs)


@pytest.fixture
def store(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        yield store


def places(hits):
    return [(hit.session, hit.event, hit.title) for hit in hits]


def converse(saver):
    call = {"name": "refund", "args": {"order": "4711"}, "id": "c-1", "type": "tool_call"}
    first = [HumanMessage("Where is my crème brûlée? " + "It was ordered. " * 60, id="m-1")]
    second = [*first, AIMessage("I look it up.", id="m-2", tool_calls=[call])]
    put(saver, "c-1", messages=first, __start__={"messages": [HumanMessage("hidden")]})
    put(saver, "c-2", parent="c-1", messages=second, plan=["not a message"])
    put(saver, "c-3", parent="c-2", messages=[*second, {"role": "user", "content": "thanks"}])


def test_search_finds_the_event_that_added_a_message(store):
    converse(FourfoldSaver(store.sessions))
    sid = "langgraph/t/0"
    found = {
        query: places(store.sessions.search(query))
        for query in ("brulee", "refund 4711", "thanks", "hidden", "plan", "HumanMessage")
    }
    assert found == {
        "brulee": [(sid, 2, "user")],
        "refund 4711": [(sid, 3, "assistant")],
        "thanks": [(sid, 4, "user")],
        "hidden": [],
        "plan": [],
        "HumanMessage": [],
    }
    [hit] = store.sessions.search("brulee")
    assert "Where is my crème brûlée?" in hit.text
    assert [hit.kind for hit in store.sessions.search("thanks", kinds=["message"])] == ["message"]
    assert not len(store.sessions.search("thanks", kinds=["call"]))


def test_search_in_the_past_has_no_later_messages(store):
    converse(FourfoldSaver(store.sessions))
    search = store.sessions.search
    assert not len(search("refund", sid="langgraph/t/0", at=2))
    assert len(search("refund", sid="langgraph/t/0", at=3)) == 1
    assert not len(search("thanks", sid="langgraph/t/0", at=3))


def test_search_finds_a_message_that_a_write_stored(store):
    saver = FourfoldSaver(store.sessions)
    large = AIMessage("a soufflé " * 20, id="m-1")
    config = put(saver, "c-1", messages=[SystemMessage("begin")])
    saver.put_writes(config, [("messages", [large])], "task")
    put(saver, "c-2", parent="c-1", messages=[SystemMessage("begin"), large])
    assert places(store.sessions.search("souffle")) == [("langgraph/t/0", 4, "assistant")]
    assert store.sessions.verify() == []


def test_index_builds_no_object_of_a_message(store):
    put(FourfoldSaver(store.sessions), "c-1", messages=[Trap("the word xylophone")])
    Trap.armed = True
    try:
        assert places(store.sessions.search("xylophone")) == [("langgraph/t/0", 2, "user")]
    finally:
        Trap.armed = False


class Hidden(JsonPlusSerializer):
    """A serializer whose bytes only it can read."""

    def dumps_typed(self, obj):
        kind, data = super().dumps_typed(obj)
        return f"{kind}+rot", bytes(255 - byte for byte in data)

    def loads_typed(self, data):
        kind, raw = data
        return super().loads_typed((kind.removesuffix("+rot"), bytes(255 - byte for byte in raw)))


def test_message_of_another_serializer_has_no_words(store):
    saver = FourfoldSaver(store.sessions, serde=Hidden())
    put(saver, "c-1", messages=[HumanMessage("a secret " * 40)])
    assert not len(store.sessions.search("secret"))
    assert store.sessions.verify() == []


def test_pickle_and_damaged_item_have_no_words(store):
    sessions = store.sessions
    sessions.create({"id": "langgraph/t/0", "kind": "langgraph"})
    for item in (
        {"type": "pickle", "data": pickle.dumps(HumanMessage("boom"))},
        {"type": "msgpack/deflate-1", "data": b"boom"},
        ["absent"],
        "boom",
    ):
        step = {"channels": {"messages": {"list": [item]}}}
        sessions.append_event("langgraph/t/0", {"type": "step/started", "step": step})
    sessions.append_event("langgraph/t/0", {"type": "step/started", "step": {"channels": 1}})
    assert not len(sessions.search("boom"))


def test_threads_are_searched_without_langgraph(store):
    converse(FourfoldSaver(store.sessions))
    script = (
        "import sys; sys.modules.update(langgraph=None, langchain_core=None, ormsgpack=None);"
        "import fourfold; store = fourfold.open(sys.argv[1], mode='r');"
        "print([hit.event for hit in store.sessions.search('brulee')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(store.root)], capture_output=True, text=True, check=False
    )
    assert done.stdout == "[2]\n", done.stderr


def test_stores_of_earlier_versions_index_their_threads(store):
    converse(FourfoldSaver(store.sessions))
    sessions = store.sessions
    sessions.create({"id": "plain"})
    sessions.append_event("plain", {"type": "message/appended", "message": {"content": "plain"}})
    sessions.index_texts()
    from fourfold.models.sessions.database import MIGRATIONS  # noqa: PLC0415

    [migration] = [step for step in MIGRATIONS if step.name == "thread_text"]
    sessions.log.transact(lambda writing: writing._txn.execute(migration.sql))
    assert len(sessions.search("brulee")) == len(sessions.search("plain")) == 1
    assert sessions.verify() == []
