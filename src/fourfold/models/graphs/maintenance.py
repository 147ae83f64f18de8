"""Maintenance of the graph database: checks, checkpoints, vacuum, backup, metrics and health.

`integrity_check` requires a `Capability`, an unforgeable object that `grant` creates for certain
rights. The application decides which code receives it.
"""

from __future__ import annotations

import builtins
import time
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from fourfold.errors import CapabilityDenied, CorruptData, InvalidInput
from fourfold.kernel import (
    Checkpoint,
    Database,
    Health,
    MetricsReading,
    Sidecar,
    Transaction,
    idempotency,
    load_queries,
)
from fourfold.models.graphs import validation
from fourfold.models.graphs.records import GcReport
from fourfold.models.problem import Problem, to_problems

DIAGNOSTICS: Final = "diagnostics"
"""The right to check all pages of the file."""
RIGHTS: Final = frozenset({DIAGNOSTICS})
GC_ROWS: Final = 1_000
"""Rows of each kind that one transaction of gc removes."""

SQL = load_queries("fourfold.models.graphs")


class Capability:
    """A set of rights, valid for the `Graphs` that granted it until it is revoked."""

    __slots__ = ("__weakref__", "rights")

    def __init__(self, rights: frozenset[str]) -> None:
        self.rights = rights

    def __repr__(self) -> str:
        return f"<Capability {', '.join(sorted(self.rights))}>"


class Maintenance:
    """The part of `Graphs` that maintains the file."""

    database: Database
    node: str

    def __init__(self) -> None:
        self._granted: weakref.WeakSet[Capability] = weakref.WeakSet()
        self._unsound: str | None = None
        """The first problem that an integrity check found, or None."""

    def grant(self, rights: Iterable[str]) -> Capability:
        """Grant a capability for `rights`."""
        if isinstance(rights, str):
            raise InvalidInput(f"rights must be a list of names, got {rights!r:.100}")
        names = frozenset(rights)
        if not names or names - RIGHTS:
            raise InvalidInput(
                f"unknown rights {validation.format_value(sorted(names - RIGHTS))}",
                hint=f"Use one of: {', '.join(sorted(RIGHTS))}.",
            )
        capability = Capability(names)
        self._granted.add(capability)
        return capability

    def revoke(self, capability: Capability) -> None:
        """Revoke a capability."""
        self._granted.discard(capability)

    def integrity_check(self, capability: Capability) -> builtins.list[str]:
        """Check the pages of the file; return the problems found.

        If there are any, the health becomes `failed` and later writes are refused.
        """
        self._must_hold(capability, DIAGNOSTICS)
        findings = self.database.integrity_check()
        self._unsound = findings[0] if findings else None
        return findings

    def verify(self) -> builtins.list[Problem]:
        """Check the rows, their order and their references; return the problems found."""
        from fourfold.models.graphs.verify import problems  # noqa: PLC0415 - rare

        with self.database.read_in_background() as snapshot:
            messages = problems(snapshot, str(self.database.path), self.node)
        return to_problems(messages)

    def gc(self, *, dry_run: bool = False) -> GcReport:
        """Remove outdated cached results and expired idempotency keys; return counts of them.

        Rows of graphs are never removed: every past state stays readable.

        Args:
            dry_run: Only count what would be removed.
        """
        now = int(time.time())
        with self.database.read_current() as snapshot:
            cached, requests, size = snapshot.one(SQL.garbage, (now,)) or (0, 0, 0)
        if not dry_run:
            while self.database.transact(lambda txn: _remove_garbage(txn, now)):
                pass
        return GcReport(cached, requests, size, dry_run)

    def checkpoint(self, mode: str = "PASSIVE") -> Checkpoint:
        """Checkpoint the write-ahead log: PASSIVE, FULL, RESTART or TRUNCATE."""
        return self.database.checkpoint(mode)

    def vacuum(self) -> None:
        """Rewrite the file without free pages; refused while there are readers."""
        self.database.vacuum()

    def analyze(self) -> None:
        """Refresh the statistics of the query planner."""
        self.database.analyze()

    def backup(self, destination: str | Path) -> Sidecar:
        """Write a verified copy of one consistent state, beside running writers."""
        return self.database.backup(destination)

    def metrics(self) -> MetricsReading:
        """Return sizes, times and counters."""
        return self.database.metrics()

    def health(self) -> Health:
        """Return the health of the database, with the figures that it is based on."""
        return self.database.health()

    def _must_hold(self, capability: Capability, right: str) -> None:
        # Membership is by identity: copies and capabilities of other stores do not count.
        if (
            not isinstance(capability, Capability)
            or capability not in self._granted
            or right not in capability.rights
        ):
            raise CapabilityDenied(
                f"{self.database.path}: {right} require a capability of these graphs",
                hint=f"Pass the result of `graphs.grant([{right!r}])`.",
            )

    def _refuse_if_unsound(self) -> None:
        if self._unsound is not None:
            raise CorruptData(
                f"{self.database.path}: writes are refused since a check found damage: "
                f"{self._unsound}",
                hint="Restore the newest verified backup with `fourfold restore`.",
            )


def _remove_garbage(txn: Transaction, now_s: int) -> int:
    """Remove the next slice of what gc removes; return how many rows it has."""
    before = txn.total_changes
    txn.execute(SQL.drop_outdated, (GC_ROWS,))
    idempotency.expire(txn, now_s, GC_ROWS)
    return txn.total_changes - before
