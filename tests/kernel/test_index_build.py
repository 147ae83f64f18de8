"""Indexes that are created in slices, while others write."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fourfold.errors import InvalidInput
from fourfold.kernel import Database, Migration
from fourfold.kernel.index_build import IndexPlan, build_index
from support.properties import examples

TABLES = """
CREATE TABLE fact (
    branch TEXT NOT NULL, id TEXT NOT NULL, seq INTEGER NOT NULL, value TEXT NOT NULL, note TEXT,
    PRIMARY KEY (branch, id, seq)
) WITHOUT ROWID;
CREATE TABLE numbered (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
"""
PLAN = IndexPlan("by_value", "fact", ("value",))
OBJECTS = "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE name LIKE '%by_value%'"


@pytest.fixture
def database(tmp_path):
    with opened(tmp_path / "d.sqlite") as database:
        yield database


def opened(path):
    return Database.open(path, migrations=(Migration(1, "t", TABLES),))


def insert(database, rows):
    def work(txn):
        txn.execute_many("INSERT INTO fact (branch, id, seq, value) VALUES (?, ?, ?, ?)", rows)

    database.transact(work)


def rows_of(count):
    return [
        ("", f"id-{number:04}", number % 3, f"v{number * 7919 % 50}") for number in range(count)
    ]


def objects(database):
    with database.read() as snapshot:
        return snapshot.all(OBJECTS)


def check(database):
    """The index is the one that SQLite creates, and complete."""
    assert objects(database) == [
        ("index", "by_value", "fact", "CREATE INDEX by_value ON fact (value)")
    ]
    assert database.integrity_check() == []
    with database.read() as snapshot:
        [(*_, plan)] = snapshot.all("EXPLAIN QUERY PLAN SELECT id FROM fact WHERE value = 'x'")
        assert "USING COVERING INDEX by_value (value=?)" in plan
        by_index = snapshot.all("SELECT value, branch, id, seq FROM fact ORDER BY 1, 2, 3, 4")
        rows = snapshot.all("SELECT value, branch, id, seq FROM fact NOT INDEXED")
        assert by_index == sorted(rows)


def between_slices(database, action):
    """Call `action` with the number of each transaction of a build, before it."""
    transact, numbers = database.transact, itertools.count()

    def transact_after(work, **options):
        action(next(numbers))
        return transact(work, **options)

    database.transact = transact_after
    return transact


def test_build_changes_few_rows_per_transaction(database):
    insert(database, rows_of(1_000))
    transact, changed = database.transact, []

    def counted(work, **options):
        def counting(txn):
            before = txn.total_changes
            result = work(txn)
            changed.append(txn.total_changes - before)
            return result

        return transact(counting, **options)

    database.transact = counted
    build_index(database, PLAN, rows=50)
    assert sum(changed) == 1_000 + 1
    assert max(changed) == 50
    assert len(changed) == 21
    check(database)
    changed.clear()
    build_index(database, PLAN)
    assert not changed


def test_index_is_used_by_the_connections_that_are_open(database):
    insert(database, rows_of(300))
    with database.read() as snapshot:
        assert snapshot.value("SELECT count(*) FROM fact WHERE value = 'v1'") == 6
    build_index(database, PLAN)
    check(database)
    insert(database, [("b", "new", 1, "v1")])
    database.transact(lambda txn: txn.execute("DELETE FROM fact WHERE id < 'id-0100'"))
    check(database)


def test_index_survives_reopening_and_a_backup(database, tmp_path):
    insert(database, rows_of(300))
    build_index(database, PLAN)
    database.backup(tmp_path / "copy.sqlite")
    database.close()
    for name in ("d.sqlite", "copy.sqlite"):
        with opened(tmp_path / name) as again:
            check(again)


@pytest.mark.parametrize("lost", [1, 2, 4])
def test_interrupted_build_is_continued(database, tmp_path, lost):
    insert(database, rows_of(200))

    def fail(number):
        if number == lost:
            raise KeyboardInterrupt

    transact = between_slices(database, fail)
    with pytest.raises(KeyboardInterrupt):
        build_index(database, PLAN, rows=50)
    database.transact = transact
    insert(database, [("a", "between", 1, "v3")])
    assert len(objects(database)) == 4
    assert database.integrity_check() == []
    database.close()
    with opened(tmp_path / "d.sqlite") as again:
        build_index(again, PLAN, rows=50)
        check(again)


@pytest.mark.parametrize(("rows", "left"), [(100, 4), (1_000, 0)])
def test_transaction_that_fails_after_the_adoption_changes_nothing(database, rows, left):
    insert(database, rows_of(500))
    transact = database.transact

    def failing(work, **options):
        def fail_late(txn):
            result = work(txn)
            if result is None:
                raise RuntimeError("late")
            return result

        return transact(fail_late, **options)

    database.transact = failing
    with pytest.raises(RuntimeError, match="late"):
        build_index(database, PLAN, rows=rows)
    database.transact = transact
    assert len(objects(database)) == left
    insert(database, [("a", "after", 1, "v3")])
    build_index(database, PLAN)
    check(database)


def test_two_builds_at_once_make_one_index(database):
    insert(database, rows_of(200))
    inner = []

    def build_too(number):
        if number == 2 and not inner:
            inner.append(1)
            build_index(database, PLAN, rows=50)

    between_slices(database, build_too)
    build_index(database, PLAN, rows=50)
    check(database)


def test_schema_stays_protected(database):
    insert(database, rows_of(10))
    build_index(database, PLAN)
    with pytest.raises(Exception, match="sqlite_master may not be modified"):
        database.transact(lambda txn: txn.execute("DELETE FROM sqlite_schema"))


@pytest.mark.parametrize(
    "plan",
    [
        IndexPlan("i", "numbered", ("value",)),
        IndexPlan("i", "fact", ("note",)),
        IndexPlan("i", "fact", ("unknown",)),
        IndexPlan("i", "unknown", ("value",)),
    ],
)
def test_table_that_cannot_be_built_on_is_refused(database, plan):
    with pytest.raises(InvalidInput, match="cannot be built in slices"):
        build_index(database, plan)


KEYS = st.tuples(st.sampled_from("ab"), st.sampled_from("cdefg"), st.integers(0, 2))
VALUES = st.sampled_from(["v1", "v2", "v3"])
CHANGES = st.one_of(
    st.tuples(st.just("put"), KEYS, VALUES),
    st.tuples(st.just("ignore"), KEYS, VALUES),
    st.tuples(st.just("delete"), KEYS, VALUES),
    st.tuples(st.just("move"), KEYS, st.integers(3, 5)),
)
STATEMENTS = {
    "put": "INSERT INTO fact (branch, id, seq, value) VALUES (?1, ?2, ?3, ?4) "
    "ON CONFLICT DO UPDATE SET value = excluded.value",
    "ignore": "INSERT INTO fact (branch, id, seq, value) VALUES (?1, ?2, ?3, ?4) "
    "ON CONFLICT DO NOTHING",
    "delete": "DELETE FROM fact WHERE (branch, id, seq) = (?1, ?2, ?3) AND ?4 IS NOT NULL",
    "move": "UPDATE OR IGNORE fact SET seq = ?4 WHERE (branch, id, seq) = (?1, ?2, ?3)",
}


@settings(deadline=None, max_examples=examples(40))
@given(
    first=st.lists(st.tuples(KEYS, VALUES), max_size=12, unique_by=lambda row: row[0]),
    changes=st.lists(st.lists(CHANGES, max_size=4), max_size=8),
    rows=st.integers(1, 5),
)
def test_changes_between_slices_are_in_the_index(tmp_path_factory, first, changes, rows):
    with opened(tmp_path_factory.mktemp("index") / "d.sqlite") as database:
        insert(database, [(*key, value) for key, value in first])
        transact = None

        def change(number):
            for kind, key, value in changes[number] if number < len(changes) else ():
                transact(lambda txn: txn.execute(STATEMENTS[kind], (*key, value)))  # noqa: B023

        transact = between_slices(database, change)
        build_index(database, PLAN, rows=rows)
        check(database)
