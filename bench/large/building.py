"""Builds a large store: many spaces and streams, a long document, a long session, a large graph."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

import fourfold
from fourfold.models.streams import StreamOptions
from fourfold.store import Store

BATCH = 1_000
LONG_SPACE = "did:web:large.example"
LONG_DOCUMENT = "order/1"
LONG_SESSION = "long"
BRANCH = "discount"
NEAR_OBJECT = 2
"""An object that an edge of object 1 points at."""
STREAM = "events/{:06}"
SPACE = "did:web:s{:05}.example"
APP = "shop"

Say = Callable[[str], object]


class Size(msgspec.Struct, frozen=True):
    """How much of everything a store has."""

    spaces: int = 10_000
    streams: int = 100_000
    revisions: int = 10_000
    events: int = 100_000
    objects: int = 100_000
    edges: int = 1_000_000

    def scaled(self, scale: float) -> Size:
        """Return a share of everything, at least one batch of each."""
        return Size(*(max(BATCH, round(count * scale)) for count in msgspec.structs.astuple(self)))


def build(root: Path, size: Size, say: Say) -> None:
    """Write the store of a size into `root`."""
    with fourfold.open(root) as store:
        say(f"{size.revisions:,} revisions of a document")
        _write_document(store, size.revisions)
        say(f"{size.events:,} events of a session")
        _write_session(store, size.events)
        say(f"{size.objects:,} objects and {size.edges:,} edges of a graph")
        _write_graph(store, size.objects, size.edges)
        say(f"{size.streams:,} streams")
        asyncio.run(_write_streams(store, size.streams))
        say(f"{size.spaces:,} spaces")
        _write_spaces(store, size.spaces)


def _batches(count: int) -> Iterator[range]:
    for first in range(0, count, BATCH):
        yield range(first, min(first + BATCH, count))


def _write_document(store: Store, revisions: int) -> None:
    space = store.space(LONG_SPACE)
    lines = [{"sku": f"part-{number}", "count": number} for number in range(40)]
    space.set(LONG_DOCUMENT, {"status": "open", "total": 0, "lines": lines})
    for number in range(1, revisions):
        changes = [
            {"op": "replace", "path": "/total", "value": number},
            {"op": "replace", "path": f"/lines/{number % 40}/count", "value": number},
        ]
        space.patch(LONG_DOCUMENT, changes)
    space.branches.create(BRANCH)
    space.patch(LONG_DOCUMENT, [{"op": "replace", "path": "/status", "value": "paid"}])
    discount = [{"op": "replace", "path": "/total", "value": 0}]
    space.patch(LONG_DOCUMENT, discount, branch=BRANCH)


def _write_session(store: Store, events: int) -> None:
    sessions = store.sessions
    sessions.create_session({"id": LONG_SESSION})
    for numbers in _batches(events):
        notes = [{"type": "app/note", "text": f"step {number}"} for number in numbers]
        sessions.append_events(LONG_SESSION, notes)
    for turn in (1, 2):
        said = {"role": "user", "content": f"Question {turn}", "turn_id": turn}
        ended = {"id": turn, "status": "final", "final_ref": f"Answer {turn}"}
        sessions.append_events(
            LONG_SESSION,
            [
                {"type": "message/appended", "message": said},
                {"type": "turn/started", "turn": {"status": "running"}},
                {"type": "turn/put", "turn": ended},
            ],
        )
        sessions.publish_head(LONG_SESSION, {"kind": "turn-final", "turn_id": turn})


def _write_graph(store: Store, objects: int, edges: int) -> None:
    graphs = store.graphs
    app = graphs.register_app(APP, "Shop").app_id
    common = {"owner_identity": 1, "sync_flags": 1}
    customer = {"type_id": graphs.register_type(app, "parent", "customer"), **common}
    bought_with = {"type_id": graphs.register_type(app, "edge", "bought-with"), **common}
    ids = [
        id_
        for numbers in _batches(objects)
        for id_ in graphs.insert_many_parents(app, [customer] * len(numbers))
    ]
    choose = random.Random(1).choice
    for numbers in _batches(edges):
        graphs.insert_many_edges(
            app,
            [
                {
                    **bought_with,
                    "src_parent_id": ids[number % objects],
                    "dst_parent_id": choose(ids) if number else ids[NEAR_OBJECT - 1],
                }
                for number in numbers
            ],
        )


async def _write_streams(store: Store, streams: int) -> None:
    for numbers in _batches(streams):
        await asyncio.gather(
            *(
                store.streams.create_with_options_async(
                    StreamOptions(STREAM.format(number), "application/json"), b'{"n":1}'
                )
                for number in numbers
            )
        )


def _write_spaces(store: Store, spaces: int) -> None:
    for number in range(spaces):
        did = SPACE.format(number)
        store.space(did).set("note", {"n": number})
        # Every open space keeps its files open.
        store.release(did)
