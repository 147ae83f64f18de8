"""A crowd of threads: those whom a commit woke ride the next one together, and a caller who is
alone does not queue up at all.
"""

from __future__ import annotations

import threading

import ledger
import pytest

from fourfold.errors import DeadlineExceeded, InvalidInput
from fourfold.kernel.commit_request import ThreadRequest, WakeUps, complete


def counters(db):
    return db.metrics().counters


def crowd(db, count, act):
    """`count` threads that run `act(number)` and all wait for one slow transaction before
    the first of them is served; what each returned.
    """
    inside, go_on, results = threading.Event(), threading.Event(), {}

    def slow(txn):
        inside.set()
        assert go_on.wait(60)
        return ledger.put("slow")(txn)

    def run(number):
        results[number] = act(number)

    first = threading.Thread(target=lambda: db.transact(slow))
    first.start()
    assert inside.wait(60)
    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    ledger.queued(db, count)
    go_on.set()
    for thread in [first, *threads]:
        thread.join(60)
        assert not thread.is_alive()
    return results


def test_woken_threads_share_the_next_commit(db):
    before = counters(db)

    def act(number):
        return [db.transact(ledger.put(f"{number} {turn}")) for turn in range(20)]

    found = crowd(db, 8, act)
    assert sorted(seq for each in found.values() for seq in each) == list(range(2, 162))
    after = counters(db)
    transactions = after["transactions"] - before["transactions"]
    # About one for each turn of all eight; one for each request if none waited for the others.
    assert transactions < (after["requests"] - before["requests"]) // 2


def test_group_commit_does_not_wait_for_finished_caller(db):
    """Each goes its way only when all of them have their outcomes."""
    everybody = threading.Barrier(8)

    def act(number):
        seq = db.transact(ledger.put(number))
        everybody.wait(60)
        return seq

    assert sorted(crowd(db, 8, act).values()) == list(range(2, 10))


def test_broken_wake_up_chain_recovers_within_a_second(db, monkeypatch):
    """An interrupt may take away the thread whose turn it was to wake the next."""
    passing = WakeUps.wake_next
    silent = []

    def wake_next(waking, request):
        if request.next_waiter is not None and not silent:
            silent.append(request)
            request.next_waiter = None
            return False
        return passing(waking, request)

    monkeypatch.setattr(WakeUps, "wake_next", wake_next)
    found = crowd(db, 6, lambda number: [db.transact(ledger.put(number)) for _ in range(2)])
    assert silent
    assert sorted(seq for each in found.values() for seq in each) == list(range(2, 14))


def requests_of(*threads):
    """One request for each; those of thread 0 are this thread's own."""
    found = []
    for thread in threads:
        request = ThreadRequest(ledger.put("x"), 0, float("inf"))
        request.thread = request.thread if thread == 0 else -thread
        found.append(request)
    return found


def woken(request):
    return request.wait(0)


def test_each_thread_wakes_the_next_and_leader_the_first():
    waking = WakeUps()
    first, own, last = requests_of(1, 0, 2)
    complete([first, own, last], None, waking)
    assert waking.in_progress
    assert not woken(first)
    assert not waking.wake_next(own)
    assert woken(first)
    assert not woken(last)
    assert not waking.wake_next(first)
    assert woken(last)
    assert waking.wake_next(last)
    assert not waking.in_progress


def test_leader_without_own_request_wakes_the_first_at_once():
    waking = WakeUps()
    first, second = requests_of(1, 2)
    complete([first, second], None, waking)
    assert woken(first)
    assert not woken(second)


def test_interrupted_thread_is_not_in_the_wake_up_chain():
    waking = WakeUps()
    first, left, last = requests_of(1, 2, 3)
    assert not waking.wake_next(left)
    complete([first, left, last], None, waking)
    assert woken(first)
    assert not waking.wake_next(first)
    assert woken(last)
    assert not woken(left)


def test_leader_alone_starts_no_wake_up_chain():
    waking = WakeUps()
    complete(requests_of(0), None, waking)
    assert not waking.in_progress


def test_recent_group_size_decays(db):
    db._group._recent_group_size = 5
    for number in range(5):
        db.transact(ledger.put(number))
    assert db._group._recent_group_size <= 1


def test_single_caller_does_not_use_the_queue(db, monkeypatch):
    monkeypatch.setattr(db._group, "_enqueue", None)
    assert db.transact(ledger.put("alone")) == 1
    with pytest.raises(ZeroDivisionError):
        db.transact(ledger.write_then_fail)
    with pytest.raises(DeadlineExceeded):
        db.transact(ledger.put("late"), deadline_s=-1)
    assert ledger.bodies(db) == ["alone"]


def test_single_caller_has_the_same_bounds(db):
    with pytest.raises(InvalidInput, match="request must have at most"):
        db.transact(ledger.put("large"), size=2**40)
    assert ledger.bodies(db) == []


def test_caller_that_waits_for_single_commit_runs_next(db):
    inside, go_on = threading.Event(), threading.Event()

    def slow(txn):
        inside.set()
        assert go_on.wait(60)
        return ledger.put("first")(txn)

    results = {}
    first = threading.Thread(target=lambda: results.update(first=db.transact(slow)))
    first.start()
    assert inside.wait(60)
    second = threading.Thread(
        target=lambda: results.update(second=db.transact(ledger.put("second")))
    )
    second.start()
    while not db._group.queued_requests:
        pass
    go_on.set()
    first.join(60)
    second.join(60)
    assert results == {"first": 1, "second": 2}
