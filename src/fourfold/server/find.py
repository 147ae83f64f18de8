"""Routes that find documents by a filter, and routes of declared indexes.

A query may read many documents, so it runs in a worker. The filter is in the body: it is JSON,
and may be longer than an address.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct, UnsetType

from fourfold.errors import (
    AlreadyExists,
    DeadlineExceeded,
    HistoryTruncated,
    LimitExceeded,
    NotFound,
    Refused,
)
from fourfold.models.documents import FindPlan, IndexInfo, Space
from fourfold.server.open_spaces import OpenSpaces
from fourfold.server.points import parse_at
from fourfold.server.request import Reply, Request
from fourfold.server.routes import Ok, Route, bind
from fourfold.server.spaces import SPACE, SPACES, space_route
from fourfold.server.workers import Workers
from fourfold.wire.find import (
    CountRequest,
    DocumentCount,
    ExplainRequest,
    FacetPage,
    FacetRow,
    FacetsRequest,
    FindRequest,
    FoundDocuments,
    IndexPage,
    IndexRow,
    MatchRow,
    NewIndex,
    PlanInfo,
)

INDEXES: Final = f"{SPACE}/indexes"
INDEX: Final = f"{INDEXES}/{{index}}"


class FindRoutes:
    """Handlers of queries for documents and of declared indexes."""

    def __init__(self, workers: Workers, spaces: OpenSpaces) -> None:
        self._workers = workers
        self._spaces = spaces

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of these handlers."""
        return bind(_ROUTES, self)

    def stop(self) -> None:
        """Do nothing: no request of these routes waits."""

    async def find(self, _request: Request, did: str, body: FindRequest) -> Reply:
        """Return a page of the documents that match."""
        return await self._run(did, _find, body)

    async def count(self, _request: Request, did: str, body: CountRequest) -> Reply:
        """Return the number of documents that match."""
        return await self._run(did, _count, body)

    async def facets(self, _request: Request, did: str, body: FacetsRequest) -> Reply:
        """Return the most frequent values at a path."""
        return await self._run(did, _facets, body)

    async def explain(self, _request: Request, did: str, body: ExplainRequest) -> Reply:
        """Return how a query would be answered."""
        return await self._run(did, _explain, body)

    async def list_indexes(self, _request: Request, did: str) -> Reply:
        """Return the declared indexes."""
        return await self._run(did, _list)

    async def get_index(self, _request: Request, did: str, index: str) -> Reply:
        """Return a declared index."""
        return await self._run(did, _get, index)

    async def create_index(self, _request: Request, did: str, body: NewIndex) -> Reply:
        """Declare an index."""
        async with self._spaces.use(did) as space:
            info = await self._workers.write(
                *(space.indexes.create, body.name, body.paths),
                unique=body.unique,
                history=body.history,
                kind=body.kind,
            )
        location = f"{SPACES}/{did}/indexes/{info.name}"
        return Reply(_index_row(info), 201, location=location)

    async def drop_index(self, _request: Request, did: str, index: str) -> Reply:
        """Drop an index."""
        async with self._spaces.use(did) as space:
            await self._workers.write(space.indexes.drop, index)
        return Reply(None, 204)

    async def rebuild_index(self, _request: Request, did: str, index: str) -> Reply:
        """Build an index again."""
        async with self._spaces.use(did) as space:
            info = await self._workers.write(space.indexes.rebuild, index)
        return Reply(_index_row(info))

    async def _run(self, did: str, read: Callable[..., Struct], *arguments: Any) -> Reply:
        async with self._spaces.use(did) as space:
            return Reply(await self._workers.run(read, space, *arguments), is_large=True)


def _or_none(value: Any) -> Any:
    return None if isinstance(value, UnsetType) else value


def _find(space: Space, body: FindRequest) -> FoundDocuments:
    page = space.find(
        _or_none(body.where),
        order_by=_or_none(body.order_by),
        limit=body.limit,
        after=_or_none(body.cursor),
        at=parse_at(body.at),
        branch=body.branch,
        scan=body.scan,
    )
    return FoundDocuments(
        items=[
            MatchRow(id=match.id, document=match.document, seq=match.seq) for match in page.items
        ],
        next_cursor=page.next,
        seq=page.seq,
        plan=_plan_info(page.plan),
    )


