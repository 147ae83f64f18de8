"""A store that publishes without a pause: all of it, one database never in the way of another."""

from __future__ import annotations

import os
import threading
import time
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

import fourfold
from fourfold import limits
from fourfold.errors import ObjectStoreError, PublisherFenced, ReadOnly, WriterLocked
from fourfold.kernel import failpoints
from fourfold.models.documents.model import MODEL
from fourfold.objects import FaultyStore, MemoryStore
from fourfold.store import layout
from fourfold.store.background_publisher import Continuous
from fourfold.testing.faulty_store import Fault

NAME = f"spaces/{DID}"
POISON = "UPDATE \"commit\" SET local_seq = CAST('x' AS BLOB) WHERE seq = 1"
CURE = 'UPDATE "commit" SET local_seq = 1 WHERE seq = 1'


def aged(root):
    """As if nothing had happened to the files of a store for a while."""
    past = time.time() - 60
    for path in layout.databases(root):
        os.utime(path, (past, past))
        log = path.with_name(path.name + "-wal")
        if log.exists():
            os.utime(log, (past, past))


def waited(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_each_round_publishes_what_is_new_in_every_model(store, url, tmp_path):
    life, backup = Life(store, Random(1)), Continuous(store)
    life.everything()
    with store.archive.running():
        first = backup.round(everything=True, streams=True)
        life.everything()
        second = backup.round(streams=True)
    assert not first.failures
    assert not second.failures
    assert first.point.id < second.point.id
    expected, records = contents(store.root), streams_of(store.root, settings=at(url))
    again = rebuilt(tmp_path / "again", url)
    verified(again)
    assert contents(again) == expected
    assert streams_of(again, settings=at(url)) == records
    assert backup.state().publications == len(first.published) + len(second.published)
    assert backup.state().points == 2


def test_database_poisoned_is_named_and_keeps_no_other_waiting(store, url, tmp_path):
    Life(store, Random(2)).everything()
    space = store.space("did:key:facts")
    space.database.transact(lambda txn: txn.execute(POISON))
    backup = Continuous(store)
    report = backup.round()
    assert list(backup.failures) == ["spaces/did:key:facts"]
    assert {database.name for database in report.published} == {
        "spaces/did:key:revisions",
        "sessions",
        "graphs",
    }
    # It is left alone for a while, and not tried again with every round.
    assert backup.round().failures == {}
    assert list(backup.failures) == ["spaces/did:key:facts"]
    space.database.transact(lambda txn: txn.execute(CURE))
    assert not backup.round(everything=True).failures
    assert backup.failures == {}
    assert contents(rebuilt(tmp_path / "again", url)) == contents(store.root)


def test_backoff_of_failing_database_grows(store):
    store.space(DID).set("a", {"n": 1})
    store.space(DID).database.transact(lambda txn: txn.execute(POISON))
    backup, pauses = Continuous(store), []
    for _ in range(12):
        begin = time.monotonic()
        backup.round(everything=True)
        pauses.append(backup._backoffs._backoffs[NAME].until - begin)
    assert pauses[1] > pauses[0] * 1.5
    assert pauses[-1] < 1.1 * limits.ARCHIVE_BACKOFF_MAX_S


def test_a_database_that_another_process_writes_is_skipped_and_named(tmp_path, url):
    """Locks of files know no difference between another process and another opening."""
    with open_store(tmp_path / "store", url) as store, open_store(tmp_path / "store", url) as owner:
        mine = owner.space(DID)
        mine.set("a", {"n": 1})
        store.space("did:key:free").set("a", {"n": 1})
        backup = Continuous(store)
        report = backup.round()
        assert [database.name for database in report.published] == ["spaces/did:key:free"]
        assert isinstance(backup.failures[NAME], WriterLocked)
        # Its owner may publish it, beside the other one.
        assert not Continuous(owner).round().failures.get(NAME)
        owner.close()
        assert not backup.round(everything=True).failures
        assert backup.failures == {}
    with open_store(rebuilt(tmp_path / "again", url), url) as again:
        assert again.spaces() == ["did:key:free", DID]
        assert again.space(DID).read("a").document == {"n": 1}


def test_a_store_whose_streams_another_process_serves_publishes_its_databases(tmp_path, url):
    with (
        open_store(tmp_path / "store", url) as store,
        open_store(tmp_path / "store", url) as server,
    ):
        server.streams.create("s", "text/plain").append([b"x"])
        store.space(DID).set("a", {"n": 1})
        backup = Continuous(store)
        with backup.running(every_s=3600):
            report = backup.round()
            assert report.point is not None
            assert [database.name for database in report.published] == [NAME]
        assert isinstance(backup.left["streams"], WriterLocked)
        assert list(backup.left) == ["streams"]
    with open_store(rebuilt(tmp_path / "again", url), url) as again:
        assert again.space(DID).read("a").document == {"n": 1}


def test_a_database_in_which_nothing_is_new_is_not_opened(tmp_path, url):
    with open_store(tmp_path / "store", url) as store:
        store.space(DID).set("a", {"n": 1})
    with open_store(tmp_path / "store", url) as store:
        backup = Continuous(store)
        assert len(backup.round().published) == 1
        aged(store.root)
        assert backup.round().unchanged == 1
        with open_store(tmp_path / "store", url) as owner:
            space = owner.space(DID)
            assert backup.round().unchanged == 0
            assert backup.failures == {}
            space.set("a", {"n": 2})
        assert len(backup.round().published) == 1


def test_what_changed_a_moment_ago_is_looked_at_again(store):
    """A change that comes right after a look may leave times and sizes as they were."""
    store.space(DID).set("a", {"n": 1})
    backup = Continuous(store)
    backup.round()
    assert [backup.round().unchanged for _ in range(3)] == [1, 1, 1]
    aged(store.root)
    assert [backup.round().unchanged for _ in range(3)] == [1, 0, 0]
    store.space(DID).set("a", {"n": 2})
    assert len(backup.round().published) == 1


def test_space_opened_while_it_is_published_stays_open(tmp_path, url):
    with open_store(tmp_path / "store", url) as store:
        store.space(DID).set("a", {"n": 1})
    with open_store(tmp_path / "store", url) as store:
        kept = []

        def opens(_point):
            assert MODEL.location.path(store.root, f"spaces/{DID}") in store._lent
            kept.append(store.space(DID))

        failpoints.arm("archive.tables.sealed", opens)
        try:
            assert not Continuous(store).round().failures
        finally:
            failpoints.disarm()
        kept[0].set("b", {"n": 1})
        assert store.space(DID) is kept[0]
        assert kept[0].read("b").document == {"n": 1}


def test_a_database_is_free_again_once_it_is_published(tmp_path, url):
    with open_store(tmp_path / "store", url) as store:
        store.space(DID).set("a", {"n": 1})
        store.sessions.create_session({"id": "s"})
    with open_store(tmp_path / "store", url) as store:
        assert len(Continuous(store).round().published) == 2
        assert store.publish().unchanged == 2
        store.published()
        with open_store(tmp_path / "store", url) as other:
            other.space(DID).set("a", {"n": 2})
            other.sessions.create_session({"id": "t"})


def test_second_publisher_gets_an_error_and_stops_for_good(store, url, tmp_path):
    store.space(DID).set("a", {"n": 1})
    published(store)
    with open_store(rebuilt(tmp_path / "again", url), url) as other:
        other.space(DID).set("a", {"n": 2})
        assert not Continuous(other).round().failures
    store.space(DID).set("a", {"n": 3})
    backup = Continuous(store)
    assert isinstance(backup.round().failures[NAME], PublisherFenced)
    assert backup.round(everything=True).failures == {}
    assert isinstance(backup.failures[NAME], PublisherFenced)


def test_the_end_publishes_the_tail(store, url, tmp_path):
    backup = Continuous(store)
    with backup.running(every_s=3600):
        Life(store, Random(3)).everything()
    assert backup.left == {}
    expected, records = contents(store.root), streams_of(store.root, settings=at(url))
    again = rebuilt(tmp_path / "again", url)
    assert contents(again) == expected
    assert streams_of(again, settings=at(url)) == records


def test_the_end_says_what_it_left(tmp_path):
    """A store whose objects cannot be reached any more."""
    broken = []
    with open_store(tmp_path / "store", "memory:") as store:
        store._objects = FaultyStore(MemoryStore(), lambda _: Fault.FAIL if broken else None)
        backup = Continuous(store)
        with backup.running(every_s=3600):
            store.space(DID).set("a", {"n": 1})
            assert len(backup.round().published) == 1
            store.space(DID).set("a", {"n": 2})
            broken.append(True)
        assert [type(error) for error in backup.left.values()] == [ObjectStoreError]
        assert store.published()[0].published == 1


def test_the_background_publishes_while_others_write(store, url, tmp_path):
    backup = Continuous(store)
    stop = threading.Event()

    def write():
        life = Life(store, Random(4))
        while not stop.is_set():
            life.step()

    thread = threading.Thread(target=write)
    with store.archive.running(), backup.running(every_s=0.01):
        thread.start()
        waited(lambda: backup.state().points >= 5)
        stop.set()
        thread.join()
    assert backup.left == {}
    verified(rebuilt(tmp_path / "again", url))
    assert contents(tmp_path / "again") == contents(store.root)
    for number, point in enumerate(store.points()[::3]):
        verified(rebuilt(tmp_path / f"at-{number}", url, at=point.id))


def test_a_store_that_is_open_for_reading_does_not_publish(store):
    store.space(DID).set("a", {"n": 1})
    with fourfold.open(store.root, mode="r") as reader, pytest.raises(ReadOnly):
        Continuous(reader)


def test_points_and_objects_that_the_settings_do_not_keep_go(tmp_path, url, monkeypatch):
    monkeypatch.setattr(limits, "PUBLISH_FORGET_POINTS", 3)
    settings = {"objects.url": str(url), "archive.keep_points": 2, "archive.grace_s": 0.0}
    with fourfold.open(tmp_path / "store", settings=settings) as store:
        backup = Continuous(store)
        for number in range(10):
            store.space(DID).set("a", {"n": number})
            backup.round()
        points = [point.id for point in store.points()]
        backup.collect()
        assert backup.failures == {}
        assert [point.id for point in store.points()] == points[-2:]
        backup.collect()
        assert backup.state().deleted > 10
        assert store.verify(objects=True).problems == []
        assert contents(rebuilt(tmp_path / "again", url)) == contents(store.root)


def test_end_of_publishing_names_the_streams_that_another_node_publishes(store, url, tmp_path):
    store.streams.create("a", "text/plain").append(b"of one")
    store.archive.publish_all()
    with open_store(tmp_path / "two", url) as other:
        other.streams.create("a", "text/plain").append(b"of two")
        backup = Continuous(other)
        with backup.running(every_s=60):
            assert isinstance(other.archive.publish_all().failures["a"], PublisherFenced)
        assert isinstance(backup.left["streams/a"], PublisherFenced)
