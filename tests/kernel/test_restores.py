"""Restores: whole or not at all, never lowering a sequence, never mixing in what was there."""

from __future__ import annotations

import apsw
import ledger
import pytest

from fourfold.errors import (
    CorruptData,
    ForeignFile,
    FutureFormat,
    LockTimeout,
    NotFound,
    SequenceRegression,
    StorageError,
    WriterLocked,
)
from fourfold.kernel import Database, Migration, Sequence, failpoints, holder, inspection

restore = inspection.restore


def grown(path, count, body="x"):
    """The ledger at `path`, closed, with `count` more entries."""
    with ledger.open_ledger(path) as db:
        for _ in range(count):
            db.transact(ledger.put(body))


@pytest.fixture
def copy(path, tmp_path):
    """A backup of three entries; the ledger itself is there, closed, with the same three."""
    grown(path, 3, "old")
    return backed_up(path, tmp_path / "backups" / "copy.db")


def backed_up(path, copy):
    with ledger.open_ledger(path, mode="r") as db:
        db.backup(copy)
    return copy


def replaced(path):
    """The databases that restores put aside."""
    found = path.parent.glob(f"{path.name}.replaced-*")
    return sorted(each for each in found if not each.name.endswith(("-wal", "-shm", "-journal")))


def leftovers(path):
    return [each.name for each in path.parent.iterdir() if "restoring" in each.name]


def assert_holds(path, bodies):
    with ledger.open_ledger(path) as db:
        assert ledger.bodies(db) == bodies
        ledger.assert_dense(db)
        assert db.integrity_check() == []


def test_backup_is_restored_to_an_empty_path(copy, tmp_path):
    target = tmp_path / "new" / "folder" / "ledger.db"
    sidecar = restore(copy, target)
    assert sidecar.sequences == {"entry": 3}
    assert target.stat().st_mode & 0o777 == 0o600
    assert target.parent.stat().st_mode & 0o777 == 0o700
    assert replaced(target) == []
    assert_holds(target, ["old"] * 3)
    with ledger.open_ledger(target) as db:
        assert db.transact(ledger.put("next")) == 4


def test_restore_over_same_state_keeps_the_old_file(copy, path):
    before = ledger.content(path)
    restore(copy, path)
    (kept,) = replaced(path)
    assert ledger.content(kept) == before
    assert_holds(path, ["old"] * 3)


def test_backup_is_restored_over_an_older_state(copy, path, tmp_path):
    grown(path, 4, "new")
    newer = backed_up(path, tmp_path / "backups" / "newer.db")
    path.unlink()
    restore(copy, path)
    restore(newer, path)
    assert_holds(path, ["old"] * 3 + ["new"] * 4)
    assert len(replaced(path)) == 1


def test_restore_that_lowers_a_sequence_is_refused(copy, path):
    grown(path, 1, "newer")
    before = path.read_bytes()
    for _ in range(2):
        with pytest.raises(SequenceRegression, match="'entry' is at 4, the backup at 3") as caught:
            restore(copy, path)
        assert "--advance" in caught.value.hint
        assert path.read_bytes() == before
        assert (replaced(path), leftovers(path)) == ([], [])
        assert holder(path) is None
    assert_holds(path, ["old"] * 3 + ["newer"])


def test_restore_sees_sequences_only_in_the_log(copy, path, tmp_path):
    live = ledger.open_ledger(path)
    live.transact(ledger.put("newer"))
    # As a crash would leave them: the file, and a log that was never folded back.
    crashed = tmp_path / "crashed" / "ledger.db"
    crashed.parent.mkdir()
    for suffix in ("", "-wal"):
        source = path.with_name(path.name + suffix)
        crashed.with_name(crashed.name + suffix).write_bytes(source.read_bytes())
    live.close()
    with pytest.raises(SequenceRegression, match="is at 4"):
        restore(copy, crashed)
    assert_holds(crashed, ["old"] * 3 + ["newer"])