def _count(space: Space, body: CountRequest) -> DocumentCount:
    number = space.count(_or_none(body.where), at=parse_at(body.at), branch=body.branch)
    return DocumentCount(count=number)


def _facets(space: Space, body: FacetsRequest) -> FacetPage:
    facets = space.facets(
        body.path,
        where=_or_none(body.where),
        limit=body.limit,
        at=parse_at(body.at),
        branch=body.branch,
    )
    return FacetPage(items=[FacetRow(value=facet.value, count=facet.count) for facet in facets])


def _explain(space: Space, body: ExplainRequest) -> PlanInfo:
    plan = space.explain(
        _or_none(body.where),
        order_by=_or_none(body.order_by),
        at=parse_at(body.at),
        branch=body.branch,
    )
    return _plan_info(plan)


def _plan_info(plan: FindPlan) -> PlanInfo:
    return PlanInfo(
        access=plan.access,
        index=plan.index,
        ranges=plan.ranges,
        exact=plan.exact,
        sorts=plan.sorts,
        building=list(plan.building),
        scanned=plan.scanned,
        complete=plan.complete,
    )


def _list(space: Space) -> IndexPage:
    return IndexPage(items=[_index_row(info) for info in space.indexes.list()])


def _get(space: Space, index: str) -> IndexRow:
    return _index_row(space.indexes.get(index))


def _index_row(info: IndexInfo) -> IndexRow:
    return IndexRow(
        name=info.name,
        kind=info.kind,
        paths=list(info.paths),
        unique=info.unique,
        history=info.history,
        state=info.state,
        error=info.error,
    )


_QUERY_ERRORS: Final = (NotFound, HistoryTruncated, Refused, LimitExceeded, DeadlineExceeded)


def _query_route(path: str, handler: Any, body: Any, ok: Ok, **options: Any) -> Route:
    return space_route(
        *("POST", f"{SPACE}/{path}", handler),
        scope="read",
        body=body,
        ok={200: ok},
        errors=_QUERY_ERRORS,
        **options,
    )


_ROUTES: Final = (
    _query_route(
        *("find", FindRoutes.find, FindRequest),
        Ok("A page of documents, and how they were found.", FoundDocuments),
        operation="find_documents",
        summary="Find the documents that match a filter.",
    ),
    _query_route(
        *("count", FindRoutes.count, CountRequest),
        Ok("The number of documents.", DocumentCount),
        operation="count_documents",
        summary="Count the documents that match a filter.",
    ),
    _query_route(
        *("facets", FindRoutes.facets, FacetsRequest),
        Ok("The values and their counts.", FacetPage),
        operation="list_facets",
        summary="List the most frequent values at a path.",
    ),
    _query_route(
        *("explain", FindRoutes.explain, ExplainRequest),
        Ok("The plan.", PlanInfo),
        operation="explain_find",
        summary="Show which index serves a query.",
    ),
    space_route(
        *("GET", INDEXES, FindRoutes.list_indexes),
        operation="list_indexes",
        no_past="an index of now serves reads at every point",
        summary="List the declared indexes of a space.",
        scope="read",
        ok={200: Ok("The indexes.", IndexPage)},
        errors=(NotFound,),
    ),
    space_route(
        *("POST", INDEXES, FindRoutes.create_index),
        operation="create_index",
        summary="Declare an index over paths of the documents.",
        scope="write",
        body=NewIndex,
        ok={201: Ok("The index; it may still be built.", IndexRow)},
        errors=(NotFound, AlreadyExists, LimitExceeded),
    ),
    space_route(
        *("GET", INDEX, FindRoutes.get_index),
        operation="get_index",
        no_past="an index of now serves reads at every point",
        summary="Get a declared index.",
        scope="read",
        ok={200: Ok("The index.", IndexRow)},
        errors=(NotFound,),
    ),
    space_route(
        *("DELETE", INDEX, FindRoutes.drop_index),
        operation="drop_index",
        summary="Drop an index.",
        scope="write",
        ok={204: Ok("It was dropped.")},
        errors=(NotFound,),
    ),
    space_route(
        *("POST", f"{INDEX}/rebuild", FindRoutes.rebuild_index),
        operation="rebuild_index",
        summary="Delete the entries of an index and build them again.",
        scope="write",
        ok={200: Ok("The index; it may still be built.", IndexRow)},
        errors=(NotFound,),
    ),
)
