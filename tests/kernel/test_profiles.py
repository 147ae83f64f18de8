"""Profiles: what each promises is what SQLite says when it is asked."""

from __future__ import annotations

import apsw
import ledger
import pytest

from fourfold.errors import Conflict, InvalidInput, ReadOnly, StorageError
from fourfold.kernel import (
    SQLITE_VERSION_MIN,
    Database,
    Migration,
    Profile,
    profiles,
    sqlite_version,
)
from support.faulty_disk import FaultyDisk

# page_size, synchronous (1 NORMAL, 2 FULL), cache_size, mmap_size
PROMISED = {
    "documents": (32_768, 1, -64_000, 268_435_456),
    "streams": (4_096, 2, -16_000, 0),
    "graphs": (4_096, 1, -16_000, 0),
    "sessions": (4_096, 2, -16_000, 0),
    "plain": (4_096, 2, -16_000, 0),
}
ALL = [
    profiles.DOCUMENTS,
    profiles.STREAMS,
    profiles.GRAPHS,
    profiles.SESSIONS,
    profiles.PLAIN,
]


def asked(handle, *names):
    return tuple(handle.value(f"PRAGMA {name}") for name in names)


def test_every_profile_is_tested():
    declared = [each for each in vars(profiles).values() if isinstance(each, Profile)]
    assert declared == ALL
    assert {each.name for each in declared} == set(PROMISED)


@pytest.mark.parametrize("profile", ALL, ids=lambda profile: profile.name)
def test_writer_runs_with_the_pragmas_of_its_profile(profile, path):
    with Database.open(path, profile=profile) as db, db.write() as txn:
        found = asked(txn, "page_size", "synchronous", "cache_size", "mmap_size")
        assert found == PROMISED[profile.name]
        shared = asked(txn, "journal_mode", "foreign_keys", "temp_store", "busy_timeout")
        assert shared == ("wal", 1, 2, 5_000)
        assert asked(txn, "wal_autocheckpoint", "query_only") == (0, 0)


@pytest.mark.parametrize("mode", ["rw", "r"])
def test_background_reads_do_not_map_the_file(mode, path):
    Database.open(path, profile=profiles.DOCUMENTS).close()
    with Database.open(path, profile=profiles.DOCUMENTS, mode=mode) as db:
        with db.read_in_background() as snapshot:
            assert asked(snapshot, "mmap_size", "cache_size") == (0, -64_000)
        with db.read() as snapshot:
            assert asked(snapshot, "mmap_size") == (268_435_456,)
        assert db.metrics().open_readers == 1


def test_integrity_check_does_not_map_the_file(path, monkeypatch):
    mapped = []

    def check(connection, _subject):
        mapped.append(connection.pragma("mmap_size"))
        return []

    monkeypatch.setattr("fourfold.kernel.maintenance.integrity_problems", check)
    with Database.open(path, profile=profiles.DOCUMENTS) as db:
        assert db.integrity_check() == []
    assert mapped == [0]


@pytest.mark.parametrize("profile", ALL, ids=lambda profile: profile.name)
@pytest.mark.parametrize("mode", ["rw", "r"])
def test_readers_run_with_the_pragmas_of_their_profile(profile, mode, path):
    Database.open(path, profile=profile).close()
    page_size, _, cache_size, mmap_size = PROMISED[profile.name]
    with Database.open(path, profile=profile, mode=mode) as db, db.read() as snapshot:
        assert asked(snapshot, "page_size", "cache_size", "mmap_size") == (
            page_size,
            cache_size,
            mmap_size,
        )
        shared = asked(snapshot, "journal_mode", "foreign_keys", "temp_store", "busy_timeout")
        assert shared == ("wal", 1, 2, 5_000)
        assert asked(snapshot, "query_only") == (1,)


