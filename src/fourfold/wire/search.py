"""Structs of searches and aggregates of a stream."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Raw, Struct

from fourfold import limits
from fourfold.wire.fields import Count, Offset

SEARCH_TIMEOUT_MAX_MS = 10_000
"""Longest time that a search over HTTP may take."""
_Query = Annotated[
    str, Meta(max_length=2_000, description='Words, "phrases", pre*, field:value, has:field, -not.')
]
_Time = Annotated[str, Meta(max_length=64)]
_Since = Annotated[
    _Time | None,
    Meta(description="Only messages at or after this time: ISO 8601, or milliseconds since 1970."),
]
_Until = Annotated[_Time | None, Meta(description="Only messages at or before this time.")]
_Where = Annotated[
    Annotated[str, Meta(max_length=65_536)] | None, Meta(description="A filter as JSON.")
]
_Order = Annotated[
    Literal["newest", "score"], Meta(description="Newest first, or the best of the newest.")
]
_Limit = Annotated[
    int, Meta(ge=1, le=limits.PAGE_ITEMS_MAX, description="Maximum number of messages.")
]
_After = Annotated[
    Annotated[str, Meta(max_length=8_192)] | None,
    Meta(description="The `next` of the page before."),
]
_Timeout = Annotated[
    int, Meta(ge=1, le=SEARCH_TIMEOUT_MAX_MS, description="Maximum time in milliseconds.")
]
_Every = Annotated[
    Annotated[str, Meta(max_length=16)] | None,
    Meta(description="Length of the intervals: 10s, 1m, 1h or 1d."),
]


class SearchQuery(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of a search."""

    q: _Query = ""
    where: _Where = None
    since: _Since = None
    until: _Until = None
    order: _Order = "newest"
    limit: _Limit = 50
    after: _After = None
    total: Annotated[
        Literal["true", "false"], Meta(description="Count all matches; on the first page.")
    ] = "false"
    timeout_ms: _Timeout = SEARCH_TIMEOUT_MAX_MS


class SearchBody(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A search."""

    q: _Query = ""
    where: dict[str, Any] | None = None
    since: str | int | None = None
    until: str | int | None = None
    order: _Order = "newest"
    limit: _Limit = 50
    after: _After = None
    total: bool = False
    timeout_ms: _Timeout = SEARCH_TIMEOUT_MAX_MS


class AggregateQuery(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of an aggregate."""

    q: _Query = ""
    where: _Where = None
    since: _Since = None
    until: _Until = None
    by: Annotated[list[str], Meta(description="Field to group by; repeatable.")] = []
    every: _Every = None
    measure: Annotated[
        list[str], Meta(description="count, or a measure such as p95(duration); repeatable.")
    ] = []
    timeout_ms: _Timeout = SEARCH_TIMEOUT_MAX_MS


class AggregateBody(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """An aggregate."""

    q: _Query = ""
    where: dict[str, Any] | None = None
    since: str | int | None = None
    until: str | int | None = None
    by: list[str] = []
    every: _Every = None
    measures: Annotated[list[str], Meta(description="By default count.")] = []
    timeout_ms: _Timeout = SEARCH_TIMEOUT_MAX_MS


class SearchSnippet(Struct, frozen=True):
    """A part of a text around its matches."""

    text: str
    highlights: Annotated[
        list[tuple[int, int]], Meta(description="Start and end of each match in the text.")
    ]


class SearchHit(Struct, kw_only=True, frozen=True):
    """A message that matches."""

    offset: Offset
    value: Raw
    time_ms: int
    appended_at_ms: Count
    headers: dict[str, str]
    score: float | None
    snippets: dict[str, SearchSnippet]


class SearchTotal(Struct, kw_only=True, frozen=True):
    """The number of matches; a lower bound if it is not exact."""

    value: Count
    exact: bool


class SearchCoverage(Struct, kw_only=True, frozen=True):
    """Extent of what was read. `complete` is false if the time or the budget of bytes ran out."""

    complete: bool
    start: Offset
    end: Offset
    segments: Count
    segments_skipped: Count
    segments_indexed: Count
    segments_scanned: Count
    scanned_records: Count
    scanned_bytes: Count


class SearchResult(Struct, kw_only=True, frozen=True):
    """A page of messages that match."""

    items: list[SearchHit]
    next: str | None
    total: SearchTotal | None
    coverage: SearchCoverage


class AggregateResult(Struct, kw_only=True, frozen=True):
    """Groups of messages: `time_ms` with `every`, the fields of `by`, and the measures."""

    columns: list[str]
    rows: list[dict[str, Any]]
    coverage: SearchCoverage
