"""Access to a server: required keys, and accepted host names."""

from __future__ import annotations

import itertools

import pytest
from both_fronts import JSON, Front, append, request, stored

from fourfold import settings
from fourfold.cli import main
from fourfold.errors import InvalidConfig
from fourfold.server.auth import Access
from fourfold.server.hosts import Hosts

numbers = itertools.count()


@pytest.fixture(params=[True, False], ids=["fast", "plain"])
def fast(request):
    return request.param


@pytest.fixture
def front(fast, tmp_path):
    made = Front(tmp_path / "store", fast=fast, access=True, hosts=Hosts("auto"))
    made.streams.create("s", JSON)
    yield made
    made.stop()


def ask(front, *, method="POST", path="/v1/stream/s", lines=("Host: localhost",), version="1.1"):
    head = [f"{method} {path} HTTP/{version}", *lines]
    if method == "POST":
        head += [f"Content-Type: {JSON}", "Content-Length: 1"]
    sent = "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + (b"1" if method == "POST" else b"")
    return front.ask(sent)[0]


LOCAL = ["localhost", "LOCALHOST:4437", "a.localhost:1", "127.0.0.1:4437", "127.9.9.9", "[::1]:80"]
FOREIGN = [
    "evil.example",
    "evil.example:4437",
    "localhost.evil.example",
    "10.0.0.1",
    "[::2]",
    "",
    "x",
]


@pytest.mark.parametrize("host", LOCAL)
def test_open_server_accepts_names_of_this_machine(front, host):
    assert ask(front, lines=(f"Host: {host}",))[0] == 204
    assert ask(front, method="GET", lines=(f"Host: {host}",))[0] == 200


@pytest.mark.parametrize("host", FOREIGN)
def test_open_server_refuses_other_names(front, host):
    for method, path in (
        ("POST", "/v1/stream/s"),
        ("GET", "/v1/stream/s"),
        ("DELETE", "/v1/stream/s"),
        ("PUT", "/v1/stream/t"),
        ("GET", "/v1/streams"),
        ("GET", "/metrics"),
        ("GET", "/v1/stream/__ds/subscriptions/a"),
    ):
        # Twice: a remembered head changes nothing.
        for _ in range(2):
            status, _, body = ask(front, method=method, path=path, lines=(f"Host: {host}",))
            assert status == 421, (method, path)
            assert b"not accepted by this server" in body
    assert stored(front, "s") == []


def test_server_with_keys_accepts_any_name(front):
    secret = front.access.add(("read", "write"))[1]
    key = f"Authorization: Bearer {secret}"
    for host in (*LOCAL, *FOREIGN[:3]):
        assert ask(front, lines=(f"Host: {host}", key))[0] == 204
        assert ask(front, lines=(f"Host: {host}",))[0] == 401


def test_named_hosts_are_the_only_ones_with_keys_too(fast, tmp_path):
    front = Front(tmp_path / "store", fast=fast, access=True, hosts=Hosts("A.example, b.example:1"))
    front.streams.create("s", JSON)
    try:
        secret = front.access.add(("read", "write"))[1]
        key = f"Authorization: Bearer {secret}"
        expected = {"a.example": 204, "a.example:9": 204, "B.EXAMPLE": 204, "c.example": 421}
        for host, status in {**expected, "localhost": 204}.items():
            assert ask(front, lines=(f"Host: {host}", key))[0] == status, host
    finally:
        front.stop()


@pytest.mark.parametrize("method", ["POST", "GET"])
def test_request_must_have_exactly_one_host(front, method):
    for lines in ((), ("Host: localhost", "Host: localhost"), ("host: localhost", "HOST: evil")):
        status, headers, _ = ask(front, method=method, lines=lines)
        assert (status, dict(headers)["x-content-type-options"]) == (400, "nosniff"), lines
    assert ask(front, method="GET", lines=("Host: localhost",), version="1.0")[0] == 200
    assert stored(front, "s") == []


def test_hosts_are_parsed_from_the_setting():
    assert Hosts("any").allows("x", is_open=True)
    assert not Hosts("auto").allows(None, is_open=True)
    assert Hosts("auto").allows(None, is_open=False)
    for wrong in ("", " ", "a b", "a,,b", "http://a"):
        with pytest.raises(InvalidConfig):
            Hosts(wrong)


# Keys


def guarded(root, *, require_key="auto"):
    return Access(root, require_key=require_key)


def test_removing_the_last_key_keeps_the_server_closed(front):
    key, secret = front.access.add(("read", "write", "admin"))
    assert ask(front)[0] == 401
    front.access.remove(key.id)
    for method in ("POST", "GET", "DELETE"):
        assert ask(front, method=method)[0] == 401
        lines = ("Host: localhost", f"Authorization: Bearer {secret}")
        assert ask(front, method=method, lines=lines)[0] == 401
    # It stays closed when the key file is lost while it runs.
    for path in front.store.root.glob("server.sqlite*"):
        path.unlink()
    assert ask(front)[0] == 401
    assert stored(front, "s") == []


def test_key_is_required_once_one_was_created(tmp_path):
    access = guarded(tmp_path)
    assert access.keys() == ()
    key, _ = access.add(("read",))
    access.remove(key.id)
    held = Access(tmp_path).keys()
    assert [item.id for item in held] == [""]
    assert Access(tmp_path).stored_keys() == ()
    assert Access(tmp_path, require_key="never").keys() == ()


def test_key_can_be_required_before_there_is_one(tmp_path):
    held = guarded(tmp_path, require_key="always").keys()
    assert [item.id for item in held] == [""]


def test_open_server_requires_an_option_and_a_loopback_address(tmp_path, capsys):
    assert main.run(["key", "add", str(tmp_path / "s")]) == 0
    assert main.run(["serve", str(tmp_path / "s"), "--open", "--host", "0.0.0.0"]) == 6
    assert "--open" in capsys.readouterr().err


def test_settings_of_the_server_are_known():
    assert (settings.ServerSettings().require_key, settings.ServerSettings().hosts) == (
        "auto",
        "auto",
    )


def test_append_to_an_open_server_stays_on_the_fast_path(tmp_path):
    front = Front(tmp_path / "store", fast=True, access=True, hosts=Hosts("auto"))
    front.streams.create("s", JSON)
    try:
        sent = append("s").replace(b"Host: x", b"Host: localhost")
        assert [front.ask(sent)[0][0] for _ in range(2)] == [204, 204]
        assert len(front.server.config.http_protocol_class.heads) == 1
        assert front.ask(request("GET", "s"))[0][0] == 421
    finally:
        front.stop()
