"""Subscriptions over HTTP: signed webhooks with retries, and leases over restarts."""

from __future__ import annotations

import base64
import json
import stat
import time
import uuid

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from served_streams import Served
from webhook_receiver import Receiver

import fourfold
from fourfold.errors import FormatError, Unauthorized
from fourfold.server.auth import Access
from fourfold.server.signing_keys import Keys

JSON = "application/json"
CONTROL = "/v1/stream/__ds"


def ask(served, method, path, body=None, key=None):
    sent_headers = {"content-type": JSON} if body is not None else {}
    if key is not None:
        sent_headers["authorization"] = f"Bearer {key}"
    raw = None if body is None else json.dumps(body).encode()
    answer = served.ask(method, f"{CONTROL}{path}", raw, sent_headers)
    answer.said = json.loads(answer.text) if answer.text else None
    return answer


@pytest.fixture
def area(served):
    """Return a prefix of names that only one test uses."""
    return uuid.uuid4().hex


@pytest.fixture
def alone(tmp_path):
    """Return a server of one test, which may kill it."""
    served = Served(tmp_path / "store")
    yield served
    if served.process.returncode is None:
        served.kill()


@pytest.fixture
def receiver():
    made = Receiver()
    yield made
    made.close()


def subscribe(served, area, **more):
    body = {"pattern": f"{area}/*", "lease_ttl_ms": 1000, **more}
    made = ask(served, "PUT", f"/subscriptions/{area}", body)
    assert made.status == 201, made.text
    return made.said


def append(served, area, name="a"):
    path, sent_headers = f"/v1/stream/{area}/{name}", {"content-type": JSON}
    served.ask("PUT", path, None, sent_headers)
    answer = served.ask("POST", path, b"1", sent_headers)
    assert answer.status == 204
    return answer.headers["stream-next-offset"]


def until(found, seconds=30):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found():
            return
        time.sleep(0.02)
    raise TimeoutError("it did not come to that")


def is_signed(delivery, jwks):
    _, raw, headers = delivery
    stamp, kid, signature = (
        part.partition("=")[2] for part in headers["webhook-signature"].split(",")
    )
    key = next(key for key in jwks["keys"] if key["kid"] == kid)
    public = Ed25519PublicKey.from_public_bytes(base64.urlsafe_b64decode(key["x"] + "=="))
    sent = base64.urlsafe_b64decode(signature + "=" * (-len(signature) % 4))
    public.verify(sent, f"{stamp}.".encode() + raw)
    return abs(time.time() - int(stamp)) < 300


def test_webhook_is_signed_and_its_key_is_published(served, area, receiver):
    made = subscribe(served, area, type="webhook", webhook={"url": receiver.url})
    append(served, area)
    jwks = ask(served, "GET", "/jwks.json")
    assert jwks.headers["content-type"] == "application/jwk-set+json"
    assert made["webhook"]["signing"]["kid"] == jwks.said["keys"][0]["kid"]
    assert is_signed(receiver.wait()[0], jwks.said)
    ask(served, "DELETE", f"/subscriptions/{area}")


def test_failed_webhook_is_retried_and_reported(served, area):
    failing = Receiver((500, {}), (200, {"done": True}))
    subscribe(served, area, type="webhook", webhook={"url": failing.url}, lease_ttl_ms=60_000)
    tail = append(served, area)
    first, second = failing.wait(2)
    # The same wake again, so that its receiver recognizes the duplicate.
    assert first[0]["wake_id"] == second[0]["wake_id"]
    result = f"/subscriptions/{area}"
    until(lambda: ask(served, "GET", result).said["streams"][0]["acked_offset"] == tail)
    assert ask(served, "GET", result).said["status"] == "active"
    failing.close()


def test_redirect_is_not_followed(served, area, receiver):
    astray = Receiver((307, {}, ("location", receiver.url)))
    subscribe(served, area, type="webhook", webhook={"url": astray.url})
    append(served, area)
    astray.wait()
    until(lambda: ask(served, "GET", f"/subscriptions/{area}").said["status"] == "failed")
    assert receiver.calls == []
    ask(served, "DELETE", f"/subscriptions/{area}")
    astray.close()


