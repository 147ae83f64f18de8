"""Requests that are refused instead of answered wrongly, with both protocols."""

from __future__ import annotations

import json

import pytest
from both_fronts import JSON, Front, append, request, stored

from fourfold.models.streams.writer import STREAM_TTL_S_MAX


@pytest.fixture(scope="module", params=[True, False], ids=["fast", "plain"])
def front(request, tmp_path_factory):
    result = Front(tmp_path_factory.mktemp("front") / "store", fast=request.param)
    result.streams.create("s", JSON).append(b'[{"a": 1}, {"a": 2}]')
    yield result
    result.stop()


def ask(front, *given, **headers):
    (answer,) = front.ask(request(*given, **headers))
    status, response, body = answer
    return status, dict(response), body


def kind(body):
    return json.loads(body)["error"]["kind"]


@pytest.mark.parametrize("coding", ["gzip", "br", "x-unknown", "gzip, identity"])
def test_encoded_body_is_refused_and_nothing_is_written(front, coding):
    before = stored(front, "s")
    (answer,) = front.ask(append("s", b"\x1f\x8b", content_encoding=coding))
    assert (answer[0], kind(answer[2])) == (415, "unsupported_encoding")
    status, _, body = ask(
        front, "PUT", "encoded", b"\x1f\x8b", content_type="text/plain", content_encoding=coding
    )
    assert (status, kind(body)) == (415, "unsupported_encoding")
    assert ask(front, "GET", "encoded")[0] == 404
    assert stored(front, "s") == before


def test_identity_encoding_is_accepted(front):
    front.streams.create("plain", JSON)
    (answer,) = front.ask(append("plain", b"1", content_encoding="Identity"))
    assert answer[0] == 204


@pytest.mark.parametrize(
    "end",
    [
        "9999-12-31T23:59:59-14:00",
        "2030-W01-1T00:00:00Z",
        "20300101T000000Z",
        "2030-01-01 00:00:00Z",
        "2030-01-01T00:00:00",
        "2030-13-01T00:00:00Z",
        "2030-01-01",
    ],
)
def test_expiry_that_is_not_rfc_3339_is_refused(front, end):
    status, _, body = ask(front, "PUT", "ends", content_type=JSON, stream_expires_at=end)
    assert (status, kind(body)) == (400, "invalid_input")
    assert ask(front, "GET", "ends")[0] == 404


@pytest.mark.parametrize("ttl", ["9223372036854775", "9999999999999999"])
def test_too_long_ttl_is_refused(front, ttl):
    status, _, body = ask(front, "PUT", "long", content_type=JSON, stream_ttl=ttl)
    assert (status, kind(body)) == (400, "invalid_input")
    assert str(STREAM_TTL_S_MAX) in json.loads(body)["error"]["message"]


def test_stored_expiry_after_the_year_9999_can_be_read(front):
    front.streams.create("late", JSON)
    set_end = "UPDATE streams SET expires_at_ms = 253402387199000 WHERE stream = 'late'"
    front.streams.database.transact(lambda txn: txn.execute(set_end))
    with front.connect() as connection:
        connection.send(request("HEAD", "late"))
        status, response, _ = connection.answer(head=True)
    assert (status, dict(response)["stream-expires-at"]) == (200, "9999-12-31T23:59:59.999000Z")


def test_deeply_nested_value_is_refused(front):
    status, _, body = ask(front, "GET", f"s?field=a&value={'[' * 15_000}")
    assert (status, kind(body)) == (400, "invalid_input")


@pytest.mark.parametrize("query", ["order=desc", "offset=-1&until=2", "live=sse&where=1"])
def test_filter_parameter_is_refused_by_name(front, query):
    status, _, body = ask(front, "GET", f"s?{query}")
    assert (status, kind(body)) == (400, "invalid_input")
    name = query.split("&")[-1].split("=")[0]
    assert f"unknown parameter '{name}'" in json.loads(body)["error"]["message"]


def test_unknown_parameters_are_ignored_by_a_read(front):
    """The protocol requires that; a list of streams has no such rule."""
    assert ask(front, "GET", "s?offset=-1&foo=bar")[0] == 200


def test_known_parameters_of_a_read_are_accepted(front):
    query = "offset=-1&live=long-poll&cursor=1&format=records&limit=1"
    assert ask(front, "GET", f"s?{query}")[0] == 200
    assert ask(front, "GET", "s?field=a&value=2")[2] == b'[{"a": 2}]'


MANY = b"[" + b",".join([b"1"] * 6) + b"]"
DENSE = b"[[" + b",".join([b"1"] * 30) + b"]]"


@pytest.mark.parametrize("body", [MANY, b" \n" + MANY, DENSE], ids=["many", "blank", "dense"])
def test_too_many_messages_are_refused_and_nothing_is_written(front, monkeypatch, body):
    """Each message takes memory and time of the event loop, however small it is."""
    before = stored(front, "s")
    monkeypatch.setattr("fourfold.server.streams.HTTP_APPEND_MESSAGES", 5)
    monkeypatch.setattr("fourfold.server.streams.HTTP_APPEND_COMMAS", 20)
    (answer,) = front.ask(append("s", body))
    assert (answer[0], kind(answer[2])) == (413, "too_large")
    status, _, answered = ask(front, "PUT", "many", body, content_type=JSON)
    assert (status, kind(answered)) == (413, "too_large")
    assert ask(front, "GET", "many")[0] == 404
    assert stored(front, "s") == before


@pytest.mark.parametrize("body", [b"[1,2,3,4,5]", b'{"a": %s}' % DENSE])
def test_messages_within_the_limits_are_accepted(front, monkeypatch, body):
    monkeypatch.setattr("fourfold.server.streams.HTTP_APPEND_MESSAGES", 5)
    monkeypatch.setattr("fourfold.server.streams.HTTP_APPEND_COMMAS", 20)
    (answer,) = front.ask(append("s", body))
    assert answer[0] == 204


def test_commas_of_other_content_are_not_counted(front, monkeypatch):
    monkeypatch.setattr("fourfold.server.streams.HTTP_APPEND_COMMAS", 20)
    front.streams.create("bytes", "text/plain")
    (answer,) = front.ask(append("bytes", DENSE, "text/plain"))
    assert answer[0] == 204
