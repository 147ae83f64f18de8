"""Group commit: callers share commits, and each gets its own result or its own error."""

# ruff: noqa: PT012  (the block of a transaction that fails is what is under test)

from __future__ import annotations

import asyncio
import threading

import ledger
import pytest

from fourfold.errors import (
    Conflict,
    DeadlineExceeded,
    FourfoldError,
    InvalidInput,
)
from fourfold.kernel import GroupLimits, Options


def counters(db):
    return db.metrics().counters


def boom(_txn):
    raise ZeroDivisionError


def twice_the_same_number(txn):
    seq = ledger.put("spoilt")(txn)
    txn.execute("INSERT INTO entry VALUES (?, 'again')", (seq,))


def endless(txn):
    ledger.put("spoilt")(txn)
    txn.all(f"INSERT INTO entry SELECT 99, ({ledger.ENDLESS})")


def no_such_table(txn):
    txn.execute("INSERT INTO nowhere VALUES (1)")


def stop_iteration(txn):
    ledger.put("spoilt")(txn)
    next(iter(()))


BAD = {
    boom: ZeroDivisionError,
    ledger.write_then_fail: ZeroDivisionError,
    twice_the_same_number: Conflict,
    endless: DeadlineExceeded,
    no_such_table: InvalidInput,
    stop_iteration: (StopIteration, RuntimeError),
}


def test_single_caller_commits_at_once_and_alone(db):
    before = counters(db)
    assert db.transact(ledger.put("x")) == 1
    after = counters(db)
    assert after["transactions"] - before["transactions"] == 1
    assert after["requests"] - before["requests"] == 1


def test_waiting_callers_share_a_commit(db):
    before = counters(db)
    with ledger.turn_held(db):
        threads = [ledger.Caller(db.transact, ledger.put(f"thread {n}")) for n in range(25)]
        ledger.queued(db, 25)
        works = [ledger.put(f"coroutine {n}") for n in range(25)]
        loop = ledger.in_loop(ledger.gathered, db, works)
        ledger.queued(db, 50)
    results = {f"thread {n}": caller.outcome() for n, caller in enumerate(threads)}
    results |= {f"coroutine {n}": result for n, result in enumerate(loop.outcome())}
    # Everybody got the number of the row that is theirs.
    assert {(seq, body) for body, seq in results.items()} == set(ledger.entries(db))
    ledger.assert_dense(db, 50)
    after = counters(db)
    assert after["requests"] - before["requests"] == 51
    # One for the thread that held the turn, and one or two for all the others.
    assert after["transactions"] - before["transactions"] in {2, 3}


@pytest.mark.parametrize("placement", ["auto", "inline", "thread"])
def test_coroutines_share_commits_in_every_placement(path, placement):
    ran_in = set()

    def work(txn):
        ran_in.add(threading.get_ident())
        return ledger.put("x")(txn)

    options = Options(group=GroupLimits(placement=placement))
    with ledger.open_ledger(path, options=options) as db:
        before = counters(db)["transactions"]
        results = asyncio.run(ledger.gathered(db, [work] * 300))
        assert results == list(range(1, 301))
        ledger.assert_dense(db, 300)
        assert counters(db)["transactions"] - before <= 3
    if placement != "auto":
        assert (threading.get_ident() in ran_in) == (placement == "inline")


def test_group_has_limited_requests(path):
    options = Options(group=GroupLimits(group_requests_max=10))
    with ledger.open_ledger(path, options=options) as db:
        before = counters(db)["transactions"]
        asyncio.run(ledger.gathered(db, [ledger.put(n) for n in range(95)]))
        assert counters(db)["transactions"] - before == 10
        ledger.assert_dense(db, 95)


def test_group_has_limited_bytes(path):
    options = Options(group=GroupLimits(group_bytes_max=1_000))

    async def call(db):
        sizes = [400, 400, 400, 1_000, 1, 999, 1]
        calls = [db.transact_async(ledger.put(size), size=size) for size in sizes]
        await asyncio.gather(*calls)

    with ledger.open_ledger(path, options=options) as db:
        before = counters(db)["transactions"]
        asyncio.run(call(db))
        # 400 + 400 | 400 | 1000 | 1 + 999 | 1
        assert counters(db)["transactions"] - before == 5
        assert db.metrics().queued_bytes == 0


@pytest.mark.parametrize("bad", BAD, ids=lambda work: work.__name__)
@pytest.mark.parametrize("kind", ["threads", "coroutines"])
@pytest.mark.parametrize("position", [0, 3, 6])
def test_failing_request_does_not_fail_others_of_group(db, bad, kind, position):
    works = [ledger.put(n) for n in range(6)]
    works.insert(position, bad)
    deadline = {position: 0.3} if bad is endless else {}
    # A constraint that was violated once must not make the next group fail either.
    for round_number in range(1, 3):
        with ledger.turn_held(db):
            if kind == "threads":
                callers = []
                for index, work in enumerate(works):
                    callers.append(ledger.Caller(db.transact, work, deadline_s=deadline.get(index)))
                    ledger.queued(db, index + 1)
            else:
                caller = ledger.in_loop(ledger.gathered, db, works, deadline.items())
                ledger.queued(db, 7)
        if kind == "threads":
            outcomes = []
            for caller in callers:
                try:
                    outcomes.append(caller.outcome())
                except Exception as error:  # noqa: BLE001  (each kind is looked at below)
                    outcomes.append(error)
        else:
            outcomes = caller.outcome()
        assert isinstance(outcomes.pop(position), BAD[bad])
        assert outcomes == [(round_number - 1) * 6 + n for n in range(1, 7)]
        ledger.assert_dense(db, round_number * 6)


