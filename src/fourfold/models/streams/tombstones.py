"""Tombstones: a deleted stream is gone at once, and its rows are trimmed in slices.

    delete ──> [ row of the stream out, tombstone in, first slice ] ──> slice ──> ... ──> nothing

The first transaction frees the name and hides every record: whatever is found by a name is dropped
with the row of the stream. What is left is found by the `sid` alone, which no other stream ever
gets, so a stream made under the same name shares nothing with it. A process that is killed between
two slices leaves the tombstone, and the next sweep goes on.
"""

from __future__ import annotations

from fourfold import limits
from fourfold.kernel import Transaction, load_queries
from fourfold.models.streams import slices
from fourfold.models.streams.records import StreamInfo

_SQL = load_queries("fourfold.models.streams")


def bury(txn: Transaction, info: StreamInfo, now_ms: int) -> None:
    """Delete a stream and trim the first slice of it: all of it, if it is small."""
    txn.execute(_SQL.add_tombstone, (info.sid, info.name, now_ms))
    txn.execute(_SQL.drop_stream, (info.sid,))
    trim(txn, info.sid)


def trim(txn: Transaction, sid: int) -> bool:
    """Delete the next slice of a deleted stream; return True once nothing of it is left."""
    found = slices.next_slice(txn, sid, limits.INTEGER_MAX, limits.STREAM_TRIM_ROWS)
    if found.through is not None:
        slices.drop_below(txn, sid, found.through + 1)
    txn.execute(_SQL.trim_producers, (sid, limits.STREAM_TRIM_ROWS))
    if txn.value(_SQL.has_rows, (sid,)):
        return False
    txn.execute(_SQL.drop_tombstone, (sid,))
    return True
