"""Traps of replay: where it starts, in which order it goes, and that its cost is bounded."""

from __future__ import annotations

import json

import pytest
from space_costs import counted

from fourfold.errors import InvalidInput
from fourfold.models.documents import fold
from fourfold.models.documents.writer import SNAPSHOT_PATCHES_MIN


def add(path, value):
    return [{"op": "add", "path": path, "value": value}]


def cold(space, entity, at=None):
    """What the file says; the cache is not asked."""
    return space.read_many([entity], at=at)[entity]


def snapshots(space, entity="a"):
    with space.view() as view:
        return [
            row[0]
            for row in view.all("SELECT seq FROM snapshot WHERE id = ? ORDER BY seq", (entity,))
        ]


def patch_times(space, count, entity="a"):
    for number in range(count):
        space.patch(entity, [{"op": "append", "path": "/list", "values": [number]}])


def test_c1_set_after_snapshot_is_base_of_what_follows(space):
    patch_times(space, 12)
    assert snapshots(space)
    space.set("a", {"z": 9})
    space.patch("a", add("/w", 1))
    assert cold(space, "a").document == space.read("a").document == {"z": 9, "w": 1}
    assert cold(space, "a", at=13).document == {"z": 9}
    assert cold(space, "a", at=12).document == {"list": list(range(12))}


def test_c2_patch_after_delete_does_not_restore_old_fields(space):
    space.set("a", {"old": 1})
    space.delete("a")
    space.patch("a", add("/new", 1))
    assert cold(space, "a").document == {"new": 1}
    assert cold(space, "a", at=2).deleted


def test_c2_delete_after_snapshot_is_base_of_what_follows(space):
    patch_times(space, 12)
    space.delete("a")
    space.patch("a", add("/new", 1))
    assert cold(space, "a").document == {"new": 1}


def test_c3_operations_of_one_commit_keep_their_order(space):
    space.transact(
        [
            {"op": "set", "id": "a", "value": {"n": 1}},
            {"op": "set", "id": "b", "value": {"n": 1}},
            {"op": "set", "id": "a", "value": {"n": 2}},
            {"op": "patch", "id": "a", "patches": [{"op": "increment", "path": "/n", "by": 5}]},
            {"op": "delete", "id": "b"},
        ]
    )
    assert cold(space, "a").document == {"n": 7}
    assert cold(space, "b").deleted
    assert [each.op_index for each in space.history("a")] == [0, 2, 3]


def test_c4_snapshot_holds_what_last_operation_of_its_commit_left(space):
    patch_times(space, 9)
    patches = [
        {"op": "patch", "id": "a", "patches": add(f"/long name of a key {number}", number)}
        for number in range(5)
    ]
    seq = space.transact(patches).seq
    assert seq in snapshots(space)
    expected = {"list": list(range(9)), **{f"long name of a key {n}": n for n in range(5)}}
    assert cold(space, "a").document == expected
    assert space.verify() == []


def test_c4_set_patch_patch_delete_patch_in_one_commit(space):
    space.transact(
        [
            {"op": "set", "id": "a", "value": {"n": 1}},
            {"op": "patch", "id": "a", "patches": add("/m", 2)},
            {"op": "patch", "id": "a", "patches": add("/m", 3)},
            {"op": "delete", "id": "a"},
            {"op": "patch", "id": "a", "patches": add("/k", 4)},
        ]
    )
    state = cold(space, "a")
    assert (state.document, state.op, state.seq) == ({"k": 4}, "patch", 1)


def test_c5_read_at_seq_includes_its_last_operation(space):
    patch_times(space, 8)
    space.transact(
        [{"op": "patch", "id": "a", "patches": add("/x", number)} for number in range(4)]
    )
    patch_times(space, 8)
    assert cold(space, "a", at=9).document == {"list": list(range(8)), "x": 3}
    assert cold(space, "a", at=8).document == {"list": list(range(8))}


def test_c6_wrong_snapshot_is_reported_and_the_next_corrects_it(space):
    patch_times(space, 12)
    [seq] = snapshots(space)[:1]
    keep = space.history_kind.keep_snapshot
    true = json.dumps(space.read("a", at=seq).document, separators=(",", ":"))
    space.database.transact(lambda txn: keep(txn, "", "a", seq, '{"list":[]}'))
    problems = [*map(str, space.verify())]
    assert any(f"snapshot of 'a' on '' at seq {seq}" in problem for problem in problems)
    space.database.transact(lambda txn: keep(txn, "", "a", seq, true))
    assert space.verify() == []
    assert cold(space, "a").document == {"list": list(range(12))}


