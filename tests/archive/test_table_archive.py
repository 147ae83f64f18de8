"""An archive of Delta tables: what a publication writes, what it restores, and who may publish."""

from __future__ import annotations

import contextlib
import shutil
from random import Random

import deltalake
import polars as pl
import pyarrow.parquet as pq
import pytest
from published_stores import (
    DID,
    LARGE,
    Life,
    contents,
    objects_of,
    published,
    rebuilt,
    streams_of,
    verified,
)

import fourfold
from fourfold import limits
from fourfold.archive import catalog as catalogs
from fourfold.archive import catalog_files, table_writer
from fourfold.archive.catalog import Catalog
from fourfold.archive.delta_log import DeltaLog
from fourfold.archive.table_layout import table_prefix
from fourfold.archive.table_reader import TableReader
from fourfold.archive.table_state import PointInterval
from fourfold.errors import CorruptData, HistoryTruncated, PublisherFenced
from fourfold.kernel import failpoints
from fourfold.models.documents import GcPolicy
from fourfold.objects import FaultyStore, FolderStore, MemoryStore
from fourfold.retry import Retries
from fourfold.store.restoration import rebuild


def open_at(path, url, **settings):
    return fourfold.open(path, settings={"objects.url": str(url), **settings})


def state_of(url):
    with FolderStore(url) as objects:
        return Catalog(objects).refresh()


def delete_last_commit(url):
    """Let the archive return to the state before the newest commit of its catalog."""
    with FolderStore(url) as objects:
        log = [info.key for info in objects.list("catalog/_delta_log/")]
        objects.delete(max(log))


# What a publication writes


class CountingStore(FaultyStore):
    """Counts the objects that are written."""

    def __init__(self, inner):
        self.writes = []
        super().__init__(inner, self._count)

    def _count(self, call):
        if call.op in {"put", "upload"}:
            self.writes.append(call.key)


def test_a_publication_writes_two_objects_per_changed_table_and_two(tmp_path):
    with open_at(tmp_path / "store", "memory:") as store:
        store._objects = counted = CountingStore(MemoryStore())
        spaces = [store.space(f"did:key:{number}") for number in range(20)]
        for space in spaces:
            space.set("a", {"n": 1})
        store.sessions.create_session({"id": "s"})
        published(store)
        for number in range(3):
            for space in spaces:
                space.set("a", {"n": number})
            store.sessions.append_event("s", {"type": "turn/started", "turn": {"n": number}})
            counted.writes.clear()
            assert len(published(store).published) == 21
            tables = {key.split("/")[1] for key in counted.writes if key.startswith("tables/")}
            assert {"documents.revision", "documents.commit", "sessions.events"} <= tables
            assert len(counted.writes) == 2 * len(tables) + 2


def test_nothing_new_writes_nothing(tmp_path):
    with open_at(tmp_path / "store", "memory:") as store:
        store._objects = counted = CountingStore(MemoryStore())
        Life(store, Random(2)).everything()
        published(store)
        counted.writes.clear()
        report = published(store)
        assert report.point is None
        assert report.unchanged == 4
        assert counted.writes == []


def rows_at(url, table, version):
    """The rows of a table at a version, as three other readers see them."""
    folder = url / "tables+" / f"{table}+"
    lake = deltalake.DeltaTable(str(folder), version=version)
    rows = sorted(map(repr, lake.to_pyarrow_table().to_pylist()))
    frame = pl.read_delta(str(folder), version=version)
    assert sorted(map(repr, frame.to_dicts())) == rows
    with FolderStore(url) as objects:
        files = DeltaLog(objects, f"tables/{table}").snapshot(version).files
    plain = [row for file in files for row in pq.read_table(folder / file).to_pylist()]
    assert sorted(map(repr, plain)) == rows
    return lake.to_pyarrow_table().to_pylist()


def test_filters_of_other_readers_find_rows(tmp_path):
    url = tmp_path / "objects"
    with open_at(tmp_path / "store", url) as store:
        store.sessions.create_session({"id": "s"})
        published(store)
    table = deltalake.DeltaTable(str(url / "tables+" / "sessions.sessions+"))
    (row,) = table.to_pyarrow_table().to_pylist()
    numbers = {name: value for name, value in row.items() if isinstance(value, int)}
    assert len(numbers) > 2
    for name, value in numbers.items():
        assert table.to_pyarrow_table(filters=[(name, "=", value)]).num_rows == 1, name


