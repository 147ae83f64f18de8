"""The fold over a log of sets, patches and deletes."""

from __future__ import annotations

import copy
import itertools
import subprocess
import sys

import pytest
from drawn_documents import DOCUMENTS, apply_naively, fitting_patches, same
from hypothesis import given
from hypothesis import strategies as st

from fourfold.errors import CorruptData, InvalidInput
from fourfold.models.documents.fold import fold, patched, replay, states
from fourfold.models.documents.records import State


def add(path, value):
    return [{"op": "add", "path": path, "value": value}]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], None),
        ([(1, "set", {})], State({}, "set", 1)),
        ([(1, "set", {"value": {}})], State({"value": {}}, "set", 1)),
        ([(1, "set", {"result": 1})], State({"result": 1}, "set", 1)),
        ([(3, "set", {"a": 1}), (4, "set", {"b": 2})], State({"b": 2}, "set", 4)),
        ([(1, "delete", None)], State(None, "delete", 1)),
        ([(1, "set", {"a": 1}), (2, "delete", None)], State(None, "delete", 2)),
        ([(1, "patch", add("/value/x", 1))], State({"value": {"x": 1}}, "patch", 1)),
        ([(1, "patch", [])], State({}, "patch", 1)),
        (
            [(1, "set", {"a": 1}), (2, "delete", None), (3, "patch", add("/b", 2))],
            State({"b": 2}, "patch", 3),
        ),
        (
            [(1, "delete", None), (2, "set", {"a": 1}), (2, "patch", add("/b", 2))],
            State({"a": 1, "b": 2}, "patch", 2),
        ),
        (
            [(2, "patch", add("/n", 2)), (3, "set", {"z": 9}), (4, "patch", add("/w", 1))],
            State({"z": 9, "w": 1}, "patch", 4),
        ),
        (
            [
                (7, "set", {"a": 1}),
                (7, "patch", add("/b", 1)),
                (7, "patch", add("/c", 1)),
                (7, "delete", None),
                (7, "patch", add("/d", 1)),
            ],
            State({"d": 1}, "patch", 7),
        ),
    ],
)
def test_the_state_is_what_the_rows_say(rows, expected):
    before = copy.deepcopy(rows)
    assert fold(None, rows) == expected
    assert fold(None, iter(rows)) == expected
    assert [*states(None, rows)][-1:] == ([] if expected is None else [expected])
    assert rows == before


def test_never_written_deleted_and_empty_are_three_things():
    assert fold(None, []) is None
    deleted = fold(None, [(1, "delete", None)])
    empty = fold(None, [(1, "set", {})])
    assert deleted.deleted
    assert deleted.document is None
    assert not empty.deleted
    assert empty.document == {}


def test_a_base_is_gone_on_from_and_not_changed():
    base = State({"value": {"list": [1]}}, "set", 5)
    more = [{"op": "append", "path": "/value/list", "values": [2]}]
    assert fold(base, [(6, "patch", more)]) == State({"value": {"list": [1, 2]}}, "patch", 6)
    assert base == State({"value": {"list": [1]}}, "set", 5)
    assert fold(base, []) == base
    assert fold(State(None, "delete", 5), [(6, "patch", add("/a", 1))]).document == {"a": 1}


def test_what_set_held_is_not_changed_by_patches_after_it():
    document = {"list": [1]}
    held = {"x": []}
    rows = [
        (1, "set", document),
        (2, "patch", [{"op": "append", "path": "/list", "values": [2]}]),
        (3, "patch", add("/held", held)),
        (4, "patch", [{"op": "append", "path": "/held/x", "values": [3]}]),
    ]
    assert fold(None, rows).document == {"list": [1, 2], "held": {"x": [3]}}
    assert document == {"list": [1]}
    assert held == {"x": []}


def test_each_state_on_the_way_stays_as_it_was():
    rows = [(seq, "patch", [{"op": "append", "path": "/n", "values": [seq]}]) for seq in (1, 2, 3)]
    seen = list(states(None, rows))
    assert [state.document["n"] for state in seen] == [[1], [1, 2], [1, 2, 3]]
    assert [state.seq for state in seen] == [1, 2, 3]


def test_neighbouring_states_share_what_did_not_change():
    rows = [(1, "set", {"big": [[1]], "n": 0}), (2, "patch", add("/n", 1))]
    first, second = states(None, rows)
    assert first.document["big"] is second.document["big"]


def test_rows_are_taken_one_at_a_time():
    def rows():
        yield (1, "set", {"n": 1})
        raise StopAsyncIteration

    seen = states(None, rows())
    assert next(seen) == State({"n": 1}, "set", 1)
    with pytest.raises(StopAsyncIteration):
        next(seen)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ((9, "patch", [{"op": "remove", "path": "/a"}]), "the patch at seq 9 does not fit"),
        ((9, "patch", [{"op": "test", "path": "/a"}]), "the patch at seq 9 .* unknown operation"),
        ((9, "patch", [{"op": "replace", "path": "", "value": 1}]), "at seq 9 .* leave a number"),
        ((9, "patch", None), "at seq 9 .* patches are a list"),
        ((9, "set", [1]), "the set at seq 9 holds an array and not a document"),
        ((9, "set", None), "the set at seq 9 holds null"),
        ((9, "delete", {}), "the delete at seq 9 holds an object"),
        ((9, "claim", None), "'claim' at seq 9 is not an operation"),
        ((9, None, None), "None at seq 9 is not an operation"),
    ],
)
def test_a_row_that_cannot_be_folded_is_a_damaged_log(row, why):
    with pytest.raises(CorruptData, match=why):
        fold(State({}, "set", 1), [row])


