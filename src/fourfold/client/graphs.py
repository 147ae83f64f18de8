"""Requests and responses of graphs: each operation as a `Call`, and its result, without I/O."""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple, cast
from urllib.parse import quote

import msgspec

from fourfold import limits
from fourfold.client import responses
from fourfold.client.documents import format_at
from fourfold.client.requests import Address, Call, format_time, stringify
from fourfold.client.responses import Response
from fourfold.errors import BadAnswer, InvalidInput, Refused, SequenceRegression
from fourfold.models.graphs import envelopes, validation
from fourfold.models.graphs.feed import FeedFilter
from fourfold.models.graphs.pattern import Pattern
from fourfold.models.graphs.records import (
    Aggregate,
    App,
    AppDescription,
    ApplyResult,
    At,
    Attr,
    Direction,
    Edge,
    FindResult,
    GraphChange,
    Kind,
    MatchResult,
    Neighbours,
    Parent,
    Part,
    Path,
    PatternMatch,
    Rating,
    Row,
    TopHit,
    TopResult,
    TraverseHit,
    TraverseResult,
    Type,
    TypeDescription,
    Usage,
    ValueRow,
)
from fourfold.models.graphs.rules import parse_rule
from fourfold.models.graphs.traversal import check_direction
from fourfold.wire import graphs as wire
from fourfold.wire.graph_patterns import MatchPage

_JSON: Final = {"content-type": "application/json"}
_EVENTS: Final = {"accept": "text/event-stream", "accept-encoding": "identity"}
_ROWS: Final[dict[type[wire.ObjectRow], tuple[Kind, Any]]] = {
    wire.ParentRow: ("parent", Parent),
    wire.AttrRow: ("attr", Attr),
    wire.EdgeRow: ("edge", Edge),
    wire.RatingRow: ("rating", Rating),
}


class EdgeOptions(NamedTuple):
    """Edges that a walk follows, and its point."""

    types: Iterable[int] | None
    at: At | None
    suppressed: bool
    direction: Direction | None = None

    def params(self) -> dict[str, Any]:
        """Return the query parameters, checked as a local store does."""
        if self.direction is not None:
            check_direction(self.direction)
        params: dict[str, Any] = stringify(
            ("direction", self.direction),
            ("at", format_at(self.at)),
            ("suppressed", "true" if self.suppressed else None),
        )
        if self.types is not None:
            ids = msgspec.json.decode(validation.check_ids(self.types, "types"))
            # Without types, all are followed; no type has this id.
            params["type"] = ids or [limits.INTEGER_MAX]
        return params


