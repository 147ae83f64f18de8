"""Synchronization of two stores: a window of the log of one node becomes rows of another.

    sender     export(domain, after) ──> package ──> bytes           only what is durable
    receiver   bytes ──> signature ──> place in the sequence ──> rows and cursor, one transaction

A row keeps its name on every node, so it may arrive from several peers and is stored once. Rows
that were written under one number stay together under one number of the receiver. Everything that a
row points at was written before it on the node that sends it, so it is there already, or the
package is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from fourfold import limits
from fourfold.errors import (
    InvalidInput,
    NotFound,
    PackageGap,
    PackageOverlaps,
    PackageRegresses,
    PackageReplayed,
    Refused,
    SequenceCorrupt,
)
from fourfold.kernel import ReadTransaction, Transaction
from fourfold.models.graphs import fold, validation
from fourfold.models.graphs.feed import FeedFilter
from fourfold.models.graphs.records import GraphChange, Kind
from fourfold.models.graphs.statements import (
    POINTERS,
    REFERENCES,
    SQL,
    app_statements,
    statements_of,
)
from fourfold.models.graphs.sync.package import Name, Package, Sent, read, write
from fourfold.models.graphs.validation import SHAPES
from fourfold.models.graphs.writer import GraphTransaction

if TYPE_CHECKING:
    from fourfold.models.graphs.graphs import Graphs
    from fourfold.models.graphs.sync.package import Signer

_VALUES = ("value_text", "value_number", "value_blob", "value_json")


class Export(NamedTuple):
    """A package, and where the next one begins."""

    data: bytes
    from_seq: int
    to_seq: int
    rows: int


class IngestReport(NamedTuple):
    """Result of an ingested package: the position of the peer, and the number of new rows."""

    to_seq: int
    added: int
    known: int


def export(
    graphs: Graphs,
    domain: str,
    signer: Signer,
    *,
    after: int,
    limit: int = limits.FEED_PAGE_ROWS,
    for_node: str | None = None,
) -> Export | None:
    """Export the next signed package of a domain after `after`, or None if nothing is new.

    Rows that `for_node` wrote itself are left out.
    """
    masks = graphs.domains()
    if domain not in masks:
        raise NotFound(f"there is no domain {domain!r}", hint="Define it with `define_domain`.")
    page = graphs.page(FeedFilter(flag_mask=masks[domain]), after, limit, durable=True)
    if page.position <= after:
        return None
    with graphs.database.read() as snapshot:
        names = _Outward(snapshot, graphs.node, masks, domain)
        rows = tuple(
            names.sent(change) for change in page.changes if change.row.origin != (for_node or "?")
        )
    package = Package(graphs.node, signer.public_key, domain, after + 1, page.position, rows)
    return Export(write(package, signer), after + 1, page.position, len(rows))


def ingest(graphs: Graphs, peer_id: int, data: bytes) -> IngestReport:
    """Import a package of a peer: all rows and the cursor, or nothing."""
    with graphs.database.read() as snapshot:
        sender = _key_of_peer(snapshot, peer_id)
    package = read(data, sender)
    if package.domain not in graphs.domains():
        raise NotFound(f"peer {peer_id} sends domain {package.domain!r}, which is not shared here")

    def work(handle: GraphTransaction) -> IngestReport:
        last = int(handle.txn.value(SQL.progress, (peer_id, package.domain)) or 0)
        _check_place(package, last, peer_id)
        taking = _Inward(handle, graphs.node, graphs.domains_in(handle.txn))
        taking.take(package)
        params = (peer_id, package.domain, package.to_seq)
        handle.txn.execute(SQL.put_progress, params)
        return IngestReport(package.to_seq, taking.added, taking.known)

    return graphs.with_transaction(work)


def _key_of_peer(snapshot: ReadTransaction, peer_id: int) -> str:
    peer = snapshot.one(SQL.peer, (validation.check_integer(peer_id, "peer_id", least=1),))
    if peer is None:
        raise NotFound(f"there is no peer {peer_id}")
    identity = snapshot.one(SQL.identity, (peer[1],))
    if identity is None:
        raise NotFound(f"peer {peer_id} has no identity {peer[1]}")
    return str(identity[1])


def _check_place(package: Package, last: int, peer_id: int) -> None:
    """Raise unless a package begins where the previous one ended."""
    window = f"{package.from_seq} to {package.to_seq}"
    where = f"domain {package.domain!r} of peer {peer_id} is at {last}"
    details = {"from_seq": package.from_seq, "to_seq": package.to_seq, "last_seq": last}
    if package.from_seq > last + 1:
        raise PackageGap(
            f"{where}: seqs are missing before the package from {window}", details=details
        )
    if package.to_seq == last:
        raise PackageReplayed(
            f"{where}: the package from {window} was imported already", details=details
        )
    if package.to_seq < last:
        raise PackageRegresses(f"{where}: the package from {window} is older", details=details)
    if package.from_seq <= last:
        raise PackageOverlaps(f"{where}: the package from {window} overlaps it", details=details)


class _Outward:
    """Converts ids of this node to names that every node knows."""

    def __init__(
        self, snapshot: ReadTransaction, node: str, masks: dict[str, int], domain: str
    ) -> None:
        self._snapshot = snapshot
        self._mask = masks[domain]
        self._node = node
        self._masks = masks
        self._apps: dict[int, str] = {row[0]: row[1] for row in snapshot.all(SQL.apps)}
        self._types: dict[int, dict[int, str]] = {}
        self._owners: dict[int, str] = {}

    def sent(self, change: GraphChange) -> Sent:
        app_id, kind, row = change.app_id, change.kind, change.row
        values = {
            name: getattr(row, name) for name in _VALUES if getattr(row, name, None) is not None
        }
        targets = dict(REFERENCES[kind])
        points = {
            name: self._name(app_id, targets[name], getattr(row, name), row.sync_flags)
            for name in POINTERS[kind]
            if getattr(row, name) is not None
        }
        return Sent(
            self._apps[app_id],
            kind,
            self._type(app_id, row.type_id),
            self._owner(row.owner_identity),
            tuple(sorted(name for name, mask in self._masks.items() if mask & row.sync_flags)),
            self._name(app_id, kind, row.object_id, row.sync_flags),
            Name(row.origin or self._node, row.origin_seq, row.position),
            row.version,
            points,
            values,
            row.created_at,
            getattr(row, "updated_at", None),
        )

    def _name(self, app_id: int, kind: Kind, object_id: int, flags: int) -> Name:
        """Return the name of an object, which must be shared at least as widely as its referrer."""
        row = self._snapshot.one(statements_of(app_id, kind).first_row, (object_id,))
        if row is None:
            raise NotFound(f"app {app_id} has no {kind} {object_id}, but a row points at it")
        if self._mask & flags & ~row[3]:
            raise Refused(
                f"{kind} {object_id} of app {app_id} is not shared, but something of it is",
                hint="Share it as well, with `update_sync_flags`.",
            )
        return Name(row[0] or self._node, row[1], row[2])

    def _type(self, app_id: int, type_id: int) -> str:
        if app_id not in self._types:
            rows = self._snapshot.all(app_statements(app_id).types)
            self._types[app_id] = {row[0]: row[2] for row in rows}
        return self._types[app_id][type_id]

    def _owner(self, owner: int) -> str:
        if owner not in self._owners:
            row = self._snapshot.one(SQL.identity, (owner,))
            if row is None:
                raise NotFound(
                    f"identity {owner} owns rows to be sent, but has no public key",
                    hint="Make it known with `add_identity`.",
                )
            self._owners[owner] = str(row[1])
        return self._owners[owner]


class _Inward:
    """Converts names that every node knows to ids of this node, and writes the rows."""

    def __init__(self, handle: GraphTransaction, node: str, masks: dict[str, int]) -> None:
        self._handle = handle
        self._txn: Transaction = handle.txn
        self._node = node
        self._masks = masks
        self.added = 0
        self.known = 0

    def take(self, package: Package) -> None:
        for _, group in groupby(package.rows, key=lambda sent: (sent.row.node, sent.row.seq)):
            new = [sent for sent in group if not self._is_known(sent)]
            if new:
                self._handle.next_seq()
            for sent in new:
                self._write(sent)

    def _is_known(self, sent: Sent) -> bool:
        app_id = self._app(sent.app)
        if self._find(app_id, sent.kind, sent.row) is None:
            return False
        self.known += 1
        return True

    def _write(self, sent: Sent) -> None:
        app_id, kind = self._app(sent.app), sent.kind
        # A new identity becomes an object as well, so this comes before the id is taken.
        owner = self._handle.identity(sent.owner)
        shape, row_id = SHAPES[kind], self._handle.next_id(app_id, kind)
        first = sent.object == sent.row
        object_id = row_id if first else self._object(app_id, kind, sent.object)
        columns: dict[str, Any] = {
            **{name: sent.values[name] for name in sent.values if name in _VALUES},
            **self._points(app_id, sent),
            "type_id": self._handle.type_id(app_id, kind, sent.type),
            "owner_identity": owner,
            "sync_flags": self._flags(sent.domains),
            "created_at": sent.created_at,
        }
        if sent.updated_at is not None and "updated_at" in shape.fields:
            columns["updated_at"] = sent.updated_at
        values, size = shape.read(
            validation.check_fields(columns, kind, shape.fields), self._handle.seq, ""
        )
        leads = first or self._leads(app_id, sent, object_id, columns)
        row = (row_id, *values, object_id, sent.version, *sent.row, int(leads))
        self._handle.take_in(app_id, kind, row, columns["sync_flags"], size)
        self.added += 1

    def _leads(self, app_id: int, sent: Sent, object_id: int, columns: dict[str, Any]) -> bool:
        """Return True if a version is newer than all stored ones.

        It cannot change the owner of the object.
        """
        old = self._handle.newest(app_id, sent.kind, object_id)
        for name in SHAPES[sent.kind].fixed:
            if columns.get(name) != getattr(old, name):
                raise InvalidInput(f"the package changes {name} of {sent.kind} {object_id}")
        return (sent.version, sent.row.node) > fold.rank(old, self._node)

    def _points(self, app_id: int, sent: Sent) -> dict[str, int]:
        targets = dict(REFERENCES[sent.kind])
        if unknown := sorted(set(sent.points) - set(targets)):
            raise InvalidInput(f"{sent.kind} has no {', '.join(unknown)}")
        return {
            name: self._object(app_id, targets[name], target)
            for name, target in sent.points.items()
        }

    def _object(self, app_id: int, kind: Kind, name: Name) -> int:
        existing = self._find(app_id, kind, name)
        if existing is None:
            raise NotFound(
                f"the package points at {kind} {name.node}/{name.seq}/{name.position}, "
                "which is not here",
                hint="The sender shares it in another domain: import that one first.",
            )
        return existing

    def _find(self, app_id: int, kind: Kind, name: Name) -> int | None:
        sql = statements_of(app_id, kind)
        if name.node != self._node:
            row_id = self._txn.value(sql.foreign_row, tuple(name))
            return None if row_id is None else int(row_id)
        row_id = self._txn.value(sql.own_row, (name.seq, name.position))
        if row_id is None:
            raise SequenceCorrupt(
                f"a peer has {kind} {name.seq}/{name.position} of this node, which this node "
                "does not have: it was restored from an old backup, or two nodes share a name"
            )
        return int(row_id)

    def _flags(self, domains: Sequence[str]) -> int:
        flags = 0
        for domain in domains:
            flags |= self._masks.get(domain, 0)
        return flags

    def _app(self, slug: str) -> int:
        app = self._handle.app_by_slug(slug)
        if app is None:
            raise NotFound(
                f"the package is about app {slug!r}, which is not here",
                hint="Register it with `register_app`.",
            )
        return app
