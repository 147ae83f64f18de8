"""Children are killed at every fault point of the kernel, and the database is looked at afterwards.

`faults.POINTS` is the list: a point that is added there is killed at here, and one that no workload
reaches fails its test, because the child then ends by itself.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from random import Random

import ledger
import pytest
from kernel_child import (
    FIRST,
    KEYS,
    SCRIPT,
    SEQUENCE,
    Acknowledged,
    Job,
    Workload,
    bodies,
    check_backups,
    check_database,
    check_migrated,
    check_snapshot,
    open_database,
    open_to_read,
    write_one,
)

from fourfold.errors import FormatError
from fourfold.kernel import Database, failpoints, holder, inspection, profiles
from support.crash import Moment, run
from support.properties import THOROUGH, repeats

MIGRATION_POINTS = tuple(point for point in failpoints.POINTS if ".migration." in point)
RESTORE_POINTS = tuple(point for point in failpoints.POINTS if ".restore." in point)
WORK_POINTS = tuple(
    point for point in failpoints.POINTS if point not in {*MIGRATION_POINTS, *RESTORE_POINTS}
)
EVERY_GROUP = ("begin.before", "begin.after", "commit.before", "commit.after", "acknowledge.before")
MANY_HITS = (2, 3, 7, 20, 61, 150) if THOROUGH else (3, 61)
FEW_HITS = (2, 3, 5, 8) if THOROUGH else (3,)


def kill_at(job, point, hit, acknowledged):
    """Run the child of `job` until it dies at that hit of `point`."""
    crash = run(SCRIPT, job.argument(), fault=f"{point}=kill@{hit}")
    assert crash.killed, f"{point} was not reached {hit} times: {crash}"
    return acknowledged.hear(crash.lines)


def work_job(folder, mode="mixture", seed=0, synchronous="FULL"):
    return Job(
        mode,
        str(folder / "log.db"),
        seed=seed,
        synchronous=synchronous,
        checkpoint_pages=12,
        backup=str(folder / "backups"),
    )


def filled(folder, count, synchronous="FULL"):
    """A database with `count` numbers in it, closed; and what was acknowledged of them."""
    job = work_job(folder, "thread", synchronous=synchronous)
    random = Random(count)
    acknowledged = Acknowledged()
    with open_database(job) as db:
        for _ in range(count):
            key, pair = random.choice(KEYS), bodies(random)
            acknowledged.hear([db.transact(lambda txn: write_one(txn, key, pair))])  # noqa: B023
    return job, acknowledged


def sweep(folder, point, hits, mode="mixture", synchronous="FULL"):
    """Kill one child after the other on one database, each at another hit."""
    acknowledged = Acknowledged()
    for seed, hit in enumerate(hits):
        job = work_job(folder, mode, seed, synchronous)
        kill_at(job, point, hit, acknowledged)
        check_database(job, acknowledged, reader_first=bool(acknowledged.entries))
        check_backups(Path(job.backup), acknowledged)


@pytest.mark.parametrize("point", WORK_POINTS)
def test_kill_at_any_failpoint_loses_nothing_acknowledged(tmp_path, point):
    sweep(tmp_path, point, (4,) if ".backup." not in point else (1,))


@pytest.mark.slow
@pytest.mark.parametrize("synchronous", ["FULL", "NORMAL"])
@pytest.mark.parametrize("point", WORK_POINTS)
def test_kills_at_many_hits_of_a_point_lose_nothing_acknowledged(tmp_path, point, synchronous):
    rare = ".backup." in point or ".checkpoint." in point
    sweep(tmp_path, point, FEW_HITS if rare else MANY_HITS, synchronous=synchronous)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["thread", "threads", "coroutines"])
@pytest.mark.parametrize("point", EVERY_GROUP)
def test_kill_around_group_commits_loses_nothing_acknowledged(tmp_path, point, mode):
    sweep(tmp_path, f"kernel.{point}", MANY_HITS, mode)


# What exactly is there


@pytest.mark.parametrize(
    ("point", "there"),
    [
        ("kernel.begin.before", 0),
        ("kernel.begin.after", 0),
        ("kernel.commit.before", 0),
        ("kernel.commit.after", 1),
        ("kernel.acknowledge.before", 1),
    ],
)
def test_commit_decides_if_unacknowledged_request_is_stored(tmp_path, point, there):
    job = work_job(tmp_path, "thread")
    acknowledged = kill_at(job, point, 6, Acknowledged())
    assert sorted(acknowledged.entries) == [1, 2, 3, 4, 5]
    assert check_database(job, acknowledged) == 5 + there


@pytest.mark.parametrize("point", ["kernel.statement.before", "kernel.statement.after"])
@pytest.mark.parametrize("hit", [1, 4, 9])
def test_kill_during_creation_does_not_block_next_open(tmp_path, point, hit):
    creation_in_the_way(tmp_path, point, hit)


@pytest.mark.slow
@pytest.mark.parametrize("point", ["kernel.statement.before", "kernel.statement.after"])
@pytest.mark.parametrize("hit", [2, 3, 5, 6, 7, 8, 10])
def test_kill_at_each_creation_statement_does_not_block_next_open(tmp_path, point, hit):
    creation_in_the_way(tmp_path, point, hit)


def creation_in_the_way(folder, point, hit):
    job, acknowledged = filled(folder / "source", 10)
    copy = folder / "copy.db"
    with open_database(job) as db:
        db.backup(copy)
    new = work_job(folder / "new", "thread")
    kill_at(new, point, hit, Acknowledged())
    with pytest.raises(FormatError, match="creation was interrupted"):
        open_to_read(new.path)
    # A half-created file holds nothing, so a restore may take its place, and so may a new database.
    restored = folder / "restored" / "log.db"
    restored.parent.mkdir()
    for file in (folder / "new").glob("log.db*"):
        (restored.parent / file.name).write_bytes(file.read_bytes())
    inspection.restore(copy, restored, (SEQUENCE,))
    assert check_database(Job("thread", str(restored)), acknowledged) == 10
    assert check_database(new, Acknowledged()) == 0


# Migrations


@pytest.mark.parametrize("point", MIGRATION_POINTS)
@pytest.mark.parametrize("hit", [1, 2, 3])
def test_kill_in_migration_leaves_old_version_intact(tmp_path, point, hit):
    if point == "kernel.migration.backed_up":
        hit = 1  # One backup for all pending migrations.
    job, acknowledged = filled(tmp_path, 30)
    kill_at(Job("migrate", job.path), point, hit, acknowledged)
    with open_to_read(job.path, (FIRST,)) as db, db.read() as snapshot:
        assert check_snapshot(snapshot, acknowledged) == 30
    assert check_migrated(job, acknowledged) == 30


@pytest.mark.slow
@pytest.mark.parametrize("point", ["kernel.statement.before", "kernel.statement.after"])
def test_kill_at_each_migration_statement_leaves_old_version_intact(tmp_path, point):
    job, acknowledged = filled(tmp_path, 30)
    for hit in range(1, 8):
        kill_at(Job("migrate", job.path), point, hit, acknowledged)
        with open_to_read(job.path, (FIRST,)) as db, db.read() as snapshot:
            assert check_snapshot(snapshot, acknowledged) == 30
    assert check_migrated(job, acknowledged) == 30


@pytest.mark.slow
def test_kill_at_any_time_of_migration_leaves_one_version(tmp_path):
    random = Random(3)
    job, acknowledged = filled(tmp_path, 400)
    for _ in range(20):
        run(
            SCRIPT,
            Job("migrate", job.path).argument(),
            kill=Moment(seconds=random.uniform(0, 0.02)),
        )
        version = inspection.inspect(Path(job.path)).schema_version
        assert version in {1, 4}
        if version == 4:
            break
        with open_to_read(job.path, (FIRST,)) as db, db.read() as snapshot:
            check_snapshot(snapshot, acknowledged)
    check_migrated(job, acknowledged)


# Restores


def restore_job(folder, *, killed_before=True):
    """A backup at 20, and a live database that went on to 30 and whose writer was killed."""
    job, acknowledged = filled(folder, 20)
    copy = folder / "copy.db"
    with open_database(job) as db:
        db.backup(copy)
    if killed_before:
        kill_at(work_job(folder, "thread"), "kernel.acknowledge.before", 10, acknowledged)
    return Job("restore", job.path, backup=str(copy), steps=1), acknowledged


def content(path):
    with open_to_read(path) as db, db.read() as snapshot:
        return (
            snapshot.all("SELECT * FROM entry ORDER BY seq, part"),
            snapshot.all("SELECT * FROM mark ORDER BY seq"),
            snapshot.all("SELECT * FROM tally ORDER BY key"),
        )


def check_restored(job, before):
    """The restore can be done again, and goes on above every number that was handed out."""
    target, copy = Path(job.path), Path(job.backup)
    assert holder(target) is None
    inspection.restore(copy, target, (SEQUENCE,), advance=True)
    assert content(target) == content(copy)
    with open_database(job) as db:
        assert db.integrity_check() == []
        line = db.transact(lambda txn: write_one(txn, KEYS[0], (b"a", b"b")))
        assert int(line.split()[1]) == 31
    kept = [path for path in target.parent.glob("log.db.replaced-*") if path.suffix != ".lock"]
    assert any(content(path) == before for path in kept if not path.name.endswith(("-wal", "-shm")))


@pytest.mark.parametrize("point", RESTORE_POINTS)
def test_kill_in_restore_leaves_old_or_new_database(tmp_path, point):
    job, acknowledged = restore_job(tmp_path)
    before = content(job.path)
    kill_at(job, point, 1, Acknowledged())
    if point.endswith(".renamed"):
        assert content(job.path) == content(Path(job.backup))
    else:
        assert content(job.path) == before
        with open_database(job) as db, db.read() as snapshot:
            assert check_snapshot(snapshot, acknowledged) == 30
    check_restored(job, before)


@pytest.mark.parametrize("point", RESTORE_POINTS)
def test_restore_to_new_path_can_be_repeated_after_kill(tmp_path, point):
    job, _ = restore_job(tmp_path / "source", killed_before=False)
    new = Job("restore", str(tmp_path / "new" / "log.db"), backup=job.backup, steps=1)
    kill_at(new, point, 1, Acknowledged())
    inspection.restore(Path(new.backup), Path(new.path), (SEQUENCE,))
    assert content(new.path) == content(Path(new.backup))


@pytest.mark.slow
def test_kill_at_any_time_of_restores_leaves_valid_database(tmp_path):
    random = Random(17)
    job, _ = restore_job(tmp_path)
    before = content(job.path)
    forever = Job("restore", job.path, backup=job.backup)
    for _ in range(repeats(48)):
        moment = Moment(random.randint(0, 5), random.uniform(0, 0.01))
        crash = run(SCRIPT, forever.argument(), kill=moment)
        assert crash.killed, crash
        assert content(job.path) in (before, content(Path(job.backup)))
        with Database.open(
            job.path, profile=profiles.PLAIN, migrations=(FIRST,), sequences=(SEQUENCE,)
        ) as db:
            assert db.integrity_check() == []
            assert db.sequence(SEQUENCE) == 30
    check_restored(job, before)


# The checkpointer


@pytest.fixture
def disarmed():
    yield
    failpoints.disarm()


def test_close_waits_for_background_checkpoint(tmp_path, disarmed):
    job = work_job(tmp_path, "thread")
    begun, finished = threading.Event(), threading.Event()

    def linger(_point):
        begun.set()
        # Long enough for a `close` that does not wait to return first.
        finished.wait(0.3)
        finished.set()

    failpoints.arm("kernel.checkpoint.before", linger)
    db = open_database(job)
    Workload(db, lambda *_: None, steps=40).run("thread")
    assert begun.wait(30)
    db.close()
    assert finished.is_set(), "the checkpointer still has the file open"
    assert not Path(f"{job.path}-wal").exists()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_fork_waits_for_background_checkpoint(tmp_path, disarmed):
    """Or the child may find SQLite's own locks taken by a thread that it does not have."""
    job = work_job(tmp_path, "thread")
    begun, finished = threading.Event(), threading.Event()

    def linger(_point):
        begun.set()
        finished.wait(0.3)
        finished.set()

    with open_database(job) as db:
        failpoints.arm("kernel.checkpoint.before", linger)
        Workload(db, lambda *_: None, steps=40).run("thread")
        assert begun.wait(30)
        child = os.fork()
        if not child:
            os._exit(0 if finished.is_set() else 1)
        assert os.waitpid(child, 0)[1] == 0
        # The parent's checkpointer goes on.
        failpoints.disarm()
        before = db.metrics().counters["checkpoints"]
        Workload(db, lambda *_: None, steps=40).run("thread")
        ledger.wait_until(lambda: db.metrics().counters["checkpoints"] > before)


def test_background_checkpoint_copies_pages_during_open_transaction(tmp_path, disarmed):
    job = work_job(tmp_path, "thread")
    writing, copied = threading.Event(), threading.Event()
    failpoints.arm("kernel.checkpoint.before", lambda _point: writing.wait(30))
    failpoints.arm("kernel.checkpoint.after", lambda _point: copied.set())
    with open_database(job) as db:
        Workload(db, lambda *_: None, steps=40).run("thread")
        before = Path(job.path).stat().st_size
        with db.write() as txn:
            write_one(txn, KEYS[0], (b"a", b"b"))
            writing.set()
            assert copied.wait(30)
            assert Path(job.path).stat().st_size > before
