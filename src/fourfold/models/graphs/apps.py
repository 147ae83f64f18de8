"""The apps of a graph database: ids, tables, types and versions.

What is remembered here about apps and types is what was committed: a transaction that registers an
app or a type tells this registry only once it is through, because a rollback takes the tables with
it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import datetime

from fourfold.errors import (
    AlreadyExists,
    CorruptData,
    FormatError,
    FutureFormat,
    InvalidInput,
    NotFound,
    SequenceCorrupt,
)
from fourfold.kernel import Migration, ReadTransaction, Transaction
from fourfold.models.graphs import upgrades, validation
from fourfold.models.graphs.records import (
    BITS,
    KINDS,
    ROWS,
    SYSTEM_APP,
    App,
    AppLogEntry,
    Envelope,
    Identity,
    Kind,
    Peer,
    SyncProgress,
    Type,
    Usage,
)
from fourfold.models.graphs.statements import (
    NOUNS,
    SQL,
    app_statements,
    statements_of,
    table_of,
)

_NO_TYPES: frozenset[int] = frozenset()


def existed_at(app: App, at: datetime | None) -> bool:
    """Return True if an app had been created by a time; raise InvalidInput without a zone."""
    if at is None:
        return True
    if at.tzinfo is None:
        raise InvalidInput(f"at must be a time with a zone, got {at.isoformat()}")
    return datetime.fromisoformat(app.created_at) <= at


class Apps:
    """Cached metadata of the apps of one database."""

    def __init__(self) -> None:
        self._known: set[int] = set()
        self._types: dict[tuple[int, Kind], frozenset[int]] = {}
        self._keys: dict[tuple[int, str, str], int] = {}
        self._lock = threading.Lock()

    def must_exist(self, snapshot: ReadTransaction, app_id: int) -> None:
        """Raise NotFound unless there is an app with this id."""
        # True is the same key as 1, but no number of an app.
        if type(app_id) is not int or app_id not in self._known:
            self.app(snapshot, app_id)

    def app(self, snapshot: ReadTransaction, app_id: int) -> App:
        """Return an app by its id; raise NotFound if there is none."""
        validation.check_integer(app_id, "app_id")
        row = snapshot.one(SQL.app_by_id, (app_id,))
        if row is None:
            raise NotFound(f"unknown app {app_id}", hint="List the apps with `fourfold app list`.")
        return App._make(row)

    def by_slug(self, snapshot: ReadTransaction, slug: str) -> App | None:
        """Return an app by its slug, or None."""
        row = snapshot.one(SQL.app_by_slug, (validation.check_slug(slug),))
        return None if row is None else App._make(row)

    def all(self, snapshot: ReadTransaction) -> tuple[App, ...]:
        """Return all apps."""
        return tuple(App._make(row) for row in snapshot.all(SQL.apps))

    def register(
        self, txn: Transaction, slug: str, title: str, now: str, app_id: int | None = None
    ) -> App:
        """Create an app with its tables, or return the existing one."""
        validation.check_slug(slug)
        validation.check_text(title, "title")
        if app_id is not None:
            validation.check_integer(app_id, "app_id")
        app = self.by_slug(txn, slug)
        if app is not None:
            if app_id not in {None, app.app_id}:
                raise AlreadyExists(f"the app {slug!r} has the number {app.app_id}, not {app_id}")
            return app
        number = int(txn.value(SQL.next_app)) if app_id is None else app_id
        if txn.one(SQL.app_by_id, (number,)) is not None:
            raise AlreadyExists(f"the number {number} belongs to another app")
        txn.execute(SQL.add_app, (number, slug, title, 1, now))
        txn.execute(SQL.add_usage, (number,))
        self.ensure_tables(txn, number)
        return self.app(txn, number)

    def ensure_tables(self, txn: Transaction, app_id: int) -> None:
        """Make the tables and indexes of the app that are not there."""
        self.must_exist(txn, app_id)
        txn.execute(app_statements(app_id).tables)
        txn.after_commit(lambda: self._known.add(app_id))

    def upgrade(self, txn: Transaction, app_id: int, steps: Sequence[Migration], now: str) -> App:
        """Upgrade an app to the version of the last of `steps`; applied ones are compared,
        the others run. `{app}` in their text stands for the beginning of the app's table names.
        """
        app = self.app(txn, app_id)
        done = {int(row[0]): (row[1], row[2]) for row in txn.all(SQL.app_steps, (app_id,))}
        pending = []
        for expected, step in enumerate(steps, start=2):
            if step.version != expected:
                raise InvalidInput(
                    f"app {app_id}: expected step {expected}, found {step.version} ({step.name})",
                    hint="An app begins with version 1; its steps are 2, 3, and so on.",
                )
            if step.version not in done:
                pending.append(step)
            elif done[step.version][1] != step.checksum:
                raise FormatError(
                    f"step {step.version} ({step.name}) of app {app_id} is not the one that ran"
                )
        newest = len(steps) + 1
        if app.version > newest:
            raise FutureFormat(
                f"app {app_id} ({app.slug}) is at version {app.version}; "
                f"these steps lead to {newest}"
            )
        upgrades.run(txn, app_id, pending, now)
        if pending:
            self.check_app(txn, f"app {app_id}", app_id)
        txn.execute(SQL.set_app_version, (app_id, newest))
        return self.app(txn, app_id)

    # Types

    def register_type(self, txn: Transaction, app_id: int, kind: Kind, type_key: str) -> int:
        """Return the id of a type, registering it on first use; ids never change."""
        self.must_exist(txn, app_id)
        kind, key = validation.check_kind(kind), validation.check_text(type_key, "type_key")
        sql = app_statements(app_id)
        type_id = txn.value(sql.type_by_key, (kind, key))
        if type_id is None:
            txn.execute(sql.add_type, (kind, key))
            type_id = txn.value(sql.type_by_key, (kind, key))
        return int(type_id)

    def find_type(
        self, snapshot: ReadTransaction, app_id: int, kind: Kind, type_key: str
    ) -> int | None:
        """Return the number of a type, or None if it is unknown."""
        type_id = snapshot.value(app_statements(app_id).type_by_key, (kind, type_key))
        return None if type_id is None else int(type_id)

    def type_id(self, txn: Transaction, app_id: int, kind: Kind, type_key: str) -> int:
        """Return the number of a type; a new type gets one."""
        known = self._keys.get((app_id, kind, type_key))
        if known is not None:
            return known
        self.must_exist(txn, app_id)
        key = validation.check_text(type_key, "type_key")
        type_id = txn.value(app_statements(app_id).type_by_key, (validation.check_kind(kind), key))
        if type_id is None:
            raise NotFound(
                f"app {app_id} has no type {type_key!r} of {kind}",
                hint="Register it first: `fourfold app type`.",
            )
        number = int(type_id)
        txn.after_commit(lambda: self._keys.__setitem__((app_id, kind, key), number))
        return number

    def all_types(self, snapshot: ReadTransaction, app_id: int) -> tuple[Type, ...]:
        """Return the types of an app."""
        self.must_exist(snapshot, app_id)
        return tuple(Type._make(row) for row in snapshot.all(app_statements(app_id).types))

    def known_types(self, app_id: int, kind: Kind) -> frozenset[int]:
        """Return the ids of types that are known to be committed; there may be more."""
        return self._types.get((app_id, kind), _NO_TYPES)

    def known_type(self, txn: Transaction, app_id: int, kind: Kind, type_id: int) -> frozenset[int]:
        """Return all types in this transaction; raise NotFound if `type_id` is not among them."""
        type_ids = frozenset(
            int(row[0]) for row in txn.all(app_statements(app_id).type_ids, (kind,))
        )
        if type_id not in type_ids:
            raise NotFound(
                f"app {app_id} has no type {type_id} of {kind}",
                hint="Register it first: `fourfold app type`.",
            )
        txn.after_commit(lambda: self._remember(app_id, kind, type_ids))
        return type_ids

    def _remember(self, app_id: int, kind: Kind, types: frozenset[int]) -> None:
        with self._lock:
            self._types[app_id, kind] = self._types.get((app_id, kind), _NO_TYPES) | types

    # The app's own log

    def write_log(
        self, txn: Transaction, app_id: int, entry: tuple[str, str, str], now: str
    ) -> int:
        """Add an entry: its level, what happened, and the circumstances as JSON."""
        self.must_exist(txn, app_id)
        level, event, context = entry
        sql = app_statements(app_id)
        params = (
            validation.check_text(level, "level"),
            validation.check_text(event, "event_type"),
            validation.check_json_text(context, "context_json"),
            now,
        )
        txn.execute(sql.add_log, params)
        return int(txn.value(sql.last_log))

    def read_log(
        self, snapshot: ReadTransaction, app_id: int, after: int, limit: int
    ) -> tuple[AppLogEntry, ...]:
        """Return the next transactions of an app after a seq."""
        self.must_exist(snapshot, app_id)
        rows = snapshot.all(app_statements(app_id).logs, (after, limit))
        return tuple(AppLogEntry._make(row) for row in rows)

    # Opening

    def check_globals(self, snapshot: ReadTransaction, subject: str) -> None:
        """Refuse a database in which a table that all apps share is missing, or lacks a column."""
        for table, columns in _GLOBALS.items():
            _check_columns(snapshot, subject, table, columns)

    def check(self, snapshot: ReadTransaction, subject: str) -> None:
        """Refuse a database in which an app lacks a table or a column, or holds a row from after
        the counter.
        """
        texts = {str(name): str(sql) for name, sql in snapshot.all(SQL.tables)}
        checked: set[str] = set()
        for app in self.all(snapshot):
            for noun in NOUNS:
                table = table_of(app.app_id, noun)
                # Most apps have the same tables, and only one of each needs to be looked at.
                alike = texts.get(table, table).replace(table, noun)
                if alike not in checked:
                    _check_columns(snapshot, subject, table, _COLUMNS[noun])
                    checked.add(alike)
            self._known.add(app.app_id)
        if SYSTEM_APP not in self._known:
            raise CorruptData(f"{subject}: the system's app {SYSTEM_APP} is missing")
        last = int(snapshot.value(SQL.last_seq))
        for app_id, bit, greatest in snapshot.all(SQL.later_seqs, (last,)):
            [kind] = (name for name, known in BITS.items() if known == bit)
            raise SequenceCorrupt(
                f"{subject}: global_seq is at {last}, but {table_of(int(app_id), kind)} "
                f"goes up to {greatest}"
            )

    def check_app(self, snapshot: ReadTransaction, subject: str, app_id: int) -> None:
        """Raise unless the tables of an app have their columns, and no row has a later seq."""
        last = int(snapshot.value(SQL.last_seq))
        for noun in NOUNS:
            _check_columns(snapshot, subject, table_of(app_id, noun), _COLUMNS[noun])
        for kind in KINDS:
            greatest = int(snapshot.value(statements_of(app_id, kind).greatest_seq))
            if greatest > last:
                raise SequenceCorrupt(
                    f"{subject}: global_seq is at {last}, but {table_of(app_id, kind)} "
                    f"goes up to {greatest}"
                )


def _check_columns(
    snapshot: ReadTransaction, subject: str, table: str, expected: frozenset[str]
) -> None:
    columns = {str(row[0]) for row in snapshot.all(SQL.columns, (table,))}
    if not columns:
        raise CorruptData(f"{subject}: the table {table} is missing")
    if missing := sorted(expected - columns):
        raise CorruptData(f"{subject}: {table} has no column {', '.join(missing)}")


_COLUMNS: dict[str, frozenset[str]] = {
    **{kind: frozenset(row._fields) for kind, row in ROWS.items()},
    "type": frozenset(Type._fields),
    "log": frozenset(AppLogEntry._fields),
}
_INTERVAL = frozenset({"app_id", "src", "type_id", "dst_kind", "dst", "object_id", "from_seq"})
_VALUE = frozenset(
    {"app_id", "kind", "target_kind", "target", "type_id", "object_id", "value", "from_seq"}
)
_GLOBALS: dict[str, frozenset[str]] = {
    "identities": frozenset(Identity._fields),
    "apps": frozenset(App._fields),
    "sync_state": frozenset(SyncProgress._fields),
    "sync_sent": frozenset(SyncProgress._fields),
    "domain_seq": frozenset({"domain", "last_seq"}),
    "settings": frozenset({"key", "value"}),
    "peers": frozenset(Peer._fields),
    "envelopes": frozenset(Envelope._fields),
    "app_usage": frozenset(Usage._fields),
    "app_migrations": frozenset({"app_id", "version", "name", "checksum", "applied_at"}),
    "sync_domains": frozenset({"domain", "mask"}),
    "edge_now": _INTERVAL,
    "edge_past": _INTERVAL | {"to_seq"},
    "value_now": _VALUE,
    "value_past": _VALUE | {"to_seq"},
    "seq_row": frozenset({"app_id", "kind", "global_seq", "first_id"}),
    "row_version": frozenset({"app_id", "kind", "object_id", "leads", "id"}),
    "edge_unseen": frozenset({"app_id", "dst_kind", "dst", "object_id"}),
    "type_rule": frozenset({"app_id", "type_id", "rule"}),
    "derived_cache": frozenset({"owner", "cache_key", "value", "source_global_seq", "updated_at"}),
}
