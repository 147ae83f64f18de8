"""Graphs over HTTP: apps, their types and objects, and envelopes.

An app is named by its slug, and keys are for slugs. Objects of the four kinds have ids of their
own, so a request names the kind too; the default is `parent`. An ETag is the id of a version and
its sync flags, which are the only part of a version that may change.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Final, cast

import msgspec
from msgspec import UNSET

from fourfold import limits
from fourfold.errors import (
    AlreadyExists,
    InvalidInput,
    LimitExceeded,
    NotFound,
    PreconditionFailed,
    Refused,
    ReplayMismatch,
    RuleBroken,
    TooLarge,
)
from fourfold.kernel.idempotency import IdempotentRequest, digest_of, run_once
from fourfold.models.graphs import Graphs, Query
from fourfold.models.graphs.records import ROWS, App, Kind, Neighbours, Row
from fourfold.server import conditions, cursors
from fourfold.server.points import digest_text, parse_at, parse_store_time
from fourfold.server.request import Reply, Request
from fourfold.server.routes import Ok, Route, bind
from fourfold.server.workers import Workers
from fourfold.store import Store
from fourfold.wire.graphs import (
    AppInfo,
    ApplyInfo,
    AppPage,
    AppQuery,
    AppsQuery,
    AttrRow,
    DescribedType,
    DescriptionInfo,
    EdgeRow,
    EnvelopeInfo,
    EnvelopePage,
    EnvelopesQuery,
    GraphOperation,
    NeighboursInfo,
    NeighboursQuery,
    NewAppQuery,
    NewEnvelope,
    NewLimits,
    NewRule,
    NewType,
    ObjectHeaders,
    ObjectHistoryQuery,
    ObjectPage,
    ObjectQuery,
    ObjectReadHeaders,
    ObjectRow,
    ObjectsInfo,
    ObjectsQuery,
    ObjectsRead,
    ObjectState,
    ParentRow,
    RatingRow,
    TypeInfo,
    TypePage,
    TypesQuery,
)
from fourfold.wire.pages import IdempotencyHeaders

APPS: Final = "/v1/apps"
APP: Final = f"{APPS}/{{app}}"
_ROWS: Final[dict[Kind, Any]] = {
    "parent": ParentRow,
    "attr": AttrRow,
    "edge": EdgeRow,
    "rating": RatingRow,
}
_APPLIED: Final = msgspec.json.Decoder(ApplyInfo)


class OpenGraphs:
    """The graphs of a store, opened by the first request for them."""

    def __init__(self, store: Store, workers: Workers) -> None:
        self.store = store
        self._workers = workers
        self._graphs: Graphs | None = None

    async def get(self) -> Graphs:
        """Return the graphs, and create their database if needed."""
        if self._graphs is None:
            self._graphs = await self._workers.write(lambda: self.store.graphs)
        return self._graphs

    def get_if_open(self) -> Graphs | None:
        """Return the graphs, or None if no request has opened them."""
        return self._graphs


class GraphRoutes:
    """Handlers of apps and of their objects."""

    def __init__(self, workers: Workers, graphs: OpenGraphs) -> None:
        self._workers = workers
        self._graphs = graphs

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of these handlers."""
        return bind(_ROUTES, self)

    def stop(self) -> None:
        """Do nothing: no request of these routes waits."""

    # Apps and types

    async def list_apps(self, _request: Request, query: AppsQuery) -> Reply:
        """Return a page of apps."""
        graphs = await self._graphs.get()
        at = await parse_store_time(self._graphs.store, self._workers, query.at)
        return Reply(await self._workers.run(_list_apps, graphs, query, at), is_large=True)

    async def register_app(self, _request: Request, app: str, query: NewAppQuery) -> Reply:
        """Create an app, or return the existing one."""
        graphs = await self._graphs.get()
        title = app if query.title is UNSET else query.title
        info, created = await self._workers.write(_register_app, graphs, app, title)
        return Reply(info, 201 if created else 200, location=f"{APPS}/{app}" if created else None)

    async def get_app(self, _request: Request, app: str, query: AppQuery) -> Reply:
        """Return an app."""
        graphs = await self._graphs.get()
        at = await parse_store_time(self._graphs.store, self._workers, query.at)
        return Reply(await self._workers.run(lambda: _app_info(graphs, graphs.app(app, at), at)))

    async def set_limits(self, _request: Request, app: str, body: NewLimits) -> Reply:
        """Set the limits of an app."""
        graphs = await self._graphs.get()
        return Reply(await self._workers.write(_set_limits, graphs, app, body))

    async def list_types(self, _request: Request, app: str, query: TypesQuery) -> Reply:
        """Return a page of the types of an app."""
        graphs = await self._graphs.get()
        return Reply(await self._workers.run(_list_types, graphs, app, query), is_large=True)

    async def register_type(self, _request: Request, app: str, body: NewType) -> Reply:
        """Register a type, or return the existing one."""
        graphs = await self._graphs.get()
        info, created = await self._workers.write(_register_type, graphs, app, body)
        return Reply(info, 201 if created else 200)

    async def set_rule(self, _request: Request, app: str, body: NewRule) -> Reply:
        """Set or remove the rule of a type, and describe the app."""
        graphs = await self._graphs.get()
        return Reply(await self._workers.write(_set_rule, graphs, app, body))

    async def describe_app(self, _request: Request, app: str) -> Reply:
        """Return an app with its types and their rules."""
        graphs = await self._graphs.get()
        return Reply(await self._workers.run(_describe, graphs, app), is_large=True)

    # Objects

    async def apply_envelope(self, request: Request, app: str, body: NewEnvelope) -> Reply:
        """Apply the operations of an envelope together."""
        graphs = await self._graphs.get()
        key = conditions.parse_idempotency_key(request)
        is_small = len(request.body) <= limits.HTTP_LOOP_BYTES
        if key is None and is_small:
            envelope = _envelope(graphs.app(app).app_id, body)
            result = await graphs.apply_async(envelope, once=body.once)
            return Reply(ApplyInfo(seq=result.global_seq, object_ids=list(result.object_ids)))
        sent = None
        if key is not None:
            digest = digest_of(b"apply_envelope", app.encode(), request.body)
            sent = IdempotentRequest(request.key_id, key, digest)
        return Reply(await self._workers.write(_apply, graphs, app, body, sent), is_large=True)

    async def list_envelopes(self, _request: Request, app: str, query: EnvelopesQuery) -> Reply:
        """Return a page of the envelopes with a trace id."""
        graphs = await self._graphs.get()
        return Reply(await self._workers.run(_list_envelopes, graphs, app, query), is_large=True)

    async def get_object(
        self, _request: Request, app: str, object_id: str, query: ObjectQuery
    ) -> Reply:
        """Return the newest version of an object, now or at a point."""
        graphs = await self._graphs.get()
        state = await self._workers.run(_get_object, graphs, app, parse_id(object_id), query)
        row = state.object
        return Reply(state, etag=f"{row.id}.{row.sync_flags}", is_large=True)

    async def list_objects(self, _request: Request, app: str, query: ObjectsQuery) -> Reply:
        """Return a page of the newest versions of objects."""
        graphs = await self._graphs.get()
        return Reply(await self._workers.run(_list_objects, graphs, app, query), is_large=True)

    async def object_history(
        self, _request: Request, app: str, object_id: str, query: ObjectHistoryQuery
    ) -> Reply:
        """Return a page of the versions of an object."""
        graphs = await self._graphs.get()
        number = parse_id(object_id)
        page = await self._workers.run(_object_history, graphs, app, number, query)
        return Reply(page, is_large=True)

    async def neighbours(
        self, _request: Request, app: str, object_id: str, query: NeighboursQuery
    ) -> Reply:
        """Return an object with what is one hop away from it."""
        graphs = await self._graphs.get()
        number = parse_id(object_id)
        info = await self._workers.run(_neighbours, graphs, app, number, query)
        return Reply(info, is_large=True)

    async def read_objects(self, _request: Request, app: str, body: ObjectsRead) -> Reply:
        """Return several objects with parts of what is around them."""
        graphs = await self._graphs.get()
        return Reply(await self._workers.run(_read_objects, graphs, app, body), is_large=True)


