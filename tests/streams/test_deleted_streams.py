"""Deleting and expiring large streams: gone at once, trimmed in bounded transactions."""

from __future__ import annotations

import asyncio
import itertools
from functools import partial
from pathlib import Path
from random import Random

import msgspec
import pytest

import fourfold
from fourfold.errors import NotFound, OffsetGone, Refused
from fourfold.kernel import Database, load_queries
from fourfold.models.streams import (
    MIGRATIONS,
    PROFILE,
    Append,
    Fork,
    Producer,
    StreamOptions,
    Streams,
)
from fourfold.models.streams.records import GcReport
from support.crash import random_kill_time, run
from support.properties import repeats

SCRIPT = Path(__file__).with_name("deleting_child.py")
ROWS = 50
SLICE = 8


class Clock:
    ms = 1_000_000

    def __call__(self):
        return self.ms


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def streams(tmp_path, clock, monkeypatch):
    monkeypatch.setattr("fourfold.models.streams.tombstones.STREAM_TRIM_ROWS", SLICE)
    profile = PROFILE.with_(synchronous="OFF")
    with Database.open(tmp_path / "s.sqlite", profile=profile, migrations=MIGRATIONS) as database:
        yield Streams(database, clock=clock)


@pytest.fixture
def changes(streams, monkeypatch):
    """Record the number of rows that each transaction changed."""
    counted = []
    transact = streams.database.transact

    def counting(work, **options):
        def counted_work(txn):
            before = txn.total_changes
            result = work(txn)
            counted.append(txn.total_changes - before)
            return result

        return transact(counted_work, **options)

    monkeypatch.setattr(streams.database, "transact", counting)
    return counted


def fill(streams, name="s", **options):
    streams.create(name, "text/plain", **options)
    for producer in range(20):
        streams.append(name, Append([b"p"], None, Producer(f"p{producer}", 0, 0)))
    streams.append(name, Append([b"%d" % n for n in range(ROWS)], None, routing_key=b"k"))


def bury(streams, name="s"):
    """Delete a stream as the server does, which leaves its rows to the sweeper."""
    streams.database.transact(streams._deleting(name))


def left(streams):
    with streams.database.read() as snapshot:
        return tuple(
            snapshot.value(f"SELECT count(*) FROM {table}")
            for table in ("wal_log", "producer_state_log", "deleted_streams")
        )


def test_delete_changes_few_rows_per_transaction(streams, changes):
    fill(streams)
    changes.clear()
    streams.delete("s")
    # A record is a row of the log and one of its index; the rest is the stream's own.
    assert max(changes) <= 3 * SLICE + 10
    assert left(streams) == (0, 0, 0)


def test_expiry_changes_few_rows_per_transaction(streams, clock, changes):
    fill(streams, ttl=5)
    changes.clear()
    clock.ms += 10_000
    assert streams.sweep() == 1
    assert max(changes) <= 3 * SLICE + 10
    assert left(streams) == (0, 0, 0)


def test_create_under_expired_name_changes_few_rows(streams, clock, changes):
    fill(streams, ttl=5)
    clock.ms += 10_000
    changes.clear()
    streams.create("s", "text/plain")
    assert max(changes) <= 3 * SLICE + 10


def test_deleted_stream_is_gone_while_its_rows_are_trimmed(streams):
    fill(streams)
    info = streams.info("s")
    bury(streams)
    assert left(streams)[0] > ROWS - SLICE
    with pytest.raises(NotFound):
        streams.read("s")
    with pytest.raises(NotFound):
        streams.append("s", Append([b"x"], None))
    with pytest.raises(OffsetGone):
        streams.read_joined(info, 40, 50)
    assert [each.name for each in streams.list()] == []
    assert streams.totals() == (0, 0, 0)
    assert streams.verify() == []


def test_waiting_reader_is_notified_before_rows_are_trimmed(streams):
    fill(streams)

    async def wait():
        with streams.notifier.listen("s") as listener:
            await streams.delete_async("s")
            heard = await listener.wait(5.0)
        return heard, left(streams)[2]

    assert asyncio.run(wait()) == (True, 1)


