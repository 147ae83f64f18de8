"""A database from what is published of it: the rows of its log as they were, byte for byte, at the
newest publication or at an earlier one.

Publications are applied in their order: keys are removed, rows put, small tables replaced. What is
derived is made again at the end. The database is a new one that nobody else has open; whoever calls
gives it its place when all of it is there.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from fourfold import limits
from fourfold.archive import capture, database_manifest
from fourfold.archive.capture import SCHEMA, SQL
from fourfold.archive.database_manifest import GONE, WHOLE, DatabaseManifest, File, Publication
from fourfold.archive.publication import Description, Row, Table
from fourfold.archive.publisher import read_page
from fourfold.archive.retry import Retries
from fourfold.archive.row_files import RowFile
from fourfold.archive.sealer import IN_FILE, OBJECT, state_of
from fourfold.archive.uploads import get_checked
from fourfold.errors import CorruptData, FutureFormat
from fourfold.kernel import Database, Transaction
from fourfold.kernel.bulk_insert import quoted
from fourfold.objects import Object, ObjectStore

PutContent = Callable[[str, bytes], None]
"""Takes the bytes of a value that is a file beside the database, and its SHA-256 in hex."""


class History(NamedTuple):
    """A manifest with all that its pages tell."""

    manifest: DatabaseManifest
    found: dict[int, Publication]
    version: str
    data: bytes

    @property
    def newest(self) -> int:
        return self.manifest.newest

    def at(self, point: str | None) -> Publication | None:
        """What a point of the store shows of the database; None when it was not there."""
        return database_manifest.at_point(self.found, point, self.manifest.horizon)


def read_history(read: Object, objects: ObjectStore, retries: Retries) -> History:
    """The history of a database from its manifest."""
    key = read.info.key
    manifest = database_manifest.decode(read.data, key)
    if database_manifest.manifest_key(manifest.name) != key:
        raise CorruptData(f"{key}: is the manifest of another database")
    found = {each.generation: each for each in manifest.publications}
    for page in manifest.pages:
        for each in read_page(objects, manifest.name, page, retries):
            found[each.generation] = each
    return History(manifest, found, read.info.version, read.data)


class Restorer:
    """Fills a new database with what is published."""

    def __init__(
        self,
        database: Database,
        description: Description,
        objects: ObjectStore,
        retries: Retries,
        put_content: PutContent | None,
    ) -> None:
        self._database = database
        self._description = description
        self._objects = objects
        self._retries = retries
        self._put_content = put_content

    def restore(self, history: History, publication: Publication, migrations: int) -> int:
        """Bring the database to a publication; how many rows were read."""
        manifest = history.manifest
        if manifest.migrations > migrations:
            raise FutureFormat(
                f"{manifest.name}: was published with {manifest.migrations} migrations; "
                f"this Fourfold knows {migrations}"
            )
        rows = 0
        steps = database_manifest.chain(history.found, publication.generation, manifest.name)
        for file, read in self._fetched(manifest.name, _needed(steps)):
            self._apply(file, read)
            rows += file.rows
        self._transact(self._mend)
        self._description.rebuild(self._database)
        return rows

    def remember(self, publication: Publication, version: str, manifest: bytes) -> None:
        """Let the database go on behind a publication."""
        capture.watch(self._database, self._description)
        with self._database.read() as snapshot:
            state = state_of(snapshot, self._description, publication.position)
        text = msgspec.json.encode(state).decode()
        params = (uuid.uuid4().hex, publication.generation, version, manifest, text)

        def work(txn: Transaction) -> None:
            txn.execute(SQL.restored, params)
            txn.execute(SQL.forget_changes, ((1 << 63) - 1,))

        self._transact(work)

    def _fetched(
        self, name: str, needed: list[tuple[int, File]]
    ) -> Iterator[tuple[File, RowFile | None]]:
        """The files with what reads them, in order. A few are fetched ahead: most are small, and it
        is waiting that takes the time. A pack is fetched once, and held until nothing needs it.
        """
        keys = [database_manifest.file_key(name, generation, file) for generation, file in needed]
        wanted = Counter(keys)
        coming: dict[str, Future[RowFile | None]] = {}
        at = 0
        with ThreadPoolExecutor(limits.ARCHIVE_CONCURRENCY) as pool:
            for number, ((_, file), key) in enumerate(zip(needed, keys, strict=True)):
                while at <= number or (
                    at < len(needed) and len(coming) <= limits.ARCHIVE_CONCURRENCY
                ):
                    if keys[at] not in coming:
                        coming[keys[at]] = pool.submit(self._fetch, keys[at], needed[at][1])
                    at += 1
                yield file, coming[key].result()
                wanted[key] -= 1
                if not wanted[key]:
                    del coming[key]

    def _fetch(self, key: str, file: File) -> RowFile | None:
        """A table that is carried as a whole, and is empty, has no object."""
        if not file.sha256:
            return None
        return RowFile(get_checked(self._objects, key, file.sha256, self._retries), key)

    def _apply(self, file: File, read: RowFile | None) -> None:
        if file.action == WHOLE and file.table != SCHEMA:
            self._transact(lambda txn: txn.execute(SQL.delete_all.format(table=quoted(file.table))))
        if read is None:
            return
        part = read.rows() if file.pack is None else read.rows(file.at, file.rows)
        for columns, rows in part:
            for some in _parts(rows):
                self._transact(self._work(file, columns, some))

    def _work(
        self, file: File, columns: list[str], rows: Sequence[Row]
    ) -> Callable[[Transaction], None]:
        if file.table == SCHEMA:
            return lambda txn: _make(txn, rows)
        if file.action == GONE:
            match = " AND ".join(f"{quoted(name)} = ?" for name in columns)
            sql = SQL.delete_row.format(table=quoted(file.table), match=match)
            return lambda txn: txn.execute_many(sql, rows)
        if OBJECT in columns:
            columns, rows = self._with_contents(file.table, columns, rows)
        names = tuple(columns)
        return lambda txn: txn.insert_many(file.table, names, rows, verb=SQL.put)

    def _with_contents(
        self, table: str, columns: list[str], rows: Sequence[Row]
    ) -> tuple[list[str], list[Row]]:
        """Rows with the values that are objects of their own."""
        [content] = [each.content for each in self._tables() if each.name == table]
        assert content is not None
        object_at, file_at = columns.index(OBJECT), columns.index(IN_FILE)
        data_at = columns.index(content.data)
        kept = [at for at in range(len(columns)) if at not in {object_at, file_at}]
        filled: list[Row] = []
        for row in rows:
            digest, values = row[object_at], list(row)
            if digest is not None:
                key = database_manifest.blob_key(digest)
                data = get_checked(self._objects, key, digest, self._retries)
                if row[file_at]:
                    self._keep(digest, data)
                else:
                    values[data_at] = data
            filled.append(tuple(values[at] for at in kept))
        return [columns[at] for at in kept], filled

    def _keep(self, digest: str, data: bytes) -> None:
        if self._put_content is None:
            raise CorruptData(f"value {digest} should be a file, for which there is no place")
        self._put_content(digest, data)

    def _tables(self) -> tuple[Table, ...]:
        return self._description.tables

    def _mend(self, txn: Transaction) -> None:
        for statement in self._description.unsettled:
            txn.execute(statement)

    def _transact(self, work: Callable[[Transaction], Any]) -> None:
        with self._database.write(deadline_s=limits.PUBLISH_DEADLINE_S) as txn:
            work(txn)


def _needed(steps: list[Publication]) -> list[tuple[int, File]]:
    """The files to apply, in order. What a table was before it was carried as a whole is not
    needed; so tables come into being as they are at the end, also when they were once other ones.
    """
    kept: list[list[tuple[int, File]]] = []
    whole: set[str] = set()
    for step in reversed(steps):
        # What is removed makes room for what is put.
        files = sorted(step.files, key=lambda each: each.action != GONE)
        kept.append([(step.generation, file) for file in files if file.table not in whole])
        whole |= {file.table for file in files if file.action == WHOLE}
    # Tables are made before there are rows for them, and each is filled on its own: what was merged
    # of it lies together.
    order: dict[str, int] = {SCHEMA: -1}
    for _, file in chain.from_iterable(reversed(kept)):
        order.setdefault(file.table, len(order))
    found = sorted(chain.from_iterable(reversed(kept)), key=lambda each: order[each[1].table])
    return _joined(found)


def _joined(found: list[tuple[int, File]]) -> list[tuple[int, File]]:
    """Parts of a pack that follow on each other, as one."""
    joined: list[tuple[int, File]] = []
    for generation, file in found:
        before = joined[-1][1] if joined else None
        if (
            before is not None
            and file.pack is not None
            and file.action != WHOLE
            and (before.table, before.action, before.pack) == (file.table, file.action, file.pack)
            and before.sha256 == file.sha256
            and before.at + before.rows == file.at
        ):
            whole = msgspec.structs.replace(before, rows=before.rows + file.rows)
            joined[-1] = joined[-1][0], whole
        else:
            joined.append((generation, file))
    return joined


def _parts(rows: list[Row]) -> Iterator[list[Row]]:
    for at in range(0, len(rows), limits.PUBLISH_RESTORE_ROWS):
        yield rows[at : at + limits.PUBLISH_RESTORE_ROWS]


def _make(txn: Transaction, rows: Sequence[Row]) -> None:
    """Make the tables of a database's own that are not there."""
    for kind, name, sql in rows:
        if txn.one(SQL.has_object, (kind, name)) is None:
            txn.execute(sql)
