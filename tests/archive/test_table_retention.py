"""Retention of points in archive tables: kept ones restore equally, others are gone."""

from __future__ import annotations

import os
import shutil
import time
from datetime import datetime
from random import Random

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from published_stores import (
    DID,
    LARGE,
    Life,
    at,
    contents,
    objects_of,
    open_store,
    published,
    rebuilt,
    streams_of,
    verified,
)
from table_maintenance import check_points, collected, compacted, files_of, later_ms

from fourfold import limits
from fourfold.archive.catalog import Catalog
from fourfold.archive.catalog_rows import DATABASE_ROW
from fourfold.archive.restore_points import PointInfo
from fourfold.errors import NotFound, PublisherFenced
from fourfold.models.documents import GcPolicy
from fourfold.objects import FaultyStore, FolderStore, open_objects
from fourfold.store import retention
from fourfold.store.restoration import rebuild
from fourfold.store.retention import Keep
from support.properties import sample
from support.s3_server import serve_s3


def rows_of(url, table):
    """The rows of a table as the newest commit of the catalog names it."""
    folder = url / "tables+" / f"{table}+"
    tables = [pq.read_table(folder / file) for file in files_of(url)[table]]
    return [row for table in tables for row in table.to_pylist()]


def catalog_rows(url):
    with FolderStore(url) as objects:
        files = Catalog(objects).refresh().snapshot.files
    return [row for file in files for row in pq.read_table(url / "catalog+" / file).to_pylist()]


# Points


def test_kept_points_restore_equally_and_removed_ones_are_refused(tmp_path, url):
    points, was = [], {}
    with open_store(tmp_path / "store", url) as store:
        life = Life(store, Random(8))
        life.purges = False
        life.everything()
        for _ in range(6):
            life.step()
            life.step()
            store.space(DID).set("a", {"n": len(points)})
            points.append(published(store).point.id)
            was[points[-1]] = contents(store.root)
        records = streams_of(rebuilt(tmp_path / "old", url, at=points[3]), settings=at(url))
        assert collected(store, 3).points == 3
        assert [point.id for point in store.points()] == points[3:]
        assert store.verify(objects=True).problems == []
        check_points(tmp_path, url, {point: was[point] for point in points[3:]}, "after")
        with pytest.raises(NotFound, match="the oldest is"):
            rebuilt(tmp_path / "removed", url, at=points[2])
        with pytest.raises(NotFound, match="at or before"):
            rebuilt(tmp_path / "removed", url, at="2020-01-01")
        assert collected(store, 3).points == 0
        store.space(DID).set("a", {"n": "more"})
        published(store)
        expected = contents(store.root)
    again = rebuilt(tmp_path / "streams", url, at=points[3])
    verified(again)
    assert streams_of(again, settings=at(url)) == records
    assert contents(rebuilt(tmp_path / "newest", url)) == expected


def test_rows_that_only_removed_points_need_are_in_no_file(tmp_path, url):
    with open_store(tmp_path / "store", url) as store:
        space = store.space(DID)
        for number in range(8):
            space.set("a", {"n": number})
            published(store)
        space.gc(GcPolicy(keep_seqs=2))
        published(store)
        store.space("did:key:other").set("b", {"n": 1})
        published(store)
        assert {row["seq"] for row in rows_of(url, "documents.revision")} == {*range(1, 9)}
        collected(store, 1)
        with space.database.read() as snapshot:
            left = {seq for (seq,) in snapshot.all("SELECT seq FROM revision")}
        found = [row for row in rows_of(url, "documents.revision") if row["space"] == DID]
        assert {row["seq"] for row in found} == left
        assert {row["_op"] for row in found} == {"put"}
        assert len(left) < 4
        objects = {key for key in objects_of(url) if key.startswith("tables/documents.revision/0")}
        assert len(objects) == len(files_of(url)["documents.revision"])


def test_catalog_has_no_rows_of_removed_points(tmp_path, url):
    with open_store(tmp_path / "store", url) as store:
        spaces = [store.space(f"did:key:{name}") for name in "ab"]
        for space in spaces:
            space.set("x", {"n": 0})
        published(store)
        for number in range(6):
            spaces[1].set("x", {"n": number})
            published(store)
        kept = store.points()[-2].id
        collected(store, 2)
        rows = catalog_rows(url)
        oldest = next(row["version"] for row in rows if row["id"] == kept)
        assert all(row["version"] >= oldest for row in rows if row["kind"] != DATABASE_ROW)
        databases = [row for row in rows if row["kind"] == DATABASE_ROW]
        unchanged = [row for row in databases if row["name"] == "spaces/did:key:a"]
        # It has not changed since, and the oldest point reads this row.
        assert len(unchanged) == 1
        assert unchanged[0]["version"] < oldest
        assert all(row["version"] >= oldest for row in databases if row not in unchanged)
        with FolderStore(url) as objects:
            files = Catalog(objects).refresh().snapshot.files
            listed = {info.key.removeprefix("catalog/") for info in objects.list("catalog/")}
        assert {key for key in listed if not key.startswith("_delta_log/")} == set(files)


