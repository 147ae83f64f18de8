"""Rows that are checked column by column become exactly what they become one by one, and are
refused for the same things.
"""

from __future__ import annotations

import pytest
from graph_nodes import APP, everything, open_graphs, with_notes
from hypothesis import given, settings
from hypothesis import strategies as st

from fourfold.errors import FourfoldError, InvalidInput, NotFound, Refused
from fourfold.models.graphs import writer
from fourfold.models.graphs.records import KINDS
from support.properties import examples

MANY = writer.COLUMNS_MIN
TIMES = ["2026-01-31T12:00:00+00:00", "2026-02-01T00:00:00+01:00"]
BAD = ["x", -1, True, 1.5, 1 << 63, b"x", [], None]

good_columns = {
    "type_id": st.just(1),
    "owner_identity": st.integers(0, 3),
    "sync_flags": st.integers(0, 3),
    "created_at": st.sampled_from(TIMES),
    "updated_at": st.sampled_from(TIMES),
    "parent_id": st.integers(1, 4),
    "src_parent_id": st.integers(1, 4),
    "dst_parent_id": st.integers(1, 4),
    "dst_attr_id": st.integers(1, 4),
    "target_parent_id": st.integers(1, 4),
    "target_attr_id": st.integers(1, 4),
    "value_text": st.text(max_size=5),
    "value_number": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-5, 5),
    "value_blob": st.binary(max_size=5),
    "value_json": st.sampled_from(['{"a":1}', "[1,2]", "3", '"é"']),
}
odd = st.sampled_from([*BAD, "\ud800", "{", float("nan"), float("inf"), 10**400, "2026-01-01"])
FIELDS = {
    "parent": ["type_id", "owner_identity", "sync_flags", "created_at", "updated_at"],
    "attr": ["type_id", "owner_identity", "parent_id", "sync_flags", "created_at"],
    "edge": ["type_id", "owner_identity", "src_parent_id", "sync_flags", "created_at"],
    "rating": ["type_id", "owner_identity", "sync_flags", "created_at"],
}
CHOICES = {
    "parent": [[]],
    "attr": [["value_text"], ["value_number"], ["value_blob"], ["value_json"], []],
    "edge": [["dst_parent_id"], ["dst_attr_id"], [], ["dst_parent_id", "dst_attr_id"]],
    "rating": [["target_parent_id", "value_number"], ["target_attr_id", "value_json"], []],
}


@st.composite
def some_rows(draw):
    """Rows of one kind: mostly right and alike, sometimes with something wrong in one of them."""
    kind = draw(st.sampled_from(KINDS))
    names = FIELDS[kind] + draw(st.sampled_from(CHOICES[kind]))
    for name in draw(st.lists(st.sampled_from(["sync_flags", "created_at", "updated_at"]))):
        names = [each for each in names if each != name]
    rows = [
        {name: draw(good_columns[name]) for name in names}
        for _ in range(draw(st.integers(MANY, MANY + 6)))
    ]
    for _ in range(draw(st.sampled_from([0, 0, 1]))):
        row = draw(st.sampled_from(rows))
        name = draw(st.sampled_from([*FIELDS[kind], *good_columns, "global_seq"]))
        if draw(st.booleans()):
            row[name] = draw(odd)
        else:
            row.pop(name, None)
    return kind, rows


@pytest.fixture(scope="module")
def twins(tmp_path_factory):
    """Two stores with the same few objects to point at."""
    folder = tmp_path_factory.mktemp("twins")
    opened = []
    for name in ("columns", "rows"):
        graphs = open_graphs(folder / f"{name}.db")
        with_notes(graphs)
        for kind in KINDS:
            graphs.register_type(APP, kind, "one")
        for number in range(4):
            graphs.insert_parent(APP, {"type_id": 1, "owner_identity": 1, "sync_flags": number})
        for number in range(4):
            row = {"type_id": 2, "owner_identity": 1, "parent_id": 4, "sync_flags": number}
            graphs.insert_attr(APP, row)
        opened.append(graphs)
    yield opened
    for graphs in opened:
        graphs.database.close()


def outcome(graphs, kind, rows):
    types = {each.kind: each.id for each in graphs.list_types(APP) if each.type_key == "one"}
    given = [
        {**row, "type_id": types[kind]} if row.get("type_id") == 1 else dict(row) for row in rows
    ]
    before = everything(graphs)
    try:
        ids = graphs.insert(APP, kind, given)
    except FourfoldError as error:
        assert everything(graphs) == before
        return type(error)
    found = everything(graphs)[kind][-len(rows) :]
    usage = graphs.usage(APP)
    shown = [
        tuple(without_time(row, given_row)) for row, given_row in zip(found, given, strict=True)
    ]
    return ids, shown, usage


def without_time(row, given_row):
    """The columns of a row; a time that was not given is the transaction's own."""
    for name, value in zip(row._fields, row, strict=True):
        if name in {"created_at", "updated_at"} and given_row.get("created_at") is None:
            continue
        yield value, type(value)


@settings(max_examples=examples(100), deadline=None)
@given(some_rows())
def test_columns_and_rows_come_to_the_same(twins, drawn):
    kind, rows = drawn
    by_columns, by_rows = twins
    several = outcome(by_columns, kind, rows)
    least, writer.COLUMNS_MIN = writer.COLUMNS_MIN, 1 << 60
    try:
        one_by_one = outcome(by_rows, kind, rows)
    finally:
        writer.COLUMNS_MIN = least
    assert several == one_by_one


def test_rows_that_are_alike_do_go_by_columns(graphs, types):
    """Otherwise the test above would compare one way with itself."""
    alike = [{"type_id": types["parent"], "owner_identity": n} for n in range(MANY)]
    assert writer.read("parent", alike, "now") is not None
    assert writer.read("parent", [*alike, {"type_id": 1}], "now") is None
    hidden = [{"type_id": 1, "owner_identity": 1}] * MANY + [{"type_id": 1, "owner_identity": True}]
    assert writer.read("parent", hidden, "now") is None


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"type_id": 99}, NotFound),
        ({"parent_id": 99, "sync_flags": 1}, NotFound),
        ({"parent_id": 1, "sync_flags": 1}, Refused),
        ({"value_text": "\ud800"}, InvalidInput),
        ({"global_seq": 5}, InvalidInput),
    ],
)
def test_one_bad_row_refuses_the_whole_batch(graphs, types, changes, error):
    graphs.insert_parent(APP, {"type_id": types["parent"], "owner_identity": 1})
    row = {"type_id": types["attr"], "owner_identity": 1, "parent_id": 1, "value_text": "x"}
    rows = [dict(row) for _ in range(30)]
    rows[17] = {**row, **changes}
    before = everything(graphs), graphs.get_global_seq(), graphs.usage(APP)
    with pytest.raises(error):
        graphs.insert_many_attrs(APP, rows)
    assert (everything(graphs), graphs.get_global_seq(), graphs.usage(APP)) == before
    for each in rows:
        # All of them alike, so that they go by columns.
        each.update(changes)
    with pytest.raises(error):
        graphs.insert_many_attrs(APP, rows)
    assert (everything(graphs), graphs.get_global_seq(), graphs.usage(APP)) == before


def test_nothing_to_insert_takes_no_number(graphs, types):
    assert graphs.insert_many_parents(APP, []) == []
    assert graphs.get_global_seq() == 0
    assert types
