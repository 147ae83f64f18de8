"""Search and aggregates of a stream over HTTP, by the client, and on the command line."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from both_fronts import Front

from fourfold.cli import main
from fourfold.client import connect

LOGS = [
    {"service": "auth" if number % 2 else "pay", "n": number, "message": f"slow plan {number}"}
    for number in range(20)
]


@pytest.fixture(scope="module")
def front(tmp_path_factory):
    root = tmp_path_factory.mktemp("search") / "store"
    front = Front(root, fast=True, access=True, store_settings={"archive.seal_rows": 4})
    stream = front.streams.create("team/logs", "application/json")
    stream.append(LOGS[:15])
    front.store.archive.round(everything=True)
    stream.append(LOGS[15:19])
    stream.append(LOGS[19:], headers={"trace": "t-1"})
    front.secrets = {prefix: front.access.add(("read",), prefix)[1] for prefix in ("", "other/")}
    yield front
    front.stop()


def ask(front, method, path, body=None, key=""):
    data = b"" if body is None else json.dumps(body).encode()
    head = (
        f"{method} /v1/stream/team/logs/{path} HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: Bearer {front.secrets[key]}\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    [(status, _, answer)] = front.ask(head.encode() + data)
    return status, json.loads(answer)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_search_pages_through_segments_and_log(front, method):
    numbers, after = [], None
    while True:
        options = {"q": "service:auth slow", "limit": 3, "total": True}
        if after is not None:
            options["after"] = after
        if method == "GET":
            where = quote(json.dumps({"n": {"$gte": 3}}))
            query = "&".join(
                f"{k}={quote(str(v).lower() if v is True else str(v))}" for k, v in options.items()
            )
            status, page = ask(front, "GET", f"_search?{query}&where={where}")
        else:
            status, page = ask(front, "POST", "_search", {**options, "where": {"n": {"$gte": 3}}})
        assert status == 200, page
        if after is None:
            assert page["total"] == {"value": 9, "exact": True}
        numbers += [item["value"]["n"] for item in page["items"]]
        assert page["coverage"]["complete"]
        after = page["next"]
        if after is None:
            break
    assert numbers == [19, 17, 15, 13, 11, 9, 7, 5, 3]
    item = page["items"][0]
    assert item["snippets"]["message"] == {"text": item["value"]["message"], "highlights": [[0, 4]]}
    assert page["coverage"]["segments_scanned"] > 0


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_aggregate_groups_and_measures(front, method):
    if method == "GET":
        status, result = ask(front, "GET", "_aggregate?by=service&measure=count&measure=sum(n)")
    else:
        body = {"by": ["service"], "measures": ["count", "sum(n)"]}
        status, result = ask(front, "POST", "_aggregate", body)
    assert status == 200, result
    assert result["columns"] == ["service", "count", "sum(n)"]
    assert result["rows"] == [
        {"service": "auth", "count": 10, "sum(n)": 100},
        {"service": "pay", "count": 10, "sum(n)": 90},
    ]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "_search?q=(", None),
        ("GET", "_search?where=%7B", None),
        ("GET", "_search?limit=0", None),
        ("GET", "_search?unknown=1", None),
        ("GET", "_search?order=oldest", None),
        ("POST", "_search", {"q": "a", "after": "x"}),
        ("POST", "_search", {"where": {"a": {"$no": 1}}}),
        ("POST", "_aggregate", {"every": "soon"}),
        ("POST", "_aggregate", {"measures": ["x"]}),
        ("GET", "_aggregate?measure=x", None),
    ],
)
def test_invalid_requests_are_refused(front, method, path, body):
    status, problem = ask(front, method, path, body)
    assert status == 400, problem


def test_key_of_another_prefix_is_refused(front):
    assert ask(front, "GET", "_search?q=slow", key="other/")[0] == 403
    assert ask(front, "POST", "_aggregate", {}, key="other/")[0] == 403


def test_names_of_streams_do_not_end_in_reserved_paths(front):
    secret = front.access.add(("admin", "write", "read"), "")[1]
    for name in ("a/_search", "a/_aggregate", "a/_compact"):
        sent = (
            f"PUT /v1/stream/{name} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {secret}\r\n\r\n"
        )
        [(status, _, _)] = front.ask(sent.encode())
        assert status == 400


def test_client_returns_what_the_store_returns(front):
    local = front.streams.open("team/logs")
    with connect(f"http://127.0.0.1:{front.port}", front.secrets[""]) as remote:
        stream = remote.streams.open("team/logs")
        assert stream.search("slow auth", limit=4, total=True) == local.search(
            "slow auth", limit=4, total=True
        )
        page = stream.search("plan", order="score", limit=2)
        assert page == local.search("plan", order="score", limit=2)
        assert len(stream.search("plan", timeout_s=float("inf"), limit=3)) == 3
        nothing = stream.aggregate("nothing", by=["service"]).rows.to_arrow()
        assert nothing.column_names == ["service", "count"]
        groups = stream.aggregate(by=["service"], every="1h", where={"n": {"$lt": 9}})
        expected = local.aggregate(by=["service"], every="1h", where={"n": {"$lt": 9}})
        assert (groups.rows, groups.coverage) == (expected.rows, expected.coverage)


def test_commands_search_and_count_a_server(front, capsys):
    root, key = f"http://127.0.0.1:{front.port}", ["--key", front.secrets[""]]
    assert main.run(["stream", "search", root, "team/logs", "n:>=18", "--total", *key]) == 0
    text = capsys.readouterr().out
    assert text.count("slow plan") == 2
    assert "2 messages in total" in text
    assert main.run(["stream", "stats", root, "team/logs", "--by", "service", "--json", *key]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert rows == [{"service": "auth", "count": 10}, {"service": "pay", "count": 10}]
    assert main.run(["stream", "stats", root, "--by", "service", *key]) == 2
