"""Ingest of packages: every envelope is checked and answered alone.

`checks` has the checks and their order; nothing of an envelope is written before all of them.
Signatures are verified before a transaction begins, and one transaction takes several envelopes.

A row that refers to a row which is not here, or not yet in the domain, is parked while its log goes
on; one that refers to a row which it can never refer to is stored and never applied. A second entry
after the same one is stored and recorded as a fork. Versions of an object are ranked by (version,
row id) on every node, so all nodes show the same one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from fourfold.errors import LimitExceeded, NotFound, Refused
from fourfold.kernel import ReadTransaction, failpoints, load_queries
from fourfold.models.graphs import fold, validation
from fourfold.models.graphs.records import Kind
from fourfold.models.graphs.rules import FIRST_POINTERS, REASON
from fourfold.models.graphs.statements import SQL, statements_of
from fourfold.models.graphs.sync import checks, incarnation, keys, log, refusals
from fourfold.models.graphs.sync.checks import Checks, VerifiedEnvelope
from fourfold.models.graphs.sync.content import ABOVE, BELOW, ContentIds, Referent, is_imported
from fourfold.models.graphs.sync.envelope import (
    DecodedEnvelope,
    EnvelopeHead,
    EnvelopeRefused,
    RowBody,
    digest,
    unpack,
)
from fourfold.models.graphs.sync.refusals import EnvelopeRefusal
from fourfold.models.graphs.validation import SHAPES
from fourfold.models.graphs.writer import GraphTransaction

if TYPE_CHECKING:
    from fourfold.models.graphs.graphs import Graphs

_SQL = load_queries("fourfold.models.graphs.sync")
PARKED_MAX: Final = 10_000
"""Rows of an author in a domain that may be parked; an envelope that would park more is refused."""
BATCH_ROWS: Final = 250
"""Rows after which a transaction takes no further envelope."""


class IngestReport(NamedTuple):
    """Result of a package: envelopes by their answer, and rows that became visible or parked."""

    accepted: int
    known: int
    refused: tuple[EnvelopeRefusal, ...]
    added: int
    parked: int


class _Acceptance(NamedTuple):
    """The answer to an envelope that was not refused."""

    known: bool = False
    added: int = 0
    parked: int = 0


_Answer: TypeAlias = _Acceptance | EnvelopeRefused


class _Pending(NamedTuple):
    """An envelope of a package that was verified, or the reason why it was refused."""

    place: int
    raw: bytes
    envelope: VerifiedEnvelope | EnvelopeRefused


class RowPlan(NamedTuple):
    """The decision about a row: share it as it is here, write it, park it until `missing`, or never
    apply it for `reason`.
    """

    local_id: int | None = None
    missing: bytes | None = None
    reason: str | None = None

    @property
    def is_applied(self) -> bool:
        """True if the row is applied now."""
        return self.reason is None


def ingest(graphs: Graphs, peer_id: int, data: bytes) -> IngestReport:
    """Import the envelopes of a package that a peer handed over."""
    from fourfold.models.graphs.sync import parking  # noqa: PLC0415 - it writes rows as this does

    raws = unpack(data)
    with graphs.database.read_current() as snapshot:
        check_peer(snapshot, peer_id)
        check_format(snapshot)
        refused_before = refusals.read_entries(snapshot, peer_id)
    accepted = known = added = parked = 0
    refused: list[EnvelopeRefusal] = []
    answered: list[bytes] = []
    for pending, answer in _iter_answers(graphs, peer_id, raws):
        if isinstance(answer, EnvelopeRefused):
            refused.append(_refusal(pending, answer))
            continue
        known += answer.known
        accepted += not answer.known
        added += answer.added
        parked += answer.parked
        if refused_before and (entry := _entry_of(pending)) in refused_before:
            answered.append(entry)
    applied = parking.apply_ready(graphs)
    if refused or answered:
        refusals.record(graphs, peer_id, refused, answered)
    return IngestReport(accepted, known, tuple(refused), added + applied, parked - applied)


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


def _iter_answers(
    graphs: Graphs, peer_id: int, raws: list[bytes]
) -> Iterator[tuple[_Pending, _Answer]]:
    """Yield the envelopes with their answers, in order, one transaction for several of them."""
    batch: list[_Pending] = []
    rows = 0
    for place, raw in enumerate(raws):
        pending = _Pending(place, raw, _verify(raw))
        batch.append(pending)
        if isinstance(pending.envelope, VerifiedEnvelope):
            rows += len(pending.envelope.parsed.rows)
        if rows >= BATCH_ROWS:
            yield from zip(batch, _answer(graphs, peer_id, batch), strict=True)
            batch, rows = [], 0
    yield from zip(batch, _answer(graphs, peer_id, batch), strict=True)


def _verify(raw: bytes) -> VerifiedEnvelope | EnvelopeRefused:
    try:
        return checks.verify(raw)
    except EnvelopeRefused as refusal:
        return refusal


def _answer(graphs: Graphs, peer_id: int, batch: list[_Pending]) -> list[_Answer]:
    """Import envelopes in one transaction; one for each if the limit of an app is reached."""
    envelopes = [pending.envelope for pending in batch]
    if not any(isinstance(envelope, VerifiedEnvelope) for envelope in envelopes):
        return [each for each in envelopes if isinstance(each, EnvelopeRefused)]
    try:
        return graphs.with_transaction(partial(_import_all, graphs, peer_id, envelopes))
    except LimitExceeded as error:
        if len(batch) > 1:
            return [_answer(graphs, peer_id, [pending])[0] for pending in batch]
        return [EnvelopeRefused("limit_exceeded", error.message, retryable=True)]


def _import_all(
    graphs: Graphs,
    peer_id: int,
    envelopes: list[VerifiedEnvelope | EnvelopeRefused],
    handle: GraphTransaction,
) -> list[_Answer]:
    work = Import(graphs, handle)
    answers: list[_Answer] = []
    for envelope in envelopes:
        if isinstance(envelope, EnvelopeRefused):
            answers.append(envelope)
            continue
        try:
            answers.append(work.take(peer_id, envelope))
        except EnvelopeRefused as refusal:
            answers.append(refusal)
    work.finish(peer_id)
    return answers


def _entry_of(pending: _Pending) -> bytes:
    """Return the id of an envelope; if it has no head, of its bytes."""
    if isinstance(pending.envelope, VerifiedEnvelope):
        return pending.envelope.parsed.id
    return digest(pending.raw)


def _refusal(pending: _Pending, reason: EnvelopeRefused) -> EnvelopeRefusal:
    head: EnvelopeHead | None = None
    if isinstance(pending.envelope, VerifiedEnvelope):
        head = pending.envelope.parsed.head
    return EnvelopeRefusal(
        pending.place,
        reason.kind,
        reason.message,
        reason.retryable,
        None if head is None else keys.to_text(head.author),
        None if head is None else head.seq,
        None if head is None else head.domain,
        _entry_of(pending).hex(),
    )


class Import:
    """Envelopes and rows of other nodes that one transaction takes."""

    def __init__(self, graphs: Graphs, handle: GraphTransaction) -> None:
        self._graphs = graphs
        self._handle = handle
        self._txn = handle.txn
        self._content = ContentIds(handle.txn, graphs.node)
        self.checks = Checks(graphs, handle.txn, self._content)
        self._begun = False
        self._logs: dict[tuple[bytes, bytes, str], int] = {}
        self._owners: dict[bytes, int] = {}
        self._types: dict[tuple[int, Kind, str], int] = {}
        self._local: dict[tuple[str, bytes], int] = {}
        """Rows that are applied in a domain, with their local ids."""
        self._objects: dict[tuple[str, bytes], tuple[str, Kind]] = {}
        """Objects that are applied in a domain, with their app and kind."""
        self._progress: dict[str, int] = {}
        self._parked: dict[tuple[str, bytes], int] = {}
        self._type_keys: dict[bytes, str] = {}
        """The types of objects that rows refer to."""

    def take(self, peer_id: int, verified: VerifiedEnvelope) -> _Acceptance:
        """Check an envelope, then write it.

        Raises:
            EnvelopeRefused: with the first reason; nothing was written.
        """
        if self.checks.is_known(peer_id, verified):
            return _Acceptance(known=True)
        parsed = verified.parsed
        head = parsed.head
        plans = self._plan(parsed)
        if failpoints.armed:
            failpoints.hit("graphs.sync.checked")
        self._begun = False
        self._append(parsed)
        for row_id, body, data, plan in zip(
            head.rows, parsed.rows, parsed.envelope.bodies, plans, strict=True
        ):
            self._place(head, (row_id, body, data), plan)
        if failpoints.armed:
            failpoints.hit("graphs.sync.written")
        self._progress[head.domain] = self._progress.get(head.domain, 0) + 1
        added = sum(plan.is_applied and plan.local_id is None for plan in plans)
        return _Acceptance(added=added, parked=sum(not plan.is_applied for plan in plans))

    def finish(self, peer_id: int) -> None:
        """Count the envelopes that were accepted."""
        for domain, count in self._progress.items():
            self._txn.execute(_SQL.add_progress, (peer_id, domain, count))

    # What becomes of each row

    def _plan(self, parsed: DecodedEnvelope) -> list[RowPlan]:
        """Decide about the rows of an envelope; refuse it if it would park too many."""
        head = parsed.head
        fresh: dict[bytes, bool] = {}
        plans = []
        for row_id, body in zip(head.rows, parsed.rows, strict=True):
            if body.object is None:
                self._type_keys[row_id] = body.type
            plan = self._plan_row(head.domain, row_id, body, fresh)
            fresh[row_id] = plan.is_applied
            plans.append(plan)
        if parked := sum(not plan.is_applied for plan in plans):
            count = self._count_parked(head.domain, head.author) + parked
            if count > PARKED_MAX:
                raise EnvelopeRefused(
                    "limit_exceeded",
                    f"{PARKED_MAX} rows of the author are parked already",
                    retryable=True,
                )
            self._parked[head.domain, head.author] = count
        return plans

    def _count_parked(self, domain: str, author: bytes) -> int:
        key = domain, author
        if key not in self._parked:
            self._parked[key] = int(self._txn.value(_SQL.count_parked, (*key, PARKED_MAX)))
        return self._parked[key]

    def _plan_row(
        self, domain: str, row_id: bytes, body: RowBody, fresh: dict[bytes, bool]
    ) -> RowPlan:
        stored = self._content.find(row_id)
        if stored is None:
            stored = self._content.find_own(row_id, self.checks.app_id(body.app), body)
        if stored is not None and stored.local_id is not None:
            return RowPlan(stored.local_id)
        return self.plan_targets(domain, body, fresh)

    def plan_targets(self, domain: str, body: RowBody, fresh: dict[bytes, bool]) -> RowPlan:
        """Decide about a row by what it refers to; `fresh` are the rows before it."""
        missing = None
        for kind, target in checks.targets_of(body):
            if fresh.get(target) or self._objects.get((domain, target)) == (body.app, kind):
                continue
            referent = None if target in fresh else self._find(domain, target)
            fault = None if referent is None else checks.target_fault(body, kind, referent.body)
            if fault is not None:
                return RowPlan(reason=fault)
            if referent is not None:
                self._type_keys[target] = referent.body.type
            if referent is None or referent.local_id is None or not referent.is_member:
                missing = missing or target
            else:
                self._objects[domain, target] = (body.app, kind)
        if body.object is not None and missing is None and not fresh.get(body.object):
            referent = None if body.object in fresh else self._find(domain, body.object)
            if referent is None or referent.local_id is None or not referent.is_member:
                missing = body.object
        if missing is not None:
            return RowPlan(missing=missing, reason="missing")
        broken = self._broken_rule(body)
        return RowPlan() if broken is None else RowPlan(reason=f"{REASON}{broken}")

    def _broken_rule(self, body: RowBody) -> str | None:
        """Return why a row, whose targets are here, breaks a rule of its type, or None."""
        rules = self._handle.rules(self.checks.app_id(body.app))
        if rules is None:
            return None
        ends = {name: self._type_keys[target] for name, target in checks.pointers_of(body)}
        on = ends.get(FIRST_POINTERS[body.kind][0]) if body.kind in FIRST_POINTERS else None
        values = {name: getattr(body, name) for name in checks.VALUES}
        return rules.fault(body.kind, body.type, on, ends.get("dst_parent_id"), values)

    def _find(self, domain: str, row_id: bytes) -> Referent | None:
        return self._content.find_referent(domain, row_id)

    # Writes

    def _append(self, parsed: DecodedEnvelope) -> None:
        """Append the envelope to its log, and record what that proves."""
        head, txn = parsed.head, self._txn
        if incarnation.known(txn) == head.incarnation and txn.value(_SQL.is_signer, (head.author,)):
            # A key of this node signed an entry that this node does not have: it was restored.
            incarnation.renew(txn, self._graphs.database.path)
        key = head.author, head.incarnation, head.domain
        log_id = self._logs.get(key)
        if log_id is None:
            log_id = self._logs[key] = log.log_of(txn, *key)
        other = txn.value(_SQL.follower, (log_id, head.prev, head.seq))
        if other is not None:
            params = (log_id, head.seq, other, parsed.id, self._handle.now)
            txn.execute(_SQL.add_fork, params)
        log.append(txn, log_id, head, parsed.envelope)

    def _place(self, head: EnvelopeHead, row: tuple[bytes, RowBody, bytes], plan: RowPlan) -> None:
        """Store a row of a domain as it was planned."""
        txn, domain, (row_id, body, data) = self._txn, head.domain, row
        txn.execute(_SQL.add_member, (domain, row_id))
        app_id = self.checks.app_id(body.app)
        if plan.local_id is not None:
            txn.execute(_SQL.put_row, (row_id, app_id, body.kind, plan.local_id, data))
            self.share(domain, app_id, body.kind, plan.local_id)
        elif plan.is_applied:
            self.write(domain, row_id, body, head.seq, data)
        else:
            txn.execute(_SQL.put_row, (row_id, app_id, body.kind, None, data))
            self.park(domain, row_id, body.owner, plan)

    def park(self, domain: str, row_id: bytes, author: bytes, plan: RowPlan) -> None:
        """Store why a row is not applied in a domain."""
        self._txn.execute(_SQL.park, (row_id, domain, plan.missing, plan.reason, author))

    def share(self, domain: str, app_id: int, kind: Kind, local_id: int) -> None:
        """Add the flags of a domain to a row that is here."""
        self._handle.add_flags(app_id, kind, f"[{local_id}]", self.checks.mask(domain))

    def write(
        self, domain: str, row_id: bytes, body: RowBody, origin_seq: int, data: bytes | None
    ) -> None:
        """Write a row whose targets are here to the table of its app."""
        handle, kind, app_id = self._handle, body.kind, self.checks.app_id(body.app)
        if not self._begun:
            # Rows of an envelope stay together under one seq.
            handle.start_seq()
            self._begun = True
        owner, type_id = self._owner(body.owner), self._type_id(app_id, kind, body.type)
        local_id = handle.next_id(app_id, kind)
        object_id = local_id if body.object is None else self._local_id(domain, body.object)
        pointers = {
            name: self._local_id(domain, target) for name, target in checks.pointers_of(body)
        }
        flags = self.checks.mask(domain)
        columns = checks.columns_of(body, pointers, type_id, owner, flags)
        values, size = SHAPES[kind].read(columns, handle.seq, "")
        sign, leads = ABOVE, True
        if body.object is not None:
            sign, leads = self._rank(app_id, object_id, body, row_id)
        place = (object_id, body.version, sign + row_id.hex(), origin_seq, handle.position)
        handle.insert_synced(app_id, kind, (local_id, *values, *place, int(leads)), flags, size)
        self._txn.execute(_SQL.put_row, (row_id, app_id, kind, local_id, data))
        self._local[domain, row_id] = local_id
        if body.object is None:
            self._objects[domain, row_id] = (body.app, kind)

    def _owner(self, owner: bytes) -> int:
        if owner not in self._owners:
            self._owners[owner] = self._handle.identity(keys.to_text(owner))
        return self._owners[owner]

    def _type_id(self, app_id: int, kind: Kind, type_key: str) -> int:
        key = app_id, kind, type_key
        if key not in self._types:
            self._types[key] = self._handle.type_id(*key)
        return self._types[key]

    def _rank(self, app_id: int, object_id: int, body: RowBody, row_id: bytes) -> tuple[str, bool]:
        """Return the sign that ranks a version against those that were not imported, and whether
        it leads its object.
        """
        newest = self._handle.newest(app_id, body.kind, object_id)
        sign = ABOVE
        if body.version <= newest.version:
            sql = statements_of(app_id, body.kind).rows_of_version
            for (local_id,) in self._txn.all(sql, (object_id, body.version)):
                row = self._content.row(app_id, body.kind, int(local_id))
                other = None if is_imported(row) else self._content.id_of(app_id, body.kind, row.id)
                if other is not None and row_id < other:
                    sign = BELOW
        leads = (body.version, sign + row_id.hex()) > fold.rank(newest, self._graphs.node)
        return sign, leads

    def _local_id(self, domain: str, row_id: bytes) -> int:
        known = self._local.get((domain, row_id))
        if known is not None:
            return known
        stored = self._content.find(row_id)
        assert stored is not None
        assert stored.local_id is not None
        self._local[domain, row_id] = stored.local_id
        return stored.local_id
