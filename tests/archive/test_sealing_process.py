"""Databases of a publication that a child process seals, beside the writers of the store."""

from __future__ import annotations

import os
import signal
from random import Random

import pytest
from published_stores import (
    DID,
    LARGE,
    Life,
    at,
    contents,
    open_store,
    published,
    rebuilt,
    streams_of,
    verified,
)

from fourfold.archive import database_sealing, table_publisher
from fourfold.archive.child_process import ChildProcess, ChildStopped
from fourfold.archive.uploads import ValueUploads
from fourfold.errors import StorageError
from fourfold.store import publish
from fourfold.store.background_publisher import Continuous

NAME = f"spaces/{DID}"


def never():
    return False


def with_value(store):
    """A session with a value that is an object of its own."""
    sessions = store.sessions
    sessions.create_session({"id": "s"})
    value = sessions.maybe_intern("x" * LARGE)
    sessions.append_event("s", {"type": "message/appended", "message": {"c": value}})


@pytest.fixture
def children(monkeypatch):
    """The child processes that were started."""
    started = []
    start = ChildProcess._start

    def recorded(self):
        connection = start(self)
        started.append(self._child)
        return connection

    monkeypatch.setattr(ChildProcess, "_start", recorded)
    return started


@pytest.fixture
def large(monkeypatch):
    """Every database is large enough for a child."""
    monkeypatch.setattr(table_publisher, "PUBLISH_HERE_ROWS", 0)


def background(store, stop=never):
    return Continuous(store).round(everything=True, streams=True, stop=stop)


def test_publication_by_a_child_restores_equal(store, url, tmp_path, large, children):
    life = Life(store, Random(7))
    for _ in range(3):
        life.everything()
        with store.archive.running():
            report = background(store)
        assert not report.failures
    assert len(children) == 3
    assert all(child.poll() is not None for child in children)
    expected, records = contents(store.root), streams_of(store.root, settings=at(url))
    again = rebuilt(tmp_path / "again", url)
    verified(again)
    assert contents(again) == expected
    assert streams_of(again, settings=at(url)) == records


def test_child_publishes_the_same_as_a_direct_publication(tmp_path, large, children):
    results = []
    for number, stop in enumerate((never, None)):
        with open_store(tmp_path / f"store-{number}", tmp_path / f"objects-{number}") as store:
            for entity in range(20):
                store.space(DID).set(f"n{entity}", {"n": entity})
            with_value(store)
            report = Continuous(store).round(stop=stop)
            results.append([done._replace(bytes=0) for done in report.published])
            assert store.verify(objects=True).ok
    assert results[0] == results[1]
    assert len(children) == 1


def test_few_rows_start_no_process(store, children):
    store.space(DID).set("a", {"n": 1})
    assert not background(store).failures
    assert not children


def test_rows_of_both_processes_are_in_one_publication(store, url, tmp_path, monkeypatch, children):
    monkeypatch.setattr(table_publisher, "PUBLISH_HERE_ROWS", 100)
    store.space("did:key:few").set("a", {"n": 1})
    for number in range(200):
        store.space("did:key:many").set(f"n{number}", {"n": number})
    report = background(store)
    assert not report.failures
    assert len(report.published) == 2
    assert len(children) == 1
    assert contents(rebuilt(tmp_path / "again", url)) == contents(store.root)


def test_database_of_a_child_that_dies_is_published_later(
    store, url, tmp_path, monkeypatch, large, children
):
    with_value(store)
    store.space(DID).set("a", {"n": 1})
    carry = ValueUploads.carry

    def kill(self, *_):
        os.kill(children[-1].pid, signal.SIGKILL)
        children[-1].wait()

    monkeypatch.setattr(ValueUploads, "carry", kill)
    report = background(store)
    assert set(report.failures) == {"sessions"}
    assert isinstance(report.failures["sessions"], StorageError)
    assert [done.name for done in report.published] == [NAME]
    monkeypatch.setattr(ValueUploads, "carry", carry)
    assert not background(store).failures
    assert contents(rebuilt(tmp_path / "again", url)) == contents(store.root)


def test_child_that_dies_at_the_end_publishes_nothing(
    store, url, tmp_path, monkeypatch, large, children
):
    store.space(DID).set("a", {"n": 1})
    monkeypatch.setenv("FOURFOLD_FAULTS", "archive.segment.built=kill")
    report = background(store)
    assert set(report.failures) == {NAME}
    assert not store.points()
    monkeypatch.delenv("FOURFOLD_FAULTS")
    assert not background(store).failures
    assert contents(rebuilt(tmp_path / "again", url)) == contents(store.root)


def test_stopped_publication_ends_its_child_and_is_continued(
    store, url, tmp_path, monkeypatch, large, children
):
    with_value(store)
    carry = ValueUploads.carry
    stopping = []

    def stop_the_child(self, *_):
        stopping.append(True)
        # It cannot end by itself now.
        os.kill(children[-1].pid, signal.SIGSTOP)

    monkeypatch.setattr(ValueUploads, "carry", stop_the_child)
    with pytest.raises(ChildStopped):
        background(store, lambda: bool(stopping))
    assert children[-1].poll() is not None
    assert not store.points()
    monkeypatch.setattr(ValueUploads, "carry", carry)
    reports = list(publish.iter_publish(store, 256, stop=never))
    assert [report.failures for report in reports] == [{}]
    assert contents(rebuilt(tmp_path / "again", url)) == contents(store.root)


def test_database_that_was_replaced_is_not_published(store, monkeypatch, large):
    store.space(DID).set("a", {"n": 1})
    seal = database_sealing.SealingProcess.seal

    def other(self, subject, origin, *rest):
        return seal(self, subject, origin._replace(file_id="another"), *rest)

    monkeypatch.setattr(database_sealing.SealingProcess, "seal", other)
    report = background(store)
    assert "replaced" in report.failures[NAME].message
    assert not report.published


def test_changes_are_forgotten_in_slices(store, url, tmp_path, monkeypatch):
    monkeypatch.setattr(table_publisher, "FORGET_SLICE_ROWS", 3)
    space = store.space(DID)
    space.set("a", {"n": 1})
    published(store)
    for number in range(8):
        space.branches.create(f"b{number}")

    def changes():
        with space.database.read() as snapshot:
            return snapshot.value("SELECT count(*) FROM published_change")

    assert changes() > 6
    published(store)
    assert changes() == 0
    assert contents(rebuilt(tmp_path / "again", url)) == contents(store.root)
