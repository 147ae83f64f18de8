"""Merging brings what one branch changed into another, once, and never silently loses a change."""

from __future__ import annotations

import threading

import pytest
from drawn_spaces import IDS, SCRIPTS, Traced, branch, played
from forked_space import add, shown
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fourfold.errors import (
    BranchEnded,
    Conflict,
    ContentError,
    InvalidInput,
    NotFound,
    ReplayMismatch,
    StaleRead,
)
from fourfold.models.documents import HISTORIES
from fourfold.models.documents import merge as merge_module
from fourfold.models.documents.ancestry import BranchPoint
from fourfold.models.documents.diff import identical
from fourfold.models.documents.gc.policy import GcPolicy
from fourfold.models.documents.merge import MERGE_ATTEMPTS_MAX
from fourfold.models.documents.validation import BRANCH_NAME_CHARS_MAX
from support.properties import examples


def test_what_only_the_source_changed_is_taken(forked):
    forked.set("urn:new", {"value": 1}, branch="work")
    forked.patch("urn:a", add("x", 1), branch="work")
    result = forked.branches.merge("work", "")
    assert shown(forked, "urn:a") == {"value": {"x": 1, "y": 0, "list": [1]}}
    assert shown(forked, "urn:new") == {"value": 1}
    assert (result.commit.branch, result.base) == ("", BranchPoint("", 1))
    assert {revision.id for revision in result.commit.revisions} == {"urn:a", "urn:new"}
    assert forked.verify() == []


def test_what_only_the_target_changed_stays(forked):
    forked.patch("urn:a", add("x", 1))
    forked.set("urn:new", {"value": 1}, branch="work")
    result = forked.branches.merge("work", "")
    assert [operation["id"] for operation in result.operations] == ["urn:new"]
    assert shown(forked, "urn:a")["value"]["x"] == 1


def test_different_fields_of_one_entity_are_merged(forked):
    forked.patch("urn:a", add("x", 1), branch="work")
    forked.patch("urn:a", add("y", 2))
    forked.branches.merge("work", "")
    assert shown(forked, "urn:a")["value"] == {"x": 1, "y": 2, "list": [1]}


def test_at_the_level_of_entities_they_are_a_conflict(forked):
    forked.patch("urn:a", add("x", 1), branch="work")
    forked.patch("urn:a", add("y", 2))
    before = forked.seq()
    with pytest.raises(Conflict) as caught:
        forked.branches.merge("work", "", field_level=False)
    assert forked.seq() == before
    [conflict] = caught.value.details["conflicts"]
    assert conflict == {
        "entity": "urn:a",
        "paths": [""],
        "base_seq": 1,
        "source_seq": 3,
        "target_seq": 4,
    }


def test_field_changed_on_both_sides_conflicts_without_a_write(forked):
    forked.patch("urn:a", add("x", 1), branch="work")
    forked.patch("urn:a", [*add("x", 2), *add("list", [1, 2])])
    forked.set("urn:harmless", {"value": 1}, branch="work")
    before = forked.seq()
    with pytest.raises(Conflict, match="urn:a") as caught:
        forked.branches.merge("work", "")
    assert forked.seq() == before
    assert shown(forked, "urn:harmless") is None
    assert caught.value.details["conflicts"][0]["paths"] == ["/value/x"]
    assert caught.value.details["base"] == {"branch": "", "seq": 1}


def test_the_same_change_on_both_sides_is_no_conflict(forked):
    forked.set("urn:a", {"value": 5}, branch="work")
    forked.set("urn:a", {"value": 5})
    result = forked.branches.merge("work", "")
    assert result.operations == ()
    forked.set("urn:a", {"value": 6}, branch="work")
    forked.branches.merge("work", "")
    assert shown(forked, "urn:a") == {"value": 6}
    assert forked.verify() == []


def test_deletes_on_either_side(forked):
    for entity in ("urn:source", "urn:target", "urn:both"):
        forked.set(entity, {"value": 1})
    forked.branches.create("later")
    forked.delete("urn:source", branch="later")
    forked.delete("urn:target")
    forked.delete("urn:both")
    forked.delete("urn:both", branch="later")
    forked.branches.merge("later", "")
    assert {forked.read(f"urn:{each}").deleted for each in ("source", "target", "both")} == {True}


@pytest.mark.parametrize("side", ["", "work"])
def test_a_delete_against_a_change_is_a_conflict(forked, side):
    other = "work" if not side else ""
    forked.delete("urn:a", branch=side)
    forked.patch("urn:a", add("x", 1), branch=other)
    with pytest.raises(Conflict) as caught:
        forked.branches.merge("work", "")
    assert caught.value.details["conflicts"][0]["paths"] == [""]


