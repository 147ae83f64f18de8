"""Web pages of other origins: refused by default, allowed with `--cors`, on both HTTP paths."""

from __future__ import annotations

import pytest
from both_fronts import JSON, Front, stored

from fourfold.cli import main
from fourfold.errors import InvalidInput
from fourfold.server.hosts import Hosts
from fourfold.server.origins import Origins

APP = "https://app.example"
EVIL = "https://evil.example"


@pytest.fixture(params=[True, False], ids=["fast", "plain"])
def fast(request):
    return request.param


@pytest.fixture
def make_front(fast, tmp_path):
    fronts = []

    def make(*origins):
        front = Front(tmp_path / "store", fast=fast, hosts=Hosts("auto"), origins=Origins(origins))
        front.streams.create("s", JSON)
        fronts.append(front)
        return front

    yield make
    for front in fronts:
        front.stop()


def ask(front, method="POST", path="/v1/stream/s", **headers):
    """Return the status and the headers of a response."""
    names = {"host": "localhost", **headers}
    lines = [f"{method} {path} HTTP/1.1"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in names.items()]
    body = b"1" if method in {"POST", "PUT"} else b""
    lines += [f"content-type: {JSON}", f"content-length: {len(body)}"]
    status, response, _ = front.ask("\r\n".join(lines).encode() + b"\r\n\r\n" + body)[0]
    return status, dict(response)


FOREIGN = [
    {"origin": EVIL},
    {"origin": "null"},
    {"origin": "http://localhost:3000"},
    {"origin": "http://localhost", "sec_fetch_site": "cross-site"},
    {"origin": "http://localhost", "sec_fetch_site": "same-site"},
    {"sec_fetch_site": "cross-site"},
]
OWN = [
    {},
    {"origin": "http://localhost"},
    {"origin": "https://LOCALHOST"},
    {"origin": "https://proxied.example", "sec_fetch_site": "same-origin"},
    {"sec_fetch_site": "none"},
]


@pytest.mark.parametrize("headers", FOREIGN)
def test_foreign_page_cannot_change_anything(make_front, headers):
    front = make_front()
    # The path of the page's own origin is remembered first.
    assert ask(front)[0] == 204
    for method, path in (
        ("POST", "/v1/stream/s"),
        ("POST", "/v1/stream/s/_touch/wait"),
        ("PUT", "/v1/stream/new"),
        ("PATCH", "/v1/stream/s"),
        ("DELETE", "/v1/stream/s"),
        ("PUT", "/v1/stream/__ds/subscriptions/a"),
    ):
        # Twice: a remembered head changes nothing.
        for _ in range(2):
            status, response = ask(front, method, path, **headers)
            assert status == 403, (method, path)
            assert not [name for name in response if name.startswith("access-control")]
    assert stored(front, "s") == [b"1"]
    assert [info.name for info in front.streams.list()] == ["s"]


@pytest.mark.parametrize("headers", FOREIGN)
def test_foreign_page_may_send_read_but_not_see_response(make_front, headers):
    front = make_front()
    status, response = ask(front, "GET", **headers)
    assert (status, response["cross-origin-resource-policy"]) == (200, "same-origin")
    assert not [name for name in response if name.startswith("access-control")]
    status, response = ask(front, "OPTIONS", access_control_request_method="PUT", **headers)
    assert status == 204
    assert not [name for name in response if name.startswith("access-control")]


@pytest.mark.parametrize("headers", OWN)
def test_own_page_and_other_clients_are_accepted(make_front, headers):
    front = make_front()
    for _ in range(2):
        assert ask(front, **headers)[0] == 204
    assert ask(front, "PUT", "/v1/stream/new", **headers)[0] == 201
    assert ask(front, "DELETE", "/v1/stream/new", **headers)[0] == 204


def test_named_origin_is_accepted_and_named_in_the_response(make_front):
    front = make_front(APP, "http://localhost:3000")
    for method in ("POST", "GET", "OPTIONS"):
        for _ in range(2):
            status, response = ask(front, method, origin=APP, sec_fetch_site="cross-site")
            assert status in {200, 204}
            assert response["access-control-allow-origin"] == APP
            assert response["vary"] == "Origin"
            assert response["cross-origin-resource-policy"] == "cross-origin"
        status, response = ask(front, method, origin=EVIL, sec_fetch_site="cross-site")
        assert status == (403 if method == "POST" else status)
        assert "access-control-allow-origin" not in response
    assert "PUT" in ask(front, "OPTIONS", origin=APP)[1]["access-control-allow-methods"]
    # An error can be read as well.
    status, response = ask(front, path="/v1/stream/unknown", origin=APP)
    assert (status, response["access-control-allow-origin"]) == (404, APP)
    assert len(stored(front, "s")) == 2


def test_all_origins_can_be_allowed(make_front, fast):
    front = make_front("*")
    for headers in FOREIGN:
        for method in ("POST", "POST", "GET", "OPTIONS"):
            status, response = ask(front, method, **headers)
            assert status in {200, 204}
            assert response["access-control-allow-origin"] == "*"
            assert "Stream-First-Offset" in response["access-control-expose-headers"]
    assert ask(front, path="/v1/stream/unknown")[1]["access-control-allow-origin"] == "*"
    if fast:
        # These appends stayed on the fast path.
        assert len(front.server.config.http_protocol_class.heads) == len(FOREIGN) + 1


def test_page_with_a_key_needs_an_allowed_origin_too(fast, tmp_path):
    front = Front(tmp_path / "store", fast=fast, access=True, origins=Origins([APP]))
    front.streams.create("s", JSON)
    try:
        key = f"Bearer {front.access.add(('read', 'write'))[1]}"
        assert ask(front, authorization=key)[0] == 204
        assert ask(front, authorization=key, origin=APP)[0] == 204
        assert ask(front, authorization=key, origin=EVIL)[0] == 403
        assert ask(front, origin=APP)[0] == 401
    finally:
        front.stop()


def test_origin_must_be_written_as_browsers_do(tmp_path, capsys):
    for wrong in ("", "app.example", "https://app.example/", "https://app.example/a", "null"):
        with pytest.raises(InvalidInput):
            Origins([wrong])
    assert main.run(["serve", str(tmp_path / "s"), "--cors", "app.example"]) == 2
    assert "app.example" in capsys.readouterr().err
