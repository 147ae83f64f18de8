"""Forks anywhere in a stream: exact sizes, and a write transaction that does not grow with it."""

from __future__ import annotations

import asyncio
import threading
from random import Random

import pytest

from fourfold.errors import AlreadyExists, InvalidInput, NotFound
from fourfold.kernel import Database
from fourfold.models.streams import MIGRATIONS, PROFILE, Append, Fork, StreamOptions, Streams
from fourfold.models.streams.settings import SettingsChange

JSON = "application/json"


class Clock:
    ms = 1_000_000

    def __call__(self):
        return self.ms


@pytest.fixture
def streams(tmp_path):
    profile = PROFILE.with_(synchronous="OFF")
    with Database.open(tmp_path / "s.sqlite", profile=profile, migrations=MIGRATIONS) as database:
        yield Streams(database, clock=Clock())


def fill(streams, name, count, content_type="text/plain", **options):
    streams.create(name, content_type, **options)
    records = [b"%d" % (n * n) for n in range(count)]
    streams.append(name, Append(records, None))
    return records


class Steps:
    """Count what SQLite executes in write transactions, in virtual machine instructions."""

    def __init__(self, database, monkeypatch):
        self.count = 0
        for name in ("transact", "transact_async"):
            monkeypatch.setattr(database, name, self.counting(getattr(database, name)))

    def counting(self, transact):
        def counted(work, **options):
            def counted_work(txn):
                txn._connection.set_progress_handler(self.step, 1)
                try:
                    return work(txn)
                finally:
                    txn._connection.set_progress_handler(None)

            return transact(counted_work, **options)

        return counted

    def step(self):
        self.count += 1
        return False


@pytest.fixture
def steps(streams, monkeypatch):
    return Steps(streams.database, monkeypatch)


def make(streams, wanted):
    return streams.create_with_options(wanted)


def make_async(streams, wanted):
    return asyncio.run(streams.create_with_options_async(wanted))


@pytest.mark.parametrize("create", [make, make_async])
@pytest.mark.parametrize(
    ("content_type", "at", "sub"),
    [
        ("text/plain", 0.3, 0),
        ("text/plain", 0.6, 0),
        ("text/plain", 0, 0),
        ("text/plain", None, 0),
        ("text/plain", 0.1, 0.5),
        (JSON, 0.1, 0.5),
    ],
)
def test_fork_transaction_does_not_grow_with_the_stream(
    streams, steps, create, content_type, at, sub
):
    counted = []
    for count in (100, 3_000):
        source, name = f"source-{count}", f"fork-{count}"
        fill(streams, source, count, content_type)
        offset = None if at is None else int(at * count)
        steps.count = 0
        create(streams, StreamOptions(name, None, fork=Fork(source, offset, int(sub * count))))
        counted.append(steps.count)
    assert 0 < counted[1] <= counted[0] + 20


def test_fork_at_the_end_is_not_measured(streams, monkeypatch):
    records = fill(streams, "a", 9)
    monkeypatch.setattr(streams.database, "read", None)
    assert streams.create_with_options(
        StreamOptions("b", None, fork=Fork("a"))
    ).info.size_bytes == len(b"".join(records))


