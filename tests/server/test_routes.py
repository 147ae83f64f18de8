"""The route table: which route answers a request, what it decodes, and who may use it."""

from __future__ import annotations

import subprocess
import sys
from urllib.parse import parse_qsl

import pytest
from both_fronts import Front, store_protocol
from hypothesis import given
from hypothesis import strategies as st

import fourfold
from fourfold.errors import InvalidInput, NotFound
from fourfold.server.request import Request
from fourfold.server.routes import Ok, Route, RouteTable, decode_arguments
from fourfold.wire.store import StoreQuery
from fourfold.wire.streams import ListQuery, ReadQuery

with fourfold.open(":memory:") as store:
    TABLE = store_protocol(store).routes


PUBLIC = {"health", "jwks", "livez", "openapi", "problem", "readyz"}


def test_only_routes_that_reveal_no_data_need_no_key():
    by_scope = {}
    for route in TABLE.routes:
        by_scope.setdefault(route.scope, set()).add(route.operation)
    assert by_scope.pop("public") == PUBLIC
    assert by_scope.pop("token") == {"ack", "callback", "release"}
    assert by_scope.pop("metrics") == {"metrics"}
    assert by_scope.pop("query") == {"list_sql_tables", "run_sql"}
    assert by_scope.pop("sync") == {
        *("sync_heads", "sync_pull", "sync_push", "sync_reconcile", "sync_refusals", "sync_events")
    }
    assert by_scope.pop("audit") == {"list_audit"}
    assert set(by_scope) == {"read", "write", "admin", "owner"}
    # A route for the objects of a name or prefix says so; the others need a key for everything.
    whole = {route.operation for route in TABLE.routes if route.resource == "all"}
    assert whole - PUBLIC - {"ack", "callback", "release"} == {
        *("metrics", "totals", "subscribe", "subscription", "unsubscribe"),
        *("follow", "unfollow", "claim"),
        *("get_activity", "get_key", "get_store", "list_backups", "list_databases"),
        *("create_key", "delete_key", "expire_key", "rotate_key", "list_keys", "list_audit"),
        *("list_runs", "list_tables", "sync_status"),
        *("list_points", "get_point", "list_archive_tables"),
        *("put_upload", "list_uploads", "delete_upload"),
        *("start_job", "list_jobs", "get_job", "cancel_job", "follow_job"),
    }


async def _unused(_request):
    raise AssertionError


def route(method, path, operation, **options):
    return Route(method, path, _unused, operation, "", "public", {200: Ok("")}, **options)


@pytest.mark.parametrize(
    ("path", "operation", "name"),
    [
        ("/v1/stream/a", "read", "a"),
        ("/v1/stream/a/", "read", "a/"),
        ("/v1/stream/a//b", "read", "a//b"),
        ("/v1/stream//a", "read", "/a"),
        ("/v1/stream/a\n", "read", "a\n"),
        ("/v1/stream/a/_schema", "schema", "a"),
        ("/v1/stream/a/_schema/", "read", "a/_schema/"),
        ("/v1/stream/a/_schema\n", "read", "a/_schema\n"),
        ("/v1/stream/a\n/_schema", "schema", "a\n"),
        ("/v1/stream/__dsx", "read", "__dsx"),
    ],
)
def test_paths_are_matched_whole_and_never_normalized(path, operation, name):
    match = TABLE.find("GET", path)
    assert (match.route.operation, match.path_parameters) == (operation, {"name": name})


@pytest.mark.parametrize(
    "path",
    ["/health/", "/health\n", "//health", "/v1/streams/", "/v1/stream", "/v1/stream/__ds", "/"],
)
def test_path_that_only_resembles_a_route_is_not_found(path):
    with pytest.raises(NotFound):
        TABLE.find("GET", path)


def test_method_without_a_reserved_route_addresses_the_stream():
    match = TABLE.find("DELETE", "/v1/stream/a/_schema")
    assert (match.route.operation, match.path_parameters) == ("delete", {"name": "a/_schema"})
    assert TABLE.find("HEAD", "/v1/stream/a/_schema").route.operation == "head"


def test_head_is_answered_by_get_unless_it_has_a_route():
    assert TABLE.find("HEAD", "/health").route.operation == "health"
    assert TABLE.find("HEAD", "/v1/stream/a").route.operation == "head"
    match = TABLE.find("HEAD", "/v1/stream/__ds/subscriptions/a/claim")
    assert (match.route, match.allow()) == (None, "POST, OPTIONS")