class GraphCalls:
    """The requests about the apps of a server. An app is named by its slug."""

    def __init__(self, address: Address) -> None:
        self._root = f"{address.root}/v1"

    def _app(self, slug: str, path: str = "") -> str:
        return f"{self._root}/apps/{quote(slug, safe='')}{path}"

    def list_apps(self, at: datetime | None = None) -> Call:
        """Build the request for the apps, now or at a time."""
        params = stringify(("at", format_time(at)))
        return Call("GET", f"{self._root}/apps", "list the apps", {}, params)

    def get_app(self, slug: str, at: datetime | None = None) -> Call:
        """Build the request for an app, now or at a time."""
        params = stringify(("at", format_time(at)))
        return Call("GET", self._app(slug), f"get the app {slug!r}", {}, params)

    def register_app(self, slug: str, title: str) -> Call:
        """Build the request that creates an app, if there is none of that slug."""
        return Call("PUT", self._app(slug), f"create the app {slug!r}", {}, {"title": title})

    def set_limits(self, slug: str, rows_max: int | None, bytes_max: int | None) -> Call:
        """Build the request that sets the limits of an app, checked as locally."""
        body = {"rows_max": rows_max, "bytes_max": bytes_max}
        for name, value in body.items():
            if value is not None:
                validation.check_integer(value, name)
        operation = f"set the limits of {slug!r}"
        path = self._app(slug, "/limits")
        return Call("PUT", path, operation, _JSON, {}, msgspec.json.encode(body))

    def list_types(self, slug: str) -> Call:
        """Build the request for the types of an app."""
        return Call("GET", self._app(slug, "/types"), f"list the types of {slug!r}", {}, {})

    def register_type(self, slug: str, kind: Kind, type_key: str) -> Call:
        """Build the request that registers a type, if it is new."""
        body = msgspec.json.encode({"kind": kind, "type_key": type_key})
        operation = f"register a type of {slug!r}"
        return Call("POST", self._app(slug, "/types"), operation, _JSON, {}, body)

    def set_rule(
        self, slug: str, kind: Kind, type_key: str, rule: Mapping[str, Any] | None
    ) -> Call:
        """Build the request that sets or removes the rule of a type, checked as locally."""
        checked = None if rule is None else parse_rule(kind, rule)
        body = msgspec.json.encode({"kind": kind, "type_key": type_key, "rule": checked})
        operation = f"set a rule of {slug!r}"
        return Call("POST", self._app(slug, "/rules"), operation, _JSON, {}, body)

    def describe(self, slug: str) -> Call:
        """Build the request for the types of an app and their rules."""
        return Call("GET", self._app(slug, "/description"), f"describe {slug!r}", {}, {})

    def apply(
        self, slug: str, envelope: Mapping[str, Any], key: str, *, once: bool = False
    ) -> Call:
        """Build the request that applies an envelope, checked as a local store does."""
        parsed = envelopes.parse(envelope)
        body = {
            "owner": parsed.operations[0].owner_identity,
            "trace_id": parsed.trace_id,
            "operations": [_to_wire(operation) for operation in parsed.operations],
            **({"once": True} if once else {}),
        }
        try:
            data = msgspec.json.encode(body)
        except (TypeError, ValueError, RecursionError, UnicodeEncodeError) as error:
            raise InvalidInput(f"payload.value cannot be written as JSON: {error}") from None
        headers = {**_JSON, "idempotency-key": key}
        return Call("POST", self._app(slug, "/envelopes"), f"write to {slug!r}", headers, {}, data)

    def envelopes(self, slug: str, trace_id: str, after: int) -> Call:
        """Build the request for the envelopes with a trace id."""
        params = stringify(("trace_id", trace_id), ("after", after))
        url = self._app(slug, "/envelopes")
        return Call("GET", url, f"list envelopes of {slug!r}", {}, params)

    def get_object(self, slug: str, kind: Kind, object_id: int, at: At | None) -> Call:
        """Build the request for the newest version of an object."""
        return self._object("objects", slug, object_id, ("kind", kind), ("at", format_at(at)))

    def history(self, slug: str, kind: Kind, object_id: int) -> Call:
        """Build the request for the versions of an object."""
        return self._object("history", slug, object_id, ("kind", kind))

    def neighbours(
        self, slug: str, kind: Kind, object_id: int, at: At | None, limit: int, *, suppressed: bool
    ) -> Call:
        """Build the request for an object and what is one hop away from it."""
        return self._object(
            *("neighbours", slug, object_id),
            ("kind", kind),
            ("at", format_at(at)),
            ("limit", limit),
            ("suppressed", "true" if suppressed else None),
        )

    def read_many(
        self,
        slug: str,
        object_ids: list[int],
        at: At | None,
        limit: int,
        parts: Collection[Part],
        *,
        suppressed: bool,
    ) -> Call:
        """Build the request for several objects with parts of what is around them."""
        body = {
            "ids": object_ids,
            "limit": limit,
            "parts": sorted(parts),
            "suppressed": suppressed,
            **stringify(("at", format_at(at))),
        }
        data = msgspec.json.encode(body)
        return Call("POST", self._app(slug, "/read"), f"read {slug!r}", {**_JSON}, {}, data)

    def traverse(self, slug: str, start: int, depth: int, limit: int, edges: EdgeOptions) -> Call:
        """Build the request for what is within some hops of an object."""
        params = {**stringify(("depth", depth), ("limit", limit)), **edges.params()}
        return self._walk(f"traverse/{start}", slug, params)

    def path(self, slug: str, start: int, end: int, depth: int, edges: EdgeOptions) -> Call:
        """Build the request for a shortest path between two objects."""
        params = stringify(("start", start), ("end", end), ("depth", depth))
        return self._walk("path", slug, {**params, **edges.params()})

    def exists(self, slug: str, src: int, dst: int, edges: EdgeOptions) -> Call:
        """Build the request whether an edge leads from one object to another."""
        params = stringify(("src", src), ("dst", dst))
        return self._walk("exists", slug, {**params, **edges.params()})

    def count(self, slug: str, object_id: int, edges: EdgeOptions) -> Call:
        """Build the request for the number of edges of an object."""
        return self._walk(f"count/{object_id}", slug, edges.params())

    def find(self, slug: str, request: Mapping[str, Any], at: At | None) -> Call:
        """Build the request for attributes or ratings by their value."""
        validation.encode_json(request["where"], "where")
        body = {**request, **stringify(("at", format_at(at)))}
        data = msgspec.json.encode({key: value for key, value in body.items() if value is not None})
        return Call("POST", self._app(slug, "/find"), f"search {slug!r}", {**_JSON}, {}, data)

    def match(self, slug: str, request: Mapping[str, Any], at: At | None) -> Call:
        """Build the request for the matches of a pattern."""
        body = {**request, **stringify(("at", format_at(at)))}
        data = msgspec.json.encode({key: value for key, value in body.items() if value is not None})
        return Call("POST", self._app(slug, "/match"), f"match in {slug!r}", {**_JSON}, {}, data)

    def aggregate(
        self, slug: str, request: Mapping[str, Any], at: At | None, *, suppressed: bool
    ) -> Call:
        """Build the request for aggregates of values."""
        return self._walk("aggregate", slug, _value_params(request, at, suppressed=suppressed))

    def top(
        self,
        slug: str,
        request: Mapping[str, Any],
        types: Iterable[int] | None,
        at: At | None,
        *,
        suppressed: bool,
    ) -> Call:
        """Build the request for the objects with the greatest numbers of a type."""
        params = _value_params(request, at, suppressed=suppressed)
        if types is not None:
            ids = msgspec.json.decode(validation.check_ids(types, "types"))
            params["parent_type"] = ids or [limits.INTEGER_MAX]
        return self._walk("top", slug, params)

    def _walk(self, path: str, slug: str, params: dict[str, Any]) -> Call:
        return Call("GET", self._app(slug, f"/{path}"), f"walk in {slug!r}", {}, params)

    def _object(self, verb: str, slug: str, object_id: int, *params: tuple[str, object]) -> Call:
        url = self._app(slug, f"/{verb}/{object_id}")
        return Call("GET", url, f"read {verb} of {slug!r}", {}, stringify(*params))

    def objects(
        self, slug: str, kind: Kind, types: Iterable[int], at: At | None, *, suppressed: bool
    ) -> Call:
        """Build the request for the newest versions of objects."""
        params = stringify(
            ("kind", kind), ("at", format_at(at)), ("suppressed", "true" if suppressed else None)
        )
        params["type"] = list(types)
        return Call("GET", self._app(slug, "/objects"), f"list objects of {slug!r}", {}, params)

    def feed(
        self,
        slug: str | None,
        query: FeedFilter,
        after: int,
        until: int | None = None,
        *,
        pattern: Pattern | None = None,
    ) -> Call:
        """Build the request for the changes of one app, or of all of them."""
        kind = next(iter(query.kinds)) if query.kinds and len(query.kinds) == 1 else None
        params = stringify(("kind", kind), ("after", after), ("until", until))
        if pattern is not None:
            params["pattern"] = msgspec.json.encode(pattern).decode()
        url = f"{self._root}/graph/feed" if slug is None else self._app(slug, "/feed")
        operation = "follow the graphs" if slug is None else f"follow the app {slug!r}"
        return Call("GET", url, operation, _EVENTS, params, live=True)


