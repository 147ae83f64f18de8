"""Request bodies: keys are checked first, memory is limited, refused bodies are discarded."""

from __future__ import annotations

import itertools
import time

import pytest
from both_fronts import JSON, Front, append, request, stored

from fourfold import limits
from fourfold.errors import Busy
from fourfold.models.streams.subscriptions import Subscribe
from fourfold.server.budget import BodyBudget

numbers = itertools.count()
MIB = 1 << 20


@pytest.fixture(params=[True, False], ids=["fast", "plain"])
def fast(request):
    return request.param


@pytest.fixture
def total():
    """Return the memory for bodies; some tests override it."""
    return limits.HTTP_BODY_BYTES_IN_FLIGHT


@pytest.fixture
def front(fast, tmp_path, total):
    made = Front(tmp_path / "store", fast=fast, access=True, budget=BodyBudget(total))
    made.keys = {
        "all": made.access.add(("read", "write", "admin")),
        "other": made.access.add(("read", "write", "admin")),
        "reader": made.access.add(("read",)),
    }
    made.streams.create("s", JSON)
    yield made
    made.stop()


def bearer(front, name):
    return f"Bearer {front.keys[name][1]}"


def until(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.01)


def head_of(sent):
    return sent.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"


BODY = b'"' + b"x" * 998 + b'"'


@pytest.mark.parametrize("method", ["POST", "PUT"])
@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize(("key", "status"), [(None, 401), ("wrong", 401), ("reader", 403)])
def test_key_is_checked_before_the_body_is_read(front, method, framing, key, status):
    options = {"content_type": JSON}
    if key is not None:
        options["authorization"] = bearer(front, key) if key in front.keys else "Bearer ff_wrong"
    sent = request(method, "s", BODY, chunks=100 if framing == "chunked" else None, **options)
    with front.connect() as connection:
        connection.send(head_of(sent))
        assert connection.answer()[0] == status
        # The body is still read, up to a limit, so that the next request can follow.
        connection.send(sent[len(head_of(sent)) :])
        connection.send(append("s", b"1", authorization=bearer(front, "all")))
        assert connection.answer()[0] == 204
    assert stored(front, "s") == [b"1"]


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_unwanted_body_gets_no_continue(front, method):
    sent = request(method, "s", BODY, content_type=JSON, expect="100-continue")
    with front.connect() as connection:
        connection.send(head_of(sent))
        assert connection.answer()[0] == 401


def test_refused_body_takes_no_memory(front):
    sent = request("POST", "s", b'"' + b"x" * 8 * MIB + b'"', content_type=JSON)
    with front.connect() as connection:
        connection.send(sent[:-1])
        assert connection.answer()[0] == 401
        assert front.protocol.budget.held == 0
        connection.send(sent[-1:] + append("s", b"1", authorization=bearer(front, "all")))
        assert connection.answer()[0] == 204
    assert stored(front, "s") == [b"1"]


def test_refused_body_is_not_read_forever(front, monkeypatch):
    monkeypatch.setattr(limits, "HTTP_BODY_MAX", MIB)
    sent = request("POST", "s", b"x" * 64 * MIB, content_type=JSON)
    with front.connect() as connection, pytest.raises(OSError):
        connection.send(sent)
    assert stored(front, "s") == []


@pytest.mark.parametrize("total", [4_000])
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_bodies_in_flight_have_a_budget(front, method):
    options = {"content_type": JSON, "authorization": bearer(front, "all")}
    first, second = (request(method, name, BODY, **options) for name in ("s", "s"))
    with front.connect() as one, front.connect() as two:
        one.send(first[:-300])
        until(lambda: front.protocol.budget.held >= 700)
        two.send(second[:-300])
        status, headers, body = two.answer()
        assert (status, dict(headers)["retry-after"]) == (503, "1")
        assert b'"busy"' in body
        # The share of one key is full; another key has its own.
        with front.connect() as three:
            three.send(
                request(method, "s", BODY, **{**options, "authorization": bearer(front, "other")})
            )
            assert three.answer()[0] in {200, 204}
        one.send(first[-300:])
        assert one.answer()[0] in {200, 204}
        until(lambda: front.protocol.budget.held == 0)
        two.send(second[-300:] + second)
        assert two.answer()[0] in {200, 204}
    assert front.protocol.budget.held == 0