def test_fork_is_measured_outside_of_the_event_loop(streams, monkeypatch):
    fill(streams, "a", 9)
    threads, read = set(), streams.database.read

    def watched(**options):
        threads.add(threading.get_ident())
        return read(**options)

    monkeypatch.setattr(streams.database, "read", watched)
    make_async(streams, StreamOptions("b", None, fork=Fork("a", 3)))
    assert threads
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("seed", range(6))
def test_fork_sizes_equal_the_sum_of_their_records(streams, monkeypatch, seed):
    """Forks of forks at random points of streams that are appended to and trimmed."""
    random = Random(seed)
    monkeypatch.setattr(
        "fourfold.models.streams.forks.STREAM_FORK_SLICE", random.choice([1, 3, 1000])
    )
    kind = random.choice([JSON, "text/plain"])
    model = {"s0": fill(streams, "s0", 20, kind, retention_bytes=random.choice([None, 30]))}
    for number in range(1, 25):
        source = random.choice(list(model))
        info = streams.info(source)
        at = random.randint(info.first_offset, info.next_offset)
        rest = model[source][at:]
        most = len(rest) if kind == JSON else len(b"".join(rest))
        sub = random.choice([0, random.randint(0, most)])
        kept, left = model[source][:at], sub
        for record in rest:
            if left > 0:
                kept.append(record if kind == JSON else record[:left])
                left -= 1 if kind == JSON else len(record)
        name = f"s{number}"
        made = streams.create_with_options(
            StreamOptions(name, None, retention_bytes=9, fork=Fork(source, at, sub))
        )
        assert made.info.size_bytes == sum(map(len, kept))
        assert made.info.next_offset == len(kept)
        more = [b"%d" % random.randint(0, 10**9) for _ in range(random.randint(1, 6))]
        streams.append(name, Append(more, None))
        model[name] = kept + more
        streams.sweep()
        assert streams.verify() == []


def between(streams, monkeypatch, change):
    """Run a change once, after a fork was measured and before it is created."""
    transact = streams.database.transact

    def changed(work, **options):
        monkeypatch.setattr(streams.database, "transact", transact)
        change()
        return transact(work, **options)

    monkeypatch.setattr(streams.database, "transact", changed)


def test_fork_size_is_exact_when_source_grows_meanwhile(streams, monkeypatch):
    records = fill(streams, "a", 12)
    between(streams, monkeypatch, lambda: streams.append("a", Append([b"more"], None)))
    made = streams.create_with_options(StreamOptions("b", None, fork=Fork("a", 12, 0)))
    assert made.info.size_bytes == len(b"".join(records))
    between(streams, monkeypatch, lambda: streams.append("a", Append([b"more"], None)))
    made = streams.create_with_options(StreamOptions("c", None, fork=Fork("a", 8, 5)))
    assert made.info.size_bytes == len(b"".join(records[:8])) + 5
    assert streams.verify() == []


def trim(streams, name, size):
    streams.configure(name, SettingsChange(retention_bytes=size))
    streams.sweep()


def test_fork_size_is_exact_when_source_is_trimmed_meanwhile(streams, monkeypatch):
    records = fill(streams, "a", 12)
    between(streams, monkeypatch, lambda: trim(streams, "a", len(b"".join(records[4:]))))
    made = streams.create_with_options(StreamOptions("b", None, fork=Fork("a", 6)))
    assert made.info.first_offset == 4
    assert made.info.size_bytes == len(b"".join(records[:6]))
    assert streams.verify() == []


def test_fork_is_rejected_when_its_point_is_trimmed_meanwhile(streams, monkeypatch):
    records = fill(streams, "a", 12)
    between(streams, monkeypatch, lambda: trim(streams, "a", len(b"".join(records[9:]))))
    with pytest.raises(InvalidInput, match="cannot fork at offset 6"):
        streams.create_with_options(StreamOptions("b", None, fork=Fork("a", 6)))


def test_fork_is_rejected_when_source_is_deleted_meanwhile(streams, monkeypatch):
    fill(streams, "a", 12)
    between(streams, monkeypatch, lambda: streams.delete("a"))
    with pytest.raises(NotFound):
        streams.create_with_options(StreamOptions("b", None, fork=Fork("a", 6)))
    fill(streams, "a", 12)
    streams.create("keeps", fork=Fork("a"))
    between(streams, monkeypatch, lambda: streams.delete("a"))
    with pytest.raises(AlreadyExists):
        streams.create_with_options(StreamOptions("b", None, fork=Fork("a", 6)))


