"""Walks along the edges of an app over HTTP: reach, paths, existence, counts and patterns.

A walk may visit many objects, so it runs in a worker, with the deadline of a read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec import UNSET, Struct, UnsetType, to_builtins

from fourfold import limits
from fourfold.errors import DeadlineExceeded, LimitExceeded, NotFound
from fourfold.models.graphs import Graphs
from fourfold.models.graphs.match import PatternReader
from fourfold.models.graphs.traversal import Traversal
from fourfold.server.graphs import APP, OpenGraphs, graph_route, parse_id
from fourfold.server.points import parse_at
from fourfold.server.request import Reply, Request
from fourfold.server.routes import Ok, Route, bind
from fourfold.server.workers import Workers
from fourfold.wire.graph_patterns import MatchPage, MatchPath, MatchPattern, PatternRow
from fourfold.wire.graphs import (
    CountEdgesQuery,
    EdgeCount,
    EdgesQuery,
    ExistsInfo,
    ExistsQuery,
    PathInfo,
    PathQuery,
    ReachedRow,
    TraverseInfo,
    TraverseQuery,
)


class GraphWalkRoutes:
    """Handlers of walks along edges."""

    def __init__(self, workers: Workers, graphs: OpenGraphs) -> None:
        self._workers = workers
        self._graphs = graphs

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of these handlers."""
        return bind(_ROUTES, self)

    def stop(self) -> None:
        """Do nothing: no request of these routes waits."""

    async def traverse(
        self, _request: Request, app: str, object_id: str, query: TraverseQuery
    ) -> Reply:
        """Return what is within some hops of an object."""
        return await self._walk(_traverse, app, parse_id(object_id), query)

    async def find_path(self, _request: Request, app: str, query: PathQuery) -> Reply:
        """Return a shortest path between two objects."""
        return await self._walk(_path, app, query)

    async def edge_exists(self, _request: Request, app: str, query: ExistsQuery) -> Reply:
        """Return whether an edge leads from one object to another."""
        return await self._walk(_exists, app, query)

    async def count_edges(
        self, _request: Request, app: str, object_id: str, query: CountEdgesQuery
    ) -> Reply:
        """Return the number of edges of an object."""
        return await self._walk(_count, app, parse_id(object_id), query)

    async def match_pattern(self, _request: Request, app: str, body: MatchPattern) -> Reply:
        """Return a page of the matches of a pattern."""
        return await self._walk(_match, app, body)

    async def _walk(self, walk: Callable[..., Struct], *arguments: Any) -> Reply:
        graphs = await self._graphs.get()
        return Reply(await self._workers.run(walk, graphs, *arguments), is_large=True)


def _traverse(graphs: Graphs, slug: str, object_id: int, query: TraverseQuery) -> TraverseInfo:
    app_id = graphs.app(slug).app_id
    with graphs.snapshot() as reader:
        walk = Traversal(reader, app_id, **_options(query))
        result = walk.traverse(object_id, query.depth, query.direction, query.limit)
    objects = [ReachedRow(*row) for row in result.objects]
    return TraverseInfo(app=slug, seq=result.seq, objects=objects, complete=result.complete)


def _path(graphs: Graphs, slug: str, query: PathQuery) -> PathInfo:
    app_id = graphs.app(slug).app_id
    with graphs.snapshot() as reader:
        walk = Traversal(reader, app_id, **_options(query))
        ends = query.start, query.end
        path = walk.path(
            *ends, query.depth, query.direction, objects_max=limits.HTTP_PATH_OBJECTS_MAX
        )
    if path is None:
        return PathInfo(app=slug, seq=walk.seq, objects=[], edges=[])
    return PathInfo(app=slug, seq=path.seq, objects=list(path.objects), edges=list(path.edges))


def _exists(graphs: Graphs, slug: str, query: ExistsQuery) -> ExistsInfo:
    app_id = graphs.app(slug).app_id
    with graphs.snapshot() as reader:
        walk = Traversal(reader, app_id, **_options(query))
        return ExistsInfo(app=slug, seq=walk.seq, exists=walk.exists(query.src, query.dst))


def _count(graphs: Graphs, slug: str, object_id: int, query: CountEdgesQuery) -> EdgeCount:
    app_id = graphs.app(slug).app_id
    with graphs.snapshot() as reader:
        walk = Traversal(reader, app_id, **_options(query))
        return EdgeCount(app=slug, seq=walk.seq, count=walk.count(object_id, query.direction))


def _match(graphs: Graphs, slug: str, body: MatchPattern) -> MatchPage:
    app_id = graphs.app(slug).app_id
    with graphs.snapshot() as reader:
        pattern = PatternReader(
            *(reader, app_id, to_builtins(body.pattern)),
            at=parse_at(body.at),
            suppressed=body.suppressed,
        )
        cursor = None if isinstance(body.cursor, UnsetType) else body.cursor
        result = pattern.match(body.limit, cursor)
    rows = [
        PatternRow(row.objects, [MatchPath(list(p.objects), list(p.edges)) for p in row.paths])
        for row in result.rows
    ]
    return MatchPage(app=slug, seq=result.seq, items=rows, next_cursor=result.cursor)


def _options(query: EdgesQuery) -> dict[str, Any]:
    return {
        "types": query.type or None,
        "at": parse_at(query.at),
        "suppressed": query.suppressed is not UNSET,
    }


_ERRORS: Final = (NotFound, LimitExceeded, DeadlineExceeded)
_ROUTES: Final = (
    graph_route(
        *("GET", f"{APP}/traverse/{{object_id}}", GraphWalkRoutes.traverse),
        operation="traverse",
        summary="List the objects within some hops of an object, nearest first.",
        scope="read",
        query=TraverseQuery,
        ok={200: Ok("What was reached.", TraverseInfo)},
        errors=_ERRORS,
    ),
    graph_route(
        *("GET", f"{APP}/path", GraphWalkRoutes.find_path),
        operation="find_path",
        summary="Find a shortest path between two objects.",
        scope="read",
        query=PathQuery,
        ok={200: Ok("The path; without objects if there is none.", PathInfo)},
        errors=_ERRORS,
    ),
    graph_route(
        *("GET", f"{APP}/exists", GraphWalkRoutes.edge_exists),
        operation="edge_exists",
        summary="Tell whether an edge leads from one object to another.",
        scope="read",
        query=ExistsQuery,
        ok={200: Ok("The answer.", ExistsInfo)},
        errors=_ERRORS,
    ),
    graph_route(
        *("GET", f"{APP}/count/{{object_id}}", GraphWalkRoutes.count_edges),
        operation="count_edges",
        summary="Count the edges between an object and visible others.",
        scope="read",
        query=CountEdgesQuery,
        ok={200: Ok("The number.", EdgeCount)},
        errors=_ERRORS,
    ),
    graph_route(
        *("POST", f"{APP}/match", GraphWalkRoutes.match_pattern),
        operation="match_pattern",
        summary="Find objects and edges that match a pattern, now or at a point.",
        scope="read",
        body=MatchPattern,
        ok={200: Ok("A page of matches.", MatchPage)},
        errors=_ERRORS,
    ),
)
