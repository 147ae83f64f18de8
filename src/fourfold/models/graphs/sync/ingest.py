"""Ingest of packages: every envelope is checked and answered alone, in a transaction of its own.

The checks come before any write, in this order; each has its kind of refusal:

1. `malformed`, `too_large`, `unknown_format`
2. `bad_signature`, `content_mismatch`, `key_unknown`
3. `peer_not_allowed`, `system_app`
4. `app_not_in_domain`, `not_the_author`, `not_the_owner`, `field_changed`, `object_not_in_domain`
5. `gap`, `limit_exceeded`

A row that refers to a row which is not here, or not yet in the domain, is parked while its log goes
on. A second entry after the same one is stored and recorded as a fork. Versions of an object are
ranked by (version, row id) on every node, so all nodes show the same one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fourfold.errors import InvalidInput, LimitExceeded, NotFound, Refused
from fourfold.kernel import ReadTransaction, failpoints, load_queries
from fourfold.models.graphs import fold, validation
from fourfold.models.graphs.records import SYSTEM_APP, Kind, Row
from fourfold.models.graphs.statements import REFERENCES, SQL, app_statements, statements_of
from fourfold.models.graphs.sync import incarnation, keys, log
from fourfold.models.graphs.sync.content import ABOVE, BELOW, ContentIds, is_imported
from fourfold.models.graphs.sync.envelope import (
    CheckedEnvelope,
    EnvelopeHead,
    EnvelopeRefused,
    RowBody,
    check,
    decode_row,
    unpack,
)
from fourfold.models.graphs.validation import SHAPES
from fourfold.models.graphs.writer import GraphTransaction

if TYPE_CHECKING:
    from fourfold.models.graphs.graphs import Graphs

_SQL = load_queries("fourfold.models.graphs.sync")
PARKED_MAX: Final = 10_000
"""Rows that may be parked at once; an envelope that would park more is refused."""
_UNPARK_ROWS: Final = 200
"""Parked rows that one transaction applies."""
_SYSTEM_SLUG: Final = "system"
_VALUES = ("value_text", "value_number", "value_blob", "value_json")


class EnvelopeRefusal(NamedTuple):
    """An envelope that was refused: the kind of refusal, and who signed it."""

    envelope: int
    """Place of the envelope in the package, from 0."""
    kind: str
    message: str
    retryable: bool
    author: str | None
    seq: int | None


class IngestReport(NamedTuple):
    """Result of a package: envelopes by their answer, and rows that became visible or parked."""

    accepted: int
    known: int
    refused: tuple[EnvelopeRefusal, ...]
    added: int
    parked: int


class _Applied(NamedTuple):
    known: bool = False
    added: int = 0
    parked: int = 0


def ingest(graphs: Graphs, peer_id: int, data: bytes) -> IngestReport:
    """Import the envelopes of a package that a peer handed over."""
    envelopes = unpack(data)
    with graphs.database.read_current() as snapshot:
        check_peer(snapshot, peer_id)
        check_format(snapshot)
    accepted = known = added = parked = 0
    refusals: list[EnvelopeRefusal] = []
    for index, raw in enumerate(envelopes):
        head: EnvelopeHead | None = None
        try:
            checked = check(raw)
            head = checked.head
            done = _apply(graphs, peer_id, checked)
        except EnvelopeRefused as error:
            author = None if head is None else keys.to_text(head.author)
            seq = None if head is None else head.seq
            refusals.append(
                EnvelopeRefusal(index, error.kind, error.message, error.retryable, author, seq)
            )
            continue
        known += done.known
        accepted += not done.known
        added += done.added
        parked += done.parked
    applied = unpark(graphs)
    return IngestReport(accepted, known, tuple(refusals), added + applied, parked - applied)


def check_peer(snapshot: ReadTransaction, peer_id: int) -> None:
    """Raise NotFound for an unknown peer."""
    if snapshot.one(SQL.peer, (validation.check_integer(peer_id, "peer_id", least=1),)) is None:
        raise NotFound(f"unknown peer {peer_id}", hint="List them with `fourfold app sync peer`.")


def check_format(snapshot: ReadTransaction) -> None:
    """Raise Refused while rows of the earlier format have no content ids."""
    if snapshot.value(_SQL.is_of_earlier_format):
        raise Refused(
            "rows that were imported in the earlier format have no content ids yet",
            hint="Run `fourfold app sync migrate`, which makes a backup first.",
        )


def _apply(graphs: Graphs, peer_id: int, checked: CheckedEnvelope) -> _Applied:
    def work(handle: GraphTransaction) -> _Applied:
        return _Inward(graphs, handle, checked.head).take(peer_id, checked)

    try:
        return graphs.with_transaction(work)
    except LimitExceeded as error:
        raise EnvelopeRefused("limit_exceeded", error.message, retryable=True) from None


def unpark(graphs: Graphs) -> int:
    """Apply parked rows whose targets have arrived, in slices; return how many rows were."""
    added = 0
    while True:

        def work(handle: GraphTransaction) -> tuple[int, int]:
            ready = handle.txn.all(_SQL.ready, (_UNPARK_ROWS,))
            written = 0
            for row_id, domain in ready:
                written += _unpark(graphs, handle, bytes(row_id), str(domain))
            return len(ready), written

        seen, written = graphs.with_transaction(work)
        added += written
        if not seen:
            return added


def _unpark(graphs: Graphs, handle: GraphTransaction, row_id: bytes, domain: str) -> int:
    body = decode_row(bytes(handle.txn.value(_SQL.body, (row_id,))))
    inward = _Inward(graphs, handle, None, domain)
    handle.txn.execute(_SQL.unpark, (row_id,))
    try:
        inward.check_row(body, body.owner)
        missing = inward.missing(body)
    except EnvelopeRefused as error:
        handle.txn.execute(_SQL.park, (row_id, domain, None, f"{error.kind}: {error.message}"))
        return 0
    if missing is not None:
        handle.txn.execute(_SQL.park, (row_id, domain, missing, "missing"))
        return 0
    inward.write(row_id, body, 0)
    return 1


class _Inward:
    """Checks and writes the rows of one envelope, in one transaction."""

    def __init__(
        self, graphs: Graphs, handle: GraphTransaction, head: EnvelopeHead | None, domain: str = ""
    ) -> None:
        self._graphs = graphs
        self._handle = handle
        self._txn = handle.txn
        self._head = head
        self._domain = domain if head is None else head.domain
        self._mask = graphs.domains_in(handle.txn).get(self._domain, 0)
        self._content = ContentIds(handle.txn, graphs.node)
        self._apps: dict[str, int] = {}
        self._fresh: dict[bytes, RowBody] = {}
        self._begun = False

    def take(self, peer_id: int, checked: CheckedEnvelope) -> _Applied:
        """Check an envelope, then write it."""
        head, txn = checked.head, self._txn
        if txn.one(_SQL.entry, (checked.id,)) is not None:
            return _Applied(known=True)
        if txn.value(SQL.identity_number, (keys.to_text(head.author),)) is None:
            raise EnvelopeRefused(
                "key_unknown", f"{keys.to_text(head.author)} is not an identity of this store"
            )
        right = txn.one(_SQL.right, (peer_id, head.domain))
        if right is None or not right[1] or not self._mask:
            raise EnvelopeRefused(
                "peer_not_allowed", f"peer {peer_id} may not write domain {head.domain!r:.80}"
            )
        for row_id, body in zip(head.rows, checked.rows, strict=True):
            self.check_row(body, head.author)
            self._fresh[row_id] = body
        self._check_place(head)
        if failpoints.armed:
            failpoints.hit("graphs.sync.checked")
        self._notice_restore(head)
        log_id = log.log_of(txn, head.author, head.incarnation, head.domain)
        self._notice_fork(log_id, checked)
        log.append(txn, log_id, head, checked.envelope)
        added = parked = 0
        for row_id, body, data in zip(
            head.rows, checked.rows, checked.envelope.bodies, strict=True
        ):
            outcome = self._place(row_id, body, data)
            added += outcome == "added"
            parked += outcome == "parked"
        if failpoints.armed:
            failpoints.hit("graphs.sync.written")
        txn.execute(_SQL.add_progress, (peer_id, head.domain, 1))
        return _Applied(added=added, parked=parked)

    # Checks

    def check_row(self, body: RowBody, author: bytes) -> None:
        """Raise EnvelopeRefused unless the author may write this row in the domain."""
        app_id = self._app(body.app)
        if body.owner != author:
            raise EnvelopeRefused("not_the_author", "a row belongs to another key than its signer")
        self._check_values(body)
        for kind, target in _targets(body):
            self._check_target(app_id, kind, target)
        if body.object is not None:
            self._check_object(app_id, body, body.object)

    def _app(self, slug: str) -> int:
        if slug == _SYSTEM_SLUG:
            raise EnvelopeRefused("system_app", "rows of the system app are never accepted")
        if slug not in self._apps:
            row = self._txn.one(SQL.app_by_slug, (slug,))
            allowed = {int(each[0]) for each in self._txn.all(_SQL.domain_apps, (self._domain,))}
            if row is None or (allowed and int(row[0]) not in allowed) or row[0] == SYSTEM_APP:
                raise EnvelopeRefused(
                    "app_not_in_domain",
                    f"domain {self._domain!r:.80} does not accept app {slug!r:.80} here",
                    retryable=True,
                )
            self._apps[slug] = int(row[0])
        return self._apps[slug]

    def _check_values(self, body: RowBody) -> None:
        if len(body.pointers) != len(REFERENCES[body.kind]):
            raise EnvelopeRefused("malformed", f"{body.kind} has {len(body.pointers)} pointers")
        if (body.object is None) != (body.version == 1):
            raise EnvelopeRefused("malformed", "the first row of an object must be version 1")
        shape = SHAPES[body.kind]
        pointers = {name: 1 for name, _ in _pointers(body)}
        columns = self._columns(body, pointers, type_id=1, owner=1)
        try:
            validation.check_text(body.type, "type")
            validation.check_integer(body.version, "version", least=1)
            shape.read(validation.check_fields(columns, body.kind, shape.fields), 1, "")
        except InvalidInput as error:
            raise EnvelopeRefused("malformed", error.message) from None

    def _check_target(self, app_id: int, kind: Kind, target: bytes) -> None:
        """Raise unless a row that is here, or in this envelope, can be the target of a row."""
        fresh = self._fresh.get(target)
        if fresh is not None:
            fits = fresh.kind == kind and fresh.object is None and self._app(fresh.app) == app_id
        else:
            stored = self._content.find(target)
            if stored is None or stored.local_id is None:
                return
            row = self._content.row(stored.app_id, stored.kind, stored.local_id)
            fits = (stored.app_id, stored.kind, row.object_id) == (app_id, kind, row.id)
        if not fits:
            raise EnvelopeRefused("malformed", f"a row refers to something that is not a {kind}")

    def _check_object(self, app_id: int, body: RowBody, object_id: bytes) -> None:
        """Raise unless a new version keeps the owner and the fixed fields of its object."""
        fresh = self._fresh.get(object_id)
        if fresh is not None:
            kept = (fresh.owner, fresh.type) == (body.owner, body.type)
            if not kept or (body.kind != "edge" and fresh.pointers != body.pointers):
                raise EnvelopeRefused("field_changed", "a version changes what is fixed")
            return
        stored = self._content.find(object_id)
        if stored is None or stored.local_id is None:
            return
        row = self._content.row(app_id, body.kind, stored.local_id)
        owner = self._txn.value(SQL.identity_number, (keys.to_text(body.owner),))
        if row.owner_identity != owner:
            raise EnvelopeRefused(
                "not_the_owner", f"{body.kind} {row.object_id} belongs to another identity"
            )
        self._check_fixed(app_id, body, row)
        if not self._content.is_member(self._domain, object_id):
            raise EnvelopeRefused(
                "object_not_in_domain",
                f"{body.kind} {row.object_id} is not in domain {self._domain!r:.80}",
                retryable=True,
            )

    def _check_fixed(self, app_id: int, body: RowBody, row: Row) -> None:
        pointers = dict(_pointers(body))
        for name in SHAPES[body.kind].fixed:
            if name == "type_id":
                value: Any = self._txn.value(
                    app_statements(app_id).type_by_key, (body.kind, body.type)
                )
            elif name == "created_at":
                value = body.created_at
            elif name == "owner_identity":
                continue
            else:
                value = self._local(pointers.get(name))
                if value is None and pointers.get(name) is not None:
                    continue
            if value != getattr(row, name):
                raise EnvelopeRefused(
                    "field_changed", f"a version changes {name} of {body.kind} {row.object_id}"
                )

    def _check_place(self, head: EnvelopeHead) -> None:
        """Raise unless the entry before this one is here."""
        if head.prev is None:
            return
        before = self._txn.one(_SQL.entry, (head.prev,))
        log_id = self._txn.value(_SQL.log, (head.author, head.incarnation, head.domain))
        if before is None:
            raise EnvelopeRefused(
                "gap", f"the entry before {head.seq} of its log is missing", retryable=True
            )
        if (before[0], before[1] + 1) != (log_id, head.seq):
            raise EnvelopeRefused("malformed", "an envelope does not continue its own log")

    # Writes

    def _notice_restore(self, head: EnvelopeHead) -> None:
        """Start a new incarnation if this entry proves that this node lost entries of its own."""
        if incarnation.known(self._txn) == head.incarnation and self._txn.value(
            _SQL.has_log_of, (head.author, head.incarnation)
        ):
            incarnation.renew(self._txn, self._graphs.database.path)

    def _notice_fork(self, log_id: int, checked: CheckedEnvelope) -> None:
        head = checked.head
        other = self._txn.value(_SQL.follower, (log_id, head.prev, head.seq))
        if other is not None:
            params = (log_id, head.seq, other, checked.id, self._handle.now)
            self._txn.execute(_SQL.add_fork, params)

    def _place(self, row_id: bytes, body: RowBody, data: bytes) -> str:
        """Store a row of the domain: share the one that is here, write it, or park it."""
        txn, app_id = self._txn, self._app(body.app)
        stored = self._content.find(row_id) or self._content.find_own(row_id, app_id, body)
        txn.execute(_SQL.add_member, (self._domain, row_id))
        txn.execute(_SQL.put_row, (row_id, app_id, body.kind, None, data))
        if stored is not None and stored.local_id is not None:
            ids = f"[{stored.local_id}]"
            self._handle.add_flags(stored.app_id, stored.kind, ids, self._mask)
            return "known"
        missing = self.missing(body)
        if missing is None:
            self.write(row_id, body, 0 if self._head is None else self._head.seq)
            txn.execute(_SQL.unpark, (row_id,))
            return "added"
        if int(txn.value(_SQL.count_parked)) >= PARKED_MAX:
            raise EnvelopeRefused(
                "limit_exceeded", f"{PARKED_MAX} rows are parked already", retryable=True
            )
        txn.execute(_SQL.park, (row_id, self._domain, missing, "missing"))
        return "parked"

    def missing(self, body: RowBody) -> bytes | None:
        """Return a row that this one refers to and that is not applied in the domain, or None."""
        targets = [target for _, target in _targets(body)]
        for target in targets if body.object is None else [body.object, *targets]:
            stored = self._content.find(target)
            if stored is None or stored.local_id is None:
                return target
            if not self._content.is_member(self._domain, target):
                return target
        return None

    def write(self, row_id: bytes, body: RowBody, origin_seq: int) -> None:
        """Write a row whose targets are here to the table of its app."""
        handle, kind, app_id = self._handle, body.kind, self._app(body.app)
        if not self._begun:
            # Rows of an envelope stay together under one seq.
            handle.start_seq()
            self._begun = True
        owner = handle.identity(keys.to_text(body.owner))
        local_id = handle.next_id(app_id, kind)
        object_id = local_id if body.object is None else self._must_local(body.object)
        pointers = {name: self._must_local(target) for name, target in _pointers(body)}
        type_id = handle.type_id(app_id, kind, body.type)
        columns = self._columns(body, pointers, type_id=type_id, owner=owner)
        values, size = SHAPES[kind].read(columns, handle.seq, "")
        origin = self._rank_sign(app_id, kind, object_id, body, row_id) + row_id.hex()
        leads = body.object is None or (body.version, origin) > fold.rank(
            handle.newest(app_id, kind, object_id), self._graphs.node
        )
        place = (object_id, body.version, origin, origin_seq, handle.position, int(leads))
        handle.take_in(app_id, kind, (local_id, *values, *place), columns["sync_flags"], size)
        self._txn.execute(_SQL.put_row, (row_id, app_id, kind, local_id, None))

    def _rank_sign(
        self, app_id: int, kind: Kind, object_id: int, body: RowBody, row_id: bytes
    ) -> str:
        """Return the sign that ranks a row against those of its version that were not imported."""
        if body.object is None:
            return ABOVE
        rows = self._txn.all(statements_of(app_id, kind).rows_of_version, (object_id, body.version))
        for (local_id,) in rows:
            row = self._content.row(app_id, kind, int(local_id))
            other = None if is_imported(row) else self._content.id_of(app_id, kind, row.id)
            if other is not None and row_id < other:
                return BELOW
        return ABOVE

    def _columns(
        self, body: RowBody, pointers: dict[str, int], *, type_id: int, owner: int
    ) -> dict[str, Any]:
        columns: dict[str, Any] = {
            **{name: getattr(body, name) for name in _VALUES if getattr(body, name) is not None},
            **pointers,
            "type_id": type_id,
            "owner_identity": owner,
            "sync_flags": self._mask,
            "created_at": body.created_at,
        }
        if body.updated_at is not None:
            columns["updated_at"] = body.updated_at
        return columns

    def _local(self, row_id: bytes | None) -> int | None:
        stored = None if row_id is None else self._content.find(row_id)
        return None if stored is None else stored.local_id

    def _must_local(self, row_id: bytes) -> int:
        local_id = self._local(row_id)
        assert local_id is not None
        return local_id


def _pointers(body: RowBody) -> Iterator[tuple[str, bytes]]:
    """Yield the columns that refer to something, with the object that they refer to."""
    for (name, _), target in zip(REFERENCES[body.kind], body.pointers, strict=True):
        if target is not None:
            yield name, target


def _targets(body: RowBody) -> Iterable[tuple[Kind, bytes]]:
    """Return the objects that a row refers to, with their kinds."""
    pairs = zip(REFERENCES[body.kind], body.pointers, strict=False)
    return [(kind, target) for (_, kind), target in pairs if target is not None]
