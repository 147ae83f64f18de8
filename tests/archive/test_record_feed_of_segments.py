"""The feed over all streams finds records that have left the log."""

from __future__ import annotations

from fourfold.models.streams.feed_records import FeedGap, StreamRecord


def read(streams, after="-1", limit=3):
    items = []
    while True:
        page = streams.read_feed(after, limit=limit)
        items += page.items
        after = page.cursor
        if page.up_to_date:
            return items, after


def seen(items):
    return [item.record.payload for item in items if isinstance(item, StreamRecord)]


def fill(node, count, start=0):
    """Append to two streams in turns; return the records in order."""
    records = []
    for number in range(start, start + count):
        records += node.write("a", 1, number)
        records += node.write("b", 2, 2 * number)
    return records


def test_records_in_segments_keep_their_order(node):
    records = fill(node, 10)
    middle = read(node.streams)[0][7].cursor
    node.archive.round()
    assert 0 < len(node.log("a")) < 10
    records += fill(node, 3, 10)
    assert seen(read(node.streams)[0]) == records
    assert seen(read(node.streams, middle)[0]) == records[8:]
    node.archive.publish_all()
    assert node.log("a") == []
    assert seen(read(node.streams)[0]) == records
    assert seen(read(node.streams, middle, limit=100)[0]) == records[8:]
    # The log is empty: ids continue after those that were used.
    _, cursor = read(node.streams)
    assert seen(read(node.streams, cursor)[0]) == []
    later = fill(node, 2, 20)
    assert seen(read(node.streams, cursor)[0]) == later
    node.archive.publish_all()
    node.archive.compact()
    assert seen(read(node.streams, cursor)[0]) == later
    assert seen(read(node.streams)[0]) == records + later
    assert node.streams.verify() == []


def test_segments_that_retention_removed_are_a_gap(node):
    stream = node.streams.create("a", "text/plain", retention_bytes=20)
    _, cursor = read(node.streams)
    node.write("a", 12)
    node.write("b", 1)
    node.archive.publish_all()
    node.streams.sweep()
    first = stream.info.first_offset
    assert first > 0
    items, _ = read(node.streams, cursor)
    gaps = [item for item in items if isinstance(item, FeedGap)]
    assert sum(gap.records for gap in gaps) == first
    assert {gap.stream for gap in gaps} == {"a"}
    assert len(seen(items)) == 12 - first + 1


def test_node_from_objects_begins_a_feed_of_its_own(node, make):
    fill(node, 6)
    node.archive.publish_all()
    _, cursor = read(node.streams)
    other = make("other", archived=False)
    other.bootstrap()
    other.open_archive()
    items, after = read(other.streams, cursor)
    assert [item.stream for item in items] == [None]
    later = fill(other, 1, 6)
    assert seen(read(other.streams, after)[0]) == later
    assert seen(read(other.streams)[0]) == later
    assert other.streams.verify() == []
