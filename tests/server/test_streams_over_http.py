"""Beyond the conformance suite: exact bytes, bad input, limits, crashes, shutdown."""

from __future__ import annotations

import json
import threading
import uuid

import pytest
from served_streams import Served

import fourfold
from fourfold import limits
from fourfold.cli import main
from support.properties import repeats

JSON = "application/json"


@pytest.fixture
def name(served):
    made = f"s-{uuid.uuid4().hex}"
    assert served.stream("PUT", made, content_type=JSON).status == 201
    return made


def test_message_is_read_as_received(served, name):
    body = b'[{"b":12345678901234567890,"a":1.0, "e":"\\u00e9"} , 1e999,[1,2] ]'
    assert served.stream("POST", name, body, content_type=JSON).status == 204
    read = served.stream("GET", name)
    assert read.text == b'[{"b":12345678901234567890,"a":1.0, "e":"\\u00e9"},1e999,[1,2]]'


@pytest.mark.parametrize(
    "body", [b"{", b"[1,]", b'"\xff"', b"NaN", b"", b"[]", b"[1] 2", b"[" * 5000 + b"]" * 5000]
)
def test_invalid_json_is_refused_and_nothing_is_written(served, name, body):
    before = served.stream("HEAD", name).headers["stream-next-offset"]
    refused = served.stream("POST", name, body, content_type=JSON)
    assert refused.status == 400
    assert json.loads(refused.text)["error"]["kind"] == "invalid_input"
    assert served.stream("HEAD", name).headers["stream-next-offset"] == before


@pytest.mark.parametrize(
    "query",
    [
        "?offset=",
        "?offset=7",
        "?offset=1&offset=2",
        "?offset=x,y",
        "?live=sse",
        "?offset=-1&live=no",
    ],
)
def test_bad_query_is_refused(served, name, query):
    assert served.stream("GET", name, query=query).status == 400


@pytest.mark.parametrize(
    "path", ["/unknown", "/v1/stream/", "/v1/stream/a//b", "/v1/stream/../x", "/v2/x"]
)
def test_unknown_path_is_not_served(served, path):
    assert served.ask("PUT", path, b"x", {"content-type": "text/plain"}).status in {400, 404}


def test_too_large_body_is_refused(served, name):
    body = b'"' + b"x" * (33 << 20) + b'"'
    try:
        status = served.stream("POST", name, body, content_type=JSON).status
    except OSError:
        # The server may end the connection while the body is still on its way.
        status = 413
    assert status == 413
    assert served.stream("GET", name).text == b"[]"


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_append_over_the_transaction_limit_is_too_large(served, name, method):
    """The server reads this body completely, but cannot write it."""
    made = name if method == "POST" else f"{name}-2"
    body = b'"' + b"x" * ((17 << 20) - 2) + b'"'
    answer = served.stream(method, made, body, content_type=JSON)
    assert answer.status == 413
    message = json.loads(answer.text)["error"]
    assert message["kind"] == "too_large"
    assert str(17 << 20) in message["message"]
    assert str(limits.GROUP_BYTES_MAX) in message["message"]
    assert str(served.root) not in answer.text.decode()
    assert served.stream("GET", name).text == b"[]"
    assert served.stream("GET", f"{name}-2").status == 404


def test_security_headers_are_on_every_response(served, name):
    for answer in (
        served.stream("GET", name),
        served.stream("GET", "missing"),
        served.stream("POST", name, b"{", content_type=JSON),
        served.stream("PATCH", name),
        served.ask("OPTIONS", "/v1/stream/x"),
    ):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"


def test_list_is_paged_in_the_order_of_names(served):
    prefix = uuid.uuid4().hex
    for n in range(5):
        served.stream("PUT", f"{prefix}/{n}", content_type="text/plain")
    first = json.loads(served.ask("GET", f"/v1/streams?prefix={prefix}&limit=3").text)
    assert [item["name"] for item in first["streams"]] == [f"{prefix}/{n}" for n in range(3)]
    after = first["next_after"]
    rest = json.loads(served.ask("GET", f"/v1/streams?prefix={prefix}&after={after}").text)
    assert [item["name"] for item in rest["streams"]] == [f"{prefix}/{n}" for n in (3, 4)]
    assert served.ask("GET", "/v1/streams?limit=0").status == 400


def test_name_in_any_language_is_created_listed_and_forked(served):
    name = f"caf%C3%A9-{uuid.uuid4().hex}"
    made = served.stream("PUT", name, b"x", content_type="text/plain")
    assert made.headers["location"].endswith(f"/v1/stream/{name}")
    forked = served.stream("PUT", f"{name}-2", stream_forked_from=f"/v1/stream/{name}")
    assert forked.status == 201
    assert served.stream("GET", f"{name}-2").text == b"x"


@pytest.mark.parametrize("method", ["PUT", "POST", "GET", "HEAD", "DELETE"])
@pytest.mark.parametrize("path", ["%ff", "a/%ED%A0%80", "__ds/subscriptions/%fe"])
def test_path_that_is_not_utf_8_is_refused(served, method, path):
    answer = served.stream(method, path, content_type="text/plain")
    assert answer.status == 400
    assert answer.headers["x-content-type-options"] == "nosniff"
    # The leniently decoded names were not created either.
    assert served.stream("GET", "%EF%BF%BD").status == 404


