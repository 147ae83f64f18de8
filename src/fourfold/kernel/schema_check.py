"""Whether the tables, indexes, views and triggers of a database are those that its migrations make.

One wrong byte in the text of a schema can change what a table accepts without making any page of
the file unsound. So the schema is made again, in memory, and compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from fourfold.kernel.driver import Connection
from fourfold.kernel.migrations import Migration
from fourfold.kernel.statements import load_queries, read_sql
from fourfold.kernel.transaction import Snapshot

_SQL = load_queries("fourfold.kernel")
_Schema = dict[tuple[str, str], str]


class Difference(NamedTuple):
    """Something that the schema must have, and the text of it in the file, if it is there."""

    kind: str
    name: str
    expected: str
    found: str | None


def differences(
    snapshot: Snapshot, migrations: Sequence[Migration], optional: Sequence[str] = ()
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