def test_other_readers_see_the_rows_of_each_point(tmp_path):
    url, was = tmp_path / "objects", {}
    with open_at(tmp_path / "store", url) as store:
        spaces = [store.space(f"did:key:{name}") for name in "ab"]
        for number in range(4):
            spaces[number % 2].set("x", {"n": number})
            if number == 2:
                spaces[0].gc(GcPolicy(keep_seqs=1))
            point = published(store).point
            was[point.id] = {}
            for space in spaces:
                with space.database.read() as snapshot:
                    rows = snapshot.all("SELECT branch, id, seq, op_index, data FROM revision")
                    was[point.id][space.did] = sorted(rows)
    for commit in deltalake.DeltaTable(str(url / "catalog+")).history():
        if "point" not in commit:
            continue
        found = {}
        for row in rows_at(url, "documents.revision", commit["tables"]["documents.revision"]):
            key = row["space"], row["branch"], row["id"], row["seq"], row["op_index"]
            assert row["_point"] <= commit["version"]
            if key not in found or found[key]["_point"] < row["_point"]:
                found[key] = row
        for did, expected in was.pop(commit["point"]).items():
            rows = [
                (*key[1:], row["data"])
                for key, row in found.items()
                if row["_op"] == "put" and key[0] == did
            ]
            assert sorted(rows) == expected
    assert not was


def test_many_row_groups_and_files_restore_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "SEGMENT_GROUP_ROWS", 3)
    monkeypatch.setattr(table_writer, "TABLE_FILE_BYTES", 2_000)
    url = tmp_path / "objects"
    with open_at(tmp_path / "store", url) as store:
        for number in range(40):
            store.space(f"did:key:{number % 5}").set(f"e{number}", {"n": number})
        published(store)
        files = [key for key in objects_of(url) if key.startswith("tables/documents.revision/0")]
        assert len(files) > 1
        assert store.verify(objects=True).problems == []
        expected = contents(store.root)
    assert contents(rebuilt(tmp_path / "again", url)) == expected


def test_catalog_is_compacted_and_keeps_every_point(tmp_path, monkeypatch):
    monkeypatch.setattr(catalogs, "CATALOG_FILES_MAX", 4)
    url, was = tmp_path / "objects", []
    with open_at(tmp_path / "store", url) as store:
        for number in range(9):
            store.space(DID).set("a", {"n": number})
            was.append((published(store).point, contents(store.root)))
        files = state_of(url).snapshot.files.values()
        assert len([file for file in files if not catalog_files.kind_of(file)]) < 4
        assert [point.id for point in store.points()] == [point.id for point, _ in was]
    keys = objects_of(url)
    assert any(key.endswith(".checkpoint.parquet") for key in keys)
    with open_at(tmp_path / "store", url) as store:
        # Another process reads the catalog from its checkpoint.
        store.space(DID).set("a", {"n": 9})
        published(store)
    for number in (0, 3, 8):
        point, expected = was[number]
        assert contents(rebuilt(tmp_path / f"again-{number}", url, at=point.id)) == expected


# What is restored


def test_a_space_that_was_created_again_is_another_one(tmp_path):
    url, path = tmp_path / "objects", tmp_path / "store"
    with open_at(path, url) as store:
        for number in range(3):
            store.space(DID).set("old", {"n": number})
        before = published(store).point
        first = contents(store.root)
        store.release(DID)
        for file in (path / "spaces").glob(f"{DID}*"):
            file.unlink()
        store.space(DID).set("new", {"n": 1})
        after = published(store).point
        second = contents(store.root)
    assert contents(rebuilt(tmp_path / "before", url, at=before.id)) == first
    assert contents(rebuilt(tmp_path / "after", url, at=after.id)) == second


