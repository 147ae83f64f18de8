"""Spark, SQL in process and a naive record have the same rows, whatever has happened to a store.

One life of each model goes through every phase. After a phase, every table of the model is read
with Spark, now and at a past position, and compared with the same table in process; some also with
the record. What is read comes from live files, from the archive, or from both.
"""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass

import pytest
from archive_reads import micros, plain, publish, spark_rows, texts_of
from equal_lives import LIVES_OF, RESTORED, remove_files

import fourfold
from fourfold.errors import HistoryTruncated
from fourfold.pipeline.models import model_names, model_tables
from fourfold.pipeline.reader import frame
from fourfold.query.tables import FILES
from fourfold.store import retention, table_maintenance
from fourfold.store.restoration import rebuild

UNLIKE = {"graphs": {"peers"}, "sessions": {"payloads"}}


@dataclass
class World:
    """A store with one life, and where its objects are."""

    folder: object
    model: str
    life: object
    store: object = None
    restored: bool = False

    @property
    def root(self):
        return self.folder / (RESTORED if self.restored else "store")

    def open(self):
        self.close()
        fourfold.open(self.root).close()
        path = self.root / "fourfold.toml"
        kept = path.read_text().partition("[objects]")[0]
        path.write_text(f'{kept}\n[objects]\nurl = "{self.folder / "objects"}"\n')
        self.store = fourfold.open(self.root, settings={"archive.seal_rows": 5})

    def close(self):
        if self.store is not None:
            self.store.close()

    def publish(self):
        return publish(self.store)

    # Phases

    def tail(self):
        self.life.write(self.store)

    def published(self):
        self.publish()

    def mixed(self):
        self.life.write(self.store)
        self.publish()
        self.life.write(self.store)

    def compacted(self):
        self.publish()
        assert not retention.merge(self.store).failures
        self.store.archive.compact()
        self.life.write(self.store)

    def collected(self):
        self.life.collect(self.store)

    def purged(self):
        self.publish()
        table_maintenance.purge(self.store)
        retention.collect(self.store, keep=retention.Keep(points=2))

    def schema(self):
        self.life.change_schema(self.store)
        self.life.write(self.store)
        self.publish()
        self.life.write(self.store)

    def recreated(self):
        """Begin again in a new file, with rows like those that are published."""
        if self.life.files is None:
            self.life.collect(self.store)
        else:
            self.close()
            remove_files(self.root, self.life.files)
            self.open()
            self.life.forget()
        self.life.write(self.store)

    def restore(self):
        """Continue in another store from a point; what was written after it is gone."""
        self.life.write(self.store)
        point = self.publish()
        kept = copy.deepcopy(self.life)
        self.life.write(self.store)
        self.publish()
        self.life = kept
        self.restored = True
        self.open()
        assert not rebuild(self.store, at=point.id, take_over=True).failures

    def continued(self):
        self.life.write(self.store)
        self.publish()
        self.life.write(self.store)


PHASES = (
    "tail",
    "published",
    "mixed",
    "compacted",
    "collected",
    "purged",
    "schema",
    "recreated",
    "restore",
    "continued",
)
FEW = {"mixed", "schema", "continued"}
"""Phases whose rows the quick test compares."""


def tables_of(model):
    return [
        table
        for table in model_tables(model).tables.values()
        if table.public and table.name not in {FILES, *UNLIKE.get(model, ())}
    ]


def options_of(root, table, at):
    options = {"root": str(root), "table": table.name, "model": table.model}
    options |= {} if at is None else {"at": str(at)}
    return options | ({"branch": "*"} if "branch" in table.options else {})


def in_process(world, table, at):
    """Return the rows of a table in process; None if published records are missing there."""
    names = ", ".join(f'"{column.name}"' for column in table.select_columns())
    query = f'select {names} from "{table.model}_{table.name}"'
    options = {"branch": "*" if "branch" in table.options else "", "max_rows": 1_000_000}
    try:
        logs = world.life.logs(world.store, at)
        results = [log.sql(query, at=until, **options) for log, until in logs]
    except HistoryTruncated:
        return None
    times = {column.name for column in table.columns if column.type == "timestamp"}
    return [
        micros({name: plain(value) for name, value in row.items()}, times)
        for result in results
        for row in result.to_arrow().to_pylist()
    ]


def points_of(world):
    return sorted({None, world.life.past(world.store)}, key=repr)


def check_record(world, table, rows, expected, about):
    """Assert that the rows of a table are those of the record, if it has the table."""
    if table.name in expected:
        viewed = [world.life.view(table.name, row) for row in rows]
        found = sorted((row for row in viewed if row is not None), key=repr)
        assert found == sorted(expected[table.name], key=repr), about


def check(spark, world, phase):
    """Compare what Spark reads with the rows in process and with the record."""
    tables = tables_of(world.model)
    for at in points_of(world):
        shown = spark_rows(spark, [options_of(world.root, table, at) for table in tables])
        expected = world.life.expected(at)
        assert expected.keys() == {*world.life.naive}
        for table, rows in zip(tables, shown, strict=True):
            about = (world.model, phase, table.name, at)
            online = in_process(world, table, at)
            if online is not None and not table.lacking:
                assert texts_of(rows) == texts_of(online), about
            check_record(world, table, rows, expected, about)
    two_queries(spark, world, tables)


def check_in_process(world, phase):
    """Compare the rows in process with the record; published records of streams are not there."""
    for at in points_of(world):
        expected = world.life.expected(at)
        for table in tables_of(world.model):
            rows = in_process(world, table, at)
            if rows is not None and (world.model != "streams" or phase == "tail"):
                check_record(world, table, rows, expected, (world.model, phase, table.name, at))


def two_queries(spark, world, tables):
    """Two queries on one frame, one of them filtered, have their own rows."""
    [table] = [table for table in tables if table.name == world.life.naive[0]]
    key = next(column.name for column in table.columns if column.filtered)
    rows = frame(spark, options_of(world.root, table, None))
    values = sorted({row[0] for row in rows.select(key).collect()})
    chosen = values[len(values) // 2]
    few, everything = rows.where(rows[key] <= chosen), rows
    counted = {row[0]: row[1] for row in everything.groupBy(key).count().collect()}
    assert few.count() == sum(count for value, count in counted.items() if value <= chosen)
    assert everything.count() == sum(counted.values())


def live(folder, model, seed, check_phase):
    """Let a store of one life go through all phases."""
    world = World(folder, model, LIVES_OF[model](random.Random(seed)))
    world.open()
    try:
        for phase in PHASES:
            getattr(world, phase)()
            check_phase(world, phase)
    finally:
        world.close()


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FOURFOLD_PIPELINE_CACHE_FOLDER", str(tmp_path / "cache"))


def test_every_model_of_the_pipeline_has_a_life():
    assert set(LIVES_OF) == set(model_names())
    for model, life in LIVES_OF.items():
        assert set(life.naive) <= {table.name for table in tables_of(model)}


@pytest.mark.parametrize("model", model_names())
def test_tables_in_process_equal_record_in_every_phase(tmp_path, model):
    live(tmp_path, model, 5, check_in_process)


@pytest.mark.spark
@pytest.mark.parametrize("model", model_names())
def test_tables_equal_store_and_record(spark, tmp_path, model):
    live(tmp_path, model, 1, lambda *at: at[1] in FEW and check(spark, *at))


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("model", model_names())
@pytest.mark.parametrize("seed", range(2, 5))
def test_tables_equal_store_and_record_in_every_phase(spark, tmp_path, model, seed):
    live(tmp_path, model, seed, lambda *at: check(spark, *at))
