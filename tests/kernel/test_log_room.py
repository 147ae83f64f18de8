"""Room in the write-ahead log: zeros ahead of the commits, which are never read as frames."""

from __future__ import annotations

import shutil
import sqlite3
from itertools import pairwise

import ledger
import pytest

from fourfold.errors import DiskFull
from fourfold.kernel import Options, profiles, writer
from support.faulty_disk import FaultyDisk

FRAME = 4096 + 24


@pytest.fixture(autouse=True)
def small_steps(monkeypatch):
    """Room from the fourth page on, so that a few commits meet every case."""
    monkeypatch.setattr("fourfold.kernel.writer.LOG_PREALLOCATE_MIN_BYTES", 4 * FRAME)
    monkeypatch.setattr("fourfold.kernel.writer.LOG_PREALLOCATE_STEP_BYTES", 64 * FRAME)


def log_of(path):
    return path.with_name(path.name + "-wal")


def frames(path):
    """How many pages of the log are written, counted by the zeros after them."""
    return (len(log_of(path).read_bytes().rstrip(b"\0")) - 32 + FRAME - 1) // FRAME


def put_many(db, count):
    return [db.transact(ledger.put(f"entry {number}")) for number in range(count)]


def test_log_synced_grows_ahead_of_its_commits_in_steps(path):
    sizes = []
    with ledger.open_ledger(path, profile=profiles.PLAIN) as db:
        for number in range(300):
            db.transact(ledger.put(number))
            sizes.append(log_of(path).stat().st_size)
        assert sizes[-1] > frames(path) * FRAME
        assert sizes[-1] - frames(path) * FRAME <= writer.LOG_PREALLOCATE_STEP_BYTES
    grown = sum(later > earlier for earlier, later in pairwise(sizes))
    # Without room every one of the commits would make the file longer.
    assert grown < len(sizes) // 4


def test_log_not_synced_at_every_commit_gets_no_room(path):
    with ledger.open_ledger(path, profile=profiles.PLAIN.with_(synchronous="NORMAL")) as db:
        put_many(db, 100)
        assert log_of(path).stat().st_size == 32 + frames(path) * FRAME


def test_preallocated_log_of_killed_process_is_read_completely(path, tmp_path):
    with ledger.open_ledger(path, profile=profiles.PLAIN) as db:
        for count in range(1, 60):
            db.transact(ledger.put(count))
            left = tmp_path / f"left-{count}" / path.name
            left.parent.mkdir()
            for source in (path, log_of(path)):
                shutil.copy(source, left.parent / source.name)
            with ledger.open_ledger(left, profile=profiles.PLAIN) as found:
                assert ledger.bodies(found) == list(range(1, count + 1))
                assert found.transact(ledger.put("after")) == count + 1
                assert found.integrity_check() == []


def test_program_that_writes_beside_us_loses_nothing_to_the_zeros(path):
    """The Python library's own SQLite keeps to the locks, as any program would that a user opens
    their file with.
    """
    with ledger.open_ledger(path, profile=profiles.PLAIN) as db:
        db.transact(lambda txn: txn.execute("CREATE TABLE theirs (n INTEGER, filling BLOB)"))
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("PRAGMA wal_autocheckpoint = 0")
        try:
            for number in range(80):
                db.transact(ledger.put(number))
                for turn in range(number % 4):
                    other.execute("INSERT INTO theirs VALUES (?, ?)", (number, bytes(6000 * turn)))
        finally:
            other.close()
        wanted = [number for number in range(80) for _ in range(number % 4)]
        with db.read() as snapshot:
            assert [n for (n,) in snapshot.all("SELECT n FROM theirs ORDER BY rowid")] == wanted
        left = path.parent / "left"
        left.mkdir()
        for source in (path, log_of(path)):
            shutil.copy(source, left / source.name)
        again = sqlite3.connect(left / path.name)
        assert [n for (n,) in again.execute("SELECT n FROM theirs ORDER BY rowid")] == wanted
        again.close()


def test_restarted_log_overwrites_its_frames(path):
    with ledger.open_ledger(path, profile=profiles.PLAIN) as db:
        put_many(db, 200)
        size = log_of(path).stat().st_size
        db.checkpoint("RESTART")
        put_many(db, 50)
        assert log_of(path).stat().st_size == size


