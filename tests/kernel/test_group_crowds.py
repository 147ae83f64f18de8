"""A crowd of threads: those whom a commit woke ride the next one together, and a caller who is
alone does not queue up at all.
"""

from __future__ import annotations

import threading
import types

import ledger
import pytest

from fourfold.errors import DeadlineExceeded, InvalidInput
from fourfold.kernel import group
from fourfold.kernel.requests import ThreadRequest


def counters(db):
    return db.metrics().counters


class Arrivals:
    """Stands in for letting go of the interpreter: each time somebody else queues up."""

    def __init__(self, db, bodies):
        self.requests = []
        self.let_go = 0
        self._db = db
        self._bodies = iter(bodies)

    def sleep(self, seconds):
        assert seconds == 0
        self.let_go += 1
        for body in self._bodies:
            request = ThreadRequest(ledger.put(body), 0, float("inf"))
            self._db._group._enqueue(request)
            self.requests.append(request)
            return


def standing_in(monkeypatch, arrivals):
    clock = types.SimpleNamespace(monotonic=group.time.monotonic, sleep=arrivals.sleep)
    monkeypatch.setattr(group, "time", clock)


def test_a_leader_takes_those_along_whom_the_last_commit_woke(db, monkeypatch):
    arrivals = Arrivals(db, ["second", "third"])
    standing_in(monkeypatch, arrivals)
    db._group._crowd = 3
    before = counters(db)["transactions"]
    assert db.transact(ledger.put("first")) == 1
    assert [request.result for request in arrivals.requests] == [2, 3]
    assert counters(db)["transactions"] == before + 1


def test_a_leader_waits_for_nobody_who_does_not_come(db, monkeypatch):
    arrivals = Arrivals(db, [])
    standing_in(monkeypatch, arrivals)
    db._group._crowd = 60
    assert db.transact(ledger.put("first")) == 1
    assert arrivals.let_go == 1


def test_a_crowd_that_went_home_is_forgotten(db):
    db._group._crowd = 5
    for number in range(5):
        db.transact(ledger.put(number))
    assert db._group._crowd <= 1


def test_a_caller_who_is_alone_does_not_queue_up(db, monkeypatch):
    monkeypatch.setattr(db._group, "_enqueue", None)
    assert db.transact(ledger.put("alone")) == 1
    with pytest.raises(ZeroDivisionError):
        db.transact(ledger.write_then_fail)
    with pytest.raises(DeadlineExceeded):
        db.transact(ledger.put("late"), deadline_s=-1)
    assert ledger.bodies(db) == ["alone"]


def test_one_who_is_alone_is_held_to_the_same_bounds(db):
    with pytest.raises(InvalidInput, match="more than a transaction takes"):
        db.transact(ledger.put("large"), size=2**40)
    assert ledger.bodies(db) == []


def test_whoever_comes_while_somebody_commits_alone_is_woken_and_goes_next(db):
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
