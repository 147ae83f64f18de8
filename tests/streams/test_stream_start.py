"""Where a read from the start begins, once retention has trimmed a stream."""

from __future__ import annotations

import asyncio

import pytest

from fourfold.errors import OffsetGone
from fourfold.models.streams.validation import format_offset


@pytest.fixture
def trimmed(opened):
    """Six records, of which retention has trimmed the first three."""
    stream = opened.streams.create("t", "application/json", retention_bytes=3)
    stream.append([b"1", b"2", b"3"])
    stream.append([b"4", b"5", b"6"], key="k")
    opened.streams.sweep()
    assert stream.info.first_offset == 3
    return stream


def payloads(chunk):
    return [record.payload for record in chunk.records]


def test_read_from_start_begins_at_earliest_record(trimmed):
    assert payloads(trimmed.read()) == [b"4", b"5", b"6"]
    assert payloads(trimmed.read("-1")) == [b"4", b"5", b"6"]
    assert payloads(trimmed.read("-1", key="k")) == [b"4", b"5", b"6"]
    assert payloads(next(trimmed.follow(timeout=0))) == [b"4", b"5", b"6"]


def test_page_and_async_read_begin_at_earliest_record(opened, trimmed):
    assert opened.streams.page("t")[1].start_offset == 3
    _, chunk = asyncio.run(opened.streams.read_async("t"))
    assert payloads(chunk) == [b"4", b"5", b"6"]


def test_explicit_offset_below_first_is_gone(trimmed):
    with pytest.raises(OffsetGone) as gone:
        trimmed.read(format_offset(2))
    assert gone.value.details["first_offset"] == format_offset(3)


def test_stream_trimmed_to_nothing_reads_as_empty(opened, trimmed):
    empty = opened.streams.create("e", "text/plain", retention_seconds=1)
    empty.append([b"old"])
    opened.clock.ms += 2000
    opened.streams.sweep()
    chunk = empty.read()
    assert (chunk.records, chunk.next_offset, chunk.up_to_date) == ((), 1, True)
