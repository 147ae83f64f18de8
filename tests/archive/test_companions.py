"""Companions of segments: built, published, followed by everything, and equal to a naive search."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from node import Node, keys, read_manifest

from fourfold.kernel import failpoints
from fourfold.models.streams.archive import Policy
from fourfold.models.streams.archive.verify import object_problems, unclaimed_problems
from fourfold.models.streams.search import engine, evaluation
from fourfold.objects import MemoryStore
from support import naive_search as naive
from support.properties import examples, with_slow

POLICY = Policy(
    seal_bytes=100_000,
    seal_rows=5,
    seal_age_s=60.0,
    concurrency=1,
    compact_bytes=100_000,
    compact_rows=15,
    compact_segments=2,
)
LOGS = [
    {
        "service": "auth" if number % 2 else "pay",
        "status": 200 + number % 4 * 100,
        "duration": number,
        "message": f"slow plan {number}" if number % 5 == 0 else "fine",
        "time": 1_000_000 + 100 * number,
    }
    for number in range(40)
]


def rows(node, sql):
    with node.database.read() as snapshot:
        return snapshot.all(sql)


def publish(node):
    node.now += 100_000
    done = node.archive.round(everything=True)
    assert not done.failures
    while node.archive.round(everything=True).published:
        pass


def verify(node):
    """No problem in the tables, in the objects, or in what they contain."""
    assert node.streams.verify() == []
    with node.database.read() as snapshot:
        assert list(object_problems(snapshot, node.objects)) == []
    assert list(unclaimed_problems(node.database, node.objects)) == []


@pytest.fixture
def logs(make):
    node = make(policy=POLICY)
    stream = node.streams.create("logs", "application/json")
    stream.set_schema(search=naive.DECLARATION)
    stream.append(LOGS)
    publish(node)
    stream.append({"message": "slow tail", "service": "auth", "duration": 1})
    stream.node = node
    return stream


def build(node):
    done = node.archive.build_companions()
    assert not done.failures, done.failures
    return done.companions


def check(stream):
    """Some searches and aggregates equal the naive ones."""
    for query in ("slow", "service:auth status:>=300", '"slow plan" duration:>10', "-fine"):
        naive.check_search(stream, query, None, (None, None), 3)
        naive.check_search(stream, query, None, (1_001_000, 1_002_500), 3)
    for by, every in (([], None), (["service"], "1s"), (["service", "status"], "700ms")):
        for where in (None, {"service": "auth"}, {"status": {"$gt": 300}}):
            naive.check_groups(stream, "", where, (None, None), by, every)
            naive.check_groups(stream, "", where, (1_001_000, 1_002_500), by, every)


def test_companions_answer_as_the_records_do(logs):
    check(logs)
    assert logs.search("slow").coverage.segments_scanned == 8
    assert build(logs.node) == 8
    assert build(logs.node) == 0
    coverage = logs.search("slow").coverage
    assert (coverage.segments_indexed, coverage.segments_scanned) == (8, 0)
    # The records of the log, and one for each of the eight matches.
    assert coverage.scanned_records == 1 + 8
    check(logs)
    verify(logs.node)


@pytest.mark.parametrize("built", [False, True])
def test_search_in_segments_pauses_between_records(logs, monkeypatch, built):
    if built:
        build(logs.node)
    monkeypatch.setattr(engine, "BLOCK_RECORDS", 1)
    pauses = []
    monkeypatch.setattr(logs.node.database.pauses, "pause", lambda: pauses.append(1))
    assert len(logs.search("service:auth -nothing", limit=1_000)) == 21
    # With a companion only those that may match are read.
    assert len(pauses) >= (20 if built else 40)


def test_catalogue_has_sections_sizes_and_times(logs):
    build(logs.node)
    [(generation, plan)] = rows(
        logs.node, "SELECT generation, plan_json FROM search_companion_plans"
    )
    assert generation == 1
    assert json.loads(plan)["families"] == ["col", "fts", "agg", "mblk"]
    found = rows(
        logs.node,
        "SELECT segment_index, plan_generation, sections_json, section_sizes_json, size_bytes, "
        "primary_timestamp_min_ms, primary_timestamp_max_ms, object_key "
        "FROM search_segment_companions ORDER BY segment_index",
    )
    assert [row[0] for row in found] == list(range(8))
    for at, row in enumerate(found):
        sizes = json.loads(row[3])
        assert set(json.loads(row[2])) == set(sizes) == {"col", "fts", "agg", "mblk"}
        assert sum(sizes.values()) < row[4] == logs.node.objects.head(row[7]).size
        assert row[5:7] == (1_000_000 + 500 * at, 1_000_400 + 500 * at)
    manifest = read_manifest(logs.node.objects, "logs")
    assert [entry.key for entry in manifest.companions.segments] == [row[7] for row in found]
    assert all("/segments/" in row[7] and row[7].endswith(".cix") for row in found)


def test_times_skip_segments_without_reading_them(logs, monkeypatch):
    build(logs.node)
    opened = logs.node.archive.segments.opened
    page = logs.search("slow", since=1_003_000, until=1_003_400)
    assert [hit.record.offset for hit in page] == [30]
    assert page.coverage.segments_skipped == 7
    assert page.coverage.segments_indexed == 1
    assert logs.node.archive.segments.opened == opened + 1
    groups = logs.aggregate(every="1s", since=1_003_000, until=1_003_999)
    assert (groups.rows, groups.coverage.segments_skipped) == (
        [{"time_ms": 1_003_000, "count": 10}],
        6,
    )


def test_rollups_answer_without_reading_columns(logs, monkeypatch):
    build(logs.node)
    monkeypatch.setattr(evaluation, "aggregate_columns", None)
    result = logs.aggregate(by=["service"], every="2s", measures=naive.MEASURES)
    assert result.coverage.segments_indexed == 8
    result = logs.aggregate(where={"service": "pay"}, measures=["count", "sum(duration)"])
    assert result.rows == [{"count": 20, "sum(duration)": 380}]


def test_changed_declaration_is_another_generation(logs):
    build(logs.node)
    before = set(keys(logs.node.objects, ".cix"))
    logs.set_schema(search={**naive.DECLARATION, "columns": ["status", "region"]})
    assert logs.search("slow").coverage.segments_scanned == 8
    check(logs)
    assert build(logs.node) == 8
    assert rows(logs.node, "SELECT DISTINCT plan_generation FROM search_segment_companions") == [
        (2,)
    ]
    check(logs)
    logs.node.archive.collect(grace_s=0)
    after = set(keys(logs.node.objects, ".cix"))
    assert len(after) == 8
    assert not before & after
    verify(logs.node)
    logs.set_schema(search=None)
    assert build(logs.node) == 0
    naive.check_search(logs, "slow", None, (None, None), 3)
    # Nothing uses them, and nothing would replace them.
    publish(logs.node)
    logs.node.archive.collect(grace_s=0)
    assert keys(logs.node.objects, ".cix") == []
    verify(logs.node)


def test_schema_version_is_another_generation(make):
    node = make(policy=POLICY)
    stream = node.streams.create("s", "application/json")
    shape = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "additionalProperties": False,
    }
    stream.set_schema(shape, search={"text": ["a", "b"], "columns": ["b"]})
    stream.append([{"a": "slow plan"}, {"a": "fine"}])
    publish(node)
    build(node)
    assert len(stream.search("a:slow")) == 1
    renamed = {**shape, "properties": {"b": {"type": "string"}}}
    stream.set_schema(renamed, lens={"ops": [{"op": "rename", "from": "a", "to": "b"}]})
    for _ in range(2):
        assert len(stream.search("a:slow")) == 0
        assert [hit.value for hit in stream.search("b:slow")] == [{"b": "slow plan"}]
        assert stream.aggregate(by=["b"]).rows == [
            {"b": "fine", "count": 1},
            {"b": "slow plan", "count": 1},
        ]
        build(node)
    assert stream.search("b:slow").coverage.segments_indexed == 1
    verify(node)


def test_compaction_retires_companions_and_new_ones_are_built(logs):
    build(logs.node)
    assert logs.node.archive.compact().compacted
    check(logs)
    assert build(logs.node)
    assert logs.search("slow").coverage.segments_scanned == 0
    check(logs)
    verify(logs.node)
    logs.node.archive.collect(grace_s=0)
    verify(logs.node)
    count = rows(logs.node, "SELECT count(*) FROM search_segment_companions")[0][0]
    assert len(keys(logs.node.objects, ".cix")) == count


def test_retention_removes_companions(logs):
    build(logs.node)
    logs.configure(retention_bytes=1_500)
    logs.node.streams.sweep()
    publish(logs.node)
    logs.node.archive.collect(grace_s=0)
    check(logs)
    verify(logs.node)
    assert 0 < len(keys(logs.node.objects, ".cix")) < 8


def test_deleted_stream_leaves_no_companion(logs):
    build(logs.node)
    logs.node.streams.delete("logs")
    publish(logs.node)
    logs.node.archive.collect(grace_s=0)
    assert keys(logs.node.objects, ".cix") == []
    stream = logs.node.streams.create("logs", "application/json")
    stream.append(LOGS[:7])
    publish(logs.node)
    naive.check_search(stream, "slow", None, (None, None), 3)
    verify(logs.node)


def test_bootstrapped_node_uses_published_companions(logs, make):
    build(logs.node)
    other = make("other", policy=POLICY)
    report = other.bootstrap()
    assert report.unclaimed == ()
    stream = other.streams.open("logs")
    assert stream.search("slow").coverage.segments_indexed == 8
    check(stream)
    assert build(other) == 0


def test_fork_uses_companions_of_its_source(logs):
    build(logs.node)
    fork = logs.fork("fork", 33)
    fork.append({"message": "slow fork"})
    assert fork.search("slow").coverage.segments_indexed == 7
    check(fork)
    publish(logs.node)
    build(logs.node)
    check(fork)
    logs.set_schema(search={"text": ["service"]})
    build(logs.node)
    assert fork.search("slow").coverage.segments_scanned == 7
    check(fork)
    check(logs)


@pytest.mark.parametrize("damage", ["missing", "truncated", "other"])
def test_damaged_companion_is_reported_and_not_needed(logs, damage):
    build(logs.node)
    node = logs.node
    for key in keys(node.objects, ".cix")[:3]:
        data = node.objects.get(key).data
        node.objects.delete_many([key])
        if damage != "missing":
            node.objects.put(key, data[:-20] if damage == "truncated" else b"x" * len(data))
        node.archive._cache.drop(key.split("/")[1] + "/" + key.split("/")[3].removesuffix(".cix"))
    coverage = logs.search("slow").coverage
    assert (coverage.segments_indexed, coverage.segments_scanned) == (5, 3)
    check(logs)
    with node.database.read() as snapshot:
        assert len(list(object_problems(snapshot, node.objects))) == 3


def test_wrong_companion_is_found_by_verify(logs, monkeypatch):
    node = logs.node
    with monkeypatch.context() as patched:
        patched.setattr("fourfold.models.streams.search.companions.builder.searchable", str.upper)
        patched.setattr(
            "fourfold.models.streams.search.companions.builder.lookup", lambda _m, _p: "x"
        )
        build(node)
    with node.database.read() as snapshot:
        problems = list(object_problems(snapshot, node.objects))
    assert any("fts.sqlite" in problem for problem in problems)
    assert any("col.parquet" in problem for problem in problems)


@pytest.mark.parametrize(
    "point",
    with_slow(
        ["archive.object.uploaded", "archive.manifest.intended"],
        [
            "archive.run.built",
            "archive.object.expected",
            "archive.object.named",
            "archive.manifest.uploaded",
            "kernel.commit.before",
            "kernel.commit.after",
        ],
    ),
)
def test_killed_build_is_completed_by_the_next(make, logs, point):
    class Crash(BaseException):
        pass

    def die(_point):
        raise Crash

    node = logs.node
    failpoints.arm(point, die, at=1 if "manifest" in point else 2, repeat=True)
    with pytest.raises(Crash):
        node.archive.build_companions()
    failpoints.disarm()
    node.open_archive()
    check(logs)
    publish(node)
    build(node)
    node.archive.collect(grace_s=0)
    check(logs)
    verify(node)
    assert logs.search("slow").coverage.segments_scanned == 0


def test_companion_of_another_segment_is_refused(logs):
    build(logs.node)
    with logs.node.database.write() as txn:
        [(first,), (second,)] = txn.all(
            "SELECT object_key FROM search_segment_companions ORDER BY segment_index LIMIT 2"
        )
        txn.execute(
            "UPDATE search_segment_companions SET object_key = ?1 WHERE segment_index = 1", (first,)
        )
    assert logs.search("slow").coverage.segments_scanned == 1
    check(logs)
    assert second != first


def test_values_that_fit_no_column_are_filtered_by_message(make):
    node = make(policy=POLICY)
    stream = node.streams.create("odd", "application/json")
    odd = [
        2**60,
        -(2**60),
        2**53 + 1,
        1e300,
        "a" * 2_000,
        {"x": 1},
        [1, "auth"],
        [],
        {},
        None,
        True,
    ]
    stream.append(
        [
            {"service": one, "status": other, "duration": other, "message": one, "time": 1_000_200}
            for at, one in enumerate(odd)
            for other in (odd[at], odd[at - 1], at)
        ]
    )
    stream.set_schema(search=naive.DECLARATION)
    publish(node)
    assert build(node)
    for query in naive.QUERY_LIST:
        naive.check_search(stream, query, None, (None, None), 7)
    for where in naive.WHERE_LIST:
        naive.check_search(stream, "", where, (None, None), 7)
        naive.check_groups(stream, "", where, (None, None), ["service"], "1s")
    assert stream.search("slow").coverage.segments_scanned == 0


ACTIONS = st.lists(
    st.sampled_from(
        ["append", "append", "publish", "build", "compact", "declare", "retain", "bootstrap"]
    ),
    max_size=8,
)


@settings(max_examples=examples(40), deadline=None)
@given(
    batches=st.lists(st.lists(naive.MESSAGES, min_size=1, max_size=9), min_size=1, max_size=4),
    raw=st.booleans(),
    actions=ACTIONS,
    asked=st.lists(
        st.tuples(
            naive.QUERIES,
            naive.WHERES,
            naive.SPANS,
            st.sampled_from([[], ["service"], ["service", "status"]]),
            st.sampled_from([None, "1s", "2s", "700ms"]),
        ),
        min_size=2,
        max_size=5,
    ),
    few=st.sampled_from([0, 1_000]),
)
def test_search_equals_naive_search_at_every_stage(
    tmp_path_factory, batches, raw, actions, asked, few
):
    evaluation_few, evaluation.FEW_ROWS = evaluation.FEW_ROWS, max(1, few)
    with MemoryStore() as objects:
        node = Node(tmp_path_factory.mktemp("stages") / "0", objects, POLICY)
        lives = 0
        try:
            stream = node.streams.create("s", "application/json")
            stream.append([message for batch in batches for message in batch])
            if raw:
                stream.append_bytes(b'{"status":1e400,"message":"\\ud800 slow","duration":1e400}')
            stream.set_schema(search=naive.DECLARATION)
            publish(node)
            build(node)
            for at, action in enumerate(["", *actions]):
                if action == "append":
                    node.streams.open("s").append(batches[at % len(batches)])
                elif action == "publish":
                    publish(node)
                elif action == "build":
                    build(node)
                elif action == "compact":
                    node.archive.compact()
                elif action == "declare":
                    fields = ["status"] if at % 2 else ["service", "duration"]
                    node.streams.open("s").set_schema(
                        search={**naive.DECLARATION, "columns": fields, "rollups": []}
                    )
                elif action == "retain":
                    node.streams.open("s").configure(retention_bytes=400)
                    node.streams.sweep()
                elif action == "bootstrap":
                    publish(node)
                    node.close()
                    lives += 1
                    node = Node(node.root.parent / str(lives), objects, POLICY)
                    node.bootstrap()
                stream = node.streams.open("s")
                query, where, span, by, every = asked[at % len(asked)]
                naive.check_search(stream, query, where, span, 3)
                naive.check_groups(stream, query, where, span, by, every)
            assert node.streams.verify() == []
        finally:
            evaluation.FEW_ROWS = evaluation_few
            node.close()
