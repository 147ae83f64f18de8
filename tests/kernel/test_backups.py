"""Backups: consistent while writers go on, verified, and never half visible."""

from __future__ import annotations

import hashlib
import json
import threading

import ledger
import pytest

from fourfold._version import __version__
from fourfold.errors import (
    AlreadyExists,
    CorruptData,
    ForeignFile,
    FourfoldError,
    FutureFormat,
    NotFound,
    StorageError,
)
from fourfold.kernel import (
    Options,
    failpoints,
    inspection,
    read_sidecar,
    sqlite_version,
    verify_backup,
)
from support.faulty_disk import FaultyDisk


def filled(path, count=10):
    db = ledger.open_ledger(path)
    with db.write() as txn:
        for n in range(count):
            ledger.put(f"{n} " + "x" * 500)(txn)
    return db


@pytest.fixture
def copy(path, tmp_path):
    """A backup of ten entries; the database that it came from is closed."""
    with filled(path) as db:
        db.backup(tmp_path / "copy.db")
    return tmp_path / "copy.db"


def facts(copy):
    return json.loads(copy.with_name(copy.name + ".json").read_text())


def rewrite(copy, **changes):
    note = copy.with_name(copy.name + ".json")
    note.write_text(json.dumps(facts(copy) | changes))


def visible(folder):
    return sorted(each.name for each in folder.iterdir())


def test_backup_sidecar_describes_the_copy(path, tmp_path):
    with filled(path) as db:
        sidecar = db.backup(tmp_path / "copy.db")
        with db.read() as snapshot:
            identity = snapshot.value("SELECT value FROM kernel_meta WHERE key = 'database_id'")
    data = (tmp_path / "copy.db").read_bytes()
    assert facts(tmp_path / "copy.db") == {
        "format": 1,
        "file": "copy.db",
        "database_id": identity,
        "model": "plain",
        "schema_version": 1,
        "sequences": {"entry": 10},
        "size": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "created_at": sidecar.created_at,
        "sqlite_version": sqlite_version(),
        "fourfold_version": __version__,
    }
    assert read_sidecar(tmp_path / "copy.db") == sidecar == verify_backup(tmp_path / "copy.db")


def test_backup_is_a_standalone_database_file(copy):
    # Without a log beside it, and without needing one: it can lie on read-only media.
    assert copy.read_bytes()[18:20] == b"\x01\x01"
    before = visible(copy.parent)
    with ledger.open_ledger(copy, mode="r") as db:
        ledger.assert_dense(db, 10)
    assert visible(copy.parent) == before


def test_backup_time_is_recorded_in_the_database(path, tmp_path):
    with filled(path) as db:
        assert db.metrics().last_backup_ts is None
        sidecar = db.backup(tmp_path / "copy.db")
        assert db.metrics().last_backup_ts == sidecar.created_at
    with ledger.open_ledger(path, mode="r") as db:
        db.backup(tmp_path / "copy too.db")
        verify_backup(tmp_path / "copy too.db")


def test_backup_reports_progress_up_to_last_page(path, tmp_path):
    seen = []
    with filled(path) as db:
        db.backup(tmp_path / "copy.db", lambda done, total: seen.append((done, total)))
    assert seen
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1] > 0


