"""Points of a store: named, continued, abandoned, by one node or two; what a run costs."""

from __future__ import annotations

import shutil
from random import Random

import pytest
from published_stores import (
    DID,
    Life,
    at,
    contents,
    manifest_of,
    objects_of,
    open_store,
    published,
    rebuilt,
    streams_of,
    verified,
)

import fourfold
from fourfold import limits
from fourfold.archive import capture
from fourfold.archive.database_manifest import PUT
from fourfold.archive.manifest import (
    IndexRun,
    LogIndex,
    Manifest,
    Segments,
    decode,
    encode,
    manifest_key,
)
from fourfold.archive.restore_points import Place
from fourfold.archive.sealer import queries
from fourfold.errors import (
    HistoryTruncated,
    InvalidInput,
    NotFound,
    PublisherFenced,
    ReadOnly,
)
from fourfold.kernel import failpoints
from fourfold.models.documents import GcPolicy
from fourfold.models.streams.archive.records import COMPACT_SEGMENTS
from fourfold.models.streams.publication import ObjectsAt
from fourfold.objects import MemoryStore
from fourfold.retry import Retries
from fourfold.store.database_files import subject_lent
from fourfold.store.restoration import rebuild
from support.properties import sample

# What a run costs


def test_a_run_publishes_only_what_is_new(store, url):
    space = store.space(DID)
    for number in range(500):
        space.set(f"e{number}", {"n": number})
    published(store)
    before = objects_of(url)
    space.set("e1", {"n": -1})
    [done] = published(store).published
    added = {key: data for key, data in objects_of(url).items() if key not in before}
    files = manifest_of(url, done.name).last.files
    assert {(file.table, file.action, file.rows) for file in files} == {
        ("branch", PUT, 1),
        ("commit", PUT, 1),
        ("revision", PUT, 1),
    }
    assert sum(map(len, added.values())) < 20_000


@pytest.mark.usefixtures("archive_format")
def test_nothing_new_makes_no_request_and_no_point(store, url):
    Life(store, Random(2)).everything()
    published(store)
    before = objects_of(url)
    report = published(store)
    assert report.point is None
    assert report.unchanged == 4
    assert objects_of(url) == before


@pytest.mark.parametrize(
    "name", ["spaces/did:key:revisions", "spaces/did:key:facts", "sessions", "graphs"]
)
def test_what_is_new_is_found_without_a_look_at_history(store, name):
    """The plans of all that a run asks: each begins with a search by an index."""
    Life(store, Random(3)).everything()
    published(store)
    with subject_lent(store, name) as subject, subject.database.read() as snapshot:
        for table in capture.tables_of(snapshot, subject.description):
            if table.whole:
                continue
            new, changed = queries(table, capture.columns_of(snapshot, table.name))
            for sql in (*new, *changed):
                plan = [row[3] for row in snapshot.all(f"EXPLAIN QUERY PLAN {sql}", (1,))]
                # The branches that have new commits are gathered first.
                scans = [step for step in plan if step.startswith("SCAN") and step != "SCAN c"]
                assert not scans, (table.name, plan)


def test_a_store_that_does_not_publish_has_no_triggers(store):
    space = store.space(DID)
    space.set("a", {"n": 1})
    count = "SELECT count(*) FROM sqlite_schema WHERE name GLOB 'published*'"
    with space.database.read() as snapshot:
        assert snapshot.value(count) == 0
    published(store)
    with space.database.read() as snapshot:
        assert snapshot.value(count) > 0


def test_a_manifest_stays_small_however_often_is_published(store, url, tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "PUBLISH_ENTRIES", 3)
    space = store.space(DID)
    was = []
    for number in range(11):
        space.set("a", {"n": number})
        was.append((published(store).point, contents(store.root)))
    manifest = manifest_of(url, f"spaces/{DID}")
    assert len(manifest.publications) <= 3
    assert len(manifest.pages) == 3
    assert [entry.id for entry in store.points()] == [point.id for point, _ in was]
    for number in (0, 3, 10):
        point, expected = was[number]
        assert contents(rebuilt(tmp_path / f"again-{number}", url, at=point.id)) == expected


