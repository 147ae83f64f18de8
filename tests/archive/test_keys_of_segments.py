"""Routing keys of records that have left the log."""

from __future__ import annotations

import pytest
from keyed_streams import TINY

from fourfold.archive.build_process import DirectBuilder
from fourfold.errors import FourfoldError
from fourfold.models.streams.archive.maintenance import MaintenanceTurn


@pytest.fixture
def node(make):
    return make(policy=TINY)


def fill(node, count, start=0, keys=5):
    try:
        stream = node.streams.open("a")
    except FourfoldError:
        stream = node.streams.create("a", "text/plain")
    for number in range(start, start + count):
        stream.append(f"{number}", key=None if number % 4 == 3 else f"k{number % keys}")
    return stream


def expected(count, keys=5, first=0):
    """Return the newest record of each key."""
    return {
        f"k{number % keys}".encode(): number for number in range(first, count) if number % 4 != 3
    }


def keys(stream, limit=2):
    found, after = {}, None
    while True:
        page = stream.keys(after=after, limit=limit)
        found |= {row.key: row.offset.record for row in page}
        after = page.after
        if after is None:
            return found, page.complete_from.record


def test_keys_of_segments_and_of_the_log_are_listed_together(node):
    stream = fill(node, 30)
    node.archive.round()
    assert 0 < len(node.log("a")) < 30
    assert keys(stream) == (expected(30), 0)
    node.archive.publish_all()
    assert keys(stream) == (expected(30), 0)
    fill(node, 3, 30)
    assert keys(stream) == (expected(33), 0)
    node.archive.compact()
    node.archive.publish_all()
    assert keys(stream) == (expected(33), 0)
    assert node.streams.verify() == []
    node.streams.delete("a")
    assert node.streams.verify() == []


def test_keys_of_removed_segments_are_left_out(node):
    stream = node.streams.create("a", "text/plain", retention_bytes=30)
    for number in range(30):
        stream.append(f"{number:02}", key=f"once-{number:02}")
    node.archive.publish_all()
    node.streams.sweep()
    first = stream.info.first_offset
    assert first > 0
    found, complete_from = keys(stream, limit=4)
    assert found == {f"once-{n:02}".encode(): n for n in range(first, 30)}
    assert complete_from == first
    assert node.streams.verify() == []


def test_restored_node_adds_the_keys_of_segments_when_it_indexes(node, make):
    fill(node, 30)
    node.archive.publish_all()
    other = make("other", archived=False, policy=TINY)
    other.bootstrap()
    other.open_archive()
    stream = other.streams.open("a")
    assert keys(stream) == ({}, 30)
    fill(other, 5, 30)
    recent = {key: at for key, at in expected(35).items() if at >= 30}
    assert keys(stream) == (recent, 30)
    stops = iter([False, False, True])
    builder = DirectBuilder(other.archive.segments)
    other.archive.upkeep.index(turn=MaintenanceTurn(builder, stop=lambda: next(stops, True)))
    found, complete_from = keys(stream)
    assert 0 < complete_from < 30
    assert found == {key: at for key, at in expected(35).items() if at >= complete_from}
    other.archive.index()
    assert keys(stream) == (expected(35), 0)
    other.archive.publish_all()
    assert keys(stream) == (expected(35), 0)
    assert other.streams.verify() == []
