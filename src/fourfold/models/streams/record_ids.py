"""Ids of records: the order of all records of all streams, which the feed follows.

SQLite gives a record the id after the highest one in the log. If the newest records have left the
log, that id was used before; so a placeholder holds the last used id while records are inserted.
Appends check that only after something else was written.

Records that leave the log leave a trail: where they were in that order. So the feed finds them in
segments, and notices those that retention removed.
"""

from __future__ import annotations

from typing import Final

from fourfold.kernel import Transaction, load_queries

FEED_TRAIL_ROWS: Final = 1_000_000
"""Entries of the trail; the oldest ones are dropped, and the feed begins after them."""
FEED_TRAIL_DROPPED: Final = 1_000
"""Entries of the trail that one transaction drops."""

_SQL = load_queries("fourfold.models.streams")


def hold(txn: Transaction) -> int | None:
    """Hold the last used id if its record has left the log; pass the result to `release`."""
    held: int | None = txn.value(_SQL.missing_id)
    if held is not None:
        txn.execute(_SQL.hold_id, (held,))
    return held


def release(txn: Transaction, held: int | None) -> None:
    """Release the id that `hold` returned, after the new records were inserted."""
    if held is not None:
        txn.execute(_SQL.release_id, (held,))


def leave(txn: Transaction, sid: int, offset: int, *, trail: bool) -> None:
    """Note that the records of a stream below an offset leave the log.

    Args:
        trail: The stream exists, so that the feed looks for them.
    """
    txn.execute(_SQL.note_trimmed)
    if not trail:
        return
    txn.execute(_SQL.leave_trail, (sid, offset))
    txn.execute(_SQL.count_trail, (txn.changes,))
    excess = txn.value(_SQL.trail_excess, (FEED_TRAIL_ROWS,))
    if excess is not None:
        # At least as many as were just added, so that the trail does not grow.
        end = txn.value(_SQL.trail_end, (max(excess, FEED_TRAIL_DROPPED),))
        txn.execute(_SQL.drop_trail, (end,))
        txn.execute(_SQL.move_horizon, (end, txn.changes))


def begin_history(txn: Transaction, now_ms: int) -> None:
    """Begin a new history: ids from here on may have been used by records that are not here."""
    txn.execute(_SQL.begin_history, (now_ms,))
    txn.execute(_SQL.begin_after_archive)
