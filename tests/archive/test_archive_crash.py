"""A node is killed with SIGKILL while it appends, seals, publishes, indexes, compacts, collects."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from node import Node

from fourfold.kernel import failpoints
from fourfold.models.streams.archive.verify import object_problems, unclaimed_problems
from fourfold.models.streams.records import RecordFilter
from fourfold.objects import FolderStore
from support import crash

CHILD = Path(__file__).with_name("archive_child.py")


def acknowledged(lines, before):
    """The offset through which each stream was reported as on disk."""
    reached = dict(before)
    for line in lines:
        name, offset = line.split()
        reached[name] = int(offset) + 1
    return reached


def by_key(node, name):
    """The records with the key that every third one has."""
    at, found = "-1", []
    while True:
        _, chunk = node.streams.read(name, at, sought=RecordFilter(b"key-1"))
        found += [record.payload for record in chunk.records]
        at = chunk.offset
        if chunk.up_to_date:
            return found


def check(root, reached, build):
    """Nothing that was acknowledged is missing, here or in a node that is built from the objects;
    how far each stream is now.
    """
    with FolderStore(root / "objects") as objects:
        node = Node(root / "node", objects, synchronous="FULL")
        try:
            assert node.streams.verify() == []
            ends = {}
            for name, end in reached.items():
                found = node.read(name)
                assert len(found) >= end
                assert found == [f"{name}-{n}".encode() for n in range(len(found))]
                assert by_key(node, name) == found[1::3]
                ends[name] = len(found)
            if build is None:
                return ends
            assert not node.archive.publish_all().failures
            assert not node.archive.compact().failures
            assert not node.archive.index().failures
            node.archive.collect(grace_s=0)
            assert node.streams.verify() == []
            with node.database.read() as snapshot:
                assert list(object_problems(snapshot, objects)) == []
            assert list(unclaimed_problems(node.database, objects)) == []
        finally:
            node.close()
        other = Node(build, objects)
        try:
            report = other.bootstrap()
            assert not report.lost
            assert not report.unclaimed
            assert other.streams.verify() == []
            for name, end in ends.items():
                assert other.read(name) == [f"{name}-{n}".encode() for n in range(end)]
                assert by_key(other, name) == other.read(name)[1::3]
        finally:
            other.close()
        return ends


SOONER = {
    "archive.segment.renamed",
    "archive.upload.after",
    "archive.manifest.uploaded",
    "archive.manifest.sliced",
    "archive.object.uploaded",
}
"""The points that every run kills at; a long run kills at all of them."""


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(entry, marks=() if entry in SOONER else pytest.mark.slow)
        for entry in failpoints.ARCHIVE_POINTS
    ],
)
def test_a_node_that_is_killed_at_any_point_loses_nothing(tmp_path, point):
    died = crash.run(CHILD, str(tmp_path), fault=f"{point}=kill@3")
    assert died.killed, died
    check(tmp_path, acknowledged(died.lines, {}), tmp_path / "rebuilt")


def lives(tmp_path, seed, count):
    """One node that is killed again and again, at random, and goes on each time."""
    random = Random(seed)
    reached = {}
    for number in range(count):
        died = crash.run(CHILD, str(tmp_path), kill=crash.random_kill_time(random, longest_s=0.5))
        assert died.killed, died
        last = number == count - 1
        reached = check(
            tmp_path, acknowledged(died.lines, reached), tmp_path / "rebuilt" if last else None
        )


def test_a_node_that_is_killed_at_random_loses_nothing(tmp_path):
    lives(tmp_path, 1, 2)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(5))
def test_a_node_that_is_killed_again_and_again_loses_nothing(tmp_path, seed):
    lives(tmp_path, 100 + seed, 20)
