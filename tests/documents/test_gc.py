"""Collections: what they may take, what stays whatever the policy says, and what they report."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from gc_life import NEWEST, check, lived, lived_and_remembered, rows, shown

import fourfold
from fourfold import limits
from fourfold.errors import (
    HistoryTruncated,
    InvalidInput,
    Refused,
    ReplayMismatch,
    StaleRead,
)
from fourfold.kernel import Transaction
from fourfold.models.documents.gc import commit_digests, sweep
from fourfold.models.documents.gc.policy import GcPolicy

DID = "did:key:z6MkMachine"


@pytest.fixture(params=["whole batches", "tiny batches"])
def batches(request, monkeypatch):
    """Every claim holds however the work is cut into transactions."""
    if request.param == "tiny batches":
        monkeypatch.setattr(limits, "GC_BATCH_ROWS", 3)
        monkeypatch.setattr(limits, "MAINTENANCE_PAGE_ROWS", 4)


# Off by default


def test_a_space_without_a_policy_gives_up_nothing(space):
    _, known = lived_and_remembered(space)
    assert space.gc_policy() is None
    with pytest.raises(Refused, match="no policy"):
        space.gc()
    assert space.maintain("log").collected is None
    assert space.horizon() == 0
    check(space, known)


def test_policy_is_kept_in_space_and_is_each_spaces_own(root, history):
    policy = GcPolicy(keep_seqs=5, pins=(1,), snapshots="log", blobs=True)
    with fourfold.open(root) as store:
        one = store.space(DID, history=history)
        one.set("a", {})
        one.set_gc_policy(policy)
        assert store.space("did:key:z6MkOther", history=history).gc_policy() is None
        assert one.horizon() == 0
    with fourfold.open(root, mode="r") as store:
        assert store.space(DID).gc_policy() == policy
    with fourfold.open(root) as store:
        store.space(DID).set_gc_policy(None)
        assert store.space(DID).gc_policy() is None
        with pytest.raises(Refused):
            store.space(DID).gc()


@pytest.mark.parametrize(
    "fields",
    [
        {"keep_seqs": 0},
        {"keep_seqs": True},
        {"keep_seqs": 1.5},
        {"keep_seconds": -1},
        {"keep_seconds": float("nan")},
        {"keep_seconds": "1"},
        {"pins": (-1,)},
        {"pins": ("1",)},
        {"pins": 3},
        {"pins": (10**6,)},
        {"snapshots": "some"},
        {"blobs": 1},
        {"requests": None},
        {"blob_age_s": -1.0},
    ],
)
def test_invalid_policy_is_refused_and_removes_nothing(space, fields):
    space.set("a", {})
    space.set("a", {"n": 1})
    for call in (space.gc, space.set_gc_policy):
        with pytest.raises(InvalidInput):
            call(GcPolicy(**{"keep_seqs": 1, **fields}))
    with pytest.raises(InvalidInput):
        space.gc({"keep_seqs": 1})
    assert space.gc_policy() is None
    assert space.horizon() == 0
    assert rows(space, "revision") == 2


def test_maintenance_collects_where_a_policy_is_kept(space):
    _, known = lived_and_remembered(space)
    space.set_gc_policy(GcPolicy(keep_seqs=10))
    done = space.maintain(pins=(3,))
    assert done.collected.horizon == space.seq() - 9
    assert done.collected.revisions.count > 0
    check(space, known, {("", 3)})


# What stays


def test_protected_states_are_readable_and_others_refused(space, batches):
    points, known = lived_and_remembered(space)
    before = rows(space, "revision")
    done = space.gc(NEWEST)
    assert (done.horizon, done.previous_horizon) == (space.seq(), 0)
    assert rows(space, "revision") == before - done.revisions.count
    assert done.revisions.count > 60
    check(space, known, points)


@pytest.mark.parametrize("keep", [2, 30, 1000])
def test_everything_at_or_above_the_horizon_stays(space, keep):
    points, known = lived_and_remembered(space)
    space.gc(GcPolicy(keep_seqs=keep))
    assert space.horizon() == max(0, space.seq() - keep + 1)
    check(space, known, points)


def test_each_step_of_the_horizon_removes_only_new_rows(space, batches):
    points, known = lived_and_remembered(space)
    taken = 0
    for keep in (80, 55, 30, 8):
        done = space.gc(GcPolicy(keep_seqs=keep))
        taken += done.revisions.count
        check(space, known, points)
    again = space.gc(GcPolicy(keep_seqs=8))
    assert again.revisions.count == again.requests.count == 0
    assert again.horizon == again.previous_horizon
    assert taken >= 60


def test_the_horizon_never_moves_down(space):
    lived(space)
    horizon = space.gc(GcPolicy(keep_seqs=3)).horizon
    assert space.gc(GcPolicy(keep_seqs=1000)).horizon == horizon
    assert space.horizon() == horizon


def test_pinned_seqs_stay_on_every_branch_until_let_go(space):
    points, known = lived_and_remembered(space)
    pins = (5, 30, 60)
    space.set_gc_policy(GcPolicy(keep_seqs=1, pins=pins))
    space.gc()
    kept = {key for key in known if key[1] in pins}
    assert len(kept) > 3
    check(space, known, points | kept)
    # A policy for once does not know what was pinned, and must not undo it.
    space.gc(NEWEST)
    check(space, known, points | kept)
    before = rows(space, "revision")
    space.set_gc_policy(GcPolicy(keep_seqs=1, pins=(30,)))
    assert space.gc().revisions.count == before - rows(space, "revision") > 0
    check(space, known, points | {key for key in known if key[1] == 30})
    with pytest.raises(HistoryTruncated):
        space.read("a", at=5)


def test_a_seq_that_is_gone_cannot_be_pinned(space):
    lived(space)
    space.gc(NEWEST)
    for call in (space.gc, space.set_gc_policy):
        with pytest.raises(HistoryTruncated):
            call(GcPolicy(keep_seqs=1, pins=(4,)))
    assert space.gc_policy() is None


def test_a_horizon_in_time_keeps_the_states_since_then(space, monkeypatch):
    for number in range(4):
        space.set("a", {"n": number})
    time.sleep(0.03)
    moment = datetime.now(UTC)
    time.sleep(0.03)
    for number in range(4, 8):
        space.set("a", {"n": number})
    # The collection may begin at any later time; here it begins five seconds after the moment.
    clock = SimpleNamespace(time=lambda: moment.timestamp() + 5)
    monkeypatch.setattr("fourfold.models.documents.gc.plan.time", clock)
    space.gc(GcPolicy(keep_seconds=5))
    assert space.horizon() == 4
    assert space.read("a", at=moment).document == {"n": 3}
    with pytest.raises(HistoryTruncated):
        space.read("a", at=moment - timedelta(hours=1) if space.horizon() == 0 else 2)


def test_with_two_bounds_whatever_either_keeps_stays(space):
    for number in range(9):
        space.set("a", {"n": number})
    assert space.gc(GcPolicy(keep_seqs=1, keep_seconds=3600)).horizon == 0
    assert space.gc(GcPolicy(keep_seqs=3, keep_seconds=0)).horizon == 7


def test_merges_go_on_as_if_nothing_had_been_collected(store, history):
    """The same merges with a collection before each, and without any."""
    outcomes = []
    for number, policy in enumerate((None, NEWEST)):
        space = store.space(f"did:key:z6MkMerge{number}", history=history)
        lived(space)
        results = []
        for source, target in (("f", ""), ("", "f"), ("f/g", "f"), ("f", ""), ("old", "f/g")):
            if policy is not None:
                space.gc(policy)
            result = space.branches.merge(source, target, resolutions=None, dry_run=True)
            wanted = {conflict.id: {"resolved": source} for conflict in result.conflicts}
            if source != "old":
                added = {"op": "add", "path": f"/{len(results)}", "value": 1}
                space.patch("b", [added], branch=source)
            result = space.branches.merge(source, target, resolutions=wanted)
            # A document that was stored whole has sorted keys, and so may have the patches.
            done = [sorted(map(str, each.get("patches", [each]))) for each in result.operations]
            results.append((done, result.base, result.source, result.target))
        outcomes.append((results, [shown(space, name, None) for name in ("", "f", "f/g")]))
        assert space.verify() == []
    assert outcomes[0] == outcomes[1]


def test_children_of_a_deleted_branch_go_on(space):
    space.set("a", {"n": 1})
    space.branches.create("f")
    for number in range(5):
        space.patch("a", [{"op": "add", "path": "/f", "value": number}], branch="f")
    space.branches.create("f/g", "f")
    space.patch("a", [{"op": "add", "path": "/g", "value": 1}], branch="f/g")
    for number in range(5):
        space.patch("a", [{"op": "add", "path": "/f", "value": -number}], branch="f")
    space.branches.delete("f")
    for number in range(5):
        space.set("a", {"n": number})
    space.gc(NEWEST)
    assert space.read("a", "f/g").document == {"n": 1, "f": 4, "g": 1}
    assert space.read("a", "f").document == {"n": 1, "f": -4}
    assert space.branches.create("h", "f").parent == "f"
    assert space.verify() == []


# What goes


def test_shared_value_stays_until_its_last_fact_is_removed(store):
    space = store.space(DID, history="facts")
    shared = {"shared": "v" * 100}
    space.set("a", shared)
    space.set("b", shared)
    space.branches.create("f")
    # The same fact on two branches is one row.
    space.set("a", {"n": 1})
    space.set("a", {"n": 1}, branch="f")
    assert rows(space, "fact") == 3
    space.set("a", {"n": 2})
    space.set("a", {"n": 3})
    space.gc(NEWEST)
    assert space.read("b").document == shared
    assert space.read("a", "f").document == {"n": 1}
    assert space.verify() == []
    space.set("b", {"n": 4})
    space.set("a", {"n": 5}, branch="f")
    done = space.gc(NEWEST)
    # The fork still shows it.
    assert space.read("b", "f").document == shared
    assert done.values.count == 1
    assert space.verify() == []


def test_unreadable_data_is_removed_completely(store):
    space = store.space(DID, history="facts")
    for number in range(50):
        space.patch("a", [{"op": "add", "path": "/n", "value": number}])
    done = space.gc(NEWEST)
    assert (done.revisions.count, done.facts.count) == (49, 49)
    assert rows(space, "occurrence") == rows(space, "fact") == 1
    # The sentinel, the last patches, and the document that they lead to.
    assert rows(space, "value") == 3
    assert rows(space, "snapshot") == 1
    assert space.read("a").document == {"n": 49}


def test_values_of_snapshots_that_maintenance_dropped_are_found(store):
    space = store.space(DID, history="facts")
    for number in range(60):
        space.patch("a", [{"op": "add", "path": f"/{number % 7}", "value": number}])
    dropped = space.maintain(1).dropped
    assert dropped > 2
    done = space.gc(GcPolicy())
    assert (done.values.count, done.revisions.count) == (dropped, 0)
    assert space.gc(GcPolicy()).values.count == 0
    assert space.verify() == []


def test_gc_removes_snapshots_except_bases_of_the_log(space):
    for number in range(90):
        space.patch("a", [{"op": "add", "path": f"/{number % 7}", "value": number}])
    known = {at: space.read("a", at=at).document for at in range(60, 91)}
    before = rows(space, "snapshot")
    done = space.gc(GcPolicy(keep_seqs=31, snapshots=1))
    assert rows(space, "snapshot") < before
    assert done.snapshots.count > 2
    space.maintain(1)
    space.maintain("log")
    assert {at: space.read("a", at=at).document for at in known} == known
    assert space.verify() == []


def test_long_document_is_not_rewritten_for_a_few_short_patches(space):
    space.set("a", {"text": "x" * 5_000})
    space.branches.create("f")
    for number in range(6):
        space.patch("a", [{"op": "add", "path": "/n", "value": number}])
    known = {at: space.read("a", at=at).document for at in (1, space.seq())}
    done = space.gc(NEWEST)
    assert done.revisions.count == 0
    assert rows(space, "snapshot") == 0
    assert {at: space.read("a", at=at).document for at in known} == known
    # Enough of them outweigh it.
    for number in range(200):
        space.patch("a", [{"op": "add", "path": "/n", "value": number}])
    assert space.gc(NEWEST).revisions.count > 190
    assert space.read("a").document == {"text": "x" * 5_000, "n": 199}
    assert space.verify() == []


def test_requests_are_known_again_by_what_is_left_of_them(space):
    operations = [{"op": "set", "id": "a", "value": {"n": 1, "text": "x" * 500}}]
    first = space.transact(operations, session="s", local_seq=1)
    space.set("a", {"n": 2})
    done = space.gc(NEWEST)
    assert done.requests.count == 1
    entry = space.log()[0]
    assert entry.original["collected"].startswith("sha256:")
    assert entry.session == "s"
    again = space.transact(operations, session="s", local_seq=1)
    assert again.replayed
    assert (again.seq, again.revisions) == (first.seq, first.revisions)
    other = [{"op": "set", "id": "a", "value": {"n": 1, "text": "y" * 500}}]
    with pytest.raises(ReplayMismatch):
        space.transact(other, session="s", local_seq=1)
    assert space.seq() == 2
    assert space.verify() == []


def test_merges_sent_again_give_what_they_gave(space):
    space.set("a", {"n": 1})
    space.branches.create("f")
    space.set("a", {"n": 2, "text": "x" * 500}, branch="f")
    first = space.branches.merge("f", session="s", local_seq=1)
    space.set("a", {"n": 3})
    assert space.gc(NEWEST).revisions.count > 0
    again = space.branches.merge("f", session="s", local_seq=1)
    assert again.commit.replayed
    assert (again.operations, again.commit.revisions) == (
        first.operations,
        first.commit.revisions,
    )


def test_policy_may_leave_requests_alone_and_later_one_shortens_them(space):
    for number in range(5):
        space.set("a", {"n": number, "text": "x" * 500})
    assert space.gc(GcPolicy(keep_seqs=1, requests=False)).requests.count == 0
    assert "operations" in space.log()[0].original
    assert space.verify() == []
    # The newest is at the horizon, whose state can be read without what was asked.
    assert space.gc(NEWEST).requests.count == 5
    assert space.verify() == []


def test_a_read_below_the_horizon_conflicts_with_what_was_collected(space):
    """Only the changes that stayed could be compared by path; those that went may not be missed."""
    space.set("a", {"x": 0, "y": 0})
    seen = space.seq()
    space.set("a", {"x": 1, "y": 1})
    space.patch("a", [{"op": "replace", "path": "/x", "value": 2}])
    space.set("b", {})
    space.gc(NEWEST)
    write = [{"op": "set", "id": "c", "value": {}}]
    reads = {"confirmed": [{"id": "a", "seq": seen, "path": ["y"]}]}
    with pytest.raises(StaleRead) as stale:
        space.transact(write, reads=reads)
    assert stale.value.details["conflict_seq"] == 2
    # What did not change since is no conflict, however long ago it was read.
    assert space.transact(write, reads={"confirmed": [{"id": "b", "seq": 4, "path": []}]}).seq == 5


def test_own_commits_do_not_hide_what_was_collected_between_them(space):
    space.set("a", {"x": 0, "y": 0})
    basis = space.seq()
    space.set("a", {"x": 1, "y": 1})
    patches = [{"op": "replace", "path": "/x", "value": 2}]
    own = [{"op": "patch", "id": "a", "patches": patches}]
    space.transact(own, session="s", local_seq=1)
    space.gc(NEWEST)
    read = {"id": "a", "local_seqs": [1], "basis_seq": basis, "path": ["y"]}
    with pytest.raises(StaleRead):
        space.transact(own, reads={"pending": [read]}, session="s", local_seq=2)


# Reports and dry runs


def test_dry_run_reports_what_collection_would_take_and_changes_nothing(root, history, space_file):
    policy = GcPolicy(keep_seqs=4, snapshots=1, blobs=True, blob_age_s=0)
    with fourfold.open(root) as store:
        space = store.space(DID, history=history)
        _, known = lived_and_remembered(space)
        space.blobs.put(b"nothing needs this")
    before = space_file().read_bytes()
    with fourfold.open(root, mode="r") as store:
        space = store.space(DID)
        promised = space.gc(policy, dry_run=True)
        assert space.horizon() == 0
        check(space, known)
    assert space_file().read_bytes() == before
    with fourfold.open(root) as store:
        space = store.space(DID)
        assert space.gc(policy, dry_run=True) == promised
        done = space.gc(policy)
        assert space.gc_policy() is None
    assert promised.dry_run
    assert not done.dry_run
    for kind in ("revisions", "facts", "values", "requests", "snapshots", "blobs", "horizon"):
        assert getattr(promised, kind) == getattr(done, kind), kind
    assert promised.bytes == done.bytes > 5_000
    assert done.blobs.bytes == len(b"nothing needs this")


def test_seqs_go_on_after_a_collection_and_after_reopening(root, history):
    with fourfold.open(root) as store:
        space = store.space(DID, history=history)
        lived(space)
        last = space.seq()
        space.gc(NEWEST)
        assert space.seq() == last
    with fourfold.open(root) as store:
        space = store.space(DID)
        assert space.seq() == last
        assert space.set("a", {}).seq == last + 1
        assert [entry.seq for entry in space.log()] == list(range(1, last + 2))


def test_others_write_while_a_collection_runs(space, monkeypatch):
    """Each transaction is short: a writer that comes in the middle is done before the end."""
    monkeypatch.setattr(limits, "GC_BATCH_ROWS", 5)
    for number in range(300):
        space.set(f"e{number % 3}", {"n": number})
    between = []
    taken = sweep._taken

    def slowly(*arguments):
        if len(threads) < 40:
            thread = threading.Thread(target=lambda: between.append(space.set("new", {}).seq))
            thread.start()
            threads.append(thread)
        return taken(*arguments)

    threads = []
    monkeypatch.setattr(sweep, "_taken", slowly)
    done = space.gc(NEWEST)
    assert between, "no write succeeded before the collection was over"
    for thread in threads:
        thread.join()
    assert done.horizon == 300
    assert sorted(between) == list(range(301, 341))
    assert space.verify() == []


def test_commits_are_checked_without_the_writer_lock(space, monkeypatch):
    """A commit may have any number of rows, and all of them are read before the first goes."""
    read, left_of = [], commit_digests.left_of

    def reading(view, seq):
        read.append(isinstance(view.snapshot, Transaction))
        return left_of(view, seq)

    monkeypatch.setattr(commit_digests, "left_of", reading)
    for number in range(4):
        space.transact([{"op": "set", "id": f"e{n}", "value": {"n": number}} for n in range(50)])
    collected = space.gc(NEWEST)
    assert collected.revisions.count == 150
    assert collected.requests.count == 4
    # Once for each commit, also for one that loses rows and its request.
    assert read == [False] * 4
    assert space.verify() == []


def test_first_gc_changes_few_rows_per_transaction(space, monkeypatch):
    """Nor does it create an index at once, which reads and sorts a whole table."""
    for number in range(6):
        operations = [
            {"op": "set", "id": f"e{entity:03}", "value": {"n": number, "e": entity}}
            for entity in range(300)
        ]
        space.transact(operations)
    changed, statements, transact = [], [], space.database.transact
    execute = Transaction.execute

    def counted(work, **options):
        def counting(txn):
            before = txn.total_changes
            result = work(txn)
            changed.append(txn.total_changes - before)
            return result

        return transact(counting, **options)

    def noted(txn, sql, params=()):
        statements.append(sql)
        execute(txn, sql, params)

    monkeypatch.setattr(space.database, "transact", counted)
    monkeypatch.setattr(Transaction, "execute", noted)
    # On a slow machine transactions would end by time, and change fewer rows.
    monkeypatch.setattr(limits, "GC_TRANSACTION_S", float("inf"))
    assert space.gc(NEWEST).revisions.count == 1_500
    # A row of the log with its fact, its value, and their entries in an index that is being built.
    assert max(changed) <= 5 * limits.GC_BATCH_ROWS
    assert not [sql for sql in statements if sql.startswith("CREATE INDEX")]
    assert space.verify() == []


def test_branches_that_are_made_meanwhile_fork_where_something_is_left(space, monkeypatch):
    lived(space)
    fork = next(branch for branch in space.branches.list() if branch.name == "f").fork_seq
    expected = shown(space, "", fork)
    monkeypatch.setattr(limits, "GC_BATCH_ROWS", 5)
    made = []
    finish = sweep.sweep

    def meddled(*arguments):
        if not made:
            made.append(space.branches.create("meanwhile", "", fork))
            with pytest.raises(HistoryTruncated):
                space.branches.create("too/late", "", fork + 3)
        return finish(*arguments)

    monkeypatch.setattr("fourfold.models.documents.gc.sweep.sweep", meddled)
    space.gc(NEWEST)
    assert shown(space, "meanwhile", None) == expected
    space.gc(NEWEST)
    assert shown(space, "meanwhile", None) == expected
    assert space.verify() == []


def test_collection_over_many_branches_costs_their_number(space, monkeypatch):
    """Neither a transaction for each branch, nor a list of all of them in each transaction."""
    monkeypatch.setattr(limits, "GC_BATCH_ROWS", 20)
    # On a slow machine transactions would end by time, and there would be more of them.
    monkeypatch.setattr(limits, "GC_TRANSACTION_S", float("inf"))
    spelled, listed, transact, transactions = (
        sweep.SweepState.spelled,
        [],
        space.database.transact,
        [],
    )

    def counting(state):
        listed.append(len(state.windows))
        return spelled(state)

    def committing(*args, **options):
        transactions.append(args)
        return transact(*args, **options)

    branches = 100
    space.set("e", {"n": 0})
    for number in range(branches):
        space.branches.create(f"b{number}", at=1)
        for _ in range(3):
            patches = [{"op": "increment", "path": "/n", "by": 1}]
            space.patch("e", patches, branch=f"b{number}")
    monkeypatch.setattr(sweep.SweepState, "spelled", counting)
    monkeypatch.setattr(space.database, "transact", committing)
    collected = space.gc(GcPolicy(keep_seqs=1))
    assert collected.revisions.count == 2 * branches
    assert sum(listed) <= 4 * branches
    assert len(transactions) <= branches // 4
    assert {space.read("e", f"b{number}").document["n"] for number in range(branches)} == {3}
    assert space.verify() == []
