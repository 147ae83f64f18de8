"""Every table of the source equals the online readers, whatever is pushed into SQLite."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import reduce

import pytest
import sample_store
from pyspark.sql import DataFrame

import fourfold
from fourfold.pipeline import read as read_table
from fourfold.pipeline.spark import unwrap_error

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("source") / "store"
    sample_store.build(folder)
    return folder


@pytest.fixture(scope="module")
def store(root):
    with fourfold.open(root, mode="r") as opened:
        yield opened


def spaces(store):
    return [(did, store.space(did)) for did in sample_store.SPACES]


def rows(frame):
    return sorted(tuple(row) for row in frame.collect())


def run_query(frame):
    """Return the rows of a query, sorted, and the number of rows that its readers returned."""
    plan = frame._jdf.queryExecution().executedPlan()
    found = frame.collect()
    leaves = plan.collectLeaves()
    scanned = sum(
        leaves.apply(at).metrics().get("numOutputRows").get().value() for at in range(leaves.size())
    )
    return sorted(map(tuple, found), key=repr), scanned


def test_revisions_table_equals_log(root, store, read):
    expected = []
    for did, space in spaces(store):
        for entry in space.log(limit=1000):
            moment = datetime.fromisoformat(entry.created_at)
            with space.view() as view:
                actual = view.all(view.sql.revisions_of_commit, (entry.seq,))
            for branch, entity, seq, op_index, op, data in actual:
                expected.append((did, branch, entity, seq, op_index, op, data, moment))
    frame = read(root, "revisions").drop("fact")
    actual = [(*row[:-1], row[-1].replace(tzinfo=UTC)) for row in rows(frame)]
    assert actual == sorted(expected)
    assert frame.where("data is null").count() == 4


def test_commits_table_equals_log(root, store, read):
    expected = [
        (did, entry.seq, entry.branch, entry.session, entry.local_seq, entry.original)
        for did, space in spaces(store)
        for entry in space.log(limit=1000)
    ]
    frame = read(root, "commits", columns="space,seq,branch,session,local_seq,original")
    actual = [(*row[:-1], json.loads(row[-1])) for row in rows(frame)]
    assert actual == sorted(expected, key=lambda row: row[:2])


@pytest.mark.parametrize("branch", ["", "draft", "draft/deeper", "gone"])
def test_state_equals_reads(root, store, read, branch):
    expected = []
    for did, space in spaces(store):
        ids = {f"note-{number}" for number in range(5)} | {"only-here"}
        for entity, state in space.read_many(ids, branch=branch).items():
            if state is not None:
                expected.append((did, branch, entity, state.seq, state.op, state.document))
    actual = [
        (*row[:-1], None if row[-1] is None else json.loads(row[-1]))
        for row in rows(read(root, "state", branch=branch))
    ]
    assert actual == sorted(expected, key=lambda row: row[:4])


def test_state_at_equals_reads(root, store, read):
    for at in (3, 21):
        expected = [
            (did, entity, space.read(entity, at=at).seq)
            for did, space in spaces(store)
            for entity in [f"note-{number}" for number in range(5)]
            if space.read(entity, at=at) is not None
        ]
        assert rows(read(root, "state", at=at, columns="space,id,seq")) == sorted(expected)


def test_history_has_version_for_every_commit_of_entity(root, store, read):
    frame = read(root, "history").where("id = 'note-2'")
    _, space = spaces(store)[0]
    versions = [
        (row.seq, json.loads(row.document)) for row in frame.where("space like '%old%'").collect()
    ]
    seqs = sorted({each.seq for each in space.history("note-2")})
    assert sorted(versions) == [(seq, space.read("note-2", at=seq).document) for seq in seqs]


def test_branches_table_shows_state_at_cut(root, store, read):
    _, space = spaces(store)[0]
    ended = max(entry.seq for entry in space.log(limit=1000) if entry.branch == "gone")
    now = {row.branch: row for row in read(root, "branches", space=space.did).collect()}
    then = {
        row.branch: row for row in read(root, "branches", space=space.did, at=ended - 1).collect()
    }
    assert set(now) == {"", "draft", "draft/deeper", "gone"}
    assert (now["gone"].status, now["gone"].head_seq) == (
        space.branches.get("gone").status,
        space.branches.get("gone").head_seq,
    )
    assert then["gone"].status == "active"
    assert then[""].head_seq < now[""].head_seq
    assert "draft/deeper" not in {
        row.branch
        for row in read(root, "branches", at=now["draft/deeper"].created_seq - 1).collect()
    }


def test_blobs_include_bytes_only_when_selected(root, store, read):
    _, space = spaces(store)[0]
    assert "data" not in read(root, "blobs").columns
    actual = read(root, "blobs", space=space.did, columns="hash,data,content_type").collect()
    assert {row.hash: bytes(row.data) for row in actual} == {
        blob: space.blobs.get(blob) for blob in space.blobs.ids()
    }
    assert {row.content_type for row in actual} == {"text/plain", None}


def test_facts_and_values_exist_only_in_fact_spaces(root, read):
    for table in ("facts", "values"):
        assert {row.space for row in read(root, table).collect()} == {"did:web:new.example"}
    facts, values = read(root, "facts"), read(root, "values")
    assert facts.join(values, facts.value_ref == values.hash, "left_anti").count() == 0


def test_empty_column_keeps_its_type(root, read):
    frame = read(root, "revisions", space="did:web:old.example", columns="fact,seq")
    assert {row.fact for row in frame.collect()} == {None}
    assert dict(frame.dtypes) == {"fact": "string", "seq": "bigint"}
    # Small batches: in some of them no row has any data.
    log = read(root, "revisions", columns="op,data", batch_rows=1)
    assert log.where("data is null").count() == 4
    assert log.where("data is not null").count() == 52


def test_only_selected_columns_are_read(root, read):
    frame = read(root, "revisions", columns="seq,id")
    assert frame.columns == ["seq", "id"]
    assert frame.count() == read(root, "revisions").count()
    with pytest.raises(Exception, match="unknown column") as caught:
        read(root, "revisions", columns="seq,nothing")
    assert unwrap_error(caught.value).kind == "invalid_input"


CONDITIONS = [
    "space = 'did:web:old.example'",
    "space in ('did:web:old.example', 'did:web:none')",
    "branch = 'draft'",
    "branch <> ''",
    "id = 'note-1'",
    "id in ('note-1', 'note-4')",
    "id >= 'note-4'",
    "seq > 30",
    "seq = 7",
    "seq in (3, 4, 700)",
    "seq >= 4 and seq < 6 and id = 'note-4'",
    "op = 'delete'",
    "data is null",
    "seq > 4 or id = 'note-0'",
]
NARROWING = {
    "space = 'did:web:old.example'": 30,
    "branch = 'draft'": 4,
    "id = 'note-4'": 4,
    "seq > 26": 8,
    "seq >= 4 and seq <= 6 and op = 'set'": 4,
}
"""Conditions of the option `where`, and how many rows the reader returns at most."""


@pytest.fixture(scope="module")
def revisions(spark, root):
    return read_table(spark, root=root, table="revisions")


@pytest.fixture(scope="module")
def matching(spark, revisions):
    """Return the revisions for each condition, as Spark filters rows in memory."""
    every = [*CONDITIONS, *NARROWING]
    in_memory = spark.createDataFrame(revisions.collect(), revisions.schema)
    flags = [f"({condition}) as c{number}" for number, condition in enumerate(every)]
    judged = in_memory.selectExpr("*", *flags).collect()
    width = len(revisions.columns)
    return {
        condition: sorted((tuple(row[:width]) for row in judged if row[width + number]), key=repr)
        for number, condition in enumerate(every)
    }


@pytest.mark.parametrize("condition", CONDITIONS)
def test_filter_returns_same_rows_as_spark(revisions, matching, condition):
    assert rows_with_nulls(revisions.where(condition)) == matching[condition]


def rows_with_nulls(frame):
    return sorted((tuple(row) for row in frame.collect()), key=repr)


@pytest.mark.parametrize("table", ["state", "history"])
def test_filter_on_folded_column_is_applied_by_spark(root, read, table):
    whole = read(root, table)
    everything = whole.collect()
    for condition, holds in (
        ("seq > 20", lambda row: row.seq > 20),
        ("op = 'patch'", lambda row: row.op == "patch"),
    ):
        expected = sorted(map(repr, filter(holds, everything)))
        assert sorted(map(repr, whole.where(condition).collect())) == expected
        assert 0 < len(expected) < len(everything)


@pytest.mark.parametrize("condition", NARROWING)
def test_where_filters_rows_in_reader(root, read, matching, condition):
    found, scanned = run_query(read(root, "revisions", where=condition))
    assert found == matching[condition]
    assert 0 < scanned <= NARROWING[condition]


@pytest.mark.parametrize("table", ["state", "history"])
def test_where_filters_before_fold(root, read, table):
    condition = "id in ('note-1', 'only-here') and space = 'did:web:old.example'"
    columns = "id,branch,document,space"
    narrow, few = run_query(read(root, table, where=condition, branch="*", columns=columns))
    whole, all_rows = run_query(read(root, table, branch="*", columns=columns))
    assert narrow == [
        row for row in whole if row[0] in {"note-1", "only-here"} and row[3].endswith("old.example")
    ]
    assert 0 < few < all_rows


def test_filter_on_time_is_exact(root, store, read):
    _, space = spaces(store)[0]
    moments = [datetime.fromisoformat(each.created_at) for each in space.log(limit=1000)]
    middle = sorted(moments)[len(moments) // 2]
    frame = read(root, "commits", space=space.did, columns="seq,time")
    expected, queries = Counter(), []
    for shift in (timedelta(0), timedelta(microseconds=1), timedelta(microseconds=-1)):
        edge = middle + shift
        text = edge.isoformat()
        for sign, test in (("<", edge.__gt__), (">=", edge.__le__), ("=", edge.__eq__)):
            name = f"{sign} {text}"
            query = frame.where(f"time {sign} timestamp '{text}'")
            queries.append(query.selectExpr(f"'{name}' as name"))
            expected[name] = sum(1 for moment in moments if test(moment))
    assert Counter(row.name for row in reduce(DataFrame.unionAll, queries).collect()) == +expected


def test_since_returns_later_rows(root, store, read):
    _, space = spaces(store)[0]
    entries = space.log(limit=1000)
    assert {row.seq for row in read(root, "commits", space=space.did, since=20).collect()} == {
        each.seq for each in entries if each.seq > 20
    }
    changed = read(root, "state", space=space.did, since=21).collect()
    assert {row.id for row in changed} == {"note-0"}
    later = read(root, "commits", space=space.did, since=entries[-1].created_at)
    assert later.count() == 0


def test_seq_beyond_history_is_refused(root, read):
    with pytest.raises(Exception, match="at must be between") as caught:
        read(root, "revisions", at=10_000)
    assert unwrap_error(caught.value).kind == "invalid_input"


def test_unknown_branch_is_refused(root, read):
    with pytest.raises(Exception, match="branch 'drat'") as caught:
        read(root, "state", branch="drat").collect()
    assert unwrap_error(caught.value).kind == "not_found"


def test_misspelt_option_has_suggestion(root, read):
    with pytest.raises(Exception, match="unknown option") as caught:
        read(root, "revisions", colums="id")
    assert unwrap_error(caught.value).hint == "Did you mean 'columns'?"


def test_large_file_is_read_in_parts_once(root, read):
    for table in ("revisions", "commits", "history"):
        whole = read(root, table)
        parts = read(root, table, partition_bytes=40_000)
        assert parts.rdd.getNumPartitions() > whole.rdd.getNumPartitions(), table
        assert rows_with_nulls(parts) == rows_with_nulls(whole), table


def test_schema_selects_columns_and_must_match(root, spark):
    source = spark.read.format("fourfold").option("root", str(root)).option("table", "commits")
    assert source.schema("seq bigint, branch string").load().count() == 60
    with pytest.raises(Exception, match="commits: column 'seq' must be bigint"):
        source.schema("seq string").load().collect()
