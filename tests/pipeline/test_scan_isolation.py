"""Filters of one query never affect another scan of the same DataFrame, view or table.

Spark passes the filters of a query to a Python source if `spark.sql.python.filterPushdown.enabled`
is set, and reuses a reader that accepted them for other scans of the relation. So the source
accepts none, and every test here runs with the setting on; most others run with it off.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fourfold
from fourfold.pipeline import read as read_table
from fourfold.pipeline import sql, views
from support.properties import repeats

pytestmark = pytest.mark.spark

SETTING = "spark.sql.python.filterPushdown.enabled"
ENTITIES, COMMITS = 40, 5
FEW = "id < 'e-08'"


@pytest.fixture(autouse=True)
def _pushdown_on(spark):
    before = spark.conf.get(SETTING)
    spark.conf.set(SETTING, "true")
    yield
    spark.conf.set(SETTING, before)


def read_by_format(spark, root, table, model="documents"):
    """Return a table as the Python source reads it, which Spark offers its filters."""
    options = {"root": str(root), "model": model, "table": table}
    return spark.read.format("fourfold").options(**options).load()


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("isolation") / "store"
    with fourfold.open(folder) as store:
        for history in ("revisions", "facts"):
            space = store.space(f"did:web:{history}.example", history=history)
            for commit in range(COMMITS):
                space.transact(
                    [
                        {"op": "set", "id": f"e-{number:02}", "value": {"n": commit}}
                        for number in range(ENTITIES)
                    ]
                )
        for name in ("a", "b"):
            stream = store.streams.create(name, content_type="text/plain")
            for number in range(10):
                stream.append(f"{number}".encode())
    return folder


SCANS = [
    ("documents", "revisions", FEW, 2 * COMMITS * 8, 2 * COMMITS * ENTITIES),
    ("documents", "revisions", "seq <= 2", 2 * 2 * ENTITIES, 2 * COMMITS * ENTITIES),
    ("documents", "state", FEW, 2 * 8, 2 * ENTITIES),
    ("documents", "history", FEW, 2 * COMMITS * 8, 2 * COMMITS * ENTITIES),
    ("documents", "commits", "seq = 1", 2, 2 * COMMITS),
    ("streams", "records", "stream = 'a'", 10, 20),
]
FOLDED_AND_RAW = [SCANS[1], SCANS[2]]


def check_two_queries(frame, condition, few, everything):
    assert frame.count() == everything
    assert len(frame.where(condition).collect()) == few
    assert frame.count() == everything


@pytest.mark.parametrize(("model", "table", "condition", "few", "everything"), SCANS)
def test_frame_is_complete_after_filtered_query(
    read, root, model, table, condition, few, everything
):
    check_two_queries(read(root, table, model=model), condition, few, everything)


@pytest.mark.parametrize(("model", "table", "condition", "few", "everything"), FOLDED_AND_RAW)
def test_frame_of_format_is_complete_after_filtered_query(
    spark, root, model, table, condition, few, everything
):
    frame = read_by_format(spark, root, table, model)
    check_two_queries(frame, condition, few, everything)
    assert frame.where(condition).unionAll(frame).count() == few + everything
    frame.createOrReplaceTempView("by_format")
    query = (
        f"select (select count(*) from by_format where {condition}), "
        "(select count(*) from by_format)"
    )
    assert tuple(spark.sql(query).collect()[0]) == (few, everything)


@pytest.mark.parametrize(("model", "table", "condition", "few", "everything"), FOLDED_AND_RAW)
def test_sql_filters_each_subquery_separately(
    spark, root, model, table, condition, few, everything
):
    views(spark, root, model=model, prefix="v_", tables=[table])
    [row] = spark.sql(
        f"select (select count(*) from v_{table} where {condition}) as few, "
        f"(select count(*) from v_{table}) as everything"
    ).collect()
    assert tuple(row) == (few, everything)
    [again] = spark.sql(f"select count(*) from v_{table}").collect()
    assert again[0] == everything


@pytest.mark.parametrize(("model", "table", "condition", "few", "everything"), FOLDED_AND_RAW)
def test_sql_filters_each_table_reference_separately(
    spark, root, model, table, condition, few, everything
):
    query = (
        f"select (select count(*) from {table} where {condition}) as few, "
        f"(select count(*) from {table}) as everything"
    )
    frame, _ = sql(spark, query, root, model=model)
    assert tuple(frame.collect()[0]) == (few, everything)
    # Spark merges both counts into one scan, but not a union of rows.
    query = (
        f"select 'few' as side from {table} where {condition} "
        f"union all select 'everything' from {table}"
    )
    frame, _ = sql(spark, query, root, model=model)
    assert Counter(row.side for row in frame.collect()) == {"few": few, "everything": everything}


@pytest.mark.parametrize("reader", [read_table, read_by_format])
def test_self_join_filter_applies_to_one_side(spark, root, reader):
    frame = reader(spark, root=root, table="revisions")
    one = frame.where("seq <= 2 and space like '%revisions%'").alias("one")
    other = frame.where("space like '%revisions%'").alias("other")
    assert one.join(other, "id").count() == 2 * COMMITS * ENTITIES
    assert one.join(other.select("id").distinct(), "id").count() == 2 * ENTITIES
    unions = one.unionAll(other).unionAll(frame.where("seq > 4"))
    assert unions.count() == (2 + COMMITS + 2) * ENTITIES


@pytest.mark.parametrize("reader", [read_table, read_by_format])
def test_cached_frame_is_complete_after_filtered_query(spark, root, reader):
    frame = reader(spark, root=root, table="state")
    assert frame.where(FEW).count() == 2 * 8
    cached = frame.cache()
    try:
        assert cached.count() == 2 * ENTITIES
        assert cached.where(FEW).count() == 2 * 8
        assert cached.count() == 2 * ENTITIES
    finally:
        cached.unpersist(blocking=True)
    filtered = frame.where(FEW).cache()
    try:
        assert (filtered.count(), frame.count()) == (2 * 8, 2 * ENTITIES)
    finally:
        filtered.unpersist(blocking=True)


IDS = [f"e-{number:02}" for number in range(ENTITIES)]
ROWS = [(id_, seq) for _ in range(2) for id_ in IDS for seq in range(1, COMMITS + 1)]
CONDITIONS = {
    "true": lambda _: True,
    FEW: lambda row: row[0] < "e-08",
    "id >= 'e-30' and seq = 3": lambda row: row[0] >= "e-30" and row[1] == 3,
    "seq <= 2": lambda row: row[1] <= 2,
    "seq > 4": lambda row: row[1] > 4,
}
CONDITION = st.sampled_from(sorted(CONDITIONS))
QUERY = st.sampled_from(["count", "join", "union", "subqueries", "cache"])


@settings(
    max_examples=repeats(12),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(st.tuples(QUERY, CONDITION, CONDITION), min_size=3, max_size=4))
def test_any_queries_of_one_frame_match_its_rows(spark, read, root, queries):
    frame = read(root, "revisions", columns="id,seq")
    frame.createOrReplaceTempView("queried")
    for kind, first, second in queries:
        ones, others = ([row for row in ROWS if CONDITIONS[each](row)] for each in (first, second))
        one, other = frame.where(first), frame.where(second)
        if kind == "count":
            found, expected = (one.count(), other.count()), (len(ones), len(others))
        elif kind == "join":
            found = one.join(other.select("id").distinct(), "id").count()
            expected = sum(row[0] in {id_ for id_, _ in others} for row in ones)
        elif kind == "union":
            found, expected = one.unionAll(other).count(), len(ones) + len(others)
        elif kind == "subqueries":
            [found] = spark.sql(
                f"select (select count(*) from queried where {first}), "
                f"(select count(*) from queried where {second})"
            ).collect()
            found, expected = tuple(found), (len(ones), len(others))
        else:
            cached = one.cache()
            found, expected = (cached.count(), other.count()), (len(ones), len(others))
            cached.unpersist(blocking=True)
        assert found == expected