def test_recreated_stream_shares_no_rows_with_deleted_one(streams):
    fill(streams)
    bury(streams)
    streams.create("s", "text/plain")
    assert streams.append("s", Append([b"new"], None, Producer("p0", 0, 0))) == (
        1,
        False,
        False,
        ("p0", 0, 0),
        1,
    )
    while streams.trim_deleted(1):
        assert [record.payload for record in streams.read("s")[1].records] == [b"new"]
        assert streams.verify() == []
    assert left(streams) == (1, 1, 0)


def test_sweep_continues_deletion_of_earlier_process(streams):
    fill(streams)
    bury(streams)
    assert streams.trim_deleted(1)
    again = Streams(streams.database, clock=streams.clock)
    again.sweep()
    assert left(streams) == (0, 0, 0)


def test_gc_removes_all_that_several_sweeps_would(streams, clock, monkeypatch):
    trim = streams.trim_deleted
    monkeypatch.setattr(streams, "trim_deleted", lambda slices=1: trim(slices))
    monkeypatch.setattr(streams, "sweep", partial(streams.sweep, 1))
    for name in ("first", "second"):
        streams.create(name, "application/json", ttl=5)
    fill(streams)
    bury(streams)
    clock.ms += 10_000
    report = GcReport(2, 1, *held(streams))
    assert streams.gc(dry_run=True) == msgspec.structs.replace(report, dry_run=True)
    assert streams.gc() == report
    assert left(streams) == (0, 0, 0)
    assert streams.list() == ()
    assert streams.gc() == GcReport(0, 0, 0, 0)


def held(streams):
    """Return how many rows the log has, and their bytes."""
    with streams.database.read() as snapshot:
        return snapshot.one("SELECT count(*), coalesce(sum(payload_len), 0) FROM wal_records")


@pytest.mark.parametrize("seed", range(repeats(60)))
def test_dry_run_of_gc_counts_what_gc_removes(streams, clock, monkeypatch, seed):
    monkeypatch.setattr("fourfold.limits.ARCHIVE_TRIM_ROWS", 3)
    rng = Random(seed)
    names = []
    for number in range(12):
        name = f"s{number}"
        source = rng.choice(names) if names and rng.random() < 0.4 else None
        limits = {
            "ttl": rng.choice([None, 5, 50]),
            "retention_seconds": rng.choice([None, 3, 30]),
            "retention_bytes": rng.choice([None, 20, 200]),
        }
        fork = None if source is None else Fork(source)
        streams.create(name, "application/json", fork=fork, **limits)
        names.append(name)
        for _ in range(rng.randrange(4)):
            clock.ms += rng.randrange(3_000)
            names = [name for name in names if name in streams]
            if not names:
                break
            target = streams[rng.choice(names)]
            target.append([{"n": rng.randrange(100)}] * rng.randrange(1, 8))
        if names and rng.random() < 0.2:
            streams.delete(names.pop(rng.randrange(len(names))))
    names = set(streams)
    clock.ms += 5_000
    counted, before = streams.gc(dry_run=True), held(streams)
    assert held(streams) == before
    report, after = streams.gc(), held(streams)
    assert (report.records, report.bytes) == (before[0] - after[0], before[1] - after[1])
    assert report == msgspec.structs.replace(counted, dry_run=False)
    assert streams.gc() == GcReport(0, 0, 0, 0)


def test_gc_is_refused_inside_a_transaction(streams):
    with streams.database.write(), pytest.raises(Refused):
        streams.gc(dry_run=True)


def test_sweep_trims_few_slices(streams, monkeypatch):
    monkeypatch.setattr("fourfold.models.streams.maintenance.SWEEP_SLICES", 2)
    fill(streams)
    bury(streams)
    before = left(streams)[0]
    assert streams.trim_deleted(2)
    assert left(streams)[0] == before - 2 * SLICE


def test_large_records_are_trimmed_in_slices_of_bounded_size(streams, monkeypatch):
    monkeypatch.setattr("fourfold.models.streams.slices.ARCHIVE_TRIM_BYTES", 10)
    streams.create("s", "text/plain")
    streams.append("s", Append([b"12345"] * 6, None))
    bury(streams)
    assert left(streams)[0] == 4


