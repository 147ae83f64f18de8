"""Points of a store: named, continued, abandoned, by one node or two; what a run costs."""

from __future__ import annotations

from random import Random

import pytest
from published_stores import (
    DID,
    Life,
    at,
    contents,
    open_store,
    published,
    rebuilt,
    streams_of,
)

import fourfold
from fourfold.archive import capture
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
from fourfold.models.streams.archive.records import COMPACT_SEGMENTS
from fourfold.models.streams.publication import ObjectsAt
from fourfold.objects import MemoryStore
from fourfold.retry import Retries
from fourfold.store.database_files import subject_lent
from fourfold.store.restoration import rebuild

# What a run costs


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


# One store after another


def test_store_restored_to_past_does_not_publish_over_newer_history(store, url, tmp_path):
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


def test_newest_point_is_the_unchanged_store_that_took_over(store, url, tmp_path):
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


def test_point_is_named_by_its_id_or_by_time(store, url, tmp_path):
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


def test_manifest_of_stream_is_shown_as_it_was_at_point():
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


def test_restore_refuses_only_the_streams_compacted_since(store, url, tmp_path):
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
