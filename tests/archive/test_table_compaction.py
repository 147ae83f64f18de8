"""Compacted archive tables: every point restores to the same rows before and after."""

from __future__ import annotations

from random import Random

import deltalake
import pyarrow.parquet as pq
import pytest
from published_stores import DID, Life, contents, published, rebuilt
from table_maintenance import check_points, collected, compacted, files_of, later_ms

import fourfold
from fourfold import limits
from fourfold.archive import capture, table_compaction, table_runs, table_versions
from fourfold.archive.table_compaction import level_of
from fourfold.errors import CorruptData, StorageError
from fourfold.kernel import failpoints
from fourfold.objects import FolderStore
from fourfold.store import retention, table_archive


@pytest.fixture
def tiny(monkeypatch):
    """Let every limit of a compaction be reached."""
    monkeypatch.setattr(table_runs, "COMPACT_SORT_BYTES", 2_000)
    monkeypatch.setattr(table_runs, "COMPACT_RUNS_MAX", 3)
    monkeypatch.setattr(table_runs, "COMPACT_BATCH_ROWS", 7)
    monkeypatch.setattr(table_compaction, "COMPACT_FILE_BYTES", 1)
    monkeypatch.setattr(limits, "SEGMENT_GROUP_ROWS", 9)


def swept(store, **options):
    return collected(store, **options).deleted


def test_points_restore_equally_after_compaction_and_sweep(tmp_path, url, tiny):
    was = {}
    with fourfold.open(tmp_path / "store", settings={"objects.url": str(url)}) as store:
        life = Life(store, Random(5))
        life.purges = False
        for _ in range(4):
            for _ in range(8):
                life.step()
            was[published(store).point.id] = contents(store.root)
        assert compacted(store)
        for files in files_of(url).values():
            assert [level_of(file) for file in files.values()].count(0) <= 1
        assert compacted(store) == []
        check_points(tmp_path, url, was, "after", 3)
        for _ in range(2):
            for _ in range(8):
                life.step()
            was[published(store).point.id] = contents(store.root)
        assert compacted(store)
        assert swept(store)
        assert swept(store) == []
        assert all(not problems for _, problems in table_archive.object_problems(store))
        check_points(tmp_path, url, was, "swept", 3)
        for _ in range(8):
            life.step()
        published(store)
    newest = contents(tmp_path / "store")
    assert contents(rebuilt(tmp_path / "newest", url)) == newest


def test_other_readers_see_the_same_rows_after_compaction(tmp_path, url, tiny):
    with fourfold.open(tmp_path / "store", settings={"objects.url": str(url)}) as store:
        for number in range(6):
            for did in ("did:key:a", "did:key:b", "did:key:c"):
                store.space(did).set(f"id-{number % 3}", {"n": number})
            published(store)
        folder = url / "tables+" / "documents.revision+"
        before = deltalake.DeltaTable(str(folder)).to_pyarrow_table().to_pylist()
        version = deltalake.DeltaTable(str(folder)).version()
        compacted(store)
        table = deltalake.DeltaTable(str(folder))
        assert table.version() == version + 1
        assert sorted(map(repr, table.to_pyarrow_table().to_pylist())) == sorted(map(repr, before))
        assert len(files_of(url)["documents.revision"]) > 1


def test_versions_of_a_row_are_in_one_file(tmp_path, url, tiny):
    """A restore applies files in the order of their least points."""
    several = 0
    with fourfold.open(tmp_path / "store", settings={"objects.url": str(url)}) as store:
        life = Life(store, Random(6))
        life.purges = False
        for _ in range(4):
            for _ in range(8):
                life.step()
            published(store)
        compacted(store)
        archive = table_archive.archive_of(store)
        for table in files_of(url):
            snapshot = archive.expected(table)
            order = table_versions.order_of(snapshot)
            if order.whole or len(snapshot.files) == 1:
                continue
            places = {}
            for file in snapshot.files:
                folder = url / "tables+" / f"{table}+"
                for row in pq.read_table(folder / file).to_pylist():
                    key = tuple(row[name] for name in order.group)
                    places.setdefault(key, []).append(file)
            several += sum(len(found) > 1 for found in places.values())
            assert all(len(set(found)) == 1 for found in places.values())
    assert several


def test_small_tables_are_left_alone(tmp_path, url):
    with fourfold.open(tmp_path / "store", settings={"objects.url": str(url)}) as store:
        store.space(DID).set("a", {"n": 1})
        published(store)
        assert retention.merge(store, everything=False).merged == []
        assert compacted(store) == []


def test_sweep_keeps_what_is_in_use_and_what_is_young(tmp_path, url):
    with fourfold.open(tmp_path / "store", settings={"objects.url": str(url)}) as store:
        for number in range(3):
            store.space(DID).set("a", {"n": number})
            published(store)
        assert swept(store) == []
        compacted(store)
        report = retention.collect(store, grace_s=3600)
        assert (report.deleted, report.failures) == ([], {})
        with FolderStore(url) as objects:
            objects.put("tables/documents.revision/left.parquet", b"x")
        planned = swept(store, dry_run=True)
        assert swept(store) == planned
        assert "tables/documents.revision/left.parquet" in {entry.key for entry in planned}
        with FolderStore(url) as objects:
            keys = {info.key for info in objects.list("tables/")}
        assert not keys & {entry.key for entry in planned}
    for table, files in files_of(url).items():
        assert {f"tables/{table}/{path}" for path in files} <= keys