def test_resolutions_decide_conflicts(forked):
    forked.set("urn:b", {"value": 0}, branch="work")
    forked.set("urn:b", {"value": 1})
    forked.patch("urn:a", add("x", 1), branch="work")
    forked.patch("urn:a", add("x", 2))
    resolutions = {"urn:a": {"value": "decided"}, "urn:b": None}
    forked.branches.merge("work", "", resolutions=resolutions)
    assert shown(forked, "urn:a") == {"value": "decided"}
    assert forked.read("urn:b").deleted
    assert forked.branches.merge("work", "").commit is None


def test_resolution_for_target_as_it_is_settles_conflict_for_good(forked):
    forked.set("urn:a", {"value": 1}, branch="work")
    forked.set("urn:a", {"value": 2})
    forked.branches.merge("work", "", resolutions={"urn:a": {"value": 2}})
    assert forked.branches.merge("work", "").commit is None
    forked.set("urn:b", {"value": 1}, branch="work")
    forked.branches.merge("work", "")
    assert shown(forked, "urn:a") == {"value": 2}


def test_resolutions_that_cannot_be_meant_are_refused(forked):
    forked.patch("urn:a", add("x", 1), branch="work")
    before = forked.seq()
    for resolutions, error in (
        ({"urn:other": {"value": 1}}, InvalidInput),
        ({"urn:a": [1]}, InvalidInput),
        ({"urn:a": {"value": float("nan")}}, ContentError),
        ({"": {}}, InvalidInput),
        ([{}], InvalidInput),
    ):
        with pytest.raises(error):
            forked.branches.merge("work", "", resolutions=resolutions)
    assert forked.seq() == before


def test_repeated_merges_bring_only_what_is_new(forked):
    for number in range(1, 5):
        forked.patch("urn:a", add("x", number), branch="work")
        forked.set(f"urn:main:{number}", {"value": number})
        result = forked.branches.merge("work", "")
        assert [operation["id"] for operation in result.operations] == ["urn:a"]
        assert shown(forked, "urn:a")["value"]["x"] == number
        assert forked.branches.merge("work", "").commit is None
    assert forked.verify() == []


def test_merging_back_and_forth_keeps_both_sides_alike(forked):
    for number in range(1, 4):
        forked.patch("urn:a", add("x", number), branch="work")
        forked.branches.merge("work", "")
        forked.patch("urn:a", add("x", -number))
        forked.branches.merge("", "work")
        assert len(forked.branches.diff("work", "")) == 0
        assert shown(forked, "urn:a", "work")["value"]["x"] == -number
    assert forked.branches.merge("work", "").commit is None
    assert forked.branches.merge("", "work").commit is None


def test_reverting_a_value_after_a_merge_back_is_a_change(forked):
    forked.patch("urn:a", add("x", 1), branch="work")
    forked.branches.merge("work", "")
    forked.branches.merge("", "work")
    forked.patch("urn:a", add("x", 0), branch="work")
    forked.branches.merge("work", "")
    assert shown(forked, "urn:a")["value"]["x"] == 0


def test_a_merge_does_not_undo_and_does_not_repeat(forked):
    forked.branches.create("savepoint")
    forked.patch("urn:a", add("x", 1))
    assert forked.branches.merge("savepoint", "").commit is None
    forked.patch("urn:a", add("y", 1), branch="work")
    forked.branches.merge("work", "")
    forked.transact(forked.diff("", None, forked.seq() - 1).operations)
    assert forked.branches.merge("work", "").commit is None
    assert shown(forked, "urn:a")["value"]["y"] == 0


def test_a_document_that_looks_like_a_merge_is_none(forked):
    forked.set("m", {"a": 1, "merge": {"source": "", "source_seq": 1}}, branch="work")
    forked.set("m", {"a": 1, "merge": {"source": "nowhere"}})
    with forked.view() as view:
        assert len(view.all(view.sql.merges, ("work", 99, 9))) == 1
    with pytest.raises(Conflict) as caught:
        forked.branches.merge("work", "")
    assert caught.value.details["base"] == {"branch": "", "seq": 1}


def test_long_names_and_many_changes_do_not_hide_a_merge(space):
    source, target = "s" * BRANCH_NAME_CHARS_MAX, "t" * BRANCH_NAME_CHARS_MAX
    for name in (source, target):
        space.branches.create(name)
    ids = [f"urn:{number}" for number in range(300)]
    space.transact([{"op": "set", "id": each, "value": {"v": 1}} for each in ids], branch=source)
    last = 2**63 - 1
    result = space.branches.merge(source, target, session="s" * 1_000, local_seq=last)
    assert len(result.commit.revisions) == 300
    assert space.branches.merge(source, target).commit is None