def object_row(kind: Kind, row: Row) -> ObjectRow:
    """Return a row as a response has it."""
    return cast("ObjectRow", _ROWS[kind](*row))


def parse_id(text: str) -> int:
    """Return the id in a path.

    Raises:
        InvalidInput: it is not a positive integer.
    """
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(limits.INTEGER_MAX))):
        raise InvalidInput(f"id: must be an integer, got {text!r:.80}")
    return int(text)


def _app_info(graphs: Graphs, app: App, at: datetime | None = None) -> AppInfo:
    usage = graphs.usage(app.app_id)
    return AppInfo(
        app=app.slug,
        app_id=app.app_id,
        title=app.title,
        version=app.version,
        created_at=app.created_at,
        rows=usage.rows if at is None else None,
        bytes=usage.bytes if at is None else None,
        rows_max=usage.rows_max,
        bytes_max=usage.bytes_max,
        seq=_seq_at(graphs, at),
        node=graphs.node,
    )


def _seq_at(graphs: Graphs, at: datetime | None) -> int:
    return graphs.position() if at is None else graphs.seq_at(at)


def _list_apps(graphs: Graphs, query: AppsQuery, at: datetime | None) -> AppPage:
    listed = cursors.digest_of("apps", query.prefix, digest_text(query.at))
    cursor = cursors.parse(query.cursor, listed, str)
    after = "" if cursor is None else cursor.after
    apps = sorted(
        (app for app in graphs.list_apps(at) if app.slug.startswith(query.prefix)),
        key=lambda app: app.slug,
    )
    apps = [app for app in apps if app.slug > after]
    page = apps[: query.limit]
    more = len(apps) > len(page)
    return AppPage(
        seq=_seq_at(graphs, at),
        items=[_app_info(graphs, app, at) for app in page],
        next_cursor=cursors.format_cursor(listed, 0, page[-1].slug) if more else None,
    )


