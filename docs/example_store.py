"""A shop to take pictures of: an hour of work in all four models, written in a few seconds."""

from __future__ import annotations

import random
import struct
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import fourfold
from fourfold import Final, Question, Runtime
from fourfold.models.sessions.runtime import Turn

DID = "did:web:shop.example"
ORDER = "order:1042"
HOUR_S = 3600
PRICES = {"tea-100": 4.5, "tea-210": 6.25, "cup-7": 12.0, "pot-2": 29.5, "mat-4": 8.0}
NAMES = {
    "tea-100": "Green tea",
    "tea-210": "Oolong",
    "cup-7": "Cup",
    "pot-2": "Pot",
    "mat-4": "Mat",
}
PEOPLE = ("Ada Lovelace", "Grace Hopper", "Alan Turing", "Edsger Dijkstra", "Barbara Liskov")


class Clock:
    """The clock of the writers, moved to the past, so that an hour passes in seconds."""

    def __init__(self) -> None:
        self._time_ns = time.time_ns
        self._at_ns = time.time_ns() - HOUR_S * 10**9

    def advance(self, seconds: float) -> None:
        """Let time pass, but not beyond now."""
        self._at_ns = min(self._at_ns + int(seconds * 1e9), self._time_ns())

    def time_ns(self) -> int:
        """Return the time; each reading takes a millisecond."""
        self.advance(0.001)
        return self._at_ns

    def left_s(self) -> float:
        """Return the time until now."""
        return (self._time_ns() - self._at_ns) / 1e9

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let the writers of this process read this clock."""
        clock = self

        class Dates(datetime):
            @classmethod
            def now(cls, tz: Any = None) -> datetime:
                return datetime.fromtimestamp(clock.time_ns() / 1e9, tz or UTC)

        with (
            patch("time.time_ns", self.time_ns),
            patch("fourfold.models.sessions.sessions.datetime", Dates),
            patch("fourfold.models.documents.memory.datetime", Dates),
        ):
            yield


def fill(root: Path) -> None:
    """Write a shop: documents with branches, streams, a graph, sessions, blobs and an archive."""
    clock = Clock()
    with clock.installed(), fourfold.open(root) as store:
        shop = Shop(store, clock)
        shop.write_catalog()
        shop.write_order()
        shop.write_contacts()
        shop.write_memory()
        shop.open_streams()
        shop.write_blobs()
        shop.sell(900)
        shop.run_agents()
        shop.sell(700)
        store.publish()
        shop.branch_out()
        shop.sell(max(60.0, clock.left_s() - 20))


class Shop:
    """The writers of the shop."""

    def __init__(self, store: fourfold.Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._space = store.space(DID)
        self._chance = random.Random(7)  # noqa: S311 - the same pictures every time
        self._number = 1043
        self._seqs = {"till-1": 0, "till-2": 0}

    # Documents

    def write_catalog(self) -> None:
        """Write what the shop sells, and spaces of other shops."""
        for sku, price in PRICES.items():
            self._space.set(f"sku:{sku}", {"name": NAMES[sku], "price": price, "stock": 40})
            self._clock.advance(2)
        for name in ("bakery", "books", "cafe", "flowers", "garden", "music", "toys"):
            space = self._store.space(f"did:web:{name}.example")
            space.set("shop", {"name": name.capitalize(), "open": True})

    def write_order(self) -> None:
        """Write an order, and change it until it is paid."""
        space, step = self._space, self._clock.advance
        customer = {"name": "Ada Lovelace", "city": "London"}
        items = [{"sku": "tea-100", "qty": 4, "price": 4.5}]
        order = {"customer": customer, "items": items, "status": "draft", "total": 18.0}
        space.set(ORDER, order | {"notes": "Ring twice."})
        for quantity in range(5, 15):
            step(6)
            total = 4.5 * quantity
            space.patch(ORDER, [_replace("/items/0/qty", quantity), _replace("/total", total)])
        cup = {"sku": "cup-7", "qty": 1, "price": 12.0}
        space.patch(ORDER, [{"op": "append", "path": "/items", "values": [cup]}])
        step(20)
        space.patch(ORDER, [_replace("/total", 75.0), {"op": "remove", "path": "/notes"}])
        step(9)
        space.patch(ORDER, [_replace("/status", "paid"), _replace("/customer/city", "Paris")])
        step(30)
        space.branches.create("import-fix")
        space.patch("sku:cup-7", [_replace("/name", "Tall cup")], branch="import-fix")
        step(12)
        space.patch(ORDER, [_replace("/status", "packed")])
        space.branches.merge("import-fix")
        space.branches.delete("import-fix")

    def branch_out(self) -> None:
        """Give a discount on a branch while the order goes on, so that they conflict."""
        space, step = self._space, self._clock.advance
        space.branches.create("discount")
        coupon = {"op": "add", "path": "/coupon", "value": "TEA10"}
        space.patch(ORDER, [_replace("/total", 67.5), coupon], branch="discount")
        step(14)
        space.patch("sku:tea-100", [_replace("/price", 4.05)], branch="discount")
        step(20)
        space.patch(ORDER, [_replace("/total", 70.0), _replace("/status", "shipped")])

    def write_memory(self) -> None:
        """Store what an assistant remembers of customers, with values that change and expire."""
        put, step = self._store.memory("assistant").put, self._clock.advance
        cities = ("London", "New York", "Manchester", "Nuenen", "Cambridge")
        for person, city in zip(PEOPLE, cities, strict=True):
            label = person.split()[0].lower()
            put(("users", label), "city", {"name": city})
            put(("users", label), "cart", {"items": 2}, ttl_s=86_400 * 2)
            step(4)
        for drink in ("green tea", "green tea, no sugar", "oolong, and leek soup for lunch"):
            put(("users", "ada"), "taste", {"likes": drink})
            step(30)
        put(("policy",), "refund", {"text": "What arrives broken is refunded up to 70.00."})
        self._store.memory("assistant").forget(("users", "alan"), "cart")

    def write_blobs(self) -> None:
        """Store pictures, texts and a file."""
        put = self._space.blobs.put
        for sku, color in (("tea-100", 110), ("cup-7", 200), ("pot-2", 30)):
            put(picture(color), "image/png", metadata={"name": f"{sku}.png", "sku": sku})
        text = "Brew for two minutes at 80 degrees. Water that boils makes it bitter.\n" * 6
        put(text.encode(), "text/plain", metadata={"name": "brewing.txt"})
        put(b'{"currency": "EUR", "vat": 0.19}', "application/json")
        put(bytes(range(256)) * 90, "application/octet-stream")

    # Streams

    def open_streams(self) -> None:
        """Create streams: orders with a schema in two versions, visits, and logs of the tills."""
        streams = self._store.streams
        orders = streams.create("orders", content_type="application/json")
        text, number = {"type": "string"}, {"type": "number"}
        fields = {"id": text, "sum": number, "status": text, "sku": text}
        orders.set_schema(_schema(fields), routing_key="/id")
        self._sell_one(orders, "sum")
        later = {"id": text, "total": number, "status": text, "sku": text, "currency": text}
        lens = [
            {"op": "rename", "from": "sum", "to": "total"},
            {"op": "add", "name": "currency", "value": "EUR"},
        ]
        orders.set_schema(_schema(later), lens=lens, routing_key="/id")
        orders.configure(retention_seconds=7 * 86400)
        streams.create("visits", content_type="application/json")
        for till in self._seqs:
            streams.create(f"logs/{till}", content_type="text/plain").append("till opened\n")
        streams.create("prices", content_type="application/json").close()

    def sell(self, seconds: float) -> None:
        """Append orders and visits for some time."""
        orders = self._store.streams.open("orders")
        visits = self._store.streams.open("visits")
        while seconds > 0:
            pause = self._chance.expovariate(1 / 9)
            seconds -= pause
            self._clock.advance(pause)
            self._sell_one(orders, "total")
            for _ in range(self._chance.randrange(3)):
                visits.append({"page": f"/tea/{self._chance.randrange(9)}"})
            if self._chance.random() < 0.08:
                sku = self._chance.choice(list(PRICES))
                stock = self._chance.randrange(40)
                self._space.patch(f"sku:{sku}", [_replace("/stock", stock)])

    def _sell_one(self, orders: fourfold.Stream, total: str) -> None:
        self._number += 1
        sku = self._chance.choice(list(PRICES))
        till = self._chance.choice(list(self._seqs))
        order: dict[str, Any] = {
            "id": f"order-{self._number}",
            total: round(PRICES[sku] * self._chance.randrange(1, 5), 2),
            "status": self._chance.choice(("placed", "paid", "shipped")),
            "sku": sku,
        }
        if total == "total":
            order["currency"] = "EUR"
        orders.append(order, producer=fourfold.Producer(till, 1, self._seqs[till]))
        self._seqs[till] += 1

    # Graphs

    def write_contacts(self) -> None:
        """Write customers, their orders, tickets and addresses, with a change of address."""
        graph = self._store.graphs.create("crm", "Customers")
        kinds = ("customer", "order", "product", "ticket", "address", "message")
        types = {name: graph.register_type("parent", name) for name in kinds}
        attrs = {name: graph.register_type("attr", name) for name in ("name", "email", "tier")}
        names = ("placed", "contains", "about", "lives at", "knows")
        edges = {name: graph.register_type("edge", name) for name in names}
        stars = graph.register_type("rating", "stars")

        def add(kind: str, name: str) -> int:
            self._clock.advance(3)
            [made] = graph.insert("parent", [{"type_id": types[kind], "owner_identity": 1}])
            value = {"type_id": attrs["name"], "owner_identity": 1, "parent_id": made}
            graph.insert("attr", [{**value, "value_text": name}])
            return made

        def connect(edge: str, one: int, other: int) -> None:
            row = {"type_id": edges[edge], "owner_identity": 1, "src_parent_id": one}
            graph.insert("edge", [{**row, "dst_parent_id": other}])

        people = [add("customer", name) for name in PEOPLE]
        products = [add("product", NAMES[sku]) for sku in PRICES]
        ada = people[0]
        for attr, text in (("email", "ada@shop.example"), ("tier", "silver")):
            row = {"type_id": attrs[attr], "owner_identity": 1, "parent_id": ada}
            [made] = graph.insert("attr", [{**row, "value_text": text}])
        self._clock.advance(60)
        graph.update("attr", made, {"value_text": "gold"})
        for number, person in enumerate([*people, ada]):
            order = add("order", f"{1038 + number}")
            connect("placed", person, order)
            for product in self._chance.sample(products, 2):
                connect("contains", order, product)
        for city in ("London", "Paris"):
            connect("lives at", ada, add("address", city))
        ticket = add("ticket", "Tea arrived broken")
        connect("about", ticket, ada)
        for text in ("Hello", "Photo of the parcel"):
            connect("about", add("message", text), ticket)
        connect("knows", people[1], ada)
        rating = {"type_id": stars, "owner_identity": 2, "target_parent_id": ada}
        graph.insert("rating", [{**rating, "value_number": 4.6}])

    # Sessions

    def run_agents(self) -> None:
        """Run the turns of agents: one that fails a call, has a child, and is forked."""
        agent = Runtime(self._store.sessions, self._support, budget={"cost": 0.5})
        agent.start({"id": "support/refund-1042", "model": "small-3"})
        for task in (
            "Where is order 1042?",
            "The tea arrived broken. Refund what our policy allows.",
            "67.50 is right. Go on.",
        ):
            agent.run_turn("support/refund-1042", task)
            self._clock.advance(45)
        heads = self._store.sessions.current_view("support/refund-1042").heads
        self._store.sessions.fork("support/refund-1042", {"id": "support/refund-b"}, at=heads[1].id)
        agent.run_turn("support/refund-b", "Offer a voucher instead.")
        for number in range(1039, 1042):
            agent.start({"id": f"support/order-{number}", "model": "small-3"})
            agent.run_turn(f"support/order-{number}", f"Where is order {number}?")
            self._clock.advance(20)
        clerk = Runtime(self._store.sessions, self._ask)
        clerk.start({"id": "support/refund-1044", "model": "small-3"})
        clerk.run_turn("support/refund-1044", "The teapot arrived broken. I want my money back.")
        self._clock.advance(20)
        self._start_turn()

    def _ask(self, _turn: Turn) -> Question:
        return Question("Refund 120.00 for order 1044? It is above my limit of 70.00.")

    def _start_turn(self) -> None:
        """Leave a turn open, as one that is under way."""
        session = self._store.sessions.create({"id": "support/triage", "model": "small-3"})
        task = {"role": "user", "content": "Sort the open tickets by urgency.", "turn_id": 1}
        session.append({"type": "message/appended", "message": task})
        session.append({"type": "turn/started", "turn": {"status": "running"}})
        session.append({"type": "step/started", "step": {"status": "running", "turn_id": 1}})

    def _support(self, turn: Turn) -> Final | None:
        """Work on one step: think, then call a tool, or answer."""
        use = {"input_tokens": 410 * turn.number, "cached_tokens": 300 * (turn.number - 1)}
        turn.use(**use, output_tokens=70 + 9 * turn.number, cost=0.0021 * turn.number)
        if turn.number == 1:
            turn.call("lookup_order", self._tool, 2.1, {"order": "1042", "status": "shipped"})
            return None
        broken = "broken" in str(turn.task)
        if turn.number == 2 and broken:
            policy = "Goods that arrive broken are refunded up to 70.00 by an agent.\n" * 9
            turn.call("search_policy", self._tool, 6.0, policy)
            turn.run_child("Is the claim plausible?", step=self._check)
            return None
        if turn.number == 3 and broken:
            try:
                turn.call("refund", self._refuse)
            except fourfold.errors.CallFailed:
                return None
        self._clock.advance(4.2)
        answers = {
            "Where is order 1042?": "Order 1042 was shipped this morning and arrives tomorrow.",
            "67.50 is right. Go on.": "Done: 67.50 goes back to the card ending in 4242.",
        }
        refused = "The full amount is above what I may refund. I can refund 67.50, or ask a person."
        answer = answers.get(str(turn.task), refused if broken else "It is on its way.")
        turn.say("assistant", answer)
        return Final(answer)

    def _check(self, turn: Turn) -> Final:
        turn.use(input_tokens=380, output_tokens=24, cost=0.0011)
        turn.call("history_of_customer", self._tool, 1.4, {"refunds": 0, "orders": 11})
        turn.say("assistant", "Plausible: the first refund in eleven orders.")
        return Final(True)

    def _tool(self, seconds: float, result: Any) -> Any:
        self._clock.advance(seconds)
        return result

    def _refuse(self) -> None:
        self._clock.advance(2.8)
        raise ValueError("limit_exceeded: 75.0 is above the limit of this agent, 70.0")


def picture(color: int) -> bytes:
    """Return a small PNG: a disc of one color."""
    size = 96
    rows = b""
    for y in range(size):
        rows += b"\0"
        for x in range(size):
            inside = (x - 48) ** 2 + (y - 48) ** 2 < 40**2
            rows += bytes((color, 150, 255 - color)) if inside else b"\xf3\xf4\xf5"
    header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _schema(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }


def _replace(path: str, value: object) -> dict[str, object]:
    return {"op": "replace", "path": path, "value": value}
