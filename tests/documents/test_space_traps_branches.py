"""Traps of branches: what a child sees, what it must not see, and what becomes of it."""

from __future__ import annotations

import pytest
from space_costs import counted

from fourfold import limits
from fourfold.errors import (
    AlreadyExists,
    BranchEnded,
    InvalidInput,
    NotFound,
    Refused,
    ReplayMismatch,
    StaleRead,
)


def add(path, value):
    return [{"op": "add", "path": path, "value": value}]


def replace(path, value):
    return [{"op": "replace", "path": path, "value": value}]


def document(space, entity, branch="", at=None):
    state = space.read(entity, branch, at)
    # Straight from the file, past the cache, it is the same.
    assert space.read_many([entity], branch, at)[entity] == state
    return None if state is None else state.document


def long_chain(space, entity, branch="", count=30):
    """Patches enough for snapshots; the seq of the last."""
    for number in range(count):
        last = space.patch(entity, add(f"/long key number {number}", number), branch=branch)
    return last.seq


def snapshots(space):
    with space.view() as view:
        return view.all("SELECT branch, id, seq FROM snapshot ORDER BY seq, branch")


def test_b1_patch_on_inherited_entity_starts_from_parents_state(space):
    space.set("a", {"x": 1, "y": 1})
    space.branches.create("child")
    space.patch("a", replace("/x", 2), branch="child")
    space.patch("a", add("/z", 3), branch="child")
    assert document(space, "a", "child") == {"x": 2, "y": 1, "z": 3}
    assert document(space, "a") == {"x": 1, "y": 1}


def test_b1_patch_on_an_inherited_chain_starts_from_its_end(space):
    long_chain(space, "a", count=13)
    space.branches.create("child")
    long_chain(space, "a", "child", count=13)
    space.patch("a", add("/n", 0))
    expected = {f"long key number {number}": number for number in range(13)}
    assert document(space, "a", "child") == expected
    assert document(space, "a") == {**expected, "n": 0}


def test_b1_a_patch_on_an_inherited_tombstone_starts_from_nothing(space):
    space.set("a", {"x": 1})
    space.delete("a")
    space.branches.create("child")
    space.patch("a", add("/y", 2), branch="child")
    assert document(space, "a", "child") == {"y": 2}
    assert space.read("a").deleted


def test_b2_the_parent_never_replays_the_patches_of_its_child(space):
    space.set("a", {"n": 1})
    space.branches.create("child")
    space.patch("a", replace("/n", 2), branch="child")
    space.patch("a", add("/m", 0))
    assert document(space, "a") == {"n": 1, "m": 0}
    assert document(space, "a", "child") == {"n": 2}


def test_b3_siblings_and_later_grandparents_never_leak_into_nested_branch(space):
    space.set("a", {"n": 1})
    space.branches.create("f")
    space.set("a", {"n": 2})
    space.branches.create("sibling")
    space.set("a", {"n": 3}, branch="sibling")
    space.branches.create("g", "f")
    space.set("late", {})
    assert document(space, "a", "g") == {"n": 1}
    assert document(space, "late", "g") is None
    assert space.ids("g") == ["a"]


def test_b3_the_nearest_branch_decides_and_not_the_newest_seq(space):
    space.set("a", {"n": 1})
    space.branches.create("f")
    space.delete("a", branch="f")
    space.branches.create("g", "f")
    space.set("a", {"n": 2})
    assert space.read("a", "g").deleted
    assert space.ids("g") == []
    space.patch("a", add("/m", 1), branch="g")
    assert document(space, "a", "g") == {"m": 1}


def test_b4_the_fork_caps_add_up_along_the_chain(space):
    space.set("a", {"n": 1})
    space.set("a", {"n": 2})
    early = space.branches.create("f", at=1)
    space.branches.create("g", "f")
    space.branches.create("h", "g")
    assert early.fork_seq == 1
    for branch in ("f", "g", "h"):
        assert document(space, "a", branch) == {"n": 1}
        assert document(space, "a", branch, space.seq()) == {"n": 1}
    assert document(space, "a") == {"n": 2}


def test_b4_a_parents_head_beyond_the_fork_is_not_used(space):
    space.set("a", {"n": 1})
    space.branches.create("f")
    space.patch("a", replace("/n", 2))
    space.delete("a")
    space.set("first seen after the fork", {})
    assert document(space, "a", "f") == {"n": 1}
    assert space.ids("f") == ["a"]
    assert [each.seq for each in space.history("a", "f")] == [1]