def test_deleted_database_is_forgotten_with_its_last_point(tmp_path, url):
    with open_store(tmp_path / "store", url) as store:
        for name in ("old", "new"):
            store.space(f"did:key:{name}").set("x", {"n": 1})
        first = published(store).point.id
        store.space("did:key:new").set("x", {"n": 2})
        store.space("did:key:later").set("x", {"n": 2})
        published(store)
    taken = rebuilt(tmp_path / "taken", url, at=first, take_over=True)
    with open_store(taken, url) as store:
        store.space("did:key:new").set("x", {"n": 3})
        published(store)
        collected(store, 1)
        expected = contents(taken)
        spaces = {row["space"] for row in rows_of(url, "documents.revision")}
        assert spaces == {"did:key:old", "did:key:new"}
        with FolderStore(url) as objects:
            assert "spaces/did:key:later" not in Catalog(objects).refresh().names()
    assert contents(rebuilt(tmp_path / "again", url)) == expected


def test_age_keeps_points_too(tmp_path, url):
    with open_store(tmp_path / "store", url) as store:
        for number in range(3):
            store.space(DID).set("a", {"n": number})
            published(store)
        young = retention.Keep(for_s=3600)
        assert retention.collect(store, keep=young).points == 0
        assert len(store.points()) == 3
        report = retention.collect(store, keep=young, at_ms=later_ms())
        assert (report.points, report.failures) == (2, {})
        assert len(store.points()) == 1


def test_points_are_kept_by_their_age_or_by_their_number():
    hours = [f"2026-03-01T{hour:02}:00:00+00:00" for hour in range(5)]
    points = [PointInfo(f"{hour}", hour, 0, "", 1) for hour in hours]
    now_ms = int(datetime.fromisoformat("2026-03-01T05:00:00+00:00").timestamp() * 1000)
    for keep, count in (
        (Keep(), 5),
        (Keep(for_s=6 * 3600), 5),
        (Keep(for_s=60), 1),
        (Keep(for_s=60, points=3), 3),
        (Keep(for_s=4 * 3600, points=3), 4),
        (Keep(points=9), 5),
    ):
        assert retention.kept_points(points, keep, now_ms) == points[-count:], keep


def test_dry_run_reports_and_changes_nothing(tmp_path, url):
    with open_store(tmp_path / "store", url) as store:
        for number in range(4):
            store.space(DID).set("a", {"n": number})
            published(store)
        before = objects_of(url)
        assert collected(store, 1, dry_run=True).points == 3
        assert objects_of(url) == before
        assert len(store.points()) == 4


def test_background_removes_points_only_when_many_can_go(tmp_path, url, monkeypatch):
    monkeypatch.setattr(limits, "PUBLISH_FORGET_POINTS", 3)
    with open_store(tmp_path / "store", url) as store:
        for number in range(5):
            store.space(DID).set("a", {"n": number})
            published(store)
        assert collected(store, 3, seldom=True).points == 0
        published_after = [store.space(DID).set("a", {"n": 9}), published(store)]
        assert published_after
        assert collected(store, 3, seldom=True).points == 3
        assert len(store.points()) == 3


def test_node_that_is_not_the_publisher_removes_nothing(tmp_path, url):
    with open_store(tmp_path / "store", url) as store:
        for number in range(3):
            store.space(DID).set("a", {"n": number})
            published(store)
        with open_store(rebuilt(tmp_path / "other", url), url) as other:
            other.space(DID).set("a", {"n": 3})
            published(other)
            before = objects_of(url)
            report = retention.collect(store, keep=retention.Keep(points=1), at_ms=later_ms())
            assert isinstance(report.failures["tables"], PublisherFenced)
            assert (report.points, report.deleted) == (0, [])
            assert objects_of(url) == before


