"""Many threads on one space: they share commits, read their own writes, and are isolated."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from fourfold.errors import InvalidInput, StaleRead


def increment(path="/n", by=1):
    return [{"op": "increment", "path": path, "by": by}]


def together(workers, work):
    """Run `work(number)` in so many threads that all begin at once; what they returned or
    raised.
    """
    start = threading.Barrier(workers)

    def begin(number):
        start.wait()
        return work(number)

    with ThreadPoolExecutor(workers) as pool:
        return [future.result() for future in [pool.submit(begin, n) for n in range(workers)]]


def test_increments_of_sixteen_threads_add_up(space):
    def work(number):
        for turn in range(10):
            commit = space.patch("a", [*increment(), *increment(f"/of/{number}")])
            state = space.read("a")
            # Its own write is there, and whatever others wrote before and since.
            assert state.seq >= commit.seq
            assert state.document["of"][str(number)] == turn + 1

    space.set("a", {"of": {}})
    together(16, work)
    expected = {"n": 160, "of": {str(number): 10 for number in range(16)}}
    assert space.read("a").document == space.read_many(["a"])["a"].document == expected
    assert space.seq() == 161
    assert space.verify() == []


def test_failing_request_does_not_disturb_those_that_share_its_commit(space):
    space.set("a", {"n": 0})
    bad = [
        {"op": "patch", "id": "a", "patches": increment(by=1_000)},
        {"op": "set", "id": "from a failed request", "value": {}},
        {"op": "patch", "id": "a", "patches": [{"op": "remove", "path": "/nothing"}]},
    ]

    def work(number):
        failed = 0
        for turn in range(10):
            if (number + turn) % 3:
                space.patch("a", increment())
                continue
            with pytest.raises(InvalidInput):
                space.transact(bad)
            failed += 1
        return failed

    failed = sum(together(8, work))
    assert failed
    assert space.read("a").document == {"n": 80 - failed}
    assert space.read_many(["a"])["a"].document == {"n": 80 - failed}
    assert space.read("from a failed request") is None
    assert space.seq() == 81 - failed
    assert [each.seq for each in space.log()] == list(range(1, 82 - failed))
    assert space.verify() == []


def test_of_those_who_decided_on_the_same_state_one_wins(space):
    space.set("a", {"n": 0})

    def work(number):
        won = 0
        while won < 5:
            state = space.read("a")
            reads = {"confirmed": [{"id": "a", "seq": state.seq}]}
            operation = {"op": "set", "id": "a", "value": {"n": state.document["n"] + 1}}
            try:
                space.transact([operation], reads=reads)
            except StaleRead:
                continue
            won += 1
        return won

    assert sum(together(6, work)) == 30
    assert space.read("a").document == {"n": 30}


def test_a_request_that_two_threads_send_is_committed_once(space):
    operations = [{"op": "patch", "id": "a", "patches": increment()}]

    def work(number):
        return [
            space.transact(operations, session="s", local_seq=turn).replayed for turn in range(20)
        ]

    answers = together(4, work)
    assert sum(not replayed for each in answers for replayed in each) == 20
    assert space.read("a").document == {"n": 20}


def test_readers_beside_writers_see_only_states_that_were_committed(space):
    space.set("a", {"x": 0, "y": 0})
    stop = threading.Event()

    def look(number):
        last = 0
        while not stop.is_set():
            state = space.read("a") if number % 2 else space.read_many(["a"])["a"]
            assert state.document["x"] == state.document["y"]
            assert state.seq >= last
            last = state.seq

    def write(number):
        try:
            for _ in range(100):
                space.patch("a", [*increment("/x"), *increment("/y")])
        finally:
            stop.set()

    together(4, lambda number: write(number) if number == 0 else look(number))
    assert space.read("a").document == {"x": 100, "y": 100}
