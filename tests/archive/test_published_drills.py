"""Disasters of published databases, on a folder and on a server of the S3 protocol: each point that
was published is restored, also when it was merged, and no publisher overwrites another.
"""

from __future__ import annotations

import shutil
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
    verified,
)

from fourfold import limits
from fourfold.archive import database_manifest
from fourfold.errors import ObjectStoreError, PublisherFenced
from fourfold.objects import FaultyStore, open_objects
from fourfold.store import retention
from fourfold.store.publish import now_ms
from fourfold.store.retention import Keep
from fourfold.testing.faulty_store import Fault
from support.properties import sample
from support.s3_server import serve_s3

NAME = f"spaces/{DID}"
LATER_MS = 3 * 86_400_000


@pytest.fixture(autouse=True)
def small_pages(monkeypatch):
    monkeypatch.setattr(limits, "PUBLISH_ENTRIES", 3)
    monkeypatch.setattr("fourfold.archive.compaction.PUBLISH_FANOUT", 2)


@pytest.fixture(scope="module")
def server():
    with serve_s3() as found:
        yield found


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.slow)])
def place(request, tmp_path, monkeypatch):
    """The address of an object store."""
    if request.param == "folder":
        return str(tmp_path / "objects")
    server = request.getfixturevalue("server")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret_access_key)
    prefix = "".join(entry for entry in tmp_path.name if entry.isalnum())
    return server.url(prefix) + "&allow_http=true"


def lives(store, place, random, runs):
    life, was = Life(store, random), {}
    for _ in range(runs):
        for _ in range(6):
            life.step()
        point = published(store).point
        if point is not None:
            was[point.id] = contents(store.root), streams_of(store.root, settings=at(place))
    return was


def restores(folder, place, was):
    for number, (point, (rows, records)) in enumerate(sample(was.items())):
        again = rebuilt(folder / f"again-{number}", place, at=point)
        verified(again)
        assert contents(again) == rows
        assert streams_of(again, settings=at(place)) == records


def objects_at(place):
    with open_objects(place) as objects:
        return {info.key: objects.get(info.key).data for info in objects.list()}


def kept_in_order(store, keep):
    """Merge, give up, and delete, as if the time of grace were over."""
    for report in (
        retention.merge(store),
        retention.collect(store, keep=keep),
        retention.collect(store, keep=keep, at_ms=now_ms() + LATER_MS),
    ):
        assert not report.failures


def test_a_disk_that_is_lost_is_built_again_at_every_point(place, tmp_path):
    with open_store(tmp_path / "store", place) as store:
        was = lives(store, place, Random(1), 8)
        kept_in_order(store, Keep(points=5))
        assert store.verify(objects=True).problems == []
    shutil.rmtree(tmp_path / "store")
    restores(tmp_path, place, dict(list(was.items())[-5:]))
    newest = rebuilt(tmp_path / "newest", place)
    assert contents(newest) == was[max(was)][0]
    # It goes on where the lost one was: publishes, merges and deletes.
    with open_store(newest, place) as store:
        store.space("did:key:revisions").set("more", {"n": 1})
        published(store)
        kept_in_order(store, Keep(points=2))
        expected = contents(newest)
    assert contents(rebuilt(tmp_path / "third", place)) == expected


@pytest.mark.parametrize("part", ["/revision/", "/pages/", "/retired/"])
def test_a_part_that_was_cut_short_is_put_again_and_never_named(place, tmp_path, part):
    with open_store(tmp_path / "store", place) as store:
        space, was = store.space(DID), {}
        for number in range(3):
            space.set("a", {"n": number})
            was[published(store).point.id] = contents(store.root), {}
        real, torn = store.objects, []

        def tears(call):
            if part in call.key and call.op in {"put", "upload"} and len(torn) < 5:
                torn.append(call.key)
                return Fault.TEAR
            return None

        store._objects = FaultyStore(real, tears)
        # The manifest names none of what is cut short: all that was published stays readable.
        space.set("a", {"n": 3})
        report = store.publish()
        assert torn
        assert report.failures
        assert all(isinstance(error, ObjectStoreError) for error in report.failures.values())
        store._objects = real
        restores(tmp_path / "meanwhile", place, was)
        space.set("b", {"n": 4})
        was[published(store).point.id] = contents(store.root), {}
        assert not retention.merge(store).failures
        assert store.verify(objects=True).problems == []
    restores(tmp_path, place, was)


