"""Snapshots and transactions: what is seen when, and what an error leaves."""

# ruff: noqa: PT012  (the block of a transaction that fails is what is under test)

from __future__ import annotations

import asyncio
import gc

import apsw
import ledger
import pytest

from fourfold.errors import (
    Busy,
    Closed,
    Conflict,
    DeadlineExceeded,
    InvalidInput,
    LockTimeout,
    Refused,
)
from fourfold.kernel import Options, profiles


def test_reader_sees_only_commits_before_its_start(db):
    db.transact(ledger.put("first"))
    with db.read() as before:
        db.transact(ledger.put("second"))
        assert before.all("SELECT body FROM entry") == [("first",)]
        with db.read() as after:
            assert after.all("SELECT body FROM entry") == [("first",), ("second",)]
        assert before.all("SELECT body FROM entry") == [("first",)]


def test_read_transaction_is_fixed_at_start_of_block(db):
    with db.read() as snapshot:
        db.transact(ledger.put("later"))
        assert snapshot.value("SELECT count(*) FROM entry") == 0


def test_uncommitted_rows_are_not_visible(db):
    with db.write() as txn:
        ledger.put("draft")(txn)
        assert txn.value("SELECT count(*) FROM entry") == 1
        assert ledger.entries(db) == []
        assert db.sequence(ledger.ENTRY) == 0
        assert ledger.Caller(ledger.entries, db).outcome() == []
    assert ledger.bodies(db) == ["draft"]


def test_exception_in_block_rolls_back(db):
    db.transact(ledger.put("kept"))
    with pytest.raises(ZeroDivisionError), db.write() as txn:
        ledger.put("undone")(txn)
        txn.execute("CREATE TABLE undone (a)")
        raise ZeroDivisionError
    assert ledger.bodies(db) == ["kept"]
    with db.read() as snapshot:
        assert not snapshot.all("SELECT * FROM sqlite_schema WHERE name = 'undone'")
    db.transact(ledger.put("next"))
    ledger.assert_dense(db, 2)


def test_caught_failure_of_nested_write_keeps_outer_rows(db):
    with db.write() as txn:
        ledger.put("outer")(txn)
        with pytest.raises(ZeroDivisionError), db.write() as inner:
            ledger.put("inner")(inner)
            raise ZeroDivisionError
        ledger.put("outer again")(txn)
    assert ledger.bodies(db) == ["outer", "outer again"]
    ledger.assert_dense(db)


def test_uncaught_failure_of_nested_write_leaves_nothing(db):
    with pytest.raises(ZeroDivisionError), db.write() as txn:
        ledger.put("outer")(txn)
        with db.write() as inner:
            ledger.put("inner")(inner)
            raise ZeroDivisionError
    assert ledger.entries(db) == []
    assert db.sequence(ledger.ENTRY) == 0


def test_nested_write_is_committed_with_outer_one(db):
    with db.write():
        with db.write() as inner:
            ledger.put("inner")(inner)
        assert ledger.entries(db) == []
    assert ledger.bodies(db) == ["inner"]


def test_writes_nest_and_each_level_can_fail_alone(db):
    def descend(depth):
        with db.write() as txn:
            ledger.put(f"before {depth}")(txn)
            if depth < 20:
                try:
                    descend(depth + 1)
                except ZeroDivisionError:
                    ledger.put(f"caught {depth}")(txn)
            if depth % 2:
                raise ZeroDivisionError

    descend(0)
    assert ledger.bodies(db) == ["before 0", "caught 0"]
    ledger.assert_dense(db)


def test_transact_inside_write_is_a_savepoint(db):
    with pytest.raises(ZeroDivisionError), db.write():
        assert db.transact(ledger.put("step")) == 1
        assert ledger.entries(db) == []
        raise ZeroDivisionError
    assert ledger.entries(db) == []
    with db.write() as txn:
        ledger.put("outer")(txn)
        with pytest.raises(Conflict):
            db.transact(lambda step: step.execute("INSERT INTO entry VALUES (1, 'again')"))
        assert db.transact(ledger.put("step")) == 2
    assert ledger.bodies(db) == ["outer", "step"]


