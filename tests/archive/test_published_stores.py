"""Whole stores, published and rebuilt: the objects alone are enough, for every point."""

from __future__ import annotations

import shutil
from random import Random

import pytest
from published_stores import (
    DID,
    DIDS,
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

import fourfold
from fourfold import limits
from fourfold.archive.uploads import blob_key
from fourfold.errors import (
    HistoryTruncated,
    PublisherFenced,
)
from fourfold.models.documents import GcPolicy
from support.s3_server import serve_s3


def test_the_objects_alone_rebuild_a_store_of_every_model(store, url, tmp_path):
    life = Life(store, Random(1))
    life.everything()
    published(store)
    life.everything()
    published(store)
    expected, records = contents(store.root), streams_of(store.root, settings=at(url))
    store.close()
    shutil.rmtree(tmp_path / "store")
    again = rebuilt(tmp_path / "again", url)
    verified(again)
    assert contents(again) == expected
    assert streams_of(again, settings=at(url)) == records


def test_store_is_published_to_s3_and_restored_from_it(tmp_path, monkeypatch):
    with serve_s3() as server:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.access_key_id)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret_access_key)
        address = server.url("shop") + "&allow_http=true"
        with open_store(tmp_path / "store", address) as store:
            life = Life(store, Random(5))
            life.everything()
            first = published(store).point
            was = contents(store.root)
            life.everything()
            published(store)
            newest = contents(store.root)
        assert contents(rebuilt(tmp_path / "newest", address)) == newest
        earlier = rebuilt(tmp_path / "first", address, at=first.id)
        assert contents(earlier) == was
        with open_store(earlier, address) as store:
            store.space(DID).set("a", {"n": 1})
            store.sessions.create_session({"id": "later"})
            failed = store.publish().failures
        assert isinstance(failed["sessions"], PublisherFenced)


def test_memory_is_an_object_store_too(tmp_path):
    with open_store(tmp_path / "store", "memory:") as store:
        store.space(DID).set("a", {"n": 1})
        assert published(store).point is not None
        assert published(store).point is None


# Values that are objects


def test_large_values_are_uploaded_once_as_content_addressed_objects(store, url, tmp_path):
    blob = store.space(DID).blobs.put(b"b" * LARGE)
    other = store.space("did:key:two", "facts").blobs.put(b"b" * LARGE)
    small = store.space(DID).blobs.put(b"small")
    assert blob == other
    report = published(store)
    keys = [key for key in objects_of(url) if key.startswith("blobs/")]
    assert keys == [blob_key(blob.removeprefix("sha256:"))]
    assert sum(database.bytes >= LARGE for database in report.published) == 1
    with open_store(rebuilt(tmp_path / "again", url), url) as again:
        assert again.space(DID).blobs.get(blob) == b"b" * LARGE
        assert again.space(DID).blobs.get(small) == b"small"
        assert again.space("did:key:two").blobs.get(blob) == b"b" * LARGE


def test_payloads_that_are_files_are_restored_as_files(store, url, tmp_path):
    value = "x" * (limits.SESSION_PAYLOAD_ROW_BYTES_MAX + 10)
    store.sessions.create_session({"id": "s"})
    held = store.sessions.maybe_intern(value)
    store.sessions.append_event("s", {"type": "message/appended", "message": {"content": held}})
    published(store)
    again = rebuilt(tmp_path / "again", url)
    assert list((again / "sessions" / "blobs").rglob("*.blob"))
    verified(again)
    with open_store(again, url) as opened:
        assert opened.sessions.read_payload(held) == value


# What is changed or removed later