def test_siblings_meet_at_the_fork_of_the_older(forked):
    forked.branches.create("other")
    forked.set("urn:a", {"value": {"x": 9}})
    forked.patch("urn:a", add("x", 1), branch="work")
    forked.patch("urn:a", add("y", 2), branch="other")
    result = forked.branches.merge("work", "other")
    assert result.base == BranchPoint("", 1)
    assert shown(forked, "urn:a", "other")["value"] == {"x": 1, "y": 2, "list": [1]}
    assert shown(forked, "urn:a") == {"value": {"x": 9}}


def test_branches_of_branches_are_merged_upwards_and_downwards(forked):
    forked.patch("urn:a", add("x", 1), branch="work")
    forked.branches.create("nested", "work")
    forked.patch("urn:a", add("y", 2), branch="nested")
    forked.branches.merge("nested", "")
    assert shown(forked, "urn:a")["value"] == {"x": 1, "y": 2, "list": [1]}
    forked.set("urn:down", {"value": 1})
    forked.branches.merge("", "nested")
    assert shown(forked, "urn:down", "nested") == {"value": 1}
    assert shown(forked, "urn:down", "work") is None
    assert len(forked.branches.diff("nested", "")) == 0


def test_what_came_through_a_third_branch_is_no_conflict(forked):
    forked.branches.create("third")
    forked.patch("urn:a", add("x", 1), branch="work")
    forked.branches.merge("work", "third")
    forked.branches.merge("third", "")
    forked.patch("urn:a", add("x", 2), branch="work")
    result = forked.branches.merge("work", "")
    assert result.base.branch == "work"
    assert shown(forked, "urn:a")["value"]["x"] == 2


def test_a_fork_of_the_target_remembers_its_merges(forked):
    forked.patch("urn:a", add("x", 1), branch="work")
    forked.branches.merge("work", "")
    forked.branches.create("fork")
    forked.patch("urn:a", add("x", 2), branch="work")
    forked.branches.merge("work", "fork")
    assert shown(forked, "urn:a", "fork")["value"]["x"] == 2


def test_branches_of_an_idle_parent_have_one_base(space):
    space.set("urn:a", {"n": 0})
    for name in ("topic", "alice", "bob"):
        space.branches.create(name)
    space.set("urn:a", {"n": 1}, branch="topic")
    space.branches.merge("topic", "alice")
    space.branches.merge("topic", "bob")
    space.set("urn:a", {"n": 2}, branch="alice")
    result = space.branches.merge("alice", "bob")
    assert result.base.branch == "topic"
    assert shown(space, "urn:a", "bob") == {"n": 2}


def test_idle_branch_stands_for_the_commit_it_was_forked_from(space):
    space.set("urn:a", {"n": 0})
    space.branches.create("idle")
    space.branches.create("nested", "idle")
    space.branches.delete("idle")
    space.set("urn:a", {"n": 1}, branch="nested")
    space.set("urn:b", {"n": 1})
    space.branches.create("other", "idle")
    assert space.branches.merge("nested", "other").base == BranchPoint("", 1)
    assert space.branches.merge("other", "").operations == (
        {"op": "set", "id": "urn:a", "value": {"n": 1}},
    )


def test_branch_of_empty_space_does_not_hide_newer_base(space):
    space.set("urn:a", {"n": 0})
    space.branches.create("work")
    space.branches.create("empty", at=0)
    space.patch("urn:a", [{"op": "increment", "path": "/n", "by": 1}], branch="work")
    space.set("urn:b", {"n": 0}, branch="empty")
    for name in ("work", ""):
        space.branches.merge("empty", name)
    space.set("urn:c", {"n": 0})
    dry = space.branches.merge("", "work", dry_run=True)
    assert [operation["id"] for operation in dry.operations] == ["urn:c"]
    assert dry.conflicts == ()


def test_base_of_idle_branches_is_readable_after_gc(space):
    space.set("urn:a", {"n": 0})
    for name in ("topic", "alice", "bob"):
        space.branches.create(name)
    space.set("urn:a", {"n": 1}, branch="topic")
    space.branches.merge("topic", "alice")
    space.branches.merge("topic", "bob")
    for number in range(20):
        space.set("urn:other", {"n": number})
    space.gc(GcPolicy(keep_seqs=1))
    space.set("urn:a", {"n": 2}, branch="alice")
    space.branches.merge("alice", "bob")
    assert shown(space, "urn:a", "bob") == {"n": 2}


