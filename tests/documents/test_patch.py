"""The nine operations: what each does, what it refuses, and that a list is applied whole or not."""

from __future__ import annotations

import copy
import inspect
import json
import math
import sys

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
from patch_vectors import APPLIED, UNFIT, lines, read

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


@pytest.mark.parametrize("line", lines(APPLIED))
def test_an_operation_does_what_it_says(line):
    document, made, expected = read(line)
    assert same(patch.apply(document, [made]), json.loads(expected))
    # Neither the document nor the patch was changed on the way.
    assert same([document, made], list(read(line)[:2]))


@pytest.mark.parametrize("line", lines(UNFIT))
def test_an_operation_that_does_not_fit_the_document_is_refused(line):
    document, made, why = read(line)
    with pytest.raises(InvalidInput) as caught:
        patch.apply(document, [made])
    assert why in str(caught.value)
    if "leave" not in why:
        assert str(caught.value).startswith(f"patch 0 ({made['op']} ")
    assert same(document, read(line)[0])


@pytest.mark.parametrize("hint", [True, False])
def test_the_hint_that_a_key_is_created_changes_nothing(hint):
    for made in (
        one("append", "/value", values=[1]),
        one("add-unique", "/value", values=[1]),
        one("increment", "/value", by=1),
    ):
        assert patch.apply({}, [made | {"createsKey": hint}]) == patch.apply({}, [made])


@pytest.mark.parametrize(("number", "by"), [(10**400, 1.0), (2**4096 - 1, 1), (-(2**4096) + 1, -1)])
def test_a_sum_that_no_number_can_hold_is_refused(number, by):
    with pytest.raises(InvalidInput, match="too large"):
        patch.apply(value(number), [one("increment", "/value", by=by)])


SHAPELESS = [
    (["add"], "a patch is an object, not an array"),
    ({"path": ""}, "it has no `op`; there are replace, add"),
    (one("test", "", value=1), "unknown operation 'test'"),
    (one("copy", "/b", origin="/a"), "unknown operation 'copy'"),
    ({"op": 1, "path": ""}, "unknown operation 1"),
    ({"op": ["add"], "path": ""}, "unknown operation"),
    (one("Add", "", value=1), "unknown operation 'Add'"),
    ({"op": "remove"}, "it lacks `path`"),
    (one("add", "/a"), "it lacks `value`"),
    ({"op": "increment"}, "it lacks `by` and `path`"),
    (one("move", "/a"), "it lacks `from`"),
    (one("remove", "/a", value=1), "does not know: 'value'"),
    (one("add", "/a", value=1, origin="/b"), "does not know: 'from'"),
    (one("replace", "/a", value=1, createsKey=True), "does not know: 'createsKey'"),
    ({"op": "remove", "path": "/a", 1: 2}, "does not know: 1"),
    (one("append", "/a", values=[], createsKey=1), "`createsKey` is true or false"),
    (one("increment", "/a", by=1, createsKey=None), "`createsKey` is true or false, not null"),
    (one("remove", ["a"]), "a JSON pointer is a str"),
    (one("add", "value", value=1), "not a JSON pointer: 'value'"),
    (one("add", "/a~2", value=1), "escapes nothing"),
    (one("move", "/a", origin="b"), "not a JSON pointer: 'b'"),
    (one("remove", ""), "the root cannot be removed"),
    (one("move", "/a", origin=""), "the root cannot be moved"),
    (one("move", "/a/b/c", origin="/a/b"), "cannot move into itself"),
    (one("increment", "", by=1), "cannot be incremented"),
    (one("increment", "/a", by=0), "zero"),
    (one("increment", "/a", by=-0.0), "zero"),
    (one("increment", "/a", by=math.nan), "nan is not a JSON number"),
    (one("increment", "/a", by=math.inf), "inf is not a JSON number"),
    (one("increment", "/a", by=True), "`by` is a number, not a boolean"),
    (one("increment", "/a", by="1"), "`by` is a number, not a string"),
    (one("increment", "/a", by=2**5000), "bits"),
    (one("splice", "/a", index=True, remove=0, add=[]), "`index` is a whole number"),
    (one("splice", "/a", index=0.0, remove=0, add=[]), "`index` is a whole number"),
    (one("splice", "/a", index=-1, remove=0, add=[]), "`index` is a whole number from 0"),
    (one("splice", "/a", index=0, remove=-1, add=[]), "`remove` is a whole number"),
    (one("splice", "/a", index=0, remove=False, add=[]), "`remove` is a whole number"),
    (one("splice", "/a", index=0, remove=0, add={}), "`add` is an array, not an object"),
    (one("append", "/a", values="abc"), "`values` is an array, not a string"),
    (one("add-unique", "/a", values=None), "`values` is an array, not null"),
    (one("add", "/a", value=math.nan), "nan is not a JSON number"),
    (one("replace", "/a", value={"b": [1, math.inf]}), "inf at /b/1 of the value"),
    (one("remove-by-value", "/a", value=b"x"), "a bytes is not a JSON value"),
    (one("append", "/a", values=[(1,)]), "a tuple at /0 of the value"),
    (one("splice", "/a", index=0, remove=0, add=[{1}]), "a set at /0"),
]


