"""What coroutines ask for before their loop comes round: it is finished by a close, counted by the
bounds, run once where nothing goes wrong, and forgotten with a loop that is gone.
"""

from __future__ import annotations

import asyncio
import threading

import ledger
import pytest

from fourfold.errors import Closed, Overloaded
from fourfold.kernel import GroupLimits, Options
from fourfold.kernel.commit_request import Inbox
from fourfold.kernel.group_commit import CAUTIOUS_GROUPS


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


def test_close_on_another_thread_completes_inbox_entries(path):
    async def call(db):
        waiting = [db.transact_async(ledger.put(n)) for n in range(3)]
        close_elsewhere(db)
        return await asyncio.gather(*waiting)

    assert asyncio.run(call(ledger.open_ledger(path))) == [1, 2, 3]
    with ledger.open_ledger(path) as db:
        assert ledger.bodies(db) == [0, 1, 2]


def test_entry_added_after_close_raises_closed(path):
    async def call(db):
        first = db.transact_async(ledger.put("in time"))
        inbox = db._group._inboxes[asyncio.get_running_loop()]
        close_elsewhere(db)
        late = asyncio.get_running_loop().create_future()
        inbox.entries.append((ledger.put("too late"), 0, float("inf"), late))
        assert await first == 1
        with pytest.raises(Closed):
            await late
        with pytest.raises(Closed):
            await db.transact_async(ledger.put("later still"))

    asyncio.run(call(ledger.open_ledger(path)))
    with ledger.open_ledger(path) as db:
        assert ledger.bodies(db) == ["in time"]


def test_inbox_entries_count_against_the_bounds(path):
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


def test_closed_loop_leaves_no_inbox(db):
    gone = asyncio.new_event_loop()
    gone.close()
    db._group._inboxes[gone] = Inbox(gone)

    async def call():
        return await db.transact_async(ledger.put("x"))

    assert asyncio.run(call()) == 1
    assert db._group._inboxes == {}


def test_groups_after_a_failure_run_each_request_once(db):
    runs = []

    async def call():
        await asyncio.gather(
            db.transact_async(counted(runs)), db.transact_async(refused), return_exceptions=True
        )

    asyncio.run(call())
    assert len(runs) == 2
    for _ in range(CAUTIOUS_GROUPS):
        asyncio.run(call())
    assert len(runs) == 2 + CAUTIOUS_GROUPS
    ledger.assert_dense(db, 1 + CAUTIOUS_GROUPS)
    # Then hope returns, and costs one more run when it fails.
    asyncio.run(call())
    assert len(runs) == 4 + CAUTIOUS_GROUPS


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