def _value_params(request: Mapping[str, Any], at: At | None, *, suppressed: bool) -> dict[str, Any]:
    hidden = "true" if suppressed else None
    return stringify(*request.items(), ("at", format_at(at)), ("suppressed", hidden))


def _to_wire(operation: envelopes.Operation) -> dict[str, Any]:
    """Return an operation as the API has it; bytes are base64 text."""
    name = f"{operation.kind}_{'update' if operation.update else 'create'}"
    payload = dict(operation.payload)
    if isinstance(payload.get("value"), bytes) and "value_blob" not in payload:
        payload["value_blob"] = payload.pop("value")
    blob = payload.get("value_blob")
    if isinstance(blob, bytes | bytearray | memoryview):
        payload["value_blob"] = base64.b64encode(blob).decode()
    fields = {
        "type_key": operation.type_key,
        "type_id": operation.type_id,
        "expected": operation.expected,
    }
    named = {key: value for key, value in fields.items() if value is not None}
    return {"op": name, **named, "payload": payload}


def to_operations(
    app_id: int, kind: Kind, rows: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return rows to insert as the operations of an envelope, which has one owner."""
    operations = []
    for row in rows:
        if not isinstance(row, Mapping):
            raise InvalidInput(f"a row of {kind} must be a mapping, got {row!r:.80}")
        payload = dict(row)
        operations.append(
            {
                "op": f"{kind}_create",
                "app_id": app_id,
                "type_id": payload.pop("type_id", None),
                "owner_identity": payload.pop("owner_identity", None),
                "payload": payload,
            }
        )
    return operations


def to_update(
    app_id: int, kind: Kind, old: Row, changes: Mapping[str, Any], expected: int | None = None
) -> dict[str, Any]:
    """Return changes of an object as an operation; its type and its owner never change."""
    if not isinstance(changes, Mapping):
        raise InvalidInput(f"a row of {kind} must be a mapping, got {changes!r:.80}")
    payload = {**changes, f"{kind}_id": old.object_id}
    for name in ("type_id", "owner_identity"):
        if payload.pop(name, getattr(old, name)) != getattr(old, name):
            raise Refused(f"{name} of {kind} {old.object_id} in app {app_id} cannot change")
    return {
        "op": f"{kind}_update",
        "app_id": app_id,
        "type_id": old.type_id,
        "owner_identity": old.owner_identity,
        "payload": payload,
        "expected": expected,
    }


def app_of(envelope: Mapping[str, Any]) -> int:
    """Return the app that an envelope is about."""
    return envelopes.parse(envelope).operations[0].app_id


def check_no_transaction(txn: object) -> None:
    """Raise Refused if a write is to take part in a transaction: they end with the request."""
    if txn is not None:
        raise Refused(
            "a server has no transactions over several requests",
            hint="Pass all operations to `apply`: it writes them together.",
        )


def to_app(record: wire.AppInfo) -> App:
    """Return an app."""
    return App(record.app_id, record.app, record.title, record.version, record.created_at)


def to_usage(record: wire.AppInfo) -> Usage:
    """Return what an app stores, and its limits."""
    # Without a time in the past, both are there.
    assert record.rows is not None
    assert record.bytes is not None
    return Usage(record.app_id, record.rows, record.bytes, record.rows_max, record.bytes_max)


def to_type(record: wire.TypeInfo) -> Type:
    """Return a type."""
    return Type(record.id, record.kind, record.type_key)


def to_description(record: wire.DescriptionInfo) -> AppDescription:
    """Return an app with its types and their rules."""
    types = tuple(TypeDescription(*msgspec.structs.astuple(row)) for row in record.types)
    return AppDescription(to_app(record.app), to_usage(record.app), types)


def to_row(record: wire.ObjectRow) -> Row:
    """Return a version of an object."""
    return cast("Row", _ROWS[type(record)][1](*msgspec.structs.astuple(record)))


def to_neighbours(record: wire.NeighboursInfo) -> Neighbours:
    """Return an object and what is one hop away from it."""
    return Neighbours(
        to_row(record.object),
        tuple(cast("Attr", to_row(row)) for row in record.attrs),
        tuple(cast("Edge", to_row(row)) for row in record.edges),
        tuple(cast("Rating", to_row(row)) for row in record.ratings),
        tuple(map(to_row, record.objects)),
        record.complete,
        tuple(map(to_row, record.versions)),
    )


def to_traversal(record: wire.TraverseInfo) -> TraverseResult:
    """Return what a traversal reached."""
    rows = tuple(TraverseHit(*msgspec.structs.astuple(row)) for row in record.objects)
    return TraverseResult(record.seq, rows, record.complete)


def to_find_result(record: wire.ValuePage) -> FindResult:
    """Return a page of attributes or ratings."""
    rows = tuple(cast("ValueRow", to_row(row)) for row in record.items)
    return FindResult(record.seq, rows, record.next_cursor)


def to_match_result(record: MatchPage) -> MatchResult:
    """Return a page of matches."""
    rows = tuple(
        PatternMatch(
            row.objects,
            tuple(Path(record.seq, tuple(p.objects), tuple(p.edges)) for p in row.paths),
        )
        for row in record.items
    )
    return MatchResult(record.seq, rows, record.next_cursor)


def to_aggregate(record: wire.AggregateInfo) -> Aggregate:
    """Return aggregates of values."""
    return Aggregate(*(getattr(record, name) for name in Aggregate._fields))


def to_top_result(record: wire.TopInfo) -> TopResult:
    """Return the objects with the greatest numbers."""
    rows = tuple(TopHit(*msgspec.structs.astuple(row)) for row in record.objects)
    return TopResult(record.seq, rows)


def to_path(record: wire.PathInfo) -> Path | None:
    """Return a path, or None if there is none."""
    return Path(record.seq, tuple(record.objects), tuple(record.edges)) if record.objects else None


def parse(response: Response, kind: type[responses.B]) -> responses.B:
    """Return the body of a response."""
    return responses.decode(response, kind, "a request about graphs")


def parse_applied(response: Response) -> ApplyResult:
    """Return the result of an envelope."""
    applied = parse(response, wire.ApplyInfo)
    return ApplyResult(applied.seq, tuple(applied.object_ids))


class _PartialTransaction(NamedTuple):
    """Changes of a transaction that arrived so far."""

    seq: int
    changes: list[GraphChange]


class ChangesDecoder:
    """Events of a feed of changes, as one page for each transaction.

    The server sends a large transaction in parts; a page is returned when the last has arrived.
    """

    def __init__(self, query: FeedFilter) -> None:
        self._query = query
        self._part = _PartialTransaction(0, [])

    def decode(self, name: str, data: bytes) -> tuple[GraphChange, ...] | None:
        """Return the page of an event; None for one that completes no transaction."""
        try:
            if name == "gap":
                self._raise_gap(msgspec.json.decode(data, type=wire.FeedGapEvent))
            if name != "changes":
                return None
            event = msgspec.json.decode(data, type=wire.ChangesEvent)
        except msgspec.DecodeError as error:
            raise BadAnswer(f"follow graphs: invalid event: {error}") from None
        if self._part.seq != event.seq:
            self._part = _PartialTransaction(event.seq, [])
        self._part.changes.extend(self._select(event))
        if not event.complete:
            return None
        changes, self._part = tuple(self._part.changes), _PartialTransaction(0, [])
        return changes or None

    def _select(self, event: wire.ChangesEvent) -> Iterable[GraphChange]:
        apps, kinds, mask, _ = self._query
        for change in event.changes:
            kind = _ROWS[type(change.object)][0]
            row = to_row(change.object)
            if (
                (apps is None or change.app_id in apps)
                and (kinds is None or kind in kinds)
                and (mask is None or row.sync_flags & mask)
            ):
                yield GraphChange(event.seq, change.app_id, kind, row)

    @staticmethod
    def _raise_gap(gap: wire.FeedGapEvent) -> None:
        raise SequenceRegression(
            f"the seqs after {gap.newest} up to {gap.after} no longer exist on the server",
            hint="It lost power, or an older backup was restored: read what you derived again.",
            details={"after": gap.after, "newest": gap.newest},
        )
