"""The job `companions` builds what the node builds, and can be restarted."""

from __future__ import annotations

import shutil

import pytest

import fourfold
from fourfold.errors import WriterLocked
from fourfold.kernel import failpoints
from fourfold.pipeline import jobs

pytestmark = pytest.mark.spark

DECLARATION = {
    "text": ["message"],
    "columns": ["service"],
    "timestamp": "time",
    "rollups": [{"every": "1s", "by": ["service"], "measures": ["n"]}],
}
COLUMNS = (
    "stream, segment_index, object_key, plan_generation, sections_json, section_sizes_json, "
    "size_bytes, primary_timestamp_min_ms, primary_timestamp_max_ms"
)


def fill(folder):
    with fourfold.open(folder, settings={"archive.seal_rows": 5}) as store:
        for name in ("a", "b"):
            stream = store.streams.create(name, "application/json")
            stream.set_schema(search=DECLARATION)
            for number in range(10):
                message = f"slow plan {number}" if number % 5 == 0 else "fine"
                service = "auth" if number % 2 else "pay"
                stream.append(
                    {"message": message, "service": service, "time": 100 * number, "n": number}
                )
        store.streams.create("plain", "application/json").append({"message": "slow"})
        assert not store.archive.publish_all().failures
    return folder


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A store with published segments; not to be changed."""
    return fill(tmp_path_factory.mktemp("filled") / "store")


@pytest.fixture
def root(filled, tmp_path):
    return shutil.copytree(filled, tmp_path / "store")


def rows(store, columns=COLUMNS):
    with store.streams.database.read() as snapshot:
        return snapshot.all(
            f"SELECT {columns} FROM search_segment_companions ORDER BY stream, segment_index"
        )


def check(root):
    """Assert that all segments are searched in companions, and that these are right."""
    with fourfold.open(root) as store:
        report = store.verify(objects=True)
        assert report.ok, report
        for name in ("a", "b"):
            stream = store.streams.open(name)
            page = stream.search("slow", total=True)
            assert page.total.value == 2
            coverage = page.coverage
            assert (coverage.segments_indexed, coverage.segments_scanned) == (2, 0)
            groups = stream.aggregate(by=["service"], measures=["sum(n)"])
            assert [row["sum(n)"] for row in groups.rows] == [25, 20]
        store.archive.collect(grace_s=0)
        found = {each.key for each in store.objects.list("streams/") if each.key.endswith(".cix")}
        assert found == {row[0] for row in rows(store, "object_key")}
        return rows(store)


def test_job_builds_what_the_node_builds_and_then_nothing(root, tmp_path, spark):
    planned = jobs.run("companions", root, dry_run=True)
    assert planned.report == {"streams": 2, "segments": 4}
    done = jobs.run("companions", root, spark=spark)
    assert done.report["companions"] == 4
    assert done.report["bytes"] == sum(row[6] for row in check(root))
    assert jobs.run("companions", root, spark=spark).outcome == "nothing"
    # The name of an object contains the incarnation of its stream, and a digest of the whole.
    other = fill(tmp_path / "other")
    with fourfold.open(other) as store:
        assert store.archive.build_companions().companions == 4
    same = (0, 1, 3, 4, 7, 8)
    by_node, by_spark = check(other), check(root)
    assert [[row[at] for at in same] for row in by_node] == [
        [row[at] for at in same] for row in by_spark
    ]


def test_changed_declaration_is_built_again(root, spark):
    jobs.run("companions", root, spark=spark)
    with fourfold.open(root) as store:
        stream = store.streams.open("a")
        stream.set_schema(search={**DECLARATION, "columns": ["service", "region"]})
    assert jobs.run("companions", root, spark=spark).report["companions"] == 2
    assert {(row[0], row[3]) for row in check(root)} == {("a", 2), ("b", 1)}


def test_job_refuses_a_store_that_is_served(root, spark):
    with fourfold.open(root) as store:
        assert store.streams.info("a").next_offset == 10
        with pytest.raises(WriterLocked):
            jobs.run("companions", root, spark=spark)


class Dead(BaseException):
    pass


@pytest.mark.parametrize(
    "point",
    [
        "archive.object.expected",
        "archive.object.uploaded",
        "archive.object.named",
        "archive.manifest.intended",
        "archive.manifest.uploaded",
    ],
)
def test_next_run_completes_failed_job(root, spark, point):
    def die(_point):
        raise Dead

    failpoints.arm(point, die, at=2 if "object" in point else 1, repeat=True)
    try:
        with pytest.raises(Dead):
            jobs.run("companions", root, spark=spark)
    finally:
        failpoints.disarm()
    with fourfold.open(root) as store:
        assert store.streams.verify() == []
        assert not store.archive.publish_all().failures
    jobs.run("companions", root, spark=spark)
    assert len(check(root)) == 4
