"""Requests of event loops: items that share a request, the bounds, closing and failures."""

from __future__ import annotations

import asyncio
import threading

import ledger
import pytest

from fourfold.errors import Closed, Overloaded, Refused, TooLarge
from fourfold.kernel import GroupLimits, Options


def counted(runs, body="x"):
    def work(txn):
        runs.append(body)
        return ledger.put(body)(txn)

    return work


def refused(txn):
    raise KeyError("refused")


def close_elsewhere(db):
    thread = threading.Thread(target=db.close)
    thread.start()
    thread.join()


class Batches:
    """Submits items to one function, and records its calls, the outcomes and their thread."""

    def __init__(self, db):
        self.db = db
        self.calls = []
        self.outcomes = {}
        self.threads = set()
        self.changed = asyncio.Event()

    def run(self, txn, items):
        self.calls.append(list(items))
        if "broken" in items:
            raise ZeroDivisionError
        return [ledger.put(item)(txn) for item in items]

    def submit(self, *items, size=0):
        for item in items:
            self.db.transact_batched(
                self.run,
                item,
                lambda outcome, item=item: self.note(item, outcome),
                asyncio.get_running_loop(),
                size,
            )

    def note(self, item, outcome):
        self.threads.add(threading.get_ident())
        self.outcomes[item] = outcome
        self.changed.set()

    async def completed(self, count):
        while len(self.outcomes) < count:
            self.changed.clear()
            await self.changed.wait()


# Items


def test_items_of_one_iteration_share_a_call_and_a_transaction(db):
    async def call():
        batches = Batches(db)
        before = db.metrics().counters["transactions"]
        batches.submit("a", "b", "c")
        assert batches.outcomes == {}
        await batches.completed(3)
        assert batches.calls == [["a", "b", "c"]]
        assert batches.outcomes == {"a": 1, "b": 2, "c": 3}
        assert db.metrics().counters["transactions"] == before + 1

    asyncio.run(call())
    assert ledger.bodies(db) == ["a", "b", "c"]


def test_request_between_items_keeps_its_place(db):
    async def call():
        batches = Batches(db)
        batches.submit("a", "b")
        between = db.transact_async(ledger.put("between"))
        batches.submit("c")
        await batches.completed(3)
        assert await between == 3
        assert batches.calls == [["a", "b"], ["c"]]

    asyncio.run(call())
    assert ledger.bodies(db) == ["a", "b", "between", "c"]


def test_items_of_different_functions_are_not_mixed(db):
    async def call():
        one, two = Batches(db), Batches(db)
        one.submit("a")
        two.submit("b")
        one.submit("c")
        await one.completed(2)
        await two.completed(1)
        assert (one.calls, two.calls) == ([["a"], ["c"]], [["b"]])

    asyncio.run(call())
    assert ledger.bodies(db) == ["a", "b", "c"]


def test_items_wait_for_the_writer_and_complete_on_their_loop(db):
    async def call():
        batches = Batches(db)
        with ledger.turn_held(db, "held"):
            batches.submit("a")
            await asyncio.sleep(0.01)
            batches.submit("b")
            await asyncio.sleep(0.01)
            assert batches.outcomes == {}
        await batches.completed(2)
        assert batches.calls == [["a", "b"]]
        assert batches.threads == {threading.get_ident()}

    asyncio.run(call())
    assert ledger.bodies(db) == ["held", "a", "b"]


def test_items_that_another_thread_commits_are_completed_on_their_loop(path):
    slow = Options(group=GroupLimits(placement="thread"))

    async def call(db):
        batches = Batches(db)
        batches.submit("a", "b")
        await batches.completed(2)
        assert batches.threads == {threading.get_ident()}

    with ledger.open_ledger(path, options=slow) as db:
        asyncio.run(call(db))
        assert ledger.bodies(db) == ["a", "b"]


def test_item_added_while_a_batch_is_committed_starts_another(path):
    """A thread commits the first batch while the loop adds the second item."""
    slow = Options(group=GroupLimits(placement="thread"))
    entered, leave = threading.Event(), threading.Event()

    async def call(db):
        batches = Batches(db)

        def run(txn, items):
            entered.set()
            assert leave.wait(60)
            return Batches.run(batches, txn, items)

        batches.run = run
        batches.submit("a")
        await asyncio.to_thread(entered.wait, 60)
        batches.submit("b")
        leave.set()
        await batches.completed(2)
        assert batches.calls == [["a"], ["b"]]

    with ledger.open_ledger(path, options=slow) as db:
        asyncio.run(call(db))
        assert ledger.bodies(db) == ["a", "b"]


def test_error_of_function_is_outcome_of_each_of_its_items(db):
    async def call():
        problems = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: problems.append(context)
        )
        broken, sound = Batches(db), Batches(db)
        broken.submit("a", "broken")
        sound.submit("b")
        await broken.completed(2)
        await sound.completed(1)
        assert [type(each) for each in broken.outcomes.values()] == [Refused, Refused]
        assert broken.outcomes["a"] is not broken.outcomes["broken"]
        assert isinstance(problems[0]["exception"], ZeroDivisionError)
        assert sound.outcomes == {"b": 1}

    asyncio.run(call())
    assert ledger.bodies(db) == ["b"]


