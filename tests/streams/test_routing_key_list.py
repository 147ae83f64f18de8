"""Lists of routing keys, with the newest record of each."""

from __future__ import annotations

import pytest
from opened_streams import JSON

from fourfold.errors import InvalidInput


@pytest.fixture
def log(streams):
    return streams.create("log", JSON)


def keys(stream, **options):
    return {row.key: row.offset.record for row in stream.keys(**options)}


def test_keys_have_their_newest_record(streams, log):
    streams.create("other", JSON).append(1, key="elsewhere")
    assert keys(log) == {}
    log.append([1, 2], key="b")
    log.append(3)
    log.append(4, key="a")
    log.append(5, key=b"\xff\xff")
    log.append(6, key="b")
    assert keys(log) == {b"a": 3, b"b": 5, b"\xff\xff": 4}
    assert list(keys(log)) == [b"a", b"b", b"\xff\xff"]
    page = log.keys()
    assert (page.after, page.complete_from) == (None, "0000000000000000_0000000000000000")
    assert [row.text for row in page] == ["a", "b", "\\xff\\xff"]
    assert page.keys.to_arrow().num_rows == 3


def test_pages_continue_after_a_key(log):
    for number in range(25):
        log.append(number, key=f"k{number % 10}")
    found, after = [], None
    while True:
        page = log.keys(after=after, limit=3)
        found += [row.text for row in page]
        after = page.after
        if after is None:
            break
    assert found == [f"k{number}" for number in range(10)]
    assert list(keys(log, after="k7")) == [b"k8", b"k9"]
    assert list(keys(log, after="k7", limit=1)) == [b"k8"]


def test_prefix_selects_keys(log):
    for key in ("a", "a/1", "a/2", "a0", "b", b"a\xff", b"\xff", b"\xff\x01"):
        log.append(1, key=key)
    assert list(keys(log, prefix="a/")) == [b"a/1", b"a/2"]
    assert list(keys(log, prefix=b"a\xff")) == [b"a\xff"]
    assert list(keys(log, prefix=b"\xff")) == [b"\xff", b"\xff\x01"]
    assert list(keys(log, prefix="a/", after="a/1")) == [b"a/2"]
    assert list(keys(log, prefix="z")) == []


def test_keys_follow_retention_deletion_and_transactions(opened, streams):
    short = streams.create("short", JSON, retention_bytes=2)
    for number in range(4):
        short.append(number, key=f"k{number}")
    streams.sweep()
    assert list(keys(short)) == [b"k2", b"k3"]
    streams.delete("short")
    again = streams.create("short", JSON)
    assert keys(again) == {}
    with opened.database.write():
        again.append(1, key="new")
        assert keys(again) == {b"new": 0}
    assert streams.verify() == []


def test_fork_lists_its_own_keys(log):
    log.append([1, 2], key="shared")
    fork = log.fork("fork", 1)
    fork.append(3, key="own")
    assert keys(fork) == {b"own": 1}
    assert fork.keys().complete_from == "0000000000000000_0000000000000001"


def test_search_is_one_step_of_the_index_for_each_key(opened, log):
    for number in range(300):
        log.append(number, key=f"k{number % 2}")
    with opened.database.read() as snapshot:
        plan = snapshot.all(
            "EXPLAIN QUERY PLAN SELECT min(routing_key) FROM wal_log WHERE sid = 1 "
            "AND routing_key > x'00' AND routing_key >= x'00' AND routing_key < x'ff'"
        )
    assert "wal_stream_key_idx (sid=? AND routing_key>?" in plan[0][3]


@pytest.mark.parametrize(
    "options", [{"limit": 0}, {"limit": 10**6}, {"after": ""}, {"prefix": 5}, {"after": 5}]
)
def test_invalid_options_are_refused(log, options):
    with pytest.raises(InvalidInput):
        log.keys(**options)