@pytest.mark.parametrize("back", [False, True])
def test_cost_of_a_merge_does_not_depend_on_earlier_merges(space, back):
    def statements():
        space.patch("urn:a", [{"op": "increment", "path": "/n", "by": 1}], branch="work")
        with space.view() as view:
            traced = Traced(view)
            merge_module._propose(traced, merge_module.ask("work", "", None, field_level=True))
        space.branches.merge("work", "")
        if back:
            space.set("urn:main", {"n": space.seq()})
            space.branches.merge("", "work")
        return len(traced.asked)

    space.set("urn:a", {"n": 0})
    space.branches.create("work")
    counts = [statements() for _ in range(40)]
    assert len(set(counts[2:])) == 1


def test_a_deleted_branch_is_a_source_and_never_a_target(forked):
    forked.patch("urn:a", add("x", 1), branch="work")
    forked.branches.create("child", "work")
    forked.branches.delete("work")
    with pytest.raises(BranchEnded):
        forked.branches.merge("", "work")
    forked.branches.merge("work", "")
    assert shown(forked, "urn:a")["value"]["x"] == 1
    forked.set("urn:b", {"value": 1})
    forked.branches.merge("", "child")
    assert shown(forked, "urn:b", "child") == {"value": 1}


def test_nothing_to_merge_writes_nothing(forked):
    before = forked.seq()
    assert forked.branches.merge("work", "").commit is None
    assert forked.branches.merge("work", "").operations == ()
    assert forked.seq() == before


def test_a_dry_run_shows_what_would_happen(forked):
    forked.patch("urn:a", add("x", 1), branch="work")
    forked.set("urn:b", {"value": 1}, branch="work")
    forked.patch("urn:a", add("x", 2))
    before = forked.seq()
    proposal = forked.branches.merge("work", "", dry_run=True)
    assert (forked.seq(), proposal.commit) == (before, None)
    assert [operation["id"] for operation in proposal.operations] == ["urn:b"]
    [conflict] = proposal.conflicts
    assert (conflict.id, conflict.paths) == ("urn:a", ("/value/x",))
    values = [
        state.document["value"]["x"] for state in (conflict.base, conflict.source, conflict.target)
    ]
    assert values == [0, 1, 2]


def test_a_named_merge_can_be_sent_again(forked):
    forked.patch("urn:a", add("x", 1), branch="work")
    first = forked.branches.merge("work", "", session="s", local_seq=1)
    forked.patch("urn:a", add("x", 2), branch="work")
    again = forked.branches.merge("work", "", session="s", local_seq=1)
    assert (again.commit.seq, again.commit.replayed) == (first.commit.seq, True)
    assert (again.operations, again.base, again.source) == (
        first.operations,
        first.base,
        first.source,
    )
    assert again.commit.revisions == first.commit.revisions
    for change in ({"field_level": False}, {"resolutions": {"urn:a": None}}):
        with pytest.raises(ReplayMismatch):
            forked.branches.merge("work", "", session="s", local_seq=1, **change)
    with pytest.raises(ReplayMismatch):
        forked.transact([{"op": "delete", "id": "urn:a"}], session="s", local_seq=1)
    with pytest.raises(InvalidInput):
        forked.branches.merge("work", "", session="s")


def test_bad_branches_are_refused(forked):
    with pytest.raises(InvalidInput):
        forked.branches.merge("work", "work")
    with pytest.raises(NotFound):
        forked.branches.merge("nowhere", "")
    with pytest.raises(NotFound):
        forked.branches.merge("work", "nowhere")


def interleaved(space, monkeypatch, changes):
    """Let `changes` happen between the moment a merge was computed and its commit."""
    submit = space.submit

    def first_the_others(request, before=None, **rest):
        if before is not None and changes:
            changes.pop(0)()
        return submit(request, before, **rest)

    monkeypatch.setattr(space, "submit", first_the_others)


def test_target_that_changes_meanwhile_is_merged_as_it_is_then(forked, monkeypatch):
    forked.patch("urn:a", add("x", 1), branch="work")
    changes = [lambda: forked.patch("urn:a", add("y", 7))]
    interleaved(forked, monkeypatch, changes)
    forked.branches.merge("work", "")
    assert shown(forked, "urn:a")["value"] == {"x": 1, "y": 7, "list": [1]}


def test_a_conflict_that_comes_up_meanwhile_is_found(forked, monkeypatch):
    forked.patch("urn:a", add("x", 1), branch="work")
    changes = [lambda: forked.patch("urn:a", add("x", 7))]
    interleaved(forked, monkeypatch, changes)
    with pytest.raises(Conflict):
        forked.branches.merge("work", "")


