"""The records of the page of a stream: from a time, with keys and headers, and their live tail."""

from __future__ import annotations

import asyncio
import json
import re
from types import SimpleNamespace
from urllib.parse import quote

import pytest

from fourfold.errors import Forbidden, Overloaded
from fourfold.explorer.streams import StreamFeedQuery, TailFeed
from fourfold.models.streams.validation import format_offset
from fourfold.server.request import Response

JSON = "application/json"


@pytest.fixture(scope="module")
def tills(empty):
    """Append three records: with a key, with headers, and with neither."""
    empty.stream("PUT", "tills", content_type=JSON)
    empty.stream("POST", "tills", b"1", content_type=JSON, stream_key=quote("till <1>"))
    headers = json.dumps({"trace": "<b>"})
    empty.stream("POST", "tills", b"2", content_type=JSON, stream_record_headers=headers)
    empty.stream("POST", "tills", b"3", content_type=JSON)
    return empty


def page(server, **query):
    """Return the data of the page of a stream."""
    text = "&".join(f"{name}={quote(str(value))}" for name, value in query.items())
    answer = server.ask("GET", f"/stream.json?{text}")
    return answer.status, json.loads(answer.text)


def feed(server, name, after, **headers):
    """Return the events of the live tail of a stream that ends, and the whole text."""
    path = f"/stream.events?name={name}&after={after}"
    answer = server.ask("GET", path, headers={k.replace("_", "-"): v for k, v in headers.items()})
    assert answer.status == 200
    assert answer.headers["x-accel-buffering"] == "no"
    blocks = re.findall(rb"event: (\w+)\ndata: (.*)\n\n", answer.text)
    return [(name.decode(), json.loads(data)) for name, data in blocks], answer.text


def test_records_show_their_keys_and_headers(tills):
    _, data = page(tills, name="tills")
    assert data["has_keys"]
    assert [row["key"] for row in data["records"]] == ["", "", "till <1>"]
    assert [row["headers"] for row in data["records"]] == [{}, {"trace": "<b>"}, {}]
    shown = tills.ask("GET", "/stream?name=tills", headers={"accept": "text/html"}).text.decode()
    assert "till &lt;1&gt;</a>" in shown
    assert "<dt>trace</dt><dd>&lt;b&gt;</dd>" in shown
    assert "no-keys" not in shown


def test_keys_of_published_records_and_of_a_fork_are_shown(payments):
    keyed = {"content_type": JSON, "stream_key": "k"}
    payments.stream("POST", "payments", b'{"id": 151}', **keyed)
    run = payments.ask("POST", "/v1/jobs", b'{"kind": "publish"}', {"content-type": JSON})
    payments.ask("GET", f"{run.headers['location']}/events")
    payments.stream("PUT", "fork", stream_forked_from="payments")
    for name in ("payments", "fork"):
        _, data = page(payments, name=name)
        assert [row["key"] for row in data["records"][:2]] == ["k", ""], name


def test_a_stream_is_shown_from_a_time(tills):
    times = [row["ts_ms"] for row in page(tills, name="tills", start=0)[1]["records"]]
    status, data = page(tills, name="tills", start="1970-01-01 00:00")
    assert (status, data["order"]) == (200, "oldest")
    assert [row["ts_ms"] for row in data["records"]] == times
    _, later = page(tills, name="tills", start="2999-01-01T00:00Z")
    assert (later["records"], later["following"]) == ([], 3)
    _, filtered = page(tills, name="tills", start="1970-01-01", key="till <1>")
    assert [row["number"] for row in filtered["records"]] == [0]
    status, problem = page(tills, name="tills", start="noon")
    assert (status, problem["error"]["kind"]) == (400, "invalid_input")
    assert "a time" in problem["error"]["hint"]


def test_a_start_before_the_time_of_the_page_ends_there(tills):
    _, data = page(tills, name="tills", start=0, at="1970-01-02")
    assert (data["records"], data["following"]) == ([], 3)


def test_the_tail_of_a_closed_stream_ends(empty):
    empty.stream("PUT", "closed", content_type=JSON)
    empty.stream("POST", "closed", b"[1,2]", content_type=JSON, stream_closed="true")
    events, text = feed(empty, "closed", format_offset(0))
    assert [name for name, _ in events] == ["records", "end"]
    assert events[0][1]["count"] == 2
    assert events[1][1] == {"message": "The stream is closed."}
    assert text.startswith(b"retry: 1000\nid: %s\n" % format_offset(0).encode())


def test_the_tail_reports_a_gap_and_continues_after_it(empty):
    empty.stream("PUT", "trimmed", content_type=JSON, stream_retention_bytes="3")
    closed = {"content_type": JSON, "stream_closed": "true"}
    empty.stream("POST", "trimmed", b"[1,2,3,4,5,6]", **closed)
    first = ""
    while first != format_offset(3):  # Retention trims soon after the append.
        first = json.loads(empty.stream("GET", "trimmed/_details").text)["first_offset"]
    events, text = feed(empty, "trimmed", format_offset(9), last_event_id=format_offset(1))
    assert events[0] == ("gap", {"lost": 2})
    assert b"id: %s\nevent: gap" % format_offset(3).encode() in text
    assert [name for name, _ in events[1:]] == ["records", "end"]
    assert events[1][1]["count"] == 3


def test_the_tail_of_a_recreated_stream_says_so(empty):
    for _ in range(2):
        empty.stream("DELETE", "again")
        empty.stream("PUT", "again", content_type=JSON)
        empty.stream("POST", "again", b"[1]", content_type=JSON)
    events, _ = feed(empty, "again", format_offset(1))
    assert events == [("end", {"message": "The stream was deleted and created again."})]


class ScriptedVisit:
    """A visit whose reads wait, fail or return what a test says."""

    def __init__(self, *outcomes):
        self._outcomes = list(outcomes)
        self.api = SimpleNamespace(call=self._call)

    async def _call(self, _method, _path, **_query):
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        await asyncio.sleep(outcome)
        return Response(204, {"stream-next-offset": "7", "stream-closed": "true"})


def events_of(*outcomes):
    async def collect():
        tail = TailFeed(ScriptedVisit(*outcomes), StreamFeedQuery(name="s", after="7"), 0.01)
        return [event async for event in tail.events("7")]

    return asyncio.run(collect())[1:]


def test_a_quiet_tail_sends_comments_with_its_position():
    events = events_of(0.2)
    assert events[0] == b": keep-alive\nid: 7\n\n"
    assert events[-1].startswith(b"event: end\n")


def test_the_tail_reconnects_after_an_error_that_passes_only():
    assert events_of(Overloaded("full")) == [b'event: busy\ndata: {"message":"full"}\n\n']
    assert events_of(Forbidden("no")) == [b'event: end\ndata: {"message":"no"}\n\n']
