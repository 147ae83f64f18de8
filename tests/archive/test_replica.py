"""Read replicas: they equal a restore of the same point, whatever happens to them."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path
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
from fourfold.cli import main
from fourfold.errors import NotFound, ObjectStoreError, ReadOnly, Refused
from fourfold.models.documents import GcPolicy
from fourfold.objects import FaultyStore
from fourfold.store import ArchiveFollower
from fourfold.store.retention import Keep, collect, merge
from support import crash
from support.properties import with_slow
from support.s3_server import serve_s3

CHILD = Path(__file__).with_name("replica_child.py")


def followed(url, root):
    with ArchiveFollower(str(url), root) as follower:
        return follower.step()


def check_equal(folder, url, replica):
    """Compare a replica with a restore of the newest point."""
    shutil.rmtree(folder / "again", ignore_errors=True)
    again = rebuilt(folder / "again", url)
    assert contents(replica) == contents(again)
    assert streams_of(replica) == streams_of(again, settings=at(url))
    verified(replica)


@pytest.mark.parametrize("seed", with_slow([0], [1, 2, 3]))
def test_replica_equals_a_restore_after_every_point(tmp_path, seed):
    url, replica = tmp_path / "objects", tmp_path / "replica"
    random = Random(seed)
    with open_store(tmp_path / "store", url) as store:
        life, advanced = Life(store, random), 0
        for did in ("did:key:revisions", "did:key:facts"):
            store.space(did).indexes.create("n", "/n")
        for _ in range(6):
            for _ in range(12):
                life.step()
            published(store)
            if random.random() < 0.3:
                merge(store)
            if random.random() < 0.3:
                collect(store, keep=Keep(points=1))
            if random.random() < 0.7:
                advanced += followed(url, replica).advanced
                check_equal(tmp_path, url, replica)
        followed(url, replica)
        check_equal(tmp_path, url, replica)
    assert advanced


def test_step_reads_only_databases_and_rows_that_changed(tmp_path):
    url, replica = tmp_path / "objects", tmp_path / "replica"
    with open_store(tmp_path / "store", url) as store:
        for number in range(20):
            store.space(f"did:key:{number}").set("a", {"n": number})
        published(store)
        assert followed(url, replica).restored == 20
        rows = set()
        for number in range(3):
            store.space("did:key:7").set("b", {"n": number})
            published(store)
            report = followed(url, replica)
            assert (report.advanced, report.restored, report.points) == (1, 0, 1)
            rows.add(report.rows)
        assert len(rows) == 1, "a step costs the same, however many there were before"
    assert followed(url, replica).points == 0


@pytest.mark.parametrize(
    "fault",
    [
        "archive.follow.applied=kill@1",
        "archive.follow.committed=kill@2",
        "archive.follow.replaced=kill@1",
        "archive.follow.streams=kill@1",
        "kernel.commit.before=kill@2",
    ],
)
def test_replica_continues_after_a_kill(tmp_path, fault):
    url, replica = tmp_path / "objects", tmp_path / "replica"
    with open_store(tmp_path / "store", url) as store:
        life = Life(store, Random(5))
        life.everything()
        published(store)
        followed(url, replica)
        life.everything()
        store.space("did:key:revisions").gc(GcPolicy(keep_seqs=1))
        published(store)
    died = crash.run(CHILD, str(url), str(replica), fault=fault)
    assert died.killed, died
    verified(replica)
    followed(url, replica)
    check_equal(tmp_path, url, replica)


def test_replica_that_is_killed_at_first_is_restored_again(tmp_path):
    url, replica = tmp_path / "objects", tmp_path / "replica"
    with open_store(tmp_path / "store", url) as store:
        Life(store, Random(5)).everything()
        published(store)
    died = crash.run(CHILD, str(url), str(replica), fault="archive.follow.replaced=kill@2")
    assert died.killed, died
    with pytest.raises(ReadOnly, match="read replica"):
        fourfold.open(replica)
    followed(url, replica)
    check_equal(tmp_path, url, replica)


def test_replica_follows_an_archive_in_s3(tmp_path, monkeypatch):
    with serve_s3() as server:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.access_key_id)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret_access_key)
        url, replica = server.url("shop") + "&allow_http=true", tmp_path / "replica"
        with open_store(tmp_path / "store", url) as store:
            life = Life(store, Random(2))
            for _ in range(2):
                life.everything()
                published(store)
                followed(url, replica)
        check_equal(tmp_path, url, replica)


def test_replica_refuses_writers_and_serves_readers(tmp_path):
    url, replica = tmp_path / "objects", tmp_path / "replica"
    with open_store(tmp_path / "store", url) as store:
        store.space(DID).set("a", {"n": 1})
        published(store)
        followed(url, replica)
        with pytest.raises(ReadOnly, match="read replica") as refused:
            fourfold.open(replica)
        assert "mode='r'" in refused.value.hint
        with fourfold.open(replica, mode="r") as copy:
            space = copy.space(DID)
            assert space.read("a").document == {"n": 1}
            store.space(DID).set("a", {"n": 2})
            published(store)
            followed(url, replica)
            assert space.read("a").document == {"n": 2}
            assert copy.sql("select count(*) from documents_revisions").rows == [(2,)]
            with pytest.raises(ReadOnly):
                space.set("a", {})
    with pytest.raises(Refused, match="a store of its own"):
        ArchiveFollower(str(url), tmp_path / "store")


def test_archive_that_was_created_again_is_refused(tmp_path):
    url, replica = tmp_path / "objects", tmp_path / "replica"
    with pytest.raises(NotFound, match="no archive"):
        ArchiveFollower(str(url), replica)
    assert not replica.exists()
    with open_store(tmp_path / "store", url) as store:
        store.space(DID).set("a", {"n": 1})
        published(store)
    followed(url, replica)
    shutil.rmtree(url)
    with pytest.raises(Refused, match="is gone"):
        followed(url, replica)
    with open_store(tmp_path / "other", url) as store:
        store.space(DID).set("a", {"n": 2})
        published(store)
    with pytest.raises(Refused, match="created again"):
        followed(url, replica)
    with fourfold.open(replica, mode="r") as copy:
        assert copy.space(DID).read("a").document == {"n": 1}


def test_recreated_space_with_another_history_is_replaced(tmp_path):
    url, replica = tmp_path / "objects", tmp_path / "replica"
    for history in ("revisions", "facts"):
        with open_store(tmp_path / "store", url) as store:
            store.space(DID, history).set("a", {"history": history})
            published(store)
            path = store.space(DID).database.path
        followed(url, replica)
        check_equal(tmp_path, url, replica)
        path.unlink()


def test_follower_backs_off_while_the_object_store_fails(tmp_path):
    url, replica = tmp_path / "objects", tmp_path / "replica"
    with open_store(tmp_path / "store", url) as store:
        store.space(DID).set("a", {"n": 1})
        published(store)
    stop, pauses, steps, failing = threading.Event(), [], [], [7]

    def fault(_call):
        if failing[0]:
            failing[0] -= 1
            raise ObjectStoreError("injected")

    def end(report):
        steps.append(report)
        stop.set()

    with ArchiveFollower(str(url), replica) as follower:
        objects = FaultyStore(follower._store.objects, fault)
        follower._archive.objects = follower._store._objects = objects
        follower._archive.catalog._log._objects = objects
        follower.run(end, lambda _error, pause: pauses.append(pause), stop=stop)
    assert pauses
    assert steps[0].points == 1
    check_equal(tmp_path, url, replica)


def test_readers_see_each_point_as_a_whole(tmp_path):
    url, replica = tmp_path / "objects", tmp_path / "replica"
    with open_store(tmp_path / "store", url) as store:
        space = store.space(DID)
        space.set("a", {"n": 0})
        published(store)
        followed(url, replica)
        done, torn = threading.Event(), []

        def watch():
            with fourfold.open(replica, mode="r") as copy:
                while not done.is_set():
                    rows = copy.sql("select document ->> 'n' from documents_state").rows
                    if len({value for (value,) in rows}) > 1 or len(rows) not in {1, 50}:
                        torn.append(rows)

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            for number in range(1, 6):
                for entity in ("a", *(f"e{other}" for other in range(49))):
                    space.set(entity, {"n": number})
                published(store)
                followed(url, replica)
        finally:
            done.set()
            thread.join()
    assert torn == []


def test_follow_command_prints_the_point_and_the_lag(tmp_path, capsys):
    url, replica = tmp_path / "objects", tmp_path / "replica"
    with open_store(tmp_path / "store", url) as store:
        store.space(DID).set("a", {"n": 1})
        point = published(store).point
    arguments = ["follow", str(url), str(replica), "--once"]
    assert main.run(arguments) == 0
    first = capsys.readouterr().out
    assert first.startswith(f"point {point.id}: ")
    assert "; lag " in first
    assert main.run([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["points"] == 0