def test_backup_during_writes_is_one_consistent_state(path, tmp_path, monkeypatch):
    # Small steps, so that many commits fall between the first page and the last.
    monkeypatch.setattr("fourfold.kernel.backup.BACKUP_PAGES_PER_STEP", 1)
    with filled(path, 200) as db:
        written = threading.Event()
        stop = threading.Event()

        def write():
            while not stop.is_set():
                with db.write() as txn:
                    # Rows that belong together, and old pages that change.
                    ledger.put("y" * 500)(txn)
                    ledger.put("y" * 500)(txn)
                    txn.execute("UPDATE entry SET body = 'z' WHERE seq % 10 = ?", (db_round(txn),))
                written.set()

        def db_round(txn):
            return txn.value(ledger.ENTRY.read) % 10

        def wait_for_a_commit(_done, _total):
            written.clear()
            assert written.wait(60)

        writer = ledger.Caller(write)
        try:
            sidecars = [
                db.backup(tmp_path / f"copy{n}.db", wait_for_a_commit if n == 0 else None)
                for n in range(4)
            ]
        finally:
            stop.set()
            writer.outcome()
        assert db.sequence(ledger.ENTRY) > sidecars[0].sequences["entry"]
    for n, sidecar in enumerate(sidecars):
        verify_backup(tmp_path / f"copy{n}.db")
        with ledger.open_ledger(tmp_path / f"copy{n}.db", mode="r") as db:
            ledger.assert_dense(db, sidecar.sequences["entry"])
            assert sidecar.sequences["entry"] % 2 == 0
    reached = [sidecar.sequences["entry"] for sidecar in sidecars]
    assert reached == sorted(reached)


def test_backup_never_replaces_a_file(path, tmp_path):
    (tmp_path / "copy.db").write_text("precious")
    with filled(path) as db:
        with pytest.raises(AlreadyExists):
            db.backup(tmp_path / "copy.db")
        with pytest.raises(AlreadyExists):
            db.backup(path)
        db.transact(ledger.put("x"))
    assert (tmp_path / "copy.db").read_text() == "precious"


def test_backup_goes_into_a_new_folder(path, tmp_path):
    with filled(path) as db:
        db.backup(tmp_path / "a" / "b" / "copy.db")
    verify_backup(tmp_path / "a" / "b" / "copy.db")


def test_backup_is_refused_below_a_file(path, tmp_path):
    (tmp_path / "file").write_text("")
    with filled(path) as db, pytest.raises(StorageError, match="not a folder"):
        db.backup(tmp_path / "file" / "copy.db")


@pytest.mark.parametrize("point", ["kernel.backup.copied", "kernel.backup.renamed"])
@pytest.mark.parametrize("action", ["raise", "full"])
def test_failed_backup_leaves_no_files_and_can_be_repeated(path, tmp_path, point, action):
    folder = tmp_path / "backups"
    with filled(path) as db:
        failpoints.arm(point, action)
        with pytest.raises(StorageError, match=point):
            db.backup(folder / "copy.db")
        assert visible(folder) == []
        db.backup(folder / "copy.db")
    assert visible(folder) == ["copy.db", "copy.db.json"]
    verify_backup(folder / "copy.db")


def test_backup_interrupted_in_progress_leaves_no_files(path, tmp_path):
    def interrupt(_done, _total):
        raise KeyboardInterrupt

    folder = tmp_path / "backups"
    with filled(path) as db:
        with pytest.raises(KeyboardInterrupt):
            db.backup(folder / "copy.db", interrupt)
        assert visible(folder) == []
        db.transact(ledger.put("x"))


def test_leftovers_of_interrupted_backup_are_harmless(path, tmp_path):
    for name in (".copy.db.partial", ".copy.db.partial-journal", ".copy.db.json.partial"):
        (tmp_path / name).write_bytes(b"leftover" * 1000)
    with filled(path) as db:
        db.backup(tmp_path / "copy.db")
    verify_backup(tmp_path / "copy.db")
    assert [name for name in visible(tmp_path) if "partial" in name] == []


def test_backup_of_corrupt_database_fails_and_leaves_no_files(path, tmp_path):
    filled(path, 200).close()
    damage_a_table_page(path)
    with ledger.open_ledger(path, sequences=()) as db, pytest.raises(CorruptData):
        db.backup(tmp_path / "backups" / "copy.db")
    assert visible(tmp_path / "backups") == []


def damage_a_table_page(path):
    data = bytearray(path.read_bytes())
    at = data.rindex(b"x" * 500) // 4096 * 4096
    data[at : at + 200] = bytes(200)
    path.write_bytes(data)


def flip(copy, at):
    data = bytearray(copy.read_bytes())
    data[at] ^= 1
    copy.write_bytes(data)


