"""Schema migrations: numbered, forward only, and checked against the checksums of those that ran.

All pending migrations run in one transaction. A database with an unknown history (a higher number,
another text under a known number, a gap) is rejected unchanged. If a migration fails, all of them
are rolled back: the old version and the data remain, and the database does not open.

`differences` compares the schema of a database with that of its migrations, which it builds in
memory: one wrong byte in the text of a schema can change what a table accepts, without any damage
that the integrity check finds.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from fourfold.errors import FormatError, FourfoldError, FutureFormat, InvalidInput, MigrationFailed
from fourfold.kernel import failpoints
from fourfold.kernel.driver import Connection
from fourfold.kernel.named_queries import load_queries, package_folder, read_sql
from fourfold.kernel.transaction import SQL, ReadTransaction, Transaction

_log = logging.getLogger("fourfold.kernel")


@dataclass(frozen=True, slots=True)
class Migration:
    """One migration: SQL text, then an optional function for what SQL cannot express."""

    version: int
    name: str
    sql: str
    apply: Callable[[Transaction], None] | None = None

    @property
    def checksum(self) -> str:
        """SHA-256 of the statements; comments and whitespace at line ends may change."""
        lines = (line.strip() for line in self.sql.splitlines())
        statements = "\n".join(line for line in lines if line and not line.startswith("--"))
        return hashlib.sha256(statements.encode()).hexdigest()


def load_migrations(*packages: str) -> tuple[Migration, ...]:
    """Load every `migrations/NNNN_name.sql` of the packages, in order."""
    migrations = []
    for package in packages:
        for entry in package_folder(package).joinpath("migrations").iterdir():
            if entry.name.endswith(".sql"):
                number, _, name = entry.name.removesuffix(".sql").partition("_")
                if not number.isdigit() or not name:
                    raise InvalidInput(
                        f"{package}/migrations: file name must be NNNN_name.sql, got {entry.name}"
                    )
                migrations.append(Migration(int(number), name, entry.read_text(encoding="utf-8")))
    return check_order(migrations)


def check_order(migrations: Sequence[Migration]) -> tuple[Migration, ...]:
    """Return the migrations in order; raise InvalidInput if a number is missing or repeated."""
    ordered = tuple(sorted(migrations, key=lambda migration: migration.version))
    for position, migration in enumerate(ordered, start=1):
        if migration.version != position:
            raise InvalidInput(
                f"expected migration {position}, found {migration.version} ({migration.name})"
            )
    return ordered


def applied_version(snapshot: ReadTransaction) -> int:
    """Return the number of the newest migration that ran; 0 for a new file."""
    if not snapshot.value(SQL.migrations_table):
        return 0
    return max((int(row[0]) for row in snapshot.all(SQL.migrations_applied)), default=0)


def pending(
    snapshot: ReadTransaction, migrations: Sequence[Migration], subject: str
) -> tuple[Migration, ...]:
    """Return the pending migrations; raise FormatError if the history is unknown."""
    applied = snapshot.all(SQL.migrations_applied)
    known = {migration.version: migration for migration in migrations}
    for position, (version, name, checksum, _) in enumerate(applied, start=1):
        if version != position:
            raise FormatError(f"{subject}: migration {position} is missing in the history")
        migration = known.get(version)
        if migration is None:
            raise FutureFormat(
                f"{subject}: this Fourfold reads schema versions up to {len(known)}, "
                f"found {version} ({name})"
            )
        if migration.checksum != checksum:
            raise FormatError(
                f"{subject}: migration {version} ({name}) ran with a different text",
                hint="Open it with the version of Fourfold that wrote it, or restore a backup.",
            )
    return tuple(migrations[len(applied) :])


def migrate(txn: Transaction, migrations: Sequence[Migration], subject: str) -> None:
    """Run the pending migrations in the caller's transaction."""
    steps = pending(txn, migrations, subject)
    is_new = len(steps) == len(migrations)
    for migration in steps:
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
            if not is_new:
                _log.info(
                    *("%s: migration %d (%s) ran", subject, migration.version, migration.name),
                    extra={"fields": {"database": subject, "migration": migration.name}},
                )
        except Exception as error:
            reason = error.message if isinstance(error, FourfoldError) else repr(error)
            raise MigrationFailed(
                f"{subject}: migration {migration.version} ({migration.name}) failed: {reason}"
            ) from error


_SQL = load_queries("fourfold.kernel")
_Schema = dict[tuple[str, str], str]


class SchemaDifference(NamedTuple):
    """A schema object that differs, with its expected text and the text found, if any."""

    kind: str
    name: str
    expected: str
    found: str | None


def differences(
    snapshot: ReadTransaction, migrations: Sequence[Migration], optional: Sequence[str] = ()
) -> Iterator[SchemaDifference]:
    """Yield the differences between the schema of a database and that of its migrations.

    `optional` are statements that may or may not have run. Other schema objects are ignored.
    """
    schema: _Schema = {(kind, name): sql for kind, name, sql in snapshot.rows(_SQL.schema_objects)}
    needed, allowed = _build_schema(tuple(migrations), tuple(optional))
    for key, expected in needed.items():
        if schema.get(key) != expected:
            yield SchemaDifference(*key, expected, schema.get(key))
    for key, expected in allowed.items():
        if key in schema and schema[key] != expected:
            yield SchemaDifference(*key, expected, schema[key])


@lru_cache(maxsize=8)
def _build_schema(
    migrations: tuple[Migration, ...], optional: tuple[str, ...]
) -> tuple[_Schema, _Schema]:
    """Return the schema that the migrations create, and the additions by optional statements."""
    connection = Connection(":memory:")
    try:
        connection.execute(read_sql("fourfold.kernel", "schema.sql"))
        for migration in migrations:
            connection.execute(migration.sql)
        needed = _read_schema(connection)
        for statement in optional:
            connection.execute(statement)
        return needed, {
            key: sql for key, sql in _read_schema(connection).items() if key not in needed
        }
    finally:
        connection.close()


def _read_schema(connection: Connection) -> _Schema:
    return {(kind, name): sql for kind, name, sql in connection.execute(_SQL.schema_objects)}
