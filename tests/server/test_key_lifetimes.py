"""Expiry, rotation, last use and quotas of keys, in process and over both fronts."""

from __future__ import annotations

import asyncio
import json
import threading

import both_fronts
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fourfold
from fourfold.cli import main
from fourfold.errors import InvalidInput, NotFound, QuotaExceeded, Unauthorized
from fourfold.explorer.explorer import Explorer
from fourfold.server import auth, key_use
from fourfold.server.auth import Access
from fourfold.server.key_store import SCOPES
from fourfold.server.key_use import KeyUse, TokenBucket
from fourfold.server.request import Request
from fourfold.server.streams import StreamProtocol

DAY = 86_400


@pytest.fixture
def root(tmp_path):
    fourfold.open(tmp_path / "store").close()
    return tmp_path / "store"


@pytest.fixture
def clock(monkeypatch):
    """The time of day, which only the test advances."""

    class Clock:
        now_s = 1_784_000_000.0

        def time_ns(self):
            return int(self.now_s * 1e9)

        def monotonic(self):
            return self.now_s

    made = Clock()
    monkeypatch.setattr(auth, "time", made)
    return made


def sent(secret):
    return Request("GET", "/v1/key", "", {"authorization": f"Bearer {secret}"})


def accepts(access, secret):
    try:
        access.identify(sent(secret))
    except Unauthorized:
        return False
    return True


def test_key_is_refused_from_its_expiry_on(root, clock):
    with Access(root) as access:
        key, secret = access.add(("read",), expires_in_s=60)
        _, other = access.add(("read",))
        clock.now_s += 59.9
        assert accepts(access, secret)
        clock.now_s += 0.1
        assert not accepts(access, secret)
        assert accepts(access, other)
        with pytest.raises(Unauthorized, match=f"key {key.id}: has expired"):
            access.identify(sent(secret))
        assert len(access.keys()) == 1
        assert len(access.stored_keys()) == 2


def test_server_stays_closed_when_its_last_key_has_expired(root, clock):
    with Access(root) as access:
        access.add(("read",), expires_in_s=60)
        clock.now_s += 61
        (placeholder,) = access.keys()
        assert placeholder.id == ""


def test_valid_keys_are_the_same_tuple_until_one_expires(root, clock, monkeypatch):
    # Cached heads of appends compare the tuple by identity.
    monkeypatch.setattr("fourfold.server.key_store.FILE_CLOCK_NS", -(10**18))
    with Access(root) as access:
        access.add(("read",))
        access.add(("read",), expires_in_s=60)
        before = access.keys()
        clock.now_s += 1
        assert access.keys() is before
        clock.now_s += 60
        assert len(access.keys()) == 1


def test_rotated_key_is_accepted_until_the_overlap_ends(root, clock):
    with Access(root) as access:
        old, secret = access.add(
            *(("read", "write"), "shop/", "till"), requests_per_s=5, bytes_per_day=100
        )
        new, successor = access.rotate(old.id, overlap_s=DAY)
        assert (new.replaces, new.label, set(new.grants)) == (old.id, "till", set(old.grants))
        assert (new.requests_per_s, new.bytes_per_day, new.expires_at_ms) == (5, 100, None)
        assert accepts(access, secret)
        assert accepts(access, successor)
        clock.now_s += DAY
        assert not accepts(access, secret)
        assert accepts(access, successor)


def test_rotation_never_prolongs_the_old_key_and_repeats_its_lifetime(root, clock):
    with Access(root) as access:
        old, _ = access.add(("read",), expires_in_s=3_600)
        new, _ = access.rotate(old.id, overlap_s=DAY)
        ends = {key.id: key.expires_at_ms for key in access.stored_keys()}
        assert ends[old.id] == old.expires_at_ms
        assert ends[new.id] == int((clock.now_s + 3_600) * 1000)
        last, _ = access.rotate(new.id, expires_in_s=60)
        assert last.expires_at_ms == int((clock.now_s + 60) * 1000)
        assert not access.find(new.id).expires_at_ms > clock.now_s * 1000


