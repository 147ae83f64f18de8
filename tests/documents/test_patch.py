"""The nine operations: what each does, what it refuses, and that a list is applied whole or not."""

from __future__ import annotations

import copy
import math

import pytest
from drawn_documents import (
    DOCUMENTS,
    Unapplied,
    apply_naively,
    fitting_patches,
    patches,
    same,
)
from hypothesis import given
from hypothesis import strategies as st

from fourfold import limits
from fourfold.content import encode
from fourfold.errors import InvalidInput, Refused
from fourfold.models.documents import patch


def one(op, path, **fields):
    if "origin" in fields:
        fields["from"] = fields.pop("origin")
    return {"op": op, "path": path, **fields}


def value(content):
    return {"value": content}


APPLIED = {
    "add makes an array for an index": ({}, one("add", "/value/list/0", value=1), value({"list": [1]})),
    "add makes an array for the end": ({}, one("add", "/value/list/-", value=1), value({"list": [1]})),
    "add makes objects on the way": ({}, one("add", "/a/b/c", value=1), {"a": {"b": {"c": 1}}}),
    "add sets a key": (value({}), one("add", "/value/a", value=1), value({"a": 1})),
    "add overwrites a key": (value({"a": 1}), one("add", "/value/a", value=None), value({"a": None})),
    "add overwrites a container": (value([1]), one("add", "/value", value=2), value(2)),
    "add inserts": (value([1, 3]), one("add", "/value/1", value=2), value([1, 2, 3])),
    "add inserts at the front": (value([1]), one("add", "/value/0", value=0), value([0, 1])),
    "add inserts at the end by index": (value([1]), one("add", "/value/1", value=2), value([1, 2])),
    "add pushes": (value([1]), one("add", "/value/-", value=2), value([1, 2])),
    "add at the root replaces it": (value(1), one("add", "", value={"a": 1}), {"a": 1}),
    "add takes a numeric key of an object": (value({}), one("add", "/value/0", value=1), value({"0": 1})),
    "add takes - as a key of an object": (value({}), one("add", "/value/-", value=1), value({"-": 1})),
    "add takes the empty key": (value({}), one("add", "/value/", value=1), value({"": 1})),
    "add goes through an element": (value([{}]), one("add", "/value/0/a/b", value=1), value([{"a": {"b": 1}}])),
    "add takes keys that are special elsewhere": ({}, one("add", "/__proto__/constructor", value=1), {"__proto__": {"constructor": 1}}),
    "replace changes a key": (value({"a": 1}), one("replace", "/value/a", value=[2]), value({"a": [2]})),
    "replace creates the last key": (value({}), one("replace", "/value/new", value=1), value({"new": 1})),
    "replace creates a key at the root": ({}, one("replace", "/value", value=1), value(1)),
    "replace changes an element": (value([1, 2]), one("replace", "/value/1", value=9), value([1, 9])),
    "replace at the root": (value(1), one("replace", "", value={}), {}),
    "replace with null": (value(1), one("replace", "/value", value=None), value(None)),
    "remove takes a key": (value({"a": 1, "b": 2}), one("remove", "/value/a"), value({"b": 2})),
    "remove takes a null": (value({"a": None}), one("remove", "/value/a"), value({})),
    "remove takes the whole value": (value(1), one("remove", "/value"), {}),
    "remove shifts": (value([1, 2, 3]), one("remove", "/value/0"), value([2, 3])),
    "remove decodes ~01": (value({"~1": 1}), one("remove", "/value/~01"), value({})),
    "move to itself": (value({"a": 1}), one("move", "/value/a", origin="/value/a"), value({"a": 1})),
    "move an element to itself": (value([1, 2, 3]), one("move", "/value/1", origin="/value/1"), value([1, 2, 3])),
    "move resolves after the removal": (value([1, 2, 3]), one("move", "/value/2", origin="/value/0"), value([2, 3, 1])),
    "move to the front": (value([1, 2, 3]), one("move", "/value/0", origin="/value/2"), value([3, 1, 2])),
    "move to the end": (value([1, 2]), one("move", "/value/-", origin="/value/0"), value([2, 1])),
    "move makes the way": (value({"a": 1}), one("move", "/x/y/z", origin="/value/a"), {"value": {}, "x": {"y": {"z": 1}}}),
    "move overwrites": (value({"a": 1, "b": [2]}), one("move", "/value/b", origin="/value/a"), value({"b": 1})),
    "move to the parent": (value({"a": {"b": 1}}), one("move", "/value/a", origin="/value/a/b"), value({"a": 1})),
    "move to the root": (value({"a": {"b": 1}}), one("move", "", origin="/value/a"), {"b": 1}),
    "move next to a longer name": (value({"a": 1}), one("move", "/value/ab", origin="/value/a"), value({"ab": 1})),
    "move makes what it removed again": ({"a": {"b": 1}}, one("move", "/a", origin="/a/b"), {"a": 1}),
    "splice clamps what it removes": (value([1, 2]), one("splice", "/value", index=1, remove=9, add=[7]), value([1, 7])),
    "splice inserts": (value([1, 2]), one("splice", "/value", index=1, remove=0, add=[8, 9]), value([1, 8, 9, 2])),
    "splice cuts": (value([1, 2, 3]), one("splice", "/value", index=0, remove=2, add=[]), value([3])),
    "splice at the end": (value([1]), one("splice", "/value", index=1, remove=0, add=[2]), value([1, 2])),
    "splice takes huge counts": (value([1]), one("splice", "/value", index=0, remove=10**30, add=[]), value([])),
    "append creates the array": ({}, one("append", "/value/q", values=[1]), value({"q": [1]})),
    "append extends": (value([1]), one("append", "/value", values=[1, [2]]), value([1, 1, [2]])),
    "append nothing": (value({}), one("append", "/value/q", values=[]), value({"q": []})),
    "append with a hint": ({}, one("append", "/value", values=[1], createsKey=True), value([1])),
    "append with a wrong hint": ({}, one("append", "/value", values=[1], createsKey=False), value([1])),
    "append into an element": (value([[1]]), one("append", "/value/0", values=[2]), value([[1, 2]])),
    "append makes an element": (value([]), one("append", "/value/0", values=[2]), value([[2]])),
    "append makes the array around": ({}, one("append", "/value/q/0", values=[2]), value({"q": [[2]]})),
    "add-unique creates the array": ({}, one("add-unique", "/value/q", values=[1, 1]), value({"q": [1]})),
    "add-unique keeps what is there": (value(["a"]), one("add-unique", "/value", values=["b", "a"]), value(["a", "b"])),
    "add-unique compares deeply": (value([{"a": [1], "b": 2}]), one("add-unique", "/value", values=[{"b": 2, "a": [1]}]), value([{"a": [1], "b": 2}])),
    "remove-by-value takes every equal one": (value([1, 2, 1, [1]]), one("remove-by-value", "/value", value=1), value([2, [1]])),
    "remove-by-value compares deeply": (value([{"a": [1]}, {"a": [2]}]), one("remove-by-value", "/value", value={"a": [1]}), value([{"a": [2]}])),
    "remove-by-value finds nothing": (value([1]), one("remove-by-value", "/value", value=2), value([1])),
    "remove-by-value of nothing": ({}, one("remove-by-value", "/value/q", value=1), {}),
    "remove-by-value of an object": (value({"a": 1}), one("remove-by-value", "/value", value=1), value({"a": 1})),
    "remove-by-value below a leaf": (value(1), one("remove-by-value", "/value/a/b", value=1), value(1)),
    "remove-by-value at no index": (value([[1]]), one("remove-by-value", "/value/00", value=1), value([[1]])),
    "remove-by-value at the root": (value(1), one("remove-by-value", "", value=1), value(1)),
    "increment creates": ({}, one("increment", "/value/n", by=2), value({"n": 2})),
    "increment adds": (value({"n": 1}), one("increment", "/value/n", by=-3), value({"n": -2})),
    "increment with a hint": ({}, one("increment", "/value", by=1, createsKey=True), value(1)),
    "increment an element": (value([1, 2]), one("increment", "/value/1", by=5), value([1, 7])),
    "increment behind the last element": (value([1]), one("increment", "/value/1", by=5), value([1, 5])),
    "increment makes an array": ({}, one("increment", "/value/list/0", by=5), value({"list": [5]})),
    "increment keeps integers whole": (value(2**64), one("increment", "/value", by=1), value(2**64 + 1)),
    "increment by a float makes a float": (value(1), one("increment", "/value", by=1.0), value(2.0)),
    "increment of a float stays a float": (value(0.5), one("increment", "/value", by=1), value(1.5)),
    "increment to zero": (value(1), one("increment", "/value", by=-1), value(0)),
}  # fmt: skip


