"""Calls of every public method of the facades, with one argument of a wrong type or value each."""

from __future__ import annotations

import asyncio
import inspect
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, date, datetime
from itertools import islice
from typing import Any, NamedTuple

import apsw

import fourfold
from fourfold.models.documents.gc.policy import GcPolicy
from fourfold.models.documents.memory import Memory
from fourfold.models.graphs.sync.keys import Ed25519Signer
from fourfold.models.streams.append import Append
from fourfold.models.streams.archive import Archive
from fourfold.models.streams.search.request import check_aggregate, check_search
from fourfold.models.streams.settings import SettingsChange
from fourfold.models.streams.writer import StreamOptions

DID = "did:web:a.example"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
STARTED = {"type": "turn/started", "turn": {"status": "running"}}

ODD_FEW = (
    *("\ud800", 1.5, None, -1, 2**70, float("nan"), "", "x", b"x"),
    *([1], [None], {"x": {1, 2}}, {"x"}, object(), NOW.replace(tzinfo=None)),
)
"""Values that most parameters do not accept."""
SAMPLE_SIZE = 2
ODD = (
    *(*ODD_FEW, True, 0, 7, float("-inf"), "a\0b", b"", bytearray(b"x")),
    *([], ["x"], [{}], (), (1, 2), {}, {"x": 1}, {1: 2}, {1, 2}),
    *(date(2026, 1, 1), lambda: None, int, iter([1])),
)
"""The values that the slow suite passes to each parameter."""
CALLABLES = {"before", "callback", "progress", "work"}
"""Parameters with a function of the caller, whose errors are not changed."""


class Facade(NamedTuple):
    """A class of the public API, and how a store leads to an instance of it."""

    cls: type
    instance: Any


FACADES = {
    facade.cls.__name__: facade
    for facade in (
        Facade(fourfold.Store, lambda store: store),
        Facade(fourfold.Documents, lambda store: store.documents),
        Facade(fourfold.Space, lambda store: store.space(DID)),
        Facade(Memory, lambda store: store.memory("m")),
        Facade(fourfold.Streams, lambda store: store.streams),
        Facade(fourfold.Stream, lambda store: store.streams["s"]),
        Facade(fourfold.Graphs, lambda store: store.graphs),
        Facade(fourfold.Graph, lambda store: store.graphs["notes"]),
        Facade(fourfold.Sessions, lambda store: store.sessions),
        Facade(fourfold.Session, lambda store: store.sessions["s"]),
        Facade(Archive, lambda store: store.archive),
    )
}

INTERNAL = {
    "Store": {"lent", "release"},
    "Space": {"background_view", "step_view", "view", "submit", "cached_bytes", "commit_times"},
    "Streams": {
        *("append_soon", "candidates", "check_publishable", "note_schema", "page", "read_clock"),
        "routing_keys_async",
        *("read_joined", "read_joined_from_log", "read_log", "touch", "trim_deleted"),
    },
    "Graphs": {"count", "domains_in", "page", "next_global_seq"},
    "Archive": {"find_unpublished", "expire_backoffs", "running", "turn"},
}
"""Methods for other modules of the package, which pass what they have checked."""

COSTLY = {
    "Store": {"activity", "backup", "overview", "publish", "verify"},
    "Graphs": {"backup"},
    "Archive": {"publish_all", "round", "settle"},
}
"""Methods that take long when they accept an odd argument, and are called with few of them."""

ENDS = {"close", "delete", "delete_async", "delete_session", "release", "vacuum"}
"""Methods after which the instance may not be usable."""

_HEAD = "missing"


def _defaults(method: Any) -> dict[str, Any]:
    """Return the default of each parameter of a method."""
    every = [*inspect.signature(method).parameters.values()][1:]
    return {parameter.name: parameter.default for parameter in every}


VALID: dict[str, Any] = {
    "app": "notes",
    "app_id": 1,
    "at": NOW,
    "capability": "x",
    "changes": {"owner_identity": 1},
    "context_json": "{}",
    "counter": "event",
    "data": b"x",
    "depth": 1,
    "did": DID,
    "document": {"n": 1},
    "domain": "d",
    "dst": 2,
    "edge": {"type": "x"},
    "end": 2,
    "endpoint": "e",
    "entity": "a",
    "entities": ["a"],
    "envelope": {"trace_id": "t", "ops": []},
    "epoch": 1,
    "event": STARTED,
    "event_type": "e",
    "events": [STARTED],
    "flags": 1,
    "flag_mask": 1,
    "after_seq": 0,
    "head_id": _HEAD,
    "holder": "w",
    "ids": ["a"],
    "identity_id": 1,
    "item": 1,
    "key": "k",
    "kind": "parent",
    "last_seq": 1,
    "level": "info",
    "limit": 10,
    "mask": 1,
    "model": dict,
    "namespace": "users",
    "object_id": 1,
    "object_ids": [1],
    "one": _HEAD,
    "operations": [],
    "other": _HEAD,
    "owner": 1,
    "patches": [{"op": "set", "path": ["n"], "value": 1}],
    "path": "n",
    "pattern": {"nodes": {"a": {}}},
    "payload_id": "sha256:00",
    "peer_id": "p",
    "point_id": "p",
    "public_key": b"x" * 32,
    "pubkey": b"x" * 32,
    "query": "SELECT 1",
    "rows": [],
    "row": {},
    "row_ids": [1],
    "sid": "s",
    "signer": Ed25519Signer(b"s" * 32),
    "since": NOW,
    "slug": "notes",
    "source_global_seq": 0,
    "src": 1,
    "start": 1,
    "steps": [],
    "table": "parent",
    "title": "T",
    "tips": {},
    "trace_id": "t",
    "type_key": "note",
    "value": {"n": 1},
    "values": {"n": 1},
    "name": "n",
    "destination": "copy",
    "ref": {"$ref": "x"},
    "work": bool,
    "policy": GcPolicy(),
    "rights": "read",
    "rule": {"most": 1},
    "backup": "copy.db",
    "at1": 0,
    "app_ids": [1],
    "batch": [],
    "callback": bool,
    "records": [b"{}"],
}
"""An argument that is accepted, or at least of the right type, by parameter."""

