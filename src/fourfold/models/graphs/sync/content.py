"""Content ids of rows: the body of a row of this database, and the table that maps ids to rows.

A body is a pure function of the row and of what it refers to, so every node that has a row computes
the same id, also for rows that arrived before rows had content ids.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fourfold.errors import CorruptData
from fourfold.kernel import ReadTransaction, Transaction, load_queries
from fourfold.models.graphs.records import ROWS, Kind, Row
from fourfold.models.graphs.statements import REFERENCES, SQL, app_statements, statements_of
from fourfold.models.graphs.sync import keys
from fourfold.models.graphs.sync.envelope import RowBody, decode_row, digest, encode_row
from fourfold.models.graphs.sync.nonces import nonces_of

_SQL = load_queries("fourfold.models.graphs.sync")
_VALUES = ("value_text", "value_number", "value_blob", "value_json")
BELOW, ABOVE = "!", "~"
"""The origin of a row that was imported is its id in hex after one of these signs: it ranks below
or above the row that this node wrote as the same version, if there is one.
"""


class StoredRow(NamedTuple):
    """Location of a row with a content id; `local_id` is None while it is parked."""

    app_id: int
    kind: Kind
    local_id: int | None


class Referent(NamedTuple):
    """A row that another one refers to; `local_id` is None while it is parked."""

    body: RowBody
    local_id: int | None
    is_member: bool
    """True if it is in the domain."""


def is_imported(row: Row) -> bool:
    """Return True for a row that arrived in an envelope."""
    return row.origin[:1] in {BELOW, ABOVE}


class ContentIds:
    """Content ids in one transaction."""

    def __init__(self, txn: Transaction, node: str) -> None:
        self._txn = txn
        self._node = node
        self._slugs: dict[int, str] = {}
        self._types: dict[int, dict[int, str]] = {}
        self._owners: dict[int, bytes | None] = {}

    def find(self, row_id: bytes) -> StoredRow | None:
        """Return where a row is, or None."""
        row = self._txn.one(_SQL.row, (row_id,))
        return None if row is None else StoredRow._make(row)

    def find_referent(self, domain: str, row_id: bytes) -> Referent | None:
        """Return a row that a row of a domain refers to, or None if it is not here."""
        found = self._txn.one(_SQL.row_in_domain, (row_id, domain))
        if found is None:
            return None
        app_id, kind, local_id, data, is_member = found
        if data is not None:
            return Referent(decode_row(bytes(data)), local_id, bool(is_member))
        body = self._body(app_id, kind, self.row(app_id, kind, int(local_id)))
        return None if body is None else Referent(body, local_id, bool(is_member))

    def is_member(self, domain: str, row_id: bytes) -> bool:
        """Return True if a domain has a row with this content id."""
        return bool(self._txn.value(_SQL.is_member, (domain, row_id)))

    def row(self, app_id: int, kind: Kind, local_id: int) -> Row:
        """Return a row of this database by its id."""
        return read_row(self._txn, app_id, kind, local_id)

    def id_of(self, app_id: int, kind: Kind, local_id: int) -> bytes | None:
        """Return the content id of a row, or None if its owner has no public key.

        The id is stored on first use; the body only when the row is shared.
        """
        known = self._txn.value(_SQL.row_of, (app_id, kind, local_id))
        if known is not None:
            return bytes(known)
        body = self.body(app_id, kind, self.row(app_id, kind, local_id))
        if body is None:
            return None
        row_id = digest(body)
        self._txn.execute(_SQL.put_row, (row_id, app_id, kind, local_id, None))
        return row_id

    def find_own(self, row_id: bytes, app_id: int, body: RowBody) -> StoredRow | None:
        """Return where a row that arrives is if this node wrote it, or None.

        A node that was restored has rows without a content id that its peers have already.
        """
        place = nonces_of(self._node).find_place(body.nonce)
        if place is None:
            return None
        local_id = self._txn.value(statements_of(app_id, body.kind).own_row, place)
        if local_id is None or self.id_of(app_id, body.kind, int(local_id)) != row_id:
            return None
        return StoredRow(app_id, body.kind, int(local_id))

    def body(self, app_id: int, kind: Kind, row: Row) -> bytes | None:
        """Return the body of a row, or None if its owner has no public key."""
        body = self._body(app_id, kind, row)
        return None if body is None else encode_row(body)

    def _body(self, app_id: int, kind: Kind, row: Row) -> RowBody | None:
        owner = self._owner(row.owner_identity)
        if owner is None:
            return None
        first = row.id == row.object_id
        object_id = None if first else self.id_of(app_id, kind, row.object_id)
        pointers = []
        for name, target in REFERENCES[kind]:
            pointed = getattr(row, name)
            pointer = None if pointed is None else self.id_of(app_id, target, pointed)
            if pointed is not None and pointer is None:
                return None
            pointers.append(pointer)
        values = {name: getattr(row, name, None) for name in _VALUES}
        number = values["value_number"]
        values["value_number"] = None if number is None else float(number)
        return RowBody(
            app=self._slug(app_id),
            kind=kind,
            type=self._type(app_id, row.type_id),
            owner=owner,
            nonce=nonces_of(row.origin or self._node).encode(row.origin_seq, row.position),
            object=object_id,
            version=row.version,
            pointers=tuple(pointers),
            created_at=row.created_at,
            updated_at=getattr(row, "updated_at", None),
            **values,
        )

    def _slug(self, app_id: int) -> str:
        if app_id not in self._slugs:
            self._slugs = {int(row[0]): str(row[1]) for row in self._txn.all(SQL.apps)}
        return self._slugs[app_id]

    def _type(self, app_id: int, type_id: int) -> str:
        if type_id not in self._types.get(app_id, {}):
            rows = self._txn.all(app_statements(app_id).types)
            self._types[app_id] = {int(row[0]): str(row[2]) for row in rows}
        return self._types[app_id][type_id]

    def _owner(self, owner: int) -> bytes | None:
        if owner not in self._owners:
            row = self._txn.one(SQL.identity, (owner,))
            self._owners[owner] = None if row is None else keys.to_bytes(str(row[1]))
        return self._owners[owner]


def read_row(snapshot: ReadTransaction, app_id: int, kind: Kind, local_id: int) -> Row:
    """Return a row of a table by its id."""
    params: tuple[Any, ...] = (local_id - 1, local_id, 1)
    row = snapshot.one(statements_of(app_id, kind).range_of_ids, params)
    if row is None:
        raise CorruptData(f"app {app_id} has no {kind} row {local_id}, but sync refers to it")
    return ROWS[kind]._make(row)
