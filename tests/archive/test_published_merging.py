"""Published databases after many publications: merged, given up, deleted; each kept point is what
it was.
"""

from __future__ import annotations

import json
import os
from random import Random

import pytest
from published_stores import (
    DID,
    LARGE,
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
from fourfold.archive import database_manifest
from fourfold.archive.row_files import read_rows
from fourfold.errors import HistoryTruncated, NotFound, PublisherFenced
from fourfold.models.documents import GcPolicy
from fourfold.objects import AccountingStore, FolderStore, RequestCounter
from fourfold.store import restoration, retention
from fourfold.store.publish import now_ms
from fourfold.store.restoration import rebuild
from fourfold.store.retention import Keep
from support.properties import sample

NAME = f"spaces/{DID}"
DAY_MS = 86_400_000


@pytest.fixture(autouse=True)
def small_pages(monkeypatch):
    monkeypatch.setattr(limits, "PUBLISH_ENTRIES", 4)
    monkeypatch.setattr("fourfold.archive.compaction.PUBLISH_FANOUT", 3)


def lives(store, url, random, runs, steps=6):
    """A store that publishes after every few steps; what it was at each point."""
    life, was = Life(store, random), {}
    for _ in range(runs):
        for _ in range(steps):
            life.step()
        point = published(store).point
        if point is not None:
            was[point.id] = contents(store.root), streams_of(store.root, settings=at(url))
    return was


def sound(report):
    assert not report.failures
    return report


def restores(folder, url, was, points):
    for number, point in enumerate(points):
        again = rebuilt(folder / f"again-{number}", url, at=point)
        verified(again)
        rows, records = was[point]
        assert contents(again) == rows
        assert streams_of(again, settings=at(url)) == records


def fetched(folder, url):
    """How many objects of rows a restore of the newest state reads."""
    counter = RequestCounter()
    with open_store(folder, url) as store:
        store._objects = AccountingStore(
            store.objects, counter, lambda key: ("", key.split("/")[0])
        )
        assert not rebuild(store).failures
    return sum(
        entry.count
        for entry in counter.snapshot()
        if (entry.artifact, entry.op) == ("databases", "get")
    )


def test_every_point_is_what_it_was_after_its_publications_were_merged(store, url, tmp_path):
    was = lives(store, url, Random(21), 18)
    sound(retention.merge(store))
    names = ("spaces/did:key:revisions", "spaces/did:key:facts", "sessions", "graphs")
    levels = {page.level for name in names for page in manifest_of(url, name).pages}
    assert 0 not in levels
    assert 2 in levels
    assert store.verify(objects=True).problems == []
    restores(tmp_path, url, was, sample(was, 3))


def test_a_restore_reads_few_objects_however_often_was_published(store, url, tmp_path):
    space = store.space(DID)
    for number in range(60):
        space.set(f"e{number % 7}", {"n": number})
        published(store)
    sound(retention.merge(store))
    assert fetched(tmp_path / "again", url) < 45
    assert contents(tmp_path / "again") == contents(store.root)


def test_a_server_would_merge_as_it_publishes(store, url):
    space = store.space(DID)
    merged = []
    for number in range(13):
        space.set("a", {"n": number})
        merged += published(store).merged
    assert [entry.name for entry in merged] == [NAME] * 3
    levels = [page.level for page in manifest_of(url, NAME).pages]
    assert levels == [2]


def test_merging_is_off_where_it_is_switched_off(tmp_path, url):
    settings = {"objects.url": str(url), "archive.compact": "off"}
    with fourfold.open(tmp_path / "store", settings=settings) as store:
        for number in range(9):
            store.space(DID).set("a", {"n": number})
            assert published(store).merged == []


def test_merged_objects_are_deleted_after_their_grace_and_only_then(store, url, tmp_path):
    was = lives(store, url, Random(22), 10)
    sound(retention.merge(store))
    before = objects_of(url)
    would = sound(retention.collect(store, dry_run=True, at_ms=now_ms() + 2 * DAY_MS)).deleted
    assert objects_of(url) == before
    assert sound(retention.collect(store)).deleted == []
    assert objects_of(url) == before
    gone = sound(retention.collect(store, at_ms=now_ms() + 2 * DAY_MS)).deleted
    assert gone == would
    assert {entry.key for entry in gone} <= set(before)
    after = objects_of(url)
    assert not {entry.key for entry in gone} & set(after)
    assert not [key for key in after if "/retired/" in key]
    assert store.verify(objects=True).problems == []
    restores(tmp_path, url, was, sample(was, 3))
    assert sound(retention.collect(store, at_ms=now_ms() + 2 * DAY_MS)).deleted == []


@pytest.mark.parametrize("seed", range(2))
def test_points_that_are_kept_are_what_they_were_and_others_are_gone(store, url, tmp_path, seed):
    was = lives(store, url, Random(seed), 8)
    kept = list(was)[-3:]
    sound(retention.merge(store))
    report = sound(retention.collect(store, keep=Keep(points=3)))
    assert report.points == len(was) - 3
    assert [entry.id for entry in store.points()] == kept
    sound(retention.collect(store, at_ms=now_ms() + 3 * DAY_MS, keep=Keep(points=3)))
    assert store.verify(objects=True).problems == []
    restores(tmp_path, url, was, sample(kept))
    with open_store(tmp_path / "gone", url) as other, pytest.raises(NotFound):
        rebuild(other, at=next(iter(was)))
    life = Life(store, Random(99))
    life.everything()
    point = published(store).point.id
    was[point] = contents(store.root), streams_of(store.root, settings=at(url))
    restores(tmp_path / "more", url, was, [kept[0], point])


def test_a_point_that_a_database_has_given_up_is_refused_and_never_answered_wrongly(
    store, url, tmp_path
):
    """A reader that has looked at the list of points before it was cut."""
    space = store.space(DID)
    points = []
    for number in range(6):
        space.set("a", {"n": number})
        points.append(published(store).point)
    with open_store(tmp_path / "again", url) as other:
        running = restoration._Restore(other, points[0].id, take_over=False)
        sound(retention.collect(store, keep=Keep(points=2)))
        failures = running.run(None).failures
    assert isinstance(failures[NAME], HistoryTruncated)
    assert other.spaces() == []


def test_what_was_purged_before_the_first_point_is_in_no_object(store, url):
    space = store.space(DID)
    secret = "it-is-a-secret-" * 8
    space.set("a", {"n": secret})
    blob = space.blobs.put(b"s" * LARGE)
    store.sessions.create_session({"id": "s"})
    store.sessions.append_event("s", {"type": "turn/started", "turn": {"n": secret}})
    published(store)
    value = database_manifest.blob_key(blob.removeprefix("sha256:"))
    assert value in objects_of(url)
    space.delete("a")
    space.set("b", {"n": 1})
    space.gc(GcPolicy(keep_seqs=1, blobs=True, blob_age_s=0))
    store.sessions.delete_session("s")
    store.sessions.gc(0)
    published(store)
    sound(retention.collect(store, keep=Keep(points=1)))
    sound(retention.collect(store, keep=Keep(points=1), at_ms=now_ms() + 3 * DAY_MS))
    assert value not in objects_of(url)
    for key in objects_of(url):
        if key.endswith(".parquet"):
            assert secret not in json.dumps(rows_in(url, key))
    assert store.verify(objects=True).problems == []


def rows_in(url, key):
    with FolderStore(url) as objects:
        return [repr(rows) for _, rows in read_rows(objects.get(key).data, key)]


def test_a_value_that_another_database_names_stays(store, url):
    one, two = store.space(DID), store.space("did:key:two")
    blob = one.blobs.put(b"b" * LARGE)
    two.blobs.put(b"b" * LARGE)
    published(store)
    one.set("a", {"n": 1})
    one.gc(GcPolicy(keep_seqs=1, blobs=True, blob_age_s=0))
    published(store)
    for later in (0, 3 * DAY_MS):
        sound(retention.collect(store, keep=Keep(points=1), at_ms=now_ms() + later))
    assert database_manifest.blob_key(blob.removeprefix("sha256:")) in objects_of(url)
    assert store.verify(objects=True).problems == []


def test_points_are_kept_by_their_age_or_by_their_number(store):
    space = store.space(DID)
    points = []
    for number in range(5):
        space.set("a", {"n": number})
        points.append(published(store).point)
    later = points[-1].started_ms + 1000 * 3600
    assert retention.kept_points(points, Keep(), later) == points
    assert retention.kept_points(points, Keep(for_s=7200), later) == points
    assert retention.kept_points(points, Keep(for_s=60), later) == points[-1:]
    assert retention.kept_points(points, Keep(for_s=60, points=3), later) == points[-3:]
    assert retention.kept_points(points, Keep(for_s=7200, points=3), later) == points
    assert retention.kept_points(points, Keep(points=9), later) == points


def test_points_of_an_abandoned_history_are_retained(store, url, tmp_path):
    was = lives(store, url, Random(31), 4)
    first = list(was)[1]
    store.close()
    other = rebuilt(tmp_path / "other", url, at=first, take_over=True)
    with open_store(other, url) as opened:
        opened.space("did:key:revisions").set("mine", {"n": 1})
        opened.sessions.create_session({"id": "mine"})
        point = published(opened).point.id
        was[point] = contents(other), streams_of(other, settings=at(url))
        sound(retention.merge(opened))
        kept = [*list(was)[2:4], point]
        # The point at which it took over is one, too.
        sound(retention.collect(opened, keep=Keep(points=4)))
        sound(retention.collect(opened, keep=Keep(points=4), at_ms=now_ms() + 3 * DAY_MS))
        assert opened.verify(objects=True).problems == []
    restores(tmp_path, url, was, kept)


def test_a_node_that_was_fenced_merges_and_deletes_nothing(store, url, tmp_path):
    space = store.space(DID)
    for number in range(9):
        space.set("a", {"n": number})
        published(store)
    with open_store(rebuilt(tmp_path / "again", url), url) as other:
        other.space(DID).set("a", {"n": "other"})
        published(other)
        before = objects_of(url)
        later = now_ms() + 3 * DAY_MS
        assert isinstance(retention.merge(store).failures[NAME], PublisherFenced)
        report = retention.collect(store, keep=Keep(points=1), at_ms=later)
        assert isinstance(report.failures[NAME], PublisherFenced)
    after = objects_of(url)
    assert {key: data for key, data in after.items() if key.startswith("databases/")} == {
        key: data for key, data in before.items() if key.startswith("databases/")
    }


def test_leftovers_of_a_crash_are_deleted_once_they_are_old(store, url):
    store.space(DID).set("a", {"n": 1})
    published(store)
    left = f"{database_manifest.folder(NAME)}revision/00000009-put-0123456789abcdef.parquet"
    with FolderStore(url) as objects:
        objects.put(left, b"half of it")
    assert sound(retention.collect(store, grace_s=0.0)).deleted == []
    [gone] = sound(retention.collect(store, grace_s=0.0, at_ms=now_ms() + 2 * DAY_MS)).deleted
    assert (gone.key, gone.retired_at_ms) == (left, None)
    assert left not in objects_of(url)
    assert store.verify(objects=True).problems == []


def test_a_value_that_is_old_enough_to_be_swept_is_made_new_for_who_names_it(store, url):
    """A sweep may have looked already, and found that nothing refers to it."""
    blob = store.space(DID).blobs.put(b"b" * LARGE)
    published(store)
    key = database_manifest.blob_key(blob.removeprefix("sha256:"))
    [path] = [entry for entry in url.rglob("*") if entry.name == key.rsplit("/", 1)[1]]
    old = path.stat().st_mtime - limits.PUBLISH_ORPHAN_S
    os.utime(path, (old, old))
    store.space("did:key:two").blobs.put(b"b" * LARGE)
    published(store)
    assert path.stat().st_mtime > old + limits.PUBLISH_ORPHAN_S / 2
    assert path.read_bytes() == b"b" * LARGE