def test_only_older_points_have_rows_removed_by_gc_and_purge(tmp_path):
    url, was = tmp_path / "objects", []
    with open_at(tmp_path / "store", url) as store:
        space, sessions = store.space(DID), store.sessions
        for number in range(20):
            space.set("a", {"n": number})
        blob = space.blobs.put(b"b" * LARGE)
        sessions.create_session({"id": "s"})
        sessions.append_event("s", {"type": "turn/started", "turn": {"n": 1}})
        for step in (
            lambda: None,
            lambda: space.gc(GcPolicy(keep_seqs=3, blobs=True, blob_age_s=0)),
            lambda: sessions.delete_session("s"),
            lambda: sessions.gc(0),
        ):
            step()
            point = published(store).point
            if point is not None:
                was.append((point, contents(store.root)))
        assert store.verify(objects=True).problems == []
    assert len(was) >= 3
    for number, (point, expected) in enumerate(was):
        again = rebuilt(tmp_path / f"again-{number}", url, at=point.id)
        verified(again)
        assert contents(again) == expected
    with open_at(tmp_path / "again-0", url) as first:
        assert first.space(DID).blobs.get(blob) == b"b" * LARGE
    with open_at(rebuilt(tmp_path / "last", url), url) as last, pytest.raises(HistoryTruncated):
        last.space(DID).read("a", at=2)


def test_tables_of_app_with_columns_of_their_own_are_restored(tmp_path):
    url = tmp_path / "objects"
    with open_at(tmp_path / "store", url) as store:
        app = store.graphs.register_app("notes", "Notes").app_id
        name = f"app_{app}_own"

        def make(txn):
            txn.execute(f"CREATE TABLE {name} (a TEXT PRIMARY KEY, b REAL, c BLOB, d INTEGER)")
            txn.execute(
                f"INSERT INTO {name} VALUES ('x', 9e999, x'00ff', NULL), ('y', 1.0, NULL, 7)"
            )

        store.graphs.database.transact(make)
        first = published(store).point, contents(store.root)
        store.graphs.database.transact(lambda txn: txn.execute(f"DELETE FROM {name}"))
        second = published(store).point, contents(store.root)
        store.graphs.database.transact(lambda txn: txn.execute(f"DROP TABLE {name}"))
        third = published(store).point, contents(store.root)
    for number, (point, expected) in enumerate((first, second, third)):
        assert contents(rebuilt(tmp_path / f"again-{number}", url, at=point.id)) == expected


def test_taking_over_an_older_point_leaves_all_points_restorable(tmp_path):
    url, was = tmp_path / "objects", {}

    def step(store, number):
        store.space("did:key:a").set("x", {"n": number})
        if number:
            store.space("did:key:later").set("x", {"n": number})
        store.streams.create("s", "text/plain").append([f"{number}".encode()])
        remember(store)

    def remember(store):
        settings = {"objects.url": str(url)}
        point = published(store).point
        was[point.id] = contents(store.root), streams_of(store.root, settings=settings)

    with open_at(tmp_path / "store", url) as store:
        store.space("did:key:same").set("x", {"n": 0})
        for number in range(3):
            step(store, number)
        first = next(iter(was))
        taken = rebuilt(tmp_path / "taken", url, at=first, take_over=True)
        store.space("did:key:a").set("zombie", {})
        with pytest.raises(PublisherFenced):
            published(store)
    with open_at(taken, url) as store:
        assert store.points()[-1].restored == first
        claim = store.points()[-1].id
        was[claim] = was[first]
        step(store, 0)
        store.space("did:key:later").set("x", {"n": "other"})
        store.space("did:key:same").set("x", {"n": 1})
        remember(store)
        assert store.verify(objects=True).problems == []
    for number, (point, (expected, records)) in enumerate(was.items()):
        again = rebuilt(tmp_path / f"again-{number}", url, at=point)
        verified(again)
        assert contents(again) == expected, point
        assert streams_of(again, settings={"objects.url": str(url)}) == records, point


def test_a_store_at_an_older_point_does_not_publish(tmp_path):
    url = tmp_path / "objects"
    with open_at(tmp_path / "store", url) as store:
        store.space(DID).set("a", {"n": 1})
        point = published(store).point
        store.space(DID).set("a", {"n": 2})
        published(store)
    with open_at(rebuilt(tmp_path / "then", url, at=point.id), url) as then:
        then.space(DID).set("a", {"n": 3})
        with pytest.raises(PublisherFenced, match="another node publishes"):
            published(then)


