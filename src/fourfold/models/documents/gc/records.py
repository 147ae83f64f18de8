"""Reports of garbage collections."""

from __future__ import annotations

import msgspec

KINDS = ("revisions", "facts", "values", "requests", "snapshots", "blobs")


class RemovedCount(msgspec.Struct, frozen=True):
    """So many of one kind, and the bytes of their content."""

    count: int = 0
    bytes: int = 0

    def __add__(self, other: RemovedCount) -> RemovedCount:
        return RemovedCount(self.count + other.count, self.bytes + other.bytes)


class GcReport(msgspec.Struct, frozen=True):
    """Counts of what a collection removed or, in a dry run, would remove.

    `requests` were not removed but shortened to a digest; their bytes are what that saved. The file
    keeps its size: what became free in it is used for what is written next.
    """

    horizon: int
    previous_horizon: int
    kept_points: int
    """The points below the horizon that stay readable."""
    revisions: RemovedCount = RemovedCount()
    """Rows of the log: revisions, or occurrences of facts."""
    facts: RemovedCount = RemovedCount()
    values: RemovedCount = RemovedCount()
    requests: RemovedCount = RemovedCount()
    snapshots: RemovedCount = RemovedCount()
    blobs: RemovedCount = RemovedCount()
    dry_run: bool = False

    @property
    def bytes(self) -> int:
        """All of it together."""
        return sum(getattr(self, kind).bytes for kind in KINDS)


class Tally(dict[str, RemovedCount]):
    """Counts of rows removed so far, by kind."""

    def note(self, kind: str, count: int, size: int) -> None:
        """Add removed rows of one kind."""
        if count:
            self[kind] = self.get(kind, RemovedCount()) + RemovedCount(count, size)

    def join(self, other: Tally) -> None:
        """Add the counts of another tally."""
        for kind, removed in other.items():
            self.note(kind, removed.count, removed.bytes)

    def report(self, horizon: int, before: int, kept_points: int) -> GcReport:
        """Return the report of a collection."""
        done = GcReport(horizon, before, kept_points)
        return msgspec.structs.replace(done, **self)