def test_savepoint_can_fail_without_its_transaction(db):
    with db.write() as txn:
        ledger.put("kept")(txn)
        with pytest.raises(Conflict), txn.savepoint():
            ledger.put("undone")(txn)
            txn.execute("INSERT INTO entry VALUES (1, 'again')")
        with txn.savepoint() as step:
            ledger.put("kept too")(step)
    assert ledger.bodies(db) == ["kept", "kept too"]
    ledger.assert_dense(db)


def test_failed_statement_keeps_earlier_statements(db):
    with db.write() as txn:
        ledger.put("kept")(txn)
        with pytest.raises(Conflict):
            txn.execute("INSERT INTO entry VALUES (2, 'x'), (1, 'again')")
        assert txn.value("SELECT count(*) FROM entry") == 1
    assert ledger.bodies(db) == ["kept"]


def test_read_transaction_is_closed_after_its_block(db):
    with db.read() as snapshot:
        pass
    for use in (snapshot.all, snapshot.one, snapshot.value, lambda sql: list(snapshot.rows(sql))):
        with pytest.raises(Closed, match="has ended"):
            use("SELECT 1")


def test_transaction_is_closed_after_its_block(db):
    with db.write() as committed:
        pass
    with pytest.raises(ZeroDivisionError), db.write() as undone:
        raise ZeroDivisionError
    kept = []
    db.transact(kept.append)
    with pytest.raises(ZeroDivisionError):
        db.transact(lambda txn: [kept.append(txn), 1 / 0])
    for txn in (committed, undone, *kept):
        for use in (
            lambda txn=txn: txn.value("SELECT 1"),
            lambda txn=txn: txn.execute("DELETE FROM entry"),
            lambda txn=txn: txn.execute_many("DELETE FROM entry WHERE seq = ?", [(1,)]),
            lambda txn=txn: txn.insert_many("entry", ("seq", "body"), [(1, "x")]),
            lambda txn=txn: txn.claim(ledger.ENTRY),
            lambda txn=txn: txn.changes,
        ):
            with pytest.raises(Closed, match="has ended"):
                use()
        with pytest.raises(Closed, match="has ended"), txn.savepoint():
            pass
    assert ledger.entries(db) == []


def test_unfinished_rows_do_not_affect_later_reads(path):
    with ledger.open_ledger(path, options=Options(readers_max=1)) as db:
        for body in range(3):
            db.transact(ledger.put(body))
        with db.read() as snapshot:
            half_read = snapshot.rows("SELECT seq FROM entry")
            assert next(half_read) == (1,)
        db.transact(ledger.put("new"))
        with db.read() as snapshot:
            assert snapshot.value("SELECT count(*) FROM entry") == 4
        with pytest.raises(Closed, match="has ended"):
            next(half_read)


def test_unfinished_rows_of_writer_do_not_block_checkpoint(db):
    for body in range(3):
        db.transact(ledger.put(body))
    with db.write() as txn:
        half_read = txn.rows("SELECT seq FROM entry")
        assert next(half_read) == (1,)
        half_read_too = txn.rows("SELECT seq FROM entry")
        next(half_read_too)
    assert not db.checkpoint("TRUNCATE").busy
    with pytest.raises(Closed, match="has ended"):
        next(half_read)


def test_rows_are_in_order_and_can_be_left_early(db):
    for body in range(10):
        db.transact(ledger.put(body))
    with db.read() as snapshot:
        for seq, body in snapshot.rows("SELECT seq, body FROM entry ORDER BY seq"):
            assert seq == body + 1
            if seq == 4:
                break
        assert list(snapshot.rows("SELECT seq FROM entry WHERE seq > :least", {"least": 8})) == [
            (9,),
            (10,),
        ]


def test_runaway_read_is_ended_by_its_deadline(db):
    with pytest.raises(DeadlineExceeded) as caught, db.read(deadline_s=0.05) as snapshot:
        snapshot.value(ledger.ENDLESS)
    assert caught.value.retryable
    # The connection is fit for the next reader.
    assert ledger.entries(db) == []


