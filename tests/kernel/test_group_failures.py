"""Group commit in trouble: interrupts, faults, full disks and queues hit only whom they must."""

from __future__ import annotations

import asyncio

import ledger
import pytest

from fourfold.errors import (
    Closed,
    Conflict,
    DiskFull,
    InvalidInput,
    Overloaded,
    Refused,
    StorageError,
)
from fourfold.kernel import GroupLimits, Migration, Options, failpoints
from support.faulty_disk import FaultyDisk


def counters(db):
    return db.metrics().counters


class Interrupt(BaseException):
    """As KeyboardInterrupt, without stopping the tests."""


@pytest.mark.parametrize("placement", ["inline", "thread"])
def test_interrupted_work_leaves_no_caller_waiting(path, placement):
    def interrupted(txn):
        ledger.put("spoilt")(txn)
        raise Interrupt

    async def call(db):
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, _context: None)
        return await ledger.gathered(db, [ledger.put("a"), interrupted, ledger.put("b")])

    options = Options(group=GroupLimits(placement=placement))
    with ledger.open_ledger(path, options=options) as db:
        with ledger.turn_held(db):
            callers = []
            for work in (ledger.put("a"), interrupted, ledger.put("b")):
                callers.append(ledger.Caller(db.transact, work))
                ledger.queued(db, len(callers))
        for caller in callers:
            with pytest.raises((Interrupt, Closed)):
                caller.outcome()
        outcomes = ledger.in_loop(call, db).outcome()
        assert all(isinstance(outcome, Interrupt | Closed) for outcome in outcomes)
        assert ledger.entries(db) == []
        db.transact(ledger.put("next"))
        ledger.assert_dense(db, 1)


def test_fault_during_acknowledgement_leaves_no_caller_waiting(db):
    failpoints.arm("kernel.acknowledge.before", "raise")
    with ledger.turn_held(db):
        callers = [ledger.Caller(db.transact, ledger.put(n)) for n in range(3)]
        ledger.queued(db, 3)
    for caller in callers:
        caller.join(20)
        assert not caller.is_alive()
    ledger.assert_dense(db, 3)


@pytest.mark.parametrize(
    "point",
    [
        "kernel.begin.before",
        "kernel.begin.after",
        "kernel.statement.before",
        "kernel.statement.after",
        "kernel.commit.before",
    ],
)
def test_fault_before_commit_fails_its_callers_and_writes_nothing(db, point):
    db.transact(ledger.put("kept"))
    failpoints.arm(point, "raise")
    outcomes = asyncio.run(ledger.gathered(db, [ledger.put("a"), ledger.put("b")]))
    failed = [outcome for outcome in outcomes if isinstance(outcome, StorageError)]
    assert len(ledger.entries(db)) == 3 - len(failed)
    ledger.assert_dense(db)
    failpoints.arm(point, "raise")
    with pytest.raises(StorageError, match=point), db.write() as txn:
        ledger.put("x")(txn)
    ledger.assert_dense(db)
    db.transact(ledger.put("next"))
    ledger.assert_dense(db, 4 - len(failed))


def test_requests_that_do_not_fit_together_run_separately(path):
    with FaultyDisk() as disk, ledger.open_ledger(path, vfs=disk.name) as db:
        disk.fail("write", "-wal", how="full", times=1)
        before = counters(db)["transactions"]
        outcomes = asyncio.run(ledger.gathered(db, [ledger.put(n) for n in range(5)]))
        assert outcomes == [1, 2, 3, 4, 5]
        assert counters(db)["transactions"] - before == 5
        ledger.assert_dense(db, 5)


def test_request_that_fills_disk_does_not_fail_others(path):
    def huge(txn):
        ledger.put(bytes(4_000_000))(txn)

    with ledger.open_ledger(path) as db:
        with db.write() as txn:
            pages = txn.value("PRAGMA page_count")
            txn.all(f"PRAGMA max_page_count = {pages + 20}")
        works = [ledger.put("a"), huge, ledger.put("b"), huge, ledger.put("c")]
        outcomes = asyncio.run(ledger.gathered(db, works))
        assert [type(outcome) for outcome in outcomes] == [int, DiskFull, int, DiskFull, int]
        assert ledger.bodies(db) == ["a", "b", "c"]
        ledger.assert_dense(db)


def test_error_in_separate_run_does_not_hide_committed_requests(db):
    # Together they meet a full disk; one by one, the second finds a broken one.
    failpoints.arm("kernel.commit.before", "full")
    failpoints.arm("kernel.begin.before", "raise", at=3)
    outcomes = asyncio.run(ledger.gathered(db, [ledger.put("a"), ledger.put("b"), ledger.put("c")]))
    assert outcomes[0] == 1
    assert isinstance(outcomes[1], StorageError)
    assert outcomes[2] == 2
    assert ledger.bodies(db) == ["a", "c"]
    ledger.assert_dense(db)


