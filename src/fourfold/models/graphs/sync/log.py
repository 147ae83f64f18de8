"""The logs that this node writes: shared rows are queued, checked, signed and appended.

    shared rows after the cursor ──> queue ──> closure check ──> envelope at the tail of the log

A row that is shared late is queued like a new one, so it is an entry at the tail as well. A row
that refers to something which is not in the domain stays in the queue and is reported as not
shareable: it stops nothing, and is tried again each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from fourfold.errors import InvalidInput, NotFound
from fourfold.kernel import ReadTransaction, Transaction, load_queries
from fourfold.models.graphs.feed import ChangePage, FeedFilter
from fourfold.models.graphs.records import SYSTEM_APP, GraphChange, Kind, Row
from fourfold.models.graphs.statements import REFERENCES, SQL
from fourfold.models.graphs.sync import incarnation, keys
from fourfold.models.graphs.sync.content import ContentIds, is_imported
from fourfold.models.graphs.sync.envelope import (
    ENVELOPE_BYTES_MAX,
    ENVELOPE_ROWS_MAX,
    FORMAT,
    ID_BYTES,
    EnvelopeHead,
    SignedEnvelope,
    digest,
    sign,
)
from fourfold.models.graphs.writer import GraphTransaction

if TYPE_CHECKING:
    from fourfold.models.graphs.graphs import Graphs
    from fourfold.models.graphs.sync.keys import Signer

_SQL = load_queries("fourfold.models.graphs.sync")
_SLICE_ROWS = ENVELOPE_ROWS_MAX
"""Rows that one transaction queues or signs."""
_HEAD_BYTES = 512
"""More than a head, a signature and the lengths around them take, beside the row ids."""
_ROW_BYTES = ID_BYTES + 8
"""More than a row takes in an envelope beside its body."""


class NotShareable(NamedTuple):
    """A row that cannot be signed for a domain, and why."""

    app_id: int
    kind: Kind
    row_id: int
    reason: str


class SignReport(NamedTuple):
    """Result of signing: new envelopes, their rows, and rows that could not be shared."""

    envelopes: int
    rows: int
    not_shareable: tuple[NotShareable, ...]


class _QueueEntry(NamedTuple):
    global_seq: int
    position: int
    app_id: int
    kind: Kind
    local_id: int


def mask_of(graphs: Graphs, domain: str) -> int:
    """Return the mask of a domain; raise NotFound if it is not defined here."""
    masks = graphs.domains()
    if domain not in masks:
        raise NotFound(f"unknown domain {domain!r}", hint="Define it with `define_domain`.")
    return masks[domain]


def queue(graphs: Graphs, domain: str) -> int:
    """Queue the shared rows after the cursor, in slices; return the number of rows seen."""
    query, seen = FeedFilter(flag_mask=mask_of(graphs, domain)), 0
    while True:
        with graphs.database.read_current() as snapshot:
            after = _cursor(snapshot, domain)
        page = graphs.page(query, after, _SLICE_ROWS, durable=False)
        if page.position <= after:
            return seen
        seen += graphs.with_transaction(partial(_queue_page, graphs.node, domain, after, page))


def _queue_page(
    node: str, domain: str, after: int, page: ChangePage, handle: GraphTransaction
) -> int:
    """Queue the rows of a page, unless another caller was faster."""
    if _cursor(handle.txn, domain) != after:
        return 0
    content = ContentIds(handle.txn, node)
    for change in page.changes:
        _enqueue(handle.txn, content, domain, change)
    handle.txn.execute(_SQL.put_cursor, (domain, page.position))
    return len(page.changes)


def _cursor(snapshot: ReadTransaction, domain: str) -> int:
    return int(snapshot.value(_SQL.cursor, (domain,)) or 0)


def _enqueue(txn: Transaction, content: ContentIds, domain: str, change: GraphChange) -> None:
    row, app_id, kind = change.row, change.app_id, change.kind
    if app_id == SYSTEM_APP or is_imported(row):
        return
    row_id = content.id_of(app_id, kind, row.id)
    if row.origin == "" and (row_id is None or not content.is_member(domain, row_id)):
        place = (row.global_seq, row.position, app_id, kind, row.id)
        txn.execute(_SQL.enqueue, (domain, row.owner_identity, *place))


def identify(graphs: Graphs) -> int:
    """Give content ids to rows of other nodes that have none, in slices; return their number.

    These arrived in packages of the earlier format.
    """
    after, count = 0, 0
    while True:
        page = graphs.page(FeedFilter(), after, _SLICE_ROWS, durable=False)
        if page.position <= after:
            return count
        count += graphs.with_transaction(partial(_identify_page, graphs.node, page))
        after = page.position


def _identify_page(node: str, page: ChangePage, handle: GraphTransaction) -> int:
    content = ContentIds(handle.txn, node)
    foreign = [change for change in page.changes if change.row.origin]
    for change in foreign:
        if not is_imported(change.row):
            content.id_of(change.app_id, change.kind, change.row.id)
    return len(foreign)


def sign_rows(graphs: Graphs, domain: str, signer: Signer) -> SignReport:
    """Sign the queued rows of the signer's identity, and append them to its log.

    Rows of other owners stay in the queue until their own key signs them.
    """
    mask = mask_of(graphs, domain)
    author = keys.to_bytes(signer.public_key)
    if author is None:
        raise InvalidInput(f"{signer.public_key!r:.100} is not an Ed25519 public key")
    queue(graphs, domain)
    with graphs.database.read_current() as snapshot:
        owner = snapshot.value(SQL.identity_number, (signer.public_key,))
    if owner is None:
        return SignReport(0, 0, ())
    target = _Target(domain, mask, signer, author)
    envelopes = rows = 0
    refused: list[NotShareable] = []
    last: tuple[int, int] | None = (0, -1)
    while last is not None:
        after = last

        done = graphs.with_transaction(partial(_sign_slice, graphs, target, int(owner), after))
        envelopes, rows, last = envelopes + done.envelopes, rows + done.rows, done.last
        refused += done.refused
    return SignReport(envelopes, rows, tuple(refused))


class _Target(NamedTuple):
    """The domain and the key that rows are signed for."""

    domain: str
    mask: int
    signer: Signer
    author: bytes


def _sign_slice(
    graphs: Graphs, target: _Target, owner: int, after: tuple[int, int], handle: GraphTransaction
) -> _SignedSlice:
    part = _SignedSlice(handle.txn, graphs, target)
    part.run(owner, after)
    return part


class _SignedSlice:
    """One transaction of signing."""

    def __init__(self, txn: Transaction, graphs: Graphs, target: _Target) -> None:
        self._txn = txn
        self._path = graphs.database.path
        self._content = ContentIds(txn, graphs.node)
        self._domain, self._mask, self._signer, self._author = target
        self.envelopes = 0
        self.rows = 0
        self.refused: list[NotShareable] = []
        self.last: tuple[int, int] | None = None

    def run(self, owner: int, after: tuple[int, int]) -> None:
        """Sign the queued rows after a place; `last` is None once there are no more."""
        params = (self._domain, owner, *after, _SLICE_ROWS)
        queued = [_QueueEntry._make(row) for row in self._txn.all(_SQL.queued, params)]
        groups = [list(group) for _, group in groupby(queued, key=lambda row: row.global_seq)]
        if len(queued) == _SLICE_ROWS and len(groups) > 1:
            # The last transaction may have more rows than were read.
            groups.pop()
        for group in groups:
            self.last = (group[-1].global_seq, group[-1].position)
            for envelope_rows in self._envelopes(owner, group):
                self._append(envelope_rows)

    def _envelopes(
        self, owner: int, group: list[_QueueEntry]
    ) -> Iterator[list[tuple[bytes, bytes]]]:
        """Yield the ids and bodies of one transaction, as many as fit into an envelope."""
        bodies: list[tuple[bytes, bytes]] = []
        size = _HEAD_BYTES
        for queued in group:
            entry = self._shareable(queued)
            if isinstance(entry, str):
                self.refused.append(
                    NotShareable(queued.app_id, queued.kind, queued.local_id, entry)
                )
                continue
            place = (queued.global_seq, queued.position)
            self._txn.execute(_SQL.dequeue, (self._domain, owner, *place))
            if entry is None:
                continue
            if size + len(entry[1]) + _ROW_BYTES > ENVELOPE_BYTES_MAX:
                yield bodies
                bodies, size = [], _HEAD_BYTES
            bodies.append(entry)
            size += len(entry[1]) + _ROW_BYTES
            row_place = (queued.app_id, queued.kind, queued.local_id)
            self._txn.execute(_SQL.put_row, (entry[0], *row_place, entry[1]))
            # Rows that follow may refer to this one.
            self._txn.execute(_SQL.add_member, (self._domain, entry[0]))
        if bodies:
            yield bodies

    def _shareable(self, queued: _QueueEntry) -> tuple[bytes, bytes] | str | None:
        """Return a row's id and body, the reason why it cannot be shared, or None if it need not.

        What it refers to must be in the domain already.
        """
        app_id, kind = queued.app_id, queued.kind
        row = self._content.row(app_id, kind, queued.local_id)
        if not row.sync_flags & self._mask:
            return None
        for target, object_id in _targets(kind, row):
            target_id = self._content.id_of(app_id, target, object_id)
            if target_id is None or not self._content.is_member(self._domain, target_id):
                return f"{target} {object_id} is not in domain {self._domain!r}"
        row_id = self._content.id_of(app_id, kind, row.id)
        if row_id is None:
            return f"identity {row.owner_identity} has no Ed25519 key"
        if self._content.is_member(self._domain, row_id):
            return None
        body = self._content.body(app_id, kind, row)
        assert body is not None
        if _HEAD_BYTES + len(body) + _ROW_BYTES > ENVELOPE_BYTES_MAX:
            return f"its {len(body)} bytes do not fit into an envelope"
        return row_id, body

    def _append(self, rows: list[tuple[bytes, bytes]]) -> None:
        node = incarnation.ensure(self._txn, self._path)
        self._txn.execute(_SQL.add_signer, (self._author,))
        log_id = log_of(self._txn, self._author, node, self._domain)
        tip = self._txn.one(_SQL.tips, (log_id,))
        seq, prev = (1, None) if tip is None else (int(tip[0]) + 1, bytes(tip[1]))
        bodies = [body for _, body in rows]
        ids = tuple(row_id for row_id, _ in rows)
        size = sum(map(len, bodies))
        head = EnvelopeHead(FORMAT, self._author, node, self._domain, seq, prev, ids, size)
        append(self._txn, log_id, head, sign(head, bodies, self._signer))
        self.envelopes += 1
        self.rows += len(rows)


def _targets(kind: Kind, row: Row) -> Iterator[tuple[Kind, int]]:
    if row.id != row.object_id:
        yield kind, row.object_id
    for name, target in REFERENCES[kind]:
        pointed = getattr(row, name)
        if pointed is not None:
            yield target, pointed


def log_of(txn: Transaction, author: bytes, node: bytes, domain: str) -> int:
    """Return the id of a log, created on first use."""
    known = txn.value(_SQL.log, (author, node, domain))
    return int(txn.value(_SQL.add_log, (author, node, domain)) if known is None else known)


def append(txn: Transaction, log_id: int, head: EnvelopeHead, envelope: SignedEnvelope) -> bytes:
    """Store an envelope as an entry of a log, and return its id; the bodies are stored apart."""
    entry_id = digest(envelope.head)
    params = (entry_id, log_id, head.seq, head.prev, envelope.head, envelope.signature)
    txn.execute(_SQL.add_entry, params)
    if head.prev is not None:
        txn.execute(_SQL.end_tip, (head.prev,))
    return entry_id