def test_a_change_of_what_both_sides_agreed_on_is_found(forked, monkeypatch):
    forked.patch("urn:a", add("x", 1), branch="work")
    forked.patch("urn:a", add("x", 1))
    changes = [lambda: forked.patch("urn:a", add("x", 7))]
    interleaved(forked, monkeypatch, changes)
    with pytest.raises(Conflict):
        forked.branches.merge("work", "")


def test_merge_other_way_that_came_first_moves_base(forked, monkeypatch):
    forked.patch("urn:a", add("x", 1), branch="work")
    forked.patch("urn:a", add("y", 1))
    changes = [lambda: forked.branches.merge("", "work")]
    interleaved(forked, monkeypatch, changes)
    result = forked.branches.merge("work", "")
    assert result.base.branch == ""
    assert result.base.seq > 1
    assert len(forked.branches.diff("work", "")) == 0


def test_a_target_that_never_rests_makes_the_merge_stale(forked, monkeypatch):
    forked.patch("urn:a", add("x", 1), branch="work")
    changes = [lambda: forked.patch("urn:a", add("y", 1))] * MERGE_ATTEMPTS_MAX
    interleaved(forked, monkeypatch, changes)
    with pytest.raises(StaleRead):
        forked.branches.merge("work", "")


@pytest.mark.parametrize(("query", "count"), [("merges", 3), ("newest_change", 2)])
def test_search_for_a_base_reads_only_merges(forked, query, count):
    with forked.view() as view:
        plan = view.all(f"EXPLAIN QUERY PLAN {getattr(view.sql, query)}", ("work", 9, 9)[:count])
    assert any("INDEX idx_commit_merge" in row[3] for row in plan)


def test_merges_and_writers_at_the_same_time_lose_nothing(forked):
    def write():
        for number in range(30):
            forked.patch("urn:a", add(f"main{number}", number))

    def merge():
        for number in range(10):
            forked.patch("urn:a", add(f"work{number}", number), branch="work")
            while True:
                try:
                    forked.branches.merge("work", "")
                except StaleRead:
                    continue
                break

    threads = [threading.Thread(target=write), threading.Thread(target=merge)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    value = shown(forked, "urn:a")["value"]
    assert all(value[f"main{number}"] == number for number in range(30))
    assert all(value[f"work{number}"] == number for number in range(10))
    assert forked.verify() == []


def test_only_what_the_source_changed_is_read(space):
    ids = [f"urn:{number}" for number in range(200)]
    space.transact([{"op": "set", "id": entity, "value": {}} for entity in ids])
    space.branches.create("work")
    space.transact([{"op": "set", "id": entity, "value": {"v": 1}} for entity in ids[:50]])
    space.set("urn:3", {"value": 1}, branch="work")
    space.branches.merge("work", "", resolutions={"urn:3": {"value": 1}})
    space.set("urn:7", {"v": 1}, branch="work")
    with space.view() as view:
        traced = Traced(view)
        merge_module._propose(traced, merge_module.ask("work", "", None, field_level=True))
    assert traced.ids_looked_at() == {"urn:7"}


@pytest.mark.parametrize("kind", sorted(HISTORIES))
@settings(max_examples=examples(15), deadline=None)
@given(script=SCRIPTS, data=st.data())
def test_any_merge_keeps_its_promises(kind, script, data):
    with played(script, kind) as space:
        source = branch(space, data.draw(st.integers(0, 5)))
        target = branch(space, data.draw(st.integers(0, 5)))
        assume(source != target and space.branches.get(target).active)
        proposal = space.branches.merge(source, target, dry_run=True)
        before, theirs = space.read_many(IDS, target), space.read_many(IDS, source)
        base = space.read_many(IDS, *proposal.base)
        resolutions = {
            each.id: None if each.source is None else each.source.document
            for each in proposal.conflicts
        }
        space.branches.merge(source, target, resolutions=resolutions)
        for entity in IDS:
            b, s, t = (document(states[entity]) for states in (base, theirs, before))
            now = shown(space, entity, target)
            if entity in resolutions:
                assert identical(now, s)
            elif identical(s, b):
                assert identical(now, t)
            elif identical(t, b):
                assert identical(now, s)
        assert space.branches.merge(source, target).commit is None
        if space.branches.get(source).active:
            space.branches.merge(target, source)
            assert len(space.branches.diff(source, target)) == 0
        assert space.verify() == []


def document(state):
    return None if state is None else state.document
