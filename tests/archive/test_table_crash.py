"""An archive of Delta tables after kills, faults of the object store, and publishers that wake up.

In each test the store publishes again afterwards, and the archive alone restores every point that
was reported.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
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

from fourfold.archive import catalog as catalogs
from fourfold.archive.delta_log import DeltaLog
from fourfold.archive.table_layout import table_prefix
from fourfold.errors import ObjectStoreError, PublisherFenced
from fourfold.kernel import failpoints
from fourfold.objects import FaultyStore, MemoryStore, open_objects
from fourfold.store.restoration import rebuild
from fourfold.testing.faulty_store import seeded
from support import crash
from support.properties import with_slow
from support.s3_server import serve_s3

DATABASES = ["documents", "sessions", "graphs"]
"""The models without streams, whose publishers are fenced one by one."""
CHILD = Path(__file__).with_name("published_child.py")
POINTS = (
    "segment.built",
    "upload.before",
    "upload.after",
    "tables.sealed",
    "catalog.intended",
    "delta.commit.before",
    "delta.commit.after",
    "delta.checkpoint.before",
    "delta.checkpoint.after",
    "catalog.compacted",
    "tables.committed",
    "catalog.committed",
    "catalog.recorded",
)
QUICK = (
    "archive.delta.commit.after=kill@30",
    "archive.tables.committed=kill@2",
    "archive.catalog.compacted=kill@3",
    "archive.delta.checkpoint.before=kill@4",
    "archive.catalog.committed=kill@2",
)


def check(folder, points, url=None):
    """Publish again, and restore the newest state and the last reported point."""
    url = str(url or folder / "objects")
    with open_store(folder / "store", url) as store:
        published(store)
        assert store.verify(objects=True).problems == []
        known = [point.id for point in store.points()]
        assert set(points) <= set(known)
        expected = contents(store.root)
    check_tables(url)
    again = rebuilt(folder / f"again-{len(known)}", url)
    verified(again)
    assert contents(again) == expected
    if points:
        verified(rebuilt(folder / f"known-{len(known)}", url, at=points[-1]))


def check_tables(url):
    """Check that the newest version of every table is the one that the catalog names."""
    with open_objects(url) as objects:
        state = catalogs.Catalog(objects).refresh()
        for table, version in state.tables.items():
            assert DeltaLog(objects, table_prefix(table)).snapshot().version == version, table


@pytest.mark.parametrize("fault", QUICK)
def test_a_store_that_is_killed_while_it_publishes_goes_on(tmp_path, fault):
    died = crash.run(CHILD, str(tmp_path), "1", fault=fault)
    assert died.killed, died
    check(tmp_path, died.lines)


@pytest.mark.slow
@pytest.mark.parametrize("hit", [1, 5, 17])
@pytest.mark.parametrize("point", POINTS)
def test_store_that_is_killed_anywhere_while_it_publishes_goes_on(tmp_path, point, hit):
    died = crash.run(CHILD, str(tmp_path), "2", fault=f"archive.{point}=kill@{hit}")
    assert died.killed, died
    check(tmp_path, died.lines)


@pytest.fixture
def s3_url(monkeypatch):
    """The URL of an archive on a server of the S3 protocol, which children can reach, too."""
    with serve_s3() as server:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.access_key_id)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret_access_key)
        yield server.url("shop") + "&allow_http=true"


@pytest.mark.parametrize(
    "fault",
    with_slow(
        ["delta.commit.before=kill@9"],
        [f"{point}=kill@{hit}" for point in POINTS for hit in (1, 5)],
    ),
)
def test_store_killed_while_it_publishes_to_s3_continues(tmp_path, s3_url, fault):
    died = crash.run(CHILD, str(tmp_path), "1", s3_url, fault=f"archive.{fault}")
    assert died.killed, died
    check(tmp_path, died.lines, s3_url)


@pytest.mark.slow
def test_store_that_is_killed_again_and_again_loses_no_point(tmp_path):
    random, points = Random(11), []
    for seed in range(12):
        moment = crash.Moment(acknowledgements=random.randint(0, 3), seconds=random.random() / 4)
        died = crash.run(CHILD, str(tmp_path), str(seed), kill=moment)
        assert died.killed, died
        points += died.lines
        check(tmp_path, points)


@pytest.mark.parametrize(
    "fault",
    [
        "kernel.commit.before=kill@40",
        "archive.restore.filled=kill@2",
        "archive.restore.placed=kill@2",
    ],
)
def test_a_restore_that_is_killed_is_run_again(tmp_path, fault):
    url = tmp_path / "objects"
    with open_store(tmp_path / "store", url) as store:
        Life(store, Random(3)).everything()
        published(store)
        expected = contents(store.root)
    died = crash.run(CHILD, str(tmp_path), "build", fault=fault)
    assert died.killed, died
    again = rebuilt(tmp_path / "again", url)
    verified(again)
    assert contents(again) == expected
    assert not list(again.glob(".restoring"))
    with open_store(again, url) as store:
        store.space(DID).set("continued", {})
        published(store)


# Publishers that wake up


class PausedStore(FaultyStore):
    """Calls a function before one of the writes."""

    def __init__(self, inner, number, pause):
        self.writes = 0
        self._number = number
        self._pause = pause
        super().__init__(inner, self._count)

    def _count(self, call):
        if call.op in {"put", "upload"}:
            self.writes += 1
            if self.writes == self._number:
                self._pause()

    def close(self):
        """Leave the inner store open, which another store uses."""


def wake_up(folder, address, number):
    """Pause a publisher before a write, let another node publish, and let it continue.

    Return the number of writes of the publication.
    """
    with open_store(folder / "store", address) as store, open_objects(address) as objects:
        life = Life(store, Random(3))  # The same publication for every number.
        life.everything()
        published(store)
        other_root = rebuilt(folder / "other", address)
        for _ in range(4):
            life.step()
        store.space("did:key:revisions").set("zombie", {"n": number})
        state = {}

        def pause():
            with open_store(other_root, address) as other:
                other.space("did:key:revisions").set("winner", {"n": number})
                published(other, models=DATABASES)
                state["contents"] = contents(other_root)

        store._objects = paused = PausedStore(objects, number, pause)
        report = store.publish(models=DATABASES)
        if number > paused.writes:
            assert not report.failures
            return paused.writes
        assert PublisherFenced in {type(error) for error in report.failures.values()}
        assert report.point is None
    assert contents(rebuilt(folder / "after", address)) == state["contents"]
    with open_store(other_root, address) as other:
        other.space("did:key:facts").set("winner", {"n": -1})
        other.sessions.create_session({"id": "winner"})
        published(other, models=DATABASES)
        assert other.verify(objects=True).problems == []
        expected = contents(other_root)
    again = rebuilt(folder / "again", address)
    verified(again)
    assert contents(again) == expected
    return paused.writes


@pytest.mark.parametrize("number", with_slow([8], [1, 13]))
def test_a_paused_publisher_is_fenced_and_hides_nothing(tmp_path, number):
    wake_up(tmp_path, str(tmp_path / "objects"), number)


@pytest.mark.slow
def test_a_publisher_that_is_paused_before_any_write_is_fenced(tmp_path):
    number, writes = 0, 1
    while number <= writes:
        number += 1
        writes = wake_up(tmp_path / f"{number}", str(tmp_path / f"{number}" / "objects"), number)
    # Several tables, each with a file and a commit, and the catalog.
    assert writes > 10


@pytest.mark.slow
def test_paused_publisher_to_server_of_s3_protocol_is_fenced(tmp_path, s3_url):
    wake_up(tmp_path, s3_url, 12)


# Faults of the object store


@pytest.mark.parametrize("seed", with_slow([0], [1, 2]))
def test_an_object_store_that_fails_now_and_then_loses_nothing(tmp_path, seed):
    """Errors before the effect, responses that are lost, and writes that are cut short."""
    inner, broken = MemoryStore(), seeded(seed, rate=0.2)
    plan, was = [broken], {}
    with open_store(tmp_path / "store", "memory:") as store:
        store._objects = FaultyStore(inner, lambda call: plan[0] and plan[0](call))
        life = Life(store, Random(seed))
        for _ in range(8):
            life.step()
            life.step()
            with contextlib.suppress(ObjectStoreError):
                report = store.publish(models=DATABASES)
                if report.point is not None and not report.failures:
                    was[report.point.id] = contents(store.root)
        plan[0] = None
        point = published(store).point
        if point is not None:
            was[point.id] = contents(store.root)
        assert store.verify(objects=True).problems == []
        for number, (point, expected) in enumerate(was.items()):
            with open_store(tmp_path / f"again-{number}", "memory:") as again:
                again._objects = PausedStore(inner, 0, None)
                assert not rebuild(again, at=point).failures
                assert contents(again.root) == expected


# Random lives


def lives_with_crashes(folder, random):
    """Publish at random times with random failures, restore every point, and continue from some."""
    folder.mkdir(parents=True, exist_ok=True)
    url, was, root = folder / "objects", {}, folder / "store"
    life = None
    # After take-overs, streams cannot go back to every point.
    takes_over = random.random() < 0.5
    for turn in range(random.randint(1, 4)):
        with open_store(root, url) as store:
            if life is None:
                life = Life(store, random)
                if takes_over:
                    life.streams = life.documents
            life.store = store
            for _ in range(random.randint(1, 12)):
                life.step()
            if random.random() < 0.5:
                fail_somewhere(store, random)
            point = published(store).point
            if point is not None:
                was[point.id] = contents(root), streams_of(root, settings=at(url))
            assert store.verify(objects=True).problems == []
        if takes_over and was and random.random() < 0.6:
            chosen = random.choice(list(was))
            newest = chosen == [*was][-1]
            root = rebuilt(folder / f"taken-{turn}", url, at=chosen, take_over=True)
            with open_store(root, url) as store:
                life.sids = [info.id for info in store.sessions.list_sessions()]
                if not newest:
                    was[store.points()[-1].id] = was[chosen]
    for number, (point, (expected, records)) in enumerate(was.items()):
        again = rebuilt(folder / f"again-{number}", url, at=point)
        verified(again)
        assert contents(again) == expected, point
        assert streams_of(again, settings=at(url)) == records, point


def fail_somewhere(store, random):
    """Let a publication fail at a random place, like a process that ends there."""
    point = random.choice(["segment.built", "tables.sealed", "tables.committed", "upload.before",
                           "delta.commit.before", "delta.commit.after", "catalog.intended",
                           "catalog.committed", "catalog.recorded"])  # fmt: skip
    failpoints.arm(f"archive.{point}", "raise", at=random.randint(1, 9))
    try:
        store.publish()
    finally:
        failpoints.disarm()


@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_every_point_of_store_that_crashes_restores_what_it_was(tmp_path_factory, random):
    folder = tmp_path_factory.mktemp("life")
    try:
        lives_with_crashes(folder, random)
    finally:
        shutil.rmtree(folder)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_every_point_of_crashing_stores_restores_its_state(tmp_path_factory, random):
    folder = tmp_path_factory.mktemp("life")
    try:
        lives_with_crashes(folder, random)
    finally:
        shutil.rmtree(folder)