def test_deferred_constraint_fails_only_its_request(path):
    family = Migration(
        2,
        "family",
        "CREATE TABLE child (parent REFERENCES entry DEFERRABLE INITIALLY DEFERRED)",
    )

    def orphan(txn):
        ledger.put("orphan")(txn)
        txn.execute("INSERT INTO child VALUES (12345)")

    with ledger.open_ledger(path, migrations=[ledger.SCHEMA, family]) as db:
        for position in range(3):
            works = [ledger.put("a"), ledger.put("b")]
            works.insert(position, orphan)
            outcomes = asyncio.run(ledger.gathered(db, works))
            assert isinstance(outcomes.pop(position), Conflict)
            assert outcomes == [2 * position + 1, 2 * position + 2]
        with pytest.raises(Conflict, match="FOREIGN KEY"), db.write() as txn:
            orphan(txn)
        ledger.assert_dense(db, 6)


@pytest.mark.parametrize("use", ["transact", "write", "checkpoint", "vacuum", "close"])
@pytest.mark.parametrize("way", ["thread", "loop", "alone"])
def test_hook_that_writes_is_refused(db, use, way):
    def write():
        with db.write() as txn:
            ledger.put("never")(txn)

    calls = {
        "transact": lambda: db.transact(ledger.put("never")),
        "write": write,
        "checkpoint": db.checkpoint,
        "vacuum": db.vacuum,
        "close": db.close,
    }

    def work(txn):
        ledger.put("committed")(txn)
        txn.after_commit(calls[use])

    def alone():
        with db.write() as txn:
            work(txn)

    ways = {
        "thread": lambda: db.transact(work),
        "loop": lambda: ledger.transact_in_loop(db, work),
        "alone": alone,
    }
    with pytest.raises(Refused):
        ways[way]()
    assert ledger.bodies(db) == ["committed"]
    db.transact(ledger.put("next"))
    ledger.assert_dense(db, 2)


@pytest.mark.parametrize("again", ["transact", "write", "elsewhere"])
def test_interrupted_rollback_is_completed_before_next_write(db, again):
    def interrupt(_point):
        raise Interrupt

    failpoints.arm("kernel.rollback.before", interrupt)
    with pytest.raises(Interrupt):
        db.transact(ledger.write_then_fail)
    if again == "transact":
        assert db.transact(ledger.put("next")) == 1
    elif again == "write":
        with db.write() as txn:
            ledger.put("next")(txn)
    else:
        assert ledger.Caller(db.transact, ledger.put("next")).outcome() == 1
    # It is committed, and not a part of what was to be undone.
    assert ledger.bodies(db) == ["next"]
    ledger.assert_dense(db)


def test_queue_full_of_requests_is_overloaded(path):
    options = Options(group=GroupLimits(queue_requests_max=3))
    with ledger.open_ledger(path, options=options) as db:
        with ledger.turn_held(db):
            callers = [ledger.Caller(db.transact, ledger.put(n)) for n in range(3)]
            ledger.queued(db, 3)
            with pytest.raises(Overloaded) as caught:
                db.transact(ledger.put("too many"))
            with pytest.raises(Overloaded):
                ledger.transact_in_loop(db, ledger.put("too many"))
            assert caught.value.retryable
            assert caught.value.retry_after
            assert counters(db)["rejected"] == 2
        for caller in callers:
            caller.outcome()
        assert set(ledger.bodies(db)) == {0, 1, 2}
        db.transact(ledger.put("again"))
        ledger.assert_dense(db, 4)


def test_queue_full_of_bytes_is_overloaded(path):
    options = Options(group=GroupLimits(queue_bytes_max=1_000, group_bytes_max=1_000))
    with ledger.open_ledger(path, options=options) as db:
        with ledger.turn_held(db):
            caller = ledger.Caller(db.transact, ledger.put("fits"), size=600)
            ledger.queued(db, 1)
            assert db.metrics().queued_bytes == 600
            with pytest.raises(Overloaded):
                db.transact(ledger.put("too much"), size=401)
            small = ledger.Caller(db.transact, ledger.put("small"), size=400)
            ledger.queued(db, 2)
        caller.outcome()
        small.outcome()
        assert set(ledger.bodies(db)) == {"fits", "small"}
        assert db.metrics().queued_bytes == 0


def test_request_larger_than_a_transaction_is_refused_at_once(path):
    options = Options(group=GroupLimits(group_bytes_max=1_000))
    with ledger.open_ledger(path, options=options) as db:
        with pytest.raises(InvalidInput, match="at most 1000 bytes, got 1001"):
            db.transact(ledger.put("x"), size=1_001)
        with pytest.raises(InvalidInput, match="at most 1000 bytes, got 1001"):
            ledger.transact_in_loop(db, ledger.put("x"), size=1_001)
        db.transact(ledger.put("x"), size=1_000)
        ledger.assert_dense(db, 1)
