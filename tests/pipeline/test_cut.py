"""A cut includes exactly the commits before it, whatever is committed during the read."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest
import sample_store

import fourfold
from fourfold.pipeline import cut, driver, views
from fourfold.pipeline.options import read_options

pytestmark = pytest.mark.spark
DID = "did:web:busy.example"


@pytest.fixture
def busy(tmp_path):
    """A store that this process has open for writing, with its WAL."""
    root = tmp_path / "store"
    with fourfold.open(root, settings={"documents.page_size": 4096}) as store:
        space = store.space(DID)
        for number in range(50):
            space.set(f"e{number % 9}", {"n": number})
        assert (root / "spaces" / f"{DID}.sqlite-wal").stat().st_size > 0
        yield root, space


def test_scan_reads_exactly_commits_up_to_cut(busy, read):
    root, space = busy
    frame = read(root, "revisions", partition_bytes=60_000)
    assert frame.count() == 50
    for number in range(20):
        space.set(f"later-{number}", {"n": number})
    # The same rows when it is read again, or joined with itself.
    assert frame.count() == 50
    assert frame.alias("a").join(frame.alias("b"), ["space", "seq"]).count() == 50
    assert read(root, "revisions").count() == 70


def test_scan_sees_one_state_during_commits(busy, read):
    root, space = busy
    stop = threading.Event()

    def write():
        number = 0
        while not stop.is_set():
            space.transact(
                [
                    {"op": "set", "id": "left", "value": {"n": number}},
                    {"op": "set", "id": "right", "value": {"n": number}},
                ]
            )
            number += 1
            stop.wait(0.002)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(2):
            before = space.seq()
            frame = read(root, "revisions", partition_bytes=60_000)
            seqs = [row.seq for row in frame.select("seq").collect()]
            assert max(seqs) >= before
            assert set(seqs) == set(range(1, max(seqs) + 1))
            pair = read(root, "state", columns="id,document").where("id in ('left', 'right')")
            assert len({row.document for row in pair.collect()}) <= 1
    finally:
        stop.set()
        writer.join()


def test_views_share_one_cut(busy, spark):
    root, space = busy
    tables = ("commits", "revisions", "state")
    query = (
        "select (select max(seq) from commits), (select max(seq) from revisions), "
        "(select count(*) from state where id = 'later')"
    )
    made = views(spark, root, tables=tables)
    space.set("later", {"n": 1})
    assert [mark.seq for mark in made.cut.bounds] == [50]
    assert spark.sql(query).collect() == [(50, 50, 0)]
    views(spark, root, tables=tables)
    assert spark.sql(query).collect() == [(51, 51, 1)]


def test_driver_reads_the_cut_without_a_job(busy, spark):
    root, _ = busy
    spark.sparkContext.setJobGroup("cut", "no job")
    try:
        views(spark, root)
        assert list(spark.sparkContext.statusTracker().getJobIdsForGroup("cut")) == []
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)


@pytest.mark.parametrize("at", [None, 20])
def test_workers_read_the_same_cut_as_the_driver(busy, spark, monkeypatch, at):
    root, _ = busy
    by_driver = views(spark, root, at=at, tables=["commits"]).cut
    monkeypatch.setattr(driver, "is_local", lambda _spark: False)  # as on a cluster
    assert views(spark, root, at=at, tables=["commits"]).cut == by_driver


def test_read_uses_cut_of_token(busy):
    root, space = busy
    first = cut.read_cut(read_options({"root": str(root), "table": "revisions"}))
    space.set("later", {})
    again = cut.read_cut(read_options({"root": str(root), "table": "state", "cut": first.token()}))
    assert again == first
    with pytest.raises(fourfold.InvalidInput, match="not a cut"):
        cut.read_cut(read_options({"root": str(root), "table": "state", "cut": "nonsense"}))


def test_read_does_not_change_closed_store(tmp_path, read):
    root = tmp_path / "store"
    sample_store.build(root)
    before = contents(root)
    assert read(root, "revisions").count() == 56
    assert read(root, "state").count() == 10
    assert contents(root) == before


def test_store_in_read_only_folder_is_readable(tmp_path, read):
    root = tmp_path / "store"
    sample_store.build(root)
    folder = root / "spaces"
    names = sorted(path.name for path in folder.iterdir())
    folder.chmod(0o555)
    try:
        assert read(root, "revisions").count() == 56
        assert sorted(path.name for path in folder.iterdir()) == names
    finally:
        folder.chmod(0o755)


def test_scan_reads_commits_of_killed_writer(tmp_path, read):
    root = tmp_path / "store"
    child = textwrap.dedent(
        f"""
        import fourfold, os, signal
        space = fourfold.open({str(root)!r}).space("did:web:killed.example")
        for number in range(30):
            space.set("e", {{"n": number}})
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    done = subprocess.run([sys.executable, "-c", child], env=dict(os.environ), check=False)
    assert done.returncode == -signal.SIGKILL
    assert (root / "spaces" / "did:web:killed.example.sqlite-wal").stat().st_size > 0
    assert read(root, "revisions").count() == 30


def contents(root):
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in root.rglob("*.sqlite")
    }
