"""Reads over HTTP from the start, after retention has removed records, and from a time."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta

import pytest

from fourfold.models.streams.validation import format_offset

JSON = "application/json"


@pytest.fixture(scope="module")
def trimmed(served):
    """Create a stream that begins at its fourth record because of retention."""
    served.stream("PUT", "trimmed", content_type=JSON, stream_retention_bytes="3")
    served.stream("POST", "trimmed", b"[1,2,3,4,5,6]", content_type=JSON, stream_key="k")
    until = time.monotonic() + 30
    while json.loads(served.stream("GET", "trimmed/_details").text)["first_offset"][-1] != "3":
        assert time.monotonic() < until, "retention did not trim"
        time.sleep(0.05)
    return "trimmed"


@pytest.mark.parametrize(
    "query", ["", "?offset=-1", "?offset=-1&live=long-poll", "?key=k", "?offset=-1&key=k"]
)
def test_read_from_start_begins_at_earliest_retained_record(served, trimmed, query):
    answer = served.stream("GET", trimmed, query=query)
    assert (answer.status, answer.text) == (200, b"[4,5,6]")
    assert answer.headers["stream-first-offset"] == format_offset(3)


def test_records_and_events_from_start_begin_at_earliest_retained_record(served, trimmed):
    records = served.stream("GET", trimmed, query="?offset=-1&format=records")
    assert [row["text"] for row in json.loads(records.text)] == ["4", "5", "6"]
    assert records.headers["stream-first-offset"] == format_offset(3)
    served.stream("POST", trimmed, stream_closed="true")
    events = served.stream("GET", trimmed, query="?offset=-1&live=sse")
    assert b"data:[4,5,6]" in events.text
    assert events.headers["stream-first-offset"] == format_offset(3)


def test_head_reports_first_offset_and_older_offsets_are_gone(served, trimmed):
    head = served.stream("HEAD", trimmed)
    assert head.headers["stream-first-offset"] == format_offset(3)
    gone = served.stream("GET", trimmed, query=f"?offset={format_offset(2)}")
    assert gone.status == 410
    assert gone.headers["stream-first-offset"] == format_offset(3)


@pytest.mark.parametrize("mode", ["", "&live=long-poll", "&live=sse", "&format=records", "&key=k"])
def test_offset_of_an_earlier_incarnation_is_gone(served, mode):
    name = "again" + "".join(filter(str.isalpha, mode))
    for _ in range(2):
        assert served.stream("PUT", name, content_type=JSON).status == 201
        appended = served.stream("POST", name, b"[1,2,3]", content_type=JSON)
        number, _, record = appended.headers["stream-next-offset"].partition("_")
        assert int(record) == 3
        if int(number) == 0:
            served.stream("DELETE", name)
    assert int(number) == 1
    gone = served.stream("GET", name, query=f"?offset={format_offset(2)}{mode}")
    assert gone.status == 410
    assert json.loads(gone.text)["error"]["kind"] == "stream_recreated"
    assert gone.headers["stream-first-offset"] == format_offset(0, 1)
    start = served.stream("GET", name, query=f"?offset={format_offset(0)}")
    assert (start.text, start.headers["stream-next-offset"]) == (b"[1,2,3]", format_offset(3, 1))
    forked = {"stream_forked_from": name, "stream_fork_offset": format_offset(2)}
    assert served.stream("PUT", f"{name}/fork", **forked).status == 410
    forked["stream_fork_offset"] = format_offset(2, 1)
    assert served.stream("PUT", f"{name}/fork", **forked).status == 201
    fork = served.stream("GET", f"{name}/fork", query=f"?offset={format_offset(1, 1)}")
    assert fork.text == b"[2]"


# From a time


@pytest.fixture(scope="module")
def timed(served):
    """Create a stream of three records with different times; return its name and the times."""
    served.stream("PUT", "timed", content_type=JSON)
    for n in range(3):
        served.stream("POST", "timed", b"%d" % n, content_type=JSON, stream_key="k")
        time.sleep(0.005)
    rows = json.loads(served.stream("GET", "timed", query="?format=records").text)
    return "timed", [row["ts_ms"] for row in rows]


def iso(ms):
    """Return a time as ISO 8601 text, percent-encoded."""
    time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    return time.isoformat().replace("+", "%2B")


@pytest.mark.parametrize("write", [str, iso])
def test_read_since_a_time_begins_at_its_first_record(served, timed, write):
    name, times = timed
    for record, ms in enumerate(times):
        answer = served.stream("GET", name, query=f"?since={write(ms)}")
        assert (answer.status, json.loads(answer.text)) == (200, [0, 1, 2][record:])
        after = served.stream("GET", name, query=f"?since={write(ms + 1)}")
        assert json.loads(after.text) == [0, 1, 2][record + 1 :]
        assert after.headers["stream-next-offset"] == format_offset(3)
        # A later record may change what a time means.
        assert after.headers["cache-control"] == "no-store"


def test_read_since_a_time_can_be_combined(served, timed):
    name, times = timed
    since = f"?since={times[1]}"
    limited = served.stream("GET", name, query=f"{since}&limit=1")
    assert (limited.text, limited.headers["stream-next-offset"]) == (b"[1]", format_offset(2))
    assert served.stream("GET", name, query=f"{since}&key=k").text == b"[1,2]"
    rows = json.loads(served.stream("GET", name, query=f"{since}&format=records").text)
    assert [row["text"] for row in rows] == ["1", "2"]
    assert served.stream("GET", name, query=f"{since}&live=long-poll").text == b"[1,2]"


def test_events_since_a_time_continue_by_offset(served):
    served.stream("PUT", "ended", content_type=JSON)
    served.stream("POST", "ended", b"[1,2]", content_type=JSON, stream_closed="true")
    events = served.stream("GET", "ended", query="?since=2020-01-01&live=sse").text
    assert b"data:[1,2]" in events
    assert format_offset(2).encode() in events
    assert b"data:[" not in served.stream("GET", "ended", query="?since=2100-01-01&live=sse").text


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("?since=yesterday", "since: must be a time or milliseconds since 1970, got 'yesterday'"),
        ("?since=-1", "since: must be a time"),
        ("?since=", "since: must be a time"),
        ("?since=0&offset=-1", "parameters offset and since must not be sent together"),
    ],
)
def test_invalid_time_is_refused(served, timed, query, message):
    answer = served.stream("GET", timed[0], query=query)
    assert answer.status == 400
    assert message in json.loads(answer.text)["error"]["message"]