@pytest.mark.parametrize("query", ["prefix=%ff", "%ff=1"])
def test_query_that_is_not_utf_8_is_refused(served, query):
    assert served.ask("GET", f"/v1/streams?{query}").status == 400


def test_fork_source_that_is_not_utf_8_is_refused(served):
    answer = served.stream("PUT", uuid.uuid4().hex, stream_forked_from="/v1/stream/%ff")
    assert answer.status == 400


@pytest.mark.parametrize("stored", ["{}", "W/{}", '"other", {}', '"a,b" ,W/"c",  W/{}', "*"])
def test_reader_with_the_current_etag_gets_304(served, name, stored):
    etag = served.stream("GET", name).headers["etag"]
    answer = served.stream("GET", name, if_none_match=stored.format(etag))
    assert (answer.status, answer.text) == (304, b"")
    assert answer.headers["etag"] == etag


@pytest.mark.parametrize("stored", ["", '"other"', 'W/"other"', "{}x", '"*"', "W/*"])
def test_reader_with_another_etag_gets_the_content(served, name, stored):
    etag = served.stream("GET", name).headers["etag"].strip('"')
    assert served.stream("GET", name, if_none_match=stored.format(etag)).status == 200


def test_create_with_another_retention_conflicts(served):
    name = uuid.uuid4().hex
    settings = {"content_type": "text/plain", "stream_retention_bytes": "10"}
    assert served.stream("PUT", name, **settings).status == 201
    assert served.stream("PUT", name, **settings).status == 200
    others = ({"stream_retention_bytes": "99"}, {"stream_retention_seconds": "1"})
    for other in others:
        refused = served.stream("PUT", name, **settings | other)
        assert refused.status == 409
        assert b"another retention" in refused.text
    assert served.stream("PUT", name, content_type="text/plain").status == 409


@pytest.mark.parametrize("prefix", ["%F4%8F%BF%BF", "a%F4%8F%BF%BF", "%ED%9F%BF"])
def test_highest_code_points_can_begin_a_name(served, prefix):
    assert served.ask("GET", f"/v1/streams?prefix={prefix}").status == 200


def test_server_without_keys_listens_on_loopback_only(tmp_path, capsys):
    assert main.run(["serve", str(tmp_path / "s"), "--host", "0.0.0.0"]) == 6
    assert "loopback" in capsys.readouterr().err
    assert not (tmp_path / "s").exists()


def test_stopping_server_closes_its_store(tmp_path):
    served = Served(tmp_path / "store")
    served.stream("PUT", "s", b"hello", content_type="text/plain")
    assert served.stop() in {0, -15}
    with fourfold.open(tmp_path / "store") as store:
        assert store.streams.verify() == []
        assert store.streams.open("s").read().records[0].payload == b"hello"


def produce(served, name, producer, acknowledged, stop):
    """Append numbered messages as a producer that repeats unacknowledged requests."""
    seq = 0
    while not stop.is_set():
        body = json.dumps([producer, seq]).encode()
        headers = {
            "content_type": JSON,
            "producer_id": producer,
            "producer_epoch": "0",
            "producer_seq": str(seq),
        }
        try:
            answer = served.stream("POST", name, b"[" + body + b"]", **headers)
        except OSError:
            stop.wait(0.05)
            continue
        assert answer.status in {200, 204}, (answer.status, answer.text)
        acknowledged.append((producer, seq))
        seq += 1


def killed_again_and_again(tmp_path, times):
    served = Served(tmp_path / "store")
    served.stream("PUT", "log", content_type=JSON)
    acknowledged, stop = [], threading.Event()
    threads = [
        threading.Thread(target=produce, args=(served, "log", f"p{n}", acknowledged, stop))
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for n in range(times):
        stop.wait(0.2 + 0.07 * (n % 5))
        served.kill()
        served.start()
    stop.set()
    for thread in threads:
        thread.join()
    served.kill()
    with fourfold.open(tmp_path / "store") as store:
        assert store.streams.verify() == []
        result, offset = [], "-1"
        while True:
            chunk = store.streams.open("log").read(offset)
            result += [tuple(json.loads(record.payload)) for record in chunk.records]
            if chunk.up_to_date:
                break
            offset = f"0000000000000000_{chunk.next_offset:016d}"
    assert set(acknowledged) <= set(result)
    for n in range(4):
        seqs = [seq for producer, seq in result if producer == f"p{n}"]
        # In order, without a gap and without a repetition.
        assert seqs == list(range(len(seqs)))
    return len(acknowledged)


def test_killed_server_has_every_acknowledged_append_once_in_order(tmp_path):
    assert killed_again_and_again(tmp_path, 2) > 10


@pytest.mark.slow
def test_server_killed_many_times_loses_and_repeats_nothing(tmp_path):
    kills = repeats(60)
    assert killed_again_and_again(tmp_path, kills) > 10 * kills