def test_expiry_can_be_set_moved_and_removed(root, clock):
    with Access(root) as access:
        key, secret = access.add(("read",))
        access.expire(key.id)
        assert not accepts(access, secret)
        access.expire(key.id, 60)
        assert accepts(access, secret)
        access.expire(key.id, None)
        clock.now_s += 100 * DAY
        assert accepts(access, secret)


def test_wrong_lifetimes_and_quotas_are_refused_before_anything_is_stored(root):
    with Access(root) as access:
        for options in (
            {"expires_in_s": 0},
            {"expires_in_s": float("nan")},
            {"expires_in_s": 1e12},
            {"requests_per_s": 0},
            {"requests_per_s": float("nan")},
            {"bytes_per_day": 0},
        ):
            with pytest.raises(InvalidInput):
                access.add(("read",), **options)
        assert access.stored_keys() == ()
        key, _ = access.add(("read",))
        with pytest.raises(InvalidInput):
            access.rotate(key.id, overlap_s=-1)
        with pytest.raises(InvalidInput):
            access.expire(key.id, -1)
        for call in (access.rotate, access.expire, access.find):
            with pytest.raises(NotFound):
                call("unknown")
        assert [stored.id for stored in access.stored_keys()] == [key.id]
        assert access.find(key.id).expires_at_ms is None


def test_last_use_is_written_once_a_day(root, monkeypatch):
    writes = []
    with Access(root) as access:
        key, secret = access.add(("read",))
        access.add(("read",))
        record = access._store.record_uses
        monkeypatch.setattr(
            access._store, "record_uses", lambda ids, day: writes.append(ids) or record(ids, day)
        )
        access.record_uses()
        assert writes == []
        for _ in range(3):
            access.uses.get(access.identify(sent(secret))).admit()
            access.record_uses()
        assert writes == [[key.id]]
        stored = {key.id: key.last_used_on for key in access.stored_keys()}
        assert stored.pop(key.id).startswith("20")
        assert set(stored.values()) == {None}
        # Another server must not set it back.
        record([key.id], "2020-01-01")
        assert access.find(key.id).last_used_on > "2020-01-01"


def test_uses_are_recorded_when_the_server_ends(root):
    with Access(root) as access:
        key, _ = access.add(("read",))
        with access.recording_uses():
            access.uses.get(key).admit()
        assert access.find(key.id).last_used_on is not None
    assert not [item for item in threading.enumerate() if item.name == "fourfold-key-uses"]


@given(
    rate=st.floats(0.01, 1_000),
    capacity=st.floats(1, 1_000),
    steps=st.lists(st.tuples(st.floats(0, 100), st.floats(0, 50)), max_size=30),
)
def test_bucket_never_gives_more_than_its_rate_and_capacity(rate, capacity, steps):
    now = 0.0
    bucket = TokenBucket(rate, capacity, lambda: now)
    tokens = capacity
    for pause, count in steps:
        now += pause
        tokens = min(capacity, tokens + pause * rate)
        wait = bucket.wait_s()
        assert (wait == 0) == (tokens >= 1)
        assert wait == pytest.approx(max(0.0, (1 - tokens) / rate))
        if not wait:
            bucket.take(count)
            tokens -= count


def test_quota_states_the_time_after_which_a_request_is_admitted(root):
    now = 0.0
    with Access(root) as access:
        key, _ = access.add(("read",), requests_per_s=0.1, bytes_per_day=DAY)
    use = KeyUse(key, lambda: now)
    use.admit()
    with pytest.raises(QuotaExceeded) as caught:
        use.admit()
    assert caught.value.retry_after == 10
    now += 10
    use.admit()
    # One body may overdraw the quota of bytes; the debt delays the next request.
    use.spend(DAY + 100)
    now += 20
    with pytest.raises(QuotaExceeded, match="bytes") as caught:
        use.admit()
    now += caught.value.retry_after
    use.admit()
    assert use.count == 3


# Over HTTP


