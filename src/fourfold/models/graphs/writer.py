"""Writes: the state of a transaction, and how rows get their seqs and ids.

All rows of a transaction share one `global_seq`, which is claimed with the first of them, in the
same transaction: a rollback gives it back, so numbers have no gaps. When the transaction ends it
writes down what happened under its numbers (`envelopes`), and counts it against the limits of each
app.

Many rows of one shape at once, checked column by column.

What is asked of a column is what rows.py asks of each value, but by a few calls into C for all of
them. A batch that is not uniform, or in which something is wrong, is left to the row-by-row way,
which also knows how to name the row's fault; so this module never decides that input is bad.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache, reduce
from itertools import chain, product
from math import isfinite
from operator import itemgetter, or_
from typing import Any, NamedTuple, cast

import msgspec

from fourfold.errors import InvalidInput, LimitExceeded, NotFound, PreconditionFailed, Refused
from fourfold.kernel import Transaction
from fourfold.models.graphs import intervals, row_index, validation
from fourfold.models.graphs.apps import Apps
from fourfold.models.graphs.database import GLOBAL_SEQ
from fourfold.models.graphs.records import BITS, ROWS, SYSTEM_APP, Attr, Edge, Kind, Row, Usage
from fourfold.models.graphs.rules import CheckedRows, TypeRules, put_rule, read_rules
from fourfold.models.graphs.statements import (
    REFERENCES,
    SQL,
    insert_statement,
    statements_of,
    table_of,
)
from fourfold.models.graphs.sync import identities
from fourfold.models.graphs.validation import SHAPES

COLUMNS_MIN = 12
"""So many rows are worth it; fewer are faster one by one."""
_ID_MAX = 1 << 62

Column = Sequence[Any]


class ColumnBatch(NamedTuple):
    """Rows of one kind as columns, without what their transaction gives them."""

    rows: int
    fixed: dict[str, Any]
    """Columns that are the same in all rows."""
    varying: dict[str, Column]
    types: frozenset[int]
    flags: int
    """The flags of all rows together."""
    size: int
    """Bytes of their values."""

    def column(self, name: str) -> Column:
        """Return the values of one column; a single one represents equal ones."""
        column = self.varying.get(name)
        return (self.fixed[name],) if column is None else column


class _Unlike(Exception):
    """The rows differ in more than their values, or one of them is wrong."""


def read(kind: Kind, rows: Sequence[Any], now: str) -> ColumnBatch | None:
    """Return the rows as columns; None if they must be checked one by one."""
    try:
        return _read(kind, _columns(kind, rows), len(rows), now)
    except (_Unlike, InvalidInput):
        return None


def _columns(kind: Kind, rows: Sequence[Any]) -> dict[str, Column]:
    """Return every field that some row sets. If rows set different ones, they are unlike."""
    if set(map(type, rows)) != {dict}:
        raise _Unlike
    names = tuple(rows[0])
    if not SHAPES[kind].fields.issuperset(names) or set(map(len, rows)) != {len(names)}:
        raise _Unlike
    try:
        columns = {name: list(map(itemgetter(name), rows)) for name in names}
    except KeyError:
        raise _Unlike from None
    return {name: column for name, column in columns.items() if not _is_empty(column)}


def _is_empty(column: Column) -> bool:
    return column[0] is None and set(map(type, column)) == {type(None)}


def _read(kind: Kind, columns: Mapping[str, Column], count: int, now: str) -> ColumnBatch:
    if any(len([name for name in group if name in columns]) > 1 for group in _ALTERNATIVES):
        raise _Unlike
    if any(name not in columns for name in _REQUIRED[kind]):
        raise _Unlike
    if (choice := _CHOICES.get(kind)) and not any(name in columns for name in choice):
        raise _Unlike
    fixed: dict[str, Any] = dict.fromkeys(_EMPTY[kind])
    fixed["sync_flags"] = 0
    varying: dict[str, Column] = {}
    size = 0
    for name, column in columns.items():
        checked, length = _CHECKS[name](column)
        size += length
        if len(checked) == 1:
            fixed[name] = checked[0]
        else:
            varying[name] = checked
    for name in _TIMES[kind]:
        if name not in columns:
            # The time of a change is that of the creation, unless it is given.
            fixed[name] = fixed.get("created_at", now)
            if name == "updated_at" and "created_at" in varying:
                varying[name] = varying["created_at"]
    fixed = {name: value for name, value in fixed.items() if name not in varying}
    flags = varying.get("sync_flags")
    return ColumnBatch(
        count,
        fixed,
        varying,
        frozenset(varying.get("type_id", (fixed.get("type_id"),))),
        fixed["sync_flags"] if flags is None else reduce(or_, set(flags)),
        size,
    )


# One check for each column. It gives the column back, as one value if all are the same, and how
# many bytes it holds.

Check = Callable[[Column], tuple[Column, int]]


def _integers(column: Column, least: int) -> tuple[Column, int]:
    # The types come first: True and 1 are the same in a set.
    if set(map(type, column)) != {int} or min(column) < least or max(column) >= _ID_MAX:
        raise _Unlike
    return (column[:1] if len(set(column)) == 1 else column), 0


def _ids(column: Column) -> tuple[Column, int]:
    return _integers(column, 1)


def _naturals(column: Column) -> tuple[Column, int]:
    return _integers(column, 0)


def _times(column: Column) -> tuple[Column, int]:
    if set(map(type, column)) != {str}:
        raise _Unlike
    several = set(column)
    for value in several:
        validation.check_timestamp(value, "time")
    return (column[:1] if len(several) == 1 else column), 0


def _texts(column: Column) -> tuple[Column, int]:
    if set(map(type, column)) != {str}:
        raise _Unlike
    whole = "".join(column)
    if whole.isascii():
        return column, len(whole)
    try:
        return column, len(whole.encode())
    except UnicodeEncodeError:
        raise _Unlike from None


def _numbers(column: Column) -> tuple[Column, int]:
    if not set(map(type, column)) <= {int, float}:
        raise _Unlike
    try:
        if not all(map(isfinite, column)):
            raise _Unlike
        return list(map(float, column)), 8 * len(column)
    except OverflowError:
        raise _Unlike from None


def _blobs(column: Column) -> tuple[Column, int]:
    if set(map(type, column)) != {bytes}:
        raise _Unlike
    return column, sum(map(len, column))


def _documents(column: Column) -> tuple[Column, int]:
    for value in column:
        validation.check_json_text(value, "value_json")
    return _texts(column)


_CHECKS: dict[str, Check] = {
    "type_id": _ids,
    "owner_identity": _naturals,
    "sync_flags": _naturals,
    "created_at": _times,
    "updated_at": _times,
    "parent_id": _ids,
    "src_parent_id": _ids,
    "dst_parent_id": _ids,
    "dst_attr_id": _ids,
    "target_parent_id": _ids,
    "target_attr_id": _ids,
    "value_text": _texts,
    "value_number": _numbers,
    "value_blob": _blobs,
    "value_json": _documents,
}
_VALUES = ("value_text", "value_number", "value_blob", "value_json")
_ALTERNATIVES = (
    _VALUES,
    ("dst_parent_id", "dst_attr_id"),
    ("target_parent_id", "target_attr_id"),
)
_REQUIRED: dict[Kind, tuple[str, ...]] = {
    "parent": ("type_id", "owner_identity"),
    "attr": ("type_id", "owner_identity", "parent_id"),
    "edge": ("type_id", "owner_identity", "src_parent_id"),
    "rating": ("type_id", "owner_identity"),
}
_CHOICES: dict[Kind, tuple[str, str]] = {
    "edge": ("dst_parent_id", "dst_attr_id"),
    "rating": ("target_parent_id", "target_attr_id"),
}
_EMPTY: dict[Kind, tuple[str, ...]] = {
    "parent": (),
    "attr": _VALUES,
    "edge": ("dst_parent_id", "dst_attr_id"),
    "rating": ("target_parent_id", "target_attr_id", "value_text", "value_number", "value_json"),
}
_TIMES: dict[Kind, tuple[str, ...]] = {
    "parent": ("created_at", "updated_at"),
    "attr": ("created_at",),
    "edge": ("created_at",),
    "rating": ("created_at",),
}


_LAST_ID = (1 << 63) - 1
_SCRATCH = "graphs"
"""Key of the shared state of a transaction: its last seq and the next ids."""
_REMEMBERED_MAX = 256
"""Objects of a table that a transaction created, cached so that they need no query."""
_ONE_STATEMENT_MAX = 4
"""So few rows have a statement of their own length; more are cut into a few usual lengths."""
_NONE: dict[int, int] = {}
_PLACES: dict[Kind, tuple[tuple[int, str, Kind], ...]] = {
    kind: tuple((SHAPES[kind].columns.index(name), name, target) for name, target in pointers)
    for kind, pointers in REFERENCES.items()
}
"""`REFERENCES` with the positions of the columns."""


class _WrittenRows(msgspec.Struct):
    """Rows that one transaction wrote under one seq in one app."""

    kinds: int = 0
    flags: int = 0
    rows: int = 0
    bytes: int = 0


class _Progress(msgspec.Struct):
    """State that a step of a transaction changes, and a rollback restores."""

    seq: int | None = None
    position: int = 0
    traces: dict[int, str] = {}
    """The trace ids of envelopes that joined the transaction, by the number that they are under."""
    written: dict[tuple[int, int], _WrittenRows] = {}
    next_ids: dict[tuple[int, Kind], int] = {}
    parents: list[tuple[int, range]] = []
    """New parents of apps in which they must have some attributes."""
    fresh: dict[tuple[int, Kind], dict[int, int]] = {}
    """The flags of objects that this transaction made, as far as they are few."""

    def copy(self) -> _Progress:
        written = {
            key: _WrittenRows(batch.kinds, batch.flags, batch.rows, batch.bytes)
            for key, batch in self.written.items()
        }
        fresh = {key: dict(made) for key, made in self.fresh.items()}
        return _Progress(
            seq=self.seq,
            position=self.position,
            traces=dict(self.traces),
            written=written,
            next_ids=dict(self.next_ids),
            parents=list(self.parents),
            fresh=fresh,
        )


class GraphTransaction:
    """The handle of a transaction: pass it to the calls that belong to it."""

    def __init__(self, txn: Transaction, apps: Apps, node: str, trace_id: str | None) -> None:
        self.txn = txn
        self.node = node
        self.now = _now()
        self._apps = apps
        self._trace_id = trace_id
        self._progress = _Progress()
        self._rules: dict[int, TypeRules | None] = {}

    @property
    def seq(self) -> int:
        """The number of what is written now."""
        return self._progress.seq or self.next_seq()

    def next_seq(self) -> int:
        """Claim the next number; rows written from now on carry it."""
        progress, txn = self._progress, self.txn
        shared = None if progress.seq is not None else txn.scratch.get(_SCRATCH)
        # Who wrote just before in the same transaction has left word where it ended.
        last = progress.seq if shared is None else shared[0]
        seq = None
        if last is not None:
            # It holds if the counter still says so, and then there is nothing to read.
            txn.execute(SQL.raise_seq, (last,))
            if txn.changes:
                seq = int(last) + 1
                if shared is not None:
                    progress.next_ids = dict(shared[1])
        if seq is None:
            seq = txn.claim(GLOBAL_SEQ)
        progress.seq, progress.position = seq, 0
        return seq

    def start_seq(self) -> int:
        """Claim the next number, unless nothing was written under the one that is claimed."""
        progress = self._progress
        return progress.seq if progress.seq and not progress.position else self.next_seq()

    def trace(self, trace_id: str) -> None:
        """Note the trace of the current number, if neither it nor the transaction has one."""
        self._progress.traces.setdefault(self.seq, trace_id)

    def mark(self) -> _Progress:
        """Copy of what the transaction has written so far."""
        return self._progress.copy()

    def undo(self, mark: _Progress) -> None:
        """Forget what a step did that was rolled back."""
        self._progress = mark
        self._rules.clear()

    def insert(self, app_id: int, kind: Kind, items: Iterable[Mapping[str, Any]]) -> list[int]:
        """Insert new objects, and return their ids in order.

        The targets of their references must exist, and be shared at least as widely.
        """
        rows = items if isinstance(items, list) else list(items)
        self._apps.must_exist(self.txn, app_id)
        if not rows:
            return []
        if app_id == SYSTEM_APP:
            types = {row.get("type_id") for row in rows if isinstance(row, Mapping)}
            self._refuse_identities(kind, identities.TYPES.get(kind, ()), types)
        few = len(rows) < COLUMNS_MIN
        batch = None if few else read(kind, rows, self.now)
        if batch is None:
            return self._insert_rows(app_id, kind, rows)
        return self._insert_batch(app_id, kind, batch)

    def _refuse_identities(self, kind: Kind, type_keys: Iterable[str], types: set[Any]) -> None:
        """Refuse rows of identities, which are written together with their cache."""
        for type_key in type_keys:
            if self._apps.find_type(self.txn, SYSTEM_APP, kind, type_key) in types - {None}:
                raise Refused(
                    f"{kind} rows of type {type_key!r} in app {SYSTEM_APP} belong to identities",
                    hint="Write identities with `add_identity`; their keys do not change.",
                )

    def _insert_rows(
        self, app_id: int, kind: Kind, items: Sequence[Mapping[str, Any]]
    ) -> list[int]:
        """Row by row: the way for few, and for those that have little in common."""
        shape, seq, now = SHAPES[kind], self.seq, self.now
        known, at_type, at_flags = shape.fields, shape.at_type, shape.at_flags
        types = self._apps.known_types(app_id, kind)
        next_id = first = self.next_id(app_id, kind)
        position = self._progress.position
        rows, flags, size = [], 0, 0
        fresh: dict[int, int] = {}
        for row in items:
            if type(row) is not dict or not known.issuperset(row):
                validation.check_fields(row, kind, known)
            values, length = shape.read(row, seq, now)
            new = (next_id, *values, next_id, 1, "", seq, position, 1)
            if new[at_type] not in types:
                types = self._apps.known_type(self.txn, app_id, kind, new[at_type])
            rows.append(new)
            fresh[next_id] = bits = new[at_flags]
            flags |= bits
            size += length
            next_id += 1
            position += 1
        self._prove_references(app_id, kind, rows)
        self._add(app_id, kind, rows, flags, size)
        self._remember(app_id, kind, fresh)
        return list(range(first, next_id))

    def _remember(self, app_id: int, kind: Kind, fresh: dict[int, int]) -> None:
        known = self._progress.fresh.get((app_id, kind))
        if known is None or len(known) + len(fresh) > _REMEMBERED_MAX:
            self._progress.fresh[app_id, kind] = fresh if len(fresh) <= _REMEMBERED_MAX else {}
        else:
            known.update(fresh)

    def _insert_batch(self, app_id: int, kind: Kind, batch: ColumnBatch) -> list[int]:
        """Insert many rows of one shape; what they have in common is passed to SQLite once."""
        seq, types = self.seq, self._apps.known_types(app_id, kind)
        for type_id in batch.types - types:
            self._apps.known_type(self.txn, app_id, kind, type_id)
        self._prove_pointers(app_id, kind, batch)
        first = self.next_id(app_id, kind)
        common = {"global_seq": seq, "version": 1, "origin": "", "origin_seq": seq, "leads": 1}
        self.txn.insert_alike(
            table_of(app_id, kind),
            batch.rows,
            fixed={**batch.fixed, **common},
            counted={("id", "object_id"): first, ("position",): self._progress.position},
            varying=batch.varying,
        )
        ids = range(first, first + batch.rows)
        self._count(app_id, kind, ids, batch.flags, batch.size)
        return list(ids)

    def update(
        self,
        app_id: int,
        kind: Kind,
        object_id: int,
        changes: Mapping[str, Any],
        *,
        expected: int | None = None,
    ) -> int:
        """Add a version of an object with `changes`, if its newest row is the expected one.

        The owner, the type and the parent of an object cannot change.
        """
        old = self.newest(app_id, kind, object_id)
        if expected is not None and old.id != validation.check_integer(expected, "expected"):
            raise PreconditionFailed(
                f"the newest row of {kind} {object_id} in app {app_id} is {old.id}, not {expected}",
                details={"id": old.id, "version": old.version},
            )
        shape, seq = SHAPES[kind], self.seq
        if app_id == SYSTEM_APP and kind == "attr":
            self._refuse_identities(kind, (identities.PUBKEY,), {old.type_id})
        validation.check_fields(changes, kind, shape.fields)
        for name in shape.fixed:
            if name in changes and changes[name] != getattr(old, name):
                raise Refused(f"{name} of {kind} {object_id} in app {app_id} cannot change")
        values, size = shape.read(_merged(old, changes, shape.fields), seq, self.now)
        row_id = self.next_id(app_id, kind)
        row = (row_id, *values, object_id, old.version + 1, "", seq, self._progress.position, 1)
        self._prove_references(app_id, kind, [row])
        self._prove_shared(app_id, kind, object_id, row[shape.at_flags], kind)
        self._add_later(app_id, kind, row, row[shape.at_flags], size)
        if app_id == SYSTEM_APP and kind == "attr":
            self._refresh_label(Attr._make(row))
        return row_id

    def _refresh_label(self, row: Attr) -> None:
        """Write the new label of an identity to the cache."""
        label = self._apps.find_type(self.txn, SYSTEM_APP, "attr", identities.LABEL)
        if row.type_id == label:
            self.txn.execute(SQL.set_label, (row.parent_id, row.value_text))

    def newest(self, app_id: int, kind: Kind, object_id: int) -> Row:
        """Return the newest version of an object in this transaction."""
        validation.check_integer(object_id, f"{kind}.object_id", least=1)
        self._apps.must_exist(self.txn, app_id)
        sql = statements_of(app_id, kind).newest
        row = self.txn.one(sql, (object_id, _LAST_ID))
        if row is None:
            raise NotFound(f"app {app_id} has no {kind} {object_id}")
        return ROWS[kind]._make(row)

    def set_flags(self, app_id: int, kind: Kind, ids: str, flags: int) -> int:
        """Set the flags of rows, and return the number of rows. `ids` is a JSON list."""
        self._apps.must_exist(self.txn, app_id)
        sql = statements_of(app_id, kind)
        self.txn.execute(sql.set_flags, (flags, ids))
        changed = self.txn.changes
        if app_id != SYSTEM_APP:
            self.txn.execute(sql.queue_shared, (ids,))
        self._merge_flags(app_id, kind, ids, flags)
        return changed

    def add_flags(self, app_id: int, kind: Kind, ids: str, flags: int) -> None:
        """Add flags to rows that a peer shares in a domain. `ids` is a JSON list."""
        self.txn.execute(statements_of(app_id, kind).add_flags, (flags, ids))
        self._merge_flags(app_id, kind, ids, flags)

    def _merge_flags(self, app_id: int, kind: Kind, ids: str, flags: int) -> None:
        """Add the flags of rows to those of their envelopes."""
        sql = statements_of(app_id, kind)
        self.txn.execute(sql.flags_into_envelopes, (flags, ids))
        # The envelopes of this transaction are written when it ends.
        written = self._progress.written
        if any(written_app == app_id for _, written_app in written):
            for (seq,) in self.txn.all(sql.seqs_of_rows, (ids,)):
                if (seq, app_id) in written:
                    written[seq, app_id].flags |= flags
        self._progress.fresh.pop((app_id, kind), None)

    @property
    def position(self) -> int:
        """The position of the next row under the current seq."""
        return self._progress.position

    def insert_synced(
        self, app_id: int, kind: Kind, row: tuple[Any, ...], flags: int, size: int
    ) -> None:
        """Insert a complete row of another node, which the caller has translated and checked."""
        if row[0] == row[SHAPES[kind].columns.index("object_id")]:
            self._add(app_id, kind, [row], flags, size, is_own=False)
        else:
            self._add_later(app_id, kind, row, flags, size, is_own=False)

    def type_id(self, app_id: int, kind: Kind, type_key: str) -> int:
        """Return the id of a type, registering it if it is new."""
        return self._apps.register_type(self.txn, app_id, kind, type_key)

    def check_app(self, app_id: int) -> None:
        """Raise NotFound for an unknown app."""
        self._apps.must_exist(self.txn, app_id)

    def identity(self, pubkey: str, label: str | None = None) -> int:
        """Return the number of the identity of a public key.

        A new one is created in the graph of the system app and in the cache.
        """
        known_number = self.txn.value(SQL.identity_number, (pubkey,))
        if known_number is not None:
            return int(known_number)
        number = self.next_id(SYSTEM_APP, "parent")
        own = {"owner_identity": number}
        self._insert_rows(SYSTEM_APP, "parent", [self._of_type("parent", identities.IDENTITY, own)])
        values = {identities.PUBKEY: pubkey, identities.LABEL: label}
        for key, value in values.items():
            if value is not None:
                row = {"parent_id": number, "value_text": value, **own}
                self._insert_rows(SYSTEM_APP, "attr", [self._of_type("attr", key, row)])
        self.txn.execute(SQL.put_identity, (number, pubkey, label, self.now))
        return number

    def _of_type(self, kind: Kind, type_key: str, row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "type_id": self.type_id(SYSTEM_APP, kind, type_key)}

    def finish(self) -> None:
        """Record what was written under each seq, and check the limits.

        Runs last before the commit.
        """
        progress, txn = self._progress, self.txn
        for app_id, ids in progress.parents:
            if (rules := self.rules(app_id)) is not None:
                rules.check_required(txn, ids.start, ids.stop - 1)
        for (seq, app_id), done in progress.written.items():
            trace_id = self._trace_id or progress.traces.get(seq)
            params = (seq, app_id, done.kinds, done.flags, self.now, trace_id)
            txn.execute(SQL.add_envelope, params)
            txn.execute(SQL.use, (app_id, done.rows, done.bytes))
            if txn.changes != 1:
                self._refuse_use(app_id, done)
        if progress.seq is not None:
            txn.scratch[_SCRATCH] = (progress.seq, progress.next_ids)

    def _refuse_use(self, app_id: int, done: _WrittenRows) -> None:
        row = self.txn.one(SQL.usage, (app_id,))
        if row is None:
            raise NotFound(f"app {app_id} has no row in app_usage")
        usage = Usage._make(row)
        for held, most, what in (
            (usage.rows + done.rows, usage.rows_max, "rows"),
            (usage.bytes + done.bytes, usage.bytes_max, "bytes"),
        ):
            if most is not None and held > most:
                raise LimitExceeded(
                    f"app {usage.app_id} would hold {held} {what}, and may hold {most}",
                    hint="Raise the limit of the app with `fourfold app limits`.",
                )

    def _add(
        self,
        app_id: int,
        kind: Kind,
        rows: list[Any],
        flags: int,
        size: int,
        *,
        is_own: bool = True,
    ) -> None:
        if not rows:
            return
        if len(rows) <= _ONE_STATEMENT_MAX:
            params = rows[0] if len(rows) == 1 else tuple(chain.from_iterable(rows))
            self.txn.execute(insert_statement(app_id, kind, len(rows)), params)
        else:
            self.txn.insert_many(table_of(app_id, kind), SHAPES[kind].columns, rows)
        ids = range(rows[0][0], rows[-1][0] + 1)
        self._count(app_id, kind, ids, flags, size, is_own=is_own)

    def _add_later(
        self,
        app_id: int,
        kind: Kind,
        row: tuple[Any, ...],
        flags: int,
        size: int,
        *,
        is_own: bool = True,
    ) -> None:
        """Add a version of an older object."""
        version = ROWS[kind]._make(row)
        place = version.object_id, version.leads, version.id
        end = None
        if isinstance(version, Edge):
            dst = version.dst_parent_id if version.dst_attr_id is None else version.dst_attr_id
            assert dst is not None
            end = int(version.dst_attr_id is not None), dst, version.global_seq
        row_index.add_version(self.txn, app_id, kind, place, end)
        self._add(app_id, kind, [row], flags, size, is_own=is_own)

    def _count(
        self, app_id: int, kind: Kind, ids: range, flags: int, size: int, *, is_own: bool = True
    ) -> None:
        """Count rows that were just written, and derive what queries read from them.

        Every row comes through here, whether it was written on this node or on another.
        """
        intervals.add(self.txn, app_id, kind, ids)
        progress, rows = self._progress, len(ids)
        progress.position += rows
        progress.next_ids[app_id, kind] = ids.stop
        key = (progress.seq or self.next_seq(), app_id)
        done = progress.written.get(key)
        if done is None:
            done = progress.written[key] = _WrittenRows()
        if not done.kinds & BITS[kind]:
            row_index.add_seq(self.txn, app_id, kind, key[0], ids.start)
        done.kinds |= BITS[kind]
        done.flags |= flags
        done.rows += rows
        done.bytes += size
        if is_own and (rules := self.rules(app_id)) is not None:
            rules.check(self.txn, kind, ids.start, ids.stop - 1)
            if kind == "parent" and rules.has_required:
                progress.parents.append((app_id, ids))

    def rules(self, app_id: int) -> TypeRules | None:
        """Return the rules of the types of an app, or None if it has none."""
        if app_id not in self._rules:
            self._rules[app_id] = read_rules(self.txn, self._apps, app_id)
        return self._rules[app_id]

    def set_rule(
        self,
        app_id: int,
        of: tuple[Kind, str],
        rule: Mapping[str, Any] | None,
        checked: CheckedRows,
    ) -> None:
        """Set the rule of a type, or remove it with None; rows after the `checked` meet it."""
        put_rule(self.txn, self._apps, app_id, of, rule, checked=checked)
        self._rules.pop(app_id, None)

    def next_id(self, app_id: int, kind: Kind) -> int:
        """Return the id of the next object of a kind."""
        known = self._progress.next_ids.get((app_id, kind))
        if known is not None:
            return known
        self._apps.must_exist(self.txn, app_id)
        return int(self.txn.value(statements_of(app_id, kind).next_id))

    def _prove_references(self, app_id: int, kind: Kind, rows: list[Any]) -> None:
        at_flags = SHAPES[kind].at_flags
        for at, name, target in _PLACES[kind]:
            fresh = self._progress.fresh.get((app_id, target), _NONE)
            for row in rows:
                pointed, flags = row[at], row[at_flags]
                # What this transaction made itself it need not ask for.
                if pointed is None or (pointed in fresh and not flags & ~fresh[pointed]):
                    continue
                self._prove_shared(app_id, target, pointed, flags, f"{kind}.{name}")

    def _prove_pointers(self, app_id: int, kind: Kind, batch: ColumnBatch) -> None:
        """Check the pointers of many rows, with one query for each column of pointers."""
        flags = batch.column("sync_flags")
        for name, target in REFERENCES[kind]:
            column = batch.column(name)
            if column[0] is None:
                continue
            targets = json.dumps(sorted(set(column)))
            sql = statements_of(app_id, target).flags_of_objects
            shared: dict[int, int | None] = dict(cast("Any", self.txn.all(sql, (targets,))))
            pairs = set(zip(column, flags, strict=True)) if len(column) == len(flags) else None
            for pointed, bits in pairs or product(set(column), set(flags)):
                held = shared[pointed]
                if held is None or bits & ~held:
                    self._prove_shared(app_id, target, pointed, bits, f"{kind}.{name}")

    def _prove_shared(self, app_id: int, kind: Kind, object_id: int, flags: int, what: str) -> None:
        """Raise unless an object exists and is shared at least as widely as its referrer."""
        sql = statements_of(app_id, kind).flags_of_object
        shared = self.txn.value(sql, (object_id,))
        if shared is None:
            raise NotFound(f"{what}: app {app_id} has no {kind} {object_id}")
        if flags & ~int(shared):
            raise Refused(
                f"{what}: {kind} {object_id} of app {app_id} has the flags {shared}; "
                f"what belongs to it cannot have {flags}",
                hint="A node that imports a row must be able to import what it points at.",
            )


def _now() -> str:
    microseconds = time.time_ns() // 1000
    return f"{_second(microseconds // 1_000_000)}.{microseconds % 1_000_000:06d}+00:00"


@lru_cache(maxsize=4)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _merged(old: Row, changes: Mapping[str, Any], fields: frozenset[str]) -> dict[str, Any]:
    """Return the old version with the changes.

    A new value or target replaces the old one, whichever column it was in; the times are those of
    the new version.
    """
    if not changes:
        raise InvalidInput("an update must change something")
    kept = {name: getattr(old, name) for name in fields if name != "updated_at"}
    if "created_at" not in old._fields[:6]:
        kept.pop("created_at", None)
    for group in (("value_text", "value_number", "value_blob", "value_json"), _DESTINATIONS):
        if any(name in changes for name in group):
            for name in group:
                kept.pop(name, None)
    return {name: value for name, value in {**kept, **changes}.items() if value is not None}


_DESTINATIONS = ("dst_parent_id", "dst_attr_id")
