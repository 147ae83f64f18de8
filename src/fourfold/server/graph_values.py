"""Attributes and ratings by their values over HTTP: lookups, ranges and aggregates.

A query may read many values, so it runs in a worker, with the deadline of a read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

from msgspec import UNSET, Struct, UnsetType

from fourfold.errors import DeadlineExceeded, NotFound
from fourfold.models.graphs import Graphs
from fourfold.models.graphs.values import ValueReader
from fourfold.server.graphs import APP, OpenGraphs, graph_route, object_row
from fourfold.server.points import parse_at
from fourfold.server.request import Reply, Request
from fourfold.server.routes import Ok, Route, bind
from fourfold.server.workers import Workers
from fourfold.wire.graphs import (
    AggregateInfo,
    AggregateValuesQuery,
    AttrRow,
    FindValues,
    RankedRow,
    RatingRow,
    TopInfo,
    TopQuery,
    ValuePage,
)


class GraphValueRoutes:
    """Handlers of reads by value."""

    def __init__(self, workers: Workers, graphs: OpenGraphs) -> None:
        self._workers = workers
        self._graphs = graphs

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of these handlers."""
        return bind(_ROUTES, self)

    def stop(self) -> None:
        """Do nothing: no request of these routes waits."""

    async def find_values(self, _request: Request, app: str, body: FindValues) -> Reply:
        """Return a page of the attributes or ratings that match."""
        return await self._read(_find, app, body)

    async def aggregate_values(
        self, _request: Request, app: str, query: AggregateValuesQuery
    ) -> Reply:
        """Return aggregates of the values of a type."""
        return await self._read(_aggregate, app, query)

    async def top_objects(self, _request: Request, app: str, query: TopQuery) -> Reply:
        """Return the objects with the greatest numbers of a type."""
        return await self._read(_top, app, query)

    async def _read(self, read: Callable[..., Struct], *arguments: Any) -> Reply:
        graphs = await self._graphs.get()
        return Reply(await self._workers.run(read, graphs, *arguments), is_large=True)


def _find(graphs: Graphs, slug: str, body: FindValues) -> ValuePage:
    app_id = graphs.app(slug).app_id
    with graphs.snapshot() as reader:
        result = ValueReader(reader, app_id, body.kind, parse_at(body.at)).find(
            body.type,
            body.where,
            limit=body.limit,
            after=None if isinstance(body.cursor, UnsetType) else body.cursor,
            suppressed=body.suppressed,
        )
    rows = [cast("AttrRow | RatingRow", object_row(body.kind, row)) for row in result.rows]
    return ValuePage(seq=result.seq, items=rows, next_cursor=result.cursor)


def _aggregate(graphs: Graphs, slug: str, query: AggregateValuesQuery) -> AggregateInfo:
    app_id = graphs.app(slug).app_id
    with graphs.snapshot() as reader:
        result = ValueReader(reader, app_id, query.kind, parse_at(query.at)).aggregate(
            query.type,
            None if isinstance(query.target, UnsetType) else query.target,
            query.target_kind,
            suppressed=query.suppressed is not UNSET,
        )
    return AggregateInfo(app=slug, **result._asdict())


def _top(graphs: Graphs, slug: str, query: TopQuery) -> TopInfo:
    app_id = graphs.app(slug).app_id
    with graphs.snapshot() as reader:
        result = ValueReader(reader, app_id, query.kind, parse_at(query.at)).top(
            query.type,
            query.parent_type or None,
            query.order,
            query.limit,
            suppressed=query.suppressed is not UNSET,
        )
    return TopInfo(app=slug, seq=result.seq, objects=[RankedRow(*row) for row in result.objects])


_ERRORS: Final = (NotFound, DeadlineExceeded)
_ROUTES: Final = (
    graph_route(
        *("POST", f"{APP}/find", GraphValueRoutes.find_values),
        operation="find_values",
        summary="Find attributes or ratings of a type by their value, now or at a point.",
        scope="read",
        body=FindValues,
        ok={200: Ok("A page of those that match.", ValuePage)},
        errors=_ERRORS,
    ),
    graph_route(
        *("GET", f"{APP}/aggregate", GraphValueRoutes.aggregate_values),
        operation="aggregate_values",
        summary="Count, add up and average the values of a type, of one object or of all.",
        scope="read",
        query=AggregateValuesQuery,
        ok={200: Ok("The aggregates.", AggregateInfo)},
        errors=_ERRORS,
    ),
    graph_route(
        *("GET", f"{APP}/top", GraphValueRoutes.top_objects),
        operation="top_objects",
        summary="List the objects with the greatest numbers of a type, such as the best rated.",
        scope="read",
        query=TopQuery,
        ok={200: Ok("The objects, greatest first.", TopInfo)},
        errors=_ERRORS,
    ),
)