def test_fork_is_measured_again_when_source_is_recreated_meanwhile(streams, monkeypatch):
    fill(streams, "a", 12)

    def again():
        streams.delete("a")
        streams.create("a", "text/plain")
        streams.append("a", Append([b"new"] * 9, None))

    between(streams, monkeypatch, again)
    assert (
        streams.create_with_options(StreamOptions("b", None, fork=Fork("a", 6))).info.size_bytes
        == 18
    )
    assert streams.verify() == []


def test_fork_is_measured_when_its_name_becomes_free_meanwhile(streams, monkeypatch):
    records = fill(streams, "a", 12)
    streams.create("b", fork=Fork("a", 6))
    between(streams, monkeypatch, lambda: streams.delete("b"))
    made = streams.create_with_options(StreamOptions("b", None, fork=Fork("a", 6)))
    assert made.created
    assert made.info.size_bytes == len(b"".join(records[:6]))


def test_existing_fork_is_compared_before_bytes_are_counted(streams):
    fill(streams, "a", 12)
    streams.create("b", fork=Fork("a", 6, 3))
    assert not streams.create_with_options(StreamOptions("b", None, fork=Fork("a", 6, 3))).created
    with pytest.raises(AlreadyExists, match="fork offset"):
        streams.create_with_options(StreamOptions("b", None, fork=Fork("a", 6, 1000)))
    with pytest.raises(InvalidInput, match="ends before"):
        streams.create_with_options(StreamOptions("c", None, fork=Fork("a", 6, 1000)))


@pytest.mark.parametrize("sub", [-1, True, 1.0, 2**64])
def test_fork_rejects_invalid_sub_offset(streams, sub):
    fill(streams, "a", 12)
    with pytest.raises(InvalidInput, match="sub_offset"):
        streams.create("b", fork=Fork("a", 6, sub))


@pytest.mark.parametrize("kept", [2, 4, 8])
@pytest.mark.parametrize("at", [5, 9])
def test_fork_is_measured_again_when_log_is_trimmed_between_slices(streams, monkeypatch, at, kept):
    records = fill(streams, "a", 12)
    monkeypatch.setattr("fourfold.models.streams.forks.STREAM_FORK_SLICE", 2)
    reads, read = 0, streams.database.read

    def trimming(**options):
        nonlocal reads
        reads += 1
        if reads == 4:
            trim(streams, "a", len(b"".join(records[kept:])))
        return read(**options)

    monkeypatch.setattr(streams.database, "read", trimming)
    if kept > at:
        with pytest.raises(InvalidInput, match="cannot fork at offset"):
            streams.create_with_options(StreamOptions("b", None, fork=Fork("a", at)))
    else:
        made = streams.create_with_options(StreamOptions("b", None, fork=Fork("a", at)))
        assert made.info.size_bytes == len(b"".join(records[:at]))
    assert reads > 4
    assert streams.verify() == []


@pytest.mark.parametrize("sub", [0, 4])
def test_fork_in_transaction_sees_its_writes(streams, sub):
    with streams.database.write():
        records = fill(streams, "a", 12)
        streams.create("b", fork=Fork("a", 6, sub))
    assert streams.info("b").size_bytes == len(b"".join(records[:6])) + sub
    assert streams.verify() == []


@pytest.mark.parametrize("name", ["root", "fork", "fork-of-fork", "below"])
def test_verify_finds_a_wrong_size(streams, name):
    fill(streams, "root", 12)
    for fork in (Fork("root", 6, 4), Fork("root", 3)):
        streams.create("fork" if fork.sub_offset else "other", fork=fork)
    streams.append("fork", Append([b"own"], None))
    streams.create("fork-of-fork", fork=Fork("fork", 7))
    streams.create("below", fork=Fork("fork", 4))
    assert streams.verify() == []
    with streams.database.write() as txn:
        sql = "UPDATE streams SET logical_size_bytes = logical_size_bytes + 1 WHERE stream = ?1"
        txn.execute(sql, (name,))
    assert f"streams: the size of {name!r} does not match its records" in [
        *map(str, streams.verify())
    ]