def test_b5_deleted_branch_is_marked_and_its_name_reserved(space):
    space.set("a", {"n": 1})
    space.branches.create("f")
    space.patch("a", replace("/n", 2), branch="f")
    space.branches.create("g", "f")
    space.branches.delete("f")
    assert document(space, "a", "f") == {"n": 2}
    assert document(space, "a", "f", 3) == {"n": 2}
    space.patch("a", replace("/n", 3), branch="g")
    assert document(space, "a", "g") == {"n": 3}
    assert document(space, "a", space.branches.create("h", "f").name) == {"n": 2}
    with pytest.raises(BranchEnded):
        space.set("a", {}, branch="f")
    with pytest.raises(AlreadyExists):
        space.branches.create("f")
    with pytest.raises(BranchEnded):
        space.branches.delete("f")
    assert [branch.name for branch in space.branches.list()] == ["", "g", "h"]
    assert [branch.name for branch in space.branches.list(deleted=True)] == ["", "f", "g", "h"]


def test_b5_the_default_branch_cannot_be_deleted(space):
    with pytest.raises(Refused):
        space.branches.delete("")
    assert space.seq() == 0
    assert space.branches.get("").active


def test_b6_conflict_with_inherited_write_is_found_on_child(space):
    space.set("a", {"n": 1})
    space.patch("a", replace("/n", 2))
    space.branches.create("f")
    space.branches.create("g", "f")
    for branch in ("", "f", "g"):
        with pytest.raises(StaleRead) as caught:
            space.transact(
                [{"op": "delete", "id": "a"}],
                reads={"confirmed": [{"id": "a", "seq": 1, "path": ["n"]}]},
                branch=branch,
            )
        assert caught.value.details == {"entity": "a", "read_seq": 1, "conflict_seq": 2}
    assert space.seq() == 4


def test_b6_later_write_of_parent_is_no_conflict_on_child(space):
    space.set("a", {"n": 1})
    space.branches.create("f")
    space.set("a", {"n": 2})
    reads = {"confirmed": [{"id": "a", "seq": 1}]}
    assert space.transact([{"op": "delete", "id": "a"}], reads=reads, branch="f").seq == 4


def test_b6_a_read_may_name_another_branch(space):
    space.set("a", {"n": 1})
    space.branches.create("f")
    space.set("a", {"n": 2})
    operations = [{"op": "set", "id": "b", "value": {}}]
    with pytest.raises(StaleRead):
        space.transact(
            operations, reads={"confirmed": [{"id": "a", "seq": 1, "branch": ""}]}, branch="f"
        )
    reads = {"confirmed": [{"id": "a", "seq": 1, "branch": "f"}]}
    assert space.transact(operations, reads=reads, branch="").seq == 4


def test_b7_birth_of_branch_has_seq_of_its_own(space):
    space.set("a", {})
    branch = space.branches.create("f")
    assert (branch.fork_seq, branch.created_seq, branch.head_seq) == (1, 2, 2)
    assert space.seq() == 2
    with pytest.raises(NotFound, match="did not exist at seq 1"):
        space.read("a", "f", at=1)
    assert document(space, "a", "f", 2) == {}


def test_b8_quiet_branch_is_readable_at_newest_seq_of_space(space):
    space.set("a", {"n": 1})
    space.branches.create("f")
    for number in range(3):
        space.set("b", {"n": number})
    assert document(space, "a", "f", space.seq()) == {"n": 1}
    with pytest.raises(InvalidInput, match="from 0 to 5"):
        space.read("a", "f", at=6)


def test_b9_fork_point_lies_in_life_of_its_parent(space):
    space.set("a", {})
    space.branches.create("f")
    for at in (-1, 3, 999, True, 1.5, "1"):
        with pytest.raises(InvalidInput):
            space.branches.create("g", at=at)
    with pytest.raises(NotFound):
        space.branches.create("g", "f", at=1)
    with pytest.raises(NotFound):
        space.branches.create("g", "unknown")
    assert space.seq() == 2
    assert space.branches.create("g", at=0).fork_seq == 0
    assert space.ids("g") == []


def test_b9_branches_are_nested_to_a_limit(space):
    parent = ""
    for depth in range(limits.BRANCH_DEPTH_MAX):
        parent = space.branches.create(f"b{depth}", parent).name
    with pytest.raises(InvalidInput, match="nested"):
        space.branches.create("one-too-many", parent)


