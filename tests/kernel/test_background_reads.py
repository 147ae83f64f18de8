"""Reads in the background: the log of a database that is written meanwhile stays short."""

from __future__ import annotations

import pytest

from fourfold import limits
from fourfold.kernel import Database, Migration, Options
from fourfold.kernel.maintenance import log_generation

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


def test_reader_in_another_process_waits_for_the_writer(database, monkeypatch):
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
        with other.read_in_background() as snapshot:
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
