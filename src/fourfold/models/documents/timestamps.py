"""Times of commits: UTC text that never steps back along the log.

A clock may be set back, the order of the log may not: a commit is at least as late as the one
before it. So the newest commit at or before a time is found by bisecting the log, in a few lookups
however long it is, and a state that was read at a time is the state found for that time later.

New commits have six fractional digits. Earlier versions wrote three, and those rows stay as they
are: the text is hashed into fact commits. As text `.123Z` sorts after `.123500Z`, so times are
compared by `comparable` only, and never in SQL.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import lru_cache

from fourfold.errors import InvalidInput
from fourfold.models.documents.history import HistoryReader


def comparable(text: str) -> str:
    """Return a stored time with six fractional digits, so that texts sort as their times."""
    return text[:-1].ljust(26, "0") + "Z"


def next_moment(newest: str | None) -> str:
    """Return the current time, or that of the newest commit if it is later."""
    seconds, rest = divmod(time.time_ns(), 1_000_000_000)
    now = f"{_second(seconds)}.{rest // 1_000:06d}Z"
    return now if newest is None else max(now, comparable(newest))


@lru_cache(maxsize=2)
def _second(seconds: int) -> str:
    """Format a second; cached, since many commits share one and formatting costs an insert."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def created_at(view: HistoryReader) -> str:
    """Return when a space was created: the time of its file, or of an older first commit."""
    row = view.one(view.sql.branch, ("",))
    assert row is not None
    times = (row[6], view.value(view.sql.first_moment))
    return min(comparable(text) for text in times if text is not None)


def seq_at(view: HistoryReader, moment: datetime) -> int:
    """Return the seq of the newest commit at or before `moment`; 0 if there is none."""
    text = stored_time(moment)
    newest = view.one(view.sql.commit_before, (2**63 - 1,))
    if newest is None:
        return 0
    low, high = 0, int(newest[0])
    seq = 0
    while low < high:
        middle = (low + high + 1) // 2
        # Seqs may have been skipped, so the one that is found may be an earlier one.
        row = view.one(view.sql.commit_before, (middle,))
        if row is not None and comparable(row[1]) > text:
            high = row[0] - 1
        else:
            low = middle
            seq = 0 if row is None else row[0]
    return int(seq)


def stored_time(moment: datetime) -> str:
    """Format a time as new commits store it."""
    if moment.tzinfo is None:
        raise InvalidInput(f"the time {moment.isoformat()} has no time zone")
    try:
        utc = moment.astimezone(UTC)
    except OverflowError as error:
        raise InvalidInput(f"the time {moment.isoformat()} is out of range") from error
    return utc.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