@pytest.mark.parametrize("page_size", [512, 1024, 8192, 65_536])
def test_new_file_gets_requested_page_size(page_size, path):
    with ledger.open_ledger(path, profile=ledger.QUICK.with_(page_size=page_size)) as db:
        db.transact(ledger.put("x"))
    # The size is in the header: it was set before the file went into WAL mode.
    header = path.read_bytes()[16:18]
    assert int.from_bytes(header, "big") in {page_size, page_size // 65_536}


def test_existing_file_keeps_its_page_size(path):
    ledger.open_ledger(path).close()
    with ledger.open_ledger(path, profile=ledger.QUICK.with_(page_size=32_768)) as db:
        db.transact(ledger.put("x"))
        with db.read() as snapshot:
            assert asked(snapshot, "page_size") == (4_096,)


@pytest.mark.parametrize("page_size", [0, -4096, 256, 1000, 4095, 131_072])
def test_page_size_that_sqlite_would_ignore_is_refused(page_size):
    with pytest.raises(InvalidInput, match="power of two"):
        Profile("odd", page_size=page_size)


@pytest.mark.parametrize("synchronous", ["EXTRA", "full", "", 2])
def test_unknown_synchronous_mode_is_refused(synchronous):
    with pytest.raises(InvalidInput, match="synchronous"):
        Profile("odd", synchronous=synchronous)


def test_pragma_without_effect_fails_the_open(path):
    # This layer cannot map files into memory, and says so only to those who ask.
    with (
        FaultyDisk() as disk,
        pytest.raises(StorageError, match="expected PRAGMA mmap_size") as caught,
    ):
        Database.open(path, profile=profiles.DOCUMENTS, vfs=disk.name)
    assert "file system" in caught.value.hint
    assert not path.exists()


def test_file_system_without_shared_memory_fails_the_open(path):
    # This layer of SQLite has no shared memory, so the file cannot go into WAL mode.
    with pytest.raises(StorageError, match="journal_mode = 'wal', found 'delete'"):
        Database.open(path, vfs="unix-none")
    assert not path.exists()


def test_existing_file_is_unchanged_when_pragma_fails(path):
    with ledger.open_ledger(path) as db:
        db.transact(ledger.put("x"))
    before = path.read_bytes()
    mapped = ledger.QUICK.with_(mmap_bytes=1 << 20)
    with FaultyDisk() as disk, pytest.raises(StorageError, match="mmap_size"):
        ledger.open_ledger(path, profile=mapped, vfs=disk.name)
    assert path.read_bytes() == before
    ledger.open_ledger(path).close()


@pytest.mark.parametrize("first", ["", "PRAGMA query_only = 0"])
@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO entry VALUES (1, 'x')",
        "DELETE FROM entry",
        "CREATE TABLE other (a)",
        "PRAGMA user_version = 7",
    ],
)
def test_reader_cannot_write(db, first, sql):
    db.transact(ledger.put("kept"))
    with db.read() as snapshot:
        if first:
            snapshot.all(first)
        with pytest.raises(ReadOnly):
            snapshot.all(sql)
    assert ledger.bodies(db) == ["kept"]


def test_misspelled_column_in_double_quotes_is_an_error(db):
    with db.read() as snapshot, pytest.raises(InvalidInput, match="no such column"):
        snapshot.all('SELECT "bodi" FROM entry')
    with pytest.raises(InvalidInput, match="no such column"), db.write() as txn:
        txn.execute('UPDATE entry SET body = "bodi"')
    with pytest.raises(InvalidInput, match="no such column"), db.write() as txn:
        txn.execute('CREATE INDEX odd ON entry ("bodi")')


def test_schema_cannot_be_edited_by_hand(db):
    with db.write() as txn:
        txn.all("PRAGMA writable_schema = ON")
        with pytest.raises(InvalidInput, match="may not be modified"):
            txn.execute("UPDATE sqlite_schema SET sql = 'x'")


def test_foreign_keys_are_enforced(path):
    family = Migration(
        1,
        "family",
        "CREATE TABLE parent (id INTEGER PRIMARY KEY);"
        "CREATE TABLE child (parent INTEGER REFERENCES parent)",
    )
    with Database.open(path, migrations=[family]) as db:
        with pytest.raises(Conflict, match="FOREIGN KEY"), db.write() as txn:
            txn.execute("INSERT INTO child VALUES (1)")
        with db.read() as snapshot:
            assert snapshot.value("SELECT count(*) FROM child") == 0


def test_driver_has_minimum_version():
    assert tuple(map(int, sqlite_version().split("."))) >= SQLITE_VERSION_MIN
    assert apsw.sqlite_lib_version() == sqlite_version()
