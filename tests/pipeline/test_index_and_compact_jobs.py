"""The jobs `index` and `compact` equal the node's maintenance, and can be restarted."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys

import pytest

import fourfold
from fourfold.errors import InvalidInput, WriterLocked
from fourfold.kernel import failpoints
from fourfold.models.streams.records import RecordFilter
from fourfold.pipeline import jobs

pytestmark = pytest.mark.spark

SETTINGS = {"archive.seal_rows": 4}
CHILD = """
import sys
from fourfold.kernel import failpoints
from fourfold.pipeline import jobs, session

job, root, point, at = sys.argv[1:]
failpoints.arm(point, "kill", at=int(at))
jobs.run(job, root, master="local[1]")
"""


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A store with published segments; not to be changed."""
    folder = tmp_path_factory.mktemp("filled") / "store"
    with fourfold.open(folder, settings=SETTINGS) as store:
        for name, count in (("a", 40), ("b", 24), ("small", 2)):
            stream = store.streams.create(name, "application/json")
            for number in range(count):
                stream.append(b'{"n": %d}' % (number % 3), key=f"key-{number % 5}")
        assert not store.archive.publish_all().failures
    return folder


@pytest.fixture
def root(filled, tmp_path):
    return shutil.copytree(filled, tmp_path / "store")


def found(store, name, key, field=None):
    at, offsets = "-1", []
    while True:
        _, chunk = store.streams.read(name, at, sought=RecordFilter(key, field))
        offsets += [record.offset for record in chunk.records]
        at = chunk.offset
        if chunk.up_to_date:
            return offsets


def check(root, segments=None):
    """Assert that every key is found in the right segments, and that the store is consistent."""
    with fourfold.open(root) as store:
        report = store.verify(objects=True)
        assert report.ok, report
        for name, count in (("a", 40), ("b", 24)):
            assert found(store, name, b"key-2") == list(range(2, count, 5))
            if segments is not None:
                assert store.streams.details(name).archived.segments == segments
        store.archive.collect(grace_s=0)
        kept = {each.key for each in store.objects.list("streams/")}
        spoken = set()
        for name in ("a", "b", "small"):
            manifest = published(store, name)
            spoken |= {each.key for each in (*manifest.kept(), *manifest.runs())}
        assert {key for key in kept if key.endswith(".parquet")} == spoken


def published(store, name):
    from fourfold.archive.manifest import decode, manifest_key  # noqa: PLC0415

    key = manifest_key(name)
    return decode(store.objects.get(key).data, key)


def test_index_covers_all_segments_and_then_is_empty(root, spark):
    done = jobs.run("index", root, spark=spark)
    assert done.report == {"segments": 10 + 6 + 1, "runs": 3}
    with fourfold.open(root) as store:
        before = store.archive.segments.opened
        assert found(store, "a", b"key-4") == list(range(4, 40, 5))
        assert store.archive.segments.opened - before == 8
    check(root)
    assert jobs.run("index", root, spark=spark).outcome == "nothing"


def test_index_covers_declared_field(root, spark):
    with pytest.raises(InvalidInput):
        jobs.run("index", root, {"field": "n"}, spark=spark)
    jobs.run("index", root, {"field": "n", "stream": "a"}, spark=spark)
    with fourfold.open(root) as store:
        rows = store.streams.details("a").archived.indexes
        assert [each.name for each in rows] == ["", "n"]
        assert found(store, "a", b"2", "n") == list(range(2, 40, 3))


def test_compact_merges_many_segments_into_one(root, spark):
    jobs.run("index", root, spark=spark)
    done = jobs.run("compact", root, spark=spark)
    assert done.report == {"segments": 16, "compacted": 2}
    check(root, segments=1)
    assert jobs.run("compact", root, spark=spark).outcome == "nothing"


def test_jobs_refuse_store_that_is_served(root, spark):
    with fourfold.open(root) as store:
        assert store.streams.info("a").next_offset == 40
        with pytest.raises(WriterLocked):
            jobs.run("index", root, spark=spark)


def test_dry_run_reports_pending_work(root):
    planned = jobs.run("compact", root, dry_run=True)
    assert planned.report == {"streams": 2, "segments": 16}
    assert jobs.run("index", root, dry_run=True).report["segments"] == 17


POINTS = (
    "archive.object.expected",
    "archive.object.uploaded",
    "archive.object.named",
    "archive.manifest.intended",
    "archive.manifest.uploaded",
    "archive.manifest.recorded",
)
CASES = [(job, point) for job in ("index", "compact") for point in POINTS]
SOONER = {("index", "archive.object.uploaded"), ("compact", "archive.manifest.uploaded")}


class Dead(BaseException):
    pass


def complete(root, job, spark):
    """Assert that the store is valid, and complete the job."""
    with fourfold.open(root) as store:
        assert store.streams.verify() == []
        assert found(store, "a", b"key-2") == list(range(2, 40, 5))
        assert not store.archive.publish_all().failures
    jobs.run(job, root, spark=spark)
    check(root, segments=1 if job == "compact" else None)


@pytest.mark.parametrize(
    ("job", "point"),
    [pytest.param(*each, marks=() if each in SOONER else pytest.mark.slow) for each in CASES],
)
def test_next_run_completes_failed_job(root, spark, job, point):
    def die(_point):
        raise Dead

    failpoints.arm(point, die, at=2, repeat=True)
    try:
        with pytest.raises(Dead):
            jobs.run(job, root, spark=spark)
    finally:
        failpoints.disarm()
    complete(root, job, spark)


@pytest.mark.slow
@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize(("job", "point"), CASES)
def test_next_run_completes_killed_job(root, tmp_path, spark, job, point, at):
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    ended = subprocess.run(
        [sys.executable, str(script), job, str(root), point, str(at)],
        check=False,
        capture_output=True,
        timeout=200,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    complete(root, job, spark)