# Who may publish


def test_first_of_two_restored_stores_that_publishes_is_the_publisher(tmp_path):
    url = tmp_path / "objects"
    with open_at(tmp_path / "store", url) as store:
        store.space(DID).set("a", {"n": 1})
        published(store)
        one, two = (rebuilt(tmp_path / name, url) for name in ("one", "two"))
        # Restoring stops no publisher.
        store.space(DID).set("a", {"n": 2})
        published(store)
        one = rebuilt(tmp_path / "one-again", url)
    with open_at(one, url) as first:
        first.space(DID).set("mine", {})
        published(first)
        expected = contents(one)
        epoch = state_of(url).head.epoch
    for path in (two, tmp_path / "store"):
        with open_at(path, url) as other:
            other.space(DID).set("theirs", {})
            assert {type(error) for error in other.publish().failures.values()} == {PublisherFenced}
    assert epoch == 2
    assert contents(rebuilt(tmp_path / "third", url)) == expected


def test_of_two_copies_of_a_store_one_publishes(tmp_path):
    url = tmp_path / "objects"
    with open_at(tmp_path / "store", url) as store:
        store.space(DID).set("a", {"n": 1})
        published(store)
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    with open_at(tmp_path / "copy", url) as copy:
        copy.space(DID).set("copy", {})
        published(copy)
        expected = contents(copy.root)
    with open_at(tmp_path / "store", url) as store:
        store.space(DID).set("original", {})
        # The archive has no row of this one, so only the newest commit tells.
        store.space("did:key:new").set("original", {})
        failures = store.publish().failures
        assert {type(error) for error in failures.values()} == {PublisherFenced}
        assert [*failures] == ["spaces/did:key:new", f"spaces/{DID}"]
    assert contents(rebuilt(tmp_path / "again", url)) == expected


def test_space_that_was_replaced_by_older_copy_is_refused_alone(tmp_path):
    url, path = tmp_path / "objects", tmp_path / "store"
    file = path / "spaces" / f"{DID}.sqlite"
    with open_at(path, url) as store:
        store.space(DID).set("a", {"n": 1})
        published(store)
    shutil.copy(file, tmp_path / "copy")
    with open_at(path, url) as store:
        store.space(DID).set("a", {"n": 2})
        published(store)
    for name in (f"{file.name}-wal", f"{file.name}-shm"):
        with contextlib.suppress(FileNotFoundError):
            file.with_name(name).unlink()
    shutil.copy(tmp_path / "copy", file)
    with open_at(path, url) as store:
        store.space(DID).set("a", {"n": 3})
        store.space("did:key:other").set("a", {"n": 3})
        report = store.publish()
        assert [*report.failures] == [f"spaces/{DID}"]
        assert isinstance(report.failures[f"spaces/{DID}"], PublisherFenced)
        assert [done.name for done in report.published] == ["spaces/did:key:other"]


def test_an_archive_that_lost_everything_gets_everything(tmp_path):
    url = tmp_path / "objects"
    with open_at(tmp_path / "store", url) as store:
        Life(store, Random(12)).everything()
        published(store)
        with FolderStore(url) as objects:
            objects.delete_many([info.key for info in objects.list()])
        store.publish(models=["documents", "sessions", "graphs"]).raise_if_failed()
        assert store.verify(objects=True).checked
        expected = contents(store.root)
    assert contents(rebuilt(tmp_path / "again", url)) == expected


def test_an_archive_that_went_back_is_brought_up_again(tmp_path):
    url = tmp_path / "objects"
    with open_at(tmp_path / "store", url) as store:
        for number in range(3):
            store.space(DID).set("a", {"n": number})
            published(store)
    delete_last_commit(url)
    with open_at(tmp_path / "store", url) as store:
        store.space("did:key:other").set("b", {"n": 3})
        published(store)
        assert store.verify(objects=True).problems == []
        expected = contents(store.root)
        store.space(DID).set("a", {"n": 4})
        published(store)
    assert contents(rebuilt(tmp_path / "again", url, at=state_of(url).points[-2].id)) == expected


