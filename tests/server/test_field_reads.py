"""Reads by field: a bounded, resumable search per request, outside of the event loop."""

from __future__ import annotations

import asyncio
import json
import re

import pytest
from both_fronts import JSON, Front, request

from fourfold import limits
from fourfold.models.streams import Append
from fourfold.models.streams.archive.indexes import fields
from fourfold.models.streams.validation import format_offset
from fourfold.server import listing

ROWS = 60


def is_on_the_loop():
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@pytest.fixture
def front(tmp_path, monkeypatch):
    monkeypatch.setattr("fourfold.models.streams.reader.FIELD_READ_RECORDS", 10)
    monkeypatch.setattr("fourfold.models.streams.archive.indexes.fields.FIELD_STEP_RECORDS", 4)
    made = Front(tmp_path / "store", fast=True)
    made.streams.create("s", JSON)
    made.streams.append("s", Append([b'{"id":%d}' % n for n in range(ROWS)], JSON))
    yield made
    made.stop()


@pytest.fixture
def examined(monkeypatch):
    """Record the messages that a search examined, and whether it ran on the event loop."""
    seen, key_of = [], fields.key_of

    def noting(payload, field):
        seen.append((payload, is_on_the_loop()))
        return key_of(payload, field)

    monkeypatch.setattr(fields, "key_of", noting)
    return seen


def get(front, query):
    with front.connect() as connection:
        connection.send(request("GET", f"s?{query}"))
        status, response, body = connection.answer()
        return status, dict(response), body


def next_offset(headers):
    return int(headers["stream-next-offset"].partition("_")[2])


def test_search_without_a_match_examines_a_bounded_number_of_records(front, examined):
    status, response, body = get(front, "offset=-1&field=id&value=-1")
    assert (status, json.loads(body)) == (200, [])
    assert len(examined) <= 12
    assert next_offset(response) == len(examined)
    assert "stream-up-to-date" not in response


def test_search_continues_from_where_it_ended(front):
    result, at = [], 0
    for _ in range(ROWS):
        _, response, body = get(front, f"offset={format_offset(at)}&field=id&value=47")
        result += json.loads(body)
        at = next_offset(response)
        if "stream-up-to-date" in response:
            break
    assert (result, at) == ([{"id": 47}], ROWS)


def test_search_runs_outside_of_the_event_loop(front, examined):
    get(front, "offset=-1&field=id&value=3")
    assert {on_the_loop for _, on_the_loop in examined} == {False}


def test_long_poll_by_field_finds_a_record_beyond_one_search(front):
    status, response, body = get(front, "offset=-1&field=id&value=59&live=long-poll")
    assert (status, json.loads(body)) == (200, [{"id": 59}])
    assert next_offset(response) == ROWS


def test_long_poll_by_field_without_a_match_reports_its_offset(front):
    status, response, _ = get(front, "offset=-1&field=id&value=-1&live=long-poll")
    assert (status, next_offset(response)) == (204, ROWS)


def test_events_by_field_report_the_search_offset(front):
    with front.connect() as connection:
        connection.send(request("GET", "s?offset=-1&field=id&value=59&live=sse"))
        text = b""
        while b'{"id":59}' not in text or b"upToDate" not in text:
            text += connection.socket.recv(1 << 16)
    reached = [int(n) for n in re.findall(rb'"streamNextOffset": "\d+_(\d+)"', text)]
    assert len(reached) > 3
    assert reached == sorted(reached)
    assert reached[-1] == ROWS


def test_search_in_large_records_is_bounded(front, examined, monkeypatch):
    monkeypatch.setattr("fourfold.models.streams.reader.FIELD_READ_BYTES", 30)
    monkeypatch.setattr("fourfold.models.streams.archive.indexes.fields.FIELD_STEP_BYTES", 10)
    get(front, "offset=-1&field=id&value=-1")
    assert len(examined) <= 5


def test_search_in_segments_examines_a_bounded_number_of_records(front, examined):
    front.store.archive.publish_all()
    _, response, _ = get(front, "offset=-1&field=id&value=-1")
    assert len(examined) <= 12
    assert next_offset(response) == len(examined)


def test_many_single_records_are_encoded_outside_of_the_event_loop(front, monkeypatch):
    seen, records = [], listing.encode_records

    def noting(*arguments, **options):
        seen.append(is_on_the_loop())
        return records(*arguments, **options)

    monkeypatch.setattr(listing, "encode_records", noting)
    front.streams.append("s", Append([b'"\xc3\xa9"'] * 1000, JSON))
    _, response, body = get(front, "offset=-1&format=records")
    rows = json.loads(body)
    assert [row["offset"] for row in rows] == [format_offset(n) for n in range(ROWS + 1000)]
    assert rows[-1]["text"] == '"é"'
    assert next_offset(response) == ROWS + 1000
    assert seen == [False]


def test_search_by_field_in_the_library_continues_too(front):
    stream, at, result = front.streams.open("s"), "-1", []
    while True:
        chunk = stream.read(at, where=("id", 47))
        result += [record.payload for record in chunk.records]
        at = format_offset(chunk.next_offset)
        if chunk.up_to_date:
            break
    assert result == [b'{"id":47}']


def test_long_read_of_records_pauses_for_other_writers(front, monkeypatch):
    """The records of a long page become objects one by one, which takes the interpreter."""
    count = limits.STREAM_SHORT_READ_RECORDS + 1
    front.streams.append("s", Append([b"%d" % number for number in range(count)], JSON))
    paced = []
    read_in_background = front.streams.database.read_in_background
    monkeypatch.setattr(
        front.streams.database,
        "read_in_background",
        lambda: paced.append(not is_on_the_loop()) or read_in_background(),
    )
    [(status, _, body)] = front.ask(request("GET", "s?format=records&limit=5"))
    assert (status, len(json.loads(body)), paced) == (200, 5, [])
    [(status, _, body)] = front.ask(request("GET", "s?format=records"))
    assert (status, len(json.loads(body)), paced) == (200, ROWS + count, [True])