# One store after another


def test_a_rebuilt_store_goes_on_publishing_and_the_old_one_is_refused(store, url, tmp_path):
    life = Life(store, Random(6))
    life.everything()
    published(store)
    again = rebuilt(tmp_path / "again", url)
    with open_store(again, url) as other:
        other.space("did:key:revisions").set("mine", {"n": 1})
        other.sessions.create_session({"id": "mine"})
        other.graphs.upsert_setting("mine", "1")
        published(other)
        expected = contents(again)
    before = objects_of(url)
    store.space("did:key:revisions").set("theirs", {"n": 1})
    store.sessions.create_session({"id": "theirs"})
    store.graphs.upsert_setting("theirs", "1")
    report = store.publish()
    assert {name: type(error) for name, error in report.failures.items()} == dict.fromkeys(
        ("spaces/did:key:revisions", "sessions", "graphs"), PublisherFenced
    )
    with pytest.raises(PublisherFenced):
        report.raise_if_failed()
    after = objects_of(url)
    assert {key: after[key] for key in before} == before
    assert contents(rebuilt(tmp_path / "third", url)) == expected


@pytest.mark.usefixtures("archive_format")
def test_of_two_nodes_from_one_disk_one_publishes(store, url, tmp_path):
    store.space(DID).set("a", {"n": 1})
    published(store)
    store.close()
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    with open_store(tmp_path / "store", url) as one, open_store(tmp_path / "copy", url) as two:
        one.space(DID).set("a", {"n": "one"})
        two.space(DID).set("a", {"n": "two"})
        published(one)
        before = objects_of(url)
        assert isinstance(two.publish().failures[f"spaces/{DID}"], PublisherFenced)
        after = objects_of(url)
        assert {key: after[key] for key in before} == before
        one.space(DID).set("b", {"n": "one"})
        published(one)
    with open_store(rebuilt(tmp_path / "again", url), url) as again:
        assert again.space(DID).read("a").document == {"n": "one"}


@pytest.mark.usefixtures("archive_format")
def test_a_store_that_was_restored_to_the_past_does_not_publish_over_newer_history(
    store, url, tmp_path
):
    life = Life(store, Random(7))
    life.everything()
    first = published(store).point
    life.everything()
    published(store)
    newest, records = contents(store.root), streams_of(store.root, settings=at(url))
    past = rebuilt(tmp_path / "past", url, at=first.id)
    with open_store(past, url) as other:
        other.space("did:key:revisions").set("mine", {"n": 1})
        stream = other.streams.create("stream0", "text/plain")
        stream.append([b"mine"])
        failures = other.publish().failures
        assert isinstance(failures["spaces/did:key:revisions"], PublisherFenced)
        assert isinstance(failures["streams/stream0"], PublisherFenced)
    again = rebuilt(tmp_path / "again", url)
    assert contents(again) == newest
    assert streams_of(again, settings=at(url)) == records


@pytest.mark.usefixtures("archive_format")
def test_taking_over_from_an_earlier_point_leaves_the_newer_ones_restorable(store, url, tmp_path):
    life = Life(store, Random(8))
    life.everything()
    was = {
        published(store).point.id: (contents(store.root), streams_of(store.root, settings=at(url)))
    }
    first = next(iter(was))
    life.everything()
    store.space("did:key:late").set("a", {"n": 1})
    store.streams.create("late", "text/plain").append([b"x"])
    was[published(store).point.id] = contents(store.root), streams_of(store.root, settings=at(url))
    store.close()
    other = rebuilt(tmp_path / "other", url, at=first, take_over=True)
    with open_store(other, url) as opened:
        assert opened.spaces() == ["did:key:facts", "did:key:revisions"]
        opened.space("did:key:revisions").set("mine", {"n": 1})
        opened.space("did:key:late").set("mine", {"n": 2})
        opened.streams.create("stream0", "text/plain").append([b"mine"])
        point = published(opened).point.id
        was[point] = contents(other), streams_of(other, settings=at(url))
        assert opened.points()[-2].restored == first
    for number, (name, (rows, records)) in enumerate(sample(was.items())):
        again = rebuilt(tmp_path / f"again-{number}", url, at=name)
        assert contents(again) == rows
        assert streams_of(again, settings=at(url)) == records
    newest = rebuilt(tmp_path / "newest", url)
    assert contents(newest) == was[point][0]
    assert streams_of(newest, settings=at(url)) == was[point][1]