def test_rows_out_of_order_are_refused():
    with pytest.raises(InvalidInput, match="seq 2 follows 3"):
        fold(None, [(3, "set", {}), (2, "set", {})])
    with pytest.raises(InvalidInput, match="seq 2 follows 3"):
        fold(State({}, "set", 3), [(2, "delete", None)])


def test_replay_applies_one_list_after_the_other():
    document = {"n": 1}
    more = [{"op": "increment", "path": "/n", "by": 1}]
    assert replay(document, [more, more, []]) == {"n": 3}
    assert replay(document, []) == document == {"n": 1}
    with pytest.raises(InvalidInput, match="patch 0"):
        replay(document, [[{"op": "remove", "path": "/m"}]])


@st.composite
def logs(draw):
    """Rows that can be folded, by a naive fold that keeps whole copies, and its last document."""
    rows, document = [], None
    seq = 0
    for _ in range(draw(st.integers(0, 8))):
        seq += draw(st.integers(0, 2))
        op = draw(st.sampled_from(["set", "patch", "patch", "patch", "delete"]))
        data = None
        if op == "set":
            document = data = draw(DOCUMENTS)
        elif op == "patch":
            data = draw(fitting_patches(document or {}))
            document = apply_naively(document or {}, data)
        else:
            document = None
        rows.append((seq, op, data))
    return rows, document


@given(logs())
def test_the_fold_agrees_with_a_naive_one(log):
    rows, document = log
    state = fold(None, rows)
    if not rows:
        assert state is None
    else:
        assert (state.op, state.seq) == (rows[-1][1], rows[-1][0])
        assert same(state.document, document)


@given(logs(), st.data())
def test_a_log_can_be_cut_anywhere(log, data):
    rows, _ = log
    cut = data.draw(st.integers(0, len(rows)))
    untouched = copy.deepcopy(rows)
    first = fold(None, rows[:cut])
    held = copy.deepcopy(first)
    second, whole = fold(first, rows[cut:]), fold(None, rows)
    assert second == whole
    assert whole is None or same(second.document, whole.document)
    # Neither the rows nor the state in the middle were changed.
    assert same(rows, untouched)
    assert first == held


@given(logs())
def test_patches_alone_fold_to_the_same_state_in_one_go(log):
    rows, _ = log
    cut = next((at for at, row in enumerate(rows) if row[1] == "patch"), len(rows))
    base = fold(None, rows[:cut]) or State({}, "set", 0)
    patches = list(itertools.takewhile(lambda row: row[1] == "patch", rows[cut:]))
    untouched = copy.deepcopy(base)
    state = patched(base, patches)
    assert state == fold(base, patches)
    assert same(state.document, fold(base, patches).document)
    assert base == untouched


def test_patch_that_does_not_apply_is_named_in_bulk():
    rows = [
        (4, "patch", [{"op": "add", "path": "/m", "value": 1}]),
        (7, "patch", [{"op": "remove", "path": "/z"}]),
    ]
    with pytest.raises(CorruptData, match="the patch at seq 7"):
        patched(State({}, "set", 3), rows)


@given(logs())
def test_states_on_way_are_those_of_shorter_logs(log):
    rows, _ = log
    seen = list(states(None, rows))
    assert len(seen) == len(rows)
    for length, state in enumerate(seen, start=1):
        shorter = fold(None, rows[:length])
        assert state == shorter
        assert same(state.document, shorter.document)


PURE = """
import sys
from fourfold.models.documents import diff, field_merge, fold, overlap, patch
state = fold.fold(None, [(1, "patch", [{"op": "increment", "path": "/n", "by": 1}])])
assert state.document == {"n": 1}
print(*sorted(sys.modules))
"""


def test_the_fold_needs_neither_the_kernel_nor_a_database():
    done = subprocess.run([sys.executable, "-c", PURE], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert not {"apsw", "sqlite3", "socket", "random", "tempfile"} & set(loaded)
    pure = "diff field_merge fold overlap patch records"
    own = {name for name in loaded if name.split(".")[0] == "fourfold"}
    assert {name for name in own if not name.startswith("fourfold.limits.")} == {
        "fourfold",
        "fourfold.errors",
        "fourfold.html",
        "fourfold._lazy",
        "fourfold.content",
        "fourfold.content.json_pointer",
        "fourfold.limits",
        "fourfold.models",
        "fourfold.models.documents",
        "fourfold._version",
        *(f"fourfold.models.documents.{name}" for name in pure.split()),
    }
