"""`filter=`: a bounded, resumable search per request, outside of the event loop."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from both_fronts import JSON, Front, request
from test_field_reads import is_on_the_loop

from fourfold.content.filters import Filter
from fourfold.models.streams import Append
from fourfold.models.streams.validation import format_offset

ROWS = 60


@pytest.fixture
def front(tmp_path, monkeypatch):
    monkeypatch.setattr("fourfold.models.streams.reader.FIELD_READ_RECORDS", 10)
    made = Front(tmp_path / "store", fast=True)
    made.streams.create("s", JSON)
    made.streams.append("s", Append([b'{"id":%d}' % n for n in range(ROWS)], JSON))
    yield made
    made.stop()


def get(front, where, query="offset=-1", name="s"):
    text = quote(where if isinstance(where, str) else json.dumps(where), safe="")
    with front.connect() as connection:
        connection.send(request("GET", f"{name}?{query}&filter={text}"))
        status, response, body = connection.answer()
        return status, dict(response), body


def test_search_is_bounded_and_continues(front):
    values, at, requests = [], format_offset(0), 0
    while True:
        status, response, body = get(front, {"id": {"$gte": 55}}, f"offset={at}")
        assert (status, response["cache-control"]) == (200, "no-store")
        assert "etag" not in response
        values += json.loads(body)
        at, requests = response["stream-next-offset"], requests + 1
        if "stream-up-to-date" in response:
            break
    assert values == [{"id": n} for n in range(55, ROWS)]
    assert requests == ROWS // 10


def test_search_runs_outside_of_the_event_loop(front, monkeypatch):
    seen = []

    def noting(_):
        def matches(value):
            seen.append(is_on_the_loop())
            return value["id"] == 3

        return matches

    monkeypatch.setattr(Filter, "matches", property(noting))
    for query in ("offset=-1", "offset=-1&format=records", "offset=-1&live=long-poll"):
        assert get(front, {"id": 3}, query)[0] == 200
    assert seen
    assert not any(seen)


def test_records_form_and_limit(front):
    _, response, body = get(front, {"id": {"$lt": 4}}, "offset=-1&format=records&limit=3")
    assert [json.loads(row["text"])["id"] for row in json.loads(body)] == [0, 1, 2]
    assert response["stream-next-offset"] == format_offset(3)


def test_live_reads_continue_until_a_match(front):
    _, response, body = get(front, {"id": 47}, "offset=-1&live=long-poll")
    assert json.loads(body) == [{"id": 47}]
    status, response, _ = get(front, {"id": -1}, "offset=-1&live=long-poll")
    assert (status, response["stream-next-offset"]) == (204, format_offset(ROWS))
    front.streams.open("s").append({"id": 47}, close=True)
    _, _, body = get(front, {"id": 47}, "offset=-1&live=sse")
    events = [event.split(b"\n") for event in body.split(b"\n\n") if event]
    data = [event[2][5:] for event in events if event[1:2] == [b"event: data"]]
    assert [json.loads(line) for line in data] == [[{"id": 47}], [{"id": 47}]]
    controls = [event for event in events if event[1:2] == [b"event: control"]]
    assert len(controls) >= 7


@pytest.mark.parametrize("where", ["{", "[]", '{"id": {"$above": 1}}', '"x"'])
def test_invalid_filter_is_400(front, where):
    status, _, body = get(front, where)
    assert status == 400, body


def test_filter_does_not_combine_with_a_field_or_bytes(front):
    assert get(front, {}, "offset=-1&field=id&value=1")[0] == 400
    front.streams.create("raw", "text/plain")
    for live in ("", "&live=sse", "&live=long-poll"):
        assert get(front, {}, f"offset=-1{live}", "raw")[0] == 400
