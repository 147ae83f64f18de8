"""Reads in the background: the log of a database that is written meanwhile stays short."""

from __future__ import annotations

import itertools
import threading

import pytest

from fourfold import limits
from fourfold.kernel import Database, Migration, Options
from fourfold.kernel.maintenance import log_generation
from fourfold.kernel.pauses import Pauses

TABLE = (Migration(1, "t", "CREATE TABLE t (id INTEGER PRIMARY KEY, data BLOB)"),)
WRITTEN = 400


@pytest.fixture
def database(tmp_path):
    with Database.open(tmp_path / "d.sqlite", migrations=TABLE, options=Options()) as database:
        yield database


def write(database):
    database.transact(lambda txn: txn.execute("INSERT INTO t (data) VALUES (zeroblob(100000))"))


def log_bytes(database):
    return database.path.with_name(f"{database.path.name}-wal").stat().st_size


def test_background_reads_do_not_let_the_log_grow(database, monkeypatch):
    monkeypatch.setattr("fourfold.kernel.database.BACKGROUND_LOG_BYTES", limits.MIB)
    for _ in range(WRITTEN):
        with database.read_in_background() as snapshot:
            # The state is fixed before each write, so no checkpoint can reset the log meanwhile.
            write(database)
            assert snapshot.value("SELECT count(*) FROM t") >= 0
    assert database.transactions >= WRITTEN
    assert log_bytes(database) < 20 * limits.MIB


def test_read_in_the_background_has_no_deadline(tmp_path):
    options = Options(transaction_deadline_s=0.0)
    with (
        Database.open(tmp_path / "d.sqlite", migrations=TABLE, options=options) as database,
        database.read_in_background() as snapshot,
    ):
        rows = "WITH n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 300000) "
        assert snapshot.value(rows + "SELECT count(*) FROM n") == 300_000


def test_read_step_pauses_after_its_transaction(database):
    ticks, readers = itertools.count(), []
    database.pauses = Pauses(
        lambda: next(ticks),
        # Every step is long enough for a pause.
        clock=lambda: next(ticks) * 0.01,
        sleep=lambda _: readers.append(database._readers.in_use),
    )
    for _ in range(3):
        with database.read_step() as snapshot:
            assert snapshot.all("SELECT count(*) FROM t") == [(0,)]
            assert list(snapshot.rows("SELECT id FROM t")) == []
    assert len(readers) >= 2
    assert set(readers) == {0}


def test_read_step_does_not_pause_in_transaction_of_its_thread(database, monkeypatch):
    pauses = []
    monkeypatch.setattr(database.pauses, "pause", lambda: pauses.append(1))
    with database.write(), database.read_step():
        pass
    assert pauses == []
    with database.read_step():
        pass
    assert pauses == [1]


def test_read_step_leaves_a_long_log_to_the_checkpointer(database, monkeypatch):
    monkeypatch.setattr("fourfold.kernel.database.BACKGROUND_LOG_BYTES", 0)
    threads, checkpoint = [], database._checkpoint_now

    def checkpoint_now():
        threads.append(threading.current_thread())
        checkpoint()

    monkeypatch.setattr(database, "_checkpoint_now", checkpoint_now)
    for _ in range(3):
        write(database)
        with database.read_step() as snapshot:
            assert snapshot.value("SELECT count(*) FROM t")
    assert threading.current_thread() not in threads


@pytest.mark.parametrize("read", ["read_in_background", "read_step"])
def test_reader_in_another_process_waits_for_the_writer(database, read, monkeypatch):
    monkeypatch.setattr("fourfold.kernel.database.BACKGROUND_LOG_BYTES", 0)
    write(database)
    naps = []

    def nap(seconds):
        naps.append(seconds)
        if len(naps) == 3:
            database.checkpoint("RESTART")
            write(database)

    with Database.open(database.path, migrations=TABLE, mode="r") as other:
        monkeypatch.setattr("fourfold.kernel.database.time.sleep", nap)
        with getattr(other, read)() as snapshot:
            assert snapshot.value("SELECT count(*) FROM t") == 2
    assert len(naps) == 3


def test_log_generation_changes_when_log_restarts(database):
    write(database)
    before = log_generation(database.path, 0)
    write(database)
    assert log_generation(database.path, 0) == before
    database.checkpoint("RESTART")
    write(database)
    assert log_generation(database.path, 0) not in {before, None}
    assert log_generation(database.path, 2**40) is None
