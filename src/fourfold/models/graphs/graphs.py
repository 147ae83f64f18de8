"""Graphs: the storage manager of all apps, on one database.

    app = graphs.register_app("notes", "Notes")
    note = graphs.register_type(app.app_id, "parent", "note")
    with graphs.transaction() as txn:
        one = graphs.insert_parent(app.app_id, {"type_id": note, "owner_identity": 1}, txn=txn)
    graphs.current_parents(app.app_id, at=1)

A call that writes takes part in the transaction that it is given, or else in the one that is open
around it; without any it is a transaction of its own, which shares its commit with concurrent
callers. A call that reads sees the transaction that it is given, or the newest commit. Rows are
named tuples, which cannot be changed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar, cast

from fourfold import limits
from fourfold.errors import NotFound, Refused
from fourfold.kernel import Database, Migration, Notifier, ReadTransaction, Transaction
from fourfold.models.graphs import envelopes, feed, validation
from fourfold.models.graphs.apps import Apps
from fourfold.models.graphs.feed import Feed, FeedFilter, Page
from fourfold.models.graphs.maintenance import Maintenance
from fourfold.models.graphs.model import GLOBAL_SEQ
from fourfold.models.graphs.reader import Reader
from fourfold.models.graphs.records import (
    SYSTEM_APP,
    App,
    ApplyResult,
    Kind,
    Type,
    Usage,
)
from fourfold.models.graphs.registers import Registers
from fourfold.models.graphs.selections import Selections
from fourfold.models.graphs.statements import SQL, statements_of
from fourfold.models.graphs.sync import sync
from fourfold.models.graphs.sync.package import Signer
from fourfold.models.graphs.sync.sync import Export, IngestReport
from fourfold.models.graphs.writer import GraphTransaction

T = TypeVar("T")

_OPEN: ContextVar[tuple[GraphTransaction, ...]] = ContextVar("graph_transactions", default=())
"""The open transactions that the code running now is inside of, of any store. Tasks that it starts
inherit them; other tasks of the same thread do not have them.
"""


class Graphs(Selections, Registers, Maintenance):
    """All apps of one store."""

    def __init__(self, database: Database, *, strict: bool = False) -> None:
        super().__init__()
        self.database = database
        self.notifier = Notifier()
        self.strict = strict
        """Whether `update_sync_flags` is forbidden."""
        self._apps = Apps()
        self._running = threading.local()
        self.node = database.identity()
        """The name of this node in rows that other nodes receive."""
        with database.read() as snapshot:
            self._apps.check_globals(snapshot, str(database.path))
        if database.writable:
            database.transact(self._prepare)
        with database.read() as snapshot:
            self._apps.check(snapshot, str(database.path))

    def _prepare(self, txn: Transaction) -> None:
        """The system's own app, and the tables of every app that lacks some."""
        now = GraphTransaction(txn, self._apps, self.node, None).now
        self._apps.register(txn, "system", "System", now, SYSTEM_APP)

    # Transactions and snapshots

    @contextmanager
    def transaction(self, *, trace_id: str | None = None) -> Iterator[GraphTransaction]:
        """A transaction that commits at the end of the block, and leaves nothing when it raises.
        Inside another one of the same thread it is a step of that.
        """
        trace = None if trace_id is None else validation.check_text(trace_id, "trace_id")
        self._refuse_if_unsound()
        outer = self._joined()
        with self.database.write() as txn:
            if outer is None:
                with self._began(txn, trace) as handle:
                    yield handle
                return
            mark = outer.mark()
            try:
                yield outer
            except BaseException:
                outer.undo(mark)
                raise

    @contextmanager
    def _began(self, txn: Transaction, trace_id: str | None) -> Iterator[GraphTransaction]:
        """Run the block with a handle of `txn`, which calls inside the block join."""
        handle = GraphTransaction(txn, self._apps, self.node, trace_id)
        self._running.handle = handle
        _OPEN.set((*_OPEN.get(), handle))
        try:
            yield handle
            handle.finish()
            txn.after_commit_once(self.notifier.notify)
        finally:
            self._running.handle = None
            _OPEN.set(tuple(each for each in _OPEN.get() if each is not handle))

    def in_transaction(self) -> bool:
        """Return True inside a transaction that the caller, or the task that started it, opened."""
        handle = getattr(self._running, "handle", None)
        return handle is not None and handle in _OPEN.get()

    def _joined(self) -> GraphTransaction | None:
        """Return the transaction that a write of the caller joins, or None."""
        handle: GraphTransaction | None = getattr(self._running, "handle", None)
        if handle is None or handle in _OPEN.get():
            return handle
        raise Refused(
            f"{self.database.path}: another task of this thread has a transaction open",
            hint="Await nothing inside `graphs.transaction()`, or write with `apply_async`.",
        )

    @contextmanager
    def snapshot(self) -> Iterator[Reader]:
        """One committed state, fixed at the start of the block."""
        with self.database.read() as snapshot:
            yield Reader(snapshot, self._apps, self.node)

    def with_transaction(self, work: Callable[[GraphTransaction], T]) -> T:
        """Run `work` in a transaction shared with concurrent callers. It may run more than once,
        and must have no effect but through its handle. Inside a transaction of the same thread it
        is a step of that.
        """
        if self._joined() is not None:
            with self.transaction() as handle:
                return work(handle)
        return self.database.transact(self._work(work))

    async def with_transaction_async(self, work: Callable[[GraphTransaction], T]) -> T:
        """Run `work` in a transaction shared with concurrent callers. It may run more than once,
        and must have no effect but through its handle. Inside a transaction of the same task, or
        of the task that started this one, it is a step of that.
        """
        if self.in_transaction():
            return self.with_transaction(work)
        return await self.database.transact_async(self._work(work))

    def with_read_only(self, work: Callable[[Reader], T]) -> T:
        with self.snapshot() as reader:
            return work(reader)

    with_txn = with_transaction
    read_only = with_read_only
    write_batch = with_transaction

    def _work(self, work: Callable[[GraphTransaction], T]) -> Callable[[Transaction], T]:
        self._refuse_if_unsound()

        def run(txn: Transaction) -> T:
            with self._began(txn, None) as handle:
                return work(handle)

        return run

    def _write(self, txn: GraphTransaction | None, work: Callable[[GraphTransaction], T]) -> T:
        return self.with_transaction(work) if txn is None else work(txn)

    def _reader(self, txn: GraphTransaction | None) -> AbstractContextManager[Reader]:
        if txn is None:
            return self.snapshot()
        return _within(Reader(txn.txn, self._apps, self.node))

    # Numbers

    def get_global_seq(self) -> int:
        """The newest committed number."""
        return self.database.sequence(GLOBAL_SEQ)

    def next_global_seq(self, txn: GraphTransaction) -> int:
        """Claim the next number; rows written in `txn` from now on carry it."""
        return txn.next_seq()

    # Apps and types

    def register_app(self, slug: str, title: str, *, app_id: int | None = None) -> App:
        """An app with its tables; the same one again when it is there already."""
        return self.with_transaction(
            lambda handle: self._apps.register(handle.txn, slug, title, handle.now, app_id)
        )

    def ensure_app_schema(self, app_id: int) -> None:
        """Make the tables and indexes of an app that are missing."""
        self.with_transaction(lambda handle: self._apps.ensure_tables(handle.txn, app_id))

    def upgrade_app(self, app_id: int, steps: Sequence[Migration]) -> App:
        """Bring the tables of an app to the version of the last step, or leave all as it was."""
        self._refuse_if_unsound()
        with self.database.write() as txn:
            now = GraphTransaction(txn, self._apps, self.node, None).now
            return self._apps.upgrade(txn, app_id, steps, now)

    def app(self, app: int | str) -> App:
        """One app, by its number or its slug."""
        with self.database.read() as snapshot:
            if isinstance(app, str):
                found = self._apps.by_slug(snapshot, app)
                if found is None:
                    raise NotFound(
                        f"there is no app {app!r}", hint="`fourfold app list` shows all."
                    )
                return found
            return self._apps.app(snapshot, app)

    def list_apps(self) -> tuple[App, ...]:
        with self.database.read() as snapshot:
            return self._apps.all(snapshot)

    def register_type(
        self, app_id: int, kind: Kind, type_key: str, *, txn: GraphTransaction | None = None
    ) -> int:
        """The id of a type, which is made when it is first asked for and never changes."""
        return self._write(
            txn, lambda handle: self._apps.register_type(handle.txn, app_id, kind, type_key)
        )

    def list_types(self, app_id: int) -> tuple[Type, ...]:
        with self.database.read() as snapshot:
            return self._apps.all_types(snapshot, app_id)

    def usage(self, app_id: int) -> Usage:
        """What an app holds, and what it may hold."""
        with self.database.read() as snapshot:
            self._apps.must_exist(snapshot, app_id)
            return Usage._make(cast("Any", snapshot.one(SQL.usage, (app_id,))))

    def count(self, snapshot: ReadTransaction, app_id: int, kind: Kind) -> int:
        """How many rows a table holds; SQLite goes through an index of it."""
        return int(snapshot.value(statements_of(app_id, kind).count))

    def set_limits(
        self, app_id: int, *, rows_max: int | None = None, bytes_max: int | None = None
    ) -> Usage:
        """What an app may hold; None is no limit. What it holds already stays."""
        for name, value in (("rows_max", rows_max), ("bytes_max", bytes_max)):
            if value is not None:
                validation.check_integer(value, name)

        def work(handle: GraphTransaction) -> Usage:
            self._apps.must_exist(handle.txn, app_id)
            handle.txn.execute(SQL.set_limits, (app_id, rows_max, bytes_max))
            return Usage._make(cast("Any", handle.txn.one(SQL.usage, (app_id,))))

        return self.with_transaction(work)

    # Writing

    def insert(
        self,
        app_id: int,
        kind: Kind,
        rows: Iterable[Mapping[str, Any]],
        *,
        txn: GraphTransaction | None = None,
    ) -> list[int]:
        """Add objects; their ids, in order. All of them, or none.

        Raises:
            NotFound: a row refers to an object that the app does not have.
        """
        known, given = validation.check_kind(kind), list(rows)
        return self._write(txn, lambda handle: handle.insert(app_id, known, given))

    def update(
        self,
        app_id: int,
        kind: Kind,
        object_id: int,
        changes: Mapping[str, Any],
        *,
        txn: GraphTransaction | None = None,
    ) -> int:
        """Add a version of an object; the versions before it stay readable."""
        known = validation.check_kind(kind)
        return self._write(txn, lambda handle: handle.update(app_id, known, object_id, changes))

    def insert_parent(
        self, app_id: int, row: Mapping[str, Any], *, txn: GraphTransaction | None = None
    ) -> int:
        return self.insert(app_id, "parent", [row], txn=txn)[0]

    def insert_attr(
        self, app_id: int, row: Mapping[str, Any], *, txn: GraphTransaction | None = None
    ) -> int:
        return self.insert(app_id, "attr", [row], txn=txn)[0]

    def insert_edge(
        self, app_id: int, row: Mapping[str, Any], *, txn: GraphTransaction | None = None
    ) -> int:
        return self.insert(app_id, "edge", [row], txn=txn)[0]

    def insert_rating(
        self, app_id: int, row: Mapping[str, Any], *, txn: GraphTransaction | None = None
    ) -> int:
        return self.insert(app_id, "rating", [row], txn=txn)[0]

    def insert_log(
        self,
        app_id: int,
        level: str,
        event_type: str,
        context_json: str,
        *,
        txn: GraphTransaction | None = None,
    ) -> int:
        """Add to the app's own log, which is local and has no number."""
        return self._write(
            txn,
            lambda handle: self._apps.write_log(
                handle.txn, app_id, (level, event_type, context_json), handle.now
            ),
        )

    def insert_many_parents(
        self, app_id: int, rows: Iterable[Mapping[str, Any]], *, txn: GraphTransaction | None = None
    ) -> list[int]:
        return self.insert(app_id, "parent", rows, txn=txn)

    def insert_many_attrs(
        self, app_id: int, rows: Iterable[Mapping[str, Any]], *, txn: GraphTransaction | None = None
    ) -> list[int]:
        return self.insert(app_id, "attr", rows, txn=txn)

    def insert_many_edges(
        self, app_id: int, rows: Iterable[Mapping[str, Any]], *, txn: GraphTransaction | None = None
    ) -> list[int]:
        return self.insert(app_id, "edge", rows, txn=txn)

    def insert_many_ratings(
        self, app_id: int, rows: Iterable[Mapping[str, Any]], *, txn: GraphTransaction | None = None
    ) -> list[int]:
        return self.insert(app_id, "rating", rows, txn=txn)

    def apply(self, envelope: Mapping[str, Any]) -> ApplyResult:
        """Accept a batch of operations: one transaction, one number; or nothing at all. Inside a
        transaction it is a step of that, and its rows have the number that the transaction is at.
        """
        parsed = envelopes.parse(envelope)
        return self.with_transaction(lambda handle: envelopes.apply(handle, self._apps, parsed))

    async def apply_async(self, envelope: Mapping[str, Any]) -> ApplyResult:
        """Accept a batch of operations: one transaction, one number; or nothing at all. Inside a
        transaction of the same task it is a step of that.
        """
        parsed = envelopes.parse(envelope)
        return await self.with_transaction_async(
            lambda handle: envelopes.apply(handle, self._apps, parsed)
        )

    def apply_many(
        self, given: Iterable[Mapping[str, Any]], *, note: tuple[str, str] | None = None
    ) -> list[ApplyResult]:
        """Accept several envelopes in one transaction, each under a number of its own: all, or
        none. `note` is a setting that is written with them, such as how far a load has come.
        Inside a transaction they are steps of that.
        """
        parsed = [envelopes.parse(each) for each in given]
        done = []
        with self.transaction() as handle:
            for each in parsed:
                handle.start_seq()
                done.append(envelopes.apply(handle, self._apps, each))
            if note is not None:
                handle.txn.execute(SQL.put_setting, note)
        return done

    def update_sync_flags(
        self,
        app_id: int,
        table: Kind,
        row_ids: Iterable[int],
        flags: int,
        *,
        txn: GraphTransaction | None = None,
    ) -> int:
        """Set the flags of rows; how many there were. A strict store forbids it."""
        if self.strict:
            raise Refused("this store is strict: the flags of a row never change")
        known, wanted = validation.check_kind(table), validation.check_integer(flags, "flags")
        ids = validation.check_ids(row_ids, "row_ids")
        return self._write(txn, lambda handle: handle.set_flags(app_id, known, ids, wanted))

    # Synchronisation

    def export_package(
        self,
        domain: str,
        signer: Signer,
        *,
        after: int = 0,
        limit: int = limits.FEED_PAGE_ROWS,
        for_node: str | None = None,
    ) -> Export | None:
        """The next window of a domain behind `after`, signed; None when there is nothing to tell.
        Rows that the node `for_node` wrote itself are left out.
        """
        return sync.export(self, domain, signer, after=after, limit=limit, for_node=for_node)

    def ingest_package(self, peer_id: int, data: bytes) -> IngestReport:
        """Take in a package of a peer: all of it and the cursor in one transaction, or nothing."""
        return sync.ingest(self, peer_id, data)

    # The change feed

    def feed(
        self,
        *,
        after: int = 0,
        apps: Iterable[int] | None = None,
        kinds: Iterable[Kind] | None = None,
        flag_mask: int | None = None,
        limit: int = limits.FEED_PAGE_ROWS,
        durable: bool = False,
        timeout: float | None = None,
    ) -> Feed:
        """Everything written after a number, page by page; it waits for more, `timeout` seconds at
        most if given.
        """
        wanted = FeedFilter.of(apps, kinds, flag_mask)
        return Feed(self, wanted, after=after, limit=limit, durable=durable, timeout=timeout)

    def page(self, wanted: FeedFilter, after: int, limit: int, *, durable: bool) -> Page:
        """One look at the log behind `after`."""
        until = self.durable_seq() if durable else None
        with self.snapshot() as reader:
            return feed.page(reader, wanted, after, reader.newest_seq(until), limit)

    def durable_seq(self) -> int:
        """The newest number that survives a power cut, brought up to date if need be."""
        if not self.database.writable:
            return self.database.durable(GLOBAL_SEQ)
        if self.database.durable(GLOBAL_SEQ) < self.get_global_seq():
            self.database.make_durable()
        return self.database.durable(GLOBAL_SEQ)


@contextmanager
def _within(reader: Reader) -> Iterator[Reader]:
    yield reader