@pytest.mark.usefixtures("archive_format")
def test_a_store_that_took_over_without_changes_is_what_the_newest_point_shows(
    store, url, tmp_path
):
    space = store.space(DID)
    space.set("a", {"n": 1})
    stream = store.streams.create("s", "text/plain")
    stream.append([b"1"])
    first = published(store).point.id
    space.set("a", {"n": 2})
    stream.append([b"2"])
    published(store)
    store.close()
    rebuilt(tmp_path / "other", url, at=first, take_over=True)
    with open_store(rebuilt(tmp_path / "again", url), url) as again:
        assert again.space(DID).read("a").document == {"n": 1}
        assert [record.payload for record in again.streams.read("s")[1].records] == [b"1"]


# Points


@pytest.mark.usefixtures("archive_format")
def test_a_point_is_named_by_its_id_or_by_a_time(store, url, tmp_path):
    space = store.space(DID)
    points = []
    for number in range(3):
        space.set("a", {"n": number})
        points.append(published(store).point)
    assert [point.id for point in points] == sorted(point.id for point in points)
    for number, name in enumerate((points[0].id, points[1].at, "2999-01-01")):
        with open_store(rebuilt(tmp_path / f"again-{number}", url, at=name), url) as again:
            assert again.space(DID).read("a").document == {"n": number}
    for name in ("2000-01-01", "nonsense"):
        with pytest.raises(NotFound):
            rebuilt(tmp_path / "none", url, at=name)


@pytest.mark.usefixtures("archive_format")
def test_only_the_models_that_are_named_are_published(store, url):
    Life(store, Random(9)).everything()
    published(store, models=["sessions"])
    assert {database.name for database in store.published() if database.generation} == {"sessions"}
    with pytest.raises(InvalidInput):
        store.publish(models=["nothing"])


def test_records_that_would_be_lost_are_reported_exactly(store):
    space = store.space(DID)
    space.set("a", {"n": 1})
    [standing] = store.published()
    assert (standing.published, standing.newest) == (0, 1)
    published(store)
    space.set("a", {"n": 2})
    space.blobs.put(b"x")
    [standing] = store.published()
    assert (standing.published, standing.newest, standing.changes) == (1, 2, 1)
    published(store)
    [standing] = store.published()
    assert (standing.published, standing.newest, standing.changes) == (2, 2, 0)


def test_a_store_that_is_open_for_reading_does_not_publish(store, url):
    store.space(DID).set("a", {"n": 1})
    with (
        fourfold.open(store.root, mode="r", settings=at(url)) as reader,
        pytest.raises(ReadOnly),
    ):
        reader.publish()


