"""Every way to ask for what a collection gave up is refused, and says from where on there is an
answer; none of them answers that something was never there.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from gc_life import lived, refused, shown

import fourfold
from fourfold.errors import HistoryTruncated, Refused
from fourfold.models.documents import HISTORIES, bundle
from fourfold.models.documents.bundle import carry_over, difference
from fourfold.models.documents.gc import sweep
from fourfold.models.documents.gc.policy import GcPolicy

POLICY = GcPolicy(keep_seqs=6)


@pytest.fixture
def collected(space):
    lived(space)
    space.gc(POLICY)
    assert space.horizon() == space.seq() - 5
    return space


@pytest.fixture
def below(collected):
    """A seq below the horizon that nothing protects, on the default branch."""
    return collected.horizon() - 1


def test_reads_by_seq_are_refused(collected, below):
    space = collected
    for call in (
        lambda: space.read("a", at=below),
        lambda: space.read("never", at=below),
        lambda: space.read_many(["a", "never"], at=below),
        lambda: space.ids(at=below),
        lambda: space.history("a", at=below),
        lambda: space.blobs.meta(f"sha256:{'0' * 64}", at=below),
    ):
        refused(space, call)
    assert space.read("never", at=space.horizon()) is None


def test_reads_by_time_are_refused(space):
    space.set("a", {"n": 1})
    entry = space.log()[0]
    moment = datetime.fromisoformat(entry.created_at)
    for number in range(5):
        space.set("a", {"n": number})
    space.gc(GcPolicy(keep_seqs=1))
    with space.view() as view:
        last = view.value('SELECT max(created_at) FROM "commit" WHERE seq < 6')
    if last < space.log()[-1].created_at:
        refused(space, lambda: space.read("a", at=moment))
    # Before the first commit there was nothing, and that is known.
    assert space.read("a", at=moment - timedelta(days=1)) is None
    assert space.read("a", at=datetime.now(UTC)).document == {"n": 4}


def test_error_names_horizon_and_is_not_mistaken_for_absence(collected, below):
    with pytest.raises(HistoryTruncated) as caught:
        collected.read("a", at=below)
    error = caught.value
    assert error.details == {"horizon": collected.horizon(), "seq": below, "branch": ""}
    assert str(collected.horizon()) in error.message
    assert isinstance(error, Refused)
    assert not isinstance(error, KeyError | ValueError)


def test_history_is_refused_where_rows_are_truncated(collected):
    space = collected
    refused(space, lambda: space.history("a"))
    with pytest.raises(HistoryTruncated) as caught:
        space.history("a")
    lost = caught.value.details["seq"]
    # From there on it is whole, and so it is for entities of which nothing was taken.
    assert [each.seq for each in space.history("a", after=lost)][-1] == space.seq()
    assert space.history("a", after=space.horizon())
    assert space.history("never") == []
    assert space.history("a", "old", after=lost)[-1].data == {"n": "on old"}
    space.set("new", {})
    assert len(space.history("new")) == 1


def test_history_of_what_a_branch_inherits_is_refused_too(space):
    for number in range(5):
        space.set("a", {"n": number})
    space.branches.create("f")
    space.set("a", {"n": 5}, branch="f")
    space.gc(GcPolicy(keep_seqs=1))
    refused(space, lambda: space.history("a", "f"))
    assert [each.data for each in space.history("a", "f", after=4)] == [{"n": 4}, {"n": 5}]


def test_diffs_are_refused_when_a_side_is_gone(collected, below):
    space = collected
    refused(space, lambda: space.diff("", below, None))
    refused(space, lambda: space.diff("", None, below))
    refused(space, lambda: space.branches.diff("f", "", None, below))
    assert len(space.diff("", space.horizon(), None)) >= 1
    assert [each.id for each in space.diff("", 0, None)] == space.ids()


def test_diffs_are_refused_when_their_base_is_gone(space):
    space.set("a", {"n": 0})
    space.branches.create("f")
    space.set("a", {"n": 1}, branch="f")
    space.branches.merge("f")
    space.set("a", {"n": 2}, branch="f")
    pinned = space.seq()
    space.branches.merge("f")
    space.set("a", {"n": 4})
    expected = space.branches.diff("", "f", pinned)
    space.gc(GcPolicy(keep_seqs=1, pins=(pinned,)))
    # With the pin, what is after the pinned point stays, too.
    assert space.branches.diff("", "f", pinned) == expected
    assert expected.base.branch == "f"
    assert expected.base.seq < pinned < space.horizon()
    with space.database.write() as txn:
        txn.execute("DELETE FROM gc_point WHERE branch = ? AND seq = ?", tuple(expected.base))
    refused(space, lambda: space.branches.diff("", "f", pinned))


def test_diffs_above_horizon_are_answered_though_their_base_lies_below(space):
    """A later merge has moved the base of now, but not that of what was in between."""
    space.set("a", {"n": 0})
    space.branches.create("f")
    for number in range(3):
        space.set("a", {"n": number, "f": True}, branch="f")
    space.branches.merge("f")
    for number in range(5):
        space.set("a", {"n": 10 + number}, branch="f")
        space.set("b", {"n": number})
    between = space.seq()
    space.branches.merge("f")
    space.set("c", {})
    expected = space.branches.diff("", "f", between, between)
    space.gc(GcPolicy(keep_seqs=space.seq() - between + 2))
    assert expected.base.seq < space.horizon() < between
    assert space.branches.diff("", "f", between, between) == expected


def test_merges_are_refused_when_their_base_is_gone(space):
    space.set("a", {"n": 0})
    space.set("a", {"n": 1})
    space.branches.create("f", at=1)
    space.set("b", {"n": 1}, branch="f")
    space.set("a", {"n": 2})
    space.gc(GcPolicy(keep_seqs=1))
    assert space.branches.merge("f", dry_run=True).operations
    # The base of a merge always stays. Were it not so, the merge would be refused.
    with space.database.write() as txn:
        txn.execute("DELETE FROM gc_point")
    refused(space, lambda: space.branches.merge("f"))
    refused(space, lambda: space.branches.merge("f", dry_run=True))


def test_merge_overtaken_by_a_collection_is_recomputed(space, monkeypatch):
    """What a merge took from its source is the base of the next one, so it must stay readable."""
    space.set("a", {"n": 0})
    space.branches.create("f")
    space.set("b", {"n": 1}, branch="f")
    submit = space.submit
    meddled = []

    def overtaken(request, before=None, **options):
        if not meddled:
            meddled.append(request)
            space.set("c", {})
            space.gc(GcPolicy(keep_seqs=1))
        return submit(request, before, **options)

    monkeypatch.setattr(space, "submit", overtaken)
    merged = space.branches.merge("f")
    assert merged.source.seq >= space.horizon()
    space.set("b", {"n": 2}, branch="f")
    assert space.branches.merge("f").operations
    assert space.verify() == []


def test_watch_before_the_horizon_is_refused_and_after_is_complete(collected, below):
    space = collected
    refused(space, lambda: space.watch(after=below))
    refused(space, lambda: space.watch(["a"], after=0, branch="f"))
    seen = [commit.seq for commit in space.watch(after=space.horizon(), timeout=0)]
    assert seen == list(range(space.horizon() + 1, space.seq() + 1))


def test_watch_overtaken_is_refused_and_shows_no_half_commits(space):
    for number in range(20):
        space.set("a", {"n": number})
    watch = space.watch(after=0, timeout=0)
    assert watch.next(0).seq == 1
    space.gc(GcPolicy(keep_seqs=5))
    refused(space, lambda: watch.next(0))
    assert watch.position == 1
    assert space.watch(after=space.horizon(), timeout=0).next(0).seq == 17


def test_a_branch_cannot_fork_where_nothing_is_left(collected, below):
    space = collected
    before = space.seq()
    refused(space, lambda: space.branches.create("new", "", below))
    refused(space, lambda: space.branches.create("new", "f", below - 12))
    assert space.seq() == before
    assert space.branches.create("new", "", space.horizon()).fork_seq == space.horizon()
    assert space.branches.create("empty", "", 0).fork_seq == 0
    assert space.ids("empty") == []


def test_a_branch_may_fork_where_another_did(collected):
    fork = collected.branches.get("f").fork_seq
    assert fork < collected.horizon()
    expected = shown(collected, "", fork)
    collected.branches.create("again", "", fork)
    assert shown(collected, "again", None) == expected
    collected.gc(GcPolicy(keep_seqs=1))
    assert shown(collected, "again", None) == expected


def test_branch_that_forks_just_before_horizon_moves_keeps_its_fork(space, monkeypatch):
    """What stays is decided beside the writers; one of them may fork before it is written down."""
    for number in range(9):
        space.set("a", {"n": number})
    prepare = sweep._prepare

    def meddled(*arguments):
        if "late" not in {branch.name for branch in space.branches.list()}:
            space.branches.create("late", "", 4)
        return prepare(*arguments)

    monkeypatch.setattr(sweep, "_prepare", meddled)
    space.gc(GcPolicy(keep_seqs=1))
    assert space.read("a", "late").document == {"n": 3}
    assert space.read("a", at=4).document == {"n": 3}
    refused(space, lambda: space.read("a", at=5))
    assert space.verify() == []


def test_an_export_of_what_is_gone_is_refused(collected):
    space = collected
    refused(space, lambda: list(bundle.export(space)))
    refused(space, lambda: list(bundle.export(space, after=space.horizon() - 1)))
    lines = list(bundle.export(space, after=space.horizon()))
    assert len(lines) == 2 + space.seq() - space.horizon()


def test_an_export_that_was_overtaken_is_refused(space, monkeypatch):
    monkeypatch.setattr("fourfold.models.documents.bundle.EXPORT_PAGE_COMMITS", 3)
    for number in range(12):
        space.set("a", {"n": number})
    lines = bundle.export(space)
    for _ in range(3):
        next(lines)
    space.gc(GcPolicy(keep_seqs=2))
    refused(space, lambda: list(lines))


def test_digest_at_end_of_export_is_refused_when_overtaken(space):
    for number in range(4):
        space.set("a", {"n": number})
    lines = bundle.export(space)
    for _ in range(5):
        next(lines)
    space.set("a", {"n": 9})
    space.set("a", {"n": 10})
    space.gc(GcPolicy(keep_seqs=1))
    refused(space, lambda: next(lines))


def test_space_of_which_something_is_gone_is_not_carried_over(store, collected):
    for history in HISTORIES:
        other = store.space(f"did:key:z6MkOther{history}", history=history)
        refused(collected, lambda other=other: carry_over(collected, other))
        assert other.seq() == 0
    refused(collected, lambda: difference(collected, collected, collected.seq()))


def test_import_goes_on_in_space_that_was_collected_meanwhile(store, space, history):
    """The copy may forget what the source still knows; they stay the same from there on."""
    for number in range(6):
        space.set("a", {"n": number, "text": "x" * 400})
    copy = store.space("did:key:z6MkCopy", history=history)
    bundle.replay(copy, bundle.export(space))
    copy.gc(GcPolicy(keep_seqs=2))
    space.set("a", {"n": 7})
    space.branches.create("f", "", 6)
    bundle.replay(copy, bundle.export(space))
    assert copy.read("a").document == {"n": 7}
    space.branches.create("g", "", 2)
    refused(copy, lambda: bundle.replay(copy, bundle.export(space)))
    assert copy.verify() == []


def test_log_lists_every_commit_and_says_which_requests_are_gone(space):
    for number in range(4):
        space.set("a", {"n": number, "text": "x" * 400})
    space.branches.create("f")
    times = [entry.created_at for entry in space.log()]
    space.gc(GcPolicy(keep_seqs=1))
    entries = space.log()
    assert [(entry.seq, entry.created_at) for entry in entries] == list(enumerate(times, start=1))
    assert ["collected" in entry.original for entry in entries] == [True] * 4 + [False]


def test_readers_in_another_process_see_the_horizon(root, history):
    with fourfold.open(root) as store:
        space = store.space("did:key:z6MkMachine", history=history)
        for number in range(5):
            space.set("a", {"n": number})
        with fourfold.open(root, mode="r") as other:
            reading = other.space("did:key:z6MkMachine")
            assert reading.read("a", at=2).document == {"n": 1}
            space.gc(GcPolicy(keep_seqs=1))
            refused(reading, lambda: reading.read("a", at=2))
            assert reading.read("a").document == {"n": 4}
