"""Lists about one stream over HTTP: producers, segments and subscriptions."""

from __future__ import annotations

import json

import pytest
from both_fronts import Front

import fourfold
from fourfold import Producer
from fourfold.cli import main
from fourfold.models.streams.archive import sealer
from fourfold.models.streams.subscriptions import Owner, Subscribe

NAME = "team/a b"
PATH = "team/a%20b"
SUBSCRIPTIONS = {
    "all": None,
    "by-name": None,
    "team": Owner("k", "team/"),
    "wide": Owner("k", ""),
}


@pytest.fixture(scope="module")
def front(tmp_path_factory):
    root = tmp_path_factory.mktemp("lists") / "store"
    front = Front(root, fast=True, access=True, store_settings={"archive.seal_rows": 4})
    streams = front.streams
    streams.create("wakes", "application/json")
    streams.create("empty", "application/json")
    stream = streams.create(NAME, "application/json")
    for number in range(10):
        stream.append({"n": number}, producer=Producer(f"p{number % 3}", 1, number // 3))
    front.store.archive.round(everything=True)
    for number in range(10, 16):
        stream.append({"n": number})
    archive = front.store.archive
    options = {"policy": archive.policy, "folder": archive.folder / "local", "now_ms": 7}
    sealer.seal(streams.database, NAME, **options)
    for id_, owner in SUBSCRIPTIONS.items():
        names = [NAME] if id_ == "by-name" else []
        wanted = Subscribe(
            *(id_, "pull-wake", None if names else "team/*", names),
            wake_stream="wakes",
            owner=owner,
        )
        streams.subscriptions.create(wanted)
    stream.append({"n": 16})
    front.secrets = {
        prefix: front.access.add(("read",), prefix)[1] for prefix in ("", "team/", "team/a b/c")
    }
    yield front
    front.stop()


def get(front, path, key=""):
    """Return the status and the body of a list, with the key of a prefix."""
    sent = f"GET /v1/streams/{path} HTTP/1.1\r\nHost: x\r\n"
    if key is not None:
        sent += f"Authorization: Bearer {front.secrets[key]}\r\n"
    [(status, _, body)] = front.ask(f"{sent}\r\n".encode())
    return status, json.loads(body)


def pages(front, path, limit, key=""):
    """Return the items of all pages."""
    items, query = [], f"?limit={limit}"
    while True:
        status, page = get(front, f"{path}{query}", key)
        assert status == 200
        assert len(page["items"]) <= limit
        items += page["items"]
        if page["next_cursor"] is None:
            return items
        query = f"?limit={limit}&cursor={page['next_cursor']}"


def number_of(offset):
    return int(offset.rpartition("_")[2])


@pytest.mark.parametrize("limit", [1, 2, 1000])
def test_producers_have_their_last_append(front, limit):
    items = pages(front, f"producers/{PATH}", limit)
    assert [(row["id"], row["epoch"], row["last_seq"]) for row in items] == [
        *(("p0", 1, 3), ("p1", 1, 2), ("p2", 1, 2)),
    ]
    assert all(row["updated_at_ms"] > 0 for row in items)


@pytest.mark.parametrize("limit", [1, 3, 1000])
def test_segments_cover_the_sealed_records(front, limit):
    items = pages(front, f"segments/{PATH}", limit)
    ends = [(number_of(row["first_offset"]), number_of(row["next_offset"])) for row in items]
    assert ends == [(0, 4), (4, 8), (8, 10), (10, 14)]
    assert [row["location"] for row in items] == ["published"] * 3 + ["local"]
    assert [row["published_at_ms"] is None for row in items] == [False, False, False, True]
    files = front.store.archive.folder.rglob("*.parquet")
    assert items[-1]["size_bytes"] in {path.stat().st_size for path in files}
    assert items[0]["payload_bytes"] == 4 * len(b'{"n":0}')


@pytest.mark.parametrize("limit", [1, 2, 1000])
def test_subscriptions_have_their_cursors(front, limit):
    items = pages(front, f"subscriptions/{PATH}", limit)
    assert [row["id"] for row in items] == sorted(SUBSCRIPTIONS)
    links = {row["id"]: row["link_type"] for row in items}
    assert links == {"all": "glob", "by-name": "explicit", "team": "glob", "wide": "glob"}
    assert {(row["pending"], number_of(row["acked_offset"])) for row in items} == {(1, 16)}
    assert {row["pattern"] for row in items} == {None, "team/*"}
    assert {"webhook_url", "owner_prefix"}.isdisjoint(items[0])


def test_lists_of_an_empty_stream_are_empty(front):
    for verb in ("producers", "segments", "subscriptions"):
        assert get(front, f"{verb}/empty") == (200, {"items": [], "next_cursor": None})
        assert get(front, f"{verb}/missing")[0] == 404
        assert get(front, f"{verb}/empty?cursor=x")[0] == 400
        assert get(front, f"{verb}/empty?limit=0")[0] == 400
    _, page = get(front, f"producers/{PATH}?limit=1")
    # A cursor is for the list of its stream only.
    assert get(front, f"segments/{PATH}?cursor={page['next_cursor']}")[0] == 400
    assert get(front, f"producers/empty?cursor={page['next_cursor']}")[0] == 400


def test_key_sees_subscriptions_that_it_owns_only(front):
    path = f"subscriptions/{PATH}"
    for limit in (1, 2, 1000):
        assert [row["id"] for row in pages(front, path, limit, key="team/")] == ["team"]
    for verb in ("producers", "segments", "subscriptions"):
        assert get(front, f"{verb}/{PATH}", key="team/a b/c")[0] == 403
        assert get(front, f"{verb}/{PATH}", key=None)[0] == 401


def test_command_shows_a_stream(tmp_path, capsys):
    root = str(tmp_path / "store")
    with fourfold.open(root) as store:
        stream = store.streams.create("orders", "application/json")
        stream.append({"id": 1}, producer=Producer("till", 3, 0))
    assert main.run(["stream", "show", root, "orders", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["name"] == "orders"
    assert [(row["id"], row["epoch"]) for row in document["producers"]] == [("till", 3)]
    assert (document["segments"], document["subscriptions"]) == ([], [])
    assert main.run(["stream", "show", root, "orders"]) == 0
    text = capsys.readouterr().out
    assert "orders: application/json, 1 record" in text
    assert "till" in text
    assert "no segments" in text
    assert main.run(["stream", "show", root, "missing"]) == 3
