"""The graphs of a store: all apps, on one database.

    notes = graphs.create("notes", "Notes")
    note = notes.register_type("parent", "note")
    with graphs.transaction() as txn:
        [one] = notes.insert("parent", [{"type_id": note, "owner_identity": 1}], txn=txn)
    notes.read("parent", one, at=1)

A write joins the transaction that it is given, or the one that is open around it; otherwise it is a
transaction of its own, which shares its commit with concurrent callers. A read sees the transaction
that it is given, or the newest commit. Rows are named tuples.
"""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any, TypeVar, cast

from fourfold import limits
from fourfold.arguments import check_arguments
from fourfold.errors import NotFound, Refused
from fourfold.kernel import Database, Migration, Notifier, ReadTransaction, Transaction
from fourfold.models.graphs import envelopes, feed, validation
from fourfold.models.graphs.apps import Apps, existed_at
from fourfold.models.graphs.database import GLOBAL_SEQ
from fourfold.models.graphs.feed import ChangePage, FeedFilter, GraphFeed
from fourfold.models.graphs.graph import Graph
from fourfold.models.graphs.maintenance import Maintenance
from fourfold.models.graphs.reader import Reader
from fourfold.models.graphs.records import (
    SYSTEM_APP,
    App,
    AppDescription,
    ApplyResult,
    Kind,
    Type,
    TypeDescription,
    Usage,
)
from fourfold.models.graphs.registers import Registers
from fourfold.models.graphs.rules import CheckedRows, check_existing, rules_by_type
from fourfold.models.graphs.selections import Selections
from fourfold.models.graphs.statements import SQL, statements_of
from fourfold.models.graphs.sync import parking
from fourfold.models.graphs.sync.exchange import Exchange
from fourfold.models.graphs.writer import GraphTransaction
from fourfold.models.handle_mapping import HandleMapping
from fourfold.tabular import Rows

T = TypeVar("T")

_OPEN: ContextVar[tuple[GraphTransaction, ...]] = ContextVar("graph_transactions", default=())
"""Open transactions of the running code, of any store.

Tasks that it starts inherit them; other tasks of the same thread do not.
"""


class _DryRun(Exception):
    """Rolls back an upgrade that succeeded."""

    def __init__(self, app: App) -> None:
        self.app = app


def _end_dry_run(app: App, *, dry_run: bool) -> None:
    if dry_run:
        raise _DryRun(app)


