"""Group commit over time: cancellation, closing, many threads and loops at once, forks."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading

import ledger
import pytest

from fourfold.errors import Closed, DeadlineExceeded
from fourfold.kernel import GroupLimits, Options, commit_request
from support.properties import repeats


def test_coroutine_cancelled_while_queued_is_not_executed(db):
    ran = []

    def work(name):
        def run(txn):
            ran.append(name)
            return ledger.put(name)(txn)

        return run

    async def call(cancel, ready):
        tasks = {name: asyncio.ensure_future(db.transact_async(work(name))) for name in "abc"}
        ready.set()
        await asyncio.to_thread(cancel.wait)
        tasks["b"].cancel()
        results = await asyncio.gather(*tasks.values(), return_exceptions=True)
        return dict(zip(tasks, results, strict=True))

    cancel, ready = threading.Event(), threading.Event()
    with ledger.turn_held(db):
        loop = ledger.in_loop(call, cancel, ready)
        assert ready.wait(60)
        ledger.queued(db, 3)
        cancel.set()
        # The cancellation is known to the loop's thread before the writer is free again.
        [batch] = db._group._queue
        ledger.wait_until(lambda: any(future.cancelled() for *_, future in batch.entries))
    results = loop.outcome()
    assert isinstance(results["b"], asyncio.CancelledError)
    assert (results["a"], results["c"]) == (1, 2)
    assert ran == ["a", "c"]
    assert ledger.bodies(db) == ["a", "c"]


def test_group_of_cancelled_requests_costs_no_transaction(db):
    async def call():
        calls = [asyncio.ensure_future(db.transact_async(ledger.put(n))) for n in range(3)]
        for each in calls:
            each.cancel()
        return await asyncio.gather(*calls, return_exceptions=True)

    before = db.metrics().counters["transactions"]
    results = asyncio.run(call())
    assert all(isinstance(each, asyncio.CancelledError) for each in results)
    assert db.metrics().counters["transactions"] == before
    assert db.metrics().queued_requests == 0
    assert ledger.entries(db) == []


def test_coroutine_waits_until_its_deadline(db):
    async def call():
        soon = db.transact_async(ledger.put("soon"), deadline_s=0.01)
        later = asyncio.ensure_future(db.transact_async(ledger.put("later"), deadline_s=60))
        with pytest.raises(DeadlineExceeded):
            await soon
        assert not later.done()
        done.set()
        return await later

    done = threading.Event()
    with ledger.turn_held(db):
        loop = ledger.in_loop(call)
        assert done.wait(60)
    assert loop.outcome() == 1
    assert ledger.bodies(db) == ["later"]
    assert db.metrics().queued_requests == 0


def test_requests_of_closed_loop_do_not_block_others(db):
    async def leave():
        db.transact_async(ledger.put("not awaited"))

    with ledger.turn_held(db):
        ledger.in_loop(leave).outcome()
        ledger.queued(db, 1)
        thread = ledger.Caller(db.transact, ledger.put("thread"))
        loop = ledger.in_loop(lambda: _awaited(db, ledger.put("loop")))
        ledger.queued(db, 3)
    thread.outcome()
    loop.outcome()
    assert {"thread", "loop"} <= set(ledger.bodies(db))
    ledger.assert_dense(db)


async def _awaited(db, work):
    return await db.transact_async(work)


def test_requests_of_blocked_loop_do_not_block_others(db):
    # It is neither running nor closed, so nothing that is sent to it ever happens.
    still = asyncio.new_event_loop()

    async def leave():
        return db.transact_async(ledger.put("still"))

    try:
        with ledger.turn_held(db):
            future = ledger.Caller(still.run_until_complete, leave()).outcome()
            ledger.queued(db, 1)
            others = [ledger.in_loop(lambda: _awaited(db, ledger.put("loop"))) for _ in range(2)]
            ledger.queued(db, 3)
        for other in others:
            other.outcome()
        ledger.assert_dense(db, 3)
        assert still.run_until_complete(future) == 1
    finally:
        still.close()


def test_close_completes_queue_and_rejects_later_requests(path):
    db = ledger.open_ledger(path)
    with ledger.turn_held(db):
        threads = [ledger.Caller(db.transact, ledger.put(n)) for n in range(10)]
        loop = ledger.in_loop(
            lambda: asyncio.wait_for(
                _gathered(db, [ledger.put(n) for n in range(10, 20)]), timeout=60
            )
        )
        ledger.queued(db, 20)
        closing = ledger.Caller(db.close)
        ledger.wait_until(lambda: db._group._closed)
        with pytest.raises(Closed):
            db.transact(ledger.put("late"))
        with pytest.raises(Closed):
            ledger.transact_in_loop(db, ledger.put("late"))
    closing.outcome()
    numbers = [each.outcome() for each in threads] + loop.outcome()
    assert sorted(numbers) == list(range(1, 21))
    with ledger.open_ledger(path) as again:
        assert sorted(ledger.bodies(again)) == list(range(20))
        ledger.assert_dense(again)


async def _gathered(db, works):
    return await asyncio.gather(*(db.transact_async(work) for work in works))


def test_close_during_writes_completes_every_caller(path):
    for _ in range(10):
        db = ledger.open_ledger(path)
        acknowledged = []
        begun = threading.Semaphore(0)

        def write(db=db, acknowledged=acknowledged, begun=begun):
            begun.release()
            while True:
                acknowledged.append(db.transact(ledger.put("x")))

        async def write_async(db=db, acknowledged=acknowledged, begun=begun):
            begun.release()
            while True:
                acknowledged.append(await db.transact_async(ledger.put("x")))

        callers = [ledger.Caller(write) for _ in range(3)]
        callers += [ledger.in_loop(write_async) for _ in range(2)]
        for _ in callers:
            assert begun.acquire(timeout=60)
        db.close()
        for caller in callers:
            with pytest.raises(Closed):
                caller.outcome()
        with ledger.open_ledger(path) as again:
            ledger.assert_dense(again)
            assert set(acknowledged) <= {seq for seq, _ in ledger.entries(again)}


def storm(db, *, threads, loops, per_caller, writers, checkpoints):
    """Everything at once. Returns how many rows must be there afterwards."""
    rows = []
    note = rows.append

    def thread(name):
        for n in range(per_caller):
            note((db.transact(ledger.put(f"{name}.{n}")), f"{name}.{n}"))

    async def coroutine(name):
        for n in range(per_caller):
            note((await db.transact_async(ledger.put(f"{name}.{n}")), f"{name}.{n}"))

    async def loop(name):
        await asyncio.gather(*(coroutine(f"{name}.{n}") for n in range(8)))

    def writer(name):
        for n in range(per_caller // 4):
            with db.write() as txn:
                made = [(ledger.put(f"{name}.{n}.{i}")(txn), f"{name}.{n}.{i}") for i in range(2)]
                with pytest.raises(ZeroDivisionError), db.write() as step:
                    raise ZeroDivisionError(ledger.put("undone")(step))
            rows.extend(made)

    def checkpointer():
        for mode in ("PASSIVE", "FULL", "RESTART", "TRUNCATE"):
            for _ in range(checkpoints):
                db.checkpoint(mode)

    callers = [ledger.Caller(thread, f"t{n}") for n in range(threads)]
    callers += [ledger.in_loop(loop, f"l{n}") for n in range(loops)]
    callers += [ledger.Caller(writer, f"w{n}") for n in range(writers)]
    callers += [ledger.Caller(checkpointer)]
    for caller in callers:
        caller.outcome()
    return rows


@pytest.mark.parametrize("placement", ["auto", "inline", "thread"])
def test_mixed_callers_and_checkpoints_lose_and_duplicate_nothing(path, placement):
    options = Options(group=GroupLimits(placement=placement), checkpoint_bytes=4096 * 20)
    with ledger.open_ledger(path, options=options) as db:
        rows = storm(db, threads=4, loops=2, per_caller=160, writers=2, checkpoints=5)
        assert sorted(rows) == ledger.entries(db)
        ledger.assert_dense(db, 4 * 160 + 2 * 8 * 160 + 2 * 40 * 2)
        assert db.integrity_check() == []


@pytest.mark.slow
@pytest.mark.parametrize("placement", ["auto", "inline", "thread"])
def test_long_mixed_load_loses_and_duplicates_nothing(path, placement):
    options = Options(group=GroupLimits(placement=placement), checkpoint_bytes=4096 * 50)
    with ledger.open_ledger(path, options=options) as db:
        rows = storm(db, threads=8, loops=2, per_caller=repeats(1_800), writers=3, checkpoints=20)
        assert sorted(rows) == ledger.entries(db)
        ledger.assert_dense(db)
        assert db.integrity_check() == []


def test_exclusive_writers_do_not_starve_the_queue(db):
    stop = threading.Event()

    def write():
        while not stop.is_set():
            with db.write() as txn:
                ledger.put("exclusive")(txn)

    writers = [ledger.Caller(write) for _ in range(4)]
    try:
        for n in range(20):
            db.transact(ledger.put(f"thread {n}"), deadline_s=20)
            ledger.transact_in_loop(db, ledger.put(f"loop {n}"), deadline_s=20)
    finally:
        stop.set()
    for writer in writers:
        writer.outcome()
    ledger.assert_dense(db)


def _in_child(db, path, pipe):
    """What a forked child finds: the parent's database is not its own, and a new one is."""
    said = []
    for use in (
        lambda: db.transact(ledger.put("child")),
        lambda: db.write().__enter__(),
        lambda: db.read().__enter__(),
        db.checkpoint,
    ):
        try:
            use()
        except Closed:
            said.append("closed")
        except BaseException as error:  # noqa: BLE001  (the parent judges)
            said.append(repr(error))
        else:
            said.append("worked")
    db.close()
    try:
        ledger.open_ledger(db.path)
    except Exception as error:  # noqa: BLE001
        said.append(type(error).__name__)
    # The threads stayed in the parent; an executor that counts on them would wait for them.
    said.append(commit_request._threads is None)
    for placement in ("inline", "thread"):
        options = Options(group=GroupLimits(placement=placement))
        with ledger.open_ledger(path, options=options) as own:
            said.append(ledger.transact_in_loop(own, ledger.put("own"), deadline_s=20))
    pipe.send(said)
    pipe.close()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_forked_child_gets_closed_and_parent_continues(path, tmp_path):
    options = Options(group=GroupLimits(placement="thread"), checkpoint_bytes=4096 * 1)
    with ledger.open_ledger(path, options=options) as db:
        # The threads for commits and checkpoints exist when the fork happens, and the one for
        # checkpoints may be at work.
        ledger.transact_in_loop(db, ledger.put("before"))
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        child = context.Process(
            target=_in_child, args=(db, tmp_path / "own.db", theirs), daemon=True
        )
        with db.read() as snapshot:
            child.start()
            theirs.close()
            try:
                assert ours.poll(60), "the child hangs"
                said = ours.recv()
                child.join(60)
                assert child.exitcode == 0
            finally:
                child.kill()
            assert snapshot.value("SELECT count(*) FROM entry") == 1
        assert said == ["closed"] * 4 + ["WriterLocked", True, 1, 2]
        db.transact(ledger.put("after"))
        assert ledger.bodies(db) == ["before", "after"]
        ledger.assert_dense(db)
        assert db.integrity_check() == []
