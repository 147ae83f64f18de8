"""The fold: pure, the same wherever it is cut, and what the taxonomy says."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from session_scripts import EVENT

from fourfold.errors import CorruptData, InvalidInput
from fourfold.models.sessions.fold import (
    ENTITY_OF,
    MINTING,
    STATUS_OF,
    FoldState,
    View,
    advance,
    apply_event,
    fold,
    kept_messages,
)
from fourfold.models.sessions.records import Event
from support.properties import examples

HEAD = {
    "id": "sha256:1",
    "session": "s",
    "basis": None,
    "event_range": [1, 1],
    "events_digest": "sha256:0",
    "kind": "turn-final",
    "turn_id": None,
    "vars_ref": None,
    "final_ref": None,
    "compact_from_event_id": None,
    "version": 1,
}
EDGE = {
    "id": "sha256:2",
    "type": "invocation",
    "from_session": "s",
    "to_session": "t",
    "from_head": None,
    "to_head": "sha256:1",
    "version": 1,
}
MARKS = st.sampled_from(
    [
        {"type": "head/published", "head": HEAD},
        {"type": "head/published", "head": {**HEAD, "id": "sha256:3", "event_range": [2, 4]}},
        {"type": "lineage/edge-added", "edge": EDGE},
        {"type": "lineage/edge-added", "edge": {**EDGE, "id": "sha256:4", "more": 1}},
    ]
)


def stamped(events):
    """Events with ids, as a log gives them: puts keep theirs, also where nothing has that id."""
    counts, out = {}, []
    for number, event in enumerate(events, start=1):
        data = copy.deepcopy(event)
        kind = data.pop("type")
        entity = ENTITY_OF.get(kind)
        entity_id = None
        if entity is not None:
            if kind in MINTING:
                data[entity]["id"] = counts.get(entity, 0) + 1
            entity_id = data[entity]["id"]
            counts[entity] = max(counts.get(entity, 0), entity_id)
        digest = number.to_bytes(4)
        out.append(Event("s", number, kind, data, entity_id=entity_id, digest=digest))
    return out


LOGS = st.lists(st.one_of(EVENT, MARKS), max_size=25).map(stamped)


@given(LOGS, st.data())
@settings(max_examples=examples(100))
def test_folding_a_prefix_and_then_the_rest_is_folding_all(events, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(events)), max_size=3)))
    view = View()
    for start, end in zip([0, *cuts], [*cuts, len(events)], strict=True):
        view = fold(view, events[start:end])
    assert view == fold(None, events)


@given(LOGS)
@settings(max_examples=examples(100))
def test_the_small_fold_is_the_state_of_the_large_one(events):
    state, view = FoldState(), View()
    for event in events:
        state, view = advance(state, event), apply_event(view, event)
    assert state == view.state == fold(None, events).state


@given(LOGS, LOGS)
@settings(max_examples=examples(50))
def test_nothing_that_comes_in_is_changed(some, more):
    more = [
        Event("s", len(some) + event.id, event.type, event.data, entity_id=event.entity_id)
        for event in more
    ]
    before = fold(None, some)
    kept, events = pickle.dumps(before), pickle.dumps(more)
    fold(before, more)
    assert (pickle.dumps(before), pickle.dumps(more)) == (kept, events)


@given(LOGS)
@settings(max_examples=examples(50))
def test_every_event_counts_whatever_its_type(events):
    view = fold(None, events)
    assert view.events == events
    assert view.counters.event == len(events)
    for name in ("message", "turn", "step", "eval"):
        ids = [event.entity_id for event in events if ENTITY_OF.get(event.type) == name]
        assert getattr(view.counters, name) == max(ids, default=0)


def test_unknown_events_change_nothing_else():
    view = fold(None, stamped([{"type": "turn/started", "turn": {}}]))
    after = apply_event(view, Event("s", 2, "future/thing", {"turn": {"id": 9}}))
    assert after.turns == view.turns
    assert after.session is None
    assert after.counters.event == 2


def test_put_replaces_by_id_and_adds_what_is_not_there():
    events = stamped(
        [
            {"type": "turn/started", "turn": {"status": "running"}},
            {"type": "turn/put", "turn": {"id": 5, "status": "odd"}},
            {"type": "turn/put", "turn": {"id": 1, "status": "final"}},
            {"type": "turn/started", "turn": {}},
        ]
    )
    assert fold(None, events).turns == [
        {"id": 1, "status": "final"},
        {"id": 5, "status": "odd"},
        {"id": 6},
    ]


@pytest.mark.parametrize(("kind", "status"), STATUS_OF.items())
def test_status_events_set_the_status(kind, status):
    events = stamped(
        [
            {"type": "session/started", "session": {"id": "s", "status": "running", "model": "m"}},
            {"type": kind, "error": {"type": "x"}},
        ]
    )
    view = fold(None, events)
    assert view.session == {"id": "s", "status": status, "model": "m"}
    assert view.error == ({"type": "x"} if status == "error" else None)


def test_a_compaction_is_one_step():
    events = stamped(
        [
            {"type": "message/appended", "message": {"content": 1}},
            {"type": "session/compacted", "vars_ref": 7, "message": {"content": 2}},
            {"type": "message/appended", "message": {"content": 3}},
        ]
    )
    view = fold(None, events)
    assert (view.vars_ref, view.compact_from_event_id, len(view.messages)) == (7, 2, 3)
    assert [each["content"] for each in kept_messages(view)] == [2, 3]
    assert len(kept_messages(fold(None, events[:1]))) == 1


def test_a_head_or_edge_that_comes_twice_is_there_once():
    events = stamped(
        [
            {"type": "head/published", "head": HEAD},
            {"type": "lineage/edge-added", "edge": EDGE},
            {"type": "head/published", "head": HEAD},
            {"type": "lineage/edge-added", "edge": EDGE},
        ]
    )
    view = fold(None, events)
    assert (len(view.heads), len(view.edges), len(view.events)) == (1, 1, 4)
    assert view.current_head == HEAD["id"]


def test_events_out_of_order_are_refused():
    events = stamped([{"type": "a/b"}, {"type": "a/b"}])
    for wrong in ([events[1]], [events[0], events[0]]):
        with pytest.raises(InvalidInput):
            fold(None, wrong)


def test_the_fold_and_its_events_load_no_database():
    """So that workers of the pipeline can fold without one."""
    program = (
        "import sys, fourfold.models.sessions.fold, fourfold.models.sessions.stamps\n"
        "assert not {'apsw', 'sqlite3', 'fourfold.kernel', 'fourfold.store'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("kind", ["turn/started", "session/started", "head/published"])
def test_an_event_without_what_it_must_carry_is_damage(kind):
    with pytest.raises(CorruptData):
        fold(None, [Event("s", 1, kind, {}, entity_id=1)])
