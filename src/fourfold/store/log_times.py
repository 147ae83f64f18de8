"""Times of log entries, and the newest entry at or before a time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from fourfold.kernel.named_queries import load_queries
from fourfold.kernel.transaction import ReadTransaction

ENTRIES: Final = load_queries("fourfold.store", "log_times.sql")
"""Queries for the newest entry of each log up to a key."""
_KEY_MAX: Final = 2**63 - 1


def last_key(reading: ReadTransaction, query: str, until_ms: int | None) -> int:
    """Return the key of the newest entry at or before a time; 0 if there is none.

    Keys may have gaps. Times rise with them, but for steps of the clock. The query is one of
    `ENTRIES`.
    """
    newest = reading.one(query, (_KEY_MAX,))
    if newest is None or until_ms is None:
        return 0 if newest is None else int(newest[0])
    low, high = 0, int(newest[0])
    while low < high:
        middle = (low + high + 1) // 2
        row = reading.one(query, (middle,))
        if row is not None and to_ms(row[1]) > until_ms:
            high = row[0] - 1
        else:
            low = middle
    return low


def last_time(reading: ReadTransaction, query: str, until_ms: int | None) -> str | None:
    """Return the time of the newest entry at or before a time, as text; None if there is none."""
    row = reading.one(query, (last_key(reading, query, until_ms),))
    if row is None:
        return None
    return datetime.fromtimestamp(to_ms(row[1]) / 1000, UTC).isoformat()


def to_ms(time: str | int) -> int:
    """Return a stored time in milliseconds since 1970; text without a zone is UTC."""
    if isinstance(time, int):
        return time
    moment = datetime.fromisoformat(time)
    return int((moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment).timestamp() * 1000)
