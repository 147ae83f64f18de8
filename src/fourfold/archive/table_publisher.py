"""Publish databases to archive tables: files, a commit per table, then the commit of the catalog.

    seal every database ──> upload files ──> commit the tables ──> commit the catalog ──> record

The commit of the catalog is the point; until then nothing of the publication is visible. It names
the version of every table. Commits of tables that no commit of the catalog names are left by a
crash or by another node; the next publication reverts them. An archive has one publisher: a node
whose known commit is not the newest gets PublisherFenced.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from fourfold import limits
from fourfold.archive import capture
from fourfold.archive.capture import SQL, CaptureState, Intent, StatusRow
from fourfold.archive.catalog import Catalog
from fourfold.archive.catalog_rows import POINT_ROW, TABLES_ROW, CommitRow, DatabaseRow
from fourfold.archive.catalog_state import CatalogState
from fourfold.archive.child_process import ChildStopped
from fourfold.archive.database_sealing import SealedDatabase, SealingProcess, seal_here
from fourfold.archive.delta_actions import (
    EMPTY,
    NO_VERSION,
    Action,
    AddFile,
    DeltaCommit,
    RemoveFile,
    Snapshot,
    Txn,
    table_actions,
)
from fourfold.archive.delta_checkpoint import count_actions
from fourfold.archive.delta_log import CommitConflict, DeltaLog
from fourfold.archive.delta_schema import FileStatistics
from fourfold.archive.node_record import NodeRecord, new_record, read_record, write_record
from fourfold.archive.sealer import ValueTarget, count_new_rows
from fourfold.archive.subject import DatabaseResult, Subject
from fourfold.archive.table_layout import default_options, merged_schema, table_prefix
from fourfold.archive.table_versions import NeededRows, NeededRowsOf
from fourfold.archive.table_writer import (
    DatabaseSink,
    RowOrigin,
    TableFileWriter,
    TableWriter,
    joined_files,
)
from fourfold.archive.uploads import ValueUploads, put_once, upload_of_file
from fourfold.errors import Busy, PublisherFenced
from fourfold.kernel import Transaction, failpoints
from fourfold.kernel.pauses import Pauses
from fourfold.limits import ARCHIVE_GRACE_S
from fourfold.objects import ObjectStore
from fourfold.retry import Retries
from fourfold.wire.store import ArchiveTableRow

PUBLISH_HERE_ROWS: Final = 1_000
"""Rows that a publication in the background writes before it starts a process for more."""
FORGET_SLICE_ROWS: Final = 1_000
"""Recorded changes that are forgotten in one transaction after a publication."""
CHECKPOINT_COMMITS: Final = 100
"""Commits of a table after which a publication writes a checkpoint of its log."""
CHECKPOINT_ACTIONS: Final = 1_000
"""Actions of a checkpoint for which it waits for as many commits again."""


def describe(table: str, snapshot: Snapshot) -> ArchiveTableRow:
    """Return the size of a table at a version of it."""
    files = snapshot.files.values()
    return ArchiveTableRow(
        name=table,
        folder=table_prefix(table).rstrip("/"),
        version=snapshot.version,
        files=len(files),
        rows=sum(FileStatistics.decode(file.stats).num_records or 0 for file in files),
        bytes=sum(file.size for file in files),
        changed_ms=max((file.modification_time for file in files), default=None),
    )


class PointTime(NamedTuple):
    """Identity and time of a new point."""

    id: str
    at: str
    started_ms: int
    restored: str | None = None


class _PublishedDatabase(NamedTuple):
    """A database of a publication."""

    row: DatabaseRow
    state: CaptureState
    change: int
    result: DatabaseResult


class TableArchive:
    """The archive of one store, as its publisher sees it.

    The caller holds the lock of the store while it publishes.
    """

    def __init__(
        self,
        root: Path,
        objects: ObjectStore,
        retries: Retries | None = None,
        *,
        grace_s: float = ARCHIVE_GRACE_S,
    ) -> None:
        self.root = root
        self.objects = objects
        self.retries = retries or Retries()
        self.catalog = Catalog(objects, self.retries, grace_s=grace_s)
        self._grace_s = grace_s
        self._snapshots: dict[str, Snapshot] = {}
        self._described: dict[str, ArchiveTableRow] = {}
        self._needed: NeededRowsOf | None = None
        self.purges_checked = -1
        """Point up to which this process knows that no purge is left to apply."""
        self.knows_streams = False
        """True if this process has compared all segments of streams with `streams.records`."""

    def begin(self, folder: Path, stop: Callable[[], bool] | None = None) -> TablePublication:
        """Start a publication, with files in `folder`.

        With `stop` it runs in the background: it gives way to writers, and raises ChildStopped
        soon after this returns True.

        Raises:
            PublisherFenced: another node publishes to this archive.
        """
        state = self.catalog.refresh()
        if not self.catalog.exists:
            self._snapshots.clear()
            self.forget_checks()
            self._needed = None
            self.catalog.create()
            state = self.catalog.state
        node = self._admitted(state)
        return TablePublication(self, node, folder, stop)

    def _admitted(self, state: CatalogState) -> NodeRecord:
        """Return the record of this node, if it may publish after the newest commit."""
        head, node = state.head, read_record(self.root)
        if head is None:
            node = new_record() if node is None else NodeRecord(node.node, intents=node.intents)
            write_record(self.root, node)
            return node
        if node is None:
            raise fenced(head, "this store has never published to it")
        if head.token == node.token and head.version == node.version:
            return node
        if head.token in node.intents:
            late = (*node.late, head.token) if head.token != node.intents[-1] else node.late
            node = msgspec.structs.replace(node, version=head.version, token=head.token, late=late)
        elif head.node == node.node and head.version < node.version:
            # The archive returned to an older state. Databases that it does not know as they are
            # now are published again as a whole.
            self.forget_checks()
            node = msgspec.structs.replace(
                node, version=head.version, token=head.token, went_back=head.version
            )
        else:
            raise fenced(head, f"this store knows commit {node.version}")
        write_record(self.root, node)
        return node

    def forget_checks(self) -> None:
        """Check purges and segments of streams again: the archive is in another state."""
        self.purges_checked = -1
        self.knows_streams = False

    # Tables

    def log(self, table: str) -> DeltaLog:
        """Return the log of an archive table."""
        return DeltaLog(self.objects, table_prefix(table), self.retries)

    def expected(self, table: str) -> Snapshot:
        """Return the state of a table that the newest commit of the catalog names."""
        version = self.catalog.state.tables.get(table, EMPTY.version)
        known = self._snapshots.get(table, EMPTY)
        if known.version != version:
            known = self.log(table).snapshot(version) if version >= 0 else EMPTY
            self._snapshots[table] = known
        return known

    def describe(self, table: str) -> ArchiveTableRow:
        """Return the size of a table of the newest commit; its log is read if it has changed."""
        version = self.catalog.state.tables[table]
        known = self._described.get(table)
        if known is None or known.version != version:
            snapshot = self._snapshots.get(table, EMPTY)
            if snapshot.version != version:
                # Not kept: the states of all tables may be large.
                snapshot = self.log(table).snapshot(version)
            known = self._described[table] = describe(table, snapshot)
        return known

    def commit_table(self, table: str, actions: Sequence[Action], info: dict[str, Any]) -> Snapshot:
        """Commit actions after the expected state of a table; revert other commits in between."""
        expected = actual = self.expected(table)
        log = self.log(table)
        while True:
            wanted = _by_kind([*_revert(expected, actual), *actions])
            try:
                commit = log.commit(wanted, actual.version + 1, info)
            except CommitConflict as conflict:
                if conflict.commit is None:
                    raise
                self._refuse_if_newer()
                actual = actual.apply(conflict.commit)
                continue
            return actual.apply(commit)

    def _refuse_if_newer(self) -> None:
        """Raise PublisherFenced if the catalog has a newer commit: the tables belong to it."""
        known = self.catalog.state.version
        if self.catalog.has_commit(known + 1):
            raise PublisherFenced(
                f"another publication to this archive was faster: commit {known + 1}",
                hint="An archive has one publisher: stop this one, or use another URL.",
            )

    def revert_table(self, table: str, info: dict[str, Any]) -> Snapshot | None:
        """Revert commits of a table that the catalog does not name; None if there are none."""
        expected = self.expected(table)
        newest = self.log(table).update(expected)
        if newest.version == expected.version:
            return None
        return self.commit_table(table, (), info)

    def loaded(self) -> list[str]:
        """Return the tables whose state, as the catalog names it, is in memory."""
        tables = self.catalog.state.tables
        return sorted(
            name for name, known in self._snapshots.items() if tables.get(name) == known.version
        )

    def keep(self, snapshots: dict[str, Snapshot]) -> None:
        """Remember the states of tables that the catalog names now.

        A log with many commits since its checkpoint gets one, so that no reader and no publication
        reads more of them. The larger the checkpoint, the more commits it waits for.
        """
        self._snapshots |= snapshots
        for name, snapshot in snapshots.items():
            size = count_actions(snapshot) // CHECKPOINT_ACTIONS
            if snapshot.version % (CHECKPOINT_COMMITS * (1 + size)) == 0 and snapshot.version:
                limit = time.time() - self._grace_s
                self._snapshots[name] = self.log(name).checkpoint(
                    snapshot, forget_removed_before_ms=int(1000 * limit)
                )

    def needed_rows(self, oldest: int) -> Mapping[str, NeededRows]:
        """Return for each database file the rows that points from `oldest` on need."""
        if self._needed is None or self._needed.oldest != oldest:
            self._needed = NeededRowsOf(oldest)
        return self._needed.update(self.catalog.state)


class TablePublication:
    """One publication: rows of several databases that become visible together."""

    def __init__(
        self,
        archive: TableArchive,
        node: NodeRecord,
        folder: Path,
        stop: Callable[[], bool] | None = None,
    ) -> None:
        self._archive = archive
        self._node = node
        self._folder = folder
        self._stop = stop
        self._sealing: SealingProcess | None = None
        """The child that seals large databases of a publication in the background."""
        self._rows_here = 0
        """Rows sealed by this process."""
        head = archive.catalog.state.head
        self.point = archive.catalog.state.version + 1
        self.token = uuid.uuid4().hex
        self._epoch = 1 if head is None else head.epoch + (head.node != node.node)
        self._takes_over = head is not None and head.node != node.node
        shutil.rmtree(folder, ignore_errors=True)
        self._writer = TableWriter(folder, self.point)
        self._values = ValueUploads(archive.objects, archive.retries)
        self._added: dict[str, _PublishedDatabase] = {}
        self._known_columns: set[tuple[str, tuple[str, ...]]] = set()
        self._defaults: dict[str, dict[str, Any]] = {}
        """Defaults of columns, for tables that get new ones."""
        self.is_tainted = False
        """True if rows were written of a database that failed."""

    @property
    def published(self) -> list[DatabaseResult]:
        """Results of the databases with new rows."""
        return sorted(added.result for added in self._added.values())

    def add(self, subject: Subject) -> bool:
        """Add the new rows of a database; return False if it has none.

        If this raises after rows were written (`is_tainted`), the publication must be given up.
        """
        capture.watch(subject.database, subject.description)
        file_id = subject.database.identity()
        state, base = self._basis(subject, file_id)
        column, key = subject.label
        count, size = self._values.count, self._values.bytes
        sealed = self._seal(subject, RowOrigin(subject.prefix, column, key, file_id), state)
        if not sealed.rows:
            return False
        self._find_defaults(subject, sealed.tables)
        done = sealed.result
        row = msgspec.structs.replace(
            self.row(subject.name, subject.model, file_id, base),
            position=done.position,
            migrations=subject.migrations,
            rows=sealed.rows,
            bytes=sealed.bytes,
        )
        result = DatabaseResult(
            subject.name,
            self.point,
            done.position,
            sealed.rows,
            self._values.count - count,
            sealed.bytes + self._values.bytes - size,
        )
        intent = Intent(self.token, done.state, done.change)
        text = msgspec.json.encode(intent).decode()
        subject.database.transact(lambda txn: txn.execute(SQL.intend, (text,)))
        self._added[subject.name] = _PublishedDatabase(row, done.state, done.change, result)
        if failpoints.armed:
            failpoints.hit("archive.tables.sealed")
        return True

    def _seal(self, subject: Subject, origin: RowOrigin, state: CaptureState) -> SealedDatabase:
        values = ValueTarget(self._values.carry, subject.contents)
        process = self._process_for(subject, state)
        if process is not None:
            try:
                return process.seal(subject, origin, state, values)
            except BaseException:
                self.is_tainted = True
                raise
        sink = self._writer.sink(origin)
        try:
            return seal_here(sink, subject, state, values)
        except BaseException:
            self.is_tainted = bool(sink.rows)
            raise
        finally:
            self._rows_here += sink.rows

    def _process_for(self, subject: Subject, state: CaptureState) -> SealingProcess | None:
        """Return the child that seals a database, or None if this thread does.

        For a few rows, starting a process would take longer than writing them.
        """
        if self._stop is None or subject.reopen is None:
            return None
        if self._stop():
            raise ChildStopped
        if self._sealing is None:
            most = PUBLISH_HERE_ROWS - self._rows_here
            few = most > 0 and most > count_new_rows(
                subject.database, subject.description, state, most
            )
            if few:
                return None
            self._sealing = SealingProcess(self._folder, self.point, self._stop)
        return self._sealing

    def _find_defaults(self, subject: Subject, tables: Mapping[str, tuple[str, Any]]) -> None:
        """Remember the defaults of columns that an archive table does not have yet."""
        for name, (table, schema) in tables.items():
            columns = tuple(schema.names)
            if (name, columns) in self._known_columns:
                continue
            self._known_columns.add((name, columns))
            expected = self._archive.expected(name)
            if expected.metadata is None or set(columns) <= set(expected.schema.names):
                continue
            with subject.database.read() as snapshot:
                defaults = capture.defaults_of(snapshot, table)
            added = {column: defaults[column] for column in columns if column in defaults}
            self._defaults.setdefault(name, {}).update(added)

    def sink(self, origin: RowOrigin) -> DatabaseSink:
        """Return a sink for rows that are not those of a database; see `commit`."""
        return self._writer.sink(origin)

    def row(self, name: str, model: str, file_id: str, base: int) -> DatabaseRow:
        """Return a row of the catalog with rows of this publication."""
        return self.signed(
            DatabaseRow(self.point, name, model, file_id, base, self.point, self.token)
        )

    def signed(self, row: DatabaseRow) -> DatabaseRow:
        """Return a row of the catalog as one of this publication."""
        return msgspec.structs.replace(
            row,
            version=self.point,
            token=self.token,
            node=self._node.node,
            epoch=self._epoch,
        )

    def _basis(self, subject: Subject, file_id: str) -> tuple[CaptureState, int]:
        """Return the published state of a database, and the first point whose rows count.

        Without a usable one, everything is published.
        """
        everything = CaptureState(), self.point
        row = self._archive.catalog.state.find(subject.name)
        if row is None or row.absent or row.file_id != file_id:
            return everything
        record = _adopted(subject, row)
        if (record.generation, record.version) == (row.point, row.token):
            return everything if row.is_older else (record.state, row.base)
        back = self._node.went_back
        if row.token in self._node.late or (back is not None and record.generation > back):
            return everything
        raise PublisherFenced(
            f"{subject.name!r} is not the database that was published at point {row.point}, but "
            f"one at point {record.generation}",
            hint="It was replaced by an older copy. To publish from an older state: "
            "`fourfold bootstrap --at POINT --take-over`.",
        )

    # Commit

    def commit(
        self,
        time_: PointTime,
        more: Sequence[DatabaseRow] = (),
        *,
        streams: int = 0,
        others: Mapping[str, Sequence[Action]] | None = None,
    ) -> CommitRow:
        """Make the publication visible; return its row in the catalog.

        `more` are rows of the catalog besides those of the added databases, `streams` the number of
        streams that advanced, `others` changes of tables whose files are uploaded already.

        Raises:
            PublisherFenced: another node has published meanwhile.
        """
        files = self._writer.finish()
        if self._sealing is not None:
            files = joined_files(files, self._sealing.finish())
        self._upload(files)
        own = [added.row for added in self._added.values()]
        head = CommitRow(
            self.point,
            POINT_ROW,
            self.token,
            self._node.node,
            self._epoch,
            {},
            time_.id,
            time_.at,
            time_.started_ms,
            time_.restored,
            len(own) + sum(1 for row in more if not row.is_positions),
            streams,
        )
        changes = {entry.table.name: self._actions(entry) for entry in files}
        changes |= {name: [*actions, self._txn] for name, actions in (others or {}).items()}
        return self._commit(head, changes, [*own, *more])

    def maintain(
        self, changes: Mapping[str, Sequence[Action]], *, oldest: int | None = None
    ) -> CommitRow:
        """Commit changes of tables that change no kept point, without adding one.

        With `oldest`, the points before it are removed. Without changes, this only fences
        publications that started before.

        Raises:
            PublisherFenced: another node has published meanwhile.
        """
        head = CommitRow(self.point, TABLES_ROW, self.token, self._node.node, self._epoch)
        return self._commit(head, changes, (), oldest=oldest)

    def _commit(
        self,
        head: CommitRow,
        changes: Mapping[str, Sequence[Action]],
        rows: Sequence[DatabaseRow],
        *,
        oldest: int | None = None,
    ) -> CommitRow:
        archive, state = self._archive, self._archive.catalog.state
        # From here on a table may have commits that no commit of the catalog names.
        tried = (*self._node.intents, self.token)[-_INTENTS_MAX:]
        node = msgspec.structs.replace(self._node, intents=tried)
        write_record(archive.root, node)
        if failpoints.armed:
            failpoints.hit("archive.catalog.intended")
        snapshots = self._commit_tables(changes)
        tables = {**state.tables, **{name: new.version for name, new in snapshots.items()}}
        head = msgspec.structs.replace(head, tables=tables)
        try:
            archive.catalog.commit(head, rows, oldest=oldest)
        except CommitConflict as conflict:
            self._conflict(conflict.commit, node)
        if failpoints.armed:
            failpoints.hit("archive.catalog.committed")
        archive.keep(snapshots)
        written = msgspec.structs.replace(node, version=head.version, token=self.token, intents=())
        write_record(archive.root, written)
        return head

    def _conflict(self, commit: DeltaCommit | None, node: NodeRecord) -> None:
        """Raise the error for a commit of the catalog that is there already."""
        if commit is not None and commit.info.get("token") in node.intents:
            raise Busy(
                "an earlier publication of this node became visible late",
                hint="Publish again.",
            )
        other = {} if commit is None else commit.info
        raise PublisherFenced(
            f"node {other.get('node', 'unknown')!r} published to this archive meanwhile",
            hint="An archive has one publisher: stop this one, or use another URL.",
        )

    def _upload(self, files: list[TableFileWriter]) -> None:
        archive = self._archive
        pauses = None if self._stop is None else Pauses.for_process()
        uploads = [
            upload_of_file(
                archive.log(table.table.name).key(file.name),
                file.path,
                file.size_bytes,
                file.sha256,
                pauses,
            )
            for table in files
            for file in table.files
        ]
        with ThreadPoolExecutor(limits.ARCHIVE_CONCURRENCY) as pool:
            list(
                pool.map(lambda upload: put_once(archive.objects, upload, archive.retries), uploads)
            )

    def _commit_tables(self, changes: Mapping[str, Sequence[Action]]) -> dict[str, Snapshot]:
        archive, names = self._archive, set(changes)
        if self._node.intents or self._takes_over:
            # A publication was interrupted, perhaps after it committed some tables.
            names |= set(archive.catalog.state.tables)
        info = {"node": self._node.node, "epoch": self._epoch, "point": self.point}

        def one(name: str) -> tuple[str, Snapshot | None]:
            if name in changes:
                return name, archive.commit_table(name, changes[name], info)
            return name, archive.revert_table(name, info)

        with ThreadPoolExecutor(limits.ARCHIVE_CONCURRENCY) as pool:
            results = list(pool.map(one, sorted(names)))
        if failpoints.armed:
            failpoints.hit("archive.tables.committed")
        return {name: snapshot for name, snapshot in results if snapshot is not None}

    def _actions(self, files: TableFileWriter) -> list[Action]:
        now_ms = time.time_ns() // 1_000_000
        expected, actions = self._archive.expected(files.table.name), list[Action]()
        if expected.metadata is None:
            actions += table_actions(
                files.schema, name=files.table.name, configuration=files.table.configuration
            )
        else:
            schema = merged_schema(expected.schema, files.schema, files.table.name)
            if schema != expected.schema:
                added = set(schema.names) - set(expected.schema.names)
                found = self._defaults.get(files.table.name, {})
                defaults = {name: value for name, value in found.items() if name in added}
                actions.append(expected.metadata_with(schema, default_options(defaults)))
        actions += [file.add(now_ms) for file in files.files]
        return [*actions, self._txn]

    @property
    def _txn(self) -> Txn:
        """Transaction of a table, by which a commit of this publication is recognized."""
        return Txn(self._node.node, self.point)

    # Afterwards

    def record(self, subject: Subject) -> None:
        """Record in a database that it is published up to this point."""
        added = self._added[subject.name]
        record_published(subject, self.point, self.token, added.state, added.change)
        if failpoints.armed:
            failpoints.hit("archive.catalog.recorded")

    def close(self) -> None:
        """Delete the files of the publication."""
        if self._sealing is not None:
            self._sealing.close()
        self._writer.close()
        shutil.rmtree(self._folder, ignore_errors=True)


_INTENTS_MAX = 64


def record_published(
    subject: Subject, point: int, token: str, state: CaptureState, change: int
) -> None:
    """Record the published state of a database, and forget the changes in it."""
    text = msgspec.json.encode(state).decode()

    def work(txn: Transaction) -> int:
        txn.execute(SQL.record, (point, token, None, text))
        return forget(txn)

    def forget(txn: Transaction) -> int:
        txn.execute(SQL.forget_changes, (change, FORGET_SLICE_ROWS))
        return txn.changes

    forgotten = subject.database.transact(work)
    while forgotten == FORGET_SLICE_ROWS:
        subject.database.pauses.pause()
        forgotten = subject.database.transact(forget)


def _adopted(subject: Subject, row: DatabaseRow) -> StatusRow:
    """Return the record of a database, after its last publication became visible."""
    with subject.database.read() as snapshot:
        record = capture.record_of(snapshot)
    assert record is not None
    intent = record.intent
    if intent is not None and intent.token == row.token:
        record_published(subject, row.point, row.token, intent.state, intent.change)
        return record._replace(generation=row.point, version=row.token, state=intent.state)
    return record


def fenced(head: CommitRow, why: str) -> PublisherFenced:
    """Return the error for a store that is not the publisher of its archive."""
    return PublisherFenced(
        f"another node publishes to this archive: commit {head.version} is of node "
        f"{head.node!r}, and {why}",
        hint="An archive has one publisher: stop this one, or use another URL. To continue from "
        "an older point: `fourfold bootstrap --at POINT --take-over`.",
    )


def _revert(expected: Snapshot, actual: Snapshot) -> list[Action]:
    """Return the actions that bring a table back from an actual to an expected state."""
    now_ms = time.time_ns() // 1_000_000
    actions: list[Action] = []
    if expected.metadata is not None and expected.metadata != actual.metadata:
        actions.append(expected.metadata)
    actions += [
        file.removed(now_ms) for path, file in actual.files.items() if path not in expected.files
    ]
    actions += [file for path, file in expected.files.items() if path not in actual.files]
    # What a transaction has recorded is reverted with it.
    actions += [
        expected.txns.get(app, Txn(app, NO_VERSION))
        for app, txn in actual.txns.items()
        if expected.txns.get(app) != txn
    ]
    return actions


def _by_kind(actions: Sequence[Action]) -> list[Action]:
    """Return actions without those that a later one replaces."""
    chosen: dict[tuple[Any, ...], Action] = {}
    for action in actions:
        if isinstance(action, AddFile):
            # The same rows were committed before, by a publication that was interrupted.
            chosen.pop((RemoveFile, action.path), None)
        if isinstance(action, RemoveFile):
            # A compaction removes a file that an interrupted one had removed already.
            chosen.pop((AddFile, action.path), None)
        subject = getattr(action, "path", None) or getattr(action, "app_id", None)
        chosen[type(action), subject] = action
    return list(chosen.values())