def test_deleted_source_is_trimmed_with_its_last_fork(streams):
    fill(streams)
    streams.create_with_options(StreamOptions("fork", None, fork=Fork("s", 30)))
    streams.delete("s")
    assert left(streams)[0] == ROWS + 20
    assert len(streams.read("fork")[1].records) == 30
    streams.delete("fork")
    assert left(streams) == (0, 0, 0)
    assert streams.verify() == []


def test_deleted_chain_of_forks_changes_few_rows_per_transaction(streams, changes):
    fill(streams)
    names = ["s", *(f"fork{number}" for number in range(6))]
    for source, name in itertools.pairwise(names):
        streams.open(source).fork(name)
        streams.append(name, Append([b"%d" % n for n in range(ROWS)], None))
    for name in names[:-1]:
        streams.delete(name)
    changes.clear()
    streams.delete(names[-1])
    # Each source is dropped with the last fork; that is a few rows, not a slice of its records.
    assert max(changes) <= 3 * SLICE + 10 * len(names)
    assert left(streams) == (0, 0, 0)
    assert streams.verify() == []


def test_verify_finds_missing_and_wrong_tombstones(streams):
    fill(streams)
    bury(streams)
    with streams.database.write() as txn:
        txn.execute("DELETE FROM deleted_streams")
    found = [*map(str, streams.verify())]
    assert any(each.startswith("wal: ") for each in found)
    assert any(each.startswith("producer_state: ") for each in found)
    fill(streams, "t")
    with streams.database.write() as txn:
        txn.execute("INSERT INTO deleted_streams SELECT sid, stream, 0 FROM streams")
    assert any(each.message.startswith("deleted_streams: ") for each in streams.verify())


def test_sweeper_finds_streams_with_retention_by_an_index(streams):
    sql = load_queries("fourfold.models.streams").with_retention
    with streams.database.read() as snapshot:
        plan = [row[3] for row in snapshot.all(f"EXPLAIN QUERY PLAN {sql}", ("", 10))]
    assert plan == ["SEARCH streams USING INDEX streams_retention_idx (stream>?)"]


# Killed processes


def check(root, lines):
    """Check that acknowledged changes are there, and that a sweep leaves no deleted rows."""
    with fourfold.open(root) as store:
        streams = store.streams
        assert streams.verify() == []
        rounds = [int(line) for line in lines]
        assert rounds == sorted(rounds)
        names = {each.name for each in streams.list()}
        assert names <= {"kept", "large"}
        if "large" in names:
            payloads = [record.payload for record in streams.read("large")[1].records]
            assert len(set(payloads)) <= 1
        streams.sweep()
        while streams.trim_deleted():
            pass
        assert streams.verify() == []
        with streams.database.read() as snapshot:
            assert not snapshot.value("SELECT count(*) FROM deleted_streams")
            assert not snapshot.value(
                "SELECT count(*) FROM wal_log WHERE sid NOT IN (SELECT sid FROM streams)"
            )
        if rounds:
            assert len(streams.read("kept")[1].records) >= rounds[-1]


@pytest.mark.parametrize(
    "point",
    [
        "streams.delete.buried=kill@2",
        "streams.delete.sliced=kill@2",
        "streams.delete.sliced=kill@9",
        "kernel.statement.after=kill@60",
        "kernel.commit.before=kill@20",
        "kernel.commit.after=kill@20",
    ],
)
def test_killed_delete_leaves_nothing_readable(tmp_path, point):
    crash = run(SCRIPT, str(tmp_path / "store"), fault=point)
    assert crash.killed, crash
    check(tmp_path / "store", crash.lines)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(repeats(6)))
def test_delete_survives_kill_at_random_time(tmp_path, seed):
    random = Random(seed)
    for _ in range(8):
        crash = run(SCRIPT, str(tmp_path / "store"), kill=random_kill_time(random))
        assert crash.killed, crash
        check(tmp_path / "store", crash.lines)