def test_unacknowledged_webhook_is_repeated_after_a_crash(alone, receiver):
    served = alone
    subscribe(served, "in", type="webhook", webhook={"url": receiver.url}, lease_ttl_ms=2000)
    tail = append(served, "in")
    first = receiver.wait()[0][0]
    served.kill()
    served.start()
    # The same wake again if the response was not stored; after its lease, a new one.
    assert receiver.wait(2)[1][0]["generation"] >= first["generation"]
    until(lambda: receiver.calls[-1][0]["generation"] > first["generation"])
    again = receiver.calls[-1][0]
    body = {
        "wake_id": again["wake_id"],
        "generation": again["generation"],
        "acks": [{"stream": "in/a", "offset": tail}],
        "done": True,
    }
    stale = {**body, "wake_id": first["wake_id"], "generation": first["generation"]}
    late = ask(served, "POST", "/subscriptions/in/callback", stale, first["callback_token"])
    assert (late.status, late.said["error"]["code"]) == (409, "FENCED")
    done = ask(served, "POST", "/subscriptions/in/callback", body, again["callback_token"])
    assert (done.status, done.said) == (200, {"ok": True, "next_wake": False})


def test_number_of_webhooks_in_flight_is_limited(tmp_path, monkeypatch):
    monkeypatch.setenv("FOURFOLD_SERVER_WEBHOOK_CONCURRENCY", "3")
    served, slow = Served(tmp_path / "store"), Receiver((200, {"done": True}))
    slow.gate.clear()
    try:
        for n in range(12):
            body = {"type": "webhook", "pattern": "in/*", "webhook": {"url": slow.url}}
            assert ask(served, "PUT", f"/subscriptions/{n}", body).status == 201
        append(served, "in")
        slow.wait(3)
        slow.gate.set()
        slow.wait(12)
        assert slow.most_inside == 3
        assert {call[0]["subscription_id"] for call in slow.calls} == {str(n) for n in range(12)}
    finally:
        slow.gate.set()
        slow.close()
        served.kill()


def test_lease_survives_a_restart_of_the_server(alone):
    served = alone
    subscribe(served, "in", type="pull-wake", wake_stream="wakes", lease_ttl_ms=60_000)
    tail = append(served, "in")
    claimed = ask(served, "POST", "/subscriptions/in/claim", {"worker": "one"}).said
    served.kill()
    served.start()
    busy = ask(served, "POST", "/subscriptions/in/claim", {"worker": "two"})
    assert (busy.status, busy.said["error"]["current_holder"]) == (409, "one")
    body = {
        "wake_id": claimed["wake_id"],
        "generation": claimed["generation"],
        "acks": [{"stream": "in/a", "offset": tail}],
        "done": True,
    }
    assert ask(served, "POST", "/subscriptions/in/ack", body, claimed["token"]).status == 200
    assert served.stop() in {0, -15}
    with fourfold.open(served.root) as store:
        assert list(store.streams.verify()) == []