@pytest.mark.parametrize("total", [1_200])
def test_bodies_of_several_keys_share_the_budget(front):
    front.protocol.budget.share = 1_000
    sent = [append("s", BODY, authorization=bearer(front, key)) for key in ("all", "other")]
    with front.connect() as one, front.connect() as two:
        one.send(sent[0][:-300])
        until(lambda: front.protocol.budget.held >= 700)
        two.send(sent[1][:-300])
        assert two.answer()[0] == 503
        one.send(sent[0][-300:])
        assert one.answer()[0] == 204
    assert stored(front, "s") == [BODY]


def test_budget_is_released_when_the_client_disconnects(front):
    sent = append("s", BODY, authorization=bearer(front, "all"))
    for method in ("POST", "PUT"):
        with front.connect() as connection:
            connection.send(sent.replace(b"POST", method.encode())[:-300])
            until(lambda: front.protocol.budget.held >= 700)
        until(lambda: front.protocol.budget.held == 0)
    assert stored(front, "s") == []


CALLBACK = "__ds/subscriptions/a/callback"


def worker_token(front):
    """Create the subscription `a` and return a token for its workers."""
    front.streams.create("wakes", JSON)
    front.streams.subscriptions.create(
        Subscribe("a", "pull-wake", None, ["s"], wake_stream="wakes", address="http://x")
    )
    return f"Bearer {front.protocol.control._keys.token('a', 0)}"


@pytest.mark.parametrize("path", [CALLBACK, "__ds/subscriptions/a/ack", CALLBACK + "/jwks.json"])
@pytest.mark.parametrize("token", [None, "Bearer dst_1.wrong"])
def test_token_of_worker_is_checked_before_body_is_read(front, path, token):
    worker_token(front)
    options = {} if token is None else {"authorization": token}
    sent = request("POST", path, BODY, content_type=JSON, **options)
    with front.connect() as connection:
        connection.send(head_of(sent) + BODY[:-300])
        assert connection.answer()[0] == 401
        assert front.protocol.budget.held == 0


@pytest.mark.parametrize("total", [4_000])
def test_bodies_of_workers_share_one_part_of_the_budget(front):
    sent = request("POST", CALLBACK, BODY, content_type=JSON, authorization=worker_token(front))
    with front.connect() as one, front.connect() as two:
        one.send(sent[:-300])
        until(lambda: front.protocol.budget.held >= 700)
        two.send(sent[:-300])
        assert two.answer()[0] == 503
        with front.connect() as three:
            three.send(append("s", BODY, authorization=bearer(front, "all")))
            assert three.answer()[0] == 204


@pytest.mark.parametrize("total", [400])
@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/health", 405),
        ("POST", "/openapi.json", 405),
        ("POST", "/v1/stream/__ds/jwks.json", 405),
        ("OPTIONS", "/v1/stream/s", 204),
    ],
)
def test_bodies_of_public_requests_take_no_memory(front, method, path, status):
    sent = request(method, "s", BODY, content_type=JSON)
    sent = sent.replace(b"/v1/stream/s", path.encode(), 1)
    with front.connect() as connection:
        connection.send(sent + append("s", b"1", authorization=bearer(front, "all")))
        assert [connection.answer()[0] for _ in range(2)] == [status, 204]
    assert front.protocol.budget.held == 0


def test_budget_counts_what_each_body_holds():
    budget = BodyBudget(100)
    one, two, free = budget.lease("one"), budget.lease("two"), budget.lease(None)
    one.hold(25)
    with pytest.raises(Busy):
        one.hold(26)
    with pytest.raises(Busy):
        budget.lease("one").hold(1)
    two.hold(25)
    free.hold(50)
    with pytest.raises(Busy):
        free.hold(51)
    one.release()
    one.release()
    free.hold(75)
    assert budget.held == 100
    two.release()
    free.release()
    assert budget.held == 0
    budget.lease("one").hold(25)
