"""Records as columns: what a segment is made of is what the log has, whatever the records are."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from node import Node

from fourfold import limits
from fourfold.errors import FourfoldError
from fourfold.models.streams import Append
from fourfold.models.streams.archive import Policy, columns
from fourfold.objects import MemoryStore
from support.properties import examples

pytest.importorskip("pyarrow")

BYTES = "application/octet-stream"
PAYLOADS = st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=30)
KEYS = (None, b"k", b"other")
PLENTY = Policy(seal_bytes=1 << 30, seal_rows=1_000)


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """One for all: each test and each example makes a stream of its own."""
    made = Node(tmp_path_factory.mktemp("node"), MemoryStore(), Policy(seal_bytes=50, seal_rows=4))
    yield made
    made.close()


def filled(node, payloads, keys=(None,)):
    """The name of a new stream with these records."""
    name = f"s{node.streams.totals().streams}"
    # No record is older than its stream.
    node.now = 1_000_000
    node.streams.create(name, BYTES)
    for number, payload in enumerate(payloads):
        node.now = 1_000_000 + 7 * number
        key = keys[number % len(keys)]
        node.streams.append(name, Append([payload], BYTES, routing_key=key))
    return name


def batches(node, name, policy=PLENTY, average=20):
    info = node.streams.info(name)
    with node.database.read() as snapshot:
        return list(
            columns.batches(snapshot, info.sid, 0, info.next_offset, average=average, policy=policy)
        )


def rows(found):
    return [tuple(row.values()) for batch in found for row in batch.to_pylist()]


@settings(max_examples=examples(30))
@given(payloads=PAYLOADS, average=st.integers(1, 200), group=st.integers(1, 120))
def test_columns_have_the_records_that_the_log_has(node, payloads, average, group):
    name = filled(node, payloads, keys=KEYS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "SEGMENT_GROUP_BYTES", group)
        found = batches(node, name, average=average)
    assert [row[0] for row in rows(found)] == list(range(len(payloads)))
    assert [row[4] for row in rows(found)] == payloads
    assert [row[2] for row in rows(found)] == [KEYS[n % 3] for n in range(len(payloads))]
    times = [int(row[1].timestamp() * 1000) for row in rows(found)]
    assert times == [1_000_000 + 7 * number for number in range(len(payloads))]
    for batch in found:
        size = sum(map(len, batch.column(4).to_pylist()))
        assert size <= group or len(batch) == 1


def test_bytes_that_are_no_text_stay_as_they_are(node):
    payloads = [b"\x00", b"\xff\xfe", b"a\x00b", "é".encode(), b",", b'"', bytes(range(256))]
    name = filled(node, payloads)
    assert [row[4] for row in rows(batches(node, name))] == payloads


@settings(max_examples=examples(30))
@given(payloads=PAYLOADS, most=st.integers(1, 200), count=st.integers(1, 12))
def test_a_segment_has_what_fits_and_at_least_one_record(node, payloads, most, count):
    name = filled(node, payloads)
    found = rows(batches(node, name, Policy(seal_bytes=most, seal_rows=count)))
    expected, held = [], 0
    for payload in payloads[:count]:
        held += len(payload)
        if expected and held > most:
            break
        expected.append(payload)
    assert [row[4] for row in found] == expected


def test_record_larger_than_row_group_is_one_of_its_own(node):
    large = b"x" * (3 * limits.SEGMENT_GROUP_BYTES)
    name = filled(node, [b"a", large, b"b", b"c"])
    assert [len(batch) for batch in batches(node, name, average=1)] == [1, 1, 2]
    assert [row[4] for row in rows(batches(node, name, average=1))] == [b"a", large, b"b", b"c"]


def test_a_log_with_a_hole_is_not_sealed(node):
    name = filled(node, [b"a", b"b", b"c"])
    hole = "DELETE FROM wal_log WHERE offset = 1 AND sid = ?1"
    sid = node.streams.info(name).sid
    node.database.transact(lambda txn: txn.execute(hole, (sid,)))
    with pytest.raises(FourfoldError, match="gaps"):
        batches(node, name)
    node.streams.delete(name)


def test_what_is_in_segments_is_joined_as_the_log_is(node):
    payloads = [f"record {number}".encode() for number in range(23)]
    name = filled(node, payloads)
    info = node.streams.info(name)
    before, _ = node.streams.read_joined(info, 0, info.next_offset)
    node.archive.publish_all()
    assert node.log(name) == []
    for start in range(23):
        found, at = b"", start
        while at < 23:
            piece, at = node.streams.read_joined(info, at, info.next_offset)
            found += piece
        assert found == b"".join(payloads[start:])
    assert before == b"".join(payloads)


def test_part_of_row_group_ends_where_it_was_asked_to(node):
    name = filled(node, [b"a", b"b", b"c", b"d"])
    node.archive.publish_all()
    info = node.streams.info(name)
    assert node.streams.read_joined(info, 1, 3) == (b"bc", 3)
