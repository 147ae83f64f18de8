"""Steps that change the tables of an app. They are SQL of the app's author, so they are confined.

A step may read the tables of its own app, add indexes to them, and make and change tables of its
own, whose names begin like those of the app. The tables of the model stay as they are: their rows
are the log, and a column that is added to them cannot be written yet.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from fourfold.errors import FourfoldError, InvalidInput, MigrationFailed, NotFound
from fourfold.kernel import Migration, Transaction
from fourfold.kernel.migrations import SchemaDifference, differences
from fourfold.models.graphs.records import Kind
from fourfold.models.graphs.statements import NOUNS, SQL, app_statements, table_of

RULES_FILE: Final = "rules.json"
"""File with the rules of types, next to the steps."""
_STEP: Final = re.compile(r"(\d+)_(\w+)\.sql")
_HINT = (
    "A step may add indexes, and tables named {app}_...; the tables of the model cannot have other "
    "columns yet. Nothing was changed."
)


class RuleChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry of `rules.json`: the rule of a type, or null to remove it."""

    kind: Kind
    type_key: str
    rule: dict[str, Any] | None


class UpgradeFiles(NamedTuple):
    """The steps of an app, and the rules of its types after them."""

    steps: tuple[Migration, ...]
    rules: tuple[tuple[Kind, str, dict[str, Any] | None], ...]


def read_upgrade(folder: Path) -> UpgradeFiles:
    """Read the steps `NNNN_name.sql` of a folder in their order, and its `rules.json` if it exists.

    Raises:
        NotFound: There is no such folder.
        InvalidInput: A file is not a step, or the rules are not a list of rules.
    """
    if not folder.is_dir():
        raise NotFound(f"{folder}: there is no such folder")
    steps = []
    for path in folder.glob("*.sql"):
        match = _STEP.fullmatch(path.name)
        if match is None:
            raise InvalidInput(f"{path}: the name of a step must be NNNN_name.sql")
        steps.append(Migration(int(match[1]), match[2], path.read_text(encoding="utf-8")))
    rules: list[RuleChange] = []
    file = folder / RULES_FILE
    if file.is_file():
        try:
            rules = msgspec.json.decode(file.read_bytes(), type=list[RuleChange])
        except msgspec.MsgspecError as error:
            raise InvalidInput(
                f"{file}: not a list of rules: {error}",
                hint='An entry is {"kind": "edge", "type_key": "knows", "rule": {"most": 1}}.',
            ) from None
    return UpgradeFiles(
        tuple(sorted(steps, key=lambda step: step.version)),
        tuple((change.kind, change.type_key, change.rule) for change in rules),
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
