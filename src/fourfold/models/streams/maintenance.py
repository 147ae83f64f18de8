"""Maintenance of the streams of a store: sweeps, garbage collection, counters and checks."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Final

import msgspec

from fourfold import limits
from fourfold.models.problem import Problem, to_problems
from fourfold.models.streams import expiry, validation
from fourfold.models.streams.records import GcReport, Totals
from fourfold.models.streams.writer import SQL, StreamClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from fourfold.kernel import Database, Notifier
    from fourfold.models.streams.touch import Touches

SWEEP_SLICES: Final = 200
"""Transactions of one sweep."""
SWEEP_STREAMS: Final = 1_000
"""Streams that one sweep removes or examines."""


class StreamMaintenance:
    """The part of `Streams` that removes what is no longer needed, counts and checks."""

    database: Database
    clock: Callable[[], int]
    touches: Touches
    notifier: Notifier
    _uses: expiry.Uses

    def read_clock(self) -> StreamClock:
        """Return the current time and the uses of streams that are not written yet."""
        return StreamClock(self.clock(), self._uses.times)

    def sweep(self, limit: int = SWEEP_STREAMS) -> int:
        """Delete expired streams and trim what is not retained; return how many expired.

        Writes the buffered uses of streams first, and trims a bounded number of rows of deleted
        streams. Refused inside a transaction, which would hold all of that until its end.
        """
        expiry.check_not_in_transaction(self.database)
        validation.check_limit(limit)
        self._uses.flush(self.database)
        removed = expiry.expire(self, limit)
        expiry.retain(self, limit)
        self.trim_deleted()
        self.touches.flush()
        self.touches.retire(self.clock())
        return removed

    def gc(self, *, dry_run: bool = False) -> GcReport:
        """Remove what expired, deleted and trimmed streams left, and return counts of it.

        `sweep` does the same in the background, a bounded part at a time.

        Args:
            dry_run: Only count what would be removed.

        Raises:
            Refused: it was called inside a transaction, which would hold all of it until its end.
        """
        expiry.check_not_in_transaction(self.database)
        with self.database.read_in_background() as snapshot:
            report = expiry.count_garbage(snapshot, self.read_clock())
        if dry_run:
            return msgspec.structs.replace(report, dry_run=True)
        while self.sweep():
            pass
        self.trim_deleted(limits.INTEGER_MAX)
        return report

    def trim_deleted(self, slices: int = SWEEP_SLICES) -> bool:
        """Trim rows of deleted streams in at most `slices` transactions; True if more are left."""
        expiry.check_not_in_transaction(self.database)
        return expiry.trim_deleted(self, slices)

    def candidates(self, pending_bytes: int, limit: int = 32) -> tuple[tuple[str, int, int], ...]:
        """Return (name, rows, bytes) of streams with at least `pending_bytes` not in segments."""
        with self.database.read_current() as snapshot:
            rows = snapshot.all(SQL.candidates, (pending_bytes, limit))
            return tuple((str(row[0]), int(row[1]), int(row[2])) for row in rows)

    def totals(self) -> Totals:
        """Count the streams, records and bytes of the store."""
        with self.database.read_current() as snapshot:
            return Totals._make(snapshot.one(SQL.totals) or (0, 0, 0))

    def verify(self) -> builtins.list[Problem]:
        """Check the streams, their records and the archive; return the problems found."""
        from fourfold.models.streams.verify import problems  # noqa: PLC0415 - rare

        with self.database.read_in_background() as snapshot:
            return to_problems(problems(snapshot))