VALID_OF: dict[str, dict[str, Any]] = {
    "Streams": {"name": "s", "request": Append([b"{}"], None)},
    "Streams.search": {"request": check_search(**_defaults(fourfold.Stream.search))},
    "Streams.aggregate": {"request": check_aggregate(**_defaults(fourfold.Stream.aggregate))},
    "Streams.configure": {"settings": SettingsChange()},
    "Streams.configure_async": {"settings": SettingsChange()},
    "Streams.create_with_options": {"options": StreamOptions("o", None)},
    "Streams.create_with_options_async": {"options": StreamOptions("o", None)},
    "Stream.fork": {"name": "f"},
    "Stream.set_profile": {"kind": "generic"},
    "Store": {"name": "n"},
    "Store.open": {"name": "sessions"},
    "Memory": {"query": "x"},
    "Memory.put_many": {"changes": []},
    "Space.typed": {"model": dict},
    "Graphs.set_rule": {"kind": "attr", "type_key": "title"},
    "Graph.set_rule": {"kind": "attr", "key": "title"},
    "Sessions.set_retention": {"prefix": "other/"},
    "Sessions.delete_retention": {"prefix": "other/"},
    "Sessions.publish_head": {"head": {"kind": "turn-final", "turn_id": 1}},
}


def methods(facade: Facade) -> list[str]:
    """Return the names of the public methods of a facade."""
    return [
        name
        for name, _ in inspect.getmembers(facade.cls, inspect.isfunction)
        if not name.startswith("_") and name not in INTERNAL.get(facade.cls.__name__, ())
    ]


def required(facade: Facade, name: str, target: str) -> dict[str, Any]:
    """Return accepted values of the parameters that a call needs besides `target`."""
    title = facade.cls.__name__
    known = {**VALID, **VALID_OF.get(title, {}), **VALID_OF.get(f"{title}.{name}", {})}
    values = {}
    for parameter in parameters(facade, name):
        if parameter.name == "timeout":
            values["timeout"] = 0
        elif parameter.default is parameter.empty and parameter.name != target:
            values[parameter.name] = known.get(parameter.name)
    return values


def parameters(facade: Facade, name: str) -> list[inspect.Parameter]:
    """Return the parameters of a method that have a name."""
    signature = inspect.signature(getattr(facade.cls, name))
    return [
        parameter
        for parameter in [*signature.parameters.values()][1:]
        if parameter.kind not in {parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL}
    ]


def sample(place: str) -> Sequence[Any]:
    """Return some odd values for a parameter: others for each, and the same in each run."""
    start = zlib.crc32(place.encode()) % len(ODD_FEW)
    return [ODD_FEW[(start + 7 * step) % len(ODD_FEW)] for step in range(SAMPLE_SIZE)]


def calls(
    facade: Facade, name: str, values_of: Callable[[str], Sequence[Any]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the odd arguments of a method, each with the name of the odd one."""
    for parameter in parameters(facade, name):
        rest = required(facade, name, parameter.name)
        values = values_of(f"{facade.cls.__name__}.{name}.{parameter.name}")
        costly = name in COSTLY.get(facade.cls.__name__, ())
        for value in values[:2] if costly else values:
            if callable(value) and parameter.name in CALLABLES:
                continue
            # An endless wait is no odd result.
            if parameter.name == "timeout" and (value is None or type(value) in {int, float}):
                continue
            yield parameter.name, {**rest, parameter.name: value}


def run(method: Any, arguments: dict[str, Any]) -> None:
    """Call a method and begin to use what it returns."""
    result = method(**arguments)
    if inspect.iscoroutine(result):
        asyncio.run(result)
    elif inspect.isasyncgen(result):

        async def first() -> None:
            async for _ in result:
                break
            await result.aclose()

        asyncio.run(first())
    elif isinstance(result, AbstractContextManager) and not hasattr(result, "__next__"):
        with result:
            pass
    elif hasattr(result, "__next__"):
        list(islice(result, 3))
        getattr(result, "close", bool)()


class Versions:
    """Counters of the commits of every database of a store."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._connections: dict[Any, apsw.Connection] = {}

    def read(self) -> dict[str, int]:
        """Return a number of each database that changes with each commit."""
        versions = {}
        for path in [*self._root.glob("*/*.sqlite"), *self._root.glob("*/*.db")]:
            if path not in self._connections:
                self._connections[path] = apsw.Connection(
                    str(path), flags=apsw.SQLITE_OPEN_READONLY
                )
            versions[str(path)] = next(self._connections[path].execute("PRAGMA data_version"))[0]
        return versions

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections.values():
            connection.close()


def fill(store: fourfold.Store) -> None:
    """Write something into each model."""
    space = store.space(DID)
    space.set("a", {"n": 1})
    store.memory("m").put("users", "k", {"n": 1})
    store.streams.create("s", "application/json").append([{"n": 1}, {"n": 2}])
    graph = store.graphs.create("notes")
    graph.register_type("parent", "note")
    graph.register_type("attr", "title")
    for number in range(2):
        graph.apply(
            [{"op": "parent_create", "type_key": "note", "payload": {}}],
            owner=1,
            trace_id=str(number),
        )
    store.sessions.create({"id": "s"}).append(STARTED)
