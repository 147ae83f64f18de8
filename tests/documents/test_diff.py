"""The difference of two points is what a reader of both would see, at the price of what changed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from drawn_spaces import IDS, SCRIPTS, Traced, played, points
from hypothesis import given, settings
from hypothesis import strategies as st

from fourfold.errors import InvalidInput, NotFound
from fourfold.models.documents import HISTORIES, comparison
from fourfold.models.documents.ancestry import BranchPoint
from fourfold.models.documents.diff import identical
from fourfold.models.documents.patch import apply
from support.properties import examples


def document(state):
    return None if state is None else state.document


def sides(difference):
    return {change.id: change.changed_on for change in difference}


@pytest.mark.parametrize("kind", sorted(HISTORIES))
@settings(max_examples=examples(15), deadline=None)
@given(script=SCRIPTS, data=st.data())
def test_a_diff_is_what_reading_everything_twice_gives(kind, script, data):
    with played(script, kind) as space:
        one = data.draw(st.sampled_from(points(space)))
        two = data.draw(st.sampled_from(points(space)))
        found = space.branches.diff(one[0], two[0], at_a=one[1], at_b=two[1])
        first, second = space.read_many(IDS, *one), space.read_many(IDS, *two)
        different = [
            entity
            for entity in IDS
            if not identical(document(first[entity]), document(second[entity]))
        ]
        assert [change.id for change in found] == different
        for change in found:
            assert (change.a, change.b) == (first[change.id], second[change.id])
            if change.patches is not None:
                assert identical(apply(change.a.document, change.patches), change.b.document)


@pytest.mark.parametrize("kind", sorted(HISTORIES))
@settings(max_examples=examples(15), deadline=None)
@given(script=SCRIPTS, data=st.data())
def test_the_operations_of_a_diff_bring_an_old_state_back(kind, script, data):
    with played(script, kind) as space:
        name, seq = data.draw(
            st.sampled_from([each for each in points(space) if space.branches.get(each[0]).active])
        )
        operations = space.diff(name, None, seq).operations
        if operations:
            space.transact(operations, branch=name)
        assert len(space.diff(name, seq)) == 0
        assert len(space.diff(name, seq, None)) == 0


def test_two_states_of_one_branch(space):
    space.set("urn:a", {"value": {"n": 1, "m": 1}})
    space.set("urn:gone", {"value": 1})
    space.set("urn:same", {"value": 1})
    space.patch("urn:a", [{"op": "replace", "path": "/value/n", "value": 2}])
    space.delete("urn:gone")
    space.set("urn:same", {"value": 1})
    space.set("urn:new", {"value": 1})
    found = {change.id: change for change in space.diff("", 3)}
    assert set(found) == {"urn:a", "urn:gone", "urn:new"}
    assert found["urn:a"].patches == [{"op": "replace", "path": "/value/n", "value": 2}]
    assert found["urn:gone"].operation == {"op": "delete", "id": "urn:gone"}
    assert found["urn:new"].operation == {"op": "set", "id": "urn:new", "value": {"value": 1}}
    assert (found["urn:new"].a, found["urn:gone"].b.deleted) == (None, True)
    assert {change.changed_on for change in found.values()} == {"b"}
    assert sides(space.diff("", None, 3)) == dict.fromkeys(found, "a")


def test_branch_differs_by_what_each_side_did_since_they_parted(space):
    for entity in ("urn:mine", "urn:theirs", "urn:both", "urn:alike", "urn:untouched"):
        space.set(entity, {"value": 0})
    space.branches.create("work")
    space.set("urn:mine", {"value": 1}, branch="work")
    space.set("urn:theirs", {"value": 1})
    space.set("urn:both", {"value": 1}, branch="work")
    space.delete("urn:both")
    space.set("urn:alike", {"value": 7})
    space.set("urn:alike", {"value": 7}, branch="work")
    found = space.branches.diff("work", "")
    assert sides(found) == {"urn:mine": "a", "urn:theirs": "b", "urn:both": "both"}
    assert found.base == BranchPoint("", 5)
    turned = space.branches.diff("", "work")
    assert sides(turned) == {"urn:mine": "b", "urn:theirs": "a", "urn:both": "both"}


def test_siblings_and_nested_branches_have_the_nearest_common_ancestor(space):
    space.set("urn:a", {"value": 0})
    space.branches.create("one")
    space.branches.create("two")
    space.set("urn:a", {"value": 1}, branch="one")
    space.branches.create("nested", "one")
    space.set("urn:a", {"value": 2}, branch="one")
    space.set("urn:b", {"value": 3}, branch="nested")
    assert sides(space.branches.diff("one", "two")) == {"urn:a": "a"}
    assert space.branches.diff("one", "two").base == BranchPoint("", 1)
    found = space.branches.diff("nested", "one")
    assert sides(found) == {"urn:a": "b", "urn:b": "a"}
    assert found.base == BranchPoint("one", 4)


def test_a_deleted_branch_can_be_compared(space):
    space.branches.create("work")
    space.set("urn:a", {"value": 1}, branch="work")
    space.branches.create("child", "work")
    space.branches.delete("work")
    space.set("urn:b", {"value": 1}, branch="child")
    assert sides(space.branches.diff("work", "")) == {"urn:a": "a"}
    assert sides(space.branches.diff("work", "child")) == {"urn:b": "b"}


def test_merge_moves_the_elements_that_both_have_after_it(space):
    space.set("urn:a", {"value": 0})
    space.branches.create("work")
    space.set("urn:a", {"value": 1}, branch="work")
    space.branches.merge("work", "")
    assert len(space.branches.diff("work", "")) == 0
    space.set("urn:a", {"value": 2})
    assert sides(space.branches.diff("work", "")) == {"urn:a": "b"}


def test_deleted_and_never_written_look_the_same(space):
    space.branches.create("work")
    space.delete("urn:a", branch="work")
    assert len(space.branches.diff("work", "")) == 0


def test_numbers_that_only_look_equal_are_a_difference(space):
    space.set("urn:a", {"value": 1})
    space.set("urn:a", {"value": 1.0})
    [change] = space.diff("", 1)
    assert change.patches == [{"op": "replace", "path": "/value", "value": 1.0}]


def test_points_can_be_moments(space):
    space.set("urn:a", {"value": 1})
    long_ago = datetime.now(UTC) - timedelta(days=1)
    assert [change.id for change in space.diff("", long_ago)] == ["urn:a"]
    assert [change.id for change in space.branches.diff("", "", at_a=long_ago)] == ["urn:a"]


def test_only_entities_with_changes_on_one_side_are_read(space):
    ids = [f"urn:{number}" for number in range(200)]
    space.transact([{"op": "set", "id": entity, "value": {}} for entity in ids])
    space.branches.create("work")
    space.set("urn:3", {"value": 1}, branch="work")
    space.set("urn:5", {"value": 1})
    with space.view() as view:
        traced = Traced(view)
        newest = space.seq()
        comparison.compare(traced, BranchPoint("work", newest), BranchPoint("", newest))
    assert traced.ids_looked_at() == {"urn:3", "urn:5"}


def test_page_of_a_diff_reads_no_entities_after_it(space):
    ids = [f"urn:{number:04}" for number in range(1_000)]
    space.transact([{"op": "set", "id": entity, "value": {}} for entity in ids])
    whole, paged, after, steps = space.diff("", 0), [], "", []
    points = (BranchPoint("", 0), BranchPoint("", space.seq()))
    while True:
        with space.view() as view:
            traced = Traced(view)
            page = comparison.compare(
                traced, *points, after=after, limit=10, end_step=lambda: steps.append(1)
            )
        assert len(traced.ids_looked_at()) <= comparison.COMPARED_AT_ONCE
        if not page.changes:
            break
        paged += page.changes
        after = page.changes[-1].id
    assert paged == list(whole.changes)
    with space.view() as view:
        comparison.compare(view, *points, end_step=lambda: steps.append(2))
    assert len([step for step in steps if step == 2]) >= len(ids) // comparison.COMPARED_AT_ONCE


def test_bad_points_are_refused(space):
    space.set("urn:a", {})
    space.branches.create("work")
    with pytest.raises(NotFound):
        space.branches.diff("", "nowhere")
    with pytest.raises(NotFound):
        space.diff("work", 1)
    with pytest.raises(InvalidInput):
        space.diff("", 0, 99)
