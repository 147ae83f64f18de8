"""A thread that can wait: the next commit of another caller includes its request."""

from __future__ import annotations

import asyncio

import ledger
import pytest

from fourfold.errors import DeadlineExceeded
from fourfold.kernel.commit_request import LowPriorityRequest, ThreadRequest, WakeUps, complete

FOR_EVER = 3_000.0
"""Longer than any test lasts: only the commit of another caller can serve the request."""


def transactions(db):
    return db.metrics().counters["transactions"]


def submit_low_priority(db, work, join_wait_s=FOR_EVER, **options):
    """A thread that asks for `work` and can wait; it is in the queue when this returns."""
    caller = ledger.Caller(db.transact, work, join_wait_s=join_wait_s, **options)
    ledger.queued(db, 1)
    return caller


def test_low_priority_request_joins_commit_of_a_thread(db):
    waiting = submit_low_priority(db, ledger.put("patient"))
    before = transactions(db)
    assert ledger.bodies(db) == []
    db.transact(ledger.put("other"))
    assert waiting.outcome() == 1
    assert ledger.bodies(db) == ["patient", "other"]
    assert transactions(db) == before + 1


def test_low_priority_request_joins_commit_of_a_loop(db):
    waiting = submit_low_priority(db, ledger.put("patient"))
    before = transactions(db)
    assert ledger.transact_in_loop(db, ledger.put("other")) == 2
    assert waiting.outcome() == 1
    assert transactions(db) == before + 1


def test_loop_that_released_writer_does_not_wake_low_priority_request(db):
    """Or it would commit alone, a moment before the loop has its next requests together."""

    async def call():
        inside = []

        def work(txn):
            inside.append(submit_low_priority(db, ledger.put("patient")))
            return ledger.put("first")(txn)

        await db.transact_async(work)
        for _ in range(3):
            await asyncio.sleep(0)
        assert ledger.bodies(db) == ["first"]
        await db.transact_async(ledger.put("second"))
        return inside[0]

    assert asyncio.run(call()).outcome() == 2
    assert ledger.bodies(db) == ["first", "patient", "second"]


def test_low_priority_request_commits_itself_when_alone(db):
    assert db.transact(ledger.put("alone"), join_wait_s=0.001) == 1
    assert ledger.bodies(db) == ["alone"]


def test_low_priority_request_leads_after_its_wait(db):
    with ledger.turn_held(db):
        waiting = submit_low_priority(db, ledger.put("patient"), join_wait_s=0.001)
        ledger.wait_until(lambda: not db._group._queue[0].low_priority)
    assert waiting.outcome() == 1


def test_error_of_low_priority_request_is_raised_to_its_caller(db):
    waiting = submit_low_priority(db, ledger.write_then_fail)
    assert db.transact(ledger.put("other")) == 1
    with pytest.raises(ZeroDivisionError):
        waiting.outcome()
    assert ledger.bodies(db) == ["other"]


def test_low_priority_request_has_a_deadline(db):
    with ledger.turn_held(db):
        waiting = submit_low_priority(db, ledger.put("late"), deadline_s=0.05)
        with pytest.raises(DeadlineExceeded):
            waiting.outcome()
    assert ledger.bodies(db) == []


def test_low_priority_request_inside_transaction_is_a_savepoint(db):
    with db.write() as txn:
        ledger.put("outer")(txn)
        assert db.transact(ledger.put("inner"), join_wait_s=FOR_EVER) == 2
    assert ledger.bodies(db) == ["outer", "inner"]


def test_close_completes_low_priority_request(path):
    db = ledger.open_ledger(path)
    waiting = submit_low_priority(db, ledger.put("patient"))
    db.close()
    assert waiting.outcome() == 1
    with ledger.open_ledger(path) as again:
        assert ledger.bodies(again) == ["patient"]


def test_request_after_low_priority_one_is_woken_first(db):
    group = db._group
    patient = LowPriorityRequest(ledger.put("patient"), 0, float("inf"))
    hurried = ThreadRequest(ledger.put("hurried"), 0, float("inf"))
    group._queue.extend([patient, hurried])
    group._wake_leader()
    assert hurried.wait(0)
    assert not patient.wait(0)
    patient.low_priority = False
    group._wake_leader()
    assert patient.wait(0)
    group._queue.clear()


@pytest.mark.parametrize("still_low", [True, False])
def test_low_priority_request_is_not_in_the_wake_up_chain(still_low):
    """It may come last when the processor is given away."""
    waking = WakeUps()
    request = LowPriorityRequest(ledger.put("patient"), 0, float("inf"))
    request.low_priority, request.thread = still_low, -1
    complete([request], None, waking)
    assert request.completed
    assert request.wait(0)
    assert not waking.in_progress