def test_a_publication_that_became_visible_late_is_continued(tmp_path):
    """Its process has tried again meanwhile, so its databases have another intent."""
    url, inner = tmp_path / "store", MemoryStore()
    with open_at(url, "memory:") as store:
        store._objects = FaultyStore(inner, lambda call: None)
        space = store.space(DID)
        space.set("a", {"n": 1})
        published(store)
        version = Catalog(inner).refresh().version + 1
        key = f"catalog/_delta_log/{version:020}.json"
        delayed = DelayedPut(inner, key)
        store._objects = delayed
        space.set("a", {"n": 2})
        assert store.publish().failures
        space.set("a", {"n": 3})
        # The first one arrives just before the second one is put.
        delayed.deliver_before_next = True
        assert store.publish().failures
        space.set("a", {"n": 4})
        published(store)
        assert store.verify(objects=True).problems == []
        expected = contents(store.root)
        with open_at(tmp_path / "again", "memory:") as again:
            again._objects = inner
            assert not rebuild(again).failures
            assert contents(again.root) == expected


class DelayedPut(FaultyStore):
    """Loses the first put of a key, and delivers it later."""

    def __init__(self, inner, key):
        super().__init__(inner, lambda call: None)
        self._key = key
        self._late = None
        self.deliver_before_next = False

    def put(self, key, data, **options):
        if key == self._key and self._late is None:
            self._late = data
        if key == self._key and self._late is not None:
            if not self.deliver_before_next:
                raise CorruptData("the connection was lost")
            self.deliver_before_next = False
            with contextlib.suppress(fourfold.errors.AlreadyExists):
                super().put(key, self._late, if_absent=True)
        return super().put(key, data, **options)


def test_database_that_fails_in_middle_does_not_stop_others(tmp_path):
    url = tmp_path / "objects"
    with open_at(tmp_path / "store", url) as store:
        bad, good = store.space("did:key:bad"), store.space("did:key:good")
        for space in (bad, good):
            space.set("a", {"n": 1})
        published(store)
        was = contents(store.root)
        for space in (bad, good):
            space.set("a", {"n": 2})
        change = "UPDATE revision SET data = x'00' WHERE seq = 2"
        bad.database.transact(lambda txn: txn.execute(change))
        report = store.publish()
        assert [*report.failures] == ["spaces/did:key:bad"]
        assert "data" in report.failures["spaces/did:key:bad"].message
        assert [done.name for done in report.published] == ["spaces/did:key:good"]
        expected = contents(store.root)["did:key:good"]
    again = contents(rebuilt(tmp_path / "again", url))
    assert again == {"did:key:bad": was["did:key:bad"], "did:key:good": expected}


def test_rows_of_a_database_that_failed_are_not_published(tmp_path):
    """What it had then may not be what it has at the next point, and is not published again."""
    url = tmp_path / "objects"
    with open_at(tmp_path / "store", url) as store:
        bad, good = store.space("did:key:bad"), store.space("did:key:good")
        for space in (bad, good):
            space.set("a", {"n": 1})
        published(store)

        def change(*statements):
            def work(txn):
                for statement in statements:
                    txn.execute(statement)

            bad.database.transact(work)

        for space in (bad, good):
            space.set("a", {"n": 2})
        change(
            "INSERT INTO kernel_meta (key, value) VALUES ('then', 'x')",
            "UPDATE revision SET data = CAST(data AS BLOB) WHERE seq = 2",
        )
        assert [*store.publish().failures] == ["spaces/did:key:bad"]
        change(
            "DELETE FROM kernel_meta WHERE key = 'then'",
            "UPDATE revision SET data = CAST(data AS TEXT) WHERE seq = 2",
        )
        published(store)
        expected = contents(store.root)
    assert contents(rebuilt(tmp_path / "again", url)) == expected


def test_interrupted_publication_is_reverted_in_unchanged_tables(tmp_path):
    url = tmp_path / "objects"
    with open_at(tmp_path / "store", url) as store:
        store.space(DID).set("a", {"n": 1})
        store.sessions.create_session({"id": "s"})
        store.sessions.append_event("s", {"type": "turn/started", "turn": {"n": 1}})
        published(store)
        store.sessions.append_event("s", {"type": "turn/started", "turn": {"n": 2}})
        failpoints.arm("archive.tables.committed")
        try:
            assert store.publish().failures
        finally:
            failpoints.disarm()
    with open_at(tmp_path / "store", url) as store:
        store.space(DID).set("a", {"n": 2})
        published(store, models=["documents"])
    with FolderStore(url) as objects:
        for table, version in Catalog(objects).refresh().tables.items():
            log = DeltaLog(objects, table_prefix(table))
            assert log.snapshot().version == version, table
    rows = deltalake.DeltaTable(str(url / "tables+" / "sessions.events+")).to_pyarrow_table()
    assert {row["_point"] for row in rows.to_pylist()} == {1}


