"""The checkpointer alone: names, bad input, deletion, and refused pickles."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph_calls import checkpoint, config, put, values

import fourfold
from fourfold.adapters.langgraph import FourfoldSaver
from fourfold.adapters.langgraph.values import Fingerprint, pack_items
from fourfold.adapters.session_ids import encode_name
from fourfold.errors import AlreadyExists, FourfoldError, HeadMoved, InvalidInput, Refused
from fourfold.models.sessions import Sessions
from support.properties import examples


@pytest.fixture
def saver(sessions):
    return FourfoldSaver(sessions)


@pytest.mark.parametrize(
    "name",
    [
        "1",
        "日本語",
        "with space/and slash",
        "=sneaky",
        "ü" * 300,
        "a" * 500,
        "💬",
        "../..",
        42,
        "%",
    ],
)
def test_thread_may_have_any_name(saver, sessions, name):
    put(saver, "c1", name, x="kept")
    assert values(saver, name) == {"x": "kept"}
    assert values(saver, "another") is None
    assert [item.config["configurable"]["thread_id"] for item in saver.list(None)] == [str(name)]
    saver.delete_thread(name)
    assert values(saver, name) is None


@given(st.lists(st.text(min_size=1), min_size=2, max_size=2, unique=True))
def test_different_names_never_collide(names):
    one, other = names
    try:
        assert encode_name(one) != encode_name(other)
    except InvalidInput:
        assert any("\ud800" <= char <= "\udfff" for name in names for char in name)


@pytest.mark.parametrize(
    "bad",
    [
        None,
        {},
        {"configurable": None},
        {"configurable": {}},
        {"configurable": {"thread_id": None}},
        {"configurable": {"thread_id": ""}},
        {"configurable": {"thread_id": 1.5}},
        {"configurable": {"thread_id": "\ud800"}},
        {"configurable": {"thread_id": "t", "checkpoint_ns": 7}},
        {"configurable": {"thread_id": "t", "checkpoint_id": 7}},
    ],
)
def test_config_without_a_thread_is_refused(saver, sessions, bad):
    for call in (
        lambda: saver.get_tuple(bad),
        lambda: saver.put(bad, checkpoint("c"), {}, {}),
        lambda: saver.put_writes(bad, [("a", 1)], "task"),
    ):
        with pytest.raises(InvalidInput):
            call()
    assert sessions.list_sessions() == []


def test_bad_arguments_are_refused_and_write_nothing(saver, sessions):
    put(saver, "c1", x=1)
    before = sessions.position()
    for call in (
        lambda: saver.put_writes(config(), [("a", 1)], "task"),
        lambda: saver.prune(["t"], strategy="everything"),
        lambda: saver.delete_thread(None),
        lambda: list(saver.list(config(), limit=-1)),
        lambda: put(saver, "c2", x=object()),
        lambda: put(saver, "c2", messages=["fine", object()]),
        lambda: saver.put_writes(config("t", "c1"), [("a", object())], "task"),
        lambda: FourfoldSaver("a path"),
    ):
        with pytest.raises(InvalidInput):
            call()
    assert sessions.position() == before
    assert values(saver) == {"x": 1}


class Unlucky:
    """A value that can only be pickled."""


def test_pickles_are_neither_written_nor_read(sessions):
    saver = FourfoldSaver(sessions, serde=JsonPlusSerializer(pickle_fallback=True))
    with pytest.raises(Refused):
        put(saver, "c1", x=Unlucky())
    put(saver, "c2", x=1)
    sid = "langgraph/t/0"
    [event] = sessions.events_of_key(sid, "cc2")
    step = dict(event.data["step"], checkpoint_id="c3")
    step["channels"] = {"x": {"value": {"type": "pickle", "data": pickle.dumps(1)}}}
    sessions.append_event(sid, {"type": "step/started", "step": step}, key="cc3")
    with pytest.raises(Refused):
        FourfoldSaver(sessions, serde=JsonPlusSerializer(pickle_fallback=True)).get_tuple(config())


def test_checkpoint_put_again_is_replaced(saver, sessions):
    put(saver, "c1", x=1, messages=["a", "b"])
    put(saver, "c2", parent="c1", x=2, messages=["a", "b", "c"])
    for _ in range(2):
        put(saver, "c1", x=7, messages=["other"])
    for result in (saver, FourfoldSaver(sessions)):
        assert values(result, name="c1") == {"x": 7, "messages": ["other"]}
        assert values(result, name="c2") == {"x": 2, "messages": ["a", "b", "c"]}
        assert values(result) == {"x": 2, "messages": ["a", "b", "c"]}
        assert [item.checkpoint["id"] for item in result.list(config())] == ["c2", "c1"]


def test_replaced_checkpoint_is_seen_by_another_checkpointer(sessions):
    one, other = FourfoldSaver(sessions), FourfoldSaver(sessions)
    put(one, "c1", x=1)
    put(one, "c2", parent="c1", x=2)
    assert values(one, name="c1") == values(other, name="c1") == {"x": 1}
    put(other, "c1", x=7)
    assert values(one, name="c1") == {"x": 7}
    put(one, "c3", parent="c1", x=7)
    assert values(other, name="c3") == {"x": 7}


def test_checkpoints_put_out_of_order_are_listed_by_id(saver, sessions):
    for name in ("c5", "c2", "c8", "c1", "c6", "c9", "c3"):
        put(saver, name, x=name)
    for result in (saver, FourfoldSaver(sessions)):
        listed = [item.checkpoint["id"] for item in result.list(config())]
        assert listed == ["c9", "c8", "c6", "c5", "c3", "c2", "c1"]
        assert values(result) == {"x": "c9"}
        before = [item.checkpoint["id"] for item in result.list(config(), before=config("t", "c6"))]
        assert before == ["c5", "c3", "c2", "c1"]


def test_thread_can_be_deleted_and_restarted_repeatedly(saver, sessions):
    for life in range(4):
        put(saver, f"c{life}", x=life)
        assert [item.checkpoint["id"] for item in saver.list(config())] == [f"c{life}"]
        saver.delete_thread("t")
        assert values(saver) is None
        assert values(FourfoldSaver(sessions)) is None
    sessions.gc(0)
    assert sessions.verify() == []
    assert all("langgraph/t/" not in info.id for info in sessions.list_sessions())


def test_deleted_thread_is_seen_by_another_checkpointer(sessions):
    one, other = FourfoldSaver(sessions), FourfoldSaver(sessions)
    put(one, "c1", x=1)
    assert values(other) == {"x": 1}
    other.delete_thread("t")
    assert values(one) is None
    put(one, "c2", x=2)
    assert values(other) == {"x": 2}


def test_copied_thread_is_complete_and_independent(saver, sessions):
    put(saver, "c1", messages=["a" * 900])
    put(saver, "c2", parent="c1", messages=["a" * 900, "b"])
    saver.put_writes(config("t", "c2"), [("messages", ["c" * 900])], "task")
    saver.copy_thread("t", "copy")
    put(saver, "c3", parent="c2", messages=["gone"])
    saver.delete_thread("t")
    sessions.gc(0)
    result = FourfoldSaver(sessions).get_tuple(config("copy"))
    assert result.checkpoint["channel_values"] == {"messages": ["a" * 900, "b"]}
    assert result.pending_writes == [("task", "messages", ["c" * 900])]
    with pytest.raises(AlreadyExists):
        saver.copy_thread("copy", "copy")


def test_pruned_checkpoints_are_removed_by_gc(saver, sessions):
    parent = None
    for number in range(40):
        put(saver, f"c{number:02d}", parent=parent, messages=[f"secret {n}" for n in range(number)])
        parent = f"c{number:02d}"
    put(saver, "c99", parent=parent, messages=["public"])
    saver.prune(["t"])
    assert values(saver) == {"messages": ["public"]}
    assert len(list(saver.list(config()))) == 1
    sessions.gc(0)
    assert all("secret" not in str(event.data) for event in sessions.all_events_since(0))
    assert values(FourfoldSaver(sessions)) == {"messages": ["public"]}
    assert sessions.verify() == []


def test_writes_are_replaced_or_retained_as_langgraph_requires(saver, sessions):
    put(saver, "c1", x=1)
    where = config("t", "c1")
    saver.put_writes(where, [("a", 1), ("b", 2)], "task-2", "path-1")
    saver.put_writes(where, [("a", "ignored")], "task-2", "path-1")
    saver.put_writes(where, [("__error__", "first")], "task-1", "path-2")
    saver.put_writes(where, [("__error__", "second")], "task-1", "path-2")
    for result in (saver, FourfoldSaver(sessions)):
        assert result.get_tuple(where).pending_writes == [
            ("task-2", "a", 1),
            ("task-2", "b", 2),
            ("task-1", "__error__", "second"),
        ]


def test_writes_are_seen_by_another_checkpointer(sessions):
    one, other = FourfoldSaver(sessions), FourfoldSaver(sessions)
    put(one, "c1", x=1)
    where = config("t", "c1")
    for number, (writer, reader) in enumerate([(one, other), (other, one), (one, other)] * 2):
        assert len(reader.get_tuple(where).pending_writes) == number
        writer.put_writes(where, [("a", number)], f"task-{number}")
        writer.put_writes(where, [("a", number)], f"task-{number}")
        for saver in (one, other, FourfoldSaver(sessions)):
            result = saver.get_tuple(where).pending_writes
            assert [value for _, _, value in result] == [*range(number + 1)]


def test_writes_may_precede_their_checkpoint(saver, sessions):
    saver.put_writes(config("t", "c1"), [("a", 1)], "task")
    assert values(saver) is None
    put(saver, "c1", x=1)
    assert FourfoldSaver(sessions).get_tuple(config()).pending_writes == [("task", "a", 1)]


scalars = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=5)
plain = st.recursive(
    scalars | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
messages = st.builds(AIMessage, st.text(max_size=8), id=st.text(max_size=2))
states = st.dictionaries(
    st.sampled_from("abc"),
    plain | st.lists(plain | messages, max_size=6) | st.just("z" * 700),
    max_size=3,
)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(states, st.integers(0, 100)), min_size=1, max_size=8))
def test_any_state_is_read_as_it_was_put(script):
    """Each checkpoint has a random earlier one as parent; half-way the caches are dropped."""
    sessions = Sessions()
    saver = FourfoldSaver(sessions)
    stored = []
    for number, (state, choice) in enumerate(script):
        parent = stored[choice % len(stored)][0] if stored and choice else None
        name = f"c{number:03d}"
        result = checkpoint(name, **state)
        result["channel_versions"] = dict.fromkeys(state, number + 1)
        saver.put(config("t", parent), result, {"step": number}, result["channel_versions"])
        stored.append((name, state))
        if number == len(script) // 2:
            saver = FourfoldSaver(sessions)
    for fresh in (saver, FourfoldSaver(sessions)):
        for name, state in stored:
            result = values(fresh, name=name)
            assert result == state
            assert repr(result) == repr({channel: state[channel] for channel in result})
    assert sessions.verify() == []
    sessions.close()


@given(plain, plain)
def test_equal_fingerprints_mean_equal_values_of_equal_types(one, other):
    if pack_items([one]) == pack_items([other]) and pack_items([one]) is not None:
        assert repr(one) == repr(other) or one == other
    prints = Fingerprint()
    if prints.add(one):
        assert prints.starts_with([one])
        assert prints.starts_with([other]) == (pack_items([one]) == pack_items([other]))


# Changes that a node may make to a message, unnoticed by pydantic.
changes = st.sampled_from(
    [
        ("content", "a"),
        ("content", "b"),
        ("id", None),
        ("id", "1"),
        ("id", 1),
        ("id", True),
        ("id", 0.0),
        ("id", -0.0),
        ("name", ""),
        ("name", []),
        ("additional_kwargs", {"a": 1}),
        ("additional_kwargs", {"a": True}),
    ]
)


class Answer(AIMessage):
    """A model with equal fields and another name."""


def _changed(kind, change):
    made = kind("a", id="1")
    made.__dict__[change[0]] = change[1]
    return made


models = st.builds(_changed, st.sampled_from([AIMessage, HumanMessage, Answer]), changes)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(models | plain, min_size=1, max_size=4), st.integers(0, 3), changes, plain)
def test_fingerprint_matches_messages_that_pack_to_equal_bytes(known, at, change, other):
    prints = Fingerprint()
    for entry in copy.deepcopy(known):
        assert prints.add(entry)
    for length in range(len(known) + 1):
        assert prints.starts_with(known[:length])
    assert not prints.starts_with([*known, "more"])
    result = known[at % len(known)]
    replaced = [other]
    if isinstance(result, AIMessage | HumanMessage):
        held = result.__dict__
        replaced += [_like(result, {**held, change[0]: change[1]}), _like(Answer("a"), held)]
    for entry in replaced:
        sent = [entry if item is result else item for item in known]
        assert prints.starts_with(sent) == (pack_items(sent) == pack_items(known))


def _like(message, held):
    made = message.model_copy()
    made.__dict__.clear()
    made.__dict__.update(held)
    return made


def test_message_changed_in_place_does_not_match_its_fingerprint():
    for change in (("content", "b"), ("id", None), ("tool_calls", [{}]), ("tool_calls", ())):
        stored = AIMessage("a", id="1")
        prints = Fingerprint()
        assert prints.add(stored)
        given = stored.model_copy()
        assert prints.starts_with([given])
        given.__dict__[change[0]] = change[1]
        assert not prints.starts_with([given])
    assert not prints.starts_with([AIMessage("a", id="1", more=1)])
    for one, other in ((0.0, -0.0), (1, True), (1, 1.0)):
        prints = Fingerprint()
        assert prints.add(_changed(AIMessage, ("id", one)))
        assert not prints.starts_with([_changed(AIMessage, ("id", other))])


def test_one_differs_from_true_in_a_fingerprint():
    for one, other in ((1, True), (1, 1.0), ({"a": 1}, {"a": True}), ("1", 1), ([], {})):
        assert pack_items([one]) != pack_items([other])
    assert pack_items([(1, 2)]) is None
    assert pack_items([AIMessage("a", id="1")]) != pack_items([AIMessage("b", id="1")])


def test_import_without_langgraph_names_the_extra(tmp_path):
    (tmp_path / "langgraph.py").write_text("raise ImportError('not here')")
    code = (
        "import fourfold, fourfold.adapters.openai_agents\n"
        "from fourfold.errors import MissingDependency\n"
        "try:\n    import fourfold.adapters.langgraph.saver\n"
        "except MissingDependency as error:\n    print(error.hint)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert done.stdout == "pip install 'fourfold[langgraph]'\n"


def test_read_only_store_can_be_read(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        put(FourfoldSaver(store.sessions), "c1", x=[1, "two"])
    with fourfold.open(tmp_path / "store", mode="r") as store:
        saver = FourfoldSaver(store.sessions)
        assert values(saver) == {"x": [1, "two"]}
        with pytest.raises(FourfoldError):
            put(saver, "c2", x=1)


MESSAGES = [HumanMessage("hello " * 200, id="1"), AIMessage("short", id="2")]


def put_steps(saver):
    """Put three checkpoints, each on top of the one before, with writes between."""
    parent = None
    for number in range(1, 4):
        metadata = {"nested": {"list": [1, (2, "x")], "b": 1.5, "a": None}}
        put(
            saver,
            f"c{number}",
            parent=parent,
            metadata=metadata,
            messages=MESSAGES * number,
            table={"b": "x" * 2_000, "a": number},
            text="y" * 600 if number < 3 else "z",
        )
        saver.put_writes(config("t", f"c{number}"), [("messages", MESSAGES[0])], f"task-{number}")
        parent = f"c{number}"


def test_put_does_not_decode_what_it_wrote(saver, monkeypatch):
    def refuse(*args):
        raise AssertionError(f"decoded {args}")

    put(saver, "c0", x=1)
    monkeypatch.setattr("fourfold.models.sessions.stamps.decode", refuse)
    put_steps(saver)
    monkeypatch.setattr("fourfold.models.sessions.sqlite_log.SqliteLog.read", refuse)
    put(saver, "c4", parent="c3", messages=MESSAGES * 4, text="z")


def test_turn_reads_the_log_only_when_it_begins(saver, sessions, monkeypatch):
    calls = []

    def recorded(name):
        method = getattr(type(sessions), name)

        def call(self, *args, **kwargs):
            calls.append(name)
            return method(self, *args, **kwargs)

        monkeypatch.setattr(type(sessions), name, call)

    put(saver, "c-1", messages=["one"])
    saver.put_writes(saver.get_tuple(config()).config, [("messages", ["two" * 200])], "task")
    for name in ("current_view", "events_of_key", "events_since", "append_event"):
        recorded(name)
    loaded = saver.get_tuple(config())
    assert "append_event" not in calls
    messages = ["one", "two" * 200]
    stored = saver.put(loaded.config, checkpoint("c-2", messages=messages), {}, {"messages": 1})
    calls.clear()
    saver.put_writes(stored, [("messages", ["three" * 200])], "task 2")
    checkpointed = checkpoint("c-3", messages=["one", "two" * 200, "three" * 200])
    saver.put(stored, checkpointed, {"source": "loop"}, {"messages": 1})
    assert calls == ["append_event", "append_event"]
    assert values(FourfoldSaver(sessions)) == checkpointed["channel_values"]


def test_write_beside_another_checkpointer_is_read_again(sessions):
    one, other = FourfoldSaver(sessions), FourfoldSaver(sessions)
    put(one, "c-1", messages=["one"])
    loaded = one.get_tuple(config()).config
    other.put_writes(loaded, [("messages", ["other"])], "task 1")
    one.put_writes(loaded, [("messages", ["one"])], "task 2")
    other.put_writes(loaded, [("messages", ["other"])], "task 1")
    one.put_writes(loaded, [("messages", ["other"])], "task 1")
    expected = [("task 1", "messages", ["other"]), ("task 2", "messages", ["one"])]
    for reader in (one, other, FourfoldSaver(sessions)):
        assert reader.get_tuple(config()).pending_writes == expected


def test_write_after_another_checkpointer_deleted_is_refused(sessions):
    one, other = FourfoldSaver(sessions), FourfoldSaver(sessions)
    put(one, "c-1", messages=["one"])
    loaded = one.get_tuple(config()).config
    other.delete_thread("t")
    with pytest.raises(HeadMoved):
        one.put_writes(loaded, [("messages", ["two"])], "task")
    with pytest.raises(HeadMoved):
        one.put(loaded, checkpoint("c-2", messages=["two"]), {"source": "loop"}, {"messages": 1})
    assert one.get_tuple(config()) is None


def test_cached_checkpoints_equal_those_read_from_the_log(saver, sessions):
    put_steps(saver)
    cached = list(saver.list(config("t")))
    assert cached == list(FourfoldSaver(sessions).list(config("t")))
    assert cached[0].metadata["nested"]["list"] == [1, [2, "x"]]
    assert list(cached[0].metadata["nested"]) == ["a", "b", "list"]
    log, stored = (checkpointer._log("t", "") for checkpointer in (saver, FourfoldSaver(sessions)))
    events = [log._event(number) for number in range(1, log._last_event() + 1)]
    assert [event.as_dict() for event in events] == [
        stored._event(event.id).as_dict() for event in events
    ]


def test_checkpoint_does_not_change_with_the_callers_objects(saver):
    metadata = {"nested": {"list": [1]}, "source": "loop"}
    checkpoint_1 = checkpoint("c1", x=["a" * 600])
    checkpoint_1["pending"] = [["send"]]
    saver.put(config("t"), checkpoint_1, metadata, {"x": 1})
    before = copy.deepcopy(saver.get_tuple(config("t")))
    metadata["nested"]["list"].append(2)
    checkpoint_1["pending"][0].append("more")
    checkpoint_1["channel_values"]["x"].append("b")
    checkpoint_1["versions_seen"]["node"]["a"] = 2
    saver.get_tuple(config("t")).metadata["nested"]["list"].append(3)
    assert saver.get_tuple(config("t")) == before


def test_thread_begins_again_after_retention_has_deleted_it(store):
    saver = FourfoldSaver(store.sessions)
    put(saver, "1", thread="old", a=1)
    put(saver, "1", thread="kept", a=1)
    report = store.sessions.apply_retention("langgraph/", keep_latest=1)
    assert report.sessions == ["langgraph/old/0"]
    assert saver.get_tuple(config("old")) is None
    put(saver, "2", thread="old", a=2)
    assert values(saver, "old") == {"a": 2}
    assert [item.checkpoint["id"] for item in saver.list(config("old"))] == ["2"]
    # The session that stores the generation of the name is never deleted.
    assert sorted(store.sessions.apply_retention("langgraph/", keep_latest=0).sessions) == [
        "langgraph/kept/0",
        "langgraph/old/1",
    ]
    put(FourfoldSaver(store.sessions), "3", thread="old", a=3)
    assert values(saver, "old") == {"a": 3}
    assert store.sessions.verify() == []


def test_claimed_thread_is_kept_by_retention(store):
    saver = FourfoldSaver(store.sessions)
    owner = saver.claim_write_ownership("t")
    put(owner, "1", a=1)
    put(owner, "2", parent="1", a=list(range(500)))
    put(owner, "3", parent="2", a=[*range(500), 7])
    assert store.sessions.apply_retention(keep_latest=0).deleted == 0
    owner.release_write_ownership()
    assert store.sessions.apply_retention(keep_latest=0).sessions == ["langgraph/t/0"]
