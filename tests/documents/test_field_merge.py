"""Three-way merge, field by field."""

from __future__ import annotations

import copy

import pytest
from drawn_documents import DOCUMENTS, fitting_patches, same
from hypothesis import given
from hypothesis import strategies as st

from fourfold.content.json_pointer import ABSENT
from fourfold.errors import InvalidInput
from fourfold.models.documents import patch
from fourfold.models.documents.field_merge import FieldConflict, merge


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "merged"),
    [
        # One side changed, added or removed a field.
        ({"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 1, "b": 2}, {"a": 2, "b": 2}),
        ({}, {"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ({"a": 1, "b": 1}, {"b": 1}, {"a": 1}, {}),
        ({"a": 1}, {}, {"a": 1, "b": 2}, {"b": 2}),
        ({"a": 1}, {"a": None}, {"a": 1}, {"a": None}),
        ({"a": {"x": 1, "y": 1}}, {"a": {"x": 2, "y": 1}}, {"a": {"x": 1}}, {"a": {"x": 2}}),
        (
            {"a": {"b": {"c": 1}}},
            {"a": {"b": {}}},
            {"a": {"b": {"c": 1}}, "d": 2},
            {"a": {"b": {}}, "d": 2},
        ),
        # Both changed alike.
        ({"a": 1}, {"a": 2}, {"a": 2}, {"a": 2}),
        ({"a": 1}, {}, {}, {}),
        ({}, {"a": [1]}, {"a": [1]}, {"a": [1]}),
        ({"a": {"x": 1}}, {"a": {}}, {"a": {}}, {"a": {}}),
        # Objects that both sides made are merged; an array that one side changed is taken.
        ({}, {"votes": {"alice": 1}}, {"votes": {"bob": 1}}, {"votes": {"alice": 1, "bob": 1}}),
        ({}, {"a": {}}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ({"a": [1]}, {"a": [1, 2]}, {"a": [1]}, {"a": [1, 2]}),
        ({"a": [1]}, {"a": {"b": 1}}, {"a": [1]}, {"a": {"b": 1}}),
        # Whole documents.
        ({"a": 1}, ABSENT, {"a": 1}, ABSENT),
        ({"a": 1}, ABSENT, ABSENT, ABSENT),
        (ABSENT, {"a": 1}, ABSENT, {"a": 1}),
        (ABSENT, {"a": 1}, {"a": 1}, {"a": 1}),
        (ABSENT, {"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        (ABSENT, {}, {}, {}),
        (ABSENT, ABSENT, ABSENT, ABSENT),
    ],
)
def test_changes_of_both_sides_come_together(base, ours, theirs, merged):
    untouched = copy.deepcopy([base, ours, theirs])
    for sides in ((ours, theirs), (theirs, ours)):
        result = merge(base, *sides)
        assert result.clean
        assert result.document == merged
    assert [base, ours, theirs] == untouched


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "conflicts"),
    [
        ({"a": 1}, {"a": 2}, {"a": 3}, [(("a",), 1, 2, 3)]),
        ({}, {"a": 1}, {"a": 2}, [(("a",), ABSENT, 1, 2)]),
        ({}, {"a": 1}, {"a": None}, [(("a",), ABSENT, 1, None)]),
        ({"a": 1}, {}, {"a": 2}, [(("a",), 1, ABSENT, 2)]),
        ({"a": 1}, {}, {"a": None}, [(("a",), 1, ABSENT, None)]),
        ({"a": None}, {}, {"a": 1}, [(("a",), None, ABSENT, 1)]),
        ({"a": 0}, {"a": 1}, {"a": True}, [(("a",), 0, 1, True)]),
        ({"a": 0}, {"a": 1}, {"a": 1.0}, [(("a",), 0, 1, 1.0)]),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, {"a": 3}, [(("a",), {"b": 1}, {"b": 2}, 3)]),
        ({"a": {"b": 1}}, {}, {"a": {"b": 2}}, [(("a",), {"b": 1}, ABSENT, {"b": 2})]),
        ({"a": 1}, {"a": {"b": 1}}, {"a": {"c": 1}}, [(("a",), 1, {"b": 1}, {"c": 1})]),
        ({"a": [1]}, {"a": [1, 2]}, {"a": [0, 1]}, [(("a",), [1], [1, 2], [0, 1])]),
        ({"a": [{"n": 1}]}, {"a": [{"n": 2}]}, {"a": []}, [(("a",), [{"n": 1}], [{"n": 2}], [])]),
        (
            {"a": {"x/y": 1, "z": 1}, "b": 1},
            {"a": {"x/y": 2, "z": 2}, "b": 1},
            {"a": {"x/y": 3, "z": 3}, "b": 9},
            [(("a", "x/y"), 1, 2, 3), (("a", "z"), 1, 2, 3)],
        ),
        ({"a": 1}, ABSENT, {"a": 2}, [((), {"a": 1}, ABSENT, {"a": 2})]),
        ({"a": 1}, {"a": 2}, ABSENT, [((), {"a": 1}, {"a": 2}, ABSENT)]),
    ],
)
def test_what_both_sides_changed_differently_is_a_conflict(base, ours, theirs, conflicts):
    result = merge(base, ours, theirs)
    assert not result.clean
    assert same(list(map(list, result.conflicts)), list(map(list, conflicts)))
    swapped = [FieldConflict(path, was, other, one) for path, was, one, other in conflicts]
    assert same(list(map(list, merge(base, theirs, ours).conflicts)), list(map(list, swapped)))


def test_conflict_leaves_rest_merged_and_itself_as_it_was():
    result = merge({"a": 1, "b": 1, "c": 1}, {"a": 2, "b": 2, "c": 1}, {"a": 3, "b": 1, "c": 3})
    assert result.document == {"a": 1, "b": 2, "c": 3}


@pytest.mark.parametrize("path", [("a", "b"), "/a/b"])
@pytest.mark.parametrize(("value", "merged"), [(9, {"a": {"b": 9}}), (ABSENT, {"a": {}})])
def test_a_resolution_decides_a_conflict(path, value, merged):
    sides = ({"a": {"b": 1}}, {"a": {"b": 2}}, {"a": {"b": 3}})
    result = merge(*sides, {path: value})
    assert result.clean
    assert result.document == merged


def test_a_whole_document_may_be_resolved():
    sides = ({"a": 1}, ABSENT, {"a": 2})
    assert merge(*sides, {"": {"a": 3}}).document == {"a": 3}
    assert merge(*sides, {"": ABSENT}).document is ABSENT
    for bad in (None, [], 5):
        with pytest.raises(InvalidInput, match="a document is an object"):
            merge(*sides, {"": bad})


def test_a_resolution_without_a_conflict_is_refused():
    with pytest.raises(InvalidInput, match="there is no conflict at /b to resolve"):
        merge({"a": 1}, {"a": 2}, {"a": 3}, {"/a": 4, "/b": 5})


def test_a_resolution_that_is_no_value_is_refused():
    with pytest.raises(InvalidInput, match="nan at /a"):
        merge({"a": 1}, {"a": 2}, {"a": 3}, {"/a": float("nan")})
    with pytest.raises(InvalidInput, match="JSON pointer"):
        merge({}, {}, {}, {"a": 1})


@pytest.mark.parametrize("bad", [None, [], 1, "a"])
def test_only_documents_are_merged(bad):
    for sides in ((bad, {}, {}), ({}, bad, {}), ({}, {}, bad)):
        with pytest.raises(InvalidInput, match="an object or ABSENT"):
            merge(*sides)


def test_documents_as_deep_as_they_go_are_merged():
    def deep(leaf):
        value = leaf
        for _ in range(499):
            value = {"k": value}
        return value

    result = merge(deep({"a": 1, "b": 1}), deep({"a": 2, "b": 1}), deep({"a": 1, "b": 2}))
    assert result.clean
    assert result.document == deep({"a": 2, "b": 2})


SIDES = st.just(ABSENT) | DOCUMENTS


@st.composite
def histories(draw):
    """A base and two sides that went on from it, or that have nothing to do with it."""
    base = draw(SIDES)
    sides = []
    for _ in range(2):
        start = {} if base is ABSENT else base
        going_on = patch.apply(start, draw(fitting_patches(start)))
        sides.append(draw(st.sampled_from([going_on, going_on, draw(SIDES)])))
    return base, *sides


def form(side):
    return ["absent"] if side is ABSENT else side


@given(histories())
def test_the_two_sides_are_equals(history):
    base, ours, theirs = history
    untouched = copy.deepcopy(history)
    one, other = merge(base, ours, theirs), merge(base, theirs, ours)
    assert same(form(one.document), form(other.document))
    assert len(one.conflicts) == len(other.conflicts)
    for here, there in zip(one.conflicts, other.conflicts, strict=True):
        assert here.path == there.path
        assert same(
            [form(here.base), form(here.ours), form(here.theirs)],
            [form(there.base), form(there.theirs), form(there.ours)],
        )
    assert all(same(form(now), form(then)) for now, then in zip(history, untouched, strict=True))


@given(SIDES, SIDES)
def test_a_side_that_did_nothing_has_no_say(base, side):
    for sides in ((base, side, base), (base, base, side), (base, side, side)):
        result = merge(*copy.deepcopy(sides))
        assert result.clean
        assert same(form(result.document), form(side))


@st.composite
def changed_at(draw, document, keys):
    changed = {key: value for key, value in document.items() if key not in keys}
    return changed | {key: draw(st.integers() | DOCUMENTS) for key in keys if draw(st.booleans())}


@given(st.data(), DOCUMENTS)
def test_changes_to_different_fields_never_conflict(data, base):
    ours = data.draw(changed_at(base, {"a", "b"}))
    theirs = data.draw(changed_at(base, {"c", "0"}))
    result = merge(base, ours, theirs)
    assert result.clean
    for key in {*base, *ours, *theirs}:
        source = ours if key in {"a", "b"} else theirs
        assert same(result.document.get(key, "absent"), source.get(key, "absent"))


@given(histories())
def test_resolving_every_conflict_makes_a_merge_clean(history):
    conflicts = merge(*history).conflicts
    for pick in ("ours", "theirs"):
        chosen = {each.path: getattr(each, pick) for each in conflicts}
        result = merge(*history, chosen)
        assert result.clean