@pytest.mark.parametrize(
    "point",
    [
        "archive.tables.compacted",
        "archive.catalog.intended",
        "archive.tables.committed",
        "archive.delta.commit.before",
        "archive.delta.commit.after",
        "archive.catalog.committed",
        "archive.tables.swept",
        "archive.delta.checkpoint.after",
        "archive.delta.truncate.before",
    ],
)
def test_interrupted_maintenance_changes_no_point(tmp_path, url, point):
    """The next publication reverts it or continues after it, and the next compaction completes."""
    was = {}
    with fourfold.open(tmp_path / "store", settings={"objects.url": str(url)}) as store:
        space = store.space(DID)
        for number in range(3):
            space.set(f"id-{number % 2}", {"n": number})
            was[published(store).point.id] = contents(store.root)
        failpoints.arm(point)
        try:
            retention.merge(store)
            retention.collect(store, grace_s=3600, at_ms=later_ms())
        except StorageError:
            pass
        finally:
            assert point not in failpoints.armed or failpoints.armed[point].hits
            failpoints.disarm()
        check_points(tmp_path, url, was, "interrupted")
        space.set("more", {"n": 9})
        was[published(store).point.id] = contents(store.root)
        compacted(store)
        swept(store)
        check_points(tmp_path, url, was, "after")


def test_damaged_file_is_not_compacted(tmp_path, url):
    with fourfold.open(tmp_path / "store", settings={"objects.url": str(url)}) as store:
        for number in range(2):
            store.space(DID).set("a", {"n": number})
            published(store)
        file = next(iter(files_of(url)["documents.revision"]))
        path = url / "tables+" / "documents.revision+" / file
        path.write_bytes(path.read_bytes()[:-9] + b"x" * 9)
        versions = dict(table_archive.archive_of(store).catalog.state.tables)
        report = retention.merge(store)
        assert isinstance(report.failures["tables"], CorruptData)
        assert dict(table_archive.archive_of(store).catalog.refresh().tables) == versions


def test_level_1_files_without_new_rows_stay_as_they_are(tmp_path, url, tiny):
    """Also those of the database that changed, if they have other keys."""
    table = "documents.revision"
    with fourfold.open(tmp_path / "store", settings={"objects.url": str(url)}) as store:
        space = store.space(DID)
        for half in range(2):
            for number in range(40):
                space.set(f"id-{number:02d}", {"n": half})
            published(store)
        compacted(store)
        before = set(files_of(url)[table])
        assert len(before) > 4
        for number in range(2):
            space.set("id-20", {"again": number})
            space.set("id-2000", {"new": number})
            published(store)
        expected = contents(store.root)
        compacted(store)
        after = set(files_of(url)[table])
        assert len(before & after) >= len(before) - 2
        assert {level_of(file) for file in files_of(url)[table].values()} == {1}
    assert contents(rebuilt(tmp_path / "again", url)) == expected


def test_small_neighbours_of_a_rewritten_file_are_taken_along(tmp_path, url, monkeypatch):
    with fourfold.open(tmp_path / "store", settings={"objects.url": str(url)}) as store:
        space = store.space(DID)
        monkeypatch.setattr(limits, "SEGMENT_GROUP_ROWS", 9)
        monkeypatch.setattr(table_runs, "COMPACT_BATCH_ROWS", 7)
        monkeypatch.setattr(table_compaction, "COMPACT_FILE_BYTES", 1)
        for number in range(40):
            space.set(f"id-{number:02d}", {"n": number})
            if number in {10, 20}:
                published(store)
        published(store)
        compacted(store)
        assert len(files_of(url)["documents.revision"]) > 2
        monkeypatch.undo()
        for number in range(2):
            space.set("id-00", {"again": number})
            published(store)
        compacted(store)
        assert len(files_of(url)["documents.revision"]) == 1
        expected = contents(store.root)
    assert contents(rebuilt(tmp_path / "again", url)) == expected


def test_rows_older_than_a_column_have_its_default_after_compaction(tmp_path, url, monkeypatch):
    with fourfold.open(tmp_path / "store", settings={"objects.url": str(url)}) as store:
        store.sessions.create_session({"id": "old"})
        columns_of = capture.columns_of

        def without_purged(snapshot, table):
            columns = columns_of(snapshot, table)
            return tuple(column for column in columns if (table, column.name) != HIDDEN)

        with monkeypatch.context() as older:
            older.setattr(capture, "columns_of", without_purged)
            published(store)
        store.sessions.create_session({"id": "new"})
        published(store)
        compacted(store)
        folder = url / "tables+" / "sessions.sessions+"
        [file] = files_of(url)["sessions.sessions"]
        rows = pq.read_table(folder / file).to_pylist()
        assert {row["session_id"]: row["purged"] for row in rows} == {"old": 0, "new": 0}
        expected = contents(store.root)
    assert contents(rebuilt(tmp_path / "again", url)) == expected


HIDDEN = ("sessions", "purged")
"""A column with a default, which an older version of Fourfold did not have."""
