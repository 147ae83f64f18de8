"""Migrations: in order, once, all or nothing, and never on a database that is not understood."""

from __future__ import annotations

import sys

import ledger
import pytest

from fourfold.errors import (
    DiskFull,
    FormatError,
    FutureFormat,
    InvalidInput,
    MigrationFailed,
    StorageError,
)
from fourfold.kernel import Database, Migration, Sequence, failpoints, load_migrations

FIRST = Migration(1, "first", "CREATE TABLE a (x); INSERT INTO a VALUES ('one')")
SECOND = Migration(2, "second", "ALTER TABLE a ADD COLUMN y; UPDATE a SET y = x || '!'")
THIRD = Migration(3, "third", "CREATE TABLE b AS SELECT y FROM a")


def open_at(path, *migrations, **changes):
    return Database.open(path, profile=ledger.QUICK, migrations=migrations, **changes)


def test_migrations_run_in_the_order_of_their_numbers(path):
    with open_at(path, THIRD, FIRST, SECOND) as db, db.read() as snapshot:
        assert snapshot.all("SELECT * FROM b") == [("one!",)]
        assert snapshot.all("SELECT version, name, checksum FROM schema_migrations") == [
            (each.version, each.name, each.checksum) for each in (FIRST, SECOND, THIRD)
        ]


def test_later_migrations_run_on_what_is_there(path):
    with open_at(path, FIRST) as db, db.write() as txn:
        txn.execute("INSERT INTO a VALUES ('two')")
    with open_at(path, FIRST, SECOND) as db, db.read() as snapshot:
        assert snapshot.all("SELECT * FROM a") == [("one", "one!"), ("two", "two!")]


def test_opening_again_changes_nothing(path):
    open_at(path, FIRST, SECOND).close()
    before = ledger.content(path)
    for _ in range(2):
        open_at(path, FIRST, SECOND).close()
    assert ledger.content(path) == before


@pytest.mark.parametrize(
    "migrations",
    [
        [SECOND],
        [FIRST, THIRD],
        [FIRST, FIRST],
        [FIRST, Migration(1, "other", "SELECT 1")],
        [Migration(0, "zero", "SELECT 1"), FIRST],
        [Migration(-1, "minus", "SELECT 1")],
    ],
    ids=["starts late", "hole", "twice", "same number", "zero", "negative"],
)
def test_missing_or_repeated_number_is_refused_before_file_exists(path, migrations):
    with pytest.raises(InvalidInput, match="expected migration"):
        open_at(path, *migrations)
    assert not path.exists()


def test_changed_text_of_applied_migration_is_refused(path):
    open_at(path, FIRST).close()
    before = path.read_bytes()
    changed = Migration(1, "first", FIRST.sql.replace("one", "two"))
    with pytest.raises(FormatError, match=r"migration 1 \(first\) ran with a different text"):
        open_at(path, changed)
    with pytest.raises(FormatError, match="a different text"):
        open_at(path, changed, SECOND)
    assert path.read_bytes() == before


def test_comments_and_blank_lines_may_change(path):
    open_at(path, Migration(1, "first", "CREATE TABLE a (\n  x\n);\n")).close()
    mended = "-- What it is for.\n\n   CREATE TABLE a (\r\n-- and this\n\tx\n);"
    open_at(path, Migration(1, "first", mended)).close()