def test_restore_with_advance_continues_above_target(copy, path):
    grown(path, 4, "newer")
    restore(copy, path, advance=True)
    with ledger.open_ledger(path) as db:
        assert ledger.bodies(db) == ["old"] * 3
        assert db.sequence(ledger.ENTRY) == 7
        assert db.transact(ledger.put("next")) == 8
        assert db.integrity_check() == []
    (kept,) = replaced(path)
    with ledger.open_ledger(kept, mode="r") as db:
        assert ledger.bodies(db) == ["old"] * 3 + ["newer"] * 4


def test_restore_with_advance_never_lowers_a_sequence(copy, path, tmp_path):
    grown(path, 4)
    newer = backed_up(path, tmp_path / "backups" / "newer.db")
    target = tmp_path / "elsewhere.db"
    restore(copy, target)
    restore(newer, target, advance=True)
    with ledger.open_ledger(target) as db:
        ledger.assert_dense(db, 7)


def test_restore_does_not_lower_counter_of_model(tmp_path):
    own = Sequence(
        "own",
        read="SELECT seq FROM counter",
        claim="UPDATE counter SET seq = seq + ?1 RETURNING seq",
        advance="UPDATE counter SET seq = max(seq, ?1)",
        seed="INSERT INTO counter VALUES (0)",
    )
    table = Migration(1, "own", "CREATE TABLE counter (seq INTEGER)")
    path, copy = tmp_path / "own.db", tmp_path / "copy.db"
    with Database.open(path, migrations=[table], sequences=[own]) as db:
        db.transact(lambda txn: txn.claim(own, 5))
        db.backup(copy)
        db.transact(lambda txn: txn.claim(own, 5))
    with pytest.raises(SequenceRegression, match="'own' is at 10, the backup at 5"):
        restore(copy, path, [own])
    restore(copy, path, [own], advance=True)
    with Database.open(path, migrations=[table], sequences=[own]) as db:
        assert db.transact(lambda txn: txn.claim(own)) == 11