@pytest.mark.parametrize("at", [0, 30, 100, 5000, -1])
def test_verification_finds_a_flipped_bit(copy, at):
    flip(copy, at)
    with pytest.raises(CorruptData, match="SHA-256"):
        verify_backup(copy)
    flip(copy, at)
    verify_backup(copy)


@pytest.mark.parametrize("change", [lambda data: data[:-4096], lambda data: data + b"\x00"])
def test_verification_finds_a_wrong_size(copy, change):
    copy.write_bytes(change(copy.read_bytes()))
    with pytest.raises(CorruptData, match=r"expected \d+ bytes, found"):
        verify_backup(copy)


def test_copy_without_sidecar_is_incomplete(copy):
    copy.with_name("copy.db.json").unlink()
    with pytest.raises(NotFound, match="incomplete"):
        verify_backup(copy)


def test_sidecar_without_a_copy_is_not_a_backup(copy):
    copy.unlink()
    with pytest.raises(NotFound, match="the copy is missing"):
        verify_backup(copy)


def test_sidecar_of_newer_format_is_refused(copy):
    rewrite(copy, format=2, a_field_of_the_future=[1, 2, 3])
    with pytest.raises(FutureFormat, match="format 2"):
        verify_backup(copy)


@pytest.mark.parametrize(
    "text",
    [b"", b"not json", b"[]", b"{}", b'{"format": "1"}', b'{"format": 1}', b"\xff\xfe"],
)
def test_invalid_sidecar_is_corrupt(copy, text):
    copy.with_name("copy.db.json").write_bytes(text)
    with pytest.raises(CorruptData, match="sidecar"):
        verify_backup(copy)


@pytest.mark.parametrize(
    "change",
    [
        {"sequences": {"entry": 9}},
        {"sequences": {"entry": 11}},
        {"schema_version": 2},
        {"database_id": "0" * 32},
        {"model": "streams"},
        {"unknown": 1},
    ],
    ids=str,
)
def test_verification_finds_sidecar_of_another_database(copy, change):
    rewrite(copy, **change)
    with pytest.raises(CorruptData):
        verify_backup(copy)


def test_verification_checks_integrity_beside_checksum(copy):
    damage_a_table_page(copy)
    data = copy.read_bytes()
    rewrite(copy, sha256=hashlib.sha256(data).hexdigest(), size=len(data))
    with pytest.raises(CorruptData):
        verify_backup(copy)


def test_foreign_database_with_a_sidecar_is_not_a_backup(copy):
    copy.unlink()
    ledger.edit(copy, "CREATE TABLE theirs (a)")
    data = copy.read_bytes()
    rewrite(copy, sha256=hashlib.sha256(data).hexdigest(), size=len(data))
    with pytest.raises(FourfoldError) as caught:
        verify_backup(copy)
    assert isinstance(caught.value, ForeignFile)


def test_inspection_backs_up_database_beside_its_writer(path, tmp_path):
    with filled(path) as db:
        sidecar = inspection.back_up(path, tmp_path / "copy.db")
        assert sidecar.sequences == {"entry": 10}
        db.transact(ledger.put("x"))
    assert verify_backup(tmp_path / "copy.db") == sidecar


def test_backup_works_after_writer_failed(path, tmp_path):
    with (
        FaultyDisk() as disk,
        ledger.open_ledger(
            path, vfs=disk.name, profile=ledger.QUICK.with_(synchronous="FULL")
        ) as db,
    ):
        db.transact(ledger.put("x"))
        disk.fail("sync", "-wal", times=1)
        with pytest.raises(StorageError):
            db.transact(ledger.put("y"))
        assert db.health().state == "failed"
        assert db.backup(tmp_path / "copy.db").sequences == {"entry": 1}
    verify_backup(tmp_path / "copy.db")


def test_backup_does_not_need_a_free_reader(path, tmp_path):
    with ledger.open_ledger(path, options=Options(readers_max=1)) as db, db.read():
        db.backup(tmp_path / "copy.db")
    verify_backup(tmp_path / "copy.db")
