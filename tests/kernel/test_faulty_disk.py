"""The disk that fails on command fails the chosen calls, and nothing else."""

from __future__ import annotations

import apsw
import pytest

from fourfold.errors import InvalidInput
from support.faulty_disk import FaultyDisk


@pytest.fixture
def disk():
    with FaultyDisk() as disk:
        yield disk


@pytest.fixture
def connection(disk, tmp_path):
    connection = apsw.Connection(str(tmp_path / "some.db"), vfs=disk.name)
    connection.pragma("journal_mode", "WAL")
    connection.pragma("synchronous", "FULL")
    connection.execute("CREATE TABLE t (a)")
    yield connection
    disk.repair()
    connection.close()


def insert(connection):
    connection.execute("INSERT INTO t VALUES (1)")


def rows(connection):
    return connection.execute("SELECT count(*) FROM t").get


def test_faulty_disk_without_faults_works_normally(disk, connection, tmp_path):
    insert(connection)
    plain = apsw.Connection(str(tmp_path / "some.db"))
    assert rows(plain) == 1
    plain.close()
    assert disk.count("write", "-wal") > 0
    assert disk.count("sync", "-wal") > 0


@pytest.mark.parametrize(
    ("operation", "how", "error"),
    [
        ("write", "full", apsw.FullError),
        ("write", "io", apsw.IOError),
        ("sync", "io", apsw.IOError),
    ],
)
def test_armed_operation_fails_until_it_is_repaired(disk, connection, operation, how, error):
    disk.fail(operation, "-wal", how=how)
    for _ in range(2):
        with pytest.raises(error):
            insert(connection)
    disk.repair()
    insert(connection)
    assert rows(connection) == 1


def test_other_files_and_operations_still_work(disk, connection):
    disk.fail("write", "some.db")
    disk.fail("truncate", "-wal")
    insert(connection)
    assert rows(connection) == 1
    with pytest.raises(apsw.IOError):
        connection.wal_checkpoint()


def test_truncation_can_fail(disk, connection):
    insert(connection)
    disk.fail("truncate", "-wal")
    with pytest.raises(apsw.IOError):
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)


def test_failure_can_be_delayed_and_temporary(disk, connection):
    disk.fail("sync", "-wal", after=2, times=1)
    insert(connection)
    insert(connection)
    with pytest.raises(apsw.IOError):
        insert(connection)
    insert(connection)
    assert rows(connection) == 3


@pytest.mark.parametrize(("operation", "how"), [("read", "io"), ("write", "slow")])
def test_unsupported_fault_is_refused(disk, operation, how):
    with pytest.raises(InvalidInput, match="unknown operation or failure"):
        disk.fail(operation, how=how)


def test_two_disks_fail_independently(tmp_path):
    with FaultyDisk() as one, FaultyDisk() as other:
        assert one.name != other.name
        one.fail("write")
        connection = apsw.Connection(str(tmp_path / "a.db"), vfs=other.name)
        connection.execute("CREATE TABLE t (a)")
        connection.close()
    assert one.name not in apsw.vfs_names()
