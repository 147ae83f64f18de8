"""Writing: what one transaction knows, and how rows get their numbers.

All rows of a transaction share one `global_seq`, which is claimed with the first of them, in the
same transaction: a rollback gives it back, so numbers have no gaps. When the transaction ends it
writes down what happened under its numbers (`envelopes`), and counts it against the limits of each
app.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from fourfold.errors import InvalidInput, LimitExceeded, NotFound, Refused
from fourfold.kernel import Transaction
from fourfold.models.graphs import checks
from fourfold.models.graphs.apps import Apps
from fourfold.models.graphs.records import BITS, ROWS, Kind, Row, Usage
from fourfold.models.graphs.rows import SHAPES
from fourfold.models.graphs.sequence import GLOBAL_SEQ
from fourfold.models.graphs.statements import SQL, statements_of, table_of

_LAST_ID = (1 << 63) - 1
REFERENCES: dict[Kind, tuple[tuple[str, Kind], ...]] = {
    "parent": (),
    "attr": (("parent_id", "parent"),),
    "edge": (("src_parent_id", "parent"), ("dst_parent_id", "parent"), ("dst_attr_id", "attr")),
    "rating": (("target_parent_id", "parent"), ("target_attr_id", "attr")),
}


@dataclass(slots=True)
class _Written:
    """What one transaction wrote under one number in one app."""

    kinds: int = 0
    flags: int = 0
    rows: int = 0
    bytes: int = 0


@dataclass(slots=True)
class _Progress:
    """What a step of a transaction changes, and an undone step must give back."""

    seq: int | None = None
    position: int = 0
    written: dict[tuple[int, int], _Written] = field(default_factory=dict)
    next_ids: dict[tuple[int, Kind], int] = field(default_factory=dict)

    def copy(self) -> _Progress:
        written = {
            key: _Written(each.kinds, each.flags, each.rows, each.bytes)
            for key, each in self.written.items()
        }
        return _Progress(self.seq, self.position, written, dict(self.next_ids))


class GraphTransaction:
    """The handle of a transaction: hand it to the calls that belong to it, and to no others."""

    def __init__(self, txn: Transaction, apps: Apps, node: str, trace_id: str | None) -> None:
        self.txn = txn
        self.node = node
        self.now = datetime.now(UTC).isoformat()
        self._apps = apps
        self._trace_id = trace_id
        self._progress = _Progress()

    @property
    def seq(self) -> int:
        """The number of what is written now."""
        return self._progress.seq or self.next_seq()

    def next_seq(self) -> int:
        """Claim the next number; rows written from now on carry it."""
        self._progress.seq = seq = self.txn.claim(GLOBAL_SEQ)
        self._progress.position = 0
        return seq

    def mark(self) -> _Progress:
        return self._progress.copy()

    def undo(self, mark: _Progress) -> None:
        """Forget what a step did that was rolled back."""
        self._progress = mark

    def insert(
        self, app_id: int, kind: Kind, given: Iterable[Mapping[str, Any]], *, checked: bool
    ) -> list[int]:
        """Add new objects; their ids, in order. `checked` proves that what they point at exists;
        for rows that are shared this is always proved, or no other node could take them in.
        """
        shape, seq = SHAPES[kind], self.seq
        types = self._apps.types(self.txn, app_id, kind)
        at_type = shape.columns.index("type_id") - 1
        next_id = first = self.next_id(app_id, kind)
        position = self._progress.position
        rows, flags, size = [], 0, 0
        at_flags = shape.columns.index("sync_flags") - 1
        for row in given:
            values, length = shape.read(checks.fields(row, kind, shape.fields), seq, self.now)
            if values[at_type] not in types:
                types = self._apps.known_type(self.txn, app_id, kind, values[at_type])
            rows.append((next_id, *values, next_id, 1, "", seq, position, 1))
            flags |= values[at_flags]
            size += length
            next_id += 1
            position += 1
        if checked or flags:
            self._prove_references(app_id, kind, rows)
        self._add(app_id, kind, rows, flags, size)
        return list(range(first, next_id))

    def update(self, app_id: int, kind: Kind, object_id: int, changes: Mapping[str, Any]) -> int:
        """Add a version of an object: what it was, with `changes`. Who owns it, what type it is
        of and what it belongs to cannot change.
        """
        shape, seq = SHAPES[kind], self.seq
        old = self.newest(app_id, kind, object_id)
        checks.fields(changes, kind, shape.fields)
        for name in shape.fixed:
            if name in changes and changes[name] != getattr(old, name):
                raise Refused(f"{name} of {kind} {object_id} in app {app_id} cannot change")
        values, size = shape.read(_merged(old, changes, shape.fields), seq, self.now)
        row_id = self.next_id(app_id, kind)
        row = (row_id, *values, object_id, old.version + 1, "", seq, self._progress.position, 1)
        self._prove_references(app_id, kind, [row])
        self._prove_shared(app_id, kind, object_id, row[shape.columns.index("sync_flags")], kind)
        self._add(app_id, kind, [row], values[shape.columns.index("sync_flags") - 1], size)
        return row_id

    def newest(self, app_id: int, kind: Kind, object_id: int) -> Row:
        """The newest version of an object, as this transaction sees it."""
        checks.integer(object_id, f"{kind}.object_id", least=1)
        self._apps.must_exist(self.txn, app_id)
        sql = statements_of(app_id, kind).newest
        found = self.txn.one(sql, (object_id, _LAST_ID))
        if found is None:
            raise NotFound(f"app {app_id} has no {kind} {object_id}")
        return ROWS[kind]._make(found)

    def take_in(self, app_id: int, kind: Kind, row: tuple[Any, ...], flags: int, size: int) -> None:
        """Add a row that another node wrote, whole; the caller has translated it."""
        self._add(app_id, kind, [row], flags, size)

    def type_id(self, app_id: int, kind: Kind, type_key: str) -> int:
        """The id of a type, which is registered when it is new."""
        return self._apps.register_type(self.txn, app_id, kind, type_key)

    def app_by_slug(self, slug: str) -> int | None:
        found = self._apps.by_slug(self.txn, slug)
        return None if found is None else found.app_id

    def identity(self, pubkey: str, label: str | None = None) -> int:
        """The identity of a public key, which is made when it is new."""
        found = self.txn.one(SQL.identity_by_key, (pubkey,))
        if found is None:
            self.txn.execute(SQL.add_identity, (pubkey, label, self.now))
            found = self.txn.one(SQL.identity_by_key, (pubkey,))
        assert found is not None
        return int(found[0])

    def finish(self) -> None:
        """Write down what happened under each number, and hold it against the limits. The last
        thing before the commit.
        """
        for (seq, app_id), done in self._progress.written.items():
            params = (seq, app_id, done.kinds, done.flags, self.now, self._trace_id)
            self.txn.execute(SQL.add_envelope, params)
            self.txn.execute(SQL.use, (app_id, done.rows, done.bytes))
            found = self.txn.one(SQL.usage, (app_id,))
            if found is None:
                raise NotFound(f"app {app_id} has no row in app_usage")
            _hold_to_limits(Usage._make(found))

    def _add(self, app_id: int, kind: Kind, rows: list[Any], flags: int, size: int) -> None:
        if not rows:
            return
        self.txn.insert_many(table_of(app_id, kind), SHAPES[kind].columns, rows)
        progress = self._progress
        progress.position += len(rows)
        progress.next_ids[app_id, kind] = rows[-1][0] + 1
        done = progress.written.setdefault((self.seq, app_id), _Written())
        done.kinds |= BITS[kind]
        done.flags |= flags
        done.rows += len(rows)
        done.bytes += size

    def next_id(self, app_id: int, kind: Kind) -> int:
        known = self._progress.next_ids.get((app_id, kind))
        if known is not None:
            return known
        self._apps.must_exist(self.txn, app_id)
        return int(self.txn.value(statements_of(app_id, kind).next_id))

    def _prove_references(self, app_id: int, kind: Kind, rows: list[Any]) -> None:
        columns = SHAPES[kind].columns
        at_flags = columns.index("sync_flags")
        for name, target in REFERENCES[kind]:
            at = columns.index(name)
            for pointed, flags in {(row[at], row[at_flags]) for row in rows if row[at] is not None}:
                self._prove_shared(app_id, target, pointed, flags, f"{kind}.{name}")

    def _prove_shared(self, app_id: int, kind: Kind, object_id: int, flags: int, what: str) -> None:
        """An object exists, and is shared at least as widely as what points at it."""
        sql = statements_of(app_id, kind).flags_of_object
        shared = self.txn.value(sql, (object_id,))
        if shared is None:
            raise NotFound(f"{what}: app {app_id} has no {kind} {object_id}")
        if flags & ~int(shared):
            raise Refused(
                f"{what}: {kind} {object_id} of app {app_id} has the flags {shared}; "
                f"what belongs to it cannot have {flags}",
                hint="A node that takes in a row must be able to take in what it points at.",
            )


def _merged(old: Row, changes: Mapping[str, Any], fields: frozenset[str]) -> dict[str, Any]:
    """The old version with the changes. A new value or a new destination replaces the old one,
    whichever column it was in; the times are those of the new version.
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


def _hold_to_limits(usage: Usage) -> None:
    for held, most, what in (
        (usage.rows, usage.rows_max, "rows"),
        (usage.bytes, usage.bytes_max, "bytes"),
    ):
        if most is not None and held > most:
            raise LimitExceeded(
                f"app {usage.app_id} would hold {held} {what}, and may hold {most}",
                hint="Raise the limit of the app with `fourfold app limits`.",
            )
