"""Upkeep: checkpoints, a log that stays small, vacuum, statistics, closing, slow transactions."""

from __future__ import annotations

import logging
import threading
import time

import ledger
import pytest

from fourfold.errors import Busy, InvalidInput, Refused, StorageError
from fourfold.kernel import Options, checkpointer, failpoints, maintenance, profiles
from fourfold.kernel.database import CHECKPOINT_REST_PAGES

PAGE = 4096
FRAME = PAGE + 24


def log_size(db):
    return db.metrics().wal_size_bytes


def test_every_mode_folds_the_log_back(db):
    for n, mode in enumerate(("PASSIVE", "FULL", "RESTART", "TRUNCATE")):
        for _ in range(10):
            db.transact(ledger.put(n))
        assert db.metrics().pending_checkpoint > 0
        done = db.checkpoint(mode)
        assert not done.busy
        assert done.done_pages == done.log_pages
        assert db.metrics().pending_checkpoint == 0
    ledger.assert_dense(db, 40)


def test_truncate_shrinks_the_log_to_nothing(db):
    for n in range(50):
        db.transact(ledger.put(n))
    assert log_size(db) > 50 * FRAME
    db.checkpoint("PASSIVE")
    assert log_size(db) > 50 * FRAME
    db.checkpoint("TRUNCATE")
    assert log_size(db) == 0
    ledger.assert_dense(db, 50)


def test_open_snapshot_keeps_a_checkpoint_from_finishing_and_says_so(db):
    db.transact(ledger.put("before"))
    with db.read() as snapshot:
        for n in range(10):
            db.transact(ledger.put(n))
        for mode in ("PASSIVE", "FULL", "RESTART", "TRUNCATE"):
            assert db.checkpoint(mode).busy, mode
        assert log_size(db) > 0
        # Nothing was taken from under the reader.
        assert snapshot.value("SELECT count(*) FROM entry") == 1
    assert not db.checkpoint("TRUNCATE").busy
    assert log_size(db) == 0
    ledger.assert_dense(db, 11)


@pytest.mark.parametrize("mode", ["", "passive", "NONE", "TRUNCATE; DROP TABLE entry"])
def test_unknown_mode_is_refused(db, mode):
    with pytest.raises(InvalidInput, match="must be one of PASSIVE, FULL, RESTART, TRUNCATE"):
        db.checkpoint(mode)


@pytest.mark.parametrize("use", ["checkpoint", "vacuum", "analyze"])
def test_upkeep_inside_transaction_of_same_thread_is_refused_at_once(db, use):
    with db.write() as txn:
        ledger.put("x")(txn)
        with pytest.raises(Refused, match="inside a transaction"):
            getattr(db, use)()
    with pytest.raises(Refused):
        db.transact(lambda _txn: getattr(db, use)())
    ledger.assert_dense(db, 1)


@pytest.mark.parametrize("point", ["kernel.checkpoint.before", "kernel.checkpoint.after"])
def test_fault_in_a_checkpoint_loses_nothing(db, point):
    db.transact(ledger.put("x"))
    failpoints.arm(point, "raise")
    with pytest.raises(StorageError, match=point):
        db.checkpoint("TRUNCATE")
    db.transact(ledger.put("y"))
    assert not db.checkpoint("TRUNCATE").busy
    ledger.assert_dense(db, 2)


def replace_one_of_twenty(n, body):
    """Work on the same few rows over and over, so that the file itself does not grow."""

    def work(txn):
        txn.execute("INSERT OR REPLACE INTO entry VALUES (?, ?)", (n % 20 + 1, body))

    return work


def test_log_stays_small_under_a_long_load_of_writes(path):
    """20,000 pages go through a log that is folded back every 200."""
    body = b"x" * (10 * PAGE)
    with ledger.open_ledger(path, options=Options(checkpoint_bytes=4096 * 200)) as db:
        for start in range(0, 2_000, 40):
            before = db._metrics.checkpoints
            for n in range(start, start + 40):
                db.transact(replace_one_of_twenty(n, body))
            # The machine may be busy; the checkpointer gets its share of it here.
            ledger.wait_until(lambda before=before: db._metrics.checkpoints > before)
        # The log was restarted each time: it holds what is written between two checkpoints, and
        # not the 20,000 frames that passed through it.
        assert log_size(db) < 2_000 * FRAME
        assert db.integrity_check() == []


def test_checkpoint_of_busy_database_is_retried_without_delaying_others(path, tmp_path):
    """One thread makes the checkpoints of all databases."""
    body = b"x" * (10 * PAGE)
    options = Options(checkpoint_bytes=4096 * 20, transaction_deadline_s=600)
    with (
        ledger.open_ledger(path, options=options) as busy,
        ledger.open_ledger(tmp_path / "other.db", options=options) as other,
    ):
        with busy.write() as txn:
            replace_one_of_twenty(1, body)(txn)
            checkpointer.request(busy)
            for n in range(4):
                other.transact(replace_one_of_twenty(n, body))
            ledger.wait_until(lambda: other._metrics.checkpoints)
            assert not busy._metrics.checkpoints
        for n in range(4):
            busy.transact(replace_one_of_twenty(n, body))
        ledger.wait_until(lambda: busy._metrics.checkpoints)