def test_every_request_of_group_gets_its_own_error(db):
    works = [ledger.put("a"), *BAD, ledger.put("b"), *BAD, ledger.put("c")]
    deadlines = [(index, 0.3) for index, work in enumerate(works) if work is endless]
    outcomes = asyncio.run(ledger.gathered(db, works, deadlines))
    for work, outcome in zip(works, outcomes, strict=True):
        if work in BAD:
            assert isinstance(outcome, BAD[work])
        else:
            assert isinstance(outcome, int)
    assert ledger.bodies(db) == ["a", "b", "c"]
    ledger.assert_dense(db)


def test_failing_request_costs_no_extra_commit(db):
    before = counters(db)
    with pytest.raises(ZeroDivisionError):
        db.transact(ledger.write_then_fail)
    after = counters(db)
    assert after["transactions"] == before["transactions"]
    assert after["requests"] == before["requests"]
    assert after["rolled_back"] == before["rolled_back"] + 1


def test_error_caught_by_work_does_not_fail_request(db):
    def work(txn):
        ledger.put("kept")(txn)
        try:
            txn.execute("INSERT INTO entry VALUES (1, 'again')")
        except Conflict:
            return "mended"

    outcomes = asyncio.run(ledger.gathered(db, [work, ledger.put("neighbour")]))
    assert outcomes == ["mended", 2]
    assert ledger.bodies(db) == ["kept", "neighbour"]


def undone_by_sqlite_but_caught(txn):
    ledger.put("spoilt")(txn)
    try:
        txn.all(f"INSERT INTO entry SELECT 99, ({ledger.ENDLESS})")
    except DeadlineExceeded:
        # SQLite has undone the whole transaction; what follows must not be written on its own.
        ledger.put("stray")(txn)


def forgives(txn):
    ledger.put("spoilt")(txn)
    try:
        txn.all(f"INSERT INTO entry SELECT 99, ({ledger.ENDLESS})")
    except DeadlineExceeded:
        return


@pytest.mark.parametrize("bad", [undone_by_sqlite_but_caught, forgives])
def test_work_cannot_continue_after_sqlite_rolled_back(db, bad):
    works = [ledger.put("a"), bad, ledger.put("b")]
    outcomes = asyncio.run(ledger.gathered(db, works, [(1, 0.2)]))
    assert isinstance(outcomes[1], FourfoldError)
    assert (outcomes[0], outcomes[2]) == (1, 2)
    assert ledger.bodies(db) == ["a", "b"]
    ledger.assert_dense(db)
    with pytest.raises(FourfoldError), db.write(deadline_s=0.2) as txn:
        bad(txn)
    assert ledger.bodies(db) == ["a", "b"]
    db.transact(ledger.put("c"))
    ledger.assert_dense(db, 3)


def test_work_may_run_more_than_once_but_counts_once(db):
    runs = []

    def counted(txn):
        runs.append(None)
        return ledger.put("once")(txn)

    outcomes = asyncio.run(ledger.gathered(db, [counted, ledger.write_then_fail]))
    assert outcomes[0] == 1
    assert len(runs) > 1
    assert ledger.bodies(db) == ["once"]


def test_scratch_is_lost_when_transaction_ends(db):
    seen = []

    def work(name, fails=False):
        def run(txn):
            seen.append((name, tuple(txn.scratch)))
            ledger.put(name)(txn)
            if fails:
                raise ZeroDivisionError
            txn.scratch[name] = True

        return run

    works = [work("a"), work("bad", fails=True), work("b")]
    asyncio.run(ledger.gathered(db, works))
    # Runs before the last one were undone, and what they left with them.
    assert len(seen) > 3
    assert set(seen[:-1]) == {("a", ()), ("bad", ("a",))}
    # A step that is undone may take more with it than its own, never leave a part.
    assert seen[-1] in (("b", ("a",)), ("b", ()))
    seen.clear()
    db.transact(work("c"))
    with db.write() as txn:
        work("d")(txn)
    assert seen == [("c", ()), ("d", ())]


def test_nested_transact_and_write_are_savepoints(db):
    def work(txn):
        ledger.put("outer")(txn)
        db.transact(ledger.put("nested"))
        with db.write() as step:
            ledger.put("nested too")(step)
        with pytest.raises(ZeroDivisionError):
            db.transact(ledger.write_then_fail)
        return "done"

    assert asyncio.run(ledger.gathered(db, [work, ledger.put("neighbour")])) == ["done", 4]
    assert ledger.bodies(db) == ["outer", "nested", "nested too", "neighbour"]
    with pytest.raises(ZeroDivisionError):
        db.transact(lambda txn: [work(txn), 1 / 0])
    ledger.assert_dense(db, 4)


