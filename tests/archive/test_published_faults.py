"""Published stores when something is wrong: with the objects, the database, or who publishes."""

from __future__ import annotations

import contextlib
import re
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest
from published_stores import (
    DID,
    LARGE,
    Life,
    contents,
    objects_of,
    open_store,
    published,
    rebuilt,
)

from fourfold.archive import database_manifest, manifest_format
from fourfold.archive.restore_points import LIST
from fourfold.errors import (
    CorruptData,
    FutureFormat,
    ObjectStoreError,
)
from fourfold.objects import FaultyStore, FolderStore, MemoryStore
from fourfold.store.restoration import rebuild
from fourfold.testing.faulty_store import Fault, seeded

# What is wrong


def test_one_database_that_fails_does_not_stop_the_others(store, url):
    Life(store, Random(10)).everything()
    space = store.space("did:key:facts")
    space.database.transact(
        lambda txn: txn.execute("UPDATE \"commit\" SET local_seq = CAST('x' AS BLOB) WHERE seq = 1")
    )
    report = store.publish()
    assert list(report.failures) == ["spaces/did:key:facts"]
    assert "local_seq" in report.failures["spaces/did:key:facts"].message
    assert {database.name for database in report.published} == {
        "spaces/did:key:revisions",
        "sessions",
        "graphs",
    }
    assert report.point is not None


@pytest.mark.parametrize("seed", range(2))
def test_an_object_store_that_fails_now_and_then_loses_and_overwrites_nothing(tmp_path, seed):
    """Errors before the effect, answers that are lost, and writes that are cut short."""
    inner, broken = MemoryStore(), seeded(seed, rate=0.25)
    plan = [broken]
    seen = {}
    with open_store(tmp_path / "store", "memory:") as store:
        store._objects = FaultyStore(inner, lambda call: plan[0] and plan[0](call))
        life = Life(store, Random(seed))
        for _ in range(6):
            life.step()
            life.step()
            with contextlib.suppress(ObjectStoreError):
                store.publish()
            for info in inner.list():
                data = inner.get(info.key).data
                if manifest_format.token_of(data) is None and info.key != LIST:
                    seen.setdefault(info.key, set()).add(data)
        plan[0] = None
        published(store)
        assert store.verify(objects=True).problems == []
        with open_store(tmp_path / "again", "memory:") as again:
            again._objects = store.objects
            assert not rebuild(again).failures
            assert contents(again.root) == contents(store.root)
    # What is named by its content may have been cut short, once; it was never anything else.
    for key, versions in seen.items():
        assert len({len(data) for data in versions}) == len(versions) <= 2, key


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("then", [[], [Fault.FAIL], [Fault.TIME_OUT], [Fault.TEAR, Fault.FAIL]])
def test_a_manifest_that_was_cut_short_gives_way_to_the_next_one(tmp_path, first, then):
    """At the first publication and at a later one; what is tried next may fail as well."""
    key = database_manifest.manifest_key(f"spaces/{DID}")
    plan = [None]
    inner = MemoryStore()
    with open_store(tmp_path / "store", "memory:") as store:
        store._objects = FaultyStore(
            inner, lambda call: plan[0] if (call.op, call.key) == ("put", key) else None
        )
        space = store.space(DID)
        if not first:
            space.set("a", {"n": 0})
            published(store)
        for number, fault in enumerate([Fault.TEAR, *then]):
            space.set("a", {"n": number + 1})
            plan[0] = fault
            # A manifest that is up although its answer was lost is found to be there.
            failed = [] if fault is Fault.TIME_OUT else [f"spaces/{DID}"]
            assert list(store.publish().failures) == failed
            if number == 0:
                with pytest.raises(CorruptData):
                    database_manifest.decode(inner.get(key).data, key)
        plan[0] = None
        published(store)
        assert store.verify(objects=True).problems == []
        expected = contents(store.root)
        with open_store(tmp_path / "again", "memory:") as again:
            again._objects = store.objects
            assert not rebuild(again).failures
            assert contents(again.root) == expected


