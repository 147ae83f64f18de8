"""Searches and aggregates of a stream over HTTP.

    {name}/_search       GET with parameters, or POST a body: a page of messages that match
    {name}/_aggregate    GET with parameters, or POST a body: groups with their measures

They run in workers, with a deadline and a budget of bytes. Whatever ran out is shown by `coverage`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from fourfold.content.filters import decode_filter
from fourfold.errors import (
    CorruptData,
    LimitExceeded,
    MissingDependency,
    NotFound,
    OffsetGone,
    StreamGone,
)
from fourfold.models.streams import Streams
from fourfold.models.streams.search.measures import COUNT
from fourfold.models.streams.search.request import SEARCH_BYTES, check_aggregate, check_search
from fourfold.models.streams.search.results import Coverage, Hit
from fourfold.server.request import Reply, Request
from fourfold.server.routes import Ok, Route, bind
from fourfold.server.stream_reads import STREAM
from fourfold.server.stream_rules import AGGREGATE, SEARCH
from fourfold.server.workers import Workers
from fourfold.wire.search import (
    AggregateBody,
    AggregateQuery,
    AggregateResult,
    SearchBody,
    SearchCoverage,
    SearchHit,
    SearchQuery,
    SearchResult,
    SearchSnippet,
    SearchTotal,
)

BODY_MAX: Final = 128 * 1024


class StreamSearch:
    """Handlers of searches."""

    def __init__(self, streams: Streams, workers: Workers) -> None:
        self._streams = streams
        self._workers = workers

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of these handlers."""
        return bind(_ROUTES, self)

    async def get_search(self, _request: Request, name: str, query: SearchQuery) -> Reply:
        """Search a stream by the parameters of a request."""
        total = query.total == "true"
        return await self._search(name, query, _where(query.where), total=total)

    async def post_search(self, _request: Request, name: str, body: SearchBody) -> Reply:
        """Search a stream by the body of a request."""
        return await self._search(name, body, body.where, total=body.total)

    async def _search(
        self, name: str, options: SearchQuery | SearchBody, where: Any, *, total: bool
    ) -> Reply:
        request = check_search(
            options.q,
            where=where,
            since=options.since,
            until=options.until,
            order=options.order,
            limit=options.limit,
            after=options.after,
            total=total,
            timeout_s=options.timeout_ms / 1000,
            max_bytes=SEARCH_BYTES,
        )
        page = await self._workers.run(self._streams.search, name, request)
        result = SearchResult(
            items=list(map(_hit, page.items)),
            next=page.next,
            total=None if page.total is None else SearchTotal(**page.total._asdict()),
            coverage=_coverage(page.coverage),
        )
        return Reply(result, is_large=True)

    async def get_aggregate(self, _request: Request, name: str, query: AggregateQuery) -> Reply:
        """Aggregate a stream by the parameters of a request."""
        return await self._aggregate(name, query, _where(query.where), query.measure)

    async def post_aggregate(self, _request: Request, name: str, body: AggregateBody) -> Reply:
        """Aggregate a stream by the body of a request."""
        return await self._aggregate(name, body, body.where, body.measures)

    async def _aggregate(
        self, name: str, options: AggregateQuery | AggregateBody, where: Any, measures: list[str]
    ) -> Reply:
        request = check_aggregate(
            options.q,
            by=options.by,
            every=options.every,
            measures=measures or [COUNT],
            where=where,
            since=options.since,
            until=options.until,
            timeout_s=options.timeout_ms / 1000,
            max_bytes=SEARCH_BYTES,
        )
        groups = await self._workers.run(self._streams.aggregate, name, request)
        result = AggregateResult(
            columns=list(groups.columns),
            rows=list(groups.rows),
            coverage=_coverage(groups.coverage),
        )
        return Reply(result, is_large=True)


def _where(text: str | None) -> Any:
    return None if text is None else decode_filter(text)


def _hit(hit: Hit) -> SearchHit:
    return SearchHit(
        offset=str(hit.offset),
        value=msgspec.Raw(hit.record.payload),
        time_ms=hit.time_ms,
        appended_at_ms=hit.record.ts_ms,
        headers=hit.record.headers,
        score=hit.score,
        snippets={
            field: SearchSnippet(snippet.text, list(snippet.highlights))
            for field, snippet in hit.snippets.items()
        },
    )


def _coverage(coverage: Coverage) -> SearchCoverage:
    facts = coverage._asdict()
    return SearchCoverage(**{**facts, "start": str(coverage.start), "end": str(coverage.end)})


def _route(method: str, path: str, handler: Any, **options: Any) -> Route:
    return Route(
        *(method, f"{STREAM}{path}", handler),
        scope="read",
        resource="name",
        errors=(NotFound, StreamGone, OffsetGone, LimitExceeded, CorruptData, MissingDependency),
        **options,
    )


_FOUND: Final = {200: Ok("A page of matches, and what was searched.", SearchResult)}
_GROUPS: Final = {200: Ok("The groups, and what was read.", AggregateResult)}
_ROUTES: Final = (
    _route(
        *("GET", SEARCH, StreamSearch.get_search),
        operation="search",
        summary="Search the messages of a stream.",
        query=SearchQuery,
        ok=_FOUND,
    ),
    _route(
        *("POST", SEARCH, StreamSearch.post_search),
        operation="post_search",
        summary="Search the messages of a stream by a body.",
        body=SearchBody,
        body_max=BODY_MAX,
        ok=_FOUND,
    ),
    _route(
        *("GET", AGGREGATE, StreamSearch.get_aggregate),
        operation="aggregate",
        summary="Group and measure the messages of a stream.",
        query=AggregateQuery,
        ok=_GROUPS,
    ),
    _route(
        *("POST", AGGREGATE, StreamSearch.post_aggregate),
        operation="post_aggregate",
        summary="Group and measure the messages of a stream by a body.",
        body=AggregateBody,
        body_max=BODY_MAX,
        ok=_GROUPS,
    ),
)