def _register_app(graphs: Graphs, slug: str, title: str) -> tuple[AppInfo, bool]:
    # Inside the transaction no other writer can create the app.
    with graphs.transaction():
        created = all(app.slug != slug for app in graphs.list_apps())
        app = graphs.register_app(slug, title)
    return _app_info(graphs, app), created


def _list_types(graphs: Graphs, slug: str, query: TypesQuery) -> TypePage:
    listed = cursors.digest_of("types", slug, query.kind if query.kind is not UNSET else "")
    cursor = cursors.parse(query.cursor, listed, int)
    after = 0 if cursor is None else cursor.after
    types = [
        TypeInfo(id=row.id, kind=row.kind, type_key=row.type_key)
        for row in graphs.list_types(graphs.app(slug).app_id)
        if row.id > after and query.kind in {UNSET, row.kind}
    ]
    page = types[: query.limit]
    more = len(types) > len(page)
    return TypePage(
        items=page, next_cursor=cursors.format_cursor(listed, 0, page[-1].id) if more else None
    )


def _register_type(graphs: Graphs, slug: str, body: NewType) -> tuple[TypeInfo, bool]:
    app_id = graphs.app(slug).app_id
    with graphs.transaction():
        known = {row.id for row in graphs.list_types(app_id)}
        type_id = graphs.register_type(app_id, body.kind, body.type_key)
    info = TypeInfo(id=type_id, kind=body.kind, type_key=body.type_key)
    return info, type_id not in known


def _set_limits(graphs: Graphs, slug: str, body: NewLimits) -> AppInfo:
    app = graphs.app(slug)
    graphs.set_limits(app.app_id, rows_max=body.rows_max, bytes_max=body.bytes_max)
    return _app_info(graphs, app, None)


def _set_rule(graphs: Graphs, slug: str, body: NewRule) -> DescriptionInfo:
    rule = None if body.rule is None else msgspec.to_builtins(body.rule)
    graphs.set_rule(graphs.app(slug).app_id, body.kind, body.type_key, rule)
    return _describe(graphs, slug)


def _describe(graphs: Graphs, slug: str) -> DescriptionInfo:
    app = graphs.app(slug)
    types = graphs.describe(app.app_id).types
    return DescriptionInfo(
        app=_app_info(graphs, app, None), types=[DescribedType(**row._asdict()) for row in types]
    )


def _envelope(app_id: int, body: NewEnvelope) -> dict[str, Any]:
    """Return an envelope as the model has it."""
    common = {"app_id": app_id, "owner_identity": body.owner}
    return {
        "trace_id": uuid.uuid4().hex if body.trace_id is UNSET else body.trace_id,
        "ops": [common | _operation(operation) for operation in body.operations],
    }


