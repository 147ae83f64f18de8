"""Steps that change the tables of an app. They are SQL of the app's author, so they are confined.

A step may read the tables of its own app, add indexes to them, and make and change tables of its
own, whose names begin like those of the app. The tables of the model stay as they are: their rows
are the log, and a column that is added to them cannot be written yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from fourfold.errors import FourfoldError, MigrationFailed
from fourfold.kernel import Migration, Transaction
from fourfold.kernel.migrations import SchemaDifference, differences
from fourfold.models.graphs.statements import NOUNS, SQL, app_statements, table_of

_HINT = (
    "A step may add indexes, and tables named {app}_...; the tables of the model cannot have other "
    "columns yet. Nothing was changed."
)


def run(txn: Transaction, app_id: int, steps: Sequence[Migration], now: str) -> None:
    """Run the steps, and refuse them all if one does what it may not."""
    prefix = f"app_{app_id}_"
    model = {table_of(app_id, noun) for noun in NOUNS}

    def reads(name: str) -> bool:
        return name.startswith(prefix)

    def changes(name: str) -> bool:
        return name.startswith(prefix) and name not in model

    before = _Schema.read(txn, app_id, changes)
    for step in steps:
        try:
            with txn.confined(reads=reads, changes=changes):
                txn.execute(step.sql.replace("{app}", prefix[:-1]))
                if step.apply is not None:
                    step.apply(txn)
            before.check(_Schema.read(txn, app_id, changes), prefix)
        except FourfoldError as error:
            raise MigrationFailed(
                f"step {step.version} ({step.name}) of app {app_id} failed: {error.message}",
                hint=_HINT,
            ) from error
        txn.execute(SQL.add_app_step, (app_id, step.version, step.name, step.checksum, now))


class _Schema(NamedTuple):
    """Schema objects that a step must not change."""

    names: set[str]
    faults: set[SchemaDifference]
    """Differences of the tables and indexes of the app from those of a new one."""
    counters: dict[str, int]
    """The last id of every table that is not a step's own."""

    @classmethod
    def read(cls, txn: Transaction, app_id: int, changes: Callable[[str], bool]) -> _Schema:
        made = Migration(1, f"app {app_id}", app_statements(app_id).tables)
        return cls(
            {str(row[0]) for row in txn.all(SQL.schema_names)},
            set(differences(txn, (made,))),
            {name: seq for name, seq in txn.all(SQL.last_ids) if not changes(name)},
        )

    def check(self, after: _Schema, prefix: str) -> None:
        for fault in sorted(after.faults - self.faults, key=lambda difference: difference.name):
            done = "changes" if fault.found else "drops"
            raise MigrationFailed(f"it {done} the {fault.kind} {fault.name}")
        for name in sorted(after.names - self.names):
            if not name.removeprefix("sqlite_autoindex_").startswith(prefix):
                raise MigrationFailed(f"{name} is not a name of this app")
        if after.counters != self.counters:
            raise MigrationFailed("it changes sqlite_sequence of tables that are not its own")
