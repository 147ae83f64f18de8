"""Requests to search and to aggregate: checked arguments, the budget, and cursors."""

from __future__ import annotations

import base64
import binascii
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from fourfold import limits
from fourfold.content.filters import Filter, parse_filter
from fourfold.errors import InvalidInput, StreamRecreated
from fourfold.models.streams.records import StreamInfo
from fourfold.models.streams.schemas.search import parse_interval_ms
from fourfold.models.streams.search.measures import Measure, check_groups, parse_measures
from fourfold.models.streams.times import Time, parse_time_ms

SEARCH_LIMIT: Final = 50
SEARCH_BYTES: Final = 256 * limits.MIB
"""Payload that one search reads record by record."""
SEARCH_TIMEOUT_S: Final = 10.0
ORDERS: Final = ("newest", "score")


class Budget:
    """The bytes and the time that a search may use; it is checked between slices of work."""

    def __init__(
        self, bytes_max: int, timeout_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._bytes_max = bytes_max
        self._clock = clock
        self._until = clock() + timeout_s
        self.records = 0
        self.bytes = 0

    def spend(self, records: int, size: int) -> None:
        """Count records that were read."""
        self.records += records
        self.bytes += size

    @property
    def is_exhausted(self) -> bool:
        """True if no further slice may be read."""
        return self.bytes >= self._bytes_max or self._clock() >= self._until


@dataclass(frozen=True)
class Bounds:
    """Parts of both kinds of requests: a filter, times, and a budget."""

    text: str
    filter: Filter
    since_ms: int | None
    until_ms: int | None
    timeout_s: float
    max_bytes: int

    @property
    def has_times(self) -> bool:
        """True if the times of messages matter."""
        return self.since_ms is not None or self.until_ms is not None

    def covers(self, time_ms: int) -> bool:
        """Return True if a time is within the bounds."""
        return (self.since_ms is None or time_ms >= self.since_ms) and (
            self.until_ms is None or time_ms <= self.until_ms
        )


@dataclass(frozen=True)
class SearchRequest(Bounds):
    """A checked request to search."""

    order: str
    limit: int
    after: str | None
    total: bool

    def digest(self, name: str) -> str:
        """Return what a cursor of this search is bound to."""
        where = msgspec.json.encode(self.filter.where, order="sorted").decode()
        parts = (name, self.text, where, self.since_ms, self.until_ms, self.order)
        return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:16]


@dataclass(frozen=True)
class AggregateRequest(Bounds):
    """A checked request to aggregate."""

    by: tuple[str, ...]
    every_ms: int | None
    measures: tuple[Measure, ...]


def check_search(
    query: str,
    *,
    where: Mapping[str, Any] | Filter | None,
    since: Time | None,
    until: Time | None,
    order: str,
    limit: int,
    after: str | None,
    total: bool,
    timeout_s: float,
    max_bytes: int,
) -> SearchRequest:
    """Return a request to search; raise InvalidInput."""
    if order not in ORDERS:
        raise InvalidInput(f"order: must be newest or score, got {order!r:.80}")
    if type(limit) is not int or not 1 <= limit <= limits.PAGE_ITEMS_MAX:
        raise InvalidInput(f"limit: must be from 1 to {limits.PAGE_ITEMS_MAX}, got {limit!r:.80}")
    if after is not None and not isinstance(after, str):
        raise InvalidInput(f"after: must be the `next` of a page, got {after!r:.80}")
    common = _bounds(query, where, since, until, timeout_s, max_bytes)
    return SearchRequest(**common, order=order, limit=limit, after=after, total=bool(total))


def check_aggregate(
    query: str,
    *,
    by: Sequence[str],
    every: str | None,
    measures: Sequence[str],
    where: Mapping[str, Any] | Filter | None,
    since: Time | None,
    until: Time | None,
    timeout_s: float,
    max_bytes: int,
) -> AggregateRequest:
    """Return a request to aggregate; raise InvalidInput."""
    common = _bounds(query, where, since, until, timeout_s, max_bytes)
    every_ms = None if every is None else parse_interval_ms(every)
    fields, parsed = check_groups(by), parse_measures(measures)
    if clash := {measure.name for measure in parsed}.intersection(fields):
        raise InvalidInput(
            f"by: {min(clash)!r} is also the name of a measure", hint="Leave one of them out."
        )
    return AggregateRequest(**common, by=fields, every_ms=every_ms, measures=parsed)


def _bounds(  # noqa: PLR0917 - the arguments that both kinds have
    query: str,
    where: Mapping[str, Any] | Filter | None,
    since: Time | None,
    until: Time | None,
    timeout_s: float,
    max_bytes: int,
) -> dict[str, Any]:
    if not isinstance(query, str):
        raise InvalidInput(f"query: must be text, got {type(query).__name__}")
    if not timeout_s > 0 or not max_bytes > 0:
        raise InvalidInput(
            f"timeout_s and max_bytes must be positive, got {timeout_s!r:.40} and {max_bytes!r:.40}"
        )
    return {
        "text": query,
        "filter": parse_filter(where),
        "since_ms": None if since is None else parse_time_ms(since),
        "until_ms": None if until is None else parse_time_ms(until),
        "timeout_s": timeout_s,
        "max_bytes": max_bytes,
    }


class SearchCursor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Start of the next page of a search; opaque to callers."""

    digest: str
    incarnation_number: int
    end: int
    """The end of the stream when the first page was read."""
    position: int
    """Newest first: records before this one. By score: the number of matches already returned."""

    def format(self) -> str:
        """Return the cursor as text."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")


def parse_cursor(text: str | None, digest: str, info: StreamInfo) -> SearchCursor | None:
    """Return the cursor of a request, or None for the first page.

    Raises:
        InvalidInput: it is not a cursor of this search.
        StreamRecreated: it belongs to an earlier stream of that name.
    """
    if text is None:
        return None
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        cursor = msgspec.json.decode(raw, type=SearchCursor)
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        cursor = SearchCursor("", 0, 0, 0)
    if cursor.digest != digest or not cursor.end >= 0 or cursor.position < 0:
        raise InvalidInput(
            f"after: must be the next of a page of this search, got {text!r:.80}",
            hint="Repeat the search without `after`, and then change nothing else.",
        )
    if cursor.incarnation_number != info.incarnation_number or cursor.end > info.next_offset:
        raise StreamRecreated(
            f"stream {info.name!r}: the search began on an earlier stream of that name",
            hint="Repeat the search without `after`.",
        )
    return cursor