@pytest.mark.parametrize(("made", "why"), SHAPELESS)
def test_patch_of_wrong_shape_is_refused_before_anything_is_applied(made, why):
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


def test_later_patches_do_not_reach_into_values_of_earlier_ones():
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


def test_equal_element_is_found_after_one_equal_in_python():
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
        lambda more: [one("add", "/a", value=deep(DEPTH - 1 + more))],
        lambda more: [one("replace", "/a", value=deep(DEPTH - 1 + more))],
        lambda more: [one("add", "/a" * (DEPTH - 10 + more), value=deep(10))],
        lambda more: [one("add", "/a" * (DEPTH + more), value=1)],
        lambda more: [one("increment", "/a" * (DEPTH + more), by=1)],
        lambda more: [one("append", "/a" * (DEPTH - 5 + more), values=[deep(4)])],
        lambda more: [one("append", "/a" * (DEPTH - 1 + more), values=[])],
        lambda more: [one("add-unique", "/a/b", values=[deep(DEPTH - 3 + more)])],
        lambda more: [
            one("add", "/a", value=[]),
            one("splice", "/a", index=0, remove=0, add=[deep(DEPTH - 2 + more)]),
        ],
        lambda more: [
            one("add", "/a", value=deep(DEPTH - 3)),
            one("move", "/b/c/d" + "/e" * more, origin="/a"),
        ],
    ],
)
def test_no_patch_makes_a_document_deeper_than_can_be_encoded(listed):
    encode(patch.apply({}, listed(0)))
    with pytest.raises(InvalidInput, match="deeper than 500"):
        patch.apply({}, listed(1))


def test_a_value_that_contains_itself_is_refused():
    loop = {}
    loop["again"] = [loop]
    with pytest.raises(InvalidInput, match="contains itself"):
        patch.compile([one("add", "/a", value=loop)])


def test_comparison_that_stack_cannot_follow_is_refused_and_not_crash():
    document = value([deep(400)])
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 100)
    try:
        # Newer interpreters can follow it; then the value is found.
        after = patch.apply(document, [one("add-unique", "/value", values=[deep(400)])])
    except InvalidInput as error:
        after = document
        assert str(error).startswith("patch 0 (add-unique /value): ")  # noqa: PT017
    finally:
        sys.setrecursionlimit(limit)
    assert len(after["value"]) == 1


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


def test_draft_is_spent_after_patch_that_did_not_fit():
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
def test_apply_does_what_naive_way_does_and_changes_no_input(data, document):
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
def test_one_list_and_same_patches_one_by_one_are_same(data, document):
    listed = data.draw(fitting_patches(document))
    whole = patch.apply(document, listed)
    for made in listed:
        document = patch.apply(document, [made])
    assert same(document, whole)