def test_commits_at_the_end_of_a_checkpoint_request_the_next(path):
    """The writer may pause after them, and the log would stay long until it commits again."""
    body = b"x" * (10 * PAGE)
    with ledger.open_ledger(path, options=Options(checkpoint_bytes=4096 * 200)) as db:

        class CommittingMetrics(type(db._metrics)):
            """Metrics that commit when the first checkpoint is counted, before it has ended."""

            __slots__ = ()

            def __setattr__(self, name, value):
                super().__setattr__(name, value)
                if name == "checkpoints" and value == 1:
                    for n in range(40):
                        db.transact(replace_one_of_twenty(n, body))

        db._metrics.__class__ = CommittingMetrics
        for n in range(40):
            db.transact(replace_one_of_twenty(n, body))
        ledger.wait_until(lambda: db._metrics.checkpoints == 2)
        ledger.wait_until(lambda: db.metrics().pending_checkpoint == 0)


def count_restarts(db):
    """The counter in the header of the log; SQLite adds one whenever it starts at the front."""
    header = db.path.with_name(db.path.name + "-wal").read_bytes()[:32]
    return int.from_bytes(header[12:16], "big")


def test_log_restarts_although_writers_never_pause(path):
    body = b"x" * (5 * PAGE)
    with ledger.open_ledger(path, options=Options(checkpoint_bytes=4096 * 100)) as db:

        def write():
            while db._metrics.checkpoints < 20:
                for n in range(20):
                    db.transact(replace_one_of_twenty(n, body))

        before = count_restarts(db)
        callers = [ledger.Caller(write) for _ in range(4)]
        for caller in callers:
            caller.outcome()
        assert count_restarts(db) - before >= 15
        assert db.integrity_check() == []


def test_most_of_checkpoint_runs_beside_writer(db):
    for n in range(50):
        db.transact(ledger.put(bytes([n]) * PAGE))
    before = db.metrics().db_size_bytes
    with ledger.turn_held(db, "in the middle"):
        checkpointer.request(db)
        # The pages arrive in the file although the writer's turn is taken.
        ledger.wait_until(lambda: db.metrics().db_size_bytes >= before + 50 * PAGE)
        assert db._metrics.checkpoints == 0
    ledger.wait_until(lambda: db._metrics.checkpoints == 1)
    ledger.assert_dense(db, 51)


def test_checkpointer_retries_after_reader_blocked_it(path):
    options = Options(checkpoint_bytes=4096 * 20)
    with ledger.open_ledger(path, options=options) as db:
        db.transact(ledger.put("before"))
        with db.read() as snapshot:
            for n in range(200):
                db.transact(ledger.put(n))
            held = log_size(db)
            assert snapshot.value("SELECT count(*) FROM entry") == 1
        for n in range(400):
            db.transact(ledger.put(n))
            if db.metrics().counters["checkpoints"]:
                break
        ledger.wait_until(lambda: db.metrics().counters["checkpoints"] > 0)
        for n in range(50):
            db.transact(ledger.put(n))
        # The log was restarted in the space that it had, and did not grow on.
        assert log_size(db) < held + 1_000 * FRAME
        ledger.assert_dense(db)


def test_reader_that_holds_checkpoints_back_makes_them_rarer(path, monkeypatch):
    """Each attempt costs time in proportion to the log, and the writer never waits for one."""
    attempts = []
    checkpoint = maintenance.checkpoint

    def note(connection, mode, subject):
        attempts.append(connection)
        return checkpoint(connection, mode, subject)

    monkeypatch.setattr(maintenance, "checkpoint", note)
    step = 2 * CHECKPOINT_REST_PAGES
    with ledger.open_ledger(path, options=Options(checkpoint_bytes=PAGE * step)) as db:
        db.transact(ledger.put("before"))
        with db.read() as snapshot:
            assert snapshot.value("SELECT count(*) FROM entry") == 1
            for n in range(10 * step):
                db.transact(ledger.put(n))
                ledger.wait_until(lambda: not db._checkpoint_pending)
            assert db._connection not in attempts
            assert 1 <= len(attempts) < log_size(db) / (FRAME * step) / 1.5
        for n in range(10 * step):
            db.transact(ledger.put(n))
            if db.metrics().counters["checkpoints"]:
                break
        ledger.wait_until(lambda: db.metrics().counters["checkpoints"] > 0)
        ledger.assert_dense(db)


