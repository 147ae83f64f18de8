"""Deltas of dicts, lists, strings and bytes: small in the log, and read as they were put."""

from __future__ import annotations

import copy
import random
from collections import Counter
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage
from langgraph_calls import checkpoint, config, put, values

from fourfold.adapters.langgraph import FourfoldSaver, delta_chain, list_chain, thread_log
from fourfold.adapters.langgraph.deltas import apply, diff, fold, weigh, weighs_at_least
from fourfold.adapters.langgraph.values import Serde
from fourfold.content import PayloadRef
from fourfold.errors import CorruptData
from fourfold.models.sessions import Sessions
from fourfold.testing.session_log_contract import mutate
from support.properties import examples

TASK = "00000000-0000-0000-0000-000000000000"
scalars = (
    st.none()
    | st.booleans()
    | st.integers(0, 2)
    | st.sampled_from([0.0, -0.0, 1.0, 2.5])
    | st.text("ab", max_size=9)
    | st.binary(max_size=3)
)
trees = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text("abc", max_size=1), inner, max_size=4)
    ),
    max_leaves=12,
)


def is_same(before, after):
    return type(before) is type(after) and repr(before) == repr(after)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(trees, min_size=2, max_size=5))
def test_delta_leads_from_one_value_to_the_next(steps):
    """With the types, the order of members, and signs of zeros that the next value has."""
    deltas = []
    for before, after in pairwise(steps):
        original = repr(before)
        delta = diff(before, after, is_same)
        assert repr(before) == original
        assert (delta is None) == (repr(before) == repr(after))
        if delta is not None:
            deltas.append(delta)
            changed = apply(copy.deepcopy(before), copy.deepcopy(delta))
            assert repr(changed) == repr(after)
    assert repr(fold(copy.deepcopy(steps[0]), copy.deepcopy(deltas))) == repr(steps[-1])


@given(trees)
def test_weight_of_a_value_is_near_its_serialized_size(value):
    weight = weigh(value)
    assert 0 < weight <= 9 * len(repr(value)) + 9
    assert weighs_at_least(value, weight)
    assert not weighs_at_least(value, weight + 1)


