"""`Stream-Expected-Offset`: an append that is accepted only at the expected end."""

from __future__ import annotations

import json

import pytest
from both_fronts import Front, request

from fourfold.models.streams import Offset


@pytest.fixture(scope="module", params=[True, False], ids=["fast", "plain"])
def front(request, tmp_path_factory):
    result = Front(tmp_path_factory.mktemp("front") / "store", fast=request.param)
    yield result
    result.stop()


def post(front, name, body, **headers):
    headers = {"content_type": "text/plain"} | headers
    (answer,) = front.ask(request("POST", name, body, **headers))
    status, response, content = answer
    return status, dict(response), content


def test_append_depends_on_the_end_of_the_stream(front):
    front.streams.create("s", "text/plain")
    status, response, _ = post(front, "s", b"a", stream_expected_offset=Offset(0))
    assert (status, response["stream-next-offset"]) == (204, Offset(1))
    status, response, body = post(front, "s", b"b", stream_expected_offset=Offset(0))
    assert (status, response["stream-next-offset"]) == (412, Offset(1))
    assert json.loads(body)["error"]["kind"] == "precondition_failed"
    assert post(front, "s", b"b", stream_expected_offset=response["stream-next-offset"])[0] == 204
    assert [record.payload for record in front.streams.open("s")] == [b"a", b"b"]


def test_repeated_request_of_a_producer_is_a_duplicate(front):
    front.streams.create("p", "text/plain")
    headers = {"producer_id": "p", "producer_epoch": "0", "producer_seq": "0"}
    for status in (200, 204, 204):
        assert post(front, "p", b"a", stream_expected_offset=Offset(0), **headers)[0] == status
    headers["producer_seq"] = "1"
    assert post(front, "p", b"b", stream_expected_offset=Offset(0), **headers)[0] == 412
    assert len(front.streams.open("p")) == 1


@pytest.mark.parametrize("text", ["-1", "now", "1", "x"])
def test_invalid_expected_offset_is_refused(front, text):
    front.streams.create("i", "text/plain")
    assert post(front, "i", b"a", stream_expected_offset=text)[0] == 400
    assert len(front.streams.open("i")) == 0