def test_a_list_of_points_that_was_cut_short_is_made_again(store, url):
    space = store.space(DID)
    known = []
    for number in range(3):
        space.set("a", {"n": number})
        known.append(published(store).point)
    with FolderStore(url) as objects:
        objects.put(LIST, objects.get(LIST).data[:40])
        # One more point was on its way, and is not whole either.
        last = objects.get(f"points/{known[-1].id}.json").data
        objects.put("points/29991231T000000.000Z-ffff.json", last[:40])
    assert store.points() == known
    space.set("a", {"n": 3})
    known.append(published(store).point)
    assert store.points() == known


def test_a_missing_and_a_damaged_object_are_named(store, url, tmp_path):
    store.space(DID).set("a", {"n": 1})
    blob = store.space(DID).blobs.put(b"b" * LARGE)
    published(store)
    assert store.verify(objects=True).problems == []
    key = next(key for key in objects_of(url) if "/revision/" in key)
    value = database_manifest.blob_key(blob.removeprefix("sha256:"))
    with FolderStore(url) as objects:
        whole = objects.get(key).data
        objects.put(key, whole[:-3] + b"bad")
        objects.delete(value)
    problems = [*map(str, store.verify(objects=True).problems)]
    assert any(key in problem for problem in problems)
    assert any(value in problem and "missing" in problem for problem in problems)
    with open_store(tmp_path / "again", url) as again:
        failures = rebuild(again).failures
        assert key in failures[f"spaces/{DID}"].message
        assert again.spaces() == []
    with FolderStore(url) as objects:
        objects.put(key, whole)
        objects.put(value, b"b" * LARGE)
    with open_store(tmp_path / "again", url) as again:
        assert not rebuild(again).failures
        assert again.space(DID).read("a").document == {"n": 1}


def test_an_object_with_the_rows_of_another_one_is_damaged(store, url, tmp_path):
    for number in range(2):
        store.space(DID).set("a", {"n": number})
        published(store)
    first, second = sorted(key for key in objects_of(url) if "/revision/" in key)
    with FolderStore(url) as objects:
        objects.put(second, objects.get(first).data)
    assert any(second in problem.message for problem in store.verify(objects=True).problems)
    with open_store(tmp_path / "again", url) as again:
        assert second in rebuild(again).failures[f"spaces/{DID}"].message


def test_what_is_there_stays_as_it_is(store, url, tmp_path):
    store.space(DID).set("a", {"n": 1})
    published(store)
    again = rebuilt(tmp_path / "again", url)
    with open_store(again, url) as opened:
        opened.space(DID).set("a", {"n": 2})
        report = rebuild(opened)
        assert report.present == [f"spaces/{DID}"]
        assert opened.space(DID).read("a").document == {"n": 2}


def test_what_a_later_fourfold_published_is_refused(store, url, tmp_path):
    store.space(DID).set("a", {"n": 1})
    published(store)
    key = database_manifest.manifest_key(f"spaces/{DID}")
    with FolderStore(url) as objects:
        data = objects.get(key).data
        later, count = re.subn(rb'"migrations":\d+', b'"migrations":99', data)
        assert count == 1
        objects.put(key, later)
    with pytest.raises(FutureFormat):
        rebuilt(tmp_path / "again", url)


def test_an_object_store_that_lost_everything_gets_everything(store, url, tmp_path):
    Life(store, Random(12)).everything()
    published(store)
    with FolderStore(url) as objects:
        objects.delete_many([info.key for info in objects.list()])
    for did in store.spaces():
        store.space(did).set("again", {"n": 1})
    store.publish(models=["documents"]).raise_if_failed()
    expected = {did: rows for did, rows in contents(store.root).items() if did in store.spaces()}
    assert contents(rebuilt(tmp_path / "again", url)) == expected


def test_an_object_store_that_went_back_is_brought_up_again(store, url, tmp_path):
    space = store.space(DID)
    space.set("a", {"n": 1})
    published(store)
    with FolderStore(url) as objects:
        key = database_manifest.manifest_key(f"spaces/{DID}")
        old = objects.get(key).data
        space.set("a", {"n": 2})
        published(store)
        objects.put(key, old)
    space.set("b", {"n": 3})
    published(store)
    expected = contents(store.root)
    assert contents(rebuilt(tmp_path / "again", url)) == expected


def test_threads_that_publish_the_same_store_take_turns(store):
    space = store.space(DID)
    with ThreadPoolExecutor(4) as pool:
        for number in range(3):
            space.set("a", {"n": number})
            for done in [pool.submit(store.publish) for _ in range(4)]:
                done.result().raise_if_failed()
