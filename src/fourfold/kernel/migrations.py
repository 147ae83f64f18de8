"""Migrations: numbered, forward only, all pending ones in one transaction, each with the checksum
of what ran.

A database whose history this version does not know (a higher number, another text under a known
number, a hole) is refused untouched. A migration that fails rolls back together with all that ran
before it: the old version and the data stay, and the database does not open.

Whether the tables, indexes, views and triggers of a database are those that its migrations make.

One wrong byte in the text of a schema can change what a table accepts without making any page of
the file unsound. So the schema is made again, in memory, and compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from importlib import resources
from typing import NamedTuple

from fourfold.errors import FormatError, FourfoldError, FutureFormat, InvalidInput, MigrationFailed
from fourfold.kernel import failpoints
from fourfold.kernel.driver import Connection
from fourfold.kernel.named_queries import load_queries, read_sql
from fourfold.kernel.transaction import SQL, ReadTransaction, Transaction


@dataclass(frozen=True, slots=True)
class Migration:
    """One step: SQL text, then (optionally) a function for what SQL cannot say."""

    version: int
    name: str
    sql: str
    apply: Callable[[Transaction], None] | None = None

    @property
    def checksum(self) -> str:
        """Of the statements only: comments and line ends may be mended, what ran may not."""
        lines = (line.strip() for line in self.sql.splitlines())
        kept = "\n".join(line for line in lines if line and not line.startswith("--"))
        return hashlib.sha256(kept.encode()).hexdigest()


def load_migrations(package: str, folder: str = "migrations") -> tuple[Migration, ...]:
    """Every `NNNN_name.sql` in `folder` of `package`, in order."""
    found = []
    for entry in resources.files(package).joinpath(folder).iterdir():
        if entry.name.endswith(".sql"):
            number, _, name = entry.name.removesuffix(".sql").partition("_")
            if not number.isdigit() or not name:
                raise InvalidInput(f"{package}/{folder}/{entry.name} is not named NNNN_name.sql")
            found.append(Migration(int(number), name, entry.read_text(encoding="utf-8")))
    return check_order(found)


def check_order(migrations: Sequence[Migration]) -> tuple[Migration, ...]:
    """Sorted, and without a hole or a repeated number."""
    ordered = tuple(sorted(migrations, key=lambda migration: migration.version))
    for position, migration in enumerate(ordered, start=1):
        if migration.version != position:
            raise InvalidInput(
                f"migration {migration.version} ({migration.name}) stands "
                f"where number {position} belongs"
            )
    return ordered


def applied_version(snapshot: ReadTransaction) -> int:
    """The number of the newest migration that this database has seen; 0 for a new file."""
    if not snapshot.value(SQL.migrations_table):
        return 0
    return max((int(row[0]) for row in snapshot.all(SQL.migrations_applied)), default=0)


def pending(
    snapshot: ReadTransaction, migrations: Sequence[Migration], subject: str
) -> tuple[Migration, ...]:
    """The migrations still to run, after proof that those which ran are the ones we know."""
    applied = snapshot.all(SQL.migrations_applied)
    known = {migration.version: migration for migration in migrations}
    for position, (version, name, checksum, _) in enumerate(applied, start=1):
        if version != position:
            raise FormatError(f"{subject}: migration {position} is missing from its history")
        migration = known.get(version)
        if migration is None:
            raise FutureFormat(
                f"{subject}: is at version {version} ({name}); "
                f"this Fourfold knows up to {len(known)}"
            )
        if migration.checksum != checksum:
            raise FormatError(
                f"{subject}: migration {version} ({name}) ran with another text than this one",
                hint="Open it with the Fourfold that wrote it, or restore a backup of yours.",
            )
    return tuple(migrations[len(applied) :])


def migrate(txn: Transaction, migrations: Sequence[Migration], subject: str) -> None:
    """Run what is pending, inside the caller's transaction."""
    for migration in pending(txn, migrations, subject):
        try:
            if failpoints.armed:
                failpoints.hit("kernel.migration.before")
            txn.execute(migration.sql)
            if migration.apply is not None:
                migration.apply(txn)
            now = datetime.now(UTC).isoformat(timespec="seconds")
            txn.execute(
                SQL.migration_record, (migration.version, migration.name, migration.checksum, now)
            )
            if failpoints.armed:
                failpoints.hit("kernel.migration.after")
        except Exception as error:
            reason = error.message if isinstance(error, FourfoldError) else repr(error)
            raise MigrationFailed(
                f"{subject}: migration {migration.version} ({migration.name}) failed: {reason}"
            ) from error


_SQL = load_queries("fourfold.kernel")
_Schema = dict[tuple[str, str], str]


class Difference(NamedTuple):
    """Something that the schema must have, and the text of it in the file, if it is there."""

    kind: str
    name: str
    expected: str
    found: str | None


def differences(
    snapshot: ReadTransaction, migrations: Sequence[Migration], optional: Sequence[str] = ()
) -> Iterator[Difference]:
    """Where the schema of a database is not that of its migrations.

    `optional` are statements that may have run or not. What the file has beyond them is the
    business of whoever put it there.
    """
    found: _Schema = {(kind, name): sql for kind, name, sql in snapshot.rows(_SQL.schema_objects)}
    needed, allowed = _made(tuple(migrations), tuple(optional))
    for key, expected in needed.items():
        if found.get(key) != expected:
            yield Difference(*key, expected, found.get(key))
    for key, expected in allowed.items():
        if key in found and found[key] != expected:
            yield Difference(*key, expected, found[key])


@lru_cache(maxsize=8)
def _made(migrations: tuple[Migration, ...], optional: tuple[str, ...]) -> tuple[_Schema, _Schema]:
    """The schema that the migrations make, and what the optional statements add to it."""
    connection = Connection(":memory:")
    try:
        connection.execute(read_sql("fourfold.kernel", "schema.sql"))
        for migration in migrations:
            connection.execute(migration.sql)
        needed = _read(connection)
        for statement in optional:
            connection.execute(statement)
        return needed, {key: sql for key, sql in _read(connection).items() if key not in needed}
    finally:
        connection.close()


def _read(connection: Connection) -> _Schema:
    return {(kind, name): sql for kind, name, sql in connection.execute(_SQL.schema_objects)}