@pytest.mark.parametrize("name", APPLIED)
def test_an_operation_does_what_it_says(name):
    before, made, after = copy.deepcopy(APPLIED[name])
    assert same(patch.apply(before, [made]), after)
    # Neither the document nor the patch was changed on the way.
    assert same([before, made, after], list(APPLIED[name]))


UNFIT = {
    "add past the end": ({}, one("add", "/value/list/1", value=1), "index 1 is out of bounds"),
    "add far past the end": (value([]), one("add", "/value/4294967295", value=1), "out of bounds"),
    "add through an element that is not": ({}, one("add", "/value/list/0/x", value=1), "nothing is at /value/list/0"),
    "add through the end": ({}, one("add", "/value/list/-/x", value=1), "nothing is at /value/list/-"),
    "add through a missing element": (value([]), one("add", "/value/0/x", value=1), "nothing is at /value/0"),
    "add through the end of an array": (value([1]), one("add", "/value/-/x", value=1), "'-' is no index"),
    "add with a leading zero": (value([1]), one("add", "/value/01", value=1), "'01' is no index of the array at /value"),
    "add with a sign": (value([1]), one("add", "/value/+0", value=1), "no index"),
    "add with a word": (value([1]), one("add", "/value/x", value=1), "'x' is no index"),
    "add below a leaf": (value("text"), one("add", "/value/x", value=1), "/value is a string"),
    "add below null": (value(None), one("add", "/value/x/y", value=1), "/value is null"),
    "add leaves no document": (value({"a": 1}), one("add", "", value=5), "leave a number, and a document is an object"),
    "replace leaves no document": ({}, one("replace", "", value=[]), "leave an array"),
    "replace without a way": ({}, one("replace", "/value/x", value=1), "nothing is at /value"),
    "replace past the end": (value([1]), one("replace", "/value/1", value=1), "nothing is at /value/1"),
    "replace at the end": (value([1]), one("replace", "/value/-", value=1), "'-' is no index"),
    "replace below a leaf": (value(1), one("replace", "/value/x", value=1), "/value is a number"),
    "remove a missing key": (value({}), one("remove", "/value/a"), "nothing is at /value/a"),
    "remove a missing element": (value([1]), one("remove", "/value/1"), "nothing is at /value/1"),
    "remove the end": (value([1]), one("remove", "/value/-"), "'-' is no index"),
    "remove below a leaf": (value(True), one("remove", "/value/a"), "/value is a boolean"),
    "move what is missing": ({}, one("move", "/b", origin="/a"), "nothing is at /a"),
    "move what is missing to itself": ({}, one("move", "/a", origin="/a"), "nothing is at /a"),
    "move past the end": (value([1, 2]), one("move", "/value/2", origin="/value/0"), "out of bounds"),
    "move below a leaf": ({"a": 1, "b": 2}, one("move", "/b/c", origin="/a"), "/b is a number"),
    "move leaves no document": ({"a": 1}, one("move", "", origin="/a"), "leave a number"),
    "splice past the end": (value([1]), one("splice", "/value", index=2, remove=0, add=[]), "index 2 is past the end"),
    "splice an object": (value({}), one("splice", "/value", index=0, remove=0, add=[]), "/value is an object and not an array"),
    "splice a leaf": (value(1), one("splice", "/value", index=0, remove=0, add=[]), "/value is a number"),
    "splice nothing": ({}, one("splice", "/value", index=0, remove=0, add=[]), "nothing is at /value"),
    "splice the root": ({}, one("splice", "", index=0, remove=0, add=[]), "is an object and not an array"),
    "append to an object": (value({}), one("append", "/value", values=[1]), "/value is an object and not an array"),
    "append to null": (value(None), one("append", "/value", values=[1]), "/value is null"),
    "append to the root": ({}, one("append", "", values=[1]), "is an object and not an array"),
    "append at the end": (value([]), one("append", "/value/-", values=[1]), "'-' is no index"),
    "append past the end": (value([]), one("append", "/value/1", values=[1]), "out of bounds"),
    "append through an element": ({}, one("append", "/a/0/b", values=[1]), "nothing is at /a/0"),
    "add-unique to a string": (value("a"), one("add-unique", "/value", values=["a"]), "/value is a string"),
    "increment a string": (value("1"), one("increment", "/value", by=1), "a string and not a number"),
    "increment a boolean": (value(True), one("increment", "/value", by=1), "a boolean and not a number"),
    "increment null": (value(None), one("increment", "/value", by=1), "null and not a number"),
    "increment below a leaf": (value(1), one("increment", "/value/a", by=1), "/value is a number"),
    "increment past the end": (value([]), one("increment", "/value/1", by=1), "out of bounds"),
    "increment at the end": (value([1]), one("increment", "/value/-", by=1), "'-' is no index"),
    "increment past every float": (value(1e308), one("increment", "/value", by=1e308), "too large"),
    "increment a giant by a float": (value(10**400), one("increment", "/value", by=1.0), "too large"),
    "increment past every integer": (value(2**4096 - 1), one("increment", "/value", by=1), "too large"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNFIT)
def test_an_operation_that_does_not_fit_the_document_is_refused(name):
    before, made, why = copy.deepcopy(UNFIT[name])
    with pytest.raises(InvalidInput, match=why) as caught:
        patch.apply(before, [made])
    assert same(before, UNFIT[name][0])
    if "leave" not in why:
        assert str(caught.value).startswith(f"patch 0 ({made['op']} ")


SHAPELESS = {
    "no object": (["add"], "a patch is an object, not an array"),
    "no op": ({"path": ""}, "it has no `op`; there are replace, add"),
    "unknown op": (one("test", "", value=1), "unknown operation 'test'"),
    "copy does not exist": (one("copy", "/b", origin="/a"), "unknown operation 'copy'"),
    "op is a number": ({"op": 1, "path": ""}, "unknown operation 1"),
    "op is a list": ({"op": ["add"], "path": ""}, "unknown operation"),
    "op in capitals": (one("Add", "", value=1), "unknown operation 'Add'"),
    "no path": ({"op": "remove"}, "it lacks `path`"),
    "no value": (one("add", "/a"), "it lacks `value`"),
    "no by and no path": ({"op": "increment"}, "it lacks `by` and `path`"),
    "no from": (one("move", "/a"), "it lacks `from`"),
    "an extra field": (one("remove", "/a", value=1), "does not know: 'value'"),
    "an extra from": (one("add", "/a", value=1, origin="/b"), "does not know: 'from'"),
    "an extra hint": (one("replace", "/a", value=1, createsKey=True), "does not know: 'createsKey'"),
    "an extra key of another type": ({"op": "remove", "path": "/a", 1: 2}, "does not know: 1"),
    "a hint that is a number": (one("append", "/a", values=[], createsKey=1), "`createsKey` is true or false"),
    "a hint that is null": (one("increment", "/a", by=1, createsKey=None), "`createsKey` is true or false, not null"),
    "path is a list": (one("remove", ["a"]), "a JSON pointer is a str"),
    "path has no slash": (one("add", "value", value=1), "not a JSON pointer: 'value'"),
    "path has a broken escape": (one("add", "/a~2", value=1), "escapes nothing"),
    "from has no slash": (one("move", "/a", origin="b"), "not a JSON pointer: 'b'"),
    "remove the root": (one("remove", ""), "the root cannot be removed"),
    "move the root": (one("move", "/a", origin=""), "the root cannot be moved"),
    "move into itself": (one("move", "/a/b/c", origin="/a/b"), "cannot move into itself"),
    "increment the root": (one("increment", "", by=1), "cannot be incremented"),
    "increment by zero": (one("increment", "/a", by=0), "zero"),
    "increment by float zero": (one("increment", "/a", by=-0.0), "zero"),
    "increment by NaN": (one("increment", "/a", by=math.nan), "nan is not a JSON number"),
    "increment by infinity": (one("increment", "/a", by=math.inf), "inf is not a JSON number"),
    "increment by true": (one("increment", "/a", by=True), "`by` is a number, not a boolean"),
    "increment by text": (one("increment", "/a", by="1"), "`by` is a number, not a string"),
    "increment by a giant": (one("increment", "/a", by=2**5000), "bits"),
    "splice at true": (one("splice", "/a", index=True, remove=0, add=[]), "`index` is a whole number"),
    "splice at a float": (one("splice", "/a", index=0.0, remove=0, add=[]), "`index` is a whole number"),
    "splice before the start": (one("splice", "/a", index=-1, remove=0, add=[]), "`index` is a whole number from 0"),
    "splice removes less than nothing": (one("splice", "/a", index=0, remove=-1, add=[]), "`remove` is a whole number"),
    "splice removes false": (one("splice", "/a", index=0, remove=False, add=[]), "`remove` is a whole number"),
    "splice adds no list": (one("splice", "/a", index=0, remove=0, add={}), "`add` is an array, not an object"),
    "append no list": (one("append", "/a", values="abc"), "`values` is an array, not a string"),
    "add-unique null": (one("add-unique", "/a", values=None), "`values` is an array, not null"),
    "value is NaN": (one("add", "/a", value=math.nan), "nan is not a JSON number"),
    "value holds infinity": (one("replace", "/a", value={"b": [1, math.inf]}), "inf at /b/1 of the value"),
    "value is bytes": (one("remove-by-value", "/a", value=b"x"), "a bytes is not a JSON value"),
    "values hold a tuple": (one("append", "/a", values=[(1,)]), "a tuple at /0 of the value"),
    "spliced values hold a set": (one("splice", "/a", index=0, remove=0, add=[{1}]), "a set at /0"),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPELESS)
def test_a_patch_of_the_wrong_shape_is_refused_before_anything_is_applied(name):
    made, why = SHAPELESS[name]
    # The first patch does not fit the document; yet the shape of the second is looked at first.
    with pytest.raises(InvalidInput, match=why) as caught:
        patch.apply({}, [one("remove", "/missing"), made])
    assert str(caught.value).startswith("patch 1")
    with pytest.raises(InvalidInput, match=why):
        patch.compile([made])


@pytest.mark.parametrize("listed", [None, {}, "[]", 1, one("remove", "/a"), iter([])])
def test_patches_come_as_a_list(listed):
    with pytest.raises(InvalidInput, match="patches are a list"):
        patch.apply({}, listed)


@pytest.mark.parametrize("document", [None, [], "a", 1])
def test_only_a_document_can_be_patched(document):
    with pytest.raises(InvalidInput, match="a document is an object"):
        patch.apply(document, [])


def test_an_error_names_the_position_the_operation_and_the_path():
    listed = [one("add", "/a", value=1), one("remove", "/b/c~1d")]
    with pytest.raises(InvalidInput) as caught:
        patch.apply({}, listed)
    assert str(caught.value) == "patch 1 (remove /b/c~1d): nothing is at /b"
    with pytest.raises(InvalidInput) as caught:
        patch.compile([one("add", "/a", value=1), one("add", "/b", value=[math.nan])])
    assert str(caught.value).startswith("patch 1 (add /b): nan at /0 of the value")


def test_a_very_long_path_is_cut_in_the_message():
    with pytest.raises(InvalidInput) as caught:
        patch.apply({}, [one("remove", "/" + "x" * 10_000)])
    assert len(str(caught.value)) < 500


def test_an_empty_list_changes_nothing():
    document = value([1])
    assert patch.apply(document, []) == document


def test_patches_of_one_list_build_on_each_other():
    listed = [
        one("add", "/value/items/-", value={"n": 1}),
        one("increment", "/value/items/0/n", by=4),
        one("append", "/value/items", values=[{"n": 2}]),
        one("move", "/first", origin="/value/items/0"),
    ]
    assert patch.apply({}, listed) == {"value": {"items": [{"n": 2}]}, "first": {"n": 5}}


def test_the_root_may_be_no_object_in_between():
    listed = [
        one("replace", "", value=[1]),
        one("append", "", values=[2]),
        one("splice", "", index=0, remove=1, add=[]),
        one("add", "/-", value=3),
        one("replace", "", value={"a": 1}),
    ]
    assert patch.apply({}, listed) == {"a": 1}
    with pytest.raises(InvalidInput, match="leave an array"):
        patch.apply({}, listed[:-1])
    with pytest.raises(InvalidInput, match="is a number"):
        patch.apply({}, [one("replace", "", value=5), one("add", "/a", value=1)])


def test_a_list_of_which_one_fails_is_not_applied():
    document = value({"items": [1, 2], "n": 1})
    before = copy.deepcopy(document)
    listed = [
        one("increment", "/value/n", by=1),
        one("append", "/value/items", values=[3]),
        one("remove", "/value/items/9"),
    ]
    with pytest.raises(InvalidInput, match="patch 2"):
        patch.apply(document, listed)
    assert same(document, before)


def test_a_patch_copies_its_path_and_shares_the_rest():
    document = {"value": {"x": 1, "big": [[1], [2]], "other": {}}, "source": {"a": []}}
    after = patch.apply(document, [one("replace", "/value/x", value=2)])
    assert after is not document
    assert after["value"] is not document["value"]
    assert after["value"]["big"] is document["value"]["big"]
    assert after["value"]["other"] is document["value"]["other"]
    assert after["source"] is document["source"]
    after = patch.apply(document, [one("append", "/value/big/0", values=[9])])
    assert after["value"]["big"][1] is document["value"]["big"][1]
    assert document["value"]["big"] == [[1], [2]]


def test_a_patch_that_does_nothing_copies_nothing():
    document = value([1])
    assert patch.apply(document, [one("remove-by-value", "/value", value=2)]) is document


def test_later_patches_do_not_reach_into_the_values_of_earlier_ones():
    given_value = {"list": [1]}
    listed = [
        one("add", "/value", value=given_value),
        one("append", "/value/list", values=[2]),
        one("splice", "/value/list", index=0, remove=0, add=[given_value, given_value]),
        one("add", "/value/list/0/x", value=1),
    ]
    after = patch.apply({}, listed)
    assert given_value == {"list": [1]}
    assert after == {"value": {"list": [{"list": [1], "x": 1}, {"list": [1]}, 1, 2]}}
    # Applying the same list again gives the same document again.
    assert patch.apply({}, listed) == after


@pytest.mark.parametrize(
    ("present", "given_value", "equal"),
    [
        (1, 1.0, True),
        (1e2, 100, True),
        (0.0, -0.0, True),
        (2**53, float(2**53), True),
        (2**53 + 1, float(2**53), False),
        (1, True, False),
        (0, False, False),
        (1.0, True, False),
        (None, False, False),
        ("1", 1, False),
        ("", None, False),
        ("é", "e\u0301", False),
        ([1], [1.0], True),
        ([1], [True], False),
        ({"a": [0, 1]}, {"a": [0.0, 1]}, True),
        ({"a": [0, 1]}, {"a": [False, 1]}, False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ([1, 2], [2, 1], False),
        ([], {}, False),
        ({"a": None}, {}, False),
    ],
)
def test_values_are_equal_as_json_has_it(present, given_value, equal):
    for one_value, other in ((present, given_value), (given_value, present)):
        document = value(["first", one_value, "last"])
        added = patch.apply(document, [one("add-unique", "/value", values=[other])])
        assert len(added["value"]) == (3 if equal else 4)
        removed = patch.apply(document, [one("remove-by-value", "/value", value=other)])
        assert len(removed["value"]) == (2 if equal else 3)


def test_an_equal_element_is_found_behind_one_that_only_python_calls_equal():
    document = value([True, 1, False, 0])
    assert same(patch.apply(document, [one("add-unique", "/value", values=[1.0, 0])]), document)
    after = patch.apply(document, [one("remove-by-value", "/value", value=1)])
    assert same(after, value([True, False, 0]))


def deep(levels):
    inside = []
    for _ in range(levels - 1):
        inside = [inside]
    return inside


DEPTH = limits.CONTENT_DEPTH_MAX


@pytest.mark.parametrize(
    "listed",
    [
        lambda over: [one("add", "/a", value=deep(DEPTH - 1 + over))],
        lambda over: [one("replace", "/a", value=deep(DEPTH - 1 + over))],
        lambda over: [one("add", "/a" * (DEPTH - 10 + over), value=deep(10))],
        lambda over: [one("add", "/a" * (DEPTH + over), value=1)],
        lambda over: [one("increment", "/a" * (DEPTH + over), by=1)],
        lambda over: [one("append", "/a" * (DEPTH - 5 + over), values=[deep(4)])],
        lambda over: [one("append", "/a" * (DEPTH - 1 + over), values=[])],
        lambda over: [one("add-unique", "/a/b", values=[deep(DEPTH - 3 + over)])],
        lambda over: [
            one("add", "/a", value=[]),
            one("splice", "/a", index=0, remove=0, add=[deep(DEPTH - 2 + over)]),
        ],
        lambda over: [
            one("add", "/a", value=deep(DEPTH - 3)),
            one("move", "/b/c" + "/d" * over, origin="/a"),
        ],
        lambda over: [
            one("add", "/a", value=deep(DEPTH - 2)),
            one("add", "/b/c", value=1),
            one("move", "/b/c" + "/d" * over, origin="/a"),
        ][: 2 + 1],
    ],
)
def test_no_patch_makes_a_document_deeper_than_can_be_encoded(listed):
    after = patch.apply({}, listed(0))
    encode(after)
    for over in (1, 2):
        try:
            after = patch.apply({}, listed(over))
        except InvalidInput as error:
            assert "deep" in str(error) or "neither" in str(error)
        else:
            encode(after)


def test_one_level_too_many_is_refused():
    for listed in (
        [one("add", "/a", value=deep(DEPTH))],
        [one("append", "/a" * DEPTH, values=[])],
        [one("add", "/a", value=deep(DEPTH - 1)), one("move", "/b/c", origin="/a")],
    ):
        with pytest.raises(InvalidInput, match="deeper than 500"):
            patch.apply({}, listed)


def test_a_value_that_contains_itself_is_refused():
    loop = {}
    loop["again"] = [loop]
    with pytest.raises(InvalidInput, match="contains itself"):
        patch.compile([one("add", "/a", value=loop)])


def test_a_program_is_applied_to_any_number_of_documents():
    program = patch.compile(
        [one("append", "/tags", values=[["x"]]), one("append", "/tags/0", values=[1])]
    )
    first = patch.apply({}, program)
    second = patch.apply({"tags": [[]]}, program)
    assert patch.apply({}, program) == first == {"tags": [["x", 1]]}
    assert second == {"tags": [[1], ["x"]]}


def test_what_was_taken_from_a_draft_never_changes_again():
    draft = patch.Draft(value([1]))
    draft.apply(patch.compile([one("append", "/value", values=[2])]))
    taken = draft.take()
    draft.apply(patch.compile([one("append", "/value", values=[3])]))
    assert taken == value([1, 2])
    assert draft.take() == value([1, 2, 3])


def test_a_draft_copies_a_container_once():
    draft = patch.Draft(value([1]))
    more = patch.compile([one("append", "/value", values=[2])])
    draft.apply(more)
    first = draft.take()["value"]
    draft.apply(more)
    second = draft._root["value"]
    draft.apply(more)
    assert draft._root["value"] is second is not first


def test_a_draft_is_spent_after_a_patch_that_did_not_fit():
    document = value([1])
    draft = patch.Draft(document)
    with pytest.raises(InvalidInput):
        draft.apply(patch.compile([one("append", "/value", values=[2]), one("remove", "/a")]))
    with pytest.raises(Refused):
        draft.take()
    with pytest.raises(Refused):
        draft.apply(patch.compile([]))
    assert document == value([1])


def test_a_draft_forgets_what_leaves_the_document():
    draft = patch.Draft({})
    for _ in range(50):
        draft.apply(
            patch.compile(
                [
                    one("add", "/a/b/c", value=[1]),
                    one("append", "/a/b/c", values=[2]),
                    one("move", "/d", origin="/a/b"),
                    one("append", "/d/c", values=[3]),
                    one("replace", "/a", value={}),
                    one("add", "/d/e", value=[[]]),
                    one("append", "/d/e/0", values=[1]),
                    one("remove-by-value", "/d/e", value=[1]),
                    one("splice", "/d/e", index=0, remove=9, add=[]),
                    one("remove", "/d"),
                ]
            )
        )
    # Only the root is left of everything that was made.
    assert draft._owned == {id(draft._root)}


@given(st.data(), DOCUMENTS)
def test_apply_does_what_the_naive_way_does_and_changes_no_input(data, document):
    listed = data.draw(st.lists(patches(document), max_size=3))
    untouched = copy.deepcopy([document, listed])
    try:
        expected = apply_naively(document, listed)
    except Unapplied:
        with pytest.raises(InvalidInput):
            patch.apply(document, listed)
    else:
        after = patch.apply(document, listed)
        assert same(after, expected)
        encode(after)
    assert same([document, listed], untouched)


@given(st.data(), DOCUMENTS)
def test_lists_of_fitting_patches_do_what_the_naive_way_does(data, document):
    listed = data.draw(fitting_patches(document, max_size=6))
    untouched = copy.deepcopy([document, listed])
    assert same(patch.apply(document, listed), apply_naively(document, listed))
    assert same([document, listed], untouched)


@given(st.data(), DOCUMENTS)
def test_a_draft_gives_what_apply_gives_wherever_it_is_taken(data, document):
    draft = patch.Draft(document)
    current = document
    held = [(document, copy.deepcopy(document))]
    for _ in range(data.draw(st.integers(0, 6))):
        listed = data.draw(fitting_patches(current))
        held.append((listed, copy.deepcopy(listed)))
        current = patch.apply(current, listed)
        draft.apply(patch.compile(listed))
        if data.draw(st.booleans()):
            held.append((draft.take(), copy.deepcopy(current)))
    assert same(draft.take(), current)
    for now, then in held:
        assert same(now, then)


@given(st.data(), DOCUMENTS)
def test_one_list_and_the_same_patches_one_by_one_are_the_same(data, document):
    listed = data.draw(fitting_patches(document))
    whole = patch.apply(document, listed)
    for made in listed:
        document = patch.apply(document, [made])
    assert same(document, whole)