def test_c7_sets_and_tombstones_are_not_snapshotted(space):
    for number in range(30):
        space.set("a", {"n": number})
    assert snapshots(space) == []
    patches = [{"op": "patch", "id": "b", "patches": add("/list", [n])} for n in range(20)]
    space.transact([*patches, {"op": "delete", "id": "b"}])
    assert snapshots(space, "b") == []
    assert cold(space, "b").deleted


def cost_of_a_read(space, at=None):
    cold(space, "a", at)
    with counted() as cost:
        cold(space, "a", at)
    return cost.steps


def cost_of_a_commit(space, patches):
    with counted() as cost:
        space.patch("a", patches)
    return cost.steps


def test_c8_read_does_not_go_back_beyond_last_set(space):
    costs = []
    for count in (20, 400):
        for number in range(count):
            space.set("a", {"n": number})
        on_a_set = cost_of_a_read(space)
        space.patch("a", add("/m", 1))
        costs.append((on_a_set, cost_of_a_read(space)))
    [few, many] = costs
    assert many[0] <= 1.2 * few[0]
    assert many[1] <= 1.2 * few[1]


def long_life(space, count):
    for number in range(count):
        space.patch("a", add("/n", number))


@pytest.mark.parametrize("cached", [True, False])
def test_c9_commit_cost_is_independent_of_earlier_patches(space, cached, monkeypatch):
    if not cached:
        monkeypatch.setattr(space._cache, "get", lambda key: None)
    long_life(space, 100)
    # A commit with a snapshot costs more than one without; the dearest of a dozen is compared.
    early = max(cost_of_a_commit(space, add("/n", number)) for number in range(12))
    long_life(space, 600)
    late = max(cost_of_a_commit(space, add("/n", number)) for number in range(12))
    assert late <= 1.5 * early


def test_c10_every_point_in_time_is_a_short_replay_away(space):
    long_life(space, 50)
    early = max(cost_of_a_read(space, at) for at in range(1, 51))
    long_life(space, 550)
    late = max(cost_of_a_read(space, at) for at in range(1, 600, 13))
    assert late <= 1.5 * early


def test_c10_long_chain_of_patches_is_replayed_in_part_only(space, monkeypatch):
    long_life(space, 300)
    applied = []
    replay = fold.replay

    def counting(document, patches):
        patches = list(patches)
        applied.append(len(patches))
        return replay(document, patches)

    monkeypatch.setattr("fourfold.models.documents.fold.replay", counting)
    for at in range(1, 301, 7):
        assert space.read("a", at=at).document == {"n": at - 1}
    assert applied
    assert max(applied) <= 2 * SNAPSHOT_PATCHES_MIN


def test_d18_there_is_no_snapshot_before_ten_patches_have_gathered(space):
    patch_times(space, SNAPSHOT_PATCHES_MIN - 1)
    assert snapshots(space) == []
    patch_times(space, 1)
    assert snapshots(space) == [SNAPSHOT_PATCHES_MIN]


def test_d18_large_document_is_not_rewritten_for_few_small_patches(space):
    space.set("a", {"text": "x" * 20_000})
    long_life(space, 100)
    assert snapshots(space) == []
    space.patch("a", add("/more", "y" * 20_000))
    assert snapshots(space) == [102]
    long_life(space, 50)
    assert snapshots(space) == [102]


def test_d18_all_snapshots_together_are_not_larger_than_the_log(space):
    for number in range(600):
        space.patch("a", [{"op": "append", "path": "/list", "values": [number]}])
    with space.view() as view:
        log = view.value("SELECT sum(length(data)) FROM revision")
        texts = [view.one(view.sql.newest_snapshot, ("", "a", seq))[1] for seq in snapshots(space)]
    assert len(texts) > 5
    assert sum(map(len, texts)) <= 2 * log


def test_d19_first_operation_on_entity_may_be_patch(space):
    space.patch("a", add("/value/x", 1))
    assert cold(space, "a").document == {"value": {"x": 1}}
    assert cold(space, "a").op == "patch"
    with pytest.raises(InvalidInput):
        space.patch("b", [{"op": "replace", "path": "/value/x", "value": 1}])
    assert cold(space, "b") is None


def test_the_patches_that_a_snapshot_holds_are_not_applied_again(space):
    """Increments show it: applied twice they are another number."""
    space.set("a", {"n": 0})
    for _ in range(35):
        space.patch("a", [{"op": "increment", "path": "/n", "by": 1}])
    assert len(snapshots(space)) >= 3
    for seq in range(1, 37):
        assert space.read("a", at=seq).document == {"n": seq - 1}
        assert space.read_many(["a"], at=seq)["a"].document == {"n": seq - 1}