def test_reader_leaves_out_rows_of_points_outside_of_an_interval(tmp_path):
    url = tmp_path / "objects"
    with open_at(tmp_path / "store", url) as store:
        for number in range(4):
            store.space(DID).set("a", {"n": number})
            published(store)
    state = state_of(url)
    row = state.find(f"spaces/{DID}")
    with FolderStore(url) as objects:
        reader = TableReader(objects, dict(state.tables), tmp_path / "scratch", Retries())
        try:
            interval = PointInterval(row.file_id, 2, 3)
            found = set()
            # Also of files that the statistics exclude.
            for file in reader.snapshot("documents.revision").files.values():
                for columns, rows in reader.batches(
                    "documents.revision", file, "space", DID, interval
                ):
                    found |= {row[columns.index("_point")] for row in rows}
            files = reader.files("documents.revision", "space", DID, interval)
        finally:
            reader.close()
    assert found == {2, 3}
    assert len(files) == 2


def test_what_changes_while_it_is_published_is_published_next_time(tmp_path):
    url = tmp_path / "objects"
    with open_at(tmp_path / "store", url) as store:
        space = store.space(DID)
        for number in range(20):
            space.set("a", {"n": number})
        published(store)
        space.set("a", {"n": 20})

        def meanwhile(_point):
            space.gc(GcPolicy(keep_seqs=2))
            space.blobs.put(b"second")
            space.set("b", {"n": 1})

        failpoints.arm("archive.catalog.intended", meanwhile)
        try:
            published(store)
        finally:
            failpoints.disarm()
        assert store.published()[0].changes > 0
        published(store)
        expected = contents(store.root)
    again = rebuilt(tmp_path / "again", url)
    verified(again)
    assert contents(again) == expected


def test_two_processes_publish_the_databases_of_one_store(tmp_path):
    url, path = tmp_path / "objects", tmp_path / "store"
    with open_at(path, url) as one:
        for name in ("did:key:one", "did:key:two"):
            one.space(name).set("a", {"n": 0})
        published(one)
    with open_at(path, url) as one, open_at(path, url) as two:
        for number in range(3):
            one.space("did:key:one").set("a", {"n": number})
            two.space("did:key:two").set("a", {"n": number})
            for store in (one, two):
                report = store.publish(models=["documents"])
                assert len(report.published) == 1
        expected = contents(path)
    assert contents(rebuilt(tmp_path / "again", url)) == expected


# Damage


def test_missing_and_damaged_objects_are_named(tmp_path):
    url = tmp_path / "objects"
    with open_at(tmp_path / "store", url) as store:
        store.space(DID).set("a", {"n": 1})
        blob = store.space(DID).blobs.put(b"b" * LARGE).removeprefix("sha256:")
        published(store)
        keys = objects_of(url)
        key = next(key for key in keys if key.startswith("tables/documents.revision/0"))
        value = f"blobs/{blob[:2]}/{blob}.blob"
        with FolderStore(url) as objects:
            objects.put(key, keys[key][:-3] + b"bad")
            objects.delete(value)
        problems = [*map(str, store.verify(objects=True).problems)]
        assert any(key in problem for problem in problems)
        assert any(value in problem and "missing" in problem for problem in problems)
    with open_at(tmp_path / "again", url) as again:
        assert key in rebuild(again).failures[f"spaces/{DID}"].message
        assert again.spaces() == []
    with FolderStore(url) as objects:
        objects.put(key, keys[key])
        objects.put(value, b"b" * LARGE)
    with open_at(tmp_path / "again", url) as again:
        assert not rebuild(again).failures
        assert again.space(DID).read("a").document == {"n": 1}
        assert again.spaces() == [DID]