DAMAGE = {
    "noise": lambda data: bytes(len(data)),
    "cut": lambda data: data[:1500],
    "schema": lambda data: data[:100] + bytes(4096 - 100) + data[4096:],
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_unreadable_target_is_replaced_only_with_flag(copy, path, damage):
    broken = damage(path.read_bytes())
    path.write_bytes(broken)
    with pytest.raises(CorruptData, match="cannot be read") as caught:
        restore(copy, path)
    assert "--replace-unreadable" in caught.value.hint
    assert path.read_bytes() == broken
    assert replaced(path) == []
    restore(copy, path, replace_unreadable=True)
    (kept,) = replaced(path)
    assert kept.read_bytes() == broken
    assert_holds(path, ["old"] * 3)


def test_target_without_counter_is_replaced_only_with_flag(copy, path):
    ledger.edit(path, "DELETE FROM kernel_sequence")
    with pytest.raises(CorruptData, match="is missing"):
        restore(copy, path)
    restore(copy, path, replace_unreadable=True)
    assert_holds(path, ["old"] * 3)


def test_target_without_kernel_tables_is_replaced_only_with_flag(copy, path):
    ledger.edit(path, "DROP TABLE kernel_meta")
    with pytest.raises(CorruptData, match="cannot be read"):
        restore(copy, path)
    restore(copy, path, replace_unreadable=True)
    assert_holds(path, ["old"] * 3)


@pytest.mark.parametrize("replace", [False, True])
def test_foreign_target_is_refused_unchanged(copy, tmp_path, replace):
    target = tmp_path / "theirs.db"
    ledger.edit(target, "CREATE TABLE theirs (a)")
    before = target.read_bytes()
    with pytest.raises(ForeignFile, match="not replaced"):
        restore(copy, target, replace_unreadable=replace)
    assert target.read_bytes() == before


def test_another_fourfold_database_is_not_replaced(copy, tmp_path):
    target = tmp_path / "other.db"
    grown(target, 1, "other")
    with pytest.raises(ForeignFile, match="another database") as caught:
        restore(copy, target, advance=True)
    assert "Move it away" in caught.value.hint
    assert_holds(target, ["other"])


def test_empty_target_is_replaced(copy, tmp_path):
    target = tmp_path / "empty.db"
    target.touch()
    restore(copy, target)
    assert_holds(target, ["old"] * 3)


def test_target_open_for_writing_is_refused(copy, path):
    with ledger.open_ledger(path) as db:
        with pytest.raises(WriterLocked):
            restore(copy, path)
        with pytest.raises(WriterLocked):
            inspection.check_restore(copy, path)
        db.transact(ledger.put("next"))
    assert_holds(path, ["old"] * 3 + ["next"])


@pytest.mark.parametrize("replace", [False, True])
def test_target_in_use_by_reader_is_refused_as_busy(copy, path, monkeypatch, replace):
    monkeypatch.setattr("fourfold.limits.BUSY_TIMEOUT_MS", 20)
    # A log that cannot be folded back, because a reader of somewhere else needs it.
    stranger = apsw.Connection(str(path))
    stranger.wal_autocheckpoint(0)
    stranger.execute("UPDATE entry SET body = 'changed'")
    stranger.execute("BEGIN")
    stranger.execute("SELECT * FROM entry").fetchall()
    with pytest.raises(LockTimeout) as caught:
        restore(copy, path, replace_unreadable=replace)
    assert caught.value.retryable
    assert (replaced(path), leftovers(path)) == ([], [])
    stranger.close()
    restore(copy, path)
    assert_holds(path, ["old"] * 3)


def stale_log(path):
    """The bytes of a write-ahead log that belongs to the ledger at `path`."""
    with ledger.open_ledger(path) as db:
        db.checkpoint("TRUNCATE")
        for _ in range(20):
            db.transact(ledger.put("stale"))
        return path.with_name(path.name + "-wal").read_bytes()


@pytest.mark.parametrize("file_is_gone", [True, False])
def test_log_of_old_file_is_not_replayed_into_restored_one(copy, tmp_path, file_is_gone):
    target = tmp_path / "target" / "ledger.db"
    restore(copy, target)
    log = stale_log(target)
    side = target.with_name("ledger.db-wal")
    if file_is_gone:
        # The broken file was removed before the restore, but not its log.
        target.unlink()
        side.write_bytes(log)
        restore(copy, target)
    else:
        target.write_bytes(b"\xff" * 8192)
        side.write_bytes(log)
        restore(copy, target, replace_unreadable=True)
    assert not side.exists()
    assert_holds(target, ["old"] * 3)


def hot_journal(tmp_path, copy):
    """The bytes of a rollback journal that SQLite would play back into a file like `copy`."""
    scratch = tmp_path / "scratch.db"
    scratch.write_bytes(copy.read_bytes())
    connection = apsw.Connection(str(scratch))
    connection.execute("BEGIN; UPDATE entry SET body = 'played back'; COMMIT")
    connection.pragma("cache_size", 1)
    connection.pragma("cache_spill", 1)
    connection.execute("BEGIN IMMEDIATE; DELETE FROM entry")
    connection.executemany(
        "INSERT INTO entry VALUES (?, zeroblob(3000))", ((n,) for n in range(9, 60))
    )
    journal = scratch.with_name("scratch.db-journal").read_bytes()
    connection.execute("ROLLBACK")
    connection.close()
    assert journal.startswith(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7")
    return journal


def test_journal_of_interrupted_restore_is_not_replayed(copy, path, tmp_path):
    grown(path, 1, "newer")
    journal = hot_journal(tmp_path, copy)
    path.with_name(".ledger.db.restoring-journal").write_bytes(journal)
    restore(copy, path, advance=True)
    with ledger.open_ledger(path) as db:
        assert ledger.bodies(db) == ["old"] * 3
        assert db.sequence(ledger.ENTRY) == 4
        assert db.integrity_check() == []
    assert leftovers(path) == []


def test_journal_of_old_file_is_not_replayed(copy, path, tmp_path):
    journal = hot_journal(tmp_path, copy)
    path.unlink()
    path.with_name("ledger.db-journal").write_bytes(journal)
    restore(copy, path)
    assert_holds(path, ["old"] * 3)


@pytest.mark.parametrize("action", ["raise", "full"])
def test_restore_that_fails_before_the_swap_leaves_the_old_file(copy, path, action):
    before = path.read_bytes()
    failpoints.arm("kernel.restore.copied", action)
    with pytest.raises(StorageError, match=r"kernel\.restore\.copied"):
        restore(copy, path)
    assert path.read_bytes() == before
    assert (replaced(path), leftovers(path)) == ([], [])
    assert holder(path) is None
    restore(copy, path)
    assert_holds(path, ["old"] * 3)


def test_restore_that_fails_during_swap_leaves_old_file(copy, path):
    grown(path, 2, "newer")
    failpoints.arm("kernel.restore.kept", "raise")
    with pytest.raises(StorageError, match=r"kernel\.restore\.kept"):
        restore(copy, path, advance=True)
    assert leftovers(path) == []
    assert holder(path) is None
    assert_holds(path, ["old"] * 3 + ["newer"] * 2)


def test_restore_that_fails_after_swap_leaves_the_backup(copy, path):
    failpoints.arm("kernel.restore.renamed", "raise")
    with pytest.raises(StorageError, match=r"kernel\.restore\.renamed"):
        restore(copy, path)
    assert leftovers(path) == []
    assert len(replaced(path)) == 1
    assert holder(path) is None
    assert_holds(path, ["old"] * 3)


def test_restore_that_fails_on_an_empty_path_leaves_nothing(copy, tmp_path):
    target = tmp_path / "new" / "ledger.db"
    failpoints.arm("kernel.restore.copied", "raise")
    with pytest.raises(StorageError):
        restore(copy, target)
    assert [each.name for each in target.parent.iterdir()] == ["ledger.db.lock"]


def test_backup_that_does_not_verify_is_not_restored(copy, path):
    before = path.read_bytes()
    data = bytearray(copy.read_bytes())
    data[-1] ^= 1
    copy.write_bytes(data)
    with pytest.raises(CorruptData, match="SHA-256"):
        restore(copy, path)
    copy.with_name("copy.db.json").write_text('{"format": 99}')
    with pytest.raises(FutureFormat):
        restore(copy, path)
    copy.with_name("copy.db.json").unlink()
    with pytest.raises(NotFound):
        restore(copy, path)
    assert path.read_bytes() == before
    assert (replaced(path), leftovers(path)) == ([], [])


def test_check_restore_changes_nothing(copy, path, tmp_path):
    inspection.check_restore(copy, path)
    inspection.check_restore(copy, tmp_path / "nowhere.db")
    grown(path, 1)
    with pytest.raises(SequenceRegression):
        inspection.check_restore(copy, path)
    inspection.check_restore(copy, path, advance=True)
    assert_holds(path, ["old"] * 3 + ["x"])


def test_backup_and_restore_keep_every_row(path, tmp_path):
    odd = Migration(2, "odd", "CREATE TABLE odd (a, b, c, d, e); CREATE INDEX odd_a ON odd (a, b)")
    with ledger.open_ledger(path, migrations=[ledger.SCHEMA, odd]) as db:
        with db.write() as txn:
            for n in range(500):
                txn.execute(
                    "INSERT INTO odd VALUES (?, ?, ?, ?, ?)",
                    (n, n / 7, f"é{n}\x00", bytes([n % 256]) * (n * 7 % 9000), None),
                )
        db.backup(tmp_path / "copy.db")
        # The note of the backup itself is the one difference.
        with db.write() as txn:
            txn.execute("DELETE FROM kernel_meta WHERE key = 'last_backup_ts'")
    restore(tmp_path / "copy.db", tmp_path / "restored.db")
    assert ledger.content(tmp_path / "restored.db") == ledger.content(path)