def test_token_is_for_one_subscription(served, area):
    for name in (area, f"{area}-2"):
        body = {"type": "pull-wake", "pattern": f"{area}/*", "wake_stream": f"{area}-w"}
        assert ask(served, "PUT", f"/subscriptions/{name}", body).status == 201
    append(served, area)
    claimed = ask(served, "POST", f"/subscriptions/{area}/claim", {"worker": "one"}).said
    body = {"wake_id": claimed["wake_id"], "generation": claimed["generation"]}
    for token in (claimed["token"] + "x", "dst_1.", "", "dst_99.é"):
        refused = ask(
            served, "POST", f"/subscriptions/{area}/ack", body, token.encode().decode("latin-1")
        )
        assert (refused.status, refused.said["error"]["code"]) == (401, "TOKEN_INVALID")
    other = ask(served, "POST", f"/subscriptions/{area}-2/ack", body, claimed["token"])
    assert other.status == 401
    assert ask(served, "POST", f"/subscriptions/{area}/ack", body, claimed["token"]).status == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"type":"webhook","pattern":"x/*"}',
        b'{"type":"email","pattern":"x/*"}',
        b'{"type":"pull-wake","wake_stream":"w"}',
        b'{"type":"pull-wake","wake_stream":"w","pattern":7}',
        b'{"type":"pull-wake","wake_stream":"w","streams":["\xff"]}',
        b'{"type":"pull-wake","wake_stream":"w","pattern":"x/*","lease_ttl_ms":1e99}',
        b"[" * 100_000,
    ],
)
def test_bad_subscription_is_refused(served, body):
    refused = served.ask("PUT", f"{CONTROL}/subscriptions/bad", body, {"content-type": JSON})
    assert refused.status == 400
    assert json.loads(refused.text)["error"]["code"] == "INVALID_REQUEST"
    assert ask(served, "GET", "/subscriptions/bad").status == 404


@pytest.mark.parametrize(
    "url",
    [
        "http://10.0.0.1/hook",
        "https://10.0.0.1/",
        "https://169.254.169.254/latest/meta-data",
        "https://[::ffff:10.0.0.1]/",
        "https://[fd00::1]/",
        "http://example.org/",
        "ftp://example.org/",
        "https://user:secret@example.org/",
        "https://0.0.0.0/",
        "javascript:alert(1)",
        "https://",
        "not an address",
    ],
)
def test_webhook_to_an_internal_address_is_refused(served, url):
    body = {"type": "webhook", "pattern": "x/*", "webhook": {"url": url}}
    refused = ask(served, "PUT", "/subscriptions/inside", body)
    assert (refused.status, refused.said["error"]["code"]) == (400, "WEBHOOK_URL_REJECTED")


@pytest.mark.parametrize("path", ["", "/", "/x", "/subscriptions", "/subscriptions/", "/jwks"])
def test_reserved_path_is_not_a_stream(served, path):
    answer = served.ask("PUT", f"{CONTROL}{path}", b"x", {"content-type": "text/plain"})
    assert answer.status == 404
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_details_count_what_belongs_to_a_stream(served, area):
    subscribe(served, area, type="pull-wake", wake_stream=f"{area}-w")
    append(served, area)
    body_fields = {
        "content-type": JSON,
        "producer-id": "p",
        "producer-epoch": "0",
        "producer-seq": "0",
    }
    served.ask("POST", f"/v1/stream/{area}/a", b'[1,"two"]', body_fields)
    served.ask(
        "PUT", f"/v1/stream/{area}-fork", None, {"stream-forked-from": f"/v1/stream/{area}/a"}
    )
    # The stream is linked on the next read.
    until(lambda: ask(served, "GET", f"/subscriptions/{area}").said["streams"])
    result = json.loads(served.ask("GET", f"/v1/stream/{area}/a/_details").text)
    assert result["rows"] == result["wal_rows"] == result["pending_rows"] == 3
    assert result["size_bytes"] == result["wal_bytes"] == len(b'11"two"')
    assert (result["producers"], result["forks"], result["subscriptions"]) == (1, 1, 1)
    fork = json.loads(served.ask("GET", f"/v1/stream/{area}-fork/_details").text)
    assert fork["forked_from"] == f"{area}/a"
    assert fork["fork_offset"] == result["next_offset"]
    assert served.ask("GET", f"/v1/stream/{area}/none/_details").status == 404
    refused = served.ask("PUT", f"/v1/stream/{area}/_details", b"x", {"content-type": JSON})
    assert refused.status == 400


# Keys


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    root = tmp_path_factory.mktemp("guarded") / "store"
    fourfold.open(root).close()
    access = Access(root)
    server = Served(root)
    server.keys = {
        "all": access.add(("read", "write", "admin"))[1],
        "reader": access.add(("read",))[1],
        "writer": access.add(("write",))[1],
        "own": access.add(("read", "write", "admin"), prefix="own/")[1],
    }
    yield server
    server.kill()


