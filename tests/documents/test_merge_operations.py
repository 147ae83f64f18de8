"""Merging adds up what both sides did, each operation once; crossed merges have a virtual base."""

from __future__ import annotations

import pytest
from forked_space import COUNT, add, shown

from fourfold.errors import Conflict
from fourfold.models.documents import OURS, THEIRS
from fourfold.models.documents.gc.policy import GcPolicy


def append(*values):
    return [{"op": "append", "path": "/value/list", "values": list(values)}]


def test_increments_on_both_sides_add_up(forked):
    forked.patch("urn:a", COUNT, branch="work")
    forked.patch("urn:a", COUNT)
    forked.branches.merge("work", "")
    assert shown(forked, "urn:a")["count"] == 2
    forked.patch("urn:a", [{"op": "increment", "path": "/count", "by": 5}], branch="work")
    forked.patch("urn:a", [{"op": "increment", "path": "/count", "by": 2}])
    forked.branches.merge("work", "")
    assert shown(forked, "urn:a")["count"] == 9
    assert forked.verify() == []


def test_increments_create_a_counter_of_an_entity_on_both_sides(forked):
    for name in ("work", ""):
        forked.patch("urn:new", COUNT, branch=name)
    forked.branches.merge("work", "")
    assert shown(forked, "urn:new") == {"count": 2}


def test_appends_on_both_sides_are_kept_in_order_of_target(forked):
    forked.patch("urn:a", append("w1"), branch="work")
    forked.patch("urn:a", [{"op": "add", "path": "/value/list/-", "value": "w2"}], branch="work")
    forked.patch("urn:a", append("m"))
    forked.branches.merge("work", "")
    assert shown(forked, "urn:a")["value"]["list"] == [1, "m", "w1", "w2"]
    forked.branches.merge("", "work")
    assert shown(forked, "urn:a", "work")["value"]["list"] == [1, "m", "w1", "w2"]


def test_sets_of_values_are_joined(forked):
    forked.set("urn:a", {"tags": ["a", "b", "c"]})
    forked.branches.create("later")
    forked.patch(
        "urn:a",
        [
            {"op": "add-unique", "path": "/tags", "values": ["d", "e"]},
            {"op": "remove-by-value", "path": "/tags", "value": "a"},
        ],
        branch="later",
    )
    forked.patch(
        "urn:a",
        [
            {"op": "remove-by-value", "path": "/tags", "value": "b"},
            {"op": "add-unique", "path": "/tags", "values": ["e", "f"]},
        ],
    )
    forked.branches.merge("later", "")
    assert shown(forked, "urn:a") == {"tags": ["c", "e", "f", "d"]}


@pytest.mark.parametrize(
    "change",
    [
        [{"op": "replace", "path": "/value/list", "value": [1, 2]}],
        [{"op": "splice", "path": "/value/list", "index": 0, "remove": 0, "add": [2]}],
        [{"op": "add", "path": "/value/list/0", "value": 2}],
        [{"op": "remove", "path": "/value/list/0"}],
        [{"op": "add-unique", "path": "/value/list", "values": ["w"]}, *append("x")],
        [*append("w"), {"op": "remove-by-value", "path": "/value/list", "value": "w"}, *append(2)],
        [{"op": "increment", "path": "/value/list/0", "by": 1}],
        [{"op": "replace", "path": "/value", "value": {"list": [2]}}],
    ],
)
@pytest.mark.parametrize("side", ["", "work"])
def test_operations_that_do_not_commute_are_a_conflict(forked, change, side):
    forked.patch("urn:a", append("w"), branch="work" if side == "" else "")
    forked.patch("urn:a", change, branch=side)
    dry = forked.branches.merge("work", "", dry_run=True)
    assert "/value/list" in dry.conflicts[0].paths


def test_increment_under_a_replaced_parent_is_a_conflict(forked):
    forked.patch("urn:a", [{"op": "increment", "path": "/value/x", "by": 1}], branch="work")
    forked.patch("urn:a", [{"op": "replace", "path": "/value", "value": {"x": 7}}])
    dry = forked.branches.merge("work", "", dry_run=True)
    assert dry.conflicts[0].paths == ("/value/x",)


def test_increment_of_a_removed_field_is_a_conflict(forked):
    forked.patch("urn:a", [{"op": "increment", "path": "/value/x", "by": 1}], branch="work")
    forked.patch("urn:a", [{"op": "remove", "path": "/value/x"}])
    dry = forked.branches.merge("work", "", dry_run=True)
    assert dry.conflicts[0].paths == ("/value/x",)


def test_increment_is_counted_once_however_it_arrives(forked):
    forked.branches.create("third")
    forked.patch("urn:a", COUNT, branch="work")
    forked.patch("urn:a", COUNT, branch="third")
    forked.patch("urn:a", COUNT)
    forked.branches.merge("work", "third")
    forked.branches.merge("third", "")
    forked.branches.merge("work", "")
    assert shown(forked, "urn:a")["count"] == 3
    forked.patch("urn:a", COUNT, branch="work")
    forked.branches.merge("", "work")
    forked.branches.merge("work", "third")
    forked.branches.merge("third", "")
    forked.branches.merge("work", "")
    assert [shown(forked, "urn:a", name)["count"] for name in ("", "work", "third")] == [4, 4, 4]