@pytest.mark.parametrize("fast", [True, False])
def test_requests_beyond_a_quota_get_429_with_retry_after(root, fast):
    with Access(root) as access:
        _, secret = access.add(("read", "write"), requests_per_s=0.001)
    front = both_fronts.Front(root, fast=fast, access=True)
    try:
        front.streams.create("s", "application/json")
        request = both_fronts.append("s", authorization=f"Bearer {secret}")
        read = both_fronts.request("GET", "s", authorization=f"Bearer {secret}")
        with front.connect() as connection:
            answers = []
            for data in (request, request, read):
                connection.send(data)
                answers.append(connection.answer())
        assert [status for status, *_ in answers] == [204, 429, 429]
        for _, headers, body in answers[1:]:
            assert 990 <= int(dict(headers)["retry-after"]) <= 1000
            assert json.loads(body)["error"]["kind"] == "quota_exceeded"
        assert len(both_fronts.stored(front, "s")) == 1
    finally:
        front.stop()


@pytest.mark.parametrize("fast", [True, False])
def test_bytes_of_both_directions_count(root, fast):
    with Access(root) as access:
        _, writer = access.add(("write",), bytes_per_day=1_000)
        _, reader = access.add(("read",), bytes_per_day=1_000)
    front = both_fronts.Front(root, fast=fast, access=True)
    try:
        front.streams.create("s", "text/plain")
        add = both_fronts.append("s", b"x" * 600, "text/plain", authorization=f"Bearer {writer}")
        read = both_fronts.request("GET", "s", authorization=f"Bearer {reader}")
        for data, expected in ((add, [204, 204, 429]), (read, [200, 429])):
            with front.connect() as connection:
                statuses = []
                for _ in expected:
                    connection.send(data)
                    statuses.append(connection.answer()[0])
            assert statuses == expected
    finally:
        front.stop()


class KeyServer:
    """The protocol of a store, called with the secret of a key."""

    def __init__(self, store, access):
        self.protocol = StreamProtocol(store.streams, access=access)

    def ask(self, method, path, body=None, secret=None, once=None):
        headers = {"host": "localhost", "content-type": "application/json"}
        if secret is not None:
            headers["authorization"] = f"Bearer {secret}"
        if once is not None:
            headers["idempotency-key"] = once
        data = b"" if body is None else json.dumps(body).encode()
        response = asyncio.run(self.protocol.handle(Request(method, path, "", headers, data)))
        return response.status, json.loads(response.body)


@pytest.fixture
def server(root):
    with fourfold.open(root) as store, Access(root) as access:
        server = KeyServer(store, access)
        body = {"scopes": list(SCOPES), "label": "operator"}
        server.admin = server.ask("POST", "/v1/keys", body)[1]["key"]
        yield server


def test_rotation_over_http_shows_the_secret_once(server):
    key = server.ask("POST", "/v1/keys", {"scopes": ["read"]}, server.admin)[1]
    path = f"/v1/keys/{key['id']}/rotate"
    status, new = server.ask("POST", path, {"overlap_s": 60}, server.admin, once="r-1")
    assert (status, new["replaces"], new["grants"]) == (201, key["id"], key["grants"])
    assert server.ask("POST", path, {"overlap_s": 60}, server.admin, once="r-1") == (
        201,
        {**new, "key": None},
    )
    assert server.ask("POST", path, {"overlap_s": 61}, server.admin, once="r-1")[0] == 422
    for secret in (key["key"], new["key"]):
        assert server.ask("GET", "/v1/key", secret=secret)[0] == 200
    listed = server.ask("GET", "/v1/keys", secret=server.admin)[1]["keys"]
    assert [row["expires_at_ms"] is None for row in listed] == [True, False, True]
    assert server.ask("POST", "/v1/keys/unknown/rotate", {}, server.admin)[0] == 404


def test_key_that_expires_over_http_is_refused(server):
    key = server.ask("POST", "/v1/keys", {"scopes": ["read"]}, server.admin)[1]
    path = f"/v1/keys/{key['id']}/expire"
    assert server.ask("POST", path, {"after_s": 60}, server.admin)[1]["expires_at_ms"] > 0
    assert server.ask("POST", path, {}, server.admin)[0] == 200
    assert server.ask("GET", "/v1/key", secret=key["key"])[0] == 401
    assert server.ask("POST", path, {"after_s": None}, server.admin)[1]["expires_at_ms"] is None
    assert server.ask("GET", "/v1/key", secret=key["key"])[0] == 200
    own = server.ask("GET", "/v1/key", secret=server.admin)[1]["key"]["id"]
    assert server.ask("POST", f"/v1/keys/{own}/expire", {}, server.admin)[0] == 409


