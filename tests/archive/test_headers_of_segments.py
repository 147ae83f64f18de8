"""Headers of records in segments: a column of their own, in segments that have any."""

from __future__ import annotations

import pyarrow.parquet as pq

from fourfold.archive.segment_writer import HEADERS
from fourfold.models.streams.archive.records import SQL, Segment

POLICY = {"seal_bytes": 10_000, "seal_rows": 6}


def columns(node, name):
    """Return the columns of each segment of a stream."""
    with node.database.read() as snapshot:
        sid = snapshot.value("SELECT sid FROM streams WHERE stream = ?1", (name,))
        rows = snapshot.all(SQL.segments_between, (sid, 0, 1_000))
    names = []
    for segment in map(Segment._make, rows):
        data = node.objects.get(segment.wanted(node.root).object_key).data
        path = node.root / "one.parquet"
        path.write_bytes(data)
        names.append(pq.read_schema(path).names)
    return names


def test_segments_have_a_column_for_headers_if_there_are_any(make):
    node = make()
    stream = node.streams.create("a", "text/plain")
    expected = []
    for number in range(24):
        headers = {"trace": str(number)} if 8 <= number < 12 or number == 23 else {}
        stream.append(f"{number}", headers=headers, key=f"k{number % 2}")
        expected.append(headers)
        if number == 7:
            node.archive.publish_all()
    node.archive.publish_all()
    assert node.log("a") == []
    found = columns(node, "a")
    assert len({HEADERS in names for names in found}) == 2

    def check():
        assert [record.headers for record in stream.read()] == expected
        assert [record.headers for record in stream.read(key="k1")] == expected[1::2]
        assert [record.payload for record in stream] == [b"%d" % n for n in range(24)]

    check()
    node.archive.index()
    check()
    node.archive.compact()
    node.archive.publish_all()
    assert len(columns(node, "a")) < len(found)
    check()
    other = make("other", archived=False)
    other.bootstrap()
    other.open_archive()
    copy = other.streams.open("a")
    assert [record.headers for record in copy.read()] == expected
    copy.append("24", headers={"late": "1"})
    assert copy.read(24).records[0].headers == {"late": "1"}
    assert other.streams.verify() == []