def test_log_that_was_cut_gets_room_again(path):
    with ledger.open_ledger(path, profile=profiles.PLAIN) as db:
        put_many(db, 200)
        db.checkpoint("TRUNCATE")
        assert log_of(path).stat().st_size == 0
        put_many(db, 60)
        assert log_of(path).stat().st_size > 32 + frames(path) * FRAME
        assert len(ledger.bodies(db)) == 260


def test_full_disk_frees_preallocated_space_for_commits(path):
    with FaultyDisk() as disk:
        with ledger.open_ledger(path, profile=profiles.PLAIN, vfs=disk.name) as db:
            while not db._writer._preallocator.needed:
                db.transact(ledger.put("before"))
            size = log_of(path).stat().st_size
            known, cut = len(ledger.bodies(db)), disk.count("truncate", "-wal")
            disk.fail("write", "-wal", how="full", times=1)
            db.transact(ledger.put("after"))
            assert disk.count("truncate", "-wal") == cut + 1
            assert log_of(path).stat().st_size < size + writer.LOG_PREALLOCATE_MIN_BYTES
            put_many(db, 50)
            assert len(ledger.bodies(db)) == known + 51
            # A disk that stays full is an error of the commit.
            disk.fail("write", "-wal", how="full")
            with pytest.raises(DiskFull):
                db.transact(ledger.put("lost"))
            disk.repair()
        with ledger.open_ledger(path) as db:
            assert len(ledger.bodies(db)) == known + 51


@pytest.fixture
def small_log(monkeypatch):
    """A log file that is too long from 64 pages on, and truncated by at most 32 of them."""
    monkeypatch.setattr("fourfold.kernel.maintenance.LOG_FILE_BYTES_MAX", 64 * FRAME)
    monkeypatch.setattr("fourfold.kernel.maintenance.LOG_TRUNCATE_BYTES", 32 * FRAME)


def grow_log(db, path):
    with db.read():
        put_many(db, 400)
        assert log_of(path).stat().st_size > 6 * 64 * FRAME


def shrinkage(db, path, commits):
    """Return by how much each of some commits shortened the file of the log."""
    sizes = [log_of(path).stat().st_size]
    for _ in range(commits):
        db.transact(ledger.put("after"))
        ledger.wait_until(lambda: not db._checkpoint_pending)
        sizes.append(log_of(path).stat().st_size)
    return [before - after for before, after in pairwise(sizes)]


@pytest.mark.parametrize("synchronous", ["FULL", "NORMAL"])
def test_log_that_grew_under_a_long_read_shrinks_in_steps(path, small_log, synchronous):
    profile = profiles.PLAIN.with_(synchronous=synchronous)
    options = Options(checkpoint_bytes=4096 * 16)
    with ledger.open_ledger(path, profile=profile, options=options) as db:
        grow_log(db, path)
        cuts = shrinkage(db, path, 1_500)
        assert max(cuts) <= 32 * FRAME
        assert log_of(path).stat().st_size <= (64 + 32) * FRAME
        assert len(ledger.bodies(db)) == 1_900
        assert db.integrity_check() == []


def test_commit_after_explicit_checkpoint_truncates_one_step(path, small_log):
    with ledger.open_ledger(path, profile=profiles.PLAIN.with_(synchronous="NORMAL")) as db:
        grow_log(db, path)
        for _ in range(60):
            assert not db.checkpoint("PASSIVE").busy
            assert max(shrinkage(db, path, 1)) <= 32 * FRAME
        assert log_of(path).stat().st_size == 64 * FRAME


def test_limit_of_the_log_ends_before_the_next_checkpoint(path, small_log, monkeypatch):
    with ledger.open_ledger(path, profile=profiles.PLAIN.with_(synchronous="NORMAL")) as db:
        put_many(db, 100)
        assert not db.checkpoint("PASSIVE").busy
        db.transact(ledger.put("the log starts over, and its file has a limit"))
        grow_log(db, path)
        cuts = []
        checkpoint_most = db._checkpoint_most

        def checkpoint_and_commit(connection):
            result = checkpoint_most(connection)
            cuts.extend(shrinkage_of_commit(db, path))
            return result

        monkeypatch.setattr(db, "_checkpoint_most", checkpoint_and_commit)
        db.checkpoint_in_background()
        assert max(cuts) <= 32 * FRAME


def shrinkage_of_commit(db, path):
    before = log_of(path).stat().st_size
    db.transact(ledger.put("between"))
    return [before - log_of(path).stat().st_size]