@pytest.mark.parametrize("history", ["revisions", "facts"])
def test_history_that_was_given_up_stays_given_up(store, url, tmp_path, history):
    space = store.space(DID, history)
    for number in range(30):
        space.patch("a", [{"op": "add", "path": "/n", "value": number}])
        space.set("b", {"n": number})
    before = published(store).point
    space.set_gc_policy(GcPolicy(keep_seqs=5))
    space.gc()
    published(store)
    with open_store(rebuilt(tmp_path / "again", url), url) as again:
        mine = again.space(DID)
        assert mine.horizon() == space.horizon() > 1
        assert mine.gc_policy() == space.gc_policy()
        with pytest.raises(HistoryTruncated):
            mine.read("a", at=3)
        assert mine.read("a") == space.read("a")
        assert mine.read("b", at=57) == space.read("b", at=57)
    verified(tmp_path / "again")
    with open_store(rebuilt(tmp_path / "before", url, at=before.id), url) as earlier:
        assert earlier.space(DID).read("b", at=4).document == {"n": 1}


def test_a_purged_session_does_not_come_back(store, url, tmp_path):
    sessions = store.sessions
    for sid in ("kept", "gone"):
        sessions.create_session({"id": sid})
        sessions.append_event(sid, {"type": "turn/started", "turn": {}})
    published(store)
    sessions.delete_session("gone")
    assert sessions.gc(0).sessions == 1
    published(store)
    position = sessions.position()
    with open_store(rebuilt(tmp_path / "again", url), url) as again:
        assert [session.id for session in again.sessions.list_sessions()] == ["kept"]
        assert again.sessions.position() == position
        with pytest.raises(fourfold.FourfoldError):
            again.sessions.create_session({"id": "gone"})
    verified(tmp_path / "again")
    assert contents(tmp_path / "again") == contents(store.root)


def test_flags_settings_and_tables_of_app_are_as_they_were(store, url, tmp_path):
    life = Life(store, Random(4))
    graphs, app = store.graphs, life.app
    row = {"type_id": life.types["parent"], "owner_identity": life.me}
    ids = [graphs.insert_parent(app, row) for _ in range(3)]
    published(store)
    graphs.update_sync_flags(app, "parent", ids[:1], 3)
    graphs.upsert_setting("color", "blue")
    step = fourfold.kernel.Migration(2, "more", "CREATE TABLE {app}_own (a INTEGER, b TEXT)")
    graphs.upgrade_app(app, [step])
    graphs.database.transact(lambda txn: txn.execute(f"INSERT INTO app_{app}_own VALUES (1, 'x')"))
    published(store)
    more = (
        "ALTER TABLE {app}_own ADD COLUMN c TEXT DEFAULT 'c'; ALTER TABLE {app}_own DROP COLUMN b"
    )
    graphs.upgrade_app(app, [step, fourfold.kernel.Migration(3, "other", more)])
    published(store)
    expected = contents(store.root)
    again = rebuilt(tmp_path / "again", url)
    assert contents(again) == expected
    with open_store(again, url) as opened:
        assert opened.graphs.get_setting("color") == "blue"
        assert opened.graphs.database.identity() == graphs.database.identity()
        opened.graphs.insert_parent(app, row)
    verified(again)


def test_a_restored_space_has_its_indexes_built_from_the_log(store, url, tmp_path):
    for did, history in DIDS.items():
        space = store.space(did, history=history)
        space.set("a", {"n": 1, "text": "first words", "vector": [1, 0]})
        published(store)
        space.indexes.create("by_n", "/n")
        space.indexes.create("by_m", ["/n", "/m"], unique=True)
        space.indexes.create("words", "/text", kind="text")
        space.indexes.create("meaning", "/vector", kind="vector")
        space.set("a", {"n": 2, "text": "other words", "vector": [0, 1]})
        published(store)
    expected = contents(store.root)
    with fourfold.open(rebuilt(tmp_path / "again", url)) as again:
        for did in DIDS:
            space = again.space(did)
            assert space.find({"n": 1}, at=1).plan.index is not None
            assert space.count({"n": 1}, at=1) == 1
            assert [space.search("first", at=at).total for at in (1, 2)] == [1, 0]
            for at, score in ((1, 1.0), (2, 0.0)):
                assert [hit.score for hit in space.search(vector=[5, 0], at=at)] == [score]
            assert space.verify() == []
    assert contents(tmp_path / "again") == expected
