"""Archive tables that are compacted by themselves: after publications, and in the background."""

from __future__ import annotations

import threading

import pytest
from published_stores import DID, contents, open_store, published, rebuilt
from table_maintenance import collected, compacted, files_of

import fourfold
from fourfold.archive import table_compaction
from fourfold.archive.node_record import compaction_lock
from fourfold.archive.table_compaction import level_of
from fourfold.store import Continuous, background_publisher, table_archive, table_maintenance

TABLE = "documents.revision"


def levels(url):
    return sorted(level_of(file) for file in files_of(url)[TABLE].values())


def publish_many(store, count):
    backup = Continuous(store)
    for number in range(count):
        store.space(DID).set(f"id-{number % 3}", {"n": number})
        assert not backup.round().failures
    return backup


def test_publications_compact_a_table_with_many_files(tmp_path, url, monkeypatch):
    monkeypatch.setattr(table_maintenance, "COMPACT_FILES_MAX", 4)
    merged = []
    with open_store(tmp_path / "store", url) as store:
        for number in range(12):
            store.space(DID).set("a", {"n": number})
            merged += published(store).merged
            assert levels(url).count(0) < 8
        expected = contents(store.root)
    assert TABLE in {entry.name for entry in merged}
    assert contents(rebuilt(tmp_path / "again", url)) == expected


def test_nothing_is_compacted_if_compaction_is_off(tmp_path, url, monkeypatch):
    monkeypatch.setattr(table_maintenance, "COMPACT_FILES_MAX", 2)
    settings = {"objects.url": str(url), "archive.compact": "off"}
    with fourfold.open(tmp_path / "store", settings=settings) as store:
        for number in range(4):
            store.space(DID).set("a", {"n": number})
            assert published(store).merged == []
    assert levels(url) == [0, 0, 0, 0]


def test_background_compacts_one_table_at_a_time(tmp_path, url, monkeypatch):
    monkeypatch.setattr(table_maintenance, "COMPACT_FILES_MAX", 4)
    with open_store(tmp_path / "store", url) as store:
        backup = publish_many(store, 5)
        version = table_archive.archive_of(store).catalog.state.version
        backup.compact_tables()
        merges = backup.state().merges
        assert merges > 1
        # Each is a commit of its own.
        assert table_archive.archive_of(store).catalog.refresh().version == version + merges
        assert levels(url) == [1]
        backup.compact_tables()
        assert backup.state().merges == merges
        assert backup.failures == {}
        expected = contents(store.root)
    assert contents(rebuilt(tmp_path / "again", url)) == expected


def test_publications_continue_during_a_compaction(tmp_path, url):
    with open_store(tmp_path / "store", url) as store:
        backup = publish_many(store, 5)
        turns = []

        def pause():
            turns.append(1)
            if len(turns) == 2:
                store.space(DID).set("meanwhile", {"n": 1})
                assert not backup.round().failures

        done = table_maintenance.compact_one(store, pause, files_max=4)
        assert len(turns) >= 4
        files = files_of(url)[done.table].values()
        assert sorted(level_of(file) for file in files) == [0, 1]
        assert not list(store.root.glob(".compacting"))
        expected = contents(store.root)
        points = [point.id for point in store.points()]
    assert contents(rebuilt(tmp_path / "again", url)) == expected
    rebuilt(tmp_path / "first", url, at=points[0])


@pytest.mark.parametrize("what", [compacted, lambda store: collected(store, 1, grace_s=0)])
def test_compaction_is_given_up_after_other_maintenance(tmp_path, url, what):
    with open_store(tmp_path / "store", url) as store:
        backup = publish_many(store, 5)
        turns = []

        def pause():
            turns.append(1)
            if len(turns) == 5:
                what(store)

        assert table_maintenance.compact_one(store, pause, files_max=4) is None
        assert len(turns) >= 5
        store.space(DID).set("more", {"n": 1})
        assert not backup.round().failures
        collected(store, grace_s=0)
        assert store.verify(objects=True).problems == []
        expected = contents(store.root)
    assert contents(rebuilt(tmp_path / "again", url)) == expected


def test_compaction_that_is_stopped_changes_nothing(tmp_path, url, monkeypatch):
    monkeypatch.setattr(table_maintenance, "COMPACT_FILES_MAX", 4)
    with open_store(tmp_path / "store", url) as store:
        backup = publish_many(store, 5)
        before = files_of(url)
        stop = threading.Event()
        stop.set()
        backup.compact_tables(stop)
        assert files_of(url) == before
        assert backup.state().merges == 0
        assert backup.failures == {}
        assert not list(store.root.glob(".compacting"))


def test_another_process_that_compacts_is_left_alone(tmp_path, url):
    with open_store(tmp_path / "store", url) as store:
        publish_many(store, 5)
        with compaction_lock(store.root) as is_free:
            assert is_free
            assert table_maintenance.compact_one(store, lambda: None, files_max=2) is None
        assert table_maintenance.compact_one(store, lambda: None, files_max=2) is not None


def test_failed_compaction_is_reported_and_tried_again(tmp_path, url, monkeypatch):
    monkeypatch.setattr(table_maintenance, "COMPACT_FILES_MAX", 4)
    with open_store(tmp_path / "store", url) as store:
        backup = publish_many(store, 5)
        run = table_compaction.Compactor.run

        def fail(*_):
            raise OSError("the disk is full")

        monkeypatch.setattr(table_compaction.Compactor, "run", fail)
        backup.compact_tables()
        assert "the disk is full" in backup.failures["tables"].message
        monkeypatch.setattr(table_compaction.Compactor, "run", run)
        backup.compact_tables()
        assert backup.failures == {}
        assert levels(url) == [1]


def test_background_thread_compacts_and_ends(tmp_path, url, monkeypatch):
    monkeypatch.setattr(background_publisher, "COMPACT_EVERY_S", 0.001)
    ran = threading.Event()
    with open_store(tmp_path / "store", url) as store:
        backup = Continuous(store)
        monkeypatch.setattr(backup, "compact_tables", lambda _stop: ran.set())
        with backup.running(every_s=3600.0):
            assert ran.wait(60)
    assert "fourfold-compaction" not in {thread.name for thread in threading.enumerate()}