@pytest.mark.slow
def test_points_are_removed_on_a_server_of_the_s3_protocol(tmp_path, monkeypatch):
    with serve_s3() as server:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.access_key_id)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret_access_key)
        address = server.url("shop") + "&allow_http=true"
        was = {}
        with open_store(tmp_path / "store", address) as store:
            life = Life(store, Random(4))
            life.purges = False
            life.everything()
            for number in range(3):
                life.documents()
                life.sessions()
                store.space(DID).set("a", {"n": number})
                was[published(store).point.id] = contents(store.root)
            assert collected(store, 2).points == 1
            assert store.verify(objects=True).problems == []
            kept = [point.id for point in store.points()]
        assert kept == [*was][-2:]
        for number, point in enumerate(kept):
            again = rebuilt(tmp_path / f"again-{number}", address, at=point)
            assert contents(again) == was[point]


# Large values


def values_of(url):
    return {key for key in objects_of(url) if key.startswith("blobs/")}


def test_values_that_no_kept_point_has_are_deleted(tmp_path, url):
    with open_store(tmp_path / "store", url) as store:
        space = store.space(DID)
        one, two = (space.blobs.put(bytes([number]) * LARGE) for number in (1, 2))
        published(store)
        space.set("a", {"blob": two})
        space.gc(GcPolicy(keep_seqs=1, blobs=True, blob_age_s=0))
        published(store)
        with FolderStore(url) as objects:
            objects.put("blobs/00/" + "0" * 64 + ".blob", b"left by a crash")
        young = collected(store, 1, at_ms=time.time_ns() // 1_000_000, grace_s=0)
        assert not [entry for entry in young.deleted if entry.database == "values"]
        assert len(values_of(url)) == 3
        deleted = collected(store, 1).deleted
        digest = one.removeprefix("sha256:")
        assert {entry.key for entry in deleted if entry.database == "values"} == {
            f"blobs/{digest[:2]}/{digest}.blob",
            "blobs/00/" + "0" * 64 + ".blob",
        }
        assert len(values_of(url)) == 1
        assert store.verify(objects=True).problems == []
    with open_store(rebuilt(tmp_path / "again", url), url) as again:
        assert again.space(DID).blobs.get(two) == bytes([2]) * LARGE


def test_value_that_another_database_refers_to_stays(tmp_path, url):
    with open_store(tmp_path / "store", url) as store:
        one, two = store.space(DID), store.space("did:key:two")
        for space in (one, two):
            space.blobs.put(b"b" * LARGE)
        published(store)
        one.set("a", {"n": 1})
        one.gc(GcPolicy(keep_seqs=1, blobs=True, blob_age_s=0))
        published(store)
        collected(store, 1)
        assert len(values_of(url)) == 1
        assert store.verify(objects=True).problems == []


def test_values_of_files_within_their_grace_period_stay(tmp_path, url):
    """A restore that has read the catalog before the points were removed needs them."""
    with open_store(tmp_path / "store", url) as store:
        space = store.space(DID)
        space.blobs.put(b"1" * LARGE)
        published(store)
        space.gc(GcPolicy(keep_seqs=1, blobs=True, blob_age_s=0))
        published(store)
        for key in values_of(url):
            path = next(url.glob(f"blobs+/*/{key.rsplit('/', 1)[1]}"))
            old = time.time() - 3 * 86_400
            os.utime(path, (old, old))
        assert collected(store, 1, at_ms=None).points == 1
        assert len(values_of(url)) == 1
        assert collected(store).deleted
        assert values_of(url) == set()


def test_background_looks_for_values_when_rows_of_them_go(tmp_path, url):
    with open_store(tmp_path / "store", url) as store:
        store.space(DID).blobs.put(b"1" * LARGE)
        published(store)
        with FolderStore(url) as objects:
            objects.put("blobs/00/" + "0" * 64 + ".blob", b"left by a crash")
        assert collected(store, seldom=True).deleted == []
        store.space(DID).blobs.put(b"2" * LARGE)
        published(store)
        compacted(store)
        deleted = {entry.database for entry in collected(store, seldom=True).deleted}
        assert deleted >= {"documents.blob_store", "values"}
        assert len(values_of(url)) == 2


class Interrupted(FaultyStore):
    """Calls a function before the first file of rows is uploaded."""

    def __init__(self, inner, pause):
        self._pause = pause
        super().__init__(inner, self._before)

    def _before(self, call):
        if call.op == "upload" and call.key.startswith("tables/") and self._pause is not None:
            pause, self._pause = self._pause, None
            pause()

    def close(self):
        """Leave the inner store open."""


def test_publication_that_found_a_value_before_a_sweep_is_fenced(tmp_path, url):
    """It refers to a value that is gone, so it must not become visible."""
    data = b"v" * LARGE
    with open_store(tmp_path / "store", url) as store, open_objects(str(url)) as objects:
        space = store.space(DID)
        space.blobs.put(data)
        published(store)
        space.gc(GcPolicy(keep_seqs=1, blobs=True, blob_age_s=0))
        published(store)
        collected(store, 1, at_ms=None, grace_s=0)
        other = rebuilt(tmp_path / "other", url)
        # The value is there and young, so it is not uploaded once more.
        space.blobs.put(data)

        def sweep():
            with open_store(other, url) as sweeper:
                assert "values" in {entry.database for entry in collected(sweeper).deleted}

        store._objects = Interrupted(objects, sweep)
        report = store.publish()
        assert {type(error) for error in report.failures.values()} == {PublisherFenced}
        assert report.point is None
    with open_store(other, url) as sweeper:
        sweeper.space(DID).set("b", {})
        published(sweeper)
        assert sweeper.verify(objects=True).problems == []


def test_value_that_is_published_again_is_uploaded_again_in_time(tmp_path, url):
    data = b"v" * LARGE
    with open_store(tmp_path / "store", url) as store:
        space = store.space(DID)
        space.blobs.put(data)
        published(store)
        space.gc(GcPolicy(keep_seqs=1, blobs=True, blob_age_s=0))
        published(store)
        collected(store, 1, at_ms=None, grace_s=0)
        [key] = values_of(url)
        path = next(url.glob(f"blobs+/*/{key.rsplit('/', 1)[1]}"))
        old = time.time() - limits.PUBLISH_ORPHAN_S
        os.utime(path, (old, old))
        space.blobs.put(data)
        published(store)
        assert path.stat().st_mtime > old + 3600
        assert collected(store, 1).deleted
        assert values_of(url) == {key}
        assert store.verify(objects=True).problems == []


# Random lives


def lives_with_retention(folder, random, turns):
    """Publish, keep some points, compact, sweep and take over; the model is what was in the store.

    Every kept point restores what it was, and only those are listed.
    """
    url, root, was = folder / "objects", folder / "store", {}
    life = None
    # After take-overs, streams cannot go back to every point.
    takes_over = random.random() < 0.5
    for turn in range(random.randint(2, turns)):
        with open_store(root, url) as store:
            if life is None:
                life = Life(store, random)
                life.purges = False
                if takes_over:
                    life.streams = life.documents
            life.store = store
            for _ in range(random.randint(1, 3)):
                for _ in range(random.randint(1, 8)):
                    life.step()
                point = published(store).point
                if point is not None:
                    was[point.id] = contents(root), streams_of(root, settings=at(url))
            for step in random.sample(("compact", "keep", "sweep"), random.randint(0, 3)):
                if step == "compact":
                    compacted(store)
                elif step == "keep":
                    keep = random.randint(1, 4)
                    collected(store, keep, at_ms=random.choice((None, later_ms())))
                    was = dict([*was.items()][-keep:])
                else:
                    collected(store)
            assert [point.id for point in store.points()] == [*was]
            assert store.verify(objects=True).problems == []
        if takes_over and was and random.random() < 0.5:
            chosen = random.choice([*was])
            is_newest = chosen == [*was][-1]
            root = rebuilt(folder / f"taken-{turn}", url, at=chosen, take_over=True)
            with open_store(root, url) as store:
                life.sids = [info.id for info in store.sessions.list_sessions()]
                if not is_newest:
                    was[store.points()[-1].id] = was[chosen]
    for number, (point, (expected, records)) in enumerate(sample(was.items(), 3)):
        again = rebuilt(folder / f"again-{number}", url, at=point)
        verified(again)
        assert contents(again) == expected, point
        assert streams_of(again, settings=at(url)) == records, point


def run_lives(tmp_path_factory, random, turns):
    folder = tmp_path_factory.mktemp("life")
    try:
        lives_with_retention(folder, random, turns)
    finally:
        shutil.rmtree(folder)


@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_kept_points_of_any_life_restore_what_they_were(tmp_path_factory, random):
    run_lives(tmp_path_factory, random, turns=2)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_kept_points_of_many_lives_restore_what_they_were(tmp_path_factory, random):
    run_lives(tmp_path_factory, random, turns=6)


def test_store_that_is_restored_continues_after_points_were_removed(tmp_path, url):
    with open_store(tmp_path / "store", url) as store:
        for number in range(4):
            store.space(DID).set("a", {"n": number})
            published(store)
        collected(store, 2)
    with open_store(tmp_path / "again", url) as again:
        assert not rebuild(again).failures
        again.space(DID).set("a", {"n": 4})
        published(again)
        assert collected(again, 1).points == 2
        expected = contents(again.root)
    assert contents(rebuilt(tmp_path / "third", url)) == expected