@contextmanager
def small_limits():
    """Every value may have a delta, chains are short, and packs have two parts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thread_log, "DELTA_WEIGHT_MIN", 1)
        patch.setattr(delta_chain, "DELTAS_MAX", 7)
        patch.setattr(delta_chain, "PACK_ITEMS_MIN", 2)
        patch.setattr(list_chain, "PACK_ITEMS_MIN", 2)
        yield


def grown(choice):
    """A value that shares most of its parts with others of the same kind."""
    kind, size, at = choice
    text = "".join(f"line {number} of a text\n" for number in range(size))
    if kind == "text":
        return text[:at] + "!" + text[at:]
    if kind == "bytes":
        return text.encode()
    if kind == "messages":
        return [AIMessage(f"message {number}", id=str(number)) for number in range(size)]
    if kind == "files":
        return {f"f{number}": [text, {"n": at == number}] for number in range(size)}
    if kind == "plan":
        tasks = [{"task": f"do {number}", "done": at > number} for number in range(8)]
        return tasks + [{"task": "more"}] * (size // 4)
    times = {f"t{number}": datetime(2026, 1, 1 + number, tzinfo=UTC) for number in range(size)}
    return {**times, "t0": [at, text], "m": AIMessage(text, id="m")}


kinds = st.sampled_from(["text", "bytes", "messages", "files", "plan", "times"])
grown_values = st.tuples(kinds, st.integers(1, 12), st.integers(0, 9)).map(grown)
states = st.dictionaries(st.sampled_from("ab"), grown_values | trees, max_size=2)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.tuples(states, st.integers(0, 30), st.booleans()), min_size=1, max_size=20),
    st.sampled_from(["text", "bytes", "messages", "files", "plan", "times"]),
)
@small_limits()
def test_states_and_writes_are_read_as_they_were_put(script, kind):
    """Checkpoints continue from any earlier one, with and without caches; readers change results.

    The channel `c` grows at every step, so it has long chains.
    """
    sessions = Sessions()
    saver = FourfoldSaver(sessions)
    stored = []
    for number, (others, choice, is_fresh) in enumerate(script):
        if is_fresh:
            saver = FourfoldSaver(sessions)
        parent = stored[-1 - choice % len(stored)][0] if stored and choice % 3 == 0 else None
        parent = parent or (stored[-1][0] if stored else None)
        name = f"c{number:03d}"
        state = {**others, "c": grown((kind, max(1, number + 1 - choice % 4), number % 3))}
        result = checkpoint(name, **copy.deepcopy(state))
        result["channel_versions"] = dict.fromkeys(state, number + 1)
        if choice % 2 and parent:
            saver.put_writes(config("t", parent), [*result["channel_values"].items()], f"{number}")
        saver.put(config("t", parent), result, {"step": number}, result["channel_versions"])
        written = state if choice % 2 and parent else {}
        stored.append((name, state, parent, written))
        mutate(result["channel_values"])
        mutate(saver.get_tuple(config("t")))
    saver.copy_thread("t", "u")
    for fresh in (saver, FourfoldSaver(sessions)):
        for thread in ("t", "u"):
            for name, state, parent, written in stored:
                assert_equal(values(fresh, thread, name), state)
                if written:
                    pending = fresh.get_tuple(config(thread, parent)).pending_writes
                    task = str(int(name[1:]))
                    assert_equal({c: value for t, c, value in pending if t == task}, written)
    saver.prune(["t"])
    assert_equal(values(FourfoldSaver(sessions)), stored[-1][1])
    assert sessions.verify() == []
    sessions.close()


def assert_equal(result, state):
    assert {name: repr(value) for name, value in result.items()} == {
        name: repr(value) for name, value in state.items()
    }


def run(saver, value_of, turns):
    """One checkpoint for each turn, which a task wrote, as a graph does."""
    parent = None
    for number in range(turns):
        name, value = f"c{number:04d}", value_of(number)
        result = checkpoint(name, x=value)
        result["channel_versions"] = {"x": number + 1}
        if parent:
            saver.put_writes(config("t", parent), [("x", value)], TASK)
        saver.put(config("t", parent), result, {"step": number}, {"x": number + 1})
        parent = name


TEXT = "All that changes is stored, and nothing else is stored again. " * 10
SHAPES = {
    "growing dict": lambda n: {f"file {k}": f"{k} {TEXT}" for k in range(n + 1)},
    "growing string": lambda n: "".join(f"{k} {TEXT}" for k in range(n + 1)),
    "growing bytes": lambda n: b"".join(b"%d %b" % (k, TEXT.encode()) for k in range(n + 1)),
    "one item of a list": lambda n: [{"task": TEXT, "done": k < n} for k in range(100)],
    "nested": lambda n: {"files": {"a": {"lines": [TEXT] * (n + 1)}}},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_growing_value_is_stored_as_what_was_added(sessions, shape):
    turns = 120
    run(FourfoldSaver(sessions), SHAPES[shape], turns)
    assert values(FourfoldSaver(sessions)) == {"x": SHAPES[shape](turns - 1)}
    sid = sessions.list()[0].id
    stored = {}
    for event in sessions.events_since(sid):
        for name, value in event.data.get("values", {}).items():
            size = value.size if isinstance(value, PayloadRef) else len(value)
            stored[value.id if isinstance(value, PayloadRef) else (event.id, name)] = size
    assert sum(stored.values()) < 4 * len(TEXT) * turns


def test_deeply_nested_value_is_stored(sessions):
    saver = FourfoldSaver(sessions)
    for number, depth in enumerate((200, 201)):
        nested = TEXT
        for _ in range(depth):
            nested = {"in": nested}
        result = checkpoint(f"c{number}", x=nested)
        result["channel_versions"] = {"x": number}
        saver.put(config("t", "c0" if number else None), result, {}, {"x": number})
        assert repr(values(FourfoldSaver(sessions))["x"]) == repr(nested)


def test_value_changed_in_place_is_stored_as_changed(sessions):
    saver = FourfoldSaver(sessions)
    files = {"a": {"lines": [TEXT]}}
    put(saver, "c1", x=files)
    files["a"]["lines"][0] += "!"
    result = checkpoint("c2", x=files)
    saver.put(config("t", "c1"), result, {}, {"x": 2})
    for fresh in (saver, FourfoldSaver(sessions)):
        assert values(fresh, name="c1") == {"x": {"a": {"lines": [TEXT]}}}
        assert values(fresh, name="c2") == {"x": {"a": {"lines": [TEXT + "!"]}}}


def test_write_that_is_smaller_than_its_delta_is_stored_whole(sessions):
    """As the output of a node that a reducer merges into a large dict."""
    saver = FourfoldSaver(sessions)
    chance = random.Random(1)
    put(saver, "c1", x={chance.randbytes(20).hex(): TEXT for _ in range(100)})
    saver.put_writes(config("t", "c1"), [("x", {"new": TEXT})], TASK)
    [sid] = [info.id for info in sessions.list()]
    event = sessions.events_since(sid)[-1]
    assert [set(node) for _, _, node in event.data["writes"]] == [{"value"}]
    saver.put_writes(config("t", "c1"), [("x", {**values(saver)["x"], "new": TEXT})], TASK)
    event = sessions.events_since(sid)[-1]
    assert [set(node) for _, _, node in event.data["writes"]] == [{"delta", "on"}]
    assert FourfoldSaver(sessions).get_tuple(config()).pending_writes == [
        (TASK, "x", {"new": TEXT})
    ]


def test_pruned_thread_keeps_writes_that_were_stored_as_deltas(sessions):
    run(FourfoldSaver(sessions), SHAPES["growing string"], 4)
    written = SHAPES["growing string"](4)
    saver = FourfoldSaver(sessions)
    saver.put_writes(config("t", "c0003"), [("x", written), ("y", 1)], TASK)
    saver.prune(["t"])
    sessions.gc(0)
    pending = FourfoldSaver(sessions).get_tuple(config()).pending_writes
    assert pending == [(TASK, "x", written), (TASK, "y", 1)]


def test_list_that_was_cut_within_a_pack_is_packed_again(sessions):
    """The cut list refers to a part of the pack, and a later pack does not follow that one."""
    saver = FourfoldSaver(sessions)
    parent = None
    sizes = [*range(1, 80), 40, *range(41, 140), 40, 120]
    for number, size in enumerate(sizes):
        messages = [AIMessage("x", id=str(k)) for k in range(size)]
        result = checkpoint(f"c{number:04d}", x=messages)
        result["channel_versions"] = {"x": number}
        saver.put(config("t", parent), result, {}, {"x": number})
        parent = f"c{number:04d}"
        if size in {40, 79, 120}:
            saver = FourfoldSaver(sessions)
    for number, size in enumerate(sizes):
        assert len(values(FourfoldSaver(sessions), name=f"c{number:04d}")["x"]) == size


@pytest.mark.parametrize("kind", ["messages", "text"])
def test_long_value_is_read_from_few_events(sessions, monkeypatch, kind):
    def value_of(number):
        if kind == "text":
            return "".join(f"{k} {TEXT}" for k in range(number + 1))
        return [AIMessage(f"{k} {TEXT}", id=str(k)) for k in range(number + 1)]

    run(FourfoldSaver(sessions), value_of, 300)
    calls = Counter()
    loads = Serde.loads

    def counted(*args):
        calls["loads"] += 1
        return loads(*args)

    monkeypatch.setattr(Serde, "loads", counted)
    assert values(FourfoldSaver(sessions)) == {"x": value_of(299)}
    assert calls["loads"] < 80


@pytest.mark.parametrize("delta", [["+", 9, 999_999, "x"], ["{", [], ["no"], None], ["?"], []])
def test_delta_that_does_not_fit_is_reported(sessions, delta):
    put(FourfoldSaver(sessions), "c1", x=TEXT)
    [sid] = [info.id for info in sessions.list()]
    place = sessions.current_view(sid).counters.event
    kind, data = FourfoldSaver(sessions).serde.dumps_typed(delta)
    assert kind == "msgpack"
    node = {"delta": data.decode("latin-1"), "on": place}
    step = {"base": place, "channels": {"x": node}, "versions": {"x": 2}}
    step |= {"rest": {"v": 4}, "metadata": {}}
    sessions.append_event(sid, {"type": "step/started", "step": step}, key="cc2")
    with pytest.raises(CorruptData, match="do not fit"):
        values(FourfoldSaver(sessions), name="c2")


def test_delta_based_on_a_later_event_is_reported(sessions):
    put(FourfoldSaver(sessions), "c1", x=TEXT)
    [sid] = [info.id for info in sessions.list()]
    place = sessions.current_view(sid).counters.event
    step = {"base": place, "channels": {"x": {"delta": "", "on": place + 1}}}
    step |= {"rest": {"v": 4}, "metadata": {}}
    sessions.append_event(sid, {"type": "step/started", "step": step}, key="cc2")
    with pytest.raises(CorruptData, match="earlier event"):
        values(FourfoldSaver(sessions), name="c2")
