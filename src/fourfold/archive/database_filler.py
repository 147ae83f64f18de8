"""Restored rows, written into a new and private database."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from fourfold import limits
from fourfold.archive import capture
from fourfold.archive.capture import SQL
from fourfold.archive.publication import ChangedRows, Content, Description, Row
from fourfold.archive.sealer import IN_FILE, OBJECT, state_of
from fourfold.archive.uploads import blob_key, get_checked
from fourfold.errors import CorruptData
from fourfold.kernel import Database, Transaction
from fourfold.kernel.bulk_insert import quoted
from fourfold.objects import ObjectStore
from fourfold.retry import Retries

PUBLISH_RESTORE_ROWS: Final = 8_192
"""Rows of one transaction while a database is restored."""

PutContent = Callable[[str, bytes], None]
"""Stores the bytes of a value that is a file next to the database, by its SHA-256 in hex."""


class DatabaseFiller:
    """Fills a new database; the caller moves it into place when it is complete."""

    def __init__(
        self,
        database: Database,
        description: Description,
        objects: ObjectStore,
        retries: Retries,
        put_content: PutContent | None,
    ) -> None:
        self.database = database
        self.description = description
        self._objects = objects
        self._retries = retries
        self._put_content = put_content

    def create_objects(self, rows: Sequence[Row]) -> None:
        """Create the missing tables of a database's own schema: kind, name and SQL."""

        def work(txn: Transaction) -> None:
            for kind, name, sql in rows:
                if txn.one(SQL.has_object, (kind, name)) is None:
                    txn.execute(sql)

        self.transact(work)

    def clear(self, table: str) -> None:
        """Delete all rows of a table."""
        self.transact(lambda txn: txn.execute(SQL.delete_all.format(table=quoted(table))))

    def replace(self, table: str, rows: Sequence[dict[str, Any]]) -> None:
        """Replace the rows of a table by rows with values by column, in one transaction."""
        by_columns: dict[tuple[str, ...], list[Row]] = {}
        for row in rows:
            by_columns.setdefault(tuple(row), []).append(tuple(row.values()))

        def work(txn: Transaction) -> None:
            txn.execute(SQL.delete_all.format(table=quoted(table)))
            for columns, some in by_columns.items():
                txn.insert_many(table, columns, some, verb=SQL.put)

        self.transact(work)

    def delete(self, table: str, key: Sequence[str], keys: Sequence[Row]) -> None:
        """Delete the rows with some keys."""
        match = " AND ".join(f"{quoted(name)} = ?" for name in key)
        sql = SQL.delete_row.format(table=quoted(table), match=match)
        for some in _parts(keys):
            self.transact(lambda txn, some=some: txn.execute_many(sql, some))  # type: ignore[misc]

    def put(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        """Insert rows, or replace those with the same keys; large values are fetched."""
        content = next(
            (entry.content for entry in self.description.tables if entry.name == table), None
        )
        for some in _parts(rows):
            names, values = list(columns), list(some)
            if content is not None and OBJECT in names:
                names, values = self._with_contents(content, names, values)

            def work(
                txn: Transaction, names: list[str] = names, values: list[Row] = values
            ) -> None:
                txn.insert_many(table, tuple(names), values, verb=SQL.put)

            self.transact(work)

    def _with_contents(
        self, content: Content, names: list[str], rows: list[Row]
    ) -> tuple[list[str], list[Row]]:
        """Return rows with their large values, which are separate objects."""
        object_at, file_at = names.index(OBJECT), names.index(IN_FILE)
        data_at = names.index(content.data)
        kept = [at for at in range(len(names)) if at not in {object_at, file_at}]
        filled: list[Row] = []
        for row in rows:
            digest, values = row[object_at], list(row)
            if digest is not None:
                data = get_checked(self._objects, blob_key(digest), digest, self._retries)
                if row[file_at]:
                    self._keep(digest, data)
                else:
                    values[data_at] = data
            filled.append(tuple(values[at] for at in kept))
        return [names[at] for at in kept], filled

    def _keep(self, digest: str, data: bytes) -> None:
        if self._put_content is None:
            raise CorruptData(f"value {digest} must be a file, but no blob folder is available")
        self._put_content(digest, data)

    def finish(self) -> None:
        """Fix what cannot be published, and rebuild derived data."""

        def work(txn: Transaction) -> None:
            for statement in self.description.unsettled:
                txn.execute(statement)

        self.transact(work)
        self.description.rebuild(self.database)

    def remember(
        self, position: int, generation: int, version: str, manifest: bytes | None
    ) -> None:
        """Let the database continue after a publication."""
        capture.watch(self.database, self.description)
        with self.database.read_current() as snapshot:
            state = state_of(snapshot, self.description, position)
        text = msgspec.json.encode(state).decode()
        params = (uuid.uuid4().hex, generation, version, manifest, text)

        def work(txn: Transaction) -> None:
            txn.execute(SQL.restored, params)
            txn.execute(SQL.forget_all_changes)

        self.transact(work)

    def advance(self, changes: Sequence[ChangedRows]) -> bool:
        """Derive what follows from changed rows; return False if it must be rebuilt."""
        with self.database.write() as txn:
            return self.description.advance(txn, changes)

    def transact(self, work: Callable[[Transaction], Any]) -> None:
        """Run one transaction, however long it takes."""
        with self.database.write(deadline_s=limits.PUBLISH_DEADLINE_S) as txn:
            work(txn)


def _parts(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    for at in range(0, len(rows), PUBLISH_RESTORE_ROWS):
        yield rows[at : at + PUBLISH_RESTORE_ROWS]
