"""Backups before migrations: taken, verified, refused without room, dropped with what they hold."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import ledger
import pytest

import fourfold
from fourfold.errors import DiskFull, MigrationFailed, StorageError
from fourfold.kernel import Database, Migration, failpoints, inspection, verify_backup
from fourfold.models.documents import GcPolicy
from fourfold.models.model import model

FIRST = Migration(1, "first", "CREATE TABLE a (x)")
SECOND = Migration(2, "second", "DELETE FROM a")
BROKEN = Migration(2, "broken", "DELETE FROM a; SELECT no_such_function()")
SOURCE = Path(__file__).parents[2] / "src"


def open_at(path, *migrations, **options):
    return Database.open(path, profile=ledger.QUICK, migrations=migrations, **options)


def fill(path):
    with open_at(path, FIRST) as db, db.write() as txn:
        txn.execute("INSERT INTO a VALUES ('one')")


def backups_of(path):
    return sorted((path.parent / "backups" / "migrations" / path.name).glob("*.sqlite"))


def test_migration_of_a_file_with_data_takes_a_verified_backup(path):
    fill(path)
    with open_at(path, FIRST, SECOND) as db, db.read() as snapshot:
        assert snapshot.all("SELECT x FROM a") == []
    (copy,) = backups_of(path)
    assert verify_backup(copy).schema_version == 1
    path.unlink()
    inspection.restore(copy, path)
    with open_at(path, FIRST) as db, db.read() as snapshot:
        assert snapshot.all("SELECT x FROM a") == [("one",)]


def test_backup_is_taken_once_for_each_migration(path):
    fill(path)
    for _ in range(2):
        open_at(path, FIRST, SECOND).close()
    assert len(backups_of(path)) == 1


def test_file_without_data_is_migrated_without_a_backup(path):
    open_at(path, FIRST).close()
    open_at(path, FIRST, SECOND).close()
    assert backups_of(path) == []


def test_failed_attempts_leave_one_backup(path):
    fill(path)
    for _ in range(3):
        with pytest.raises(MigrationFailed):
            open_at(path, FIRST, BROKEN)
    (copy,) = backups_of(path)
    assert verify_backup(copy).schema_version == 1
    assert len(list(copy.parent.iterdir())) == 2


def test_failed_migration_leaves_the_backup_and_the_file(path):
    fill(path)
    with pytest.raises(MigrationFailed):
        open_at(path, FIRST, BROKEN)
    assert len(backups_of(path)) == 1
    with open_at(path, FIRST) as db, db.read() as snapshot:
        assert snapshot.all("SELECT x FROM a") == [("one",)]


def test_migration_is_refused_when_space_is_short(path, monkeypatch):
    fill(path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1))
    with pytest.raises(DiskFull, match="the backup before its migration needs") as caught:
        open_at(path, FIRST, SECOND)
    assert "was not changed" in caught.value.hint
    assert backups_of(path) == []
    monkeypatch.undo()
    with open_at(path, FIRST) as db, db.read() as snapshot:
        assert snapshot.all("SELECT x FROM a") == [("one",)]


def test_disk_that_fails_during_the_backup_stops_the_migration(path):
    fill(path)
    failpoints.arm("kernel.backup.copied", "raise")
    with pytest.raises(StorageError):
        open_at(path, FIRST, SECOND)
    failpoints.disarm()
    with open_at(path, FIRST) as db, db.read() as snapshot:
        assert snapshot.all("SELECT x FROM a") == [("one",)]


KILLED = """
import sys
from dataclasses import replace
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_migration_backups import FIRST, SECOND, open_at
open_at(Path(sys.argv[1]), FIRST, SECOND)
"""


def kill_at(path, point):
    script = KILLED.format(tests=str(Path(__file__).parent))
    child = subprocess.run(
        [sys.executable, "-c", script, str(path)],
        env={"FOURFOLD_FAULTS": f"{point}=kill", "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        check=False,
    )
    assert child.returncode == -9, child.stderr


@pytest.mark.parametrize(
    "point",
    [
        "kernel.backup.copied",
        "kernel.backup.renamed",
        "kernel.migration.backed_up",
        "kernel.migration.before",
        "kernel.migration.after",
    ],
)
def test_process_killed_during_a_migration_loses_nothing(path, point):
    fill(path)
    kill_at(path, point)
    with open_at(path, FIRST) as db, db.read() as snapshot:
        assert snapshot.all("SELECT x FROM a") == [("one",)]
    open_at(path, FIRST, SECOND).close()
    for copy in backups_of(path):
        if copy.with_name(copy.name + ".json").exists():
            assert verify_backup(copy).schema_version == 1
    assert any(copy.with_name(copy.name + ".json").exists() for copy in backups_of(path))


@pytest.mark.parametrize("point", ["kernel.backup.copied", "kernel.backup.renamed"])
def test_dropping_removes_what_a_killed_backup_left(path, point):
    fill(path)
    kill_at(path, point)
    folder = path.parent / "backups" / "migrations" / path.name
    assert any(b"one" in left.read_bytes() for left in folder.iterdir())
    with open_at(path, FIRST) as db:
        db.drop_migration_backups()
    assert not folder.exists()


def test_next_backup_replaces_what_a_killed_one_left(path):
    fill(path)
    kill_at(path, "kernel.backup.copied")
    open_at(path, FIRST, SECOND).close()
    (copy,) = backups_of(path)
    assert sorted(left.name for left in copy.parent.iterdir()) == [copy.name, f"{copy.name}.json"]


def test_dropping_removes_the_backups_of_this_file_only(path, tmp_path):
    other = path.with_name("other.db")
    for each in (path, other):
        fill(each)
        open_at(each, FIRST, SECOND).close()
    with open_at(path, FIRST, SECOND) as db:
        assert db.drop_migration_backups() == 1
        assert db.drop_migration_backups() == 0
    assert backups_of(path) == []
    assert len(backups_of(other)) == 1


def test_backups_older_than_limit_are_dropped_at_next_open(path):
    fill(path)
    open_at(path, FIRST, SECOND).close()
    (copy,) = backups_of(path)
    for file in (copy, copy.with_name(copy.name + ".json")):
        file.rename(file.with_name(file.name.replace(copy.stem[3:], "20200101T000000000000")))
    open_at(path, FIRST, SECOND).close()
    assert backups_of(path) == []


# What models delete


def add_migration(monkeypatch, name):
    """Give the first kind of database of a model one more migration, for the store."""
    described = model(name)
    first, *others = described.kinds
    extra = Migration(len(first.migrations) + 1, "extra", "CREATE TABLE extra (x)")
    later = replace(first, migrations=(*first.migrations, extra))
    changed = replace(described, kinds=(later, *others))
    monkeypatch.setattr(f"fourfold.store.store.{name.upper()}", changed)


def copies_in(root):
    return sorted((root / "backups" / "migrations").rglob("v*.sqlite"))


def delete_stream(store):
    store.streams.delete("s")


def purge_session(store):
    store.sessions.delete_session("s")
    store.sessions.gc(grace_s=0)


@pytest.mark.parametrize(
    ("name", "create", "delete"),
    [
        (
            "streams",
            lambda store: store.streams.create("s", "text/plain", body=b"x"),
            delete_stream,
        ),
        (
            "sessions",
            lambda store: store.sessions.create_session({"id": "s"}),
            purge_session,
        ),
    ],
)
def test_deletion_removes_the_backups_that_still_hold_it(
    tmp_path, monkeypatch, name, create, delete
):
    root = tmp_path / "store"
    with fourfold.open(root) as store:
        create(store)
    add_migration(monkeypatch, name)
    with fourfold.open(root) as store:
        getattr(store, name)
        assert len(copies_in(root)) == 1
        delete(store)
        assert copies_in(root) == []


def test_gc_of_space_removes_backups_that_still_hold_it(tmp_path, monkeypatch):
    did = "did:web:a.example"
    with fourfold.open(tmp_path / "store") as store:
        for number in range(9):
            store.space(did).set("e", {"n": number})
    add_migration(monkeypatch, "documents")
    with fourfold.open(tmp_path / "store") as store:
        space = store.space(did)
        assert len(copies_in(tmp_path / "store")) == 1
        space.gc(GcPolicy(keep_seqs=2))
        assert copies_in(tmp_path / "store") == []


def test_backup_and_verify_of_a_store_leave_migration_backups_out(tmp_path, monkeypatch):
    root = tmp_path / "store"
    with fourfold.open(root) as store:
        store.streams.create("s", "text/plain", body=b"x")
    add_migration(monkeypatch, "streams")
    with fourfold.open(root) as store:
        assert store.streams.info("s").next_offset == 1
        report = store.backup(tmp_path / "copy")
    assert report.databases == 1
    assert not (tmp_path / "copy" / "backups").exists()
