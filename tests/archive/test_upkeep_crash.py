"""A node that dies while it indexes and compacts, or while its log lets go, slice by slice."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import pairwise

import pytest
from keyed_streams import TINY, Crash, by_key, fill, key, numbers, sound
from node import keys, read_manifest

from fourfold import limits
from fourfold.archive import manifest
from fourfold.kernel import failpoints
from fourfold.models.streams.archive import Policy
from support.properties import with_slow

POINTS = [
    "archive.segment.renamed",
    "archive.run.built",
    "archive.object.expected",
    "archive.object.uploaded",
    "archive.object.named",
    "archive.manifest.intended",
    "archive.manifest.uploaded",
    "archive.manifest.recorded",
    "archive.collect.deleted",
    "kernel.commit.before",
    "kernel.commit.after",
]


@pytest.mark.parametrize("at", with_slow([2], [1, 3]))
@pytest.mark.parametrize("point", POINTS)
def test_node_killed_while_it_compacts_and_indexes_leaves_no_files(make, point, at):
    node = make(policy=TINY)
    fill(node, "a", 64, key)
    fill(node, "b", 20, key)
    node.archive.publish_all()

    def die(_point):
        raise Crash

    failpoints.arm(point, die, at=at, repeat=True)
    try:
        node.archive.index()
        node.archive.compact()
        node.archive.collect(grace_s=0)
    except Crash:
        pass
    finally:
        failpoints.disarm()
    node.close()
    again = make(policy=TINY)
    again.now = node.now
    assert again.streams.verify() == []
    assert by_key(again, "a", "key-1") == numbers(64, "key-1")
    assert again.read("b") == [f"b-{number}".encode() for number in range(20)]
    assert not again.archive.compact().failures
    assert not again.archive.index().failures
    assert not again.archive.publish_all().failures
    again.archive.collect(grace_s=0)
    sound(again)
    spoken = {segment.key for name in "ab" for segment in read_manifest(again.objects, name).kept()}
    spoken |= {run.key for name in "ab" for run in read_manifest(again.objects, name).runs()}
    assert set(keys(again.objects, "parquet")) == spoken
    assert not list((again.root / "segments").rglob("*.partial"))


# The log lets go in slices


def test_log_lets_go_slice_by_slice_and_appends_go_between(make):
    node = make(policy=Policy(seal_rows=50, trim_rows=7))
    records = node.write("a", 50)
    sizes = []

    def between(_point):
        assert node.streams.verify() == []
        sizes.append(len(node.log("a")))
        node.streams.open("a").append([b"meanwhile"])
        assert node.read("a")[:50] == records

    failpoints.arm("archive.manifest.sliced", between, repeat=True)
    node.archive.publish_all()
    failpoints.disarm()
    assert len(sizes) == 7
    assert [before - after for before, after in pairwise(sizes)] == [6] * 6
    assert node.read("a") == records + [b"meanwhile"] * 7
    sound(node)


@pytest.mark.parametrize("at", with_slow([1, 4, 7], [2, 3, 5, 6]))
@pytest.mark.parametrize("files", [True, False])
def test_a_node_that_dies_between_slices_keeps_every_invariant(make, at, files):
    node = make(policy=Policy(seal_rows=20, trim_rows=7))
    records = node.write("a", 55)

    def die(_point):
        raise Crash

    failpoints.arm("archive.manifest.sliced", die, at=at, repeat=True)
    with pytest.raises(Crash):
        node.archive.publish_all()
    failpoints.disarm()
    node.close()
    if not files:
        for path in (node.root / "segments").rglob("*.parquet"):
            path.unlink()
    again = make(policy=Policy(seal_rows=20, trim_rows=7))
    assert again.streams.verify() == []
    row = again.row("a")
    assert again.log("a") == list(range(row["uploaded_through"] + 1, 55))
    assert again.read("a") == records
    assert not again.archive.publish_all().failures
    assert again.log("a") == []
    assert again.read("a") == records
    sound(again)


def test_open_segment_survives_loss_of_its_file_and_manifest(make):
    node = make(policy=Policy(seal_rows=20, trim_rows=7))
    records = node.write("a", 5)
    node.archive.publish_all()
    key_of_manifest = manifest.manifest_key("a")
    before = node.objects.get(key_of_manifest).data
    records += node.write("a", 20, start=5)

    def die(_point):
        raise Crash

    failpoints.arm("archive.manifest.sliced", die)
    with pytest.raises(Crash):
        node.archive.publish_all()
    failpoints.disarm()
    node.close()
    node.objects.put(key_of_manifest, before)
    for path in (node.root / "segments").rglob("*.parquet"):
        path.unlink()
    again = make(policy=Policy(seal_rows=20, trim_rows=7))
    assert 5 < len(again.log("a")) < 20
    assert again.read("a") == records
    assert not again.archive.publish_all().failures
    assert again.read("a") == records
    sound(again)


def test_retention_keeps_what_it_should_while_segment_leaves_log(make):
    node = make(policy=Policy(seal_rows=20, trim_rows=3))
    stream = node.streams.create("a", "text/plain", retention_seconds=100)
    for _ in range(20):
        stream.append([b"x"])

    def die(_point):
        raise Crash

    failpoints.arm("archive.manifest.sliced", die)
    with pytest.raises(Crash):
        node.archive.publish_all()
    failpoints.disarm()
    node.now += 50_000
    node.streams.sweep()
    assert stream.info.first_offset == 0
    assert node.streams.verify() == []


def test_a_node_in_the_background_indexes_and_compacts_by_itself(make, monkeypatch):
    monkeypatch.setattr("fourfold.models.streams.archive.archiver.ARCHIVE_UPKEEP_S", 0.01)
    node = make(policy=replace(TINY, seal_age_s=0.0, index=True, compact=True))
    fill(node, "a", 64, key)
    with node.archive.running(every_s=0.001):
        until = time.monotonic() + 60
        while time.monotonic() < until:
            standing = node.streams.details("a").archived
            runs = standing.indexes[0].runs if standing.indexes else 0
            if runs and standing.uploaded_segments == 1:
                break
            time.sleep(0.01)
    assert (standing.uploaded_segments, standing.uploaded_through) == (1, 63)
    assert not node.archive.failures
    assert by_key(node, "a", "key-1") == numbers(64, "key-1")
    sound(node)


def test_retention_gives_up_slice_by_slice(node, monkeypatch):
    monkeypatch.setattr(limits, "ARCHIVE_TRIM_ROWS", 6)
    stream = node.streams.create("a", "text/plain", retention_bytes=10)
    for _ in range(50):
        stream.append([b"x"])
    firsts = []

    def look(_point):
        with node.database.read() as snapshot:
            firsts.append(snapshot.value("SELECT first_offset FROM streams"))

    failpoints.arm("kernel.commit.after", look, repeat=True)
    node.streams.sweep()
    failpoints.disarm()
    assert sorted(set(firsts)) == [6, 12, 18, 24, 30, 36, 40]
    assert node.log("a") == list(range(40, 50))
    assert node.streams.verify() == []


def test_large_records_leave_the_log_few_at_a_time(make, monkeypatch):
    monkeypatch.setattr("fourfold.models.streams.slices.ARCHIVE_TRIM_BYTES", 250)
    node = make(policy=Policy(seal_rows=50, trim_rows=7))
    stream = node.streams.create("a", "text/plain")
    for size in (1, 1, 1, 1, 1, 1, 1, 100, 100, 100, 100, 300, 300, 1):
        stream.append([b"x" * size])
    left = []
    failpoints.arm(
        "archive.manifest.sliced", lambda _point: left.append(node.log("a")[0]), repeat=True
    )
    node.archive.publish_all()
    failpoints.disarm()
    assert left == [7, 10, 12, 13]
    assert node.log("a") == []
    assert node.streams.verify() == []