def _operation(operation: GraphOperation) -> dict[str, Any]:
    return cast("dict[str, Any]", msgspec.to_builtins(operation, builtin_types=(bytes,)))


def _apply(
    graphs: Graphs, slug: str, body: NewEnvelope, sent: IdempotentRequest | None
) -> ApplyInfo:
    envelope = _envelope(graphs.app(slug).app_id, body)

    def work() -> bytes:
        result = graphs.apply(envelope, once=body.once)
        return msgspec.json.encode(
            ApplyInfo(seq=result.global_seq, object_ids=list(result.object_ids))
        )

    if sent is None:
        return _APPLIED.decode(work())
    stored, replayed = run_once(graphs.database, sent, work)
    return msgspec.structs.replace(_APPLIED.decode(stored), replayed=replayed)


def _list_envelopes(graphs: Graphs, slug: str, query: EnvelopesQuery) -> EnvelopePage:
    listed = cursors.digest_of("envelopes", slug, query.trace_id, query.after)
    cursor = cursors.parse(query.cursor, listed, int)
    after = query.after if cursor is None else cursor.after
    app_id = graphs.app(slug).app_id
    with graphs.snapshot() as reader:
        rows = reader.envelopes(app_id, query.trace_id, after, query.limit + 1)
    page = [EnvelopeInfo(*cast("Any", row)) for row in rows[: query.limit]]
    more = len(rows) > len(page)
    return EnvelopePage(
        items=page, next_cursor=cursors.format_cursor(listed, 0, page[-1].seq) if more else None
    )


def _get_object(graphs: Graphs, slug: str, object_id: int, query: ObjectQuery) -> ObjectState:
    app_id = graphs.app(slug).app_id
    with graphs.snapshot() as reader:
        at = parse_at(query.at)
        seq = reader.newest_seq() if at is None else reader.seq_at(at)
        row = reader.newest(app_id, query.kind, object_id, seq)
    return ObjectState(app=slug, seq=seq, object=object_row(query.kind, row))


def _list_objects(graphs: Graphs, slug: str, query: ObjectsQuery) -> ObjectPage:
    app_id = graphs.app(slug).app_id
    filters = (query.kind, query.owner, query.at, query.suppressed)
    texts = ("" if value is UNSET else value for value in filters)
    listed = cursors.digest_of("objects", slug, *texts, *query.type)
    cursor = cursors.parse(query.cursor, listed, int)
    with graphs.snapshot() as reader:
        at = parse_at(query.at) if cursor is None else cursor.at
        seq = reader.newest_seq() if at is None else reader.seq_at(at)
        question = Query(
            app_id,
            query.kind,
            type_ids=query.type or None,
            owner=None if query.owner is UNSET else query.owner,
            at=seq,
            limit=query.limit + 1,
            after_id=0 if cursor is None else cursor.after,
        )
        if query.suppressed is UNSET:
            rows = reader.visible(question, frozenset())
        else:
            rows = reader.iterate(question, current=True)
        return _object_page(rows, query.kind, query.limit, listed, seq)


def _object_history(
    graphs: Graphs, slug: str, object_id: int, query: ObjectHistoryQuery
) -> ObjectPage:
    app_id = graphs.app(slug).app_id
    at_text = "" if query.at is UNSET else query.at
    listed = cursors.digest_of("object history", slug, query.kind, object_id, at_text)
    cursor = cursors.parse(query.cursor, listed, int)
    after_id = 0 if cursor is None else cursor.after
    with graphs.snapshot() as reader:
        at = parse_at(query.at) if cursor is None else cursor.at
        seq = reader.newest_seq() if at is None else reader.seq_at(at)
        rows = reader.history(app_id, query.kind, object_id, seq, after_id)
        page = _object_page(rows, query.kind, query.limit, listed, seq)
    if cursor is None and not page.items:
        raise NotFound(f"app {slug!r} has no {query.kind} {object_id} at {seq}")
    return page


def _object_page(rows: Iterable[Row], kind: Kind, limit: int, listed: str, seq: int) -> ObjectPage:
    """Return the first rows, as many as fit into a page."""
    items: list[ObjectRow] = []
    size = 0
    iterator: Iterator[Row] = iter(rows)
    for row in iterator:
        items.append(object_row(kind, row))
        size += value_bytes(row)
        if len(items) == limit or size > limits.PAGE_BYTES:
            more = next(iterator, None) is not None
            cursor = cursors.format_cursor(listed, seq, row.id) if more else None
            return ObjectPage(items=items, seq=seq, next_cursor=cursor)
    return ObjectPage(items=items, seq=seq)