def test_what_changes_while_it_is_published_is_published_the_next_time(store, url, tmp_path):
    """The keys that a trigger noted after the published state are retained."""
    space, graphs = store.space(DID), store.graphs
    app = graphs.register_app("notes", "Notes").app_id
    me = graphs.add_identity("ed25519:me").id
    kind = graphs.register_type(app, "parent", "note")
    row = graphs.insert_parent(app, {"type_id": kind, "owner_identity": me})
    for number in range(20):
        space.set("a", {"n": number})
    blob = space.blobs.put(b"first")
    published(store)
    space.set("a", {"n": 20})
    graphs.upsert_setting("k", "v")

    def meanwhile(_point):
        space.gc(GcPolicy(keep_seqs=2))
        space.blobs.put(b"second")
        space.set("b", {"n": 1})
        graphs.update_sync_flags(app, "parent", [row], 3)

    failpoints.arm("archive.manifest.intended", meanwhile)
    try:
        published(store, models=["documents", "graphs"])
    finally:
        failpoints.disarm()
    assert store.published()[0].changes > 0
    published(store)
    expected = contents(store.root)
    again = rebuilt(tmp_path / "again", url)
    verified(again)
    assert contents(again) == expected
    with open_store(again, url) as opened:
        assert opened.space(DID).blobs.get(blob) == b"first"


def test_the_manifest_of_a_stream_is_shown_as_it_was_at_a_point():
    """Without the segments, and the runs of indexes, that go beyond it."""
    columns = Segments([0, 2, 5], [1, 4, 6], [9] * 3, [7] * 3, [1] * 3, [1] * 3, ["d"] * 3)
    runs = [
        IndexRun(f"run{first}", 0, first, last, 1, 1, 1, "d")
        for first, last in ((0, 1), (2, 4), (5, 6))
    ]
    newest = Manifest(
        1,
        "0" * 32,
        7,
        "node",
        "s",
        "abc",
        deleted=False,
        published_at_ms=1,
        closed=True,
        next_offset=7,
        uploaded_through=6,
        logical_size_bytes=21,
        segments=columns,
        index=LogIndex("secret", 7, runs),
        secondary={"f": LogIndex("secret", 7, runs[:1])},
    )
    key = manifest_key("s")
    with MemoryStore() as objects:
        version = objects.put(key, encode(newest)).version
        shown = {
            through: ObjectsAt(
                objects, {"s": Place(3, through, "abc")}, take_over=False, retries=Retries()
            ).get(key)
            for through in (-1, 1, 4, 6)
        }
        manifests = {through: decode(read.data, key) for through, read in shown.items()}
        assert shown[6].info.version == version != shown[4].info.version
        for through, count in ((-1, 0), (1, 1), (4, 2), (6, 3)):
            manifest = manifests[through]
            assert manifest.segment_count == count
            assert (manifest.uploaded_through, manifest.next_offset) == (through, through + 1)
            assert manifest.logical_size_bytes == 7 * count
            assert manifest.closed == (count == 3)
            assert manifest.index.runs == runs[:count]
            assert manifest.index.indexed_offset == through + 1
            assert manifest.secondary["f"].indexed_offset == through + 1
        for place in (Place(3, 3, "abc"), Place(3, 4, "other")):
            seen = ObjectsAt(objects, {"s": place}, take_over=False, retries=Retries())
            with pytest.raises(HistoryTruncated):
                seen.get(key)
        with pytest.raises(NotFound):
            ObjectsAt(objects, {}, take_over=False, retries=Retries()).get(key)


def test_a_stream_that_was_compacted_since_is_refused_by_name_and_all_else_is_restored(
    store, url, tmp_path
):
    space = store.space(DID)
    stream = store.streams.create("s", "text/plain")
    points = []
    for number in range(COMPACT_SEGMENTS):
        space.set("a", {"n": number})
        stream.append([b"%d" % number])
        points.append(published(store).point)
    assert store.archive.compact().compacted
    space.set("b", {"n": 1})
    points.append(published(store).point)
    with open_store(tmp_path / "early", url) as early:
        failures = rebuild(early, at=points[0].id).failures
        assert [type(error) for error in failures.values()] == [HistoryTruncated]
        assert early.space(DID).read("a").document == {"n": 0}
    newest = rebuilt(tmp_path / "newest", url, at=points[-1].id)
    assert streams_of(newest, settings=at(url)) == {
        "s": [b"%d" % number for number in range(COMPACT_SEGMENTS)]
    }
