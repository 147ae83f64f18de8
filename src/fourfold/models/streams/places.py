"""Where records lie in the log: an index in two levels.

The log has its records in the order in which they came. They are found by stream and offset in
`wal_index`, which is as large as the log. Appends to many streams would each change another page of
it; so those that share a commit are noted in `wal_recent`, which never has many pages. When it is
full, a portion moves on in the order of the streams, one portion after the other, so that each
stream has gathered several places until its turn comes.

    record ──> wal_log, and its place ──> wal_recent ── portions ──> wal_index
                                     └──── one stream, or few ───────┘

All of that happens in the transaction of the append, and a reader asks both levels: which of them
has a place makes no difference to anybody.
"""

from __future__ import annotations

from fourfold import limits
from fourfold.kernel import Transaction, load_queries

_SQL = load_queries("fourfold.models.streams")
_BEHIND_ALL = (2**63 - 1, 0)


class Places:
    """Notes where the records are that a transaction added last."""

    def __init__(self) -> None:
        self._recent: int | None = None
        """How many places are in the small level; None while nobody knows."""
        self._cursor = 0
        """The stream with which the next portion begins."""

    def forget(self) -> None:
        """Others have written, or a transaction was undone."""
        self._recent = None

    def add_one(self, txn: Transaction, sid: int, offset: int) -> None:
        """The record that was added last."""
        txn.execute(_SQL.place, (sid, offset))

    def add_together(self, txn: Transaction, count: int) -> None:
        """The records that were added last, all of one stream: their places are side by side."""
        txn.execute(_SQL.place_last, (count,))

    def add_scattered(self, txn: Transaction, count: int) -> None:
        """The records that were added last, of many streams."""
        if count < limits.STREAM_SCATTERED_PLACES:
            txn.execute(_SQL.place_last, (count,))
            return
        txn.execute(_SQL.note_last, (count,))
        if self._recent is not None:
            self._recent += count
        while self._count(txn) >= limits.STREAM_RECENT_PLACES:
            self._move_on(txn)

    def _count(self, txn: Transaction) -> int:
        if self._recent is None:
            self._recent = int(txn.value(_SQL.recent_count))
        return self._recent

    def _move_on(self, txn: Transaction) -> None:
        """Move one portion into the index."""
        first = self._cursor
        end = txn.one(_SQL.recent_end, (first, limits.STREAM_PLACES_MOVED))
        between = (first, *(end or _BEHIND_ALL))
        txn.execute(_SQL.settle, between)
        txn.execute(_SQL.settled, between)
        if end is None:
            # Once around: what is left is counted anew.
            self._cursor, self._recent = 0, None
        else:
            self._cursor = end[0]
            self._recent = self._count(txn) - txn.changes