def test_b10_reading_inherited_entity_leaves_no_head_on_child(space):
    space.set("a", {"n": 1})
    space.branches.create("f")
    document(space, "a", "f")
    space.ids("f")
    with space.view() as view:
        assert view.all("SELECT branch, id FROM head") == [("", "a")]


def test_b11_child_ignores_snapshots_of_parent_after_the_fork(space):
    seq = long_chain(space, "a", count=9)
    space.branches.create("f", at=seq)
    space.patch("a", add("/after the fork, and long enough for a snapshot", "x" * 300))
    space.patch("a", add("/again", 1))
    assert any(taken > seq for _, _, taken in snapshots(space))
    expected = {f"long key number {number}": number for number in range(9)}
    assert document(space, "a", "f") == expected
    space.patch("a", add("/own", 1), branch="f")
    assert document(space, "a", "f") == {**expected, "own": 1}


def test_b11_snapshot_of_parent_before_fork_serves_child(space):
    long_chain(space, "a", count=200)
    space.branches.create("f")
    # Point in time, since what is newest comes from memory.
    with counted() as cost:
        space.read_many(["a"], "", at=space.seq())
    own = cost.steps
    with counted() as cost:
        space.read_many(["a"], "f", at=space.seq())
    assert cost.steps < 3 * own


def test_b12_seq_without_revisions_is_seq_like_any_other(space):
    space.set("a", {"n": 1})
    space.branches.create("f")
    space.branches.delete("f")
    assert document(space, "a", at=2) == document(space, "a", at=3) == {"n": 1}
    assert [entry.branch for entry in space.log()] == ["", "f", "f"]
    assert space.log()[1].original["name"] == "f"
    assert space.verify() == []


def test_b13_request_is_replayed_also_when_its_branch_has_ended(space):
    space.branches.create("f")
    request = {"session": "s", "local_seq": 1, "branch": "f"}
    operations = [{"op": "set", "id": "a", "value": {"n": 1}}]
    first = space.transact(operations, **request)
    space.branches.delete("f")
    again = space.transact(operations, **request)
    assert again.replayed
    assert (again.seq, again.revisions) == (first.seq, first.revisions)
    with pytest.raises(ReplayMismatch):
        space.transact([{"op": "delete", "id": "a"}], **request)
    with pytest.raises(BranchEnded):
        space.transact(operations, session="s", local_seq=2, branch="f")
    assert space.seq() == 3


def test_b14_deletion_without_a_write_in_one_merge_is_propagated(space):
    space.set("a", {"n": 1})
    space.set("b", {"n": 1})
    space.branches.create("empty", at=0)
    space.branches.create("deleting")
    space.delete("a", branch="deleting")
    space.branches.merge("deleting", "empty")
    space.branches.merge("empty", "")
    assert space.read("a").deleted


@pytest.mark.parametrize("side", ["child", "parent"])
def test_b15_a_diff_shows_what_only_one_side_changed(space, side):
    changed = "f" if side == "child" else ""
    for entity in ("set", "patched", "deleted"):
        space.set(entity, {"n": 1})
    space.set("left alone", {"n": 1})
    space.branches.create("f")
    space.set("set", {"n": 2}, branch=changed)
    space.patch("patched", add("/m", 2), branch=changed)
    space.delete("deleted", branch=changed)
    space.set("made", {"n": 2}, branch=changed)
    found = {each.id: each for each in space.branches.diff("", "f")}
    assert sorted(found) == ["deleted", "made", "patched", "set"]
    assert {each.changed_on for each in found.values()} == {"b" if side == "child" else "a"}
    assert not space.branches.diff("f", "f").operations


@pytest.mark.parametrize("order", ["delete then patch", "patch then delete"])
def test_delete_on_child_hides_parent_whatever_comes_after(space, order):
    space.set("a", {"n": 1})
    space.branches.create("f")
    patch = {"op": "patch", "id": "a", "patches": add("/m", 2)}
    delete = {"op": "delete", "id": "a"}
    operations = [delete, patch] if order == "delete then patch" else [patch, delete]
    space.transact(operations, branch="f")
    assert document(space, "a", "f") == ({"m": 2} if operations[1] is patch else None)
    assert document(space, "a") == {"n": 1}
