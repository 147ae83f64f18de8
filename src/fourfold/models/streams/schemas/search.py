"""The search declaration of a stream: what its messages are searched and aggregated by. Pure.

    {"fields":    ["orderId"],                     exact values, found by index runs
     "text":      ["message", "error.detail"],     words and phrases
     "columns":   ["service", "status"],           values for filters and groups
     "timestamp": "time",                          the time of a message; else when it was appended
     "rollups":   [{"every": "1m", "by": ["service"], "measures": ["duration"]}]}

A search needs no declaration: it makes searches of published segments fast. Only `timestamp` and
`text` change results: the former what `since` and `until` compare, the latter where words without a
field are looked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from fourfold.errors import InvalidInput
from fourfold.models.streams.archive.indexes.fields import check_field

STREAM_SEARCH_FIELDS: Final = 32
"""Maximum fields of each kind in a declaration, and of rollups."""
INTERVAL_MAX_MS: Final = 366 * 86_400_000
_INTERVAL: Final = re.compile(r"([1-9][0-9]{0,8})(ms|s|m|h|d)")
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class Rollup(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Counts and sums of measures, computed ahead for each interval and group."""

    every: str
    by: list[str] = []
    measures: list[str] = []


class Search(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Fields by which the messages of a stream are searched and aggregated."""

    fields: list[str] = []
    text: list[str] = []
    columns: list[str] = []
    timestamp: str | None = None
    rollups: list[Rollup] = []


def parse_interval_ms(text: str) -> int:
    """Return an interval such as `10s`, `1m`, `1h` or `1d` in milliseconds.

    Raises:
        InvalidInput: it is not an interval, or longer than a year.
    """
    match = _INTERVAL.fullmatch(text) if isinstance(text, str) else None
    interval_ms = 0 if match is None else int(match[1]) * _UNITS_MS[match[2]]
    if not 0 < interval_ms <= INTERVAL_MAX_MS:
        raise InvalidInput(
            f"every: must be an interval of at most 366 days, got {text!r:.80}",
            hint="Use a number and a unit: 10s, 1m, 1h or 1d.",
        )
    return interval_ms


def check_search(search: Search) -> None:
    """Raise InvalidInput if a declaration is invalid."""
    for name, fields in _lists(search):
        if len(fields) > STREAM_SEARCH_FIELDS:
            raise InvalidInput(
                f"{name} must have at most {STREAM_SEARCH_FIELDS} entries, got {len(fields)}"
            )
    for name, fields in _lists(search):
        if name == "search.rollups":
            continue
        for field in fields:
            check_field(field)
        if name != "search" and len(set(fields)) != len(fields):
            raise InvalidInput(f"{name}: duplicate field, got {fields!r:.200}")
    if search.timestamp is not None:
        check_field(search.timestamp)
    for rollup in search.rollups:
        parse_interval_ms(rollup.every)


def _lists(search: Search) -> Iterator[tuple[str, list[Any]]]:
    yield "search", search.fields
    yield "search.text", search.text
    yield "search.columns", search.columns
    yield "search.rollups", search.rollups
    for rollup in search.rollups:
        yield "search.rollups.by", rollup.by
        yield "search.rollups.measures", rollup.measures