@check_arguments()
class Graphs(HandleMapping[int | str, Graph], Selections, Registers, Exchange, Maintenance):
    """The graphs of one store. Opened by `store.graphs`; iteration yields the slugs of all apps.

    `create`, `open` and `list` return handles and summaries. The calls that take an app id are
    those of specification 003; a `Graph` has the common ones without it.
    """

    def __init__(self, database: Database, *, strict: bool = False) -> None:
        super().__init__()
        self.database = database
        self.notifier = Notifier()
        self.strict = strict
        """True if `update_sync_flags` is refused."""
        self._apps = Apps()
        self._running = threading.local()
        self.node = database.identity()
        """The id of this node in rows that other nodes receive."""
        with database.read() as snapshot:
            self._apps.check_globals(snapshot, str(database.path))
        if database.writable:
            database.transact(self._prepare)
        with database.read() as snapshot:
            self._apps.check(snapshot, str(database.path))

    def _prepare(self, txn: Transaction) -> None:
        """Register the system app, and create missing tables of all apps."""
        now = GraphTransaction(txn, self._apps, self.node, None).now
        self._apps.register(txn, "system", "System", now, SYSTEM_APP)

    # Transactions and snapshots

    @contextmanager
    def transaction(self, *, trace_id: str | None = None) -> Iterator[GraphTransaction]:
        """Open a transaction that commits at the end of the block, or rolls back if it raises.

        Inside another transaction of the same thread it is a savepoint of that.
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
            _OPEN.set(tuple(other for other in _OPEN.get() if other is not handle))

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
        """Open a read transaction: one committed state for the whole block."""
        with self.database.read() as snapshot:
            yield Reader(snapshot, self._apps, self.node)

    def with_transaction(self, work: Callable[[GraphTransaction], T]) -> T:
        """Run `work` in a transaction that shares its commit with concurrent callers.

        `work` may run more than once, and must have no effects except through its handle. Inside a
        transaction of the same thread it is a savepoint of that.
        """
        if self._joined() is not None:
            with self.transaction() as handle:
                return work(handle)
        return self.database.transact(self._work(work))

    async def with_transaction_async(self, work: Callable[[GraphTransaction], T]) -> T:
        """Run `work` like `with_transaction`, from a coroutine.

        Inside a transaction of the same task, or of the task that started it, it is a savepoint of
        that.
        """
        if self.in_transaction():
            return self.with_transaction(work)
        return await self.database.transact_async(self._work(work))

    def with_read_only(self, work: Callable[[Reader], T]) -> T:
        """Run `work` on one committed state."""
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

    # Seqs

    def position(self) -> int:
        """Return the newest committed seq."""
        return self.database.sequence(GLOBAL_SEQ)

    def get_global_seq(self) -> int:
        """Alias of `position`: the name in specification 003."""
        return self.position()

    def next_global_seq(self, txn: GraphTransaction) -> int:
        """Claim the next seq; rows written in `txn` from now on have it."""
        return txn.next_seq()

    # Apps and types

    def create(self, slug: str, title: str | None = None) -> Graph:
        """Create an app with its tables, or return the existing one of that slug."""
        app = self.register_app(slug, slug if title is None else title)
        return Graph(self, app.app_id, app.slug)

    def open(self, app: int | str) -> Graph:
        """Return a handle of an existing app, by its id or slug.

        Raises:
            NotFound: There is no such app.
        """
        info = self.app(app)
        return Graph(self, info.app_id, info.slug)

    def list(self, at: datetime | None = None) -> Rows[App]:
        """Return all apps, the system app included; with `at`, those created by that time."""
        return Rows(self.list_apps(at), App)

    def register_app(self, slug: str, title: str, *, app_id: int | None = None) -> App:
        """Create an app with its tables, or return the existing one of that slug."""
        return self.with_transaction(
            lambda handle: self._apps.register(handle.txn, slug, title, handle.now, app_id)
        )

    def ensure_app_schema(self, app_id: int) -> None:
        """Create the missing tables and indexes of an app."""
        self.with_transaction(lambda handle: self._apps.ensure_tables(handle.txn, app_id))

    def upgrade_app(
        self,
        app_id: int,
        steps: Sequence[Migration],
        *,
        rules: Iterable[tuple[Kind, str, Mapping[str, Any] | None]] = (),
        dry_run: bool = False,
    ) -> App:
        """Migrate the tables of an app to the version of the last step, or change nothing.

        Returns the app as it is then.

        Args:
            app_id: The app.
            steps: All steps of the app, from version 2 on; those that ran are compared.
            rules: Rules to set after the steps: the kind and the key of a type, and its rule or
                None to remove it.
            dry_run: Run everything as otherwise, and then roll it back.
        """
        self._refuse_if_unsound()
        changes = [
            ((kind, type_key), rule, self._check_existing(app_id, (kind, type_key), rule))
            for kind, type_key, rule in rules
        ]
        try:
            with self.database.write() as txn:
                handle = GraphTransaction(txn, self._apps, self.node, None)
                app = self._apps.upgrade(txn, app_id, steps, handle.now)
                for of, rule, checked in changes:
                    handle.set_rule(app_id, of, rule, checked)
                _end_dry_run(app, dry_run=dry_run)
        except _DryRun as done:
            return done.app
        if changes:
            parking.apply_rules(self, app_id)
        return app

    def set_rule(
        self, app_id: int, kind: Kind, type_key: str, rule: Mapping[str, Any] | None
    ) -> None:
        """Set what objects of a type must meet, or remove it with None.

        Rows of peers that broke the rule before, and are not applied, are tried again.

        Args:
            app_id: The app.
            kind: "attr", "edge" or "rating".
            type_key: The key of the type.
            rule: The fields of a `fourfold.models.graphs.rules.TypeRule`.

        Raises:
            InvalidInput: It is not a rule of this kind.
            NotFound: The app has no such type, or no type that the rule names.
            RuleBroken: An object breaks the rule.
        """
        of = kind, type_key
        checked = self._check_existing(app_id, of, rule)
        self.with_transaction(lambda handle: handle.set_rule(app_id, of, rule, checked))
        parking.apply_rules(self, app_id)

    def _check_existing(
        self, app_id: int, of: tuple[Kind, str], rule: Mapping[str, Any] | None
    ) -> CheckedRows:
        """Check committed rows for a rule, without keeping writers from working."""
        try:
            with self.database.read_in_background() as snapshot:
                return check_existing(snapshot, self._apps, app_id, of, rule)
        except NotFound:
            # The app was created in the open transaction, so it has no committed rows.
            return CheckedRows()

    def describe(self, app_id: int) -> AppDescription:
        """Return an app with its types, their rules, and its usage."""
        with self.database.read() as snapshot:
            app = self._apps.app(snapshot, app_id)
            usage = Usage._make(cast("Any", snapshot.one(SQL.usage, (app_id,))))
            rules = rules_by_type(snapshot, app_id)
            types = [
                TypeDescription(*row, rules.get(row.id))
                for row in self._apps.all_types(snapshot, app_id)
            ]
        return AppDescription(app, usage, tuple(types))

    def app(self, app: int | str, at: datetime | None = None) -> App:
        """Return an app by its id or slug.

        Raises:
            NotFound: There is no such app, or there was none at that time.
        """
        with self.database.read() as snapshot:
            if isinstance(app, str):
                info = self._apps.by_slug(snapshot, app)
                if info is None:
                    raise NotFound(
                        f"unknown app {app!r}", hint="List the apps with `fourfold app list`."
                    )
            else:
                info = self._apps.app(snapshot, app)
        if not existed_at(info, at):
            raise NotFound(
                f"app {info.slug!r} did not exist at {at}; it was created at {info.created_at}"
            )
        return info

    def list_apps(self, at: datetime | None = None) -> tuple[App, ...]:
        """Return all apps, the system app included; with `at`, those created by that time."""
        with self.database.read() as snapshot:
            apps = self._apps.all(snapshot)
        return tuple(app for app in apps if existed_at(app, at))

    def register_type(
        self, app_id: int, kind: Kind, type_key: str, *, txn: GraphTransaction | None = None
    ) -> int:
        """Return the id of a type, registering it on first use; ids never change."""
        return self._write(
            txn, lambda handle: self._apps.register_type(handle.txn, app_id, kind, type_key)
        )

    def list_types(self, app_id: int) -> tuple[Type, ...]:
        """Return the types of an app."""
        with self.database.read() as snapshot:
            return self._apps.all_types(snapshot, app_id)

    def usage(self, app_id: int) -> Usage:
        """Return the rows and bytes that an app stores, and its limits."""
        with self.database.read() as snapshot:
            self._apps.must_exist(snapshot, app_id)
            return Usage._make(cast("Any", snapshot.one(SQL.usage, (app_id,))))

    def count(self, snapshot: ReadTransaction, app_id: int, kind: Kind) -> int:
        """Return the number of rows of a table, counted through an index."""
        return int(snapshot.value(statements_of(app_id, kind).count))

    def set_limits(
        self, app_id: int, *, rows_max: int | None = None, bytes_max: int | None = None
    ) -> Usage:
        """Set the limits of an app; None means unlimited. Existing rows stay."""
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
    ) -> builtins.list[int]:
        """Insert objects and return their ids, or insert none of them.

        Raises:
            NotFound: a row refers to an object that the app does not have.
        """
        checked, objects = validation.check_kind(kind), builtins.list(rows)
        return self._write(txn, lambda handle: handle.insert(app_id, checked, objects))

    def update(
        self,
        app_id: int,
        kind: Kind,
        object_id: int,
        changes: Mapping[str, Any],
        *,
        expected: int | None = None,
        txn: GraphTransaction | None = None,
    ) -> int:
        """Write a new version of an object and return its row id; earlier versions stay readable.

        Raises:
            PreconditionFailed: `expected` is given, and is not the `id` of the newest row.
        """
        checked = validation.check_kind(kind)
        return self._write(
            txn,
            lambda handle: handle.update(app_id, checked, object_id, changes, expected=expected),
        )

    def insert_parent(
        self, app_id: int, row: Mapping[str, Any], *, txn: GraphTransaction | None = None
    ) -> int:
        """Insert a parent and return its id."""
        return self.insert(app_id, "parent", [row], txn=txn)[0]

    def insert_attr(
        self, app_id: int, row: Mapping[str, Any], *, txn: GraphTransaction | None = None
    ) -> int:
        """Insert an attribute and return its id."""
        return self.insert(app_id, "attr", [row], txn=txn)[0]

    def insert_edge(
        self, app_id: int, row: Mapping[str, Any], *, txn: GraphTransaction | None = None
    ) -> int:
        """Insert an edge and return its id."""
        return self.insert(app_id, "edge", [row], txn=txn)[0]

    def insert_rating(
        self, app_id: int, row: Mapping[str, Any], *, txn: GraphTransaction | None = None
    ) -> int:
        """Insert a rating and return its id."""
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
        """Append to the local log of an app, which has no seqs and is not synced."""
        return self._write(
            txn,
            lambda handle: self._apps.write_log(
                handle.txn, app_id, (level, event_type, context_json), handle.now
            ),
        )

    def insert_many_parents(
        self, app_id: int, rows: Iterable[Mapping[str, Any]], *, txn: GraphTransaction | None = None
    ) -> builtins.list[int]:
        """Insert parents and return their ids."""
        return self.insert(app_id, "parent", rows, txn=txn)

    def insert_many_attrs(
        self, app_id: int, rows: Iterable[Mapping[str, Any]], *, txn: GraphTransaction | None = None
    ) -> builtins.list[int]:
        """Insert attributes and return their ids."""
        return self.insert(app_id, "attr", rows, txn=txn)

    def insert_many_edges(
        self, app_id: int, rows: Iterable[Mapping[str, Any]], *, txn: GraphTransaction | None = None
    ) -> builtins.list[int]:
        """Insert edges and return their ids."""
        return self.insert(app_id, "edge", rows, txn=txn)

    def insert_many_ratings(
        self, app_id: int, rows: Iterable[Mapping[str, Any]], *, txn: GraphTransaction | None = None
    ) -> builtins.list[int]:
        """Insert ratings and return their ids."""
        return self.insert(app_id, "rating", rows, txn=txn)

    def apply(self, envelope: Mapping[str, Any], *, once: bool = False) -> ApplyResult:
        """Write an envelope of operations in one transaction under one seq, or nothing.

        Inside a transaction it is a savepoint of that, and its rows have the current seq of it.

        Args:
            envelope: A `trace_id`, and the operations as `ops`.
            once: Write nothing if the app has an envelope with the trace id, and return its result.

        Raises:
            ReplayMismatch: With `once`, other operations were written with the trace id.
        """
        parsed = envelopes.parse(envelope)
        write = envelopes.apply_once if once else envelopes.apply
        return self.with_transaction(lambda handle: write(handle, self._apps, parsed))

    async def apply_async(self, envelope: Mapping[str, Any], *, once: bool = False) -> ApplyResult:
        """Write an envelope of operations like `apply`, from a coroutine."""
        parsed = envelopes.parse(envelope)
        write = envelopes.apply_once if once else envelopes.apply
        return await self.with_transaction_async(lambda handle: write(handle, self._apps, parsed))

    def apply_many(
        self, batch: Iterable[Mapping[str, Any]], *, note: tuple[str, str] | None = None
    ) -> builtins.list[ApplyResult]:
        """Write several envelopes in one transaction, each under its own seq, or none.

        `note` is a setting that is written with them, such as the progress of a load.
        """
        parsed = [envelopes.parse(envelope) for envelope in batch]
        results = []
        with self.transaction() as handle:
            for envelope in parsed:
                handle.start_seq()
                results.append(envelopes.apply(handle, self._apps, envelope))
            if note is not None:
                handle.txn.execute(SQL.put_setting, note)
        return results

    def update_sync_flags(
        self,
        app_id: int,
        table: Kind,
        row_ids: Iterable[int],
        flags: int,
        *,
        txn: GraphTransaction | None = None,
    ) -> int:
        """Set the sync flags of rows and return their number; refused by a strict store."""
        if self.strict:
            raise Refused("cannot change sync flags while graphs.sync_flags is 'fixed'")
        kind, bits = validation.check_kind(table), validation.check_integer(flags, "flags")
        ids = validation.check_ids(row_ids, "row_ids")
        return self._write(txn, lambda handle: handle.set_flags(app_id, kind, ids, bits))

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
    ) -> GraphFeed:
        """Iterate over pages of changes after a seq and wait for more.

        Args:
            after: Begin after this seq.
            apps: Only rows of these app ids.
            kinds: Only rows of these kinds.
            flag_mask: Only rows that have one of these sync flags.
            limit: Maximum number of rows of a page, unless one transaction has more.
            durable: Only rows that survive a power cut.
            timeout: End after this many seconds without a change.
        """
        query = FeedFilter.of(apps, kinds, flag_mask)
        return GraphFeed(self, query, after=after, limit=limit, durable=durable, timeout=timeout)

    follow = feed

    def page(self, query: FeedFilter, after: int, limit: int, *, durable: bool) -> ChangePage:
        """Read one page of the log after `after`."""
        until = self.durable_seq() if durable else None
        with self.database.paced() as end_step, self.snapshot() as reader:
            newest = reader.newest_seq(until)
            return feed.page(reader, query, after, newest, limit, end_step=end_step)

    def durable_seq(self) -> int:
        """Return the newest seq that survives a power cut, syncing the log if needed."""
        if not self.database.writable:
            return self.database.durable(GLOBAL_SEQ)
        if self.database.durable(GLOBAL_SEQ) < self.get_global_seq():
            self.database.make_durable()
        return self.database.durable(GLOBAL_SEQ)

    _describe = app

    def _names(self, after: str | None) -> Sequence[str]:
        return [app.slug for app in self.list_apps()] if after is None else []

    def __len__(self) -> int:
        """Return the number of apps, the system app included."""
        return len(self.list_apps())

    def __repr__(self) -> str:
        return f"<Graphs in {self.database.path}>"


@contextmanager
def _within(reader: Reader) -> Iterator[Reader]:
    yield reader