def test_hooks_run_once_after_commit_before_caller_returns(db):
    ran = []

    def hooked(name, fails=False):
        def work(txn):
            ledger.put(name)(txn)
            txn.after_commit(lambda: ran.append((name, len(ledger.entries(db)))))
            with pytest.raises(ZeroDivisionError), txn.savepoint():
                txn.after_commit(lambda: ran.append("of a step that failed"))
                raise ZeroDivisionError
            if fails:
                raise ZeroDivisionError
            return name

        return work

    works = [hooked("a"), hooked("bad", fails=True), hooked("b")]
    outcomes = asyncio.run(ledger.gathered(db, works))
    assert outcomes[0::2] == ["a", "b"]
    # Both rows were committed when the first hook ran.
    assert ran == [("a", 2), ("b", 2)]
    ran.clear()
    assert db.transact(hooked("c")) == "c"
    assert ran == [("c", 3)]
    ran.clear()
    with db.write() as txn:
        hooked("d")(txn)
        assert ran == []
    assert ran == [("d", 4)]
    ran.clear()
    with pytest.raises(ZeroDivisionError), db.write() as txn:
        hooked("bad", fails=True)(txn)
    with pytest.raises(ZeroDivisionError):
        db.transact(hooked("bad", fails=True))
    assert ran == []


def test_shared_hook_runs_once_per_commit_and_not_after_failure(db):
    ran = []

    def bell():
        ran.append(len(ledger.entries(db)))

    def asking(name, fails=False, writes=True):
        def work(txn):
            if writes:
                ledger.put(name)(txn)
            txn.after_commit_once(bell)
            if fails:
                raise ZeroDivisionError
            return name

        return work

    # One that fails before it wrote does not even spoil the group; its word must not count either.
    works = [ledger.put("a"), asking("bad", fails=True, writes=False), asking("b")]
    asyncio.run(ledger.gathered(db, works))
    assert ran == [2]
    works = [asking("bad", fails=True), asking("c"), asking("d")]
    assert asyncio.run(ledger.gathered(db, works))[1:] == ["c", "d"]
    assert ran == [2, 4]
    with db.write() as txn:
        with pytest.raises(ZeroDivisionError), db.write() as step:
            asking("bad", fails=True)(step)
        asking("e")(txn)
        asking("f")(txn)
    assert ran == [2, 4, 6]


def test_hook_that_raises_fails_only_its_caller(db):
    def hooked(txn):
        txn.after_commit(lambda: 1 / 0)
        return ledger.put("hooked")(txn)

    outcomes = asyncio.run(ledger.gathered(db, [ledger.put("a"), hooked, ledger.put("b")]))
    assert isinstance(outcomes[1], ZeroDivisionError)
    assert outcomes[0::2] == [1, 3]
    ledger.assert_dense(db, 3)


def acknowledged(db, works, noted):
    """Run works of coroutines, and note when each has its result."""

    async def main():
        waiting = [db.transact_async(work) for work in works]
        for future in waiting:
            future.add_done_callback(lambda _: noted.append("result"))
        return await asyncio.gather(*waiting, return_exceptions=True)

    return asyncio.run(main())


def hooked_for_later(name, noted, *, fails=False):
    def work(txn):
        number = ledger.put(name)(txn)
        txn.after_acknowledge(lambda: asyncio.get_running_loop().call_soon(noted.append, name))
        if fails:
            raise ZeroDivisionError
        return number

    return work


@pytest.mark.parametrize("fails", [False, True])
def test_acknowledge_hooks_run_after_all_callers_have_results(db, fails):
    noted = []
    works = [
        hooked_for_later("a", noted),
        hooked_for_later("b", noted, fails=fails),
        ledger.put("c"),
    ]
    outcomes = acknowledged(db, works, noted)
    assert isinstance(outcomes[1], ZeroDivisionError) == fails
    assert noted == ["result"] * 3 + (["a"] if fails else ["a", "b"])


def test_acknowledge_hooks_run_before_thread_returns(db):
    noted = []

    def work(txn):
        txn.after_acknowledge(lambda: noted.append("later"))
        txn.after_commit(lambda: noted.append("hook"))

    db.transact(work)
    assert noted == ["hook", "later"]
    with db.write() as txn:
        work(txn)
        with pytest.raises(ZeroDivisionError), txn.savepoint():
            work(txn)
            raise ZeroDivisionError
    assert noted == ["hook", "later"] * 2


def test_acknowledge_hook_that_raises_is_only_logged(db, caplog):
    ran = []

    def work(txn):
        txn.after_acknowledge(lambda: 1 / 0)
        txn.after_acknowledge(lambda: ran.append(1))
        return ledger.put("a")(txn)

    assert db.transact(work) == 1
    assert asyncio.run(ledger.gathered(db, [work])) == [2]
    assert ran == [1, 1]
    assert [record.getMessage() for record in caplog.records].count(
        f"{db.path}: a hook failed after its commit was acknowledged"
    ) == 2