def value_bytes(row: Row) -> int:
    """Return about how large the value of a row is."""
    return sum(len(value) for value in row if isinstance(value, str | bytes))


def _neighbours(
    graphs: Graphs, slug: str, object_id: int, query: NeighboursQuery
) -> NeighboursInfo:
    app_id = graphs.app(slug).app_id
    with graphs.snapshot() as reader:
        at = parse_at(query.at)
        seq = reader.newest_seq() if at is None else reader.seq_at(at)
        neighbours = reader.neighbours(
            *(app_id, query.kind, object_id),
            at=seq,
            limit=query.limit,
            suppressed=query.suppressed is not UNSET,
        )
    return _neighbours_info(slug, seq, neighbours)


def _read_objects(graphs: Graphs, slug: str, body: ObjectsRead) -> ObjectsInfo:
    app_id = graphs.app(slug).app_id
    items: list[NeighboursInfo] = []
    size = 0
    with graphs.snapshot() as reader:
        at = parse_at(body.at)
        seq = reader.newest_seq() if at is None else reader.seq_at(at)
        for neighbours in reader.read_many(
            *(app_id, body.ids),
            at=seq,
            limit=body.limit,
            suppressed=body.suppressed,
            parts=body.parts,
        ):
            items.append(_neighbours_info(slug, seq, neighbours))
            size += sum(map(value_bytes, (*neighbours.attrs, *neighbours.versions)))
            if size > limits.PAGE_BYTES:
                raise TooLarge(
                    f"the attributes have more than {limits.PAGE_BYTES} bytes",
                    hint="Read fewer objects at once.",
                )
    return ObjectsInfo(app=slug, seq=seq, items=items)


def _neighbours_info(slug: str, seq: int, neighbours: Neighbours) -> NeighboursInfo:
    return NeighboursInfo(
        app=slug,
        seq=seq,
        object=_end(neighbours.object),
        attrs=[AttrRow(*row) for row in neighbours.attrs],
        edges=[EdgeRow(*row) for row in neighbours.edges],
        ratings=[RatingRow(*row) for row in neighbours.ratings],
        objects=[_end(row) for row in neighbours.objects],
        complete=neighbours.complete,
        versions=[object_row(_kind_of(row), row) for row in neighbours.versions],
    )


def _kind_of(row: Row) -> Kind:
    return next(kind for kind, record in ROWS.items() if isinstance(row, record))


def _end(row: Row) -> ParentRow | AttrRow:
    kind: Kind = "attr" if hasattr(row, "parent_id") else "parent"
    return cast("ParentRow | AttrRow", object_row(kind, row))


def graph_route(method: str, path: str, handler: Any, **options: Any) -> Route:
    """Return a route of graphs; a key must be for the app in its path."""
    return Route(method, path, handler, model="graphs", **{"resource": "app", **options})


