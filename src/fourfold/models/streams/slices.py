"""Bounded slices of the log of one stream, each deleted in its own transaction."""

from __future__ import annotations

from typing import Final, NamedTuple

from fourfold import limits
from fourfold.kernel import ReadTransaction, Transaction, load_queries
from fourfold.models.streams import record_ids, routing_keys

ARCHIVE_TRIM_BYTES: Final = 4 * limits.MIB
"""Bytes of records that one transaction trims, so that appends get their turn."""

_SQL = load_queries("fourfold.models.streams")


class LogSlice(NamedTuple):
    """The first records of a stream in the log; `through` is None if there are none."""

    through: int | None
    rows: int
    bytes: int


def next_slice(snapshot: ReadTransaction, sid: int, through: int, rows_max: int) -> LogSlice:
    """Return the first records up to the offset `through` that one transaction deletes."""
    params = (sid, through, rows_max)
    row = snapshot.one(_SQL.slice_of_rows, params) or (None, 0, 0)
    if row[2] > ARCHIVE_TRIM_BYTES:
        row = snapshot.one(_SQL.slice, (*params, ARCHIVE_TRIM_BYTES)) or (None, 0, 0)
    return LogSlice._make(row)


def drop_below(
    txn: Transaction, sid: int, offset: int, *, trail: bool = True, keys: bool = False
) -> None:
    """Delete the records below an offset from the log; the caller updates the counters.

    Args:
        trail: The stream exists: leave a trail of its records for the feed.
        keys: The records are in segments: keep their routing keys.
    """
    record_ids.leave(txn, sid, offset, trail=trail)
    if keys:
        routing_keys.keep(txn, sid, offset)
    txn.execute(_SQL.trim_records, (sid, offset))
    txn.execute(_SQL.trim_places, (sid, offset))
    txn.execute(_SQL.trim_recent_places, (sid, offset))
