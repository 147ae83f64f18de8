"""The processor time that the frame of the server adds to a request, over a bare ASGI application.

Both are called in this process, without a transport. Both receive the request, call the same
handler and send its reply. The server also checks the head and the source of the request, finds the
route in a table with the routes of all models, decodes the query and the body into Structs, and
adds its headers to the response.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

import fourfold
from fourfold.server.app import StreamsApp
from fourfold.server.models import model_routes
from fourfold.server.request import Reply, Request
from fourfold.server.routes import Ok, Route, RouteTable, bind, decode_arguments
from fourfold.server.streams import StreamProtocol
from fourfold.server.workers import Workers

ROUNDS = 9
REQUESTS = 4_000
PATH = "/v1/bench/did:web:a.example/items/item-1"
QUERY = b"branch=main"
BODY = b'{"name":"item-1","count":3,"tags":["a","b"]}'
HEADERS = [
    (b"host", b"127.0.0.1:4437"),
    (b"user-agent", b"bench"),
    (b"accept", b"*/*"),
    (b"content-type", b"application/json"),
    (b"content-length", str(len(BODY)).encode()),
]

Message = MutableMapping[str, Any]
App = Callable[..., Awaitable[None]]


class Item(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request."""

    name: str
    count: int
    tags: list[str] = []


class ItemQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The query of a request."""

    branch: str = "main"


class Items:
    """Handlers that do nothing but return an item."""

    def routes(self) -> tuple[Route, ...]:
        """Return the routes, which the table has after those of all models."""
        return bind(_ROUTES, self)

    def stop(self) -> None:
        """Do nothing: no request waits."""

    async def get(self, _request: Request, did: str, item: str, query: ItemQuery) -> Reply:
        """Return an item made of the parameters."""
        return Reply(Item(item, len(did), [query.branch]), etag="1")

    async def put(
        self, _request: Request, did: str, item: str, query: ItemQuery, body: Item
    ) -> Reply:
        """Return the body."""
        del did, item, query
        return Reply(body, etag="1")


_PATH = "/v1/bench/{did}/items/{item:name}"
_OK = {200: Ok("The item.", Item)}
_ROUTES = (
    Route("GET", _PATH, Items.get, "get_item", "Get.", "read", _OK, query=ItemQuery),
    Route("PUT", _PATH, Items.put, "put_item", "Put.", "write", _OK, query=ItemQuery, body=Item),
)


def bare_app(items: Items) -> App:
    """Return an application without a route table: it knows the one path, and decodes nothing."""
    query = ItemQuery()
    fixed = Item("item-1", 3, ["a", "b"])

    async def app(scope: Message, receive: Callable[[], Awaitable[Message]], send: App) -> None:
        request = Request(scope["method"], scope["path"])
        _, _, _, did, _, item = scope["path"].split("/", 5)
        await receive()
        if scope["method"] == "GET":
            reply = await items.get(request, did, item, query)
        else:
            reply = await items.put(request, did, item, query, fixed)
        body = msgspec.json.encode(reply.value)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"etag", b'"1"'),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


async def cost_us(app: App, method: str, requests: int) -> float:
    """Return the processor time of a request in microseconds."""
    body = BODY if method == "PUT" else b""
    event = {"type": "http.request", "body": body, "more_body": False}
    statuses = []

    async def receive() -> Message:
        return event

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    start = time.thread_time()
    for _ in range(requests):
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": PATH,
            "raw_path": PATH.encode(),
            "query_string": QUERY,
            "root_path": "",
            "headers": HEADERS if body else HEADERS[:3],
        }
        await app(scope, receive, send)
    taken = time.thread_time() - start
    if set(statuses) != {200}:
        raise RuntimeError(f"{method}: {sorted(set(statuses))}")
    return 1e6 * taken / requests


def routing_us(table: RouteTable, method: str) -> float:
    """Return the processor time to find a route and to decode query and body, in microseconds."""
    body = BODY if method == "PUT" else b""
    request = Request(method, PATH, QUERY.decode(), {}, body)
    start = time.thread_time()
    for _ in range(REQUESTS):
        route = table.find(method, PATH).route
        assert route is not None
        decode_arguments(route, request)
    return 1e6 * (time.thread_time() - start) / REQUESTS


class Costs(NamedTuple):
    """Processor time of a request in microseconds: medians of rounds in turns."""

    routing: float
    """To find the route, and to decode the query and the body."""
    server: float
    """All that the server does between the transport and the handler, and back."""
    bare: float


async def compare(protocol: StreamProtocol, items: Items, method: str) -> Costs:
    """Return the costs of a request with a method."""
    server, bare = StreamsApp(protocol), bare_app(items)
    rounds = [
        Costs(
            routing_us(protocol.routes, method),
            await cost_us(server, method, REQUESTS),
            await cost_us(bare, method, REQUESTS),
        )
        for _ in range(ROUNDS)
    ]
    return Costs(*map(statistics.median, zip(*rounds, strict=True)))


def measure(folder: Path) -> dict[str, Costs]:
    """Return the costs of a GET with a query and of a PUT with a body."""
    items = Items()
    with fourfold.open(folder) as store:
        workers = Workers()
        models = (*model_routes(store, workers), items)
        protocol = StreamProtocol(store.streams, models=models, workers=workers)
        return {method: asyncio.run(compare(protocol, items, method)) for method in ("GET", "PUT")}