def test_close_checkpoints_and_leaves_only_the_database(path):
    with ledger.open_ledger(path) as db:
        for n in range(20):
            db.transact(ledger.put(n))
        with db.read():
            pass
    left = sorted(each.name for each in path.parent.iterdir())
    assert left == ["ledger.db", "ledger.db.lock"]
    assert path.stat().st_size % PAGE == 0


def test_close_during_checkpoints_leaves_only_the_database(path):
    for _ in range(15):
        options = Options(checkpoint_bytes=4096 * 2)
        with ledger.open_ledger(path, options=options) as db:
            for n in range(10):
                db.transact(ledger.put(n))
        left = sorted(each.name for each in path.parent.iterdir())
        assert left == ["ledger.db", "ledger.db.lock"]


def test_vacuum_frees_space_and_keeps_all_data(path):
    with ledger.open_ledger(path) as db:
        for _ in range(100):
            db.transact(ledger.put(b"x" * 10_000))
        with db.write() as txn:
            txn.execute("UPDATE entry SET body = 'small' WHERE seq > 1")
        db.checkpoint("TRUNCATE")
        before = db.metrics().db_size_bytes
        assert db.metrics().last_vacuum_ts is None
        db.vacuum()
        db.checkpoint("TRUNCATE")
        assert db.metrics().db_size_bytes < before / 10
        assert db.metrics().last_vacuum_ts is not None
        ledger.assert_dense(db, 100)
        assert db.integrity_check() == []
        assert db.transact(ledger.put("next")) == 101
    # The identity of the file and its page size survive.
    ledger.open_ledger(path).close()


def test_vacuum_is_refused_while_read_transaction_is_open(db):
    db.transact(ledger.put("x"))
    with db.read() as snapshot:
        with pytest.raises(Busy, match="1 read transactions are open") as caught:
            db.vacuum()
        assert caught.value.retryable
        assert snapshot.value("SELECT count(*) FROM entry") == 1
    db.vacuum()


def test_vacuum_waits_for_the_writer(db):
    done = threading.Event()

    def vacuum():
        db.vacuum()
        done.set()

    with ledger.turn_held(db, "x"):
        caller = ledger.Caller(vacuum)
        assert not done.wait(0.05)
    caller.outcome()
    ledger.assert_dense(db, 1)


def test_analyze_stores_planner_statistics(db):
    with db.write() as txn:
        txn.execute("CREATE INDEX by_body ON entry (body)")
        for n in range(100):
            ledger.put(n % 3)(txn)
    db.analyze()
    with db.read() as snapshot:
        assert snapshot.all("SELECT idx FROM sqlite_stat1 WHERE tbl = 'entry'") == [("by_body",)]


def test_slow_transaction_is_logged_without_its_data(path, caplog):
    secret = "a secret that no log may show"
    options = Options(slow_transaction_ms=0.0)
    with ledger.open_ledger(path, options=options) as db:
        with caplog.at_level(logging.WARNING, logger="fourfold.kernel"):
            db.transact(ledger.put(secret))
        assert "slow transaction" in caplog.text
        assert str(path) in caplog.text
        assert secret not in caplog.text
        (first, *_) = db.slow_transactions()
        moment, milliseconds = first
        assert moment.startswith("20")
        assert milliseconds > 0
        assert db.metrics().counters["slow_total"] == len(db.slow_transactions())


def test_list_of_slow_transactions_is_bounded(path):
    options = Options(slow_transaction_ms=0.0)
    with ledger.open_ledger(path, options=options) as db:
        for n in range(300):
            db.transact(ledger.put(n))
        assert len(db.slow_transactions()) == 256
        assert db.metrics().counters["slow_total"] == 300


def test_quick_transaction_is_not_logged_as_slow(path):
    options = Options(slow_transaction_ms=60_000)
    with ledger.open_ledger(path, profile=profiles.PLAIN, options=options) as db:
        db.transact(ledger.put("x"))
        assert db.slow_transactions() == []


def test_is_checkpointing_during_checkpoint(db):
    db.transact(ledger.put("a"))
    seen = []
    failpoints.arm("kernel.checkpoint.after", lambda _point: seen.append(db.is_checkpointing()))
    assert not db.is_checkpointing()
    db.checkpoint()
    assert seen == [True]
    assert not db.is_checkpointing()


def test_is_writing_during_transaction(db):
    assert not db.is_writing()
    with ledger.turn_held(db):
        assert db.is_writing()
    assert not db.is_writing()


def test_processor_time_of_the_writing_thread(db):
    db.transact(ledger.put("here"))
    before = time.thread_time()
    assert before <= db.writer_cpu_seconds() <= time.thread_time()
    ledger.Caller(lambda: db.transact(ledger.put("there"))).outcome()
    # The thread has ended, and the kernel forgets it soon.
    ledger.wait_until(lambda: db.writer_cpu_seconds() is None)
    db.transact(ledger.put("here again"))
    assert db.writer_cpu_seconds() >= before
