"""The shop of the demo: orders with branches, a followed stream, and a graph of suppliers."""

from __future__ import annotations

import random
import threading
import time
from typing import Any, Final, cast
from urllib.parse import urlencode

import fourfold
from fourfold.cli.demo.check import expect
from fourfold.client import RemoteSpace, RemoteStore, RemoteStream
from fourfold.errors import MergeConflicted
from fourfold.models.documents.field_merge import THEIRS
from fourfold.models.graphs.records import Kind

DID: Final = "did:web:shop.example"
ORDER: Final = "order:1042"
STREAM: Final = "shop/orders"
VISITS: Final = "shop/visits"
APP: Final = "suppliers"
OWNER: Final = 1
"""Identity that owns the objects of the graph: that of the store itself."""
SESSION: Final = "support/ada-1042"
EVENTS: Final = 240
_BATCH: Final = 8
_PAUSE_S: Final = 0.02
_FOLLOW_S: Final = 30.0

_PRODUCTS: Final = {
    "tea-100": ("Green tea, 100 g", 4.5),
    "tea-250": ("Green tea, 250 g", 9.9),
    "oolong-100": ("Oolong, 100 g", 7.2),
    "cup-7": ("Cup, blue glaze", 12.0),
    "pot-1": ("Teapot, cast iron", 48.0),
}
_CUSTOMERS: Final = (
    ("Ada Lovelace", "London"),
    ("Grace Hopper", "New York"),
    ("Alan Turing", "Manchester"),
    ("Emmy Noether", "Erlangen"),
    ("Srinivasa Ramanujan", "Chennai"),
    ("Katherine Johnson", "Hampton"),
    ("Edsger Dijkstra", "Nuenen"),
    ("Hedy Lamarr", "Vienna"),
)
_SUPPLIERS: Final = {"Uji Tea Fields": ("tea-100", "tea-250"), "Kiln & Co.": ("cup-7", "pot-1")}
_TYPES: Final[tuple[tuple[Kind, str], ...]] = (
    ("parent", "product"),
    ("parent", "supplier"),
    ("attr", "name"),
    ("edge", "supplied_by"),
)
_STATES: Final = ("placed", "paid", "packed", "shipped")

PAGES: Final = (
    (f"document?{urlencode({'did': DID, 'id': ORDER})}", "an order at any commit: drag the bar"),
    (f"merge?{urlencode({'did': DID, 'source': 'wholesale'})}", "a merge that waits for you"),
    (f"stream?{urlencode({'name': STREAM})}", "the stream, live"),
    (f"session?{urlencode({'sid': SESSION})}", "the agent: its turn, tools and tokens"),
    ("pipeline", "runs on Spark, and the tables that they wrote"),
)


def create_suppliers(store: RemoteStore) -> None:
    """Create a graph of products and their suppliers."""
    graph = store.graphs.create(APP, "Suppliers")
    for kind, key in _TYPES:
        graph.register_type(kind, key)
    operations: list[dict[str, Any]] = []
    products: dict[str, int] = {}
    for sku, (name, _price) in _PRODUCTS.items():
        products[sku] = len(operations)
        operations += _named("product", len(operations), name)
    for supplier, skus in _SUPPLIERS.items():
        place = len(operations)
        operations += _named("supplier", place, supplier)
        for sku in skus:
            ends = {"src_parent_id": {"$op": products[sku]}, "dst_parent_id": {"$op": place}}
            operations.append({"op": "edge_create", "type_key": "supplied_by", "payload": ends})
    graph.apply(operations, owner=OWNER, trace_id="demo")


def _named(kind: str, place: int, name: str) -> list[dict[str, Any]]:
    value = {"parent_id": {"$op": place}, "value": name}
    return [
        {"op": "parent_create", "type_key": kind, "payload": {}},
        {"op": "attr_create", "type_key": "name", "payload": value},
    ]


def sell(store: RemoteStore) -> tuple[list[str], dict[str, object]]:
    """Write orders, change them, and merge two branches; the second has a conflict."""
    space = store.space(DID)
    space.transact(
        [
            {"op": "set", "id": f"sku:{sku}", "value": {"name": name, "price": price, "stock": 20}}
            for sku, (name, price) in _PRODUCTS.items()
        ]
    )
    _write_orders(space)
    first = space.history(ORDER)[0].seq
    _write_branches(space)
    clean = space.branches.merge("spring-prices")
    expect("conflicts of spring-prices", len(clean.conflicts), 0)
    try:
        space.branches.merge("discount")
    except MergeConflicted as error:
        conflicts = cast("list[dict[str, Any]]", error.details["conflicts"])
    else:
        conflicts = []
    paths = [path for conflict in conflicts for path in conflict["paths"]]
    expect("conflicts of discount", paths, ["/total"])
    merged = space.branches.merge("discount", resolutions={(ORDER, "/total"): THEIRS})
    assert merged.commit is not None
    order = space[ORDER]
    expect("order after the merge", (order["total"], order["status"]), (67.5, "shipped"))
    then = space.read(ORDER, at=first)
    assert then is not None
    assert then.document is not None
    expect("order at its first commit", then.document["status"], "draft")
    orders, commits = len(space.ids(prefix="order:")), space.seq()
    revisions = len(space.history(ORDER))
    lines = [
        f"{orders} orders, {commits} commits; {ORDER} has {revisions} revisions",
        f"branch spring-prices merged cleanly: {len(clean.operations)} documents",
        f"branch discount had a conflict at /total (70.0 or 67.5); resolved: {order['total']}",
        f"at commit {first} it is still {then.document['status']}; now it is {order['status']}",
    ]
    facts: dict[str, object] = {
        "orders": orders,
        "commits": commits,
        "conflicts": paths,
        "total": order["total"],
    }
    return lines, facts