_ROUTES: Final = (
    graph_route(
        *("GET", APPS, GraphRoutes.list_apps),
        operation="list_apps",
        summary="List apps in the order of their names, now or at a time.",
        scope="read",
        resource="prefix",
        query=AppsQuery,
        ok={200: Ok("A page of apps.", AppPage)},
        errors=(NotFound,),
    ),
    graph_route(
        *("PUT", APP, GraphRoutes.register_app),
        operation="register_app",
        summary="Register an app; idempotent.",
        scope="write",
        query=NewAppQuery,
        ok={200: Ok("It exists.", AppInfo), 201: Ok("It was created.", AppInfo)},
        errors=(AlreadyExists,),
    ),
    graph_route(
        *("GET", APP, GraphRoutes.get_app),
        operation="get_app",
        summary="Get an app, now or at a time: its title, what it stores, and the newest seq.",
        scope="read",
        query=AppQuery,
        ok={200: Ok("The app.", AppInfo)},
        errors=(NotFound,),
    ),
    graph_route(
        *("PUT", f"{APP}/limits", GraphRoutes.set_limits),
        operation="set_app_limits",
        summary="Set how many rows and bytes an app may hold; existing rows stay.",
        scope="admin",
        body=NewLimits,
        ok={200: Ok("The app with its limits.", AppInfo)},
        errors=(NotFound,),
    ),
    graph_route(
        *("GET", f"{APP}/types", GraphRoutes.list_types),
        operation="list_types",
        no_past="types have no log entries; they never change, and are never removed",
        summary="List the types of an app.",
        scope="read",
        query=TypesQuery,
        ok={200: Ok("A page of types.", TypePage)},
        errors=(NotFound,),
    ),
    graph_route(
        *("POST", f"{APP}/types", GraphRoutes.register_type),
        operation="register_type",
        summary="Register a type of an app; idempotent.",
        scope="write",
        body=NewType,
        ok={200: Ok("It exists.", TypeInfo), 201: Ok("It was created.", TypeInfo)},
        errors=(NotFound,),
    ),
    graph_route(
        *("POST", f"{APP}/rules", GraphRoutes.set_rule),
        operation="set_rule",
        summary="Set or remove what objects of a type must meet.",
        scope="write",
        body=NewRule,
        ok={200: Ok("The app with its rules.", DescriptionInfo)},
        errors=(NotFound, RuleBroken),
    ),
    graph_route(
        *("GET", f"{APP}/description", GraphRoutes.describe_app),
        operation="describe_app",
        no_past="rules have no log entries",
        summary="Describe an app: its types, their rules, and its usage.",
        scope="read",
        ok={200: Ok("The app.", DescriptionInfo)},
        errors=(NotFound,),
    ),
    graph_route(
        *("POST", f"{APP}/envelopes", GraphRoutes.apply_envelope),
        operation="apply_envelope",
        summary="Create and update objects together under one seq, or change nothing.",
        scope="write",
        headers=IdempotencyHeaders,
        body=NewEnvelope,
        ok={200: Ok("Applied.", ApplyInfo)},
        errors=(NotFound, PreconditionFailed, Refused, LimitExceeded, ReplayMismatch),
    ),
    graph_route(
        *("GET", f"{APP}/envelopes", GraphRoutes.list_envelopes),
        operation="list_envelopes",
        no_past="envelopes never change; `after` chooses a part of the log",
        summary="List the envelopes of an app that have a trace id, oldest first.",
        scope="read",
        query=EnvelopesQuery,
        ok={200: Ok("A page of envelopes.", EnvelopePage)},
        errors=(NotFound,),
    ),
    graph_route(
        *("GET", f"{APP}/objects", GraphRoutes.list_objects),
        operation="list_objects",
        summary="List the newest versions of objects, now or at a point.",
        scope="read",
        query=ObjectsQuery,
        ok={200: Ok("A page of objects.", ObjectPage)},
        errors=(NotFound,),
    ),
    graph_route(
        *("GET", f"{APP}/objects/{{object_id}}", GraphRoutes.get_object),
        operation="get_object",
        summary="Get an object, now or at a point.",
        scope="read",
        query=ObjectQuery,
        headers=ObjectReadHeaders,
        ok={
            200: Ok("The newest version.", ObjectState, ObjectHeaders),
            304: Ok("The client has this version already.", headers=ObjectHeaders),
        },
        errors=(NotFound,),
    ),
    graph_route(
        *("GET", f"{APP}/history/{{object_id}}", GraphRoutes.object_history),
        operation="object_history",
        summary="List the versions of an object in the order of the log.",
        scope="read",
        query=ObjectHistoryQuery,
        ok={200: Ok("A page of versions.", ObjectPage)},
        errors=(NotFound,),
    ),
    graph_route(
        *("GET", f"{APP}/neighbours/{{object_id}}", GraphRoutes.neighbours),
        operation="neighbours",
        summary="Get an object with the attributes, edges, ratings and objects one hop away.",
        scope="read",
        query=NeighboursQuery,
        ok={200: Ok("The neighbourhood.", NeighboursInfo)},
        errors=(NotFound,),
    ),
    graph_route(
        *("POST", f"{APP}/read", GraphRoutes.read_objects),
        operation="read_objects",
        summary="Read several objects at one point, with parts of what is around them.",
        scope="read",
        body=ObjectsRead,
        ok={200: Ok("Those that exist.", ObjectsInfo)},
        errors=(NotFound,),
    ),
)
