"""Requests to search and aggregate a stream, and their responses, without I/O."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from fourfold.client import responses
from fourfold.client.requests import Address, Call, to_json
from fourfold.client.responses import Response
from fourfold.client.stream_records import offset_of
from fourfold.content.text import Snippet
from fourfold.models.streams.record_headers import encode_headers
from fourfold.models.streams.records import Record
from fourfold.models.streams.search.request import AggregateRequest, Bounds, SearchRequest
from fourfold.models.streams.search.results import Aggregates, Coverage, Hit, SearchPage, Total
from fourfold.wire.search import (
    SEARCH_TIMEOUT_MAX_MS,
    AggregateResult,
    SearchCoverage,
    SearchHit,
    SearchResult,
)

_HEADERS: Final = {"content-type": "application/json"}


def search(address: Address, name: str, request: SearchRequest) -> Call:
    """Build the request of a search."""
    body = {
        **_bounds(request),
        "order": request.order,
        "limit": request.limit,
        "after": request.after,
        "total": request.total,
    }
    return _call(address, name, "_search", f"search {name!r}", body)


def aggregate(address: Address, name: str, request: AggregateRequest) -> Call:
    """Build the request of an aggregate."""
    every = None if request.every_ms is None else f"{request.every_ms}ms"
    measures = [measure.name for measure in request.measures]
    body = {**_bounds(request), "by": list(request.by), "every": every, "measures": measures}
    return _call(address, name, "_aggregate", f"aggregate {name!r}", body)


def _bounds(request: Bounds) -> dict[str, Any]:
    return {
        "q": request.text,
        "where": request.filter.where,
        "since": request.since_ms,
        "until": request.until_ms,
        "timeout_ms": max(1, round(min(SEARCH_TIMEOUT_MAX_MS, request.timeout_s * 1000))),
    }


def _call(address: Address, name: str, part: str, operation: str, body: dict[str, Any]) -> Call:
    url = f"{address.stream(name)}/{part}"
    return Call("POST", url, operation, _HEADERS, {}, to_json(body), live=True, bounded=True)


def parse_page(response: Response) -> SearchPage:
    """Return a page of matches, as a local stream returns it."""
    result = responses.decode(response, SearchResult, "a search")
    total = None if result.total is None else Total(result.total.value, result.total.exact)
    items = list(map(_hit, result.items))
    return SearchPage(items, result.next, _coverage(result.coverage), total)


def parse_groups(response: Response) -> Aggregates:
    """Return groups, as a local stream returns them."""
    result = responses.decode(response, AggregateResult, "an aggregate")
    return Aggregates.of(result.rows, _coverage(result.coverage), tuple(result.columns))


def _hit(hit: SearchHit) -> Hit:
    offset = offset_of(hit.offset)
    snippets = {
        field: Snippet(snippet.text, tuple(snippet.highlights))
        for field, snippet in hit.snippets.items()
    }
    headers = encode_headers(hit.headers or None)
    record = Record(offset.record, bytes(hit.value), hit.appended_at_ms, headers)
    return Hit(offset, record, hit.time_ms, hit.score, snippets)


def _coverage(coverage: SearchCoverage) -> Coverage:
    facts = msgspec.structs.asdict(coverage)
    ends = {"start": offset_of(coverage.start), "end": offset_of(coverage.end)}
    return Coverage(**{**facts, **ends})
