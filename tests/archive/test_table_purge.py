"""Purged rows of archive tables: they are in no file, and older points restore without them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from published_stores import (
    DID,
    LARGE,
    contents,
    objects_of,
    open_store,
    published,
    rebuilt,
    verified,
)
from table_maintenance import collected, compacted, files_of

from fourfold.errors import StorageError
from fourfold.kernel import failpoints
from fourfold.store import retention, table_archive, table_maintenance
from support.s3_server import serve_s3

SECRET = "a secret of one session"
TABLE = "sessions.events"


def write(sessions, sid, text):
    large = sessions.maybe_intern(text * (LARGE // 4))
    sessions.append_event(sid, {"type": "message/appended", "message": {"c": text, "l": large}})


def live(store):
    """Publish three points: two sessions, one of them deleted, and purged; return their ids."""
    sessions = store.sessions
    for sid in ("kept", "purged"):
        sessions.create_session({"id": sid})
    write(sessions, "kept", "what is kept")
    write(sessions, "purged", SECRET)
    points = [published(store).point.id]
    sessions.delete_session("purged")
    write(sessions, "kept", "more")
    points.append(published(store).point.id)
    sessions.gc(0)
    points.append(published(store).point.id)
    return points


def texts(objects):
    """The columns of every Parquet file in which the secret is, and the large values with it."""
    found = set()
    for key, data in objects.items():
        if key.endswith(".blob") and SECRET.encode() in data:
            found.add("value")
        if key.startswith("tables/") and key.endswith(".parquet") and "_delta_log" not in key:
            for row in pq.read_table(pa.BufferReader(data)).to_pylist():
                found |= {name for name, value in row.items() if SECRET in repr(value)}
    return found


@pytest.mark.parametrize("is_compacted", [False, True], ids=["level 0", "level 1"])
def test_purged_rows_are_in_no_file_and_no_point(tmp_path, url, is_compacted):
    with open_store(tmp_path / "store", url) as store:
        store.space(DID).set("a", {"n": 1})
        store.sessions.create_session({"id": "first"})
        published(store)
        if is_compacted:
            store.sessions.create_session({"id": "second"})
            published(store)
            compacted(store)
        points = live(store)
        assert texts(objects_of(url)) == {"body", "value"}
        if is_compacted:
            compacted(store)
        assert collected(store).deleted
        assert texts(objects_of(url)) == set()
        assert store.verify(objects=True).problems == []
        assert [point.id for point in store.points()][-3:] == points
        expected = contents(store.root)
    for number, point in enumerate(points):
        again = rebuilt(tmp_path / f"again-{number}", url, at=point)
        verified(again)
        restored = contents(again)
        assert restored[DID] == expected[DID]
        if point == points[-1]:
            assert restored == expected
        with open_store(again, "memory:") as then:
            listed = {info.id for info in then.sessions.list_sessions()}
            assert "kept" in listed
            assert "purged" not in listed
            assert [event.type for event in then.sessions.events_since("kept")].count(
                "message/appended"
            ) == (1 if point == points[0] else 2)
        assert SECRET not in repr(restored)


def test_rows_of_others_stay_and_nothing_is_rewritten_twice(tmp_path, url):
    with open_store(tmp_path / "store", url) as store:
        points = live(store)
        kept = contents(rebuilt(tmp_path / "before", url, at=points[0]))["sessions"]
        before = {key for key in objects_of(url) if key.startswith(f"tables/{TABLE}/0")}
        assert {entry.table for entry in table_maintenance.purge(store)} == {
            "sessions.events",
            "sessions.payloads",
            "sessions.sessions",
        }
        versions = dict(table_archive.archive_of(store).catalog.state.tables)
        assert table_maintenance.purge(store) == []
        assert dict(table_archive.archive_of(store).catalog.refresh().tables) == versions
    with open_store(tmp_path / "store", url) as store:
        # Another process finds in the log what was applied.
        assert table_maintenance.purge(store) == []
    after = contents(rebuilt(tmp_path / "after", url, at=points[0]))["sessions"]
    assert len(after["events"]) < len(kept["events"])
    assert set(after["events"]) < set(kept["events"])
    assert set(after["payloads"]) < set(kept["payloads"])
    # The second file has no purged rows.
    assert len(before & {f"tables/{TABLE}/{path}" for path in files_of(url)[TABLE]}) >= 1


def test_verify_reports_purged_rows_that_are_still_there(tmp_path, url):
    with open_store(tmp_path / "store", url) as store:
        live(store)
        before = dict(files_of(url)[TABLE])
        table_maintenance.purge(store)
        gone = next(file for path, file in before.items() if path not in files_of(url)[TABLE])
        archive = table_archive.archive_of(store)
        archive.begin(store.root / ".publishing" / ".tables").maintain({TABLE: [gone]})
        [problem] = store.verify(objects=True).problems
        assert "purged rows" in str(problem)


def test_purge_that_a_take_over_left_aside_is_not_applied(tmp_path, url):
    with open_store(tmp_path / "store", url) as store:
        points = live(store)
        expected = contents(rebuilt(tmp_path / "before", url, at=points[0]))
    taken = rebuilt(tmp_path / "taken", url, at=points[0], take_over=True)
    with open_store(taken, url) as store:
        assert table_maintenance.purge(store) == []
        store.sessions.create_session({"id": "later"})
        published(store)
        assert table_maintenance.purge(store) == []
    assert contents(rebuilt(tmp_path / "again", url, at=points[0])) == expected


def test_payload_that_is_stored_again_after_a_purge_stays(tmp_path, url):
    with open_store(tmp_path / "store", url) as store:
        live(store)
        store.sessions.create_session({"id": "again"})
        write(store.sessions, "again", SECRET)
        published(store)
        collected(store)
        assert store.verify(objects=True).problems == []
        expected = contents(store.root)
    again = rebuilt(tmp_path / "again", url)
    verified(again)
    assert contents(again) == expected


@pytest.mark.parametrize(
    "point",
    [
        "archive.tables.purged",
        "archive.catalog.intended",
        "archive.delta.commit.after",
        "archive.tables.committed",
        "archive.catalog.committed",
    ],
)
def test_interrupted_purge_is_completed_by_the_next(tmp_path, url, point):
    with open_store(tmp_path / "store", url) as store:
        points = live(store)
        failpoints.arm(point)
        try:
            retention.collect(store)
        except StorageError:
            pass
        finally:
            failpoints.disarm()
        store.space(DID).set("a", {"n": 1})
        published(store)
        collected(store)
        assert store.verify(objects=True).problems == []
    assert texts(objects_of(url)) == set()
    verified(rebuilt(tmp_path / "again", url, at=points[0]))


def test_rows_are_purged_on_a_server_of_the_s3_protocol(tmp_path, monkeypatch):
    with serve_s3() as server:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.access_key_id)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret_access_key)
        address = server.url("shop") + "&allow_http=true"
        with open_store(tmp_path / "store", address) as store:
            points = live(store)
            collected(store)
            objects = {info.key: store.objects.get(info.key).data for info in store.objects.list()}
            assert texts(objects) == set()
            assert store.verify(objects=True).problems == []
        verified(rebuilt(tmp_path / "again", address, at=points[0]))
