"""Sameness in two strengths, and the patches between two documents."""

from __future__ import annotations

import copy

import pytest
from drawn_documents import DOCUMENTS, VALUES, fitting_patches, json_form, paths, same
from hypothesis import given
from hypothesis import strategies as st

from fourfold.content.json_pointer import lookup, parse_pointer
from fourfold.models.documents import patch
from fourfold.models.documents.diff import changed_paths, diff, equal, find_equal, identical

CONFUSABLE = [
    *(None, False, True, 0, 1, 0.0, -0.0, 1.0, "", "0", [], {}, [0], [False], [0.0], [[]]),
    *({"a": 1}, {"a": True}, {"a": 1.0}, {"a": None}, {"b": 1}, 2**53, float(2**53), 2**53 + 1),
]


@pytest.mark.parametrize("one", CONFUSABLE, ids=repr)
def test_equal_and_identical_tell_confusable_values_apart(one):
    for other in CONFUSABLE:
        assert equal(one, other) is (json_form(one) == json_form(other))
        assert identical(one, other) is same(one, other)


@given(VALUES, VALUES)
def test_equal_and_identical_agree_with_independent_definitions(one, other):
    assert equal(one, other) is (json_form(one) == json_form(other))
    assert identical(one, other) is same(one, other)
    assert identical(one, copy.deepcopy(one))


@given(st.lists(VALUES, max_size=5), VALUES)
def test_the_first_equal_element_is_found(array, value):
    found = [index for index, item in enumerate(array) if json_form(item) == json_form(value)]
    assert find_equal(array, value) == (found[0] if found else None)


def test_values_as_deep_as_documents_go_are_compared():
    one, other = 1, 1.0
    for _ in range(400):
        one, other = [one], [other]
    assert equal(one, other)
    assert not identical(one, other)
    assert identical(one, copy.copy(one))


@pytest.mark.parametrize(
    ("before", "after", "patches"),
    [
        ({}, {}, []),
        ({"a": 1}, {"a": 1}, []),
        ({}, {"a": None}, [{"op": "add", "path": "/a", "value": None}]),
        ({"a": None}, {}, [{"op": "remove", "path": "/a"}]),
        ({"a": 1}, {"a": 1.0}, [{"op": "replace", "path": "/a", "value": 1.0}]),
        ({"a": 1}, {"a": True}, [{"op": "replace", "path": "/a", "value": True}]),
        ({"a": 0.0}, {"a": -0.0}, [{"op": "replace", "path": "/a", "value": -0.0}]),
        ({"a": {}}, {"a": []}, [{"op": "replace", "path": "/a", "value": []}]),
        (
            {"a": {"b/c": {"d": 1, "e": 2}}},
            {"a": {"b/c": {"d": 1, "e": 3}}},
            [{"op": "replace", "path": "/a/b~1c/e", "value": 3}],
        ),
        ({"a": [1, 2, 3]}, {"a": [1, 9, 3]}, [{"op": "replace", "path": "/a/1", "value": 9}]),
        (
            {"a": [{"n": 1}, {"n": 2}]},
            {"a": [{"n": 1}, {"n": 3}]},
            [{"op": "replace", "path": "/a/1/n", "value": 3}],
        ),
        (
            {"a": [1, 2, 4, 5]},
            {"a": [1, 2, 3, 4, 5]},
            [{"op": "splice", "path": "/a", "index": 2, "remove": 0, "add": [3]}],
        ),
        (
            {"a": [1, 2, 3, 4]},
            {"a": [1, 4]},
            [{"op": "splice", "path": "/a", "index": 1, "remove": 2, "add": []}],
        ),
        (
            {"a": [1, 1]},
            {"a": [1, 1, 1]},
            [{"op": "splice", "path": "/a", "index": 2, "remove": 0, "add": [1]}],
        ),
        (
            {"a": [1, 2]},
            {"a": [3, 4]},
            [{"op": "splice", "path": "/a", "index": 0, "remove": 2, "add": [3, 4]}],
        ),
        ({"a": []}, {"a": []}, []),
        (
            {"a": []},
            {"a": [[]]},
            [{"op": "splice", "path": "/a", "index": 0, "remove": 0, "add": [[]]}],
        ),
    ],
)
def test_a_difference_is_small(before, after, patches):
    assert same(diff(before, after), patches)
    assert changed_paths(before, after) == [parse_pointer(each["path"]) for each in patches]


def test_what_two_documents_share_is_not_looked_into():
    class Watched(list):
        def __iter__(self):
            raise AssertionError("looked into")

    shared = Watched([1, 2, 3])
    assert diff({"a": shared, "n": 1}, {"a": shared, "n": 2}) == [
        {"op": "replace", "path": "/n", "value": 2}
    ]


def check(before, after):
    untouched = copy.deepcopy([before, after])
    patches = diff(before, after)
    assert same(patch.apply(before, patches), after)
    assert bool(patches) is not same(before, after)
    assert same([before, after], untouched)


@given(DOCUMENTS, DOCUMENTS)
def test_difference_of_any_two_documents_makes_one_of_other(before, after):
    check(before, after)


@given(st.data(), DOCUMENTS)
def test_the_difference_of_two_states_makes_one_of_the_other(data, before):
    after = patch.apply(before, data.draw(fitting_patches(before)))
    check(before, after)
    check(after, before)


@given(st.data(), DOCUMENTS)
def test_changed_paths_are_where_the_documents_differ(data, before):
    after = patch.apply(before, data.draw(fitting_patches(before)))
    found = changed_paths(before, after)
    assert len(set(found)) == len(found)
    for path in found:
        assert not same(lookup(before, path), lookup(after, path))
        assert not any(other != path and path[: len(other)] == other for other in found)
    path = data.draw(paths(data.draw(st.sampled_from([before, after]))))
    if not same(lookup(before, path), lookup(after, path)):
        assert any(path[: len(each)] == each or each[: len(path)] == path for each in found)
