"""When commits were made: texts that sort as the moments do, and never step back along the log.

A clock may be set back, the order of the log may not: a commit is at least as late as the one
before it. So the newest commit at or before a moment is found by halving the log, in a handful of
looks however long it is, and a state that somebody saw at a moment is the state that is found for
it later.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import lru_cache

from fourfold.errors import InvalidInput
from fourfold.models.documents.history import View


def next_moment(newest: str | None) -> str:
    """Now, or the moment of the newest commit if that is later."""
    seconds, rest = divmod(time.time_ns(), 1_000_000_000)
    now = f"{_second(seconds)}.{rest // 1_000_000:03d}Z"
    return now if newest is None or newest <= now else newest


@lru_cache(maxsize=2)
def _second(seconds: int) -> str:
    """Many commits fall into one second, and to spell it costs as much as to insert a row."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def seq_at(view: View, moment: datetime) -> int:
    """The newest commit at or before `moment`; 0 when there is none."""
    text = _utc(moment)
    newest = view.one(view.sql.commit_before, (2**63 - 1,))
    if newest is None:
        return 0
    low, high = 0, int(newest[0])
    found = 0
    while low < high:
        middle = (low + high + 1) // 2
        # Seqs may have been skipped, so the one that is found may be an earlier one.
        row = view.one(view.sql.commit_before, (middle,))
        if row is not None and row[1] > text:
            high = row[0] - 1
        else:
            low = middle
            found = 0 if row is None else row[0]
    return int(found)


def _utc(moment: datetime) -> str:
    if moment.tzinfo is None:
        raise InvalidInput(f"the moment {moment.isoformat()} has no time zone")
    try:
        there = moment.astimezone(UTC)
    except OverflowError as error:
        raise InvalidInput(f"the moment {moment.isoformat()} is out of range") from error
    return there.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
