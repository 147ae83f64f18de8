"""Search over the documents of a space. Its cost has no bound: it runs in workers."""

from __future__ import annotations

from typing import Final

from msgspec import UnsetType

from fourfold.errors import Busy, LimitExceeded, MissingDependency, Refused
from fourfold.models.documents import Space
from fourfold.models.documents.indexes.search import SearchHit, SearchPage
from fourfold.server.open_spaces import OpenSpaces
from fourfold.server.points import parse_at
from fourfold.server.request import Reply, Request
from fourfold.server.routes import Ok, Route, bind
from fourfold.server.spaces import READ_ERRORS, SPACE, space_route
from fourfold.server.workers import Workers
from fourfold.wire.documents import (
    DocumentSearchQuery,
    HitPage,
    HitRecord,
    SnippetRecord,
    VectorSearch,
)


class SpaceSearch:
    """Handler of searches."""

    def __init__(self, workers: Workers, spaces: OpenSpaces) -> None:
        self._workers = workers
        self._spaces = spaces

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of this handler."""
        return bind(_ROUTES, self)

    def stop(self) -> None:
        """Do nothing: no search waits."""

    async def search(self, _request: Request, did: str, query: DocumentSearchQuery) -> Reply:
        """Return a page of hits."""
        async with self._spaces.use(did) as space:
            return Reply(await self._workers.run(_search, space, query), is_large=True)

    async def search_vectors(self, _request: Request, did: str, body: VectorSearch) -> Reply:
        """Return a page of a search with a filter, a vector, or both."""
        async with self._spaces.use(did) as space:
            return Reply(await self._workers.run(_search_vectors, space, body), is_large=True)


def _search(space: Space, query: DocumentSearchQuery) -> HitPage:
    page = space.search(
        query.q,
        index=None if isinstance(query.index, UnsetType) else query.index,
        paths=query.path or None,
        order=query.order,
        limit=query.limit,
        after=None if isinstance(query.cursor, UnsetType) else query.cursor,
        at=parse_at(query.at),
        branch=query.branch,
    )
    return _hit_page(page)


def _search_vectors(space: Space, body: VectorSearch) -> HitPage:
    page = space.search(
        None if isinstance(body.q, UnsetType) else body.q,
        vector=None if isinstance(body.vector, UnsetType) else body.vector,
        where=None if isinstance(body.where, UnsetType) else body.where,
        index=None if isinstance(body.index, UnsetType) else body.index,
        paths=body.path or None,
        order=body.order,
        limit=body.limit,
        after=None if isinstance(body.cursor, UnsetType) else body.cursor,
        at=parse_at(body.at),
        branch=body.branch,
    )
    return _hit_page(page)


def _hit_page(page: SearchPage) -> HitPage:
    return HitPage(
        items=list(map(_record, page)),
        next_cursor=page.next,
        total=page.total,
        index=page.index,
        seq=page.seq,
    )


def _record(hit: SearchHit) -> HitRecord:
    snippets = [
        SnippetRecord(path=snippet.path, text=snippet.text, highlights=list(snippet.highlights))
        for snippet in hit.snippets
    ]
    return HitRecord(
        id=hit.id, document=hit.document, seq=hit.seq, score=hit.score, snippets=snippets
    )


_ROUTES: Final = (
    space_route(
        *("GET", f"{SPACE}/search", SpaceSearch.search),
        operation="search_documents",
        summary="Search the words of documents by a full-text index.",
        scope="read",
        query=DocumentSearchQuery,
        ok={200: Ok("A page of hits.", HitPage)},
        errors=(*READ_ERRORS, Refused, Busy),
    ),
    space_route(
        *("POST", f"{SPACE}/search", SpaceSearch.search_vectors),
        operation="search_vectors",
        summary="Search by words, by the nearest vectors, or by both, with a filter.",
        scope="read",
        body=VectorSearch,
        ok={200: Ok("A page of hits.", HitPage)},
        errors=(*READ_ERRORS, Refused, Busy, LimitExceeded, MissingDependency),
    ),
)