def test_item_that_exceeds_a_bound_is_refused_alone(path):
    bounds = Options(group=GroupLimits(group_bytes_max=20, queue_requests_max=3))

    async def call(db):
        batches = Batches(db)
        batches.submit("a", "b", size=15)
        with pytest.raises(TooLarge):
            batches.submit("large", size=21)
        batches.submit("c")
        with pytest.raises(Overloaded, match="3 requests and 30 bytes"):
            batches.submit("one too many")
        await batches.completed(3)
        # Two of 15 bytes exceed a transaction.
        assert batches.calls == [["a"], ["b", "c"]]

    with ledger.open_ledger(path, options=bounds) as db:
        asyncio.run(call(db))
        assert ledger.bodies(db) == ["a", "b", "c"]


def test_close_completes_queued_items_and_refuses_later_ones(path):
    async def call(db):
        batches = Batches(db)
        batches.submit("a", "b")
        close_elsewhere(db)
        with pytest.raises(Closed):
            batches.submit("late")
        await batches.completed(2)
        assert batches.outcomes == {"a": 1, "b": 2}

    asyncio.run(call(ledger.open_ledger(path)))
    with ledger.open_ledger(path) as db:
        assert ledger.bodies(db) == ["a", "b"]


def test_loop_waits_for_as_many_callers_as_recently(db):
    """Callers that arrive in consecutive iterations share a commit, if that many did before."""

    async def call():
        batches = Batches(db)
        batches.submit("a", "b", "c")
        await batches.completed(3)
        for item in "def":
            batches.submit(item)
            await asyncio.sleep(0)
        await batches.completed(6)
        assert batches.calls[1:] == [["d", "e", "f"]]
        # Without further callers it waits for one iteration only.
        batches.submit("g")
        for _ in range(3):
            await asyncio.sleep(0)
        assert batches.calls[2:] == [["g"]]

    asyncio.run(call())


def test_single_caller_does_not_wait_for_others(db):
    async def call():
        batches = Batches(db)
        for item in "abc":
            batches.submit(item)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert batches.calls == [["a"], ["b"], ["c"]]

    asyncio.run(call())


# Coroutines


def test_close_on_another_thread_completes_queued_requests(path):
    async def call(db):
        waiting = [db.transact_async(ledger.put(n)) for n in range(3)]
        close_elsewhere(db)
        return await asyncio.gather(*waiting)

    assert asyncio.run(call(ledger.open_ledger(path))) == [1, 2, 3]
    with ledger.open_ledger(path) as db:
        assert ledger.bodies(db) == [0, 1, 2]


def test_request_after_close_raises_closed(path):
    async def call(db):
        first = db.transact_async(ledger.put("in time"))
        close_elsewhere(db)
        with pytest.raises(Closed):
            await db.transact_async(ledger.put("too late"))
        assert await first == 1

    asyncio.run(call(ledger.open_ledger(path)))
    with ledger.open_ledger(path) as db:
        assert ledger.bodies(db) == ["in time"]


def test_queued_coroutines_count_against_the_bounds(path):
    async def call(db):
        waiting = [db.transact_async(ledger.put(n), size=10) for n in range(3)]
        assert (db._group.queued_requests, db._group.queued_bytes) == (3, 30)
        with pytest.raises(Overloaded, match="3 requests and 30 bytes"):
            db.transact_async(ledger.put("one too many"), size=10)
        return await asyncio.gather(*waiting)

    bounds = Options(group=GroupLimits(queue_requests_max=3))
    with ledger.open_ledger(path, options=bounds) as db:
        assert asyncio.run(call(db)) == [1, 2, 3]
        assert (db._group.queued_requests, db._group.queued_bytes) == (0, 0)


def test_closed_loop_is_forgotten(db):
    gone = asyncio.new_event_loop()
    gone.run_until_complete(asyncio.sleep(0))
    db._group._schedule(gone)
    gone.close()

    async def call():
        return await db.transact_async(ledger.put("x"))

    assert asyncio.run(call()) == 1
    assert db._group._scheduled == set()


def test_request_that_fails_before_a_write_does_not_repeat_others(db):
    runs = []

    async def call():
        await asyncio.gather(
            db.transact_async(counted(runs)), db.transact_async(refused), return_exceptions=True
        )

    asyncio.run(call())
    asyncio.run(call())
    assert len(runs) == 2
    ledger.assert_dense(db, 2)


def test_stopped_leader_leaves_no_coroutine_waiting(db):
    class Stopped(KeyboardInterrupt):
        pass

    def stopped(txn):
        raise Stopped

    async def call():
        waiting = [db.transact_async(ledger.put("x")), db.transact_async(stopped)]
        return await asyncio.gather(*waiting, return_exceptions=True)

    loop = asyncio.new_event_loop()
    try:
        task = loop.create_task(call())
        with pytest.raises(Stopped):
            loop.run_until_complete(task)
        outcomes = loop.run_until_complete(task)
    finally:
        loop.close()
    assert [type(each) for each in outcomes] == [Closed, Closed]
    assert db.transact(ledger.put("next")) == 1
