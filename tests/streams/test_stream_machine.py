"""State machine of streams, checked against a simple model of lists of bytes.

Appends, producers with duplicates and gaps, forks of forks, closes, deletes, TTLs, retention,
reopening, transactions around several calls, and restored backups. After every step the invariants
hold, and every stream equals its model.
"""

from __future__ import annotations

import copy
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fourfold.errors import (
    AlreadyExists,
    InvalidInput,
    NotFound,
    OffsetGone,
    PreconditionFailed,
    ProducerFenced,
    ProducerGap,
    StreamClosed,
    StreamGone,
    StreamRecreated,
)
from fourfold.kernel import Database
from fourfold.models.streams import (
    MIGRATIONS,
    PROFILE,
    Append,
    Fork,
    Offset,
    Producer,
    StreamOptions,
    StreamRecord,
    Streams,
)
from fourfold.models.streams.incarnations import reserve_in_file
from fourfold.models.streams.record_headers import encode_headers
from fourfold.models.streams.settings import SettingsChange
from fourfold.models.streams.validation import format_offset
from support.properties import examples, repeats

NAMES = st.sampled_from(["a", "b", "c/d", "é"])
RECORDS = st.lists(st.binary(min_size=1, max_size=6), min_size=1, max_size=4)
PRODUCERS = st.sampled_from(["p", "q"])


@pytest.fixture(autouse=True)
def _small_levels(monkeypatch):
    """Use small index levels and trim slices, so that positions move and slices end often."""
    monkeypatch.setattr("fourfold.models.streams.append.STREAM_SCATTERED_PLACES", 2)
    monkeypatch.setattr("fourfold.models.streams.append.STREAM_RECENT_PLACES", 7)
    monkeypatch.setattr("fourfold.models.streams.append.STREAM_PLACES_MOVED", 3)
    monkeypatch.setattr("fourfold.models.streams.tombstones.STREAM_TRIM_ROWS", 2)


class RolledBack(Exception):
    """Ends a transaction of the state machine."""


def _end(rolled_back):
    if rolled_back:
        raise RolledBack


class Modelled:
    """Model of a stream: every record that it ever had, and its first offset."""

    def __init__(self, records=(), ttl=None, now=0, keep=None, first=0):
        self.records = list(records)
        self.first = first
        self.shared = 0
        self.closed = False
        self.producers = {}
        self.ttl = ttl
        self.end = None if ttl is None else now + ttl
        self.keep = keep
        self.parent = None
        self.forks = 0
        self.deleted = False
        self.number = 0
        self.headers = {}
        """Headers by offset, of records that have them."""
        self.logged = 0
        """Records that are in the model of the feed."""

    def used(self, now):
        if self.ttl is not None:
            self.end = now + self.ttl


class StreamMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="fourfold-streams-"))
        self.now = 1_000_000
        self.model = {}
        self.numbers = {}
        self.given_out = {}
        self.reserved = -1
        self.readers = []
        self.backup = None
        self.feed = []
        """Every record in the order of the feed: the step, the stream, and the offset."""
        self.step = 0
        self.cursor, self.position = "-1", 0
        self.open()

    def open(self):
        profile = PROFILE.with_(synchronous="OFF")
        path = self.root / "wal.sqlite"
        self.database = Database.open(path, profile=profile, migrations=MIGRATIONS)
        self.streams = Streams(self.database, clock=lambda: self.now)

    def teardown(self):
        self.database.close()
        shutil.rmtree(self.root)

    def find(self, name):
        """Return the model of an existing stream, or the expected error."""
        found = self.model.get(name)
        if found is None or (not found.deleted and found.end is not None and found.end <= self.now):
            return NotFound
        return StreamGone if found.deleted else found

    def add(self, name, made):
        """Check that a new stream has an incarnation number that its name never had."""
        made.number = self.numbers[name] = max(self.numbers.get(name, -1), self.reserved) + 1
        # Not even before a restored backup.
        assert made.number not in self.given_out.setdefault(name, set())
        self.given_out[name].add(made.number)
        self.model[name] = made

    def remove(self, name):
        found = self.model[name]
        if found.forks:
            found.deleted = True
            return
        del self.model[name]
        parent = found.parent
        while parent is not None:
            parent.forks -= 1
            if not parent.deleted or parent.forks:
                return
            gone = next(key for key, each in self.model.items() if each is parent)
            del self.model[gone]
            parent = parent.parent

    @rule(
        name=NAMES,
        ttl=st.sampled_from([None, None, 5]),
        keep=st.sampled_from([None, None, 8]),
        records=st.one_of(st.just([]), RECORDS),
    )
    def create(self, name, ttl, keep, records):
        wanted = StreamOptions(name, "application/octet-stream", ttl, retention_bytes=keep)
        body = b"".join(records)
        found = self.find(name)
        if found is StreamGone:
            with pytest.raises(AlreadyExists):
                self.streams.create_with_options(wanted, body)
            return
        if found is not NotFound:
            if (found.ttl, found.keep, found.closed, found.parent) != (
                None if ttl is None else ttl * 1000,
                keep,
                False,
                None,
            ):
                with pytest.raises(AlreadyExists):
                    self.streams.create_with_options(wanted, body)
            else:
                assert not self.streams.create_with_options(wanted, body).created
            return
        if name in self.model:
            if self.model[name].forks:
                # It expired, but forks read it: the name is not free yet.
                return
            self.remove(name)
        assert self.streams.create_with_options(wanted, body).created
        made = Modelled([body] if body else [], None if ttl is None else 1000 * ttl, self.now, keep)
        self.add(name, made)

    @rule(
        name=NAMES,
        records=RECORDS,
        close=st.booleans(),
        headers=st.sampled_from([None, None, {"trace": "é"}]),
    )
    def append(self, name, records, close, headers=None):
        found = self.find(name)
        request = Append(records, None, close=close, headers=encode_headers(headers))
        if isinstance(found, type):
            with pytest.raises(found):
                self.streams.append(name, request)
        elif found.closed:
            with pytest.raises(StreamClosed):
                self.streams.append(name, request)
        else:
            done = self.streams.append(name, request)
            if headers is not None:
                first = len(found.records)
                found.headers |= dict.fromkeys(range(first, first + len(records)), headers)
            found.records += records
            found.closed = close
            found.used(self.now)
            assert (done.next_offset, done.closed) == (len(found.records), close)
            self.readers.append((name, found, done.next_offset, done.offset))

    @rule(name=NAMES, records=RECORDS, at=st.integers(0, 4), lag=st.sampled_from([0, 0, 1]))
    def append_at_the_expected_end(self, name, records, at, lag):
        """Append if the stream ends where a reader, maybe of an earlier stream, has seen it."""
        found = self.find(name)
        if isinstance(found, type):
            return
        expected = Offset(max(0, len(found.records) - lag), max(0, found.number - (at == 0)))
        request = Append(records, None, expected=expected if at < 3 else expected.record)
        if found.closed:
            with pytest.raises(StreamClosed):
                self.streams.append(name, request)
        elif (at == 0 and found.number) or expected.record != len(found.records):
            with pytest.raises(PreconditionFailed) as refused:
                self.streams.append(name, request)
            end = format_offset(len(found.records), found.number)
            assert refused.value.details["next_offset"] == end
        else:
            assert not self.streams.append(name, request).duplicate
            found.records += records
            found.used(self.now)

    @rule(name=NAMES, first=RECORDS, other=RECORDS)
    def append_the_same_again(self, name, first, other):
        """Append A, B and A again, with the same headers, and change settings the same way."""
        for records, headers in ((first, {"trace": "a"}), (other, None), (first, {"trace": "a"})):
            self.append(name, records, close=False, headers=headers)
        for keep in (4, 12, 4):
            self.configure(name, None, keep)

    @rule(name=NAMES, records=RECORDS)
    def mutate_what_was_handed_out(self, name, records):
        """Change what a writer passed and what readers received: later reads do not show it."""
        found = self.find(name)
        if isinstance(found, type) or found.ttl is not None:
            return
        passed = list(records)
        self.append(name, passed, close=False, headers={"trace": "mine"})
        passed[:] = [b"changed"]
        _, chunk = self.streams.read(name)
        page = self.streams.read_feed("-1")
        followed = [item.record for item in page.items if isinstance(item, StreamRecord)]
        for record in (*chunk.records, *followed):
            record.headers["trace"] = "changed"
        for sequence in (chunk.records, page.items):
            if isinstance(sequence, list):
                sequence.clear()

    @rule(asked=st.lists(st.tuples(NAMES, RECORDS), min_size=2, max_size=5))
    def append_together(self, asked):
        """Append in one transaction to existing and unknown streams."""
        requests = [(name, Append(records, None)) for name, records in asked]
        outcomes = self.database.transact(lambda txn: self.streams._append_all(txn, requests))
        for (name, records), done in zip(asked, outcomes, strict=True):
            found = self.find(name)
            if isinstance(found, type):
                assert isinstance(done, found)
            elif found.closed:
                assert isinstance(done, StreamClosed)
            else:
                found.records += records
                found.used(self.now)
                assert done.next_offset == len(found.records)

    @rule(
        name=NAMES,
        records=RECORDS,
        producer=PRODUCERS,
        epoch=st.integers(0, 2),
        step=st.sampled_from([-1, 0, 1, 1, 1, 2]),
    )
    def produce(self, name, records, producer, epoch, step):
        found = self.find(name)
        if isinstance(found, type):
            return
        known = found.producers.get(producer)
        last = -1 if known is None or known[0] != epoch else known[1]
        seq = max(0, last + step)
        request = Append(records, None, Producer(producer, epoch, seq))
        if known is not None and epoch < known[0]:
            expected = ProducerFenced
        elif known is not None and epoch > known[0] and seq:
            expected = InvalidInput
        elif known is None and seq:
            expected = ProducerGap
        elif known is not None and epoch == known[0] and seq <= last:
            done = self.streams.append(name, request)
            assert done.duplicate
            assert done.producer == (producer, epoch, last)
            return
        elif known is not None and epoch == known[0] and seq > last + 1:
            expected = ProducerGap
        elif found.closed:
            expected = StreamClosed
        else:
            done = self.streams.append(name, request)
            assert not done.duplicate
            found.records += records
            found.producers[producer] = (epoch, seq)
            found.used(self.now)
            return
        with pytest.raises(expected):
            self.streams.append(name, request)

    @rule(name=NAMES, source=NAMES, at=st.integers(0, 10), sub=st.integers(0, 8))
    def fork(self, name, source, at, sub):
        origin = self.find(source)
        if isinstance(origin, type) or name in self.model:
            return
        at = min(at, len(origin.records))
        wanted = StreamOptions(name, None, fork=Fork(source, at, sub))
        rest = b"".join(origin.records[at:])
        if at < origin.first or sub > len(rest):
            with pytest.raises(InvalidInput):
                self.streams.create_with_options(wanted)
            return
        self.streams.create_with_options(wanted)
        kept, left = list(origin.records[:at]), sub
        for record in origin.records[at:]:
            if left <= 0:
                break
            kept.append(record[:left])
            left -= len(record)
        made = Modelled(kept, origin.ttl, self.now, first=min(origin.first, at))
        made.shared = len(kept) - (left < 0)
        if origin.ttl is None:
            made.end = origin.end
        made.parent = origin
        made.logged = made.shared
        made.headers = {at: value for at, value in origin.headers.items() if at < made.shared}
        origin.forks += 1
        self.add(name, made)

    @rule(name=NAMES, ttl=st.sampled_from([None, 2, 8]), keep=st.sampled_from([None, 4, 12]))
    def configure(self, name, ttl, keep):
        found = self.find(name)
        settings = SettingsChange(ttl, None, retention_bytes=keep)
        if isinstance(found, type):
            with pytest.raises(found):
                self.streams.configure(name, settings)
            return
        info = self.streams.configure(name, settings)
        assert (info.ttl_seconds, info.retention_bytes) == (ttl, keep)
        found.ttl, found.keep = None if ttl is None else 1000 * ttl, keep
        found.end = None if ttl is None else self.now + found.ttl
        assert info.expires_at_ms == found.end

    @rule(name=NAMES)
    def close(self, name):
        found = self.find(name)
        request = Append((), None, close=True)
        if isinstance(found, type):
            with pytest.raises(found):
                self.streams.append(name, request)
        else:
            was = found.closed
            assert self.streams.append(name, request).closed
            found.closed = True
            if not was:
                found.used(self.now)

    @rule(name=NAMES, trimmed=st.booleans())
    def delete(self, name, trimmed):
        """Delete a stream; its rows stay unless `trimmed`."""
        found = self.find(name)
        if isinstance(found, type):
            with pytest.raises(found):
                self.streams.delete(name)
            return
        if trimmed:
            self.streams.delete(name)
        else:
            self.database.transact(self.streams._deleting(name))
        self.remove(name)

    @rule(name=NAMES, records=RECORDS, again=RECORDS)
    def recreate(self, name, records, again):
        """Append to a stream, delete it, and recreate it while its old rows exist."""
        self.append(name, [*records, b"1", b"2"], close=False)
        if not isinstance(self.find(name), type):
            self.delete(name, trimmed=False)
        self.create(name, None, None, [])
        self.append(name, again, close=False)

    @rule(slices=st.integers(1, 3))
    def trim_deleted(self, slices):
        self.streams.trim_deleted(slices)

    @rule()
    def trim_all_deleted(self):
        """Check that no row of a deleted stream is left once all slices are trimmed."""
        while self.streams.trim_deleted():
            pass
        with self.database.read() as snapshot:
            for table in (
                "wal_log",
                "wal_index",
                "wal_recent",
                "producer_state_log",
                "stream_keys",
            ):
                stray = f"SELECT count(*) FROM {table} WHERE sid NOT IN (SELECT sid FROM streams)"
                assert snapshot.value(stray) == 0

    @rule(ms=st.sampled_from([1, 1000, 3000, 6000]))
    def time_passes(self, ms):
        self.now += ms

    @rule()
    def sweep(self):
        self.streams.sweep()
        for name in [n for n in self.model if self.find(n) is NotFound]:
            self.remove(name)
        for found in self.model.values():
            if found.keep is not None and not found.forks and not found.deleted:
                held = 0
                # The retention of a fork applies to its own records.
                for at in range(len(found.records) - 1, max(found.first, found.shared) - 1, -1):
                    held += len(found.records[at])
                    if held > found.keep:
                        found.first = at + 1
                        break

    @rule()
    def reopen(self):
        # A sweep writes the buffered uses, so that reopening keeps them.
        self.sweep()
        self.database.close()
        self.open()

    def state(self):
        """Return a copy of the model, as a backup or a rollback keeps it."""
        state = (self.model, self.readers, self.numbers, self.reserved, self.feed, self.step)
        return copy.deepcopy(state)

    def go_back(self, state):
        state = copy.deepcopy(state)
        self.model, self.readers, self.numbers, self.reserved, self.feed, self.step = state

    @rule(name=NAMES, other=NAMES, records=RECORDS, rolled_back=st.booleans())
    def change_in_one_transaction(self, name, other, records, rolled_back):
        """Call everything that writes inside one transaction, which sees its own writes."""
        before, given_out = self.state(), copy.deepcopy(self.given_out)
        try:
            with self.database.write():
                self.create(name, None, 8, records)
                self.append(name, records, close=False)
                self.fork(other, name, 1, 1)
                self.append(other, records, close=False)
                self.configure(name, None, 12)
                self.delete(other, trimmed=True)
                self.create(other, None, None, records)
                self.produce(other, records, "p", 0, 1)
                self.every_stream_is_what_the_model_says()
                self.reads_from_the_start_begin_at_the_earliest_kept_record()
                _end(rolled_back)
        except RolledBack:
            self.go_back(before)
            self.given_out = given_out

    @rule()
    def back_up(self):
        self.sweep()
        path = self.root / "backup.sqlite"
        path.unlink(missing_ok=True)
        self.database.backup(path)
        self.backup = self.state()

    @rule()
    def restore(self):
        """Restore the last backup and continue from it."""
        if self.backup is None:
            return
        self.database.close()
        path = self.root / "wal.sqlite"
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        shutil.copyfile(self.root / "backup.sqlite", path)
        self.now += 60_000
        reserve_in_file(path, self.now, self.root / "migration-backups")
        self.go_back(self.backup)
        # The reader of the feed may have read records that are gone.
        self.position = min(self.position, len(self.feed))
        self.reserved = self.now
        self.open()

    @rule(name=NAMES, at=st.integers(0, 12), limit=st.integers(1, 3))
    def read(self, name, at, limit):
        found = self.find(name)
        if isinstance(found, type):
            with pytest.raises(found):
                self.streams.read(name, format_offset(at))
            return
        offset = format_offset(at, found.number)
        if (at, found.number) == (0, 0):
            at = found.first
        if at < found.first:
            with pytest.raises(OffsetGone):
                self.streams.read(name, offset)
            return
        if at > len(found.records):
            with pytest.raises(InvalidInput):
                self.streams.read(name, offset)
            return
        _, chunk = self.streams.read(name, offset, records_max=limit)
        found.used(self.now)
        self.readers.append((name, found, chunk.next_offset, chunk.offset))
        wanted = found.records[at : at + limit]
        assert [record.payload for record in chunk.records] == wanted
        reached = at + len(wanted) == len(found.records)
        assert (chunk.up_to_date, chunk.closed) == (reached, reached and found.closed)

    @invariant()
    def log_new_records(self):
        """Add the records of a step to the model of the feed, in no order between streams."""
        self.step += 1
        for name, found in self.model.items():
            new = range(found.logged, len(found.records))
            self.feed += [(self.step, name, found, offset) for offset in new]
            found.logged = len(found.records)

    @rule(limit=st.integers(1, 3))
    def read_feed(self, limit):
        """Read the feed to its end: each record once, in the order of steps, and gaps."""
        page = self.streams.read_feed(self.cursor, limit=limit)
        items = list(page.items)
        while not page.up_to_date:
            page = self.streams.read_feed(page.cursor, limit=limit)
            items += page.items
        expected, missing = {}, Counter()
        for step, name, found, offset in self.feed[self.position :]:
            if self.find(name) is not found:
                continue
            if offset < found.first:
                missing[name] += 1
            else:
                expected[name, Offset(offset, found.number)] = (step, found.records[offset])
        records = [item for item in items if isinstance(item, StreamRecord)]
        seen = [(item.stream, item.offset) for item in records]
        assert sorted(seen) == sorted(expected)
        steps = [expected[place][0] for place in seen]
        assert steps == sorted(steps)
        payloads = [expected[place][1] for place in seen]
        assert [item.record.payload for item in records] == payloads
        gaps = Counter()
        for item in items:
            if not isinstance(item, StreamRecord):
                gaps[item.stream] += item.records
        # A reader that begins with the earliest record hears of no gap before it.
        assert gaps == (Counter() if self.cursor == "-1" else missing)
        self.cursor, self.position = page.cursor, len(self.feed)

    @invariant()
    def nothing_contradicts_itself(self):
        assert self.streams.verify() == []

    @invariant()
    def every_stream_is_what_the_model_says(self):
        for name, found in self.model.items():
            if self.find(name) is not found:
                continue
            info = self.streams.info(name)
            assert (info.next_offset, info.first_offset) == (len(found.records), found.first)
            assert (info.closed, info.forks) == (found.closed, found.forks)
            assert info.incarnation_number == found.number
            assert info.size_bytes == sum(map(len, found.records))

    @invariant()
    def readers_resume_in_the_stream_that_they_read_and_in_no_other(self):
        for name, read, at, offset in self.readers[-5:]:
            found = self.find(name)
            if isinstance(found, type) or offset == format_offset(0):
                continue
            if found is not read:
                with pytest.raises(StreamRecreated):
                    self.streams.read(name, offset)
            elif at < found.first:
                with pytest.raises(OffsetGone):
                    self.streams.read(name, offset)
            elif found.ttl is None:
                _, chunk = self.streams.read(name, offset)
                assert [record.payload for record in chunk.records] == found.records[at:]

    @invariant()
    def reads_from_the_start_begin_at_the_earliest_kept_record(self):
        for name, found in self.model.items():
            # A read would extend the TTL of the stream.
            if found.ttl is None and self.find(name) is found:
                _, chunk = self.streams.read(name)
                assert [record.payload for record in chunk.records] == found.records[found.first :]
                assert chunk.start_offset == found.first
                for record in chunk.records:
                    assert record.headers == found.headers.get(record.offset, {})


StreamMachine.TestCase.settings = settings(max_examples=examples(40), stateful_step_count=40)
TestStreams = StreamMachine.TestCase


class LongLives(StreamMachine):
    """Run the state machine with more and longer examples."""


LongLives.TestCase.settings = settings(max_examples=repeats(400), stateful_step_count=50)
TestLongLives = pytest.mark.slow(pytest.mark.timeout(1800)(LongLives.TestCase))
