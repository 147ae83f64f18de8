"""What a change touches: by marks alone, without a stream."""

from __future__ import annotations

import json

import pytest

from fourfold.models.streams import fold
from fourfold.models.streams.touch import keys
from fourfold.models.streams.touch.keys import ComparedRow

BY_CITY = ComparedRow("by-city", ("city",))
BY_BOTH = ComparedRow("by-both", ("age", "city"))
TEMPLATES = {"user": [BY_CITY, BY_BOTH], "order": [ComparedRow("by-total", ("total",))]}


def change(operation, *, entity="user", key="1", **parts):
    return {"type": entity, "key": key, "headers": {"operation": operation}, **parts}


def touched(message):
    return keys.touched_by(json.dumps(message).encode(), TEMPLATES)


def cities(*values):
    return {keys.rows_mark("by-city", [value]) for value in values}


def both(*values):
    return {keys.rows_mark("by-both", value) for value in values}


ROW = {keys.entity_mark("user"), keys.row_mark("user", "1")}
ALL = {keys.all_rows_mark("by-city"), keys.all_rows_mark("by-both")}


def test_an_insert_touches_its_type_its_key_and_the_rows_that_it_joins():
    found = touched(change("insert", value={"city": "Ulm", "age": 7}))
    assert found == ROW | cities("Ulm") | both((7, "Ulm"))


@pytest.mark.parametrize("operation", ["update", "upsert"])
def test_an_update_touches_the_rows_as_they_were_and_as_they_are(operation):
    found = touched(
        change(operation, value={"city": "Ulm", "age": 7}, old_value={"city": "Bonn", "age": 7})
    )
    assert found == ROW | cities("Ulm", "Bonn") | both((7, "Ulm"), (7, "Bonn"))


def test_a_delete_touches_the_rows_as_they_were():
    found = touched(change("delete", old_value={"city": "Bonn", "age": 7}))
    assert found == ROW | cities("Bonn") | both((7, "Bonn"))


@pytest.mark.parametrize("old", [{}, {"old_value": None}, {"old_value": 3}, {"old_value": ["x"]}])
def test_without_the_values_before_all_rows_are_touched(old):
    after = {"city": "Ulm", "age": 7}
    assert touched(change("delete", **old)) == ROW | ALL
    for operation in ("update", "upsert"):
        found = touched(change(operation, value=after, **old))
        assert found == ROW | ALL | cities("Ulm") | both((7, "Ulm"))


def test_a_value_that_is_no_object_may_be_any_row():
    assert touched(change("insert", value=3)) == ROW | ALL


def test_an_insert_that_tells_what_was_before_touches_that_too():
    found = touched(change("insert", value={"city": "Ulm"}, old_value={"city": "Bonn"}))
    assert found == ROW | cities("Ulm", "Bonn") | both((None, "Ulm"), (None, "Bonn"))


def test_a_field_that_is_not_there_is_null():
    assert touched(change("insert", value={})) == ROW | cities(None) | both((None, None))
    assert touched(change("insert", value={"city": None})) == touched(change("insert", value={}))


def test_nobody_can_wait_for_an_object_or_an_array():
    found = touched(change("insert", value={"city": {"name": "Ulm"}, "age": 7}))
    assert found == ROW
    assert touched(change("insert", value={"city": "Ulm", "age": [7]})) == ROW | cities("Ulm")


def test_other_types_touch_none_of_the_templates():
    found = touched(change("delete", entity="place"))
    assert found == {keys.entity_mark("place"), keys.row_mark("place", "1")}


@pytest.mark.parametrize(
    "message",
    [
        {"headers": {"control": "reset"}},
        {"headers": {"control": "snapshot-start", "offset": "1"}},
        {"headers": {"control": None}},
        change("delete", entity=5),
    ],
)
def test_what_may_concern_everything_touches_everything(message):
    assert touched(message) is None


@pytest.mark.parametrize("payload", [b"{", b"1e999", b"[" * 100_000, b"\xff"])
def test_what_cannot_be_read_touches_everything(payload):
    assert keys.touched_by(payload, TEMPLATES) is None


@pytest.mark.parametrize(
    "message",
    [
        5,
        [change("insert", value={})],
        {"type": "user", "key": "1", "value": {}},
        {"type": "user", "key": "1", "value": {}, "headers": ["operation"]},
        change("replace", value={}),
        change(["insert"], value={}),
        change("update"),
        change("insert", key=7, value={}),
    ],
)
def test_what_is_no_change_touches_nothing(message):
    assert touched(message) == set()
    assert fold.fold([message]) == {}


def test_whatever_changes_the_fold_touches_its_type_and_its_key():
    for operation in ("insert", "update", "upsert"):
        message = change(operation, value={"city": "Ulm"})
        assert fold.fold([message]) == {("user", "1"): {"city": "Ulm"}}
        assert touched(message) >= ROW
    assert touched({"key": "1", "value": 1, "headers": {"operation": "insert"}}) == {
        keys.entity_mark(""),
        keys.row_mark("", "1"),
    }


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        ("1", 1.0),
        ("1.0", 1),
        ("1e3", 1000),
        ("-0.0", 0),
        ("0.5", 0.5),
        ("123456789012345678901234", 123456789012345678901234),
        ("9007199254740993.0", 9007199254740993),
        ("1234567890123456789", 1234567890123456800),
        ("1e300", 10**300),
    ],
)
def test_numbers_that_are_worth_the_same_are_the_same(written, asked):
    message = change("insert", entity="order", value={"total": "WRITTEN"})
    payload = json.dumps(message).replace('"WRITTEN"', written).encode()
    found = keys.touched_by(payload, TEMPLATES)
    assert keys.rows_mark("by-total", [asked]) in found


def test_different_values_have_different_marks():
    values = [None, True, False, 0, 1, -1, -2, 1.5, "1", "", "None", "True", 2**60, 10**400]
    assert len({keys.rows_mark("t", [value]) for value in values}) == len(values)
    assert keys.rows_mark("t", ["a", "b"]) != keys.rows_mark("t", ["b", "a"])
    assert keys.rows_mark("t", ["a"]) != keys.rows_mark("u", ["a"])
