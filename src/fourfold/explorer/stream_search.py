"""Search on the page of a stream: hits with highlights, and facets of declared columns."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from fourfold.content.filters import decode_filter
from fourfold.errors import CorruptData, InvalidInput, LimitExceeded, MissingDependency
from fourfold.explorer.page import Visit
from fourfold.models.streams.validation import parse_offset
from fourfold.wire.search import AggregateResult, SearchHit, SearchResult, SearchSnippet
from fourfold.wire.streams import RegistryBody

HITS_SHOWN: Final = 25
FACETS_SHOWN: Final = 3
"""Declared columns whose values are counted."""
FACET_VALUES: Final = 8
FACETS_MS: Final = 1_000
"""Maximum time to count the values of a column."""
NO_SEARCH: Final[dict[str, Any]] = {
    "q": "",
    "where": "",
    "hits": None,
    "hits_after": None,
    "total": None,
    "facets": [],
    "coverage": None,
    "search_problem": "",
}


async def search_stream(  # noqa: PLR0917 - a search of a page
    visit: Visit, name: str, q: str, where: str, after: str, schemas: RegistryBody | None
) -> dict[str, Any]:
    """Return the hits and facets of what a visitor searches for, or why there are none."""
    if not q and not where:
        return NO_SEARCH
    path = f"/v1/stream/{name}"
    body: dict[str, Any] = {"q": q, "limit": HITS_SHOWN}
    if after:
        body["after"] = after
    try:
        if where:
            body["where"] = decode_filter(where).where
        page, facets = await asyncio.gather(
            visit.api.post(f"{path}/_search", SearchResult, {**body, "total": not after}),
            _read_facets(visit, path, body, schemas),
        )
    except (InvalidInput, CorruptData, MissingDependency) as error:
        return {**NO_SEARCH, "q": q, "where": where, "hits": [], "search_problem": error.message}
    # As of a time, the page shows what had been appended by then.
    until_ms = visit.time_ms
    hits = [hit for hit in page.items if until_ms is None or hit.appended_at_ms <= until_ms]
    return {
        "q": q,
        "where": where,
        "hits": [_row(hit) for hit in hits],
        "hits_after": page.next,
        "total": page.total if until_ms is None else None,
        "facets": facets if until_ms is None else [],
        "coverage": page.coverage,
        "search_problem": "",
    }


async def _read_facets(
    visit: Visit, path: str, body: dict[str, Any], schemas: RegistryBody | None
) -> list[dict[str, Any]]:
    """Return the most frequent values of declared columns among the matches.

    Each has the filter that selects it, too.
    """
    declared = None if schemas is None else schemas.search
    columns = [] if declared is None else (declared.columns or [])[:FACETS_SHOWN]
    where = body.get("where") or {}
    facets = []
    for column in columns:
        request = {"q": body["q"], "where": where or None, "by": [column], "timeout_ms": FACETS_MS}
        try:
            groups = await visit.api.post(f"{path}/_aggregate", AggregateResult, request)
        except LimitExceeded:
            # A column with so many values has no useful facets.
            continue
        counts = [(row[column], row["count"]) for row in groups.rows if row[column] is not None]
        counts.sort(key=lambda pair: -pair[1])
        rows = [
            {
                "value": value,
                "count": count,
                "where": msgspec.json.encode({**where, column: value}).decode(),
            }
            for value, count in counts[:FACET_VALUES]
        ]
        facets.append({"field": column, "rows": rows})
    return facets


def _row(hit: SearchHit) -> dict[str, Any]:
    offset = parse_offset(hit.offset)
    assert offset is not None
    return {
        "number": offset.record,
        "time_ms": hit.time_ms,
        "text": bytes(hit.value).decode(),
        "snippets": [
            {"field": field, "parts": split_highlights(snippet)}
            for field, snippet in hit.snippets.items()
        ],
    }


def split_highlights(snippet: SearchSnippet) -> list[tuple[str, bool]]:
    """Return the pieces of a snippet, each with True if it is a match."""
    parts: list[tuple[str, bool]] = []
    last = 0
    for start, end in snippet.highlights:
        parts += (snippet.text[last:start], False), (snippet.text[start:end], True)
        last = end
    return [*parts, (snippet.text[last:], False)]
