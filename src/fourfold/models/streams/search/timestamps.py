"""The time of a message: a declared field, or when the message was appended. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from fourfold.content.json_pointer import lookup

TIME_MAX_MS: Final = 1 << 53
"""Numbers beyond it are not times in milliseconds."""

TimeOf = Callable[[Any, int], int]
"""Called with a message and the time at which it was appended; returns milliseconds since 1970."""


def compile_time(field: str | None) -> TimeOf:
    """Return the function that finds the time of a message.

    A field that is neither ISO 8601 text nor a number of milliseconds is ignored.
    """
    if field is None:
        return _appended
    path = tuple(field.split("."))

    def time_of(message: Any, appended_ms: int) -> int:
        time_ms = parse_message_time(lookup(message, path))
        return appended_ms if time_ms is None else time_ms

    return time_of


def _appended(_message: Any, appended_ms: int) -> int:
    return appended_ms


def parse_message_time(value: Any) -> int | None:
    """Return a time in milliseconds, rounded down; None if it is not a time."""
    kind = type(value)
    if kind is str:
        try:
            time = datetime.fromisoformat(value)
        except ValueError:
            return None
        if time.tzinfo is None:
            time = time.replace(tzinfo=UTC)
        return math.floor(time.timestamp() * 1000)
    if (kind is int or kind is float) and -TIME_MAX_MS <= value <= TIME_MAX_MS:
        time_ms: int = math.floor(value)
        return time_ms
    return None