@pytest.mark.parametrize("verb", ["SELECT", "INSERT"])
def test_runaway_statement_is_ended_by_deadline_and_rolled_back(db, verb):
    endless = (
        ledger.ENDLESS if verb == "SELECT" else f"INSERT INTO entry SELECT 99, ({ledger.ENDLESS})"
    )

    def work(txn):
        ledger.put("undone")(txn)
        txn.all(endless)

    with pytest.raises(DeadlineExceeded):
        db.transact(work, deadline_s=0.05)
    with pytest.raises(DeadlineExceeded), db.write(deadline_s=0.05) as txn:
        work(txn)
    with pytest.raises(DeadlineExceeded):
        ledger.transact_in_loop(db, work, deadline_s=0.05)
    assert ledger.entries(db) == []
    assert db.sequence(ledger.ENTRY) == 0
    db.transact(ledger.put("next"))
    ledger.assert_dense(db, 1)


def test_default_deadline_applies(path):
    options = Options(transaction_deadline_s=0.05)
    with ledger.open_ledger(path, options=options) as db:
        with pytest.raises(DeadlineExceeded):
            db.transact(lambda txn: txn.all(ledger.ENDLESS))
        with pytest.raises(DeadlineExceeded), db.read() as snapshot:
            snapshot.all(ledger.ENDLESS)


def test_deadline_that_has_passed_writes_nothing(db):
    for deadline_s in (0, -1):
        with pytest.raises(DeadlineExceeded):
            db.transact(ledger.put("late"), deadline_s=deadline_s)
        with pytest.raises(Busy), db.write(deadline_s=deadline_s) as txn:
            ledger.put("late")(txn)
    assert ledger.entries(db) == []


@pytest.mark.parametrize("wait", ["write", "transact", "transact_async", "checkpoint"])
def test_writer_that_waits_too_long_gets_retryable_error(path, wait):
    options = Options(transaction_deadline_s=0.1)
    with ledger.open_ledger(path, options=options) as db:

        def write():
            with db.write() as txn:
                ledger.put("late")(txn)

        calls = {
            "write": write,
            "transact": lambda: db.transact(ledger.put("late")),
            "transact_async": lambda: ledger.transact_in_loop(db, ledger.put("late")),
            "checkpoint": db.checkpoint,
        }
        with ledger.turn_held(db, "first"):
            with pytest.raises(Busy) as caught:
                ledger.Caller(calls[wait]).outcome()
            assert caught.value.retryable
        assert ledger.bodies(db) == ["first"]
        db.transact(ledger.put("second"), deadline_s=30)
        ledger.assert_dense(db, 2)


def test_lock_of_foreign_connection_is_a_lock_timeout(db, path):
    stranger = apsw.Connection(str(path))
    stranger.execute("BEGIN IMMEDIATE")
    with pytest.raises(LockTimeout) as caught:
        db.transact(ledger.put("x"))
    assert caught.value.retryable
    assert str(path) in caught.value.message
    with pytest.raises(LockTimeout), db.write():
        pass
    with pytest.raises(LockTimeout):
        ledger.transact_in_loop(db, ledger.put("x"))
    assert db.metrics().counters["busy_total"] == 3
    stranger.execute("ROLLBACK")
    stranger.close()
    db.transact(ledger.put("x"))
    ledger.assert_dense(db, 1)


def test_readers_do_not_wait_for_the_writer(db):
    db.transact(ledger.put("first"))
    with ledger.turn_held(db, "second"):
        assert ledger.bodies(db) == ["first"]


def test_exhausted_reader_pool_raises_retryable_error(path, monkeypatch):
    monkeypatch.setattr("fourfold.kernel.reader_pool.READER_WAIT_S", 0.05)
    with ledger.open_ledger(path, options=Options(readers_max=2)) as db:
        with db.read(), db.read():
            with pytest.raises(Busy, match="all 2 readers") as caught, db.read():
                pass
            assert caught.value.retryable
            assert caught.value.retry_after
        with db.read(), db.read():
            pass


def test_reader_waits_for_released_connection(path):
    with ledger.open_ledger(path, options=Options(readers_max=1)) as db:
        with db.read():
            waiting = ledger.Caller(ledger.entries, db)
        assert waiting.outcome() == []


def test_invalid_sql_raises_invalid_input_with_database(db, path):
    for sql, params in [
        ("SELEC 1", ()),
        ("SELECT * FROM nowhere", ()),
        ("SELECT ?", ()),
        ("SELECT ?", (1, 2)),
    ]:
        with db.read() as snapshot, pytest.raises(InvalidInput) as caught:
            snapshot.all(sql, params)
        assert str(path) in caught.value.message
        with pytest.raises(InvalidInput), db.write() as txn:
            txn.execute(sql, params)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, object, [1], {"a": 1}, "\ud800"], ids=repr)