BROKEN = {
    "bad sql": Migration(3, "broken", "CREATE TABLE c (x); INSERT INTO c VALUES (1); SELEC"),
    "constraint": Migration(
        3, "broken", "CREATE TABLE c (x PRIMARY KEY); INSERT INTO c VALUES (1),(1)"
    ),
    "python": Migration(3, "broken", "DELETE FROM a", apply=lambda _txn: 1 / 0),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_migration_that_fails_half_way_leaves_old_version_and_data(path, broken):
    with open_at(path, FIRST) as db, db.write() as txn:
        txn.execute("INSERT INTO a VALUES ('two')")
    before = ledger.content(path)
    # The second one succeeds, and is undone together with the third.
    with pytest.raises(MigrationFailed, match=r"migration 3 \(broken\) failed") as caught:
        open_at(path, FIRST, SECOND, broken)
    assert "previous version" in caught.value.hint
    assert ledger.content(path) == before
    with open_at(path, FIRST) as db, db.read() as snapshot:
        assert snapshot.all("SELECT * FROM a") == [("one",), ("two",)]
        assert snapshot.all("SELECT version FROM schema_migrations") == [(1,)]


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_migration_that_fails_on_a_new_path_leaves_no_database(path, broken):
    with pytest.raises(MigrationFailed):
        open_at(path, FIRST, SECOND, broken)
    assert not path.exists()
    with open_at(path, FIRST, SECOND, THIRD) as db, db.read() as snapshot:
        assert snapshot.all("SELECT * FROM b") == [("one!",)]


@pytest.mark.parametrize("point", ["kernel.migration.before", "kernel.migration.after"])
@pytest.mark.parametrize("hit", [1, 2])
def test_fault_in_a_migration_leaves_the_old_version(path, point, hit):
    open_at(path, FIRST).close()
    before = ledger.content(path)
    failpoints.arm(point, "raise", at=hit)
    with pytest.raises(MigrationFailed, match=point) as caught:
        open_at(path, FIRST, SECOND, THIRD)
    assert isinstance(caught.value.__cause__, StorageError)
    failpoints.disarm()
    assert ledger.content(path) == before
    open_at(path, FIRST, SECOND, THIRD).close()


def test_full_disk_in_a_migration_leaves_the_old_version(path):
    open_at(path, FIRST).close()
    before = ledger.content(path)

    def fill(txn):
        txn.all(f"PRAGMA max_page_count = {txn.value('PRAGMA page_count')}")
        txn.execute("INSERT INTO a VALUES (zeroblob(1000000), 1)")

    with pytest.raises(MigrationFailed) as caught:
        open_at(path, FIRST, SECOND, Migration(3, "fill", "", apply=fill))
    assert isinstance(caught.value.__cause__, DiskFull)
    assert ledger.content(path) == before


def test_newer_database_is_refused_unchanged(path):
    open_at(path, FIRST, SECOND, THIRD).close()
    before = path.read_bytes()
    for mode in ("rw", "r"):
        with pytest.raises(FutureFormat, match=r"up to 2, found 3 \(third\)") as caught:
            open_at(path, FIRST, SECOND, mode=mode)
        assert "pip install --upgrade" in caught.value.hint
    with pytest.raises(FutureFormat):
        open_at(path)
    assert path.read_bytes() == before


def test_history_with_gap_is_refused(path):
    open_at(path, FIRST, SECOND, THIRD).close()
    ledger.edit(path, "DELETE FROM schema_migrations WHERE version = 2")
    with pytest.raises(FormatError, match="migration 2 is missing in the history"):
        open_at(path, FIRST, SECOND, THIRD)


def test_reader_refuses_database_with_pending_migrations(path):
    open_at(path, FIRST).close()
    with pytest.raises(FormatError, match="1 migrations are pending") as caught:
        open_at(path, FIRST, SECOND, mode="r")
    assert "for writing" in caught.value.hint


def test_function_may_do_what_sql_cannot(path):
    def spell(txn):
        for (x,) in txn.all("SELECT x FROM a"):
            txn.execute("UPDATE a SET y = ? WHERE x = ?", (x[::-1], x))

    second = Migration(2, "spell", SECOND.sql, apply=spell)
    with open_at(path, FIRST, second) as db, db.read() as snapshot:
        assert snapshot.all("SELECT * FROM a") == [("one", "eno")]
    # What a function did is part of history: it does not run again.
    with open_at(path, FIRST, Migration(2, "spell", SECOND.sql, apply=lambda _txn: 1 / 0)):
        pass


def test_sequences_of_a_new_version_are_seeded_with_it(path):
    open_at(path, FIRST).close()
    counter = Sequence.named("later")
    with open_at(path, FIRST, SECOND, sequences=[counter]) as db:
        assert db.transact(lambda txn: txn.claim(counter)) == 1


def test_failing_migration_does_not_seed_sequences(path):
    open_at(path, FIRST).close()
    before = ledger.content(path)
    with pytest.raises(MigrationFailed):
        open_at(path, FIRST, SECOND, BROKEN["bad sql"], sequences=[Sequence.named("later")])
    assert ledger.content(path) == before


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package on disk, to be filled with migration files."""
    folder = tmp_path / "some_model" / "migrations"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    sys.modules.pop("some_model", None)


def test_migration_files_are_loaded_in_order(package):
    (package / "0002_second.sql").write_text(SECOND.sql)
    (package / "0001_first_of_all.sql").write_text(FIRST.sql)
    (package / "README.md").write_text("Not a migration.")
    found = load_migrations("some_model")
    assert [(each.version, each.name) for each in found] == [(1, "first_of_all"), (2, "second")]
    assert found[0].checksum == FIRST.checksum


@pytest.mark.parametrize("name", ["first.sql", "_first.sql", "0001.sql", "x1_first.sql"])
def test_migration_file_with_another_name_is_refused(package, name):
    (package / name).write_text("SELECT 1")
    with pytest.raises(InvalidInput, match=r"must be NNNN_name\.sql"):
        load_migrations("some_model")


def test_migration_files_with_one_number_are_refused(package):
    (package / "0001_first.sql").write_text("SELECT 1")
    (package / "0001_other.sql").write_text("SELECT 1")
    with pytest.raises(InvalidInput, match="expected migration 2"):
        load_migrations("some_model")
