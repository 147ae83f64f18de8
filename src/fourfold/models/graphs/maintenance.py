"""Upkeep of the graph database: checkpoints, vacuum, backup, numbers, health; and the look into its
depths, for which somebody must have been given leave.

Leave is a `Capability`: an object that `grant` makes, for certain rights, and that nobody can make
up. Whoever decides who may do what hands it on; here it is only honoured.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from fourfold.errors import CapabilityDenied, CorruptData, InvalidInput
from fourfold.kernel import Checkpoint, Database, Health, MetricsReading, Sidecar
from fourfold.models.graphs import validation
from fourfold.models.graphs.verify import problems

DIAGNOSTICS: Final = "diagnostics"
"""The right to have the pages and the rows of the whole file checked."""
RIGHTS: Final = frozenset({DIAGNOSTICS})


class Capability:
    """Leave to do something; good for the graphs that granted it, as long as it is not revoked."""

    __slots__ = ("__weakref__", "rights")

    def __init__(self, rights: frozenset[str]) -> None:
        self.rights = rights

    def __repr__(self) -> str:
        return f"<Capability {', '.join(sorted(self.rights))}>"


class Maintenance:
    """The part of `Graphs` that looks after the file."""

    database: Database
    node: str

    def __init__(self) -> None:
        self._granted: weakref.WeakSet[Capability] = weakref.WeakSet()
        self._unsound: str | None = None
        """What is wrong with the file, once a check has found something."""

    def grant(self, rights: Iterable[str]) -> Capability:
        """Leave to use some rights, to be handed to whoever may have them."""
        if isinstance(rights, str):
            raise InvalidInput(f"rights are several names, not the text {rights!r}")
        wanted = frozenset(rights)
        if not wanted or wanted - RIGHTS:
            raise InvalidInput(
                f"{validation.format_value(sorted(wanted - RIGHTS))} are no rights",
                hint=f"There are: {', '.join(sorted(RIGHTS))}.",
            )
        capability = Capability(wanted)
        self._granted.add(capability)
        return capability

    def revoke(self, capability: Capability) -> None:
        self._granted.discard(capability)

    def integrity_check(self, capability: Capability) -> list[str]:
        """What SQLite finds wrong with the file; empty when all is well. Once something was found
        the health is `failed` and nothing more is written.
        """
        self._must_hold(capability, DIAGNOSTICS)
        found = self.database.integrity_check()
        self._unsound = found[0] if found else None
        return found

    def verify(self, capability: Capability) -> list[str]:
        """What is wrong with the rows, in plain words; empty when all is well."""
        self._must_hold(capability, DIAGNOSTICS)
        with self.database.read_in_background() as snapshot:
            return problems(snapshot, str(self.database.path), self.node)

    def checkpoint(self, mode: str = "PASSIVE") -> Checkpoint:
        """Fold the write-ahead log back into the file: PASSIVE, FULL, RESTART or TRUNCATE."""
        return self.database.checkpoint(mode)

    def vacuum(self) -> None:
        """Rewrite the file without holes. Refused while somebody reads."""
        self.database.vacuum()

    def analyze(self) -> None:
        """Refresh the statistics that SQLite plans by."""
        self.database.analyze()

    def backup(self, destination: str | Path) -> Sidecar:
        """Copy one consistent state while writers go on; verified."""
        return self.database.backup(destination)

    def metrics(self) -> MetricsReading:
        """Sizes, times and counters; never rows, and no SQL."""
        return self.database.metrics()

    def health(self) -> Health:
        """The state of the database, with the numbers behind it."""
        return self.database.health()

    def _must_hold(self, capability: Capability, right: str) -> None:
        # Membership of the set is by identity: a copy, or one of another store, is none.
        if (
            not isinstance(capability, Capability)
            or capability not in self._granted
            or right not in capability.rights
        ):
            raise CapabilityDenied(
                f"{right} of {self.database.path} need leave that these graphs have granted",
                hint=f"Ask for it where it is decided: `graphs.grant([{right!r}])`.",
            )

    def _refuse_if_unsound(self) -> None:
        if self._unsound is not None:
            raise CorruptData(
                f"{self.database.path}: a check found damage, so nothing is written: "
                f"{self._unsound}",
                hint="Restore the newest good backup: `fourfold restore`.",
            )
