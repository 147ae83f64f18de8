"""JSON Pointers, paths and the values that may stand at them."""

from __future__ import annotations

import pickle

import pytest
from drawn_documents import DOCUMENTS, KEYS, find, paths, places
from hypothesis import given
from hypothesis import strategies as st

from fourfold.content import json_pointer
from fourfold.content.json_pointer import ABSENT, DOCUMENT_ARRAY_INDEX_MAX
from fourfold.errors import InvalidInput


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("", ()),
        ("/", ("",)),
        ("//", ("", "")),
        ("/value", ("value",)),
        ("/value/", ("value", "")),
        ("/value/items/0", ("value", "items", "0")),
        ("/a~1b", ("a/b",)),
        ("/m~0n", ("m~n",)),
        ("/~01", ("~1",)),
        ("/~10", ("/0",)),
        ("/~00", ("~0",)),
        ('/ /%20/\\/"', (" ", "%20", "\\", '"')),
        ("/-", ("-",)),
        ("/é/\U0001f600/\x00", ("é", "\U0001f600", "\x00")),
        ("/__proto__/constructor", ("__proto__", "constructor")),
    ],
)
def test_a_pointer_and_its_path_name_each_other(text, path):
    assert json_pointer.parse_pointer(text) == path
    assert json_pointer.format_pointer(path) == text
    assert (
        json_pointer.as_path(text)
        == json_pointer.as_path(list(path))
        == json_pointer.as_path(path)
        == path
    )


@given(st.lists(st.text(max_size=5)))
def test_every_path_has_one_pointer(path):
    assert json_pointer.parse_pointer(json_pointer.format_pointer(path)) == tuple(path)


@pytest.mark.parametrize(
    "text", ["value", "value/x", " /value", "~0", "#/value", "/~", "/~2", "/a~", "/~~0", "/\ud800"]
)
def test_a_malformed_pointer_is_refused(text):
    with pytest.raises(InvalidInput, match="JSON pointer"):
        json_pointer.parse_pointer(text)


@pytest.mark.parametrize("other", [None, 1, True, b"/value", ["value"], {}])
def test_a_pointer_is_text(other):
    with pytest.raises(InvalidInput, match="a JSON pointer is a str"):
        json_pointer.parse_pointer(other)


@pytest.mark.parametrize("place", [None, 0, {"a": 1}, b"/a", {"a"}, [0], ["a", None], ["\ud800"]])
def test_what_is_no_path_is_refused(place):
    with pytest.raises(InvalidInput, match="path"):
        json_pointer.as_path(place)


@pytest.mark.parametrize(
    ("segment", "index"),
    [
        ("0", 0),
        ("7", 7),
        ("10", 10),
        (str(2**32 - 2), 2**32 - 2),
        ("", None),
        ("-", None),
        ("-1", None),
        ("+1", None),
        ("00", None),
        ("01", None),
        ("1.0", None),
        ("1e3", None),
        (" 1", None),
        ("1\n", None),
        ("٣", None),
        ("²", None),
        ("a", None),
    ],
)
def test_an_array_index_has_one_spelling(segment, index):
    assert json_pointer.array_index(segment) == index
    assert json_pointer.is_index(segment) is (index is not None)


@pytest.mark.parametrize("digits", [str(2**32 - 1), "9" * 10, "9" * 5_000])
def test_an_index_that_no_array_has_is_beyond_them_all(digits):
    assert json_pointer.is_index(digits)
    assert json_pointer.array_index(digits) == DOCUMENT_ARRAY_INDEX_MAX + 1
    assert json_pointer.lookup({"a": [1]}, ("a", digits)) is ABSENT


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ((), {"a": [10, {"": None}], "0": "zero"}),
        (("a",), [10, {"": None}]),
        (("a", "0"), 10),
        (("0",), "zero"),
        (("a", "1", ""), None),
        (("a", "2"), ABSENT),
        (("a", "-"), ABSENT),
        (("a", "00"), ABSENT),
        (("a", "-1"), ABSENT),
        (("a", "0", "x"), ABSENT),
        (("a", "1", "", "x"), ABSENT),
        (("0", "0"), ABSENT),
        (("b",), ABSENT),
        (("b", "c"), ABSENT),
    ],
)
def test_lookup_tells_null_from_nothing(path, value):
    assert json_pointer.lookup({"a": [10, {"": None}], "0": "zero"}, path) == value


@given(st.data(), DOCUMENTS)
def test_lookup_finds_what_is_there_and_nothing_else(data, document):
    path = data.draw(paths(document))
    found = json_pointer.lookup(document, path)
    assert (found is ABSENT) is (path not in set(places(document)))
    if found is not ABSENT:
        assert found is find(document, path)


@given(st.lists(KEYS, max_size=3).map(tuple), st.lists(KEYS, max_size=3).map(tuple))
def test_a_path_is_a_prefix_of_what_is_below_it(path, further):
    assert json_pointer.is_prefix(path, path + further)
    assert json_pointer.is_prefix(path + further, path) is (not further)


def test_absence_stays_one_object_across_a_process_border():
    assert pickle.loads(pickle.dumps(ABSENT)) is ABSENT
    assert repr(ABSENT) == "ABSENT"


def nested(levels, leaf=None):
    value = leaf
    for level in range(levels):
        value = [value] if level % 2 else {"k": value}
    return value


@pytest.mark.parametrize(
    ("value", "depth"),
    [(None, 0), ("a", 0), ([], 1), ({}, 1), ([[], {"a": [1]}], 3), (nested(500), 500)],
)
def test_a_value_is_as_deep_as_its_containers(value, depth):
    assert json_pointer.measure(value) == depth


def itself():
    value = []
    value.append({"again": value})
    return value


def looped():
    value = {"a": {}}
    value["a"]["b"] = value
    return value


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (float("nan"), "nan is not a JSON number"),
        ([1, float("inf")], "inf at /1 of the value"),
        ({"a/b": [{"c": float("-inf")}]}, "-inf at /a~1b/0/c of the value"),
        ((1, 2), "a tuple is not a JSON value"),
        ({"a": b"x"}, "a bytes at /a of the value is not a JSON value"),
        ([{1}], "a set at /0"),
        ([ABSENT], "a Absence at /0"),
        ([Text("a")], "a Text at /0"),
        ({1: 2}, "the key 1 is not a str"),
        ({"a": [{None: 2}]}, "the key None at /a/0 of the value is not a str"),
        ({"a": "\ud800"}, "the string at /a of the value has a lone surrogate"),
        ({"a": {"\udfff": 1}}, "the key '.*' at /a of the value has a lone surrogate"),
        ([2**4096], "an integer at /0 of the value has 4097 bits"),
        (nested(501), "deeper than 500"),
        (itself(), "contains itself"),
        (looped(), "contains itself"),
    ],
)
def test_what_json_cannot_hold_is_refused_with_its_place(value, why):
    with pytest.raises(json_pointer.Unfit, match=why):
        json_pointer.measure(value)
    with pytest.raises(InvalidInput, match="not a document"):
        json_pointer.check_document({"value": value})


@pytest.mark.parametrize("other", [None, [], "a", 1, ABSENT, (), itself()])
def test_a_document_is_an_object(other):
    with pytest.raises(InvalidInput, match="a document is an object"):
        json_pointer.check_document(other)


def test_shared_parts_of_a_value_are_visited_once_per_level():
    value = [1]
    for _ in range(400):
        value = [value, value]
    assert json_pointer.measure(value) == 401
