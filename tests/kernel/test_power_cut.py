"""Power cuts, on the simulated disk of support.power_cut that forgets what was not synced.

One run of a workload gives many instants at which the power may fail; each instant gives many
states in which a disk may come back. The database is opened on each of them with the real VFS.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from kernel_child import (
    FIRST,
    KEYS,
    LATER,
    SEQUENCE,
    Acknowledged,
    Job,
    Workload,
    check_database,
    check_migrated,
    check_snapshot,
    open_database,
    open_to_read,
    write_one,
)

from fourfold.errors import FormatError, FourfoldError, FutureFormat, NotFound, ReadOnly, Refused
from fourfold.kernel.writer import LogPreallocator
from support.power_cut import DAMAGES, Cut, simulated_disk
from support.properties import repeats

MODES = ("requests", "threads", "coroutines", "mixture")
STEPS = {"requests": 60, "threads": 30, "coroutines": 6, "mixture": 25}


@pytest.fixture
def folder():
    """In memory where that can be had: the disk is simulated, so a real one would only be slow."""
    memory = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as name:
        yield Path(name)


@dataclass(frozen=True)
class Instant:
    """The disk at one instant, and what had been acknowledged before it."""

    cut: Cut
    said: tuple[str, ...]

    @property
    def acknowledged(self):
        return Acknowledged().hear(line for line in self.said if " " in line)


class Recording:
    """Runs actions on a simulated disk and takes an instant at every operation that `at` picks."""

    def __init__(self, folder, synchronous="FULL", checkpoint_pages=1000):
        self.job = Job(
            "recorded",
            str(folder / "log.db"),
            synchronous=synchronous,
            checkpoint_pages=checkpoint_pages,
        )
        self.folder = folder
        self.said = []
        self.instants = []
        folder.mkdir(parents=True, exist_ok=True)

    def say(self, *lines):
        self.said.extend(lines)

    def run(self, action, at=lambda _operation: True):
        with simulated_disk(self.folder) as disk:

            def observe(operation):
                if at(operation):
                    self.instants.append(Instant(disk.cut(), tuple(self.said)))

            disk.observer = observe
            action(disk)
            observe(0)

    def run_workload(self, mode, seed, gap):
        """A workload with an instant every `gap` operations or so."""
        random = Random(f"{seed} {mode}")
        upcoming = iter(_rising(random, gap))
        due = next(upcoming)

        def at(operation):
            nonlocal due
            if operation and operation < due:
                return False
            while operation >= due:
                due = next(upcoming)
            return True

        def action(disk):
            with open_database(self.job, vfs=disk.vfs) as db:
                Workload(db, self.say, seed, STEPS[mode]).run(mode)

        self.run(action, at)


def _rising(random, gap):
    at = 0
    while True:
        at += random.randint(1, 2 * gap)
        yield at


def states(folder, instants, seeds=1, damages=DAMAGES):
    """Every instant in every kind of damage, written out one at a time: (job, instant, damage)."""
    for number, instant in enumerate(instants):
        for damage in damages:
            for seed in range(seeds if damage in {"prefix", "sectors"} else 1):
                place = folder / f"{number}-{damage}-{seed}"
                instant.cut.leave(place, Random(f"{number} {damage} {seed}"), damage)
                yield Job("after", str(place / "log.db")), instant, damage
                shutil.rmtree(place)


def check_full(folder, recording, seeds=1):
    for job, instant, _ in states(folder, recording.instants, seeds):
        check_database(job, instant.acknowledged)


def check_normal(folder, recording, seeds=1):
    """How often something acknowledged above the watermark was lost."""
    lost = 0
    for job, instant, _ in states(folder, recording.instants, seeds):
        everything = instant.acknowledged
        last = check_database(job, everything.up_to(everything.durable))
        lost += last < max(everything.entries, default=0)
    return lost


# The simulation itself


def test_simulated_disk_without_loss_equals_the_real_one(folder):
    # The only checkpoints are the workload's own: one in the background would go on meanwhile.
    recording = Recording(folder / "disk", checkpoint_pages=1_000_000)

    def action(disk):
        with open_database(recording.job, vfs=disk.vfs) as db:
            Workload(db, recording.say, 1, 40).run("requests")
            disk.cut().leave(folder / "copy", Random(1), "kept")
            for name in ("log.db", "log.db-wal"):
                real = (folder / "disk" / name).read_bytes()
                assert (folder / "copy" / name).read_bytes() == real, name

    recording.run(action, at=lambda _: False)


def test_simulation_finds_a_database_that_does_not_sync(folder):
    recording = Recording(folder / "disk", synchronous="OFF", checkpoint_pages=20)
    recording.run_workload("threads", seed=1, gap=150)
    failures = 0
    for job, instant, damage in states(folder, recording.instants):
        try:
            check_database(job, instant.acknowledged)
        except (AssertionError, FourfoldError):
            failures += 1
        else:
            continue
        assert damage != "kept", "what is written in order and kept is whole without syncs too"
    assert failures


# What is promised


@pytest.mark.parametrize("mode", MODES)
def test_full_keeps_acknowledged_writes_through_power_failure(folder, mode):
    recording = Recording(folder / "disk", checkpoint_pages=20)
    recording.run_workload(mode, seed=1, gap=90)
    check_full(folder, recording)


@pytest.mark.parametrize("mode", ["requests", "threads"])
def test_full_keeps_acknowledged_writes_with_preallocated_log(folder, mode, monkeypatch):
    """Zeros that reached the disk, some of them or none, with the frames over them or without."""
    monkeypatch.setattr("fourfold.kernel.writer.LOG_PREALLOCATE_MIN_BYTES", 8_192)
    monkeypatch.setattr("fourfold.kernel.writer.LOG_PREALLOCATE_STEP_BYTES", 65_536)
    recording = Recording(folder / "disk", checkpoint_pages=40)
    made = []
    monkeypatch.setattr(LogPreallocator, "_extend", _counted(LogPreallocator._extend, made))
    recording.run_workload(mode, seed=3, gap=60)
    assert len(made) > 3
    check_full(folder, recording)


def _counted(extend, made):
    def count_and_extend(file, end, step):
        made.append(step)
        extend(file, end, step)

    return staticmethod(count_and_extend)


@pytest.mark.parametrize("mode", ["requests", "mixture"])
def test_normal_keeps_everything_up_to_the_durable_watermark(folder, mode):
    recording = Recording(folder / "disk", "NORMAL", checkpoint_pages=60)
    recording.run_workload(mode, seed=2, gap=90)
    assert recording.instants[-1].acknowledged.durable > 0
    check_normal(folder, recording)


@pytest.mark.slow
@pytest.mark.parametrize("synchronous", ["FULL", "NORMAL"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(repeats(6)))
def test_many_power_failures_lose_nothing_that_was_durable(folder, mode, synchronous, seed):
    pages = Random(f"{mode} {seed}").choice((5, 20, 100, 1000))
    recording = Recording(folder / "disk", synchronous, pages)
    recording.run_workload(mode, seed, gap=60)
    (check_full if synchronous == "FULL" else check_normal)(folder, recording, seeds=3)


def test_only_commits_above_the_watermark_may_be_lost(folder):
    recording = Recording(folder / "disk", "NORMAL")

    def action(disk):
        with open_database(recording.job, vfs=disk.vfs) as db:
            for number in range(1, 41):
                recording.say(db.transact(lambda txn: write_one(txn, KEYS[0], (b"a", b"b"))))
                if number == 20:
                    recording.say(f"durable {db.make_durable()[SEQUENCE.name]}")
                    assert db.durable(SEQUENCE) == 20
            disk.observer(0)

    recording.run(action, at=lambda operation: not operation)
    open_one, closed = recording.instants
    assert open_one.acknowledged.durable == 20
    (lost,) = [
        check_database(job, open_one.acknowledged.up_to(20))
        for job, _, _ in states(folder, [open_one], damages=("lost",))
    ]
    assert lost == 20
    # Closing folds the log into the file, with a sync: from then on all of it is durable.
    for job, instant, _ in states(folder, [closed]):
        assert check_database(job, instant.acknowledged) == 40


def test_commit_during_sync_is_not_durable(folder, monkeypatch):
    recording = Recording(folder / "disk", "NORMAL")

    def action(disk):
        with open_database(recording.job, vfs=disk.vfs) as db:

            def write():
                recording.say(db.transact(lambda txn: write_one(txn, KEYS[0], (b"a", b"b"))))

            def sync_and_write(descriptor, sync=os.fsync):
                sync(descriptor)
                write()

            write()
            with monkeypatch.context() as patch:
                patch.setattr(os, "fsync", sync_and_write)
                recording.say(f"durable {db.make_durable()[SEQUENCE.name]}")
            assert db.sequence(SEQUENCE) > db.durable(SEQUENCE)
            disk.observer(0)

    recording.run(action, at=lambda operation: not operation)
    check_normal(folder, recording)


def test_nothing_is_durable_without_syncs(folder):
    with open_database(Job("off", str(folder / "log.db"), synchronous="OFF")) as db:
        db.transact(lambda txn: write_one(txn, KEYS[0], (b"a", b"b")))
        with pytest.raises(Refused, match="synchronous=OFF"):
            db.make_durable()
        assert db.durable(SEQUENCE) == 0


# Creation, migration, closing


def created(recording, disk):
    with open_database(recording.job, vfs=disk.vfs) as db:
        recording.say(db.transact(lambda txn: write_one(txn, KEYS[0], (b"a", b"b"))))
        if recording.job.synchronous == "NORMAL":
            recording.say(f"durable {db.make_durable()[SEQUENCE.name]}")


@pytest.mark.parametrize("synchronous", ["FULL", "NORMAL"])
def test_power_failure_during_creation_does_not_block_next_open(folder, synchronous):
    recording = Recording(folder / "disk", synchronous)
    recording.run(lambda disk: created(recording, disk))
    (check_full if synchronous == "FULL" else check_normal)(folder, recording)


def test_reader_of_half_created_database_raises_format_error(folder):
    recording = Recording(folder / "disk")
    recording.run(lambda disk: created(recording, disk))
    refusals = set()
    for job, instant, _ in states(folder, recording.instants):
        try:
            with open_to_read(job.path) as db, db.read() as snapshot:
                check_snapshot(snapshot, instant.acknowledged)
        except (FormatError, NotFound, ReadOnly) as error:
            # ReadOnly: only a writer may roll back the journal that the first pragma left.
            assert not instant.acknowledged.entries
            refusals.add(type(error))
    assert FormatError in refusals


def migration(folder, seeds):
    """Cuts at every operation of a migration: the old version or the new, whole."""
    recording = Recording(folder / "disk")
    with open_database(recording.job) as db:
        Workload(db, recording.say, 7, 20).run("thread")

    def action(disk):
        open_database(recording.job, migrations=(FIRST, *LATER), vfs=disk.vfs).close()
        recording.say("migrated")

    recording.run(action)
    versions = set()
    for job, instant, _ in states(folder, recording.instants, seeds):
        try:
            with open_to_read(job.path) as db, db.read() as snapshot:
                check_snapshot(snapshot, instant.acknowledged)
            versions.add("old")
            assert "migrated" not in instant.said
        except FutureFormat:
            versions.add("new")
        check_migrated(job, instant.acknowledged)
    assert versions == {"old", "new"}


def test_power_failure_in_migration_leaves_one_version(folder):
    migration(folder, seeds=1)


@pytest.mark.slow
def test_many_power_failures_in_migration_leave_one_version(folder):
    migration(folder, seeds=1 + repeats(7))


def upkeep(folder, act, seeds):
    """Cuts at every operation of `act` and of closing, on a database with a long log."""
    recording = Recording(folder / "disk")

    def action(disk):
        with open_database(recording.job, vfs=disk.vfs) as db:
            disk.observer, observe = None, disk.observer
            Workload(db, recording.say, 3, 30).run("requests")
            disk.observer = observe
            act(db)

    recording.run(action)
    check_full(folder, recording, seeds)


@pytest.mark.parametrize("mode", ["PASSIVE", "TRUNCATE"])
def test_power_failure_in_a_checkpoint_loses_nothing(folder, mode):
    upkeep(folder, lambda db: db.checkpoint(mode), seeds=1)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["PASSIVE", "FULL", "RESTART", "TRUNCATE"])
def test_many_power_failures_in_a_checkpoint_lose_nothing(folder, mode):
    upkeep(folder, lambda db: db.checkpoint(mode), seeds=1 + repeats(7))


@pytest.mark.slow
def test_power_failures_in_a_vacuum_lose_nothing(folder):
    upkeep(folder, lambda db: db.vacuum(), seeds=repeats(4))


# Again and again


def power_cuts_in_a_row(folder, seed, rounds):
    """Each round works on what the power cut before it left, on a simulated disk again."""
    random = Random(seed)
    acknowledged = Acknowledged()
    place = folder / "disk-0"
    for turn in range(rounds):
        recording = Recording(place, checkpoint_pages=random.choice((10, 40, 1000)))
        recording.run_workload(random.choice(MODES), seed=f"{seed} {turn}", gap=100)
        instant = random.choice(recording.instants)
        place = folder / f"disk-{turn + 1}"
        instant.cut.leave(place, random, random.choice(DAMAGES))
        acknowledged.hear(line for line in instant.said if " " in line)
        check_database(Job("after", str(place / "log.db")), acknowledged)


def test_recovered_database_survives_the_next_power_failure(folder):
    power_cuts_in_a_row(folder, seed=1, rounds=4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 2 + repeats(6)))
def test_recovered_database_survives_repeated_power_failures(folder, seed):
    power_cuts_in_a_row(folder, seed, rounds=12)
