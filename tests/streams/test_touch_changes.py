"""Marks that a change touches, without a stream."""

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


def test_insert_touches_type_key_and_matching_rows():
    found = touched(change("insert", value={"city": "Ulm", "age": 7}))
    assert found == ROW | cities("Ulm") | both((7, "Ulm"))


@pytest.mark.parametrize("operation", ["update", "upsert"])
def test_update_touches_rows_before_and_after(operation):
    found = touched(
        change(operation, value={"city": "Ulm", "age": 7}, old_value={"city": "Bonn", "age": 7})
    )
    assert found == ROW | cities("Ulm", "Bonn") | both((7, "Ulm"), (7, "Bonn"))


def test_delete_touches_rows_before():
    found = touched(change("delete", old_value={"city": "Bonn", "age": 7}))
    assert found == ROW | cities("Bonn") | both((7, "Bonn"))


@pytest.mark.parametrize("old", [{}, {"old_value": None}, {"old_value": 3}, {"old_value": ["x"]}])
def test_change_without_old_value_touches_all_rows(old):
    after = {"city": "Ulm", "age": 7}
    assert touched(change("delete", **old)) == ROW | ALL
    for operation in ("update", "upsert"):
        found = touched(change(operation, value=after, **old))
        assert found == ROW | ALL | cities("Ulm") | both((7, "Ulm"))


def test_value_that_is_not_an_object_touches_all_rows():
    assert touched(change("insert", value=3)) == ROW | ALL


def test_insert_with_old_value_touches_rows_before():
    found = touched(change("insert", value={"city": "Ulm"}, old_value={"city": "Bonn"}))
    assert found == ROW | cities("Ulm", "Bonn") | both((None, "Ulm"), (None, "Bonn"))


def test_missing_field_is_null():
    assert touched(change("insert", value={})) == ROW | cities(None) | both((None, None))
    assert touched(change("insert", value={"city": None})) == touched(change("insert", value={}))


def test_object_and_array_values_touch_no_rows():
    found = touched(change("insert", value={"city": {"name": "Ulm"}, "age": 7}))
    assert found == ROW
    assert touched(change("insert", value={"city": "Ulm", "age": [7]})) == ROW | cities("Ulm")


def test_other_types_touch_no_templates():
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
def test_control_message_touches_everything(message):
    assert touched(message) is None


@pytest.mark.parametrize("payload", [b"{", b"1e999", b"[" * 100_000, b"\xff"])
def test_undecodable_message_touches_everything(payload):
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
def test_other_message_touches_nothing(message):
    assert touched(message) == set()
    assert fold.fold([message]) == {}


def test_every_change_of_the_fold_touches_type_and_key():
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
def test_equal_numbers_have_equal_marks(written, asked):
    message = change("insert", entity="order", value={"total": "WRITTEN"})
    payload = json.dumps(message).replace('"WRITTEN"', written).encode()
    found = keys.touched_by(payload, TEMPLATES)
    assert keys.rows_mark("by-total", [asked]) in found


def test_different_values_have_different_marks():
    values = [None, True, False, 0, 1, -1, -2, 1.5, "1", "", "None", "True", 2**60, 10**400]
    assert len({keys.rows_mark("t", [value]) for value in values}) == len(values)
    assert keys.rows_mark("t", ["a", "b"]) != keys.rows_mark("t", ["b", "a"])
    assert keys.rows_mark("t", ["a"]) != keys.rows_mark("u", ["a"])
