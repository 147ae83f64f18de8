"""Contents of pages: rates, writers, distances of branches, types, and how much pages read."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import urlencode

import msgspec
import pytest
from shop_store import DID, ORDER

import fourfold
from fourfold.explorer import values
from fourfold.explorer.explorer import Explorer
from fourfold.server.request import Request
from fourfold.wire.documents import author_of
from server.both_fronts import store_protocol

SPACE = urlencode({"did": DID})


def read(server, path):
    answer = server.ask("GET", path)
    assert answer.status == 200, answer.text
    return json.loads(answer.text)


def read_html(server, path):
    text = server.ask("GET", path, None, {"Accept": "text/html"}).text
    return text if isinstance(text, str) else text.decode()


def test_home_shows_rates_writers_and_the_disk(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        store.space(DID).set(ORDER, {"total": 18})
        producer = fourfold.Producer("till-1", 1, 0)
        store.streams.create("orders", "application/json").append({"n": 1}, producer=producer)
        store.streams.create("visits", "application/json").append({"n": 1})
        protocol = store_protocol(store)
        protocol.add_pages(Explorer(protocol, "store"))
        page = msgspec.json.decode(ask(protocol, "/index.json").body)
        body = ask(protocol, "/").body.decode()
    checks = {check["name"]: check for check in page["checks"]}
    assert checks["Disk"]["finding"].endswith(" free")
    assert page["health"]["started_at_ms"] > 0
    writers = {entry["name"]: entry["by"] for entry in page["recent"]}
    assert writers == {DID: "local", "orders": "till-1", "visits": ""}
    for text in ("serving since", ">By</th>", ">1 commit/h</td>", ">2 records/h</td>"):
        assert text in body


def test_pages_are_loaded_for_the_first_visit(tmp_path):
    loads = []
    with fourfold.open(tmp_path / "store") as store:
        protocol = store_protocol(store)

        def load():
            loads.append(len(loads))
            return Explorer(protocol, "store")

        protocol.pages_loader = load
        for path in ("/livez", "/v1/store", "/openapi.json"):
            ask(protocol, path)
        assert loads == []
        missing = Request("GET", "/v1/spaces/did:web:none.example", headers={"accept": "text/html"})
        page = asyncio.run(protocol.handle(missing))
        assert (page.status, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
        for path in ("/", "/documents", "/index.json"):
            ask(protocol, path)
        assert loads == [0]
        paths = {route.path for route in protocol.routes.routes[: -len(protocol.api_routes)]}
        # A path of both would change its meaning with the first visit.
        assert paths.isdisjoint(route.path for route in protocol.api_routes)


def ask(protocol, path, query=""):
    response = asyncio.run(protocol.handle(Request("GET", path, query)))
    assert response.status == 200, response.body
    return response


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ([0] * 60, ""),
        ([1] + [0] * 59, "1 commit/h"),
        ([23] + [0] * 59, "23 commits/h"),
        ([4] * 60, "4 commits/min"),
        ([38 * 60] * 60, "38 commits/s"),
        ([90] * 60, "1.5 commits/s"),
    ],
)
def test_rate_has_the_unit_that_fits(counts, text):
    assert values.rate(counts, "commit") == text


@pytest.mark.parametrize(
    ("session", "author"),
    [
        ("local:4b925c75fa43488cae8d9a20b12502a0", "local"),
        ("idem:k1:order-7", "k1"),
        ("idem::order-7", "http"),
        ("till-2", "till-2"),
        ("a" * 40, "a" * 23 + "…"),
    ],
)
def test_author_is_named_by_the_session(session, author):
    assert author_of(session) == author


def test_branches_show_how_far_they_are_from_their_parent(shop):
    rows = {row["label"]: row for row in read(shop, f"/branches.json?{SPACE}")["branches"]}
    assert (rows["main"]["ahead"], rows["main"]["missing"]) == (None, None)
    assert (rows["import-fix"]["ahead"], rows["discount"]["ahead"]) == (0, 2)
    assert rows["discount"]["missing"] == 4
    body = read_html(shop, f"/branches?{SPACE}")
    assert ">Ahead</th>" in body
    assert ">Missing</th>" in body


def test_merge_names_the_author_of_each_value(shop):
    page = read(shop, f"/merge.json?{SPACE}&source=discount")
    [order] = [entity for entity in page["entities"] if entity["id"] == ORDER]
    rows = {row["path"]: row["authors"] for row in order["rows"]}
    head = page["outcome"]["base"]["seq"]
    assert rows["/total"]["source"] == {"seq": head + 2, "by": "local"}
    assert rows["/total"]["target"]["by"] == "local"
    assert rows["/coupon"]["target"] is None
    assert f"local, seq {head + 2}" in read_html(shop, f"/merge?{SPACE}&source=discount")


def test_neighbourhood_is_filtered_by_type(shop):
    page = read(shop, "/object.json?app=crm&id=1")
    kinds = page["graph"]["kinds"]
    assert sum(kinds.values()) == len(page["graph"]["nodes"]) - 1
    kind = next(iter(kinds))
    query = urlencode({"app": "crm", "id": 1, "type": kind})
    nodes = read(shop, f"/object.json?{query}")["graph"]["nodes"]
    assert {node["kind"] for node in nodes if node["id"] != 1} == {kind}
    assert len(nodes) == kinds[kind] + 1


def test_pages_of_graphs_need_few_requests(tmp_path):
    """Their number does not grow with the objects, attributes and edges that they show."""
    counts = {}
    with fourfold.open(tmp_path / "store") as store:
        graph = store.graphs.create("crm")
        thing, link = graph.register_type("parent", "thing"), graph.register_type("edge", "link")
        owned = {"owner_identity": 1}
        protocol = store_protocol(store)
        protocol.add_pages(Explorer(protocol, "store"))
        for size in (2, 30):
            ids = graph.insert("parent", [{"type_id": thing, **owned}] * size)
            attrs = [graph.register_type("attr", f"a{size}-{number}") for number in range(size)]
            row = {"parent_id": ids[0], "value_text": "x", **owned}
            graph.insert("attr", [{"type_id": attr, **row} for attr in attrs])
            ends = {"type_id": link, "src_parent_id": ids[0], **owned}
            graph.insert("edge", [{"dst_parent_id": other, **ends} for other in ids[1:]])
            for path, query in (("/app", "app=crm"), ("/object", f"app=crm&id={ids[0]}")):
                counts.setdefault(path, []).append(count_requests(protocol, f"{path}.json", query))
    assert counts["/app"][0] == counts["/app"][1] <= 6
    assert counts["/object"][0] == counts["/object"][1] <= 10


def count_requests(protocol, path, query):
    """Return how many requests of the API a page makes."""
    run, seen = protocol.run, []

    def noting(match, request):
        seen.append(request.path)
        return run(match, request)

    protocol.run = noting
    try:
        ask(protocol, path, query)
    finally:
        protocol.run = run
    return len(seen)
