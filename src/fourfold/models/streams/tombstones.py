"""Tombstones: a deleted stream disappears at once, and its rows are trimmed in slices.

    delete ──> [ drop the stream, add a tombstone, trim a slice ] ──> slice ──> ... ──> done

The first transaction frees the name and hides every record: rows that are found by name are dropped
with the row of the stream. The rest is found by the `sid` alone, which is never reused, so a new
stream of that name shares nothing with it. If the process is killed between two slices, the
tombstone stays and the next sweep continues.
"""

from __future__ import annotations

from typing import Final

from fourfold import limits
from fourfold.kernel import Transaction, load_queries
from fourfold.models.streams import slices
from fourfold.models.streams.records import StreamInfo

STREAM_TRIM_ROWS: Final = 1_000
"""Rows of a deleted stream that one transaction removes."""

_SQL = load_queries("fourfold.models.streams")


def bury(txn: Transaction, info: StreamInfo, now_ms: int) -> None:
    """Delete a stream; its rows are trimmed later."""
    txn.execute(_SQL.add_tombstone, (info.sid, info.name, now_ms))
    txn.execute(_SQL.drop_stream, (info.sid,))


def trim(txn: Transaction, sid: int) -> bool:
    """Trim the next slice of a deleted stream; return True once nothing is left."""
    part = slices.next_slice(txn, sid, limits.INTEGER_MAX, STREAM_TRIM_ROWS)
    if part.through is not None:
        slices.drop_below(txn, sid, part.through + 1, trail=False)
    txn.execute(_SQL.trim_producers, (sid, STREAM_TRIM_ROWS))
    txn.execute(_SQL.trim_keys, (sid, STREAM_TRIM_ROWS))
    if txn.value(_SQL.has_rows, (sid,)):
        return False
    txn.execute(_SQL.drop_tombstone, (sid,))
    return True
