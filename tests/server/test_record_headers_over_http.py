"""`Stream-Record-Headers`: headers of records over HTTP."""

from __future__ import annotations

import json

import pytest
from both_fronts import Front, request


@pytest.fixture(scope="module", params=[True, False], ids=["fast", "plain"])
def front(request, tmp_path_factory):
    result = Front(tmp_path_factory.mktemp("front") / "store", fast=request.param)
    result.streams.create("s", "text/plain")
    yield result
    result.stop()


def test_records_are_read_with_their_headers(front):
    head = {"content_type": "text/plain", "stream_record_headers": '{"trace": "\\u00e9"}'}
    answers = front.ask(
        request("POST", "s", b"a", **head),
        request("POST", "s", b"b", content_type="text/plain"),
        request("POST", "s", b"c", **head, stream_key="k"),
        answers=3,
    )
    assert [status for status, _, _ in answers] == [204] * 3
    (answer,) = front.ask(request("GET", "s?format=records"))
    rows = json.loads(answer[2])
    assert [row["text"] for row in rows] == ["a", "b", "c"]
    assert [row.get("headers") for row in rows] == [{"trace": "é"}, None, {"trace": "é"}]
    (answer,) = front.ask(request("GET", "s"))
    assert answer[2] == b"abc"


@pytest.mark.parametrize("text", ["{", "[]", '{"a": 1}', '{"": "x"}', "trace=1"])
def test_invalid_headers_are_400(front, text):
    before = front.streams.info("s").next_offset
    head = {"content_type": "text/plain", "stream_record_headers": text}
    (answer,) = front.ask(request("POST", "s", b"x", **head))
    assert answer[0] == 400
    assert front.streams.info("s").next_offset == before