def test_value_that_cannot_be_stored_is_invalid_input(db, value):
    uses = [
        lambda txn: txn.execute("INSERT INTO entry VALUES (1, ?)", (value,)),
        lambda txn: txn.execute_many("INSERT INTO entry VALUES (?, ?)", [(1, 1), (2, value)]),
        lambda txn: txn.insert_many("entry", ("seq", "body"), [(1, 1), (2, value)]),
        lambda txn: txn.all("SELECT ?", (value,)),
        lambda txn: txn.one("SELECT ?", (value,)),
        lambda txn: list(txn.rows("SELECT ?", (value,))),
    ]
    for use in uses:
        with pytest.raises(InvalidInput, match="cannot store"):
            db.transact(use)
    assert ledger.entries(db) == []


def test_closed_database_refuses_everything(path):
    db = ledger.open_ledger(path, profile=profiles.PLAIN)
    db.close()
    db.close()
    for use in (
        lambda: db.transact(ledger.put("x")),
        lambda: ledger.transact_in_loop(db, ledger.put("x")),
        lambda: db.write().__enter__(),
        lambda: db.read().__enter__(),
        db.checkpoint,
        db.vacuum,
        db.analyze,
        db.integrity_check,
        db.make_durable,
        db.metrics,
        lambda: db.backup(path.with_name("copy.db")),
        lambda: db.sequence(ledger.ENTRY),
    ):
        with pytest.raises(Closed):
            use()
    assert not path.with_name("copy.db").exists()


def test_read_transaction_continues_while_database_closes(path):
    db = ledger.open_ledger(path)
    db.transact(ledger.put("x"))
    with db.read() as snapshot:
        db.close()
        assert snapshot.value("SELECT body FROM entry") == "x"
    gc.collect()
    with ledger.open_ledger(path) as again:
        assert ledger.bodies(again) == ["x"]


def test_close_inside_write_of_same_thread_is_refused(db):
    with db.write() as txn:
        ledger.put("x")(txn)
        with pytest.raises(Refused, match="transaction"):
            db.close()
    assert ledger.bodies(db) == ["x"]


def test_read_only_database_refuses_writes(path):
    ledger.open_ledger(path).close()
    with ledger.open_ledger(path, mode="r") as db:
        for use in (
            lambda: db.transact(ledger.put("x")),
            lambda: db.write().__enter__(),
            db.checkpoint,
            db.vacuum,
            db.analyze,
        ):
            with pytest.raises(Refused, match="open read-only"):
                use()
        assert ledger.entries(db) == []


@pytest.mark.timeout(20)
@pytest.mark.parametrize("child", [False, True], ids=["task", "its child"])
def test_write_awaited_inside_own_transaction_is_refused(db, child):
    """Its commit would wait for the end of the transaction, which waits for it."""

    async def write():
        return await db.transact_async(ledger.put("lost"))

    async def write_batched():
        loop = asyncio.get_running_loop()
        db.transact_batched(lambda txn, items: items, "lost", lambda _: None, loop)

    async def write_in_a_thread():
        await asyncio.to_thread(db.transact, ledger.put("lost"))

    async def open_in_a_thread():
        await asyncio.to_thread(db.write().__enter__)

    async def run():
        with db.write() as txn:
            ledger.put("first")(txn)
            for call in (write, write_batched, write_in_a_thread, open_in_a_thread):
                with pytest.raises(Refused, match="inside a transaction of the task"):
                    await (asyncio.create_task(call()) if child else call())
            ledger.put("second")(txn)
        return await db.transact_async(ledger.put("third"))

    assert asyncio.run(run()) == 3
    assert ledger.bodies(db) == ["first", "second", "third"]


@pytest.mark.timeout(20)
def test_write_of_another_task_waits_for_end_of_transaction(db):
    async def other(opened):
        await opened.wait()
        return await db.transact_async(ledger.put("other"))

    async def run():
        opened = asyncio.Event()
        task = asyncio.create_task(other(opened))
        with db.write() as txn:
            ledger.put("first")(txn)
            opened.set()
            for _ in range(3):
                await asyncio.sleep(0)
            assert not task.done()
        return await task

    assert asyncio.run(run()) == 2
    assert ledger.bodies(db) == ["first", "other"]
