"""API keys: open without keys, closed with one, and each key allows only its scopes."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
import time

import pytest
from served_streams import Served

import fourfold
from fourfold.errors import FormatError, InvalidInput, NotFound, Unauthorized
from fourfold.server.auth import Access
from fourfold.server.request import Request

TEXT = "text/plain"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """Return a server that requires keys, with keys by name."""
    root = tmp_path_factory.mktemp("guarded") / "store"
    fourfold.open(root).close()
    access = Access(root)
    keys = {
        "all": access.add(("read", "write", "admin"))[1],
        "reader": access.add(("read",))[1],
        "own": access.add(("read", "write"), prefix="own/")[1],
    }
    server = Served(root)
    server.access, server.keys = access, keys
    server.stream("PUT", "open", b"x", content_type=TEXT, authorization=bearer(keys["all"]))
    yield server
    server.kill()


def bearer(key):
    return f"Bearer {key}"


def status(guarded, key, method, name, body=None, **headers):
    credentials = {} if key is None else {"authorization": bearer(guarded.keys.get(key, key))}
    return guarded.stream(method, name, body, **credentials, **headers).status


@pytest.mark.parametrize(
    ("key", "method", "name", "expected"),
    [
        (None, "GET", "open", 401),
        (None, "GET", "missing", 401),
        ("ff_wrong", "GET", "open", 401),
        ("reader", "GET", "open", 200),
        ("reader", "POST", "open", 403),
        ("reader", "DELETE", "open", 403),
        ("own", "GET", "open", 403),
        ("own", "GET", "missing", 403),
        ("own", "PUT", "own/a", 201),
        ("own", "PUT", "ownership", 403),
        ("own", "DELETE", "own/a", 403),
        ("all", "GET", "missing", 404),
    ],
)
def test_key_allows_only_its_scopes(guarded, key, method, name, expected):
    options = {"content_type": TEXT} if method in {"PUT", "POST"} else {}
    body = b"x" if method == "POST" else None
    assert status(guarded, key, method, name, body, **options) == expected


def test_fork_requires_reading_its_source(guarded):
    forked = {"stream_forked_from": "/v1/stream/open"}
    assert status(guarded, "own", "PUT", "own/fork", **forked) == 403
    hidden = {"stream_forked_from": "%2Fv1%2Fstream%2Fopen"}
    assert status(guarded, "own", "PUT", "own/fork", **hidden) == 403
    assert status(guarded, "all", "PUT", "own/fork", **forked) == 201


TOUCHABLE = json.dumps({"kind": "state-protocol", "touch": {"enabled": True}}).encode()
SCHEMA = b'{"schema": {"type": "object"}}'
WAIT = b'{"keys": [{"entity": "todo"}], "timeout_ms": 0}'
TEMPLATES = b'{"templates": [{"entity": "todo", "fields": {"list": "string"}}]}'


@pytest.mark.parametrize(
    ("method", "suffix", "body", "scope"),
    [
        ("GET", "_details", None, "read"),
        ("GET", "_schema", None, "read"),
        ("POST", "_schema", SCHEMA, "admin"),
        ("GET", "_profile", None, "read"),
        ("POST", "_profile", TOUCHABLE, "admin"),
        ("GET", "_touch", None, "read"),
        ("POST", "_touch/wait", WAIT, "read"),
        ("POST", "_touch/templates", TEMPLATES, "read"),
    ],
)
def test_reserved_path_requires_a_scope_for_its_stream(guarded, method, suffix, body, scope):
    """The key must be for the stream itself and have the scope of the operation."""
    kind = {"content_type": "application/json"}
    for name in ("rules/a", "rules/ab"):
        assert status(guarded, "all", "PUT", name, **kind) in {200, 201}
        assert status(guarded, "all", "POST", f"{name}/_profile", TOUCHABLE, **kind) == 200

    def ask(name, scopes, prefix=""):
        key, guarded.keys["tried"] = guarded.access.add(scopes, prefix=prefix)
        try:
            return status(guarded, "tried", method, f"{name}/{suffix}", body, **kind)
        finally:
            guarded.access.remove(key.id)

    others = tuple({"read", "write", "admin"} - {scope})
    assert ask("rules/a", (scope,)) == 200
    assert ask("rules/a", others) == 403
    assert ask("rules/a", (scope,), "rules/a") == 200
    assert ask("rules/ab", (scope,), "rules/a") == 200
    assert ask("rules/a", (scope,), "rules/ab") == 403
    # The reserved suffix is not part of the name.
    assert ask("rules/a", (scope,), "rules/a/") == 403
    assert ask("rules/a", (scope,), f"rules/a/{suffix}") == 403
    assert ask("missing", others) == 403
    assert ask("missing", (scope,)) == 404
    assert status(guarded, None, method, f"rules/a/{suffix}", body, **kind) == 401


def test_stream_named_like_a_reserved_path_needs_its_own_key(guarded):
    """A method without a reserved route addresses the stream of that name."""
    key, guarded.keys["tried"] = guarded.access.add(("read", "admin"), prefix="rules/n/_schema")
    try:
        for method, expected in (("HEAD", 404), ("DELETE", 404), ("GET", 403), ("POST", 403)):
            assert status(guarded, "tried", method, "rules/n/_schema", SCHEMA) == expected, method
    finally:
        guarded.access.remove(key.id)


def test_lists_and_metrics_need_a_key_but_health_does_not(guarded):
    def ask(path, key=None):
        return guarded.ask("GET", path, None, {"authorization": bearer(key)} if key else {}).status

    keys = guarded.keys
    assert (ask("/health"), ask("/v1/streams"), ask("/metrics")) == (200, 401, 401)
    assert (ask("/v1/streams", keys["own"]), ask("/v1/streams?prefix=own/", keys["own"])) == (
        403,
        200,
    )
    assert (ask("/metrics", keys["reader"]), ask("/metrics", keys["all"])) == (403, 200)


def test_metrics_need_only_their_own_scope(guarded):
    def status_of(path, secret):
        return guarded.ask("GET", path, None, {"authorization": bearer(secret)}).status

    key, secret = guarded.access.add(("metrics",))
    narrow, narrow_secret = guarded.access.add(("metrics",), prefix="own/")
    try:
        assert status_of("/metrics", secret) == 200
        for path in ("/v1/streams", "/v1/streams/totals", "/v1/stream/open"):
            assert status_of(path, secret) == 403, path
        for method in ("PUT", "POST", "DELETE"):
            assert status(guarded, secret, method, "open", b"x", content_type=TEXT) == 403
        # The metrics cover all streams.
        assert status_of("/metrics", narrow_secret) == 403
    finally:
        guarded.access.remove(key.id)
        guarded.access.remove(narrow.id)


def test_running_server_notices_added_and_removed_keys(guarded):
    key, secret = guarded.access.add(("read",))
    guarded.keys["late"] = secret
    assert status(guarded, "late", "GET", "open") == 200
    guarded.access.remove(key.id)
    # A removed key may stay valid for a few milliseconds.
    deadline = time.monotonic() + 30
    while status(guarded, "late", "GET", "open") != 401:
        assert time.monotonic() < deadline


def test_secrets_are_not_stored(guarded):
    files = list(guarded.root.glob("server.sqlite*"))
    data = b"".join(path.read_bytes() for path in files)
    assert guarded.access.stored_keys()[0].sha256.encode() in data
    assert not [secret for secret in guarded.keys.values() if secret.encode() in data]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_bad_keys_are_refused(tmp_path):
    access = Access(tmp_path)
    for scopes in ((), ("everything",)):
        with pytest.raises(InvalidInput):
            access.add(scopes)
    with pytest.raises(NotFound):
        access.remove("unknown")
    for text in ("{", "[]", json.dumps({"keys": [{"id": 1}]})):
        (tmp_path / "access.json").write_text(text)
        with pytest.raises(FormatError):
            Access(tmp_path).keys()


# A server that is reachable from other machines


@pytest.fixture
def reachable(tmp_path):
    """Return a server that listens on every address, with one key."""
    root = tmp_path / "store"
    fourfold.open(root).close()
    access = Access(root)
    key, secret = access.add(("read", "write", "admin"))
    server = Served(root, options=("--host", "0.0.0.0"))
    server.access, server.keys, server.key = access, {"all": secret}, key
    yield server
    server.kill()


def test_reachable_server_stays_closed_after_its_last_key(reachable):
    assert status(reachable, "all", "PUT", "keep", b"x", content_type=TEXT) == 201
    done = command("key", "remove", reachable.root, reachable.key.id)
    assert "This was the last key." in done.stdout
    deadline = time.monotonic() + 30
    while status(reachable, "all", "GET", "keep") != 401:
        assert time.monotonic() < deadline
    for method in ("GET", "HEAD", "PUT", "POST", "DELETE"):
        options = {"content_type": TEXT} if method in {"PUT", "POST"} else {}
        for key in (None, "all"):
            assert status(reachable, key, method, "keep", b"y", **options) == 401, method
    subscription = "/v1/stream/__ds/subscriptions/a"
    for path in ("/v1/streams", "/metrics", "/v1/streams/totals", subscription):
        assert reachable.ask("GET", path).status == 401, path
    assert reachable.ask("GET", "/health").status == 200
    # It stays closed without its file.
    for path in reachable.root.glob("server.sqlite*"):
        path.unlink()
    assert status(reachable, None, "DELETE", "keep") == 401
    reachable.keys["new"] = reachable.access.add(("read",))[1]
    assert status(reachable, "new", "GET", "keep") == 200
    assert status(reachable, None, "GET", "keep") == 401


def command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "fourfold", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=True,
    )


def test_access_that_always_requires_keys_refuses_all_requests(tmp_path):
    access = Access(tmp_path)
    request = Request("POST", "/v1/stream/a", "", {"authorization": "Bearer "}, b"")
    access.require(request, "write", "a", "streams")
    access.always_require()
    for displayed in ("", "Bearer ", "Bearer x", "Basic x"):
        held = Request("POST", "/v1/stream/a", "", {"authorization": displayed}, b"")
        for refused in (
            lambda r=held: access.require(r, "write", "a", "streams"),
            lambda r=held: access.identify(r),
            lambda r=held: access.require(r, "read", "", "streams"),
        ):
            with pytest.raises(Unauthorized):
                refused()
    # The placeholder key is not stored.
    key, _ = access.add(("read",))
    result = Access(tmp_path).keys()
    assert [item.id for item in result] == [key.id]
    assert access.remove(key.id) == 0
    assert Access(tmp_path).stored_keys() == ()


def test_public_paths_need_no_key(guarded):
    for path in ("/health", "/openapi.json", "/v1/stream/__ds/jwks.json"):
        assert guarded.ask("GET", path).status == 200, path
    assert guarded.ask("OPTIONS", "/v1/stream/open").status == 204


ADD_KEYS = """
import sys
from pathlib import Path
from fourfold.server.auth import Access
for number in range(10):
    print(Access(Path(sys.argv[1])).add(("read",), label=str(number))[0].id)
"""


def test_keys_added_by_several_processes_are_all_stored(tmp_path):
    fourfold.open(tmp_path / "store").close()
    command = [sys.executable, "-c", ADD_KEYS, str(tmp_path / "store")]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(4)]
    added = {key for child in children for key in child.communicate()[0].decode().split()}
    assert len(added) == 40
    assert {key.id for key in stored(tmp_path)} == added


def test_removed_key_stays_removed_when_another_process_adds_one(tmp_path):
    fourfold.open(tmp_path / "store").close()
    first, second = Access(tmp_path / "store"), Access(tmp_path / "store")
    revoked, _ = first.add(("read",))
    second.keys()  # This one has read the file before the removal.
    first.remove(revoked.id)
    added, _ = second.add(("read",))
    assert [key.id for key in stored(tmp_path)] == [added.id]


def stored(folder):
    return Access(folder / "store").keys()