def _write_orders(space: RemoteSpace) -> None:
    chance = random.Random(7)  # noqa: S311 - the same shop every time
    numbers = range(1030, 1050)
    for number in numbers:
        name, city = chance.choice(_CUSTOMERS)
        sku = chance.choice(list(_PRODUCTS))
        quantity = chance.randint(1, 4)
        order = {
            "customer": {"name": name, "city": city},
            "items": [{"sku": sku, "qty": quantity, "price": _PRODUCTS[sku][1]}],
            "status": "draft",
            "total": round(quantity * _PRODUCTS[sku][1], 2),
        }
        space.set(f"order:{number}", order)
    for number in numbers:
        if f"order:{number}" != ORDER:
            for state in _STATES[: chance.randint(1, len(_STATES))]:
                space.patch(f"order:{number}", [_replace("/status", state)])
    for quantity in range(5, 15):
        total = 4.5 * quantity
        space.patch(ORDER, [_replace("/items/0/qty", quantity), _replace("/total", total)])
    cup = {"sku": "cup-7", "qty": 1, "price": 12.0}
    space.patch(ORDER, [{"op": "append", "path": "/items", "values": [cup]}])
    space.patch(ORDER, [_replace("/total", 75.0), _replace("/status", "paid")])


def _write_branches(space: RemoteSpace) -> None:
    space.branches.create("spring-prices")
    for sku in ("tea-100", "oolong-100"):
        price = round(_PRODUCTS[sku][1] * 0.9, 2)
        space.patch(f"sku:{sku}", [_replace("/price", price)], branch="spring-prices")
    space.patch(ORDER, [_replace("/status", "packed")])
    space.branches.create("discount")
    coupon = {"op": "add", "path": "/coupon", "value": "TEA10"}
    space.patch(ORDER, [_replace("/total", 67.5), coupon], branch="discount")
    space.branches.create("wholesale")
    space.patch("sku:pot-1", [_replace("/price", 36.0)], branch="wholesale")
    space.patch("sku:cup-7", [_replace("/price", 9.0)], branch="wholesale")
    space.patch(ORDER, [_replace("/total", 70.0), _replace("/status", "shipped")])
    space.patch("sku:cup-7", [_replace("/price", 12.5)])


def _replace(path: str, value: object) -> dict[str, object]:
    return {"op": "replace", "path": path, "value": value}


def follow(store: RemoteStore) -> tuple[list[str], dict[str, object]]:
    """Write a stream with an idempotent producer while another thread follows it."""
    orders = store.streams.create(STREAM, "application/json")
    visits = store.streams.create(VISITS, "application/json")
    seen: list[tuple[int, float]] = []
    reader = threading.Thread(target=_follow, args=(orders, seen), daemon=True)
    reader.start()
    chance = random.Random(11)  # noqa: S311 - the same events every time
    sent: dict[int, float] = {}
    repeated = 0
    for batch in range(EVENTS // _BATCH):
        events = [_event(chance, batch * _BATCH + place) for place in range(_BATCH)]
        now = time.monotonic()
        sent |= {event["number"]: now for event in events}
        producer = fourfold.Producer("till-1", 0, batch)
        orders.append(events, producer=producer)
        if batch % 10 == 9:  # A till that saw no response sends again.
            repeated += orders.append(events, producer=producer).duplicate
        visits.append({"page": f"/tea/{chance.randint(1, 9)}"})
        time.sleep(_PAUSE_S)
    reader.join(_FOLLOW_S)
    expect("events that the reader saw", [number for number, _ in seen], list(range(EVENTS)))
    expect("repeated requests that were stored", len(orders), EVENTS)
    delays = sorted(at - sent[number] for number, at in seen)
    middle = delays[len(delays) // 2] * 1_000
    lines = [
        f"{EVENTS} events written; a reader saw each of them once and in order",
        f"from write to reader: {middle:.0f} ms (median)",
        f"{repeated} requests were sent twice and stored once",
    ]
    return lines, {"events": EVENTS, "seen": len(seen), "repeated": repeated}


def _follow(orders: RemoteStream, seen: list[tuple[int, float]]) -> None:
    with orders.follow(timeout=_FOLLOW_S) as follower:
        for chunk in follower:
            now = time.monotonic()
            seen += [(record.value["number"], now) for record in chunk]
            if len(seen) >= EVENTS:
                return


def _event(chance: random.Random, number: int) -> dict[str, Any]:
    sku = chance.choice(list(_PRODUCTS))
    quantity = chance.randint(1, 4)
    return {
        "number": number,
        "order": 2000 + number // 3,
        "sku": sku,
        "amount": round(quantity * _PRODUCTS[sku][1], 2),
        "status": chance.choice(_STATES),
    }
