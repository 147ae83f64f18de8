"""The catalog against a plain list of its rows, and the cost of its commits."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fourfold.archive import catalog as catalogs
from fourfold.archive import catalog_files
from fourfold.archive.catalog import Catalog
from fourfold.archive.catalog_files import kind_of
from fourfold.archive.catalog_rows import (
    DATABASE_ROW,
    POINT_ROW,
    TABLES_ROW,
    CommitRow,
    DatabaseRow,
    encode_rows,
)
from fourfold.archive.catalog_state import CatalogState
from fourfold.archive.table_versions import NeededRowsOf, needed_rows
from fourfold.errors import CorruptData
from fourfold.objects import MemoryStore
from support.properties import with_slow

NAMES = [f"spaces/{letter}" for letter in "abcdefgh"]


class CountingStore(MemoryStore):
    """Counts objects and bytes that are read and written."""

    def __init__(self):
        super().__init__()
        self.read = self.written = self.puts = 0

    def get(self, key, *args, **options):
        found = super().get(key, *args, **options)
        self.read += len(found.data)
        return found

    def put(self, key, data, *args, **options):
        self.written += len(data)
        self.puts += 1
        return super().put(key, data, *args, **options)

    def upload(self, key, chunks, *args, **options):
        data = list(chunks)
        self.written += sum(map(len, data))
        self.puts += 1
        return super().upload(key, iter(data), *args, **options)


def head_of(version, kind=POINT_ROW):
    return CommitRow(version, kind, f"t{version}", "n", 1, {"a.b": version}, id=f"p{version:06d}")


def row_of(version, name, **options):
    fields = {"base": 1, "point": version, "position": version, **options}
    return DatabaseRow(version, name, "documents", f"f-{name}", token=f"t{version}", **fields)


@pytest.fixture
def small(monkeypatch):
    """Files are divided and merged early."""
    monkeypatch.setattr(catalogs, "CATALOG_FILES_MAX", 4)
    monkeypatch.setattr(catalog_files, "CATALOG_MERGE_FILES", 3)
    monkeypatch.setattr(catalog_files, "CATALOG_MERGE_ROWS", 40)


class Naive:
    """All rows of a catalog in a list."""

    def __init__(self):
        self.commits, self.rows = [], []

    def find(self, name, at):
        known = [row for row in self.rows if row.name == name and row.version <= at]
        return max(known, key=lambda row: row.version, default=None)

    def forget(self, oldest):
        self.commits = [commit for commit in self.commits if commit.version >= oldest]
        kept = {(name, row.version) for name in NAMES if (row := self.find(name, oldest))}
        self.rows = [
            row
            for row in self.rows
            if row.version > oldest or ((row.name, row.version) in kept and not row.absent)
        ]

    def state(self):
        """A state that has everything in memory."""
        state = CatalogState()
        state.add(self.commits, self.rows)
        return state


def rows_in(objects, state):
    """The rows of the table, as every reader of Delta tables sees them."""
    tables = [
        pq.read_table(pa.BufferReader(objects.get(f"catalog/{path}").data))
        for path in state.snapshot.files
    ]
    rows = pa.concat_tables(tables).to_pylist()
    return sorted((row["version"], row["kind"] == DATABASE_ROW, row["name"] or "") for row in rows)


def check_same(objects, state, naive, oldest, draw):
    plain = lambda commits: [(commit.version, commit.id, commit.kind) for commit in commits]  # noqa: E731
    assert plain(state.commits) == plain(naive.commits)
    points = [commit for commit in naive.commits if commit.kind == POINT_ROW]
    assert plain(state.points) == plain(points)
    assert (state.newest_point.version, state.oldest_point.version) == (
        points[-1].version,
        points[0].version,
    )
    assert state.head.tables == {"a.b": state.head.version}
    every = range(oldest, state.version + 1)
    for version in sorted({*every[-2:], *draw.sample(every, min(2, len(every)))}):
        known = [commit for commit in naive.commits if commit.version == version]
        assert plain([state.commit_at(version)]) == plain(known)
        assert plain(state.points_after(version)) == plain(
            [point for point in points if point.version > version]
        )
        for name in NAMES:
            expected = naive.find(name, version)
            found = state.find(name, version)
            assert found == expected or (expected is None and found.absent), (name, version)
    names = {row.name for row in naive.rows}
    assert names <= set(state.names())
    for name in set(state.names()) - names:
        assert state.find(name).absent
    assert needed_rows(state, oldest) == needed_rows(naive.state(), oldest)
    expected = [(commit.version, False, "") for commit in naive.commits]
    expected += [(row.version, True, row.name) for row in naive.rows]
    assert rows_in(objects, state) == sorted(expected)


@pytest.mark.parametrize("seed", with_slow([0, 1, 2, 3], range(4, 30)))
def test_catalog_has_the_rows_of_a_list_of_all_commits(small, seed):
    draw, objects, naive = random.Random(seed), MemoryStore(), Naive()
    writer, reader, late = Catalog(objects), Catalog(objects), Catalog(objects)
    writer.create()
    oldest, needed = 1, NeededRowsOf(1)
    for version in range(1, 45):
        kind = TABLES_ROW if version > 1 and draw.random() < 0.2 else POINT_ROW
        changed = draw.sample(NAMES[: draw.choice([2, 8])], draw.randint(0, 2))
        rows = [
            row_of(version, name, absent=draw.random() < 0.1)
            for name in changed
            if kind == POINT_ROW
        ]
        forgotten = None
        points = [commit.version for commit in naive.commits if commit.kind == POINT_ROW]
        if kind == TABLES_ROW and len(points) > 2 and draw.random() < 0.4:
            forgotten = oldest = draw.choice(points)
        writer.commit(head_of(version, kind), rows, oldest=forgotten)
        naive.commits.append(head_of(version, kind))
        naive.rows += rows
        if forgotten is not None:
            naive.forget(forgotten)
        check_same(objects, writer.state, naive, oldest, draw)
        check_same(objects, reader.refresh(), naive, oldest, draw)
        if draw.random() < 0.2:
            check_same(objects, late.refresh(), naive, oldest, draw)
        if needed.oldest != oldest:
            needed = NeededRowsOf(oldest)
        assert needed.update(writer.state) == needed_rows(naive.state(), oldest)
    check_same(objects, Catalog(objects).refresh(), naive, oldest, draw)
    kinds = {kind_of(file) for file in writer.state.snapshot.files.values()}
    assert kinds > {catalog_files.CURRENT, catalog_files.POINTS}


def test_file_of_an_older_version_is_divided(small):
    """It has rows of all kinds, and no tag."""
    objects = MemoryStore()
    writer = Catalog(objects)
    writer.create()
    for version in range(1, 4):
        writer.commit(head_of(version), [row_of(version, "spaces/a")])
    old = [writer.files.read(file) for file in writer.state.snapshot.files.values()]
    whole = writer.files.upload([pa.concat_tables(old)], "history")
    removed = [file.removed(0) for file in writer.state.snapshot.files.values()]
    own = writer.files.upload([encode_rows([head_of(4)])], "000000000004")
    writer._log.commit([own, whole, *removed], 4, {"token": "t4"})
    state = Catalog(objects).refresh()
    assert state.find("spaces/a", 2).version == 2
    reader = Catalog(objects)
    reader.refresh()
    for version in range(5, 9):
        reader.commit(head_of(version), [row_of(version, "spaces/a")])
    assert all(
        kind_of(file) for file in reader.state.snapshot.files.values() if file.path == whole.path
    )
    assert [point.version for point in Catalog(objects).refresh().points] == list(range(1, 9))
    assert Catalog(objects).refresh().find("spaces/a", 2).version == 2


def test_damaged_file_of_history_is_named_when_it_is_read(small):
    objects = MemoryStore()
    writer = Catalog(objects)
    writer.create()
    for version in range(1, 10):
        writer.commit(head_of(version), [row_of(version, "spaces/a")])
    paths = [
        path
        for path, file in writer.state.snapshot.files.items()
        if kind_of(file) == catalog_files.HISTORY
    ]
    for path in paths:
        objects.put(f"catalog/{path}", b"damaged")
    state = Catalog(objects).refresh()
    assert state.find("spaces/a").version == 9
    with pytest.raises(CorruptData, match="history-"):
        state.find("spaces/a", 1)


def work_of(objects, writer):
    return SimpleNamespace(
        read=objects.read,
        written=objects.written,
        puts=objects.puts,
        rows_read=writer.files.rows_read,
        rows_written=writer.files.rows_written,
    )


def test_cost_of_a_commit_does_not_grow_with_the_history(monkeypatch):
    monkeypatch.setattr(catalogs, "CATALOG_FILES_MAX", 10)
    monkeypatch.setattr(catalog_files, "CATALOG_MERGE_FILES", 4)
    monkeypatch.setattr(catalog_files, "CATALOG_MERGE_ROWS", 150)
    objects = CountingStore()
    writer = Catalog(objects, grace_s=0)
    writer.create()
    before, windows, kept = work_of(objects, writer), [], []
    for version in range(1, 501):
        draw = random.Random(version)
        names = draw.sample(range(20), 3)
        writer.refresh()
        writer.commit(head_of(version), [row_of(version, f"spaces/{name}") for name in names])
        if version % 100 == 0:
            after = work_of(objects, writer)
            windows.append({key: value - vars(before)[key] for key, value in vars(after).items()})
            before = after
            state = writer.state
            kept.append(
                len(state._commits) + len(state._newest) + sum(map(len, state._older.values()))
            )
    for key in windows[0]:
        first, last = windows[1][key], windows[-1][key]
        assert last <= 1.25 * first, (key, windows)
    assert max(kept) <= 20 + 10 + 40
    reader = Catalog(objects)
    read = objects.read
    reader.refresh()
    assert reader.files.rows_read <= 2 * 20 + 10 * 4, "the history is not read"
    assert objects.read - read < 100_000
    assert len(reader.state.points) == 500