def test_key_that_expires_cannot_prolong_itself_or_exceed_its_quotas(server):
    limits = {"expires_in_s": 600, "requests_per_s": 100, "bytes_per_day": 10_000_000}
    scopes = {"scopes": list(SCOPES)}
    limited = server.ask("POST", "/v1/keys", scopes | limits, server.admin)[1]
    secret, own = limited["key"], limited["id"]
    assert server.ask("POST", "/v1/keys", scopes, secret)[0] == 403
    for name in limits:
        assert server.ask("POST", "/v1/keys", scopes | limits | {name: 10**8}, secret)[0] == 403
        without = {key: value for key, value in limits.items() if key != name}
        assert server.ask("POST", "/v1/keys", scopes | without, secret)[0] == 403
    assert server.ask("POST", f"/v1/keys/{own}/rotate", {}, secret)[0] == 403
    assert server.ask("POST", f"/v1/keys/{own}/rotate", {"expires_in_s": 1e6}, secret)[0] == 403
    for after in (1e6, None):
        assert server.ask("POST", f"/v1/keys/{own}/expire", {"after_s": after}, secret)[0] == 403
    assert server.ask("POST", f"/v1/keys/{own}/expire", {"after_s": 60}, secret)[0] == 200
    smaller = {"expires_in_s": 30, "requests_per_s": 1, "bytes_per_day": 1_000}
    assert server.ask("POST", "/v1/keys", scopes | smaller, secret)[0] == 201


def test_burst_of_a_quota_is_bounded(root):
    with Access(root) as access:
        key, _ = access.add(("read",), requests_per_s=10)
    use = KeyUse(key, lambda: 0.0)
    for _ in range(int(10 * key_use.QUOTA_BURST_S)):
        use.admit()
    with pytest.raises(QuotaExceeded):
        use.admit()


def test_commands_rotate_expire_and_list(root, capsys):
    def run(*arguments):
        assert main.run(["key", *arguments, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    quotas = ("--requests-per-second", "5", "--bytes-per-day", "1000", "--expires-in", "7d")
    old = run("add", str(root), *quotas)
    assert (old["requests_per_s"], old["bytes_per_day"]) == (5, 1000)
    new = run("rotate", str(root), old["id"], "--overlap", "1h")
    assert new["replaces"] == old["id"]
    rows = {row["id"]: row for row in run("list", str(root))["keys"]}
    assert rows[old["id"]]["expires_at_ms"] < old["expires_at_ms"]

    def is_accepted(key):
        with Access(root) as access:
            return accepts(access, key["key"])

    assert is_accepted(old)
    assert run("expire", str(root), old["id"])["expires_at_ms"] is not None
    assert not is_accepted(old)
    assert run("expire", str(root), new["id"], "--never")["expires_at_ms"] is None
    assert is_accepted(new)
    assert main.run(["key", "list", str(root)]) == 0
    shown = capsys.readouterr().out
    assert "5/s, 1000 B/day" in shown
    assert main.run(["key", "rotate", str(root), "unknown"]) == 3


def test_explorer_shows_lifetimes_uses_and_quotas(root):
    with fourfold.open(root) as store, Access(root) as access:
        _, admin = access.add(("read", "admin"))
        protocol = both_fronts.store_protocol(store, access=access)
        protocol.add_pages(Explorer(protocol, "store"))

        def page():
            headers = {"host": "localhost", "cookie": f"fourfold_key={admin}"}
            response = asyncio.run(protocol.handle(Request("GET", "/keys", "", headers)))
            assert response.status == 200
            return response.body.decode()

        limited = {"expires_in_s": 60, "requests_per_s": 2.5, "bytes_per_day": 1_000_000}
        key, _ = access.add(("read",), **limited)
        assert "2.5/s" in page()
        assert "never" in page()
        assert "expired" not in page()
        access.record_uses()
        assert f">{access.stored_keys()[0].last_used_on}<" in page()
        access.expire(key.id)
        assert "expired" in page()