def test_first_path_with_the_method_wins():
    table = RouteTable(
        (
            route("GET", "/a/{name:name}/x", "first"),
            route("PUT", "/a/{name:name}/x", "second"),
            route("POST", "/a/{name:name}", "third"),
        )
    )
    assert table.find("PUT", "/a/b/x").route.operation == "second"
    assert table.find("POST", "/a/b/x").path_parameters == {"name": "b/x"}
    match = table.find("DELETE", "/a/b/x")
    assert (match.route, match.allow()) == (None, "GET, PUT, HEAD, OPTIONS")


def decode(text, **options):
    request = Request("GET", "/", text)
    return decode_arguments(route("GET", "/", "x", **options), request)


def test_query_is_decoded_strictly():
    arguments = decode("prefix=a%2F&limit=7", query=ListQuery)
    assert arguments == {"query": ListQuery(prefix="a/", limit=7)}
    for query, message in (
        ("limit=0", "limit: must be from 1 to 1000, got '0'"),
        ("limit=1e2", "limit: must be from 1 to 1000, got '1e2'"),
        ("limit=null", "limit: must be from 1 to 1000, got 'null'"),
        ("order=asc", "unknown parameter 'order'"),
        ("after=a&after=b", "duplicate parameter 'after'"),
        ("after=%FF", "query: must be UTF-8"),
    ):
        with pytest.raises(InvalidInput, match=f"^{message}$"):
            decode(query, query=ListQuery)


def test_a_parameter_in_the_wrong_form_is_explained_in_words():
    with pytest.raises(InvalidInput, match=r"^at: invalid value, got 'yesterday'$") as caught:
        decode("at=yesterday", query=StoreQuery)
    assert "RFC 3339 time or restore point" in caught.value.hint


def test_unknown_parameters_are_ignored_only_where_the_query_allows_them():
    refused = frozenset({"until"})
    assert decode("x=1&key=null", query=ReadQuery, refused_parameters=refused) == {
        "query": ReadQuery(key="null")
    }
    with pytest.raises(InvalidInput, match="unknown parameter 'until'"):
        decode("until=1", query=ReadQuery, refused_parameters=refused)
    for query in ("live=null", "live=SSE", "format="):
        with pytest.raises(InvalidInput, match="must be"):
            decode(query, query=ReadQuery, refused_parameters=refused)


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "plain"])
def test_head_has_the_headers_of_get_and_no_body(fast, tmp_path):
    front = Front(tmp_path / "store", fast=fast)
    front.streams.create("s", "application/json")
    try:
        for path in ("/health", "/v1/streams", "/openapi.json"):
            with front.connect() as connection:
                line = f"{path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
                connection.send(b"HEAD " + line)
                status, head, _ = connection.answer(head=True)
                # The connection goes on, so nothing followed the head.
                connection.send(b"GET " + line)
                answer, got, body = connection.answer()
            assert (status, answer) == (200, 200)
            assert body
            unlike = {"date", "content-length"}
            assert [item for item in head if item[0] not in unlike] == [
                item for item in got if item[0] not in unlike
            ]
    finally:
        front.stop()


WITHOUT_STARLETTE = """
import sys
from urllib.parse import parse_qsl
sys.modules["starlette"] = None
from fourfold.cli import main
sys.exit(main.run(sys.argv[1:]))
"""


def test_only_serving_requires_the_web_framework(tmp_path):
    def run(*arguments):
        command = [sys.executable, "-c", WITHOUT_STARLETTE, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    root = str(tmp_path / "store")
    assert run("--help").returncode == 0
    assert run("key", "add", root).returncode == 0
    served = run("serve", root)
    assert "missing_dependency" in served.stderr
    assert "fourfold[server]" in served.stderr


@given(query=st.text(alphabet="ab=&;+%20é", max_size=12))
def test_query_is_parsed_like_a_form(query):
    try:
        expected = parse_qsl(query, keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        with pytest.raises(InvalidInput, match="must be UTF-8"):
            Request("GET", "/", query).parameters()
        return
    if len(dict(expected)) == len(expected):
        assert Request("GET", "/", query).parameters() == dict(expected)
    else:
        with pytest.raises(InvalidInput, match="duplicate parameter"):
            Request("GET", "/", query).parameters()