@pytest.mark.parametrize(
    ("key", "body", "expected"),
    [
        (None, {"pattern": "own/*"}, 401),
        ("reader", {"pattern": "own/*"}, 403),
        ("writer", {"pattern": "own/*"}, 403),
        ("own", {"pattern": "own/*"}, 201),
        ("own", {"pattern": "*/own"}, 403),
        ("own", {"pattern": "**"}, 403),
        ("own", {"pattern": "own/**"}, 403),
        ("own", {"pattern": "own/*", "streams": ["other"]}, 403),
        ("own", {"pattern": "own/*", "wake_stream": "other"}, 403),
        ("all", {"pattern": "**"}, 201),
    ],
)
def test_subscriber_must_be_allowed_to_read_followed_streams(guarded, key, body, expected):
    name = uuid.uuid4().hex
    body_fields = {"type": "pull-wake", "wake_stream": "own/wakes", **body}
    answer = ask(guarded, "PUT", f"/subscriptions/{name}", body_fields, guarded.keys.get(key))
    assert answer.status == expected, answer.text


def test_subscription_is_hidden_from_keys_that_may_not_read(guarded):
    keys = guarded.keys
    body = {"type": "pull-wake", "wake_stream": "w", "streams": ["secret"]}
    assert ask(guarded, "PUT", "/subscriptions/hidden", body, keys["all"]).status == 201
    for name in ("hidden", "missing"):
        for method, path, message in (
            ("GET", "", None),
            ("DELETE", "", None),
            ("POST", "/claim", {"worker": "w"}),
            ("POST", "/streams", {"streams": ["own/a"]}),
            ("DELETE", "/streams/secret", None),
        ):
            result = ask(guarded, method, f"/subscriptions/{name}{path}", message, keys["own"])
            assert result.status == 403, (method, path)
            assert ask(guarded, method, f"/subscriptions/{name}{path}", message).status == 401
    assert ask(guarded, "GET", "/subscriptions/hidden", None, keys["reader"]).status == 200
    assert ask(guarded, "GET", "/jwks.json").status == 200


def test_request_without_a_key_learns_nothing(guarded):
    for method, path in (
        ("PUT", "/subscriptions/bad"),
        ("POST", "/subscriptions/bad/claim"),
        ("GET", "/subscriptions/bad"),
        ("GET", "/nothing"),
    ):
        answer = guarded.ask(method, f"{CONTROL}{path}", b"{", {"content-type": JSON})
        assert answer.status == 401, (method, path)


def test_server_with_keys_calls_no_local_webhook(guarded):
    body = {"type": "webhook", "pattern": "x/*", "webhook": {"url": "http://127.0.0.1:9/"}}
    refused = ask(guarded, "PUT", "/subscriptions/local", body, guarded.keys["all"])
    assert (refused.status, refused.said["error"]["code"]) == (400, "WEBHOOK_URL_REJECTED")


def test_details_need_a_key_for_the_stream(guarded):
    def status(key, path):
        credentials = {"authorization": f"Bearer {guarded.keys[key]}"}
        return guarded.ask("GET", f"/v1/stream/{path}/_details", None, credentials).status

    assert (status("own", "own"), status("own", "own/a"), status("all", "own")) == (403, 404, 404)


# The file of the keys


def test_signing_keys_are_created_once_and_private(tmp_path):
    path = tmp_path / "keys.json"
    first, second = Keys(path), Keys(path)
    assert first.kid == second.kid
    assert second.generation("s", first.token("s", 7)) == 7
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [item.name for item in tmp_path.iterdir()] == ["keys.json"]
    with pytest.raises(Unauthorized):
        second.generation("other", first.token("s", 7))


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"webhooks": "00", "tokens": "00"}', "\u00e9"])
def test_file_without_signing_keys_is_refused(tmp_path, text):
    path = tmp_path / "keys.json"
    path.write_text(text)
    with pytest.raises(FormatError):
        Keys(path).token("s", 1)