def test_increments_that_gc_truncated_are_a_conflict_and_never_lost(forked):
    for name in ("work", ""):
        for _ in range(3):
            forked.patch("urn:a", COUNT, branch=name)
    forked.gc(GcPolicy(keep_seqs=1))
    assert shown(forked, "urn:a") == shown(forked, "urn:a", "work")
    with pytest.raises(Conflict) as caught:
        forked.branches.merge("work", "")
    assert caught.value.details["conflicts"][0]["paths"] == ["/count"]


def test_same_values_whose_operations_gc_truncated_are_a_conflict(forked):
    for name in ("work", ""):
        for _ in range(3):
            forked.patch("urn:a", COUNT, branch=name)
        forked.patch("urn:a", add("x", 1), branch=name)
    forked.gc(GcPolicy(keep_seqs=1))
    dry = forked.branches.merge("work", "", dry_run=True)
    assert dry.conflicts[0].paths == ("/count",)


def test_more_operations_than_a_merge_looks_at_are_a_conflict(forked, monkeypatch):
    for name in ("work", ""):
        for _ in range(4):
            forked.patch("urn:a", COUNT, branch=name)
    monkeypatch.setattr("fourfold.models.documents.operation_merge.MERGE_OPERATIONS_MAX", 3)
    dry = forked.branches.merge("work", "", dry_run=True)
    assert dry.conflicts[0].paths == ("/count",)
    monkeypatch.setattr("fourfold.models.documents.operation_merge.MERGE_OPERATIONS_MAX", 4)
    forked.branches.merge("work", "")
    assert shown(forked, "urn:a")["count"] == 8


def test_resolution_counts_as_no_operation(forked):
    """A counter that a resolution set is compared by state, so later increments are a conflict."""
    forked.patch("urn:a", [{"op": "add", "path": "/count", "value": 10}])
    forked.patch("urn:a", COUNT, branch="work")
    forked.branches.merge("work", "", resolutions={("urn:a", "/count"): 50})
    forked.branches.create("other", "work")
    forked.patch("urn:a", COUNT, branch="other")
    forked.patch("urn:a", COUNT)
    dry = forked.branches.merge("other", "", dry_run=True)
    assert dry.conflicts[0].paths == ("/count",)


def crossed(space):
    """Let `work` and `main` each merge what the other had before it merged itself."""
    space.branches.create("from-work", "work")
    space.branches.create("from-main", "main")
    space.branches.merge("from-work", "main")
    space.branches.merge("from-main", "work")


def test_merges_that_crossed_each_other_have_a_virtual_base(forked):
    forked.branches.create("main")
    forked.patch("urn:a", add("x", 1), branch="work")
    forked.patch("urn:a", add("y", 1), branch="main")
    crossed(forked)
    # Each side has what the other had then. Now one takes its own change back.
    forked.patch("urn:a", add("x", 0), branch="work")
    forked.branches.merge("work", "main")
    assert shown(forked, "urn:a", "main")["value"] == {"x": 0, "y": 1, "list": [1]}
    assert forked.branches.merge("work", "main").commit is None
    forked.patch("urn:a", add("x", 5), branch="work")
    forked.branches.merge("work", "main")
    assert shown(forked, "urn:a", "main")["value"]["x"] == 5


def contradict(space):
    """Let both branches change one field, and take the other's value when they cross."""
    space.branches.create("main")
    space.patch("urn:a", add("x", 1), branch="work")
    space.patch("urn:a", add("x", 2), branch="main")
    space.branches.create("from-work", "work")
    space.branches.create("from-main", "main")
    for source, target in (("from-work", "main"), ("from-main", "work")):
        space.branches.merge(source, target, resolutions={"urn:a": THEIRS})


def test_conflict_within_a_virtual_base_stops_nothing_else(forked):
    contradict(forked)
    forked.patch("urn:a", add("y", 7), branch="work")
    forked.set("urn:b", {"value": 1}, branch="work")
    with pytest.raises(Conflict) as caught:
        forked.branches.merge("work", "main")
    assert caught.value.details["conflicts"][0]["paths"] == ["/value/x"]
    forked.patch("urn:a", add("x", 1), branch="work")
    forked.branches.merge("work", "main")
    assert shown(forked, "urn:a", "main")["value"] == {"x": 1, "y": 7, "list": [1]}
    assert shown(forked, "urn:b", "main") == {"value": 1}


def test_virtual_base_is_traced_through_several_crossings(forked):
    forked.branches.create("main")
    for round_number in range(3):
        forked.patch("urn:a", COUNT, branch="work")
        forked.patch("urn:a", COUNT, branch="main")
        for name in ("work", "main"):
            forked.branches.create(f"{name}/{round_number}", name)
        forked.branches.merge(f"work/{round_number}", "main")
        forked.branches.merge(f"main/{round_number}", "work")
    forked.patch("urn:a", COUNT, branch="work")
    forked.patch("urn:a", COUNT, branch="main")
    forked.branches.merge("work", "main")
    assert shown(forked, "urn:a", "main")["count"] == 8


def test_virtual_base_that_gc_truncated_is_conflict_and_no_guess(forked):
    contradict(forked)
    forked.patch("urn:a", add("y", 1), branch="main")
    for number in range(20):
        forked.set("urn:other", {"n": number})
    forked.gc(GcPolicy(keep_seqs=1))
    forked.patch("urn:a", add("y", 2), branch="work")
    dry = forked.branches.merge("work", "main", dry_run=True)
    assert [conflict.paths for conflict in dry.conflicts] == [("/value/x", "/value/y")]
    forked.branches.merge("work", "main", resolutions={"urn:a": OURS})
    assert shown(forked, "urn:a", "main")["value"]["y"] == 1
