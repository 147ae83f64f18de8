"""Random lives of an archived store against a dumb model.

Streams are appended to, closed, forked, deleted and trimmed while they are sealed, published,
indexed, compacted and collected over an object store that fails, times out and tears; the node is
killed at any point of the archive, restarted, loses its cache and its segment files, or its whole
disk. After every step the invariants hold, every stream reads as the model says, as a whole and by
each key, and every manifest speaks of objects that are there and whole. One stream has JSON
messages and search companions, which are built, killed and rebuilt like everything else: searches
and aggregates of it equal those that examine every record.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import tempfile
from pathlib import Path
from unittest.mock import patch

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fourfold.archive.manifest import decode
from fourfold.errors import CorruptData, FourfoldError
from fourfold.kernel import Database, failpoints
from fourfold.models.streams import MIGRATIONS, PROFILE, Append, Fork, StreamOptions, Streams
from fourfold.models.streams.archive import Archive, Policy, bootstrap
from fourfold.models.streams.archive.verify import object_problems, unclaimed_problems
from fourfold.models.streams.records import RecordFilter
from fourfold.objects import Fault, FaultyStore, MemoryStore
from fourfold.retry import Retries
from support import naive_search as naive

LOGS = "logs"
"""The stream with companions."""
DECLARATIONS = st.sampled_from(
    [
        naive.DECLARATION,
        {**naive.DECLARATION, "columns": ["status"]},
        {"text": ["message"]},
        None,
    ]
)
NAMES = st.sampled_from(["a", "b/c", "d", "e", "é"])
RECORDS = st.lists(st.binary(min_size=1, max_size=6), min_size=1, max_size=7)
CALLS = st.lists(st.tuples(st.integers(0, 6), st.sampled_from(list(Fault))), min_size=1, max_size=5)
POLICY = Policy(
    seal_bytes=12,
    seal_rows=4,
    seal_age_s=60.0,
    cache_bytes=4_000,
    concurrency=1,
    trim_rows=2,
    index_span=2,
    index_fanout=2,
    compact_bytes=60,
    compact_rows=30,
    compact_segments=2,
)
KEYS = (b"k", b"other")
ROUTING_KEYS = st.sampled_from([None, *KEYS])
POINTS = st.sampled_from(
    [*failpoints.ARCHIVE_POINTS, "kernel.commit.before", "kernel.commit.after"]
)


def headers_of(key):
    """Return the headers of records with a routing key: some have them, most have none."""
    return b'{"trace":"1"}' if key == KEYS[0] else None


class Crash(BaseException):
    """The process is gone."""


class Modelled:
    """A stream as the model sees it: every record that it ever had."""

    def __init__(self, name, records=(), keep=None, first=0, parent=None, keys=None):
        self.name = name
        self.records = list(records)
        self.keys = [None] * len(self.records) if keys is None else list(keys)
        self.first = first
        self.longest = 0
        """How long it was before its end was lost."""
        self.closed = False
        self.keep = keep
        self.parent = parent
        self.forks = 0
        self.hidden = False
        self.deleted = False


class ArchiveMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="fourfold-archive-"))
        self.inner = self.open_objects()
        self.due_faults = []
        self.dead = False
        self.objects = FaultyStore(self.inner, self.plan)
        self.now = 1_000_000
        self.lives = 0
        self.reported = set()
        self.model = {}
        self.history = {}
        self.given = {}
        self.open(self.folder / "0")

    def open_objects(self):
        return MemoryStore()

    def plan(self, call):
        if self.dead:
            return Fault.FAIL
        for at, (left, fault) in enumerate(self.due_faults):
            if left == 0:
                del self.due_faults[at]
                return fault
            self.due_faults[at] = (left - 1, fault)
        return None

    def open(self, root):
        self.root = root
        root.mkdir(exist_ok=True)
        profile = PROFILE.with_(synchronous="OFF")
        self.database = Database.open(root / "wal.sqlite", profile=profile, migrations=MIGRATIONS)
        self.archive = Archive(
            self.database,
            self.objects,
            root / "segments",
            clock=lambda: self.now,
            policy=POLICY,
            retries=Retries(pause_s=0.0),
        )
        self.streams = Streams(self.database, clock=lambda: self.now, cold=self.archive.cold)

    def teardown(self):
        failpoints.disarm()
        if hasattr(self, "database"):
            try:
                self.everything_can_be_published_and_rebuilt()
            finally:
                self.database.close()
                self.close_objects()
                shutil.rmtree(self.folder)

    def close_objects(self):
        self.inner.close()

    # Streams

    def note(self, made):
        self.model[made.name] = made
        self.history[self.streams.info(made.name).incarnation] = made

    @rule(
        name=NAMES,
        keep=st.sampled_from([None, None, 10]),
        records=RECORDS,
        close=st.sampled_from([False, False, False, False, True]),
        key=ROUTING_KEYS,
    )
    def append(self, name, keep, records, close, key=None):
        if name not in self.model:
            self.streams.create_with_options(
                StreamOptions(name, "text/plain", retention_bytes=keep), records[0]
            )
            self.note(Modelled(name, records[:1], keep))
        found = self.model[name]
        if found.closed or found.hidden:
            return
        headers = headers_of(key)
        request = Append(records, None, close=close, routing_key=key, headers=headers)
        self.streams.append(name, request)
        found.records += records
        found.keys += [key] * len(records)
        found.closed = close

    @initialize(records=RECORDS)
    def begin(self, records):
        for name in ("a", "b/c"):
            self.append(name, None, records, False)

    @rule(records=RECORDS, key=ROUTING_KEYS)
    def append_everywhere(self, records, key):
        for found in list(self.model.values()):
            if found.name != LOGS:
                self.append(found.name, None, records, False, key)

    @rule(messages=st.lists(naive.MESSAGES, min_size=1, max_size=6))
    def append_messages(self, messages):
        if LOGS not in self.model:
            stream = self.streams.create(LOGS, "application/json", retention_bytes=600)
            stream.set_schema(search=naive.DECLARATION)
            self.note(Modelled(LOGS, keep=600))
        records = [json.dumps(message).encode() for message in messages]
        self.streams.append(LOGS, Append(records, None))
        found = self.model[LOGS]
        found.records += records
        found.keys += [None] * len(records)

    @rule(search=DECLARATIONS)
    def declare(self, search):
        """Another declaration is another generation of companions, or none."""
        if LOGS in self.model:
            self.streams.open(LOGS).set_schema(search=search)

    @rule()
    def build_companions(self):
        self.check_kept(self.archive.build_companions())

    @rule(
        query=naive.QUERIES,
        where=naive.WHERES,
        span=naive.SPANS,
        by=st.sampled_from([[], ["service"], ["service", "status"]]),
        every=st.sampled_from([None, "1s", "700ms"]),
    )
    def search(self, query, where, span, by, every):
        if LOGS not in self.model:
            return
        kept, self.due_faults = self.due_faults, []
        stream = self.streams.open(LOGS)
        naive.check_search(stream, query, where, span, 3)
        naive.check_groups(stream, query, where, span, by, every)
        self.due_faults = kept

    @rule(name=NAMES, source=NAMES, at=st.integers(0, 20), sub=st.integers(0, 4))
    def fork(self, name, source, at, sub):
        origin = self.model.get(source)
        if name in self.model or origin is None or origin.hidden:
            return
        at = max(origin.first, min(at, len(origin.records)))
        kept, keys, left = origin.records[:at], origin.keys[:at], sub
        if sub > len(b"".join(origin.records[at:])):
            return
        for record, key in zip(origin.records[at:], origin.keys[at:], strict=True):
            if left <= 0:
                break
            kept.append(record[:left])
            # A part of a record is a record of the fork's own.
            keys.append(key if left >= len(record) else None)
            left -= len(record)
        faults_were, self.due_faults = self.due_faults, []
        self.streams.create_with_options(StreamOptions(name, None, fork=Fork(source, at, sub)))
        self.due_faults = faults_were
        made = Modelled(name, kept, first=min(origin.first, at), parent=origin, keys=keys)
        origin.forks += 1
        self.note(made)

    @rule(name=NAMES)
    def delete(self, name):
        found = self.model.get(name)
        if found is None or found.hidden:
            return
        # Its rows stay until the next sweep.
        with patch("fourfold.models.streams.tombstones.STREAM_TRIM_ROWS", 1):
            self.database.transact(self.streams._deleting(name))
        if found.forks:
            found.hidden = True
            return
        while True:
            del self.model[found.name]
            found.deleted = True
            found = found.parent
            if found is None:
                return
            found.forks -= 1
            if not found.hidden or found.forks:
                return

    @rule()
    def retain(self):
        self.streams.sweep()
        for name, found in self.model.items():
            if found.keep is None or found.forks or found.hidden:
                continue
            first = self.streams.info(name).first_offset
            exact, held = found.first, 0
            for at in range(len(found.records) - 1, found.first - 1, -1):
                held += len(found.records[at])
                if held > found.keep:
                    exact = at + 1
                    break
            assert found.first <= first <= exact
            found.first = first

    # The archive

    @rule(everything=st.booleans(), later=st.sampled_from([1, 100_000]), calls=st.just([]))
    def round(self, everything, later, calls):
        self.now += later
        self.due_faults += calls
        self.archive.expire_backoffs()
        done = self.archive.round(everything=everything)
        for error in done.failures.values():
            assert error.retryable, error

    @rule(everything=st.booleans(), calls=CALLS)
    def round_over_objects_that_fail(self, everything, calls):
        self.round(everything, 1, calls)

    @rule(everything=st.booleans())
    def index(self, everything):
        self.check_kept(self.archive.index(everything=everything))

    @rule()
    def compact(self):
        self.check_kept(self.archive.compact())

    @rule(calls=CALLS)
    def keep_up_over_objects_that_fail(self, calls):
        self.due_faults += calls
        self.check_kept(self.archive.index())
        self.check_kept(self.archive.compact())
        self.check_kept(self.archive.build_companions())

    def check_kept(self, kept):
        for error in kept.failures.values():
            assert error.retryable, error

    @rule()
    def collect(self):
        self.due_faults = []
        listed = self.archive.collect(dry_run=True, grace_s=0)
        assert self.archive.collect(grace_s=0) == listed
        assert not any(self.inner.head(entry.key) for entry in listed)

    @rule(point=POINTS, at=st.integers(1, 4), everything=st.booleans())
    def crash(self, point, at, everything):
        self.lives += 1
        image = self.folder / str(self.lives)

        def die(_point):
            if not self.dead:
                self.dead = True
                skip = shutil.ignore_patterns("*.lock", "*-shm")
                shutil.copytree(self.root, image, ignore=skip)
            raise Crash

        failpoints.arm(point, die, at=at, repeat=True)
        try:
            self.archive.expire_backoffs()
            self.archive.round(everything=everything)
            self.archive.compact()
            self.archive.index()
            self.archive.build_companions()
            self.archive.collect(grace_s=0)
        except (Crash, FourfoldError):
            pass
        finally:
            failpoints.disarm()
        if self.dead:
            with contextlib.suppress(FourfoldError):
                self.database.close()
            self.dead = False
            self.open(image)

    @rule(files=st.booleans())
    def restart(self, files):
        """With its segment files, or without."""
        self.database.close()
        if not files:
            shutil.rmtree(self.root / "segments", ignore_errors=True)
        self.open(self.root)

    @rule()
    def lose_the_files_of_segments(self):
        shutil.rmtree(self.root / "segments", ignore_errors=True)

    @rule(lost=st.sampled_from([False, False, True]))
    def rebuild_from_objects(self, lost):
        """Another node, or this one, whose disk is lost."""
        whole = all(ok for _, ok in self.manifests())
        kept, self.due_faults = self.due_faults, []
        self.rebuild(check_only=not lost or not whole)
        self.due_faults = kept

    def rebuild(self, *, check_only):
        """A node from the object store alone; it knows exactly what it lacks."""
        self.now += 1000
        self.lives += 1
        root = self.folder / str(self.lives)
        root.mkdir()
        profile = PROFILE.with_(synchronous="OFF")
        with Database.open(root / "wal.sqlite", profile=profile, migrations=MIGRATIONS) as database:
            report = bootstrap(database, self.inner, now_ms=self.now)
            lost = {loss.stream: loss for loss in report.lost}
            living = {m.name: m for m, ok in self.manifests() if ok and not m.deleted}
            torn = sum(not ok for _, ok in self.manifests())
            assert set(report.restored) | set(report.failures) >= set(living)
            streams = Streams(database, clock=lambda: self.now, cold=self.archive.cold)
            assert streams.verify() == []
            for name in report.restored:
                manifest, found = living[name], self.history[living[name].incarnation]
                end = max(manifest.uploaded_through + 1, manifest.first_offset)
                assert manifest.next_offset <= max(len(found.records), found.longest)
                # A stream whose end is not published goes on.
                assert not manifest.closed or end == manifest.next_offset
                missing = lost.get(name)
                assert (missing is None) == (end >= manifest.next_offset)
                if missing is not None:
                    assert (missing.first_offset, missing.next_offset) == (
                        end,
                        manifest.next_offset,
                    )
                if not manifest.hidden:
                    self.compare(streams, found, end, manifest.first_offset)
            bad = [failure for failure in report.failures if failure in living]
            assert len(report.failures) - len(bad) == torn
            if not torn:
                assert all(self.history[living[name].incarnation].deleted for name in bad)
        if not check_only:
            self.database.close()
            self.reported |= {object_info.key for object_info in report.unclaimed}
            self.restart_with(root, [living[name] for name in report.restored])

    def restart_with(self, root, found):
        """The node goes on with what was published; the model too."""
        self.open(root)
        self.model = {}
        for manifest in found:
            old = self.history[manifest.incarnation]
            end = max(manifest.uploaded_through + 1, manifest.first_offset)
            made = Modelled(old.name, old.records[:end], old.keep, manifest.first_offset)
            made.keys = old.keys[:end]
            made.closed, made.hidden = manifest.closed, manifest.hidden
            made.longest = max(old.longest, len(old.records))
            self.model[old.name] = made
            self.history[manifest.incarnation] = made
        for manifest in found:
            if manifest.origin is not None:
                parent = self.model[manifest.origin.name]
                self.model[manifest.name].parent = parent
                parent.forks += 1

    # What must hold

    def manifests(self):
        found = []
        for info in self.inner.list("streams/"):
            if info.key.endswith("manifest.json"):
                data = self.inner.get(info.key).data
                try:
                    found.append((decode(data, info.key), True))
                except CorruptData:
                    found.append((None, False))
        return found

    def compare(self, streams, found, end, first):
        at, read, headers = first, [], []
        while True:
            _, chunk = streams.read(found.name, at, records_max=3)
            read += [(record.offset, record.payload) for record in chunk.records]
            headers += [record.encoded_headers for record in chunk.records]
            at = chunk.offset
            if chunk.up_to_date:
                break
        assert read == list(enumerate(found.records[:end]))[first:]
        assert headers == list(map(headers_of, found.keys[first:end]))
        for key in KEYS:
            whole = zip(read, found.keys[first:end], strict=True)
            expected = [each for each, has in whole if has == key]
            assert self.read_by_key(streams, found.name, first, key) == expected

    def read_by_key(self, streams, name, at, key):
        read = []
        while True:
            _, chunk = streams.read(name, at, records_max=2, sought=RecordFilter(key))
            read += [(record.offset, record.payload) for record in chunk.records]
            at = chunk.offset
            if chunk.up_to_date:
                return read

    @invariant()
    def nothing_contradicts_itself(self):
        assert self.streams.verify() == []

    @invariant()
    def every_stream_reads_as_the_model_says(self):
        kept, self.due_faults = self.due_faults, []
        for found in self.model.values():
            if not found.hidden:
                info = self.streams.info(found.name)
                assert (info.next_offset, info.closed) == (len(found.records), found.closed)
                # No two streams of a name have the same number, whatever was lost between them.
                key = (found.name, info.incarnation_number)
                assert self.given.setdefault(key, info.incarnation) == info.incarnation
                assert info.size_bytes == sum(map(len, found.records))
                self.compare(self.streams, found, len(found.records), found.first)
        self.due_faults = kept

    @invariant()
    def every_manifest_speaks_of_objects_that_are_whole(self):
        for manifest, whole in self.manifests():
            for segment in manifest.kept() if whole else ():
                data = self.inner.get(segment.key).data
                assert hashlib.sha256(data).hexdigest() == segment.digest
            for run in manifest.runs() if whole else ():
                data = self.inner.get(run.key).data
                assert hashlib.sha256(data).hexdigest() == run.sha256
            companions = manifest.companions if whole else None
            for entry in () if companions is None else companions.segments:
                data = self.inner.get(entry.key).data
                assert hashlib.sha256(data).hexdigest() == entry.sha256

    def everything_can_be_published_and_rebuilt(self):
        self.due_faults = []
        done = self.archive.publish_all()
        assert not done.failures
        assert not self.archive.compact().failures
        assert not self.archive.index().failures
        assert not self.archive.build_companions().failures
        self.search("service:auth OR slow", None, (None, None), ["service"], "1s")
        assert self.streams.verify() == []
        with self.database.read() as snapshot:
            assert list(object_problems(snapshot, self.inner)) == []
        # What a lost node had uploaded and never published, the bootstrap reported.
        unclaimed = unclaimed_problems(self.database, self.inner)
        assert [text for text in unclaimed if not any(key in text for key in self.reported)] == []
        living = {m.name: m for m, _ in self.manifests() if not m.deleted}
        assert living.keys() == self.model.keys()
        for name, manifest in living.items():
            assert manifest.next_offset == len(self.model[name].records)
            assert manifest.closed == self.model[name].closed
        self.rebuild(check_only=False)
        self.every_stream_reads_as_the_model_says()
