"""Two nodes that believe they own a stream, and nodes that are built from the objects alone."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
from node import Node, keys, read_manifest

from fourfold.archive.manifest import MANIFEST, classify, decode, manifest_key, name_hash
from fourfold.errors import FourfoldError, ObjectStoreError, PublisherFenced, StreamRecreated
from fourfold.kernel import failpoints
from fourfold.models.streams import Fork
from fourfold.models.streams.archive.verify import object_problems, unclaimed_problems
from fourfold.models.streams.validation import format_offset
from fourfold.objects import AccountingStore, Fault, FaultyStore, MemoryStore, RequestCounter

# Two nodes


def copied(make, node, name):
    """A node that believes that it is this one."""
    node.database.checkpoint("TRUNCATE")
    other = make(name, archived=False)
    other.close()
    shutil.copy(node.root / "wal.sqlite", other.root / "wal.sqlite")
    if (node.root / "segments").exists():
        shutil.copytree(node.root / "segments", other.root / "segments", dirs_exist_ok=True)
    Node.__init__(other, other.root, node.objects)
    return other


@pytest.mark.parametrize("before", [0, 8], ids=["unpublished", "published"])
def test_of_two_nodes_that_own_a_stream_exactly_one_publishes(make, objects, before):
    one = make("one")
    one.write("a", before)
    one.archive.round()
    two = copied(make, one, "two")
    held = {key: objects.head(key).version for key in keys(objects, ".parquet")}
    one.streams.create("a", "text/plain").append([b"of one"] * 8)
    two.streams.create("a", "text/plain").append([b"of two!"] * 8)
    first, second = one.archive.publish_all(), two.archive.publish_all()
    assert not first.failures
    assert isinstance(second.failures["a"], PublisherFenced)
    assert one.read("a")[before:] == [b"of one"] * 8
    assert read_manifest(objects, "a").uploaded_through == before + 7
    # What was there is as it was, and the winner's manifest speaks of what the winner wrote.
    assert {key: objects.head(key).version for key in held} == held
    with one.database.read() as snapshot:
        assert list(object_problems(snapshot, objects)) == []
    # The loser keeps what it has, and stays out of it.
    assert two.read("a")[before:] == [b"of two!"] * 8
    assert two.archive.round().idle
    with pytest.raises(PublisherFenced):
        two.archive.settle("a")
    # It does not fall silent: what is not published is reported each time.
    assert isinstance(two.archive.publish_all().failures["a"], PublisherFenced)
    assert not one.archive.publish_all().failures


def test_two_nodes_that_race_have_one_winner(make, objects):
    one = make("one")
    two = copied(make, one, "two")
    for entry in (one, two):
        entry.streams.create("a", "text/plain").append([entry.root.name.encode()] * 8)
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda each: each.archive.publish_all(), (one, two)))
    assert sorted(len(result.failures) for result in done) == [0, 1]
    winner = one if not done[0].failures else two
    manifest = read_manifest(objects, "a")
    assert manifest.incarnation == winner.row("a")["incarnation"]
    with winner.database.read() as snapshot:
        assert list(object_problems(snapshot, objects)) == []


def test_a_node_that_was_replaced_stops(make, objects):
    old = make("old")
    old.write("a", 8)
    old.archive.publish_all()
    new = make("new")
    new.bootstrap()
    new.archive.publish_all()
    old.write("a", 8, start=8)
    assert isinstance(old.archive.publish_all().failures["a"], PublisherFenced)
    assert new.read("a") == [f"a-{n}".encode() for n in range(8)]


# Rebuilding


def test_lost_disk_loses_unpublished_tail_and_says_exactly_what(make, objects):
    node = make("one")
    records = node.write("a", 10)
    node.write("b", 2)
    node.archive.round()
    other = make("two")
    report = other.bootstrap()
    assert set(report.restored) == {"a", "b"}
    assert report.records == 8
    assert {(loss.stream, loss.first_offset, loss.next_offset) for loss in report.lost} == {
        ("a", 8, 10),
        ("b", 0, 2),
    }
    assert other.read("a") == records[:8]
    assert other.read("b") == []
    assert other.streams.verify() == []
    other.streams.open("a").append([b"on it goes"])
    assert other.read("a") == [*records[:8], b"on it goes"]


def test_everything_about_a_stream_is_rebuilt(make, objects):
    node = make("one")
    node.streams.create("a", "application/json", ttl=60, retention_bytes=10_000)
    node.streams.open("a").append(b"[1, 2.0, 3]", seq="s-1")
    node.streams.open("a").close()
    node.streams.create("b", "text/plain", expires_at_ms=99_000_000, closed=True)
    node.streams.create("c", fork=Fork("a", 2))
    node.streams.create("d", fork=Fork("c"))
    node.archive.publish_all()
    other = make("two")
    other.bootstrap()
    for name in ("a", "b", "c", "d"):
        before, after = node.streams.info(name), other.streams.info(name)
        same = {"sid": 0, "wal_bytes": 0, "forked_from": None}
        assert after._replace(**same) == before._replace(**same)
        assert other.read(name) == node.read(name)
    assert other.streams.verify() == []


def test_streams_that_listing_shows_late_are_added_by_next_run(make, objects):
    node = make("one")
    for name in ("a", "b"):
        node.write(name, 4)
    node.streams.create("f", fork=Fork("b"))
    node.archive.publish_all()
    late = manifest_key("b")

    class StaleReads(MemoryStore):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def list(self, prefix="", *, start_after=None):
            found = self.inner.list(prefix, start_after=start_after)
            return (info for info in found if info.key != late)

        def get(self, key):
            return self.inner.get(key)

    other = make("two")
    other.objects = StaleReads(objects)
    report = other.bootstrap()
    assert report.restored == ("a",)
    assert set(report.failures) == {"f"}
    other.objects = objects
    report = other.bootstrap()
    assert (set(report.restored), report.present) == ({"b", "f"}, ("a",))
    assert not report.failures
    assert other.streams.verify() == []


def lived_in(make):
    """A node with streams of several segments, and forks of forks."""
    node = make("one")
    for number in range(12):
        node.write(f"s{number:02}", 1 + 3 * (number % 4))
    node.streams.create("a-fork", fork=Fork("s11", 2))
    node.streams.create("a-fork-of-a-fork", fork=Fork("a-fork"))
    node.streams.create("z-fork", fork=Fork("s03", 1))
    node.archive.publish_all()
    return node


def everything(node):
    """All rows of a node that was built from objects."""
    tables = ("streams", "segments", "stream_segment_meta", "manifests")
    with node.database.read() as snapshot:
        return {table: snapshot.all(f"SELECT * FROM {table} ORDER BY 1") for table in tables}


@pytest.mark.parametrize(
    ("streams", "segments", "transactions"), [(1, 50, 16), (4, 50, 5), (100, 1, 14), (100, 5, 6)]
)
def test_streams_are_same_however_many_are_made_in_one_transaction(
    make, monkeypatch, streams, segments, transactions
):
    node = lived_in(make)
    whole = make("whole")
    report = whole.bootstrap()
    monkeypatch.setattr("fourfold.models.streams.archive.bootstrapper.BOOTSTRAP_STREAMS", streams)
    monkeypatch.setattr("fourfold.models.streams.archive.bootstrapper.BOOTSTRAP_SEGMENTS", segments)
    parts = make("parts")
    before = parts.database.transactions
    assert parts.bootstrap() == report
    assert parts.database.transactions - before == transactions
    assert everything(parts) == everything(whole)
    assert parts.streams.verify() == []
    for name in report.restored:
        assert parts.read(name) == node.read(name)


def test_bootstrap_that_ends_between_two_transactions_is_completed_by_next(make, monkeypatch):
    lived_in(make)
    whole = make("whole")
    restored = whole.bootstrap().restored
    monkeypatch.setattr("fourfold.models.streams.archive.bootstrapper.BOOTSTRAP_STREAMS", 4)
    cut = make("cut")

    class Ended(Exception):
        pass

    def until_some_are_there(what, done, _):
        if what == "streams" and done >= 8:
            raise Ended

    with pytest.raises(Ended):
        cut.bootstrap(progress=until_some_are_there)
    # What is there is whole.
    assert cut.streams.verify() == []
    report = cut.bootstrap()
    assert len(report.present) == 8
    assert sorted(report.present + report.restored) == sorted(restored)
    assert everything(cut) == everything(whole)


@pytest.mark.parametrize("at_once", [1, 2, 1000])
@pytest.mark.parametrize("count", [1, 41])
def test_every_manifest_is_read_once(make, objects, monkeypatch, count, at_once):
    monkeypatch.setattr("fourfold.models.streams.archive.bootstrapper.BOOTSTRAP_READ_KEYS", at_once)
    node = make("one")
    for number in range(count):
        node.write(f"s{number}", 1)
    node.archive.publish_all()
    damaged = manifest_key("s0")
    objects.put(damaged, b"{")
    counter = RequestCounter()
    report = make("two", over=AccountingStore(objects, counter, classify)).bootstrap()
    assert set(report.restored) == {f"s{number}" for number in range(1, count)}
    assert set(report.failures) == {damaged}
    read = [
        entry for entry in counter.snapshot() if (entry.artifact, entry.op) == ("manifest", "get")
    ]
    assert sum(record.count for record in read) == count


def test_a_damaged_manifest_is_named_and_the_others_are_restored(make, objects):
    node = make("one")
    for name in ("a", "b"):
        node.write(name, 4)
    node.archive.publish_all()
    key = manifest_key("a")
    objects.put(key, objects.get(key).data[:100])
    other = make("two")
    report = other.bootstrap()
    assert report.restored == ("b",)
    assert set(report.failures) == {key}
    assert {object_info.key for object_info in report.unclaimed} == {
        entry for entry in keys(objects, ".parquet") if name_hash("a") in entry
    }


def test_a_manifest_in_the_place_of_another_is_not_believed(make, objects):
    node = make("one")
    node.write("a", 4)
    node.archive.publish_all()
    key = manifest_key("b")
    objects.put(key, objects.get(manifest_key("a")).data)
    report = make("two").bootstrap()
    assert report.restored == ("a",)
    assert set(report.failures) == {key}


def test_segments_that_no_manifest_speaks_of_are_reported(make, objects):
    manifest = manifest_key("a")
    fail = [True]

    def plan(call):
        return Fault.FAIL if fail[0] and call.key == manifest and call.op == "put" else None

    node = make("one", over=FaultyStore(objects, plan))
    node.write("a", 8)
    node.archive.round()
    other = make("two")
    report = other.bootstrap()
    assert not report.restored
    assert [object_info.key for object_info in report.unclaimed] == keys(objects, ".parquet")


def test_damaged_object_is_found_by_read_and_by_verification(make, objects):
    node = make()
    node.write("a", 8)
    node.archive.publish_all()
    key = keys(objects, ".parquet")[0]
    data = bytearray(objects.get(key).data)
    data[len(data) // 3] ^= 1
    objects.put(key, bytes(data))
    shutil.rmtree(node.root / "segments")
    node.open_archive()
    with pytest.raises(FourfoldError, match="segment"):
        node.read("a")
    with node.database.read() as snapshot:
        assert any(key in object_problem for object_problem in object_problems(snapshot, objects))


def test_changed_settings_are_published_and_rebuilt(make, objects):
    node = make("one")
    node.write("a", 5)
    node.streams.create("b", "text/plain", ttl=60)
    node.archive.publish_all()
    node.streams.open("a").configure(expires_at_ms=99_000_000, retention_bytes=1000)
    node.streams.open("b").configure(ttl=7, retention_seconds=100)
    node.archive.publish_all()
    other = make("two")
    other.bootstrap()
    info = other.streams.info("a")
    assert (info.expires_at_ms, info.retention_bytes) == (99_000_000, 1000)
    info = other.streams.info("b")
    assert (info.ttl_seconds, info.retention_seconds) == (7, 100)


def test_settings_changed_during_a_publication_are_published_by_the_next(make, objects):
    node = make("one")
    node.write("a", 5)
    log = node.streams.open("a")
    failpoints.arm("archive.manifest.uploaded", lambda _: log.configure(retention_bytes=9))
    node.archive.publish_all()
    failpoints.disarm()
    node.archive.publish_all()
    other = make("two")
    other.bootstrap()
    assert other.streams.info("a").retention_bytes == 9


# Objects without a manifest


def without_manifests(node):
    """Publish what can be while no manifest can be written."""
    put = node.objects.put

    def refusing(key, *arguments, **options):
        if key.endswith(MANIFEST):
            raise ObjectStoreError("down")
        return put(key, *arguments, **options)

    node.objects.put = refusing
    try:
        assert node.archive.publish_all().failures
    finally:
        del node.objects.put


def test_segment_without_manifest_is_collected_after_stream_deletion(make, objects):
    node = make("one")
    node.write("a", 4)
    without_manifests(node)
    assert len(keys(objects, ".parquet")) == 1
    node.streams.delete("a")
    node.archive.expire_backoffs()
    assert not node.archive.publish_all().failures
    assert len(keys(objects, ".parquet")) == 1
    node.archive.collect(grace_s=0)
    assert keys(objects, ".parquet") == []
    assert list(node.archive.folder.rglob("*.parquet")) == []


def test_segment_without_manifest_survives_recreation_of_its_stream(make, objects):
    node = make("one")
    node.write("a", 4)
    without_manifests(node)
    node.streams.delete("a")
    node.write("a", 5)
    node.archive.expire_backoffs()
    node.archive.publish_all()
    node.archive.collect(grace_s=0)
    assert list(unclaimed_problems(node.database, objects)) == []
    assert node.read("a") == [b"a-%d" % number for number in range(5)]


def test_verify_reports_an_object_that_nothing_speaks_of(make, objects):
    node = make("one")
    node.write("a", 4)
    node.archive.publish_all()
    assert list(unclaimed_problems(node.database, objects)) == []
    key = keys(objects, ".parquet")[0].replace("segments/", "segments/left-")
    objects.put(key, b"x")
    (problem,) = unclaimed_problems(node.database, objects)
    assert problem.startswith(f"object {key!r} is unclaimed")


def test_verify_does_not_report_what_another_node_has_published(make, objects):
    one, two = make("one"), make("two")
    one.write("a", 4)
    one.archive.publish_all()
    assert list(unclaimed_problems(two.database, objects)) == []


def test_incarnation_numbers_survive_a_rebuild(make, objects):
    node = make("one")
    for _ in range(3):
        node.write("a", 5)
        node.streams.delete("a")
    node.write("a", 5)
    node.archive.publish_all()
    node.write("gone", 5)
    node.archive.publish_all()
    node.streams.delete("gone")
    node.archive.publish_all()
    assert node.streams.info("a").incarnation_number == 3
    other = make("two")
    other.bootstrap()
    assert other.streams.info("a").incarnation_number == 3
    at = node.streams.read("a", records_max=2)[1].offset
    assert other.read("a", at) == node.read("a", at)
    with pytest.raises(StreamRecreated):
        other.read("a", format_offset(2, 2))
    number = other.streams.create("gone", "text/plain").info.incarnation_number
    # Also a name of which the objects know nothing may have had a stream.
    assert number > 0
    assert other.streams.create("unpublished", "text/plain").info.incarnation_number > other.now
    assert other.streams.verify() == []


def test_manifest_of_deleted_stream_has_last_number_of_its_name(make, objects):
    node = make("one")
    for _ in range(2):
        node.write("a", 5)
        node.archive.publish_all()
        node.streams.delete("a")
    node.archive.publish_all()
    manifest = decode(objects.get(manifest_key("a")).data, "a")
    assert (manifest.deleted, manifest.incarnation_number) == (True, 1)


def test_totals_count_published_records(make, objects):
    node = make("one")
    records = node.write("a", 10)
    node.streams.open("a").fork("f", 3).append([b"own"])
    total = (2, 11, sum(map(len, records)) + 3)
    assert node.streams.totals() == total
    node.archive.publish_all()
    assert node.streams.info("a").wal_bytes == 0
    assert node.streams.totals() == total
    node.streams.open("a").append([b"x"])
    other = make("two")
    other.bootstrap()
    assert other.streams.totals() == total
    other.streams.delete("f")
    other.streams.open("a").configure(retention_bytes=1)
    other.streams.sweep()
    kept = other.read("a")
    assert other.streams.totals() == (1, len(kept), sum(map(len, kept)))