@pytest.mark.parametrize("place", ["folder", "s3"], indirect=True)
def test_manifest_that_went_back_before_a_merge_is_replaced(place, tmp_path):
    key = database_manifest.manifest_key(NAME)
    with open_store(tmp_path / "store", place) as store:
        space, was = store.space(DID), {}
        for number in range(5):
            space.set("a", {"n": number})
            was[published(store).point.id] = contents(store.root), {}
        before = objects_at(place)[key]
        space.set("a", {"n": 5})
        was[published(store).point.id] = contents(store.root), {}
        assert not retention.merge(store).failures
        with open_objects(place) as objects:
            objects.put(key, before)
        # The old manifest names objects that are retired and still there.
        restores(tmp_path / "meanwhile", place, dict(list(was.items())[:5]))
        assert not retention.merge(store).failures
        assert not retention.collect(store, at_ms=now_ms() + LATER_MS).failures
        space.set("b", {"n": 6})
        was[published(store).point.id] = contents(store.root), {}
        kept_in_order(store, Keep())
        assert store.verify(objects=True).problems == []
    restores(tmp_path, place, was)


def test_of_two_publishers_one_merges_and_the_other_is_fenced(place, tmp_path):
    with open_store(tmp_path / "store", place) as store:
        for number in range(5):
            store.space(DID).set("a", {"n": number})
            published(store)
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    with open_store(tmp_path / "store", place) as one, open_store(tmp_path / "copy", place) as two:
        one.space(DID).set("a", {"n": "one"})
        two.space(DID).set("a", {"n": "two"})
        published(one)
        was = {one.points()[-1].id: (contents(one.root), {})}
        before, points = objects_at(place), one.points()
        later = now_ms() + LATER_MS
        failures = [
            two.publish().failures,
            retention.merge(two).failures,
            retention.collect(two, keep=Keep(points=1), grace_s=0.0, at_ms=later).failures,
        ]
        for found in failures:
            assert isinstance(found[NAME], PublisherFenced)
        after = objects_at(place)
        changed = {key for key, data in before.items() if after.get(key) != data}
        # Merging combines points too, in any process; none of them is deleted.
        assert changed <= {"points/list.json"}
        assert one.points() == points
        kept_in_order(one, Keep(points=2))
        assert one.verify(objects=True).problems == []
    restores(tmp_path, place, was)


def test_a_store_of_the_past_gives_up_nothing(place, tmp_path):
    with open_store(tmp_path / "store", place) as store:
        was = lives(store, place, Random(6), 4)
    past = rebuilt(tmp_path / "past", place, at=next(iter(was)))
    with open_store(past, place) as store:
        report = retention.collect(store, keep=Keep(points=1), grace_s=0.0)
        assert {type(error) for error in report.failures.values()} == {PublisherFenced}
        assert [point.id for point in store.points()] == list(was)
    restores(tmp_path, place, was)


def test_two_copies_of_a_disk_that_both_merge_agree_on_one(place, tmp_path):
    """Neither has anything new: what they make of the same publications is the same."""
    with open_store(tmp_path / "store", place) as store:
        was = lives(store, place, Random(5), 5)
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    with open_store(tmp_path / "store", place) as one, open_store(tmp_path / "copy", place) as two:
        assert not retention.merge(one).failures
        for error in retention.merge(two).failures.values():
            assert isinstance(error, PublisherFenced)
        assert one.verify(objects=True).problems == []
    restores(tmp_path, place, was)
