"""Admission of a transaction: replays, branches, preconditions, and conflicts with its reads.

A conflict is found by path: a later set or delete of an entity conflicts with any read of it, a
later patch only with reads of what it touches. The check may call a conflict where there is none,
never the other way round. It looks through the whole chain of a branch, since a write that a child
inherits can be as new to the reader as one of the child's own.

Old revisions are not checked while the writer is held: past a number of revisions a transaction
ends with `ReadTooOld`. `check_committed` then checks what is committed without the writer, page by
page, and the next attempt has only the rest to check. Each page is a separate read transaction: the
write-ahead log grows for as long as an older state of the space is being read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple

from fourfold.errors import (
    BranchEnded,
    InvalidInput,
    PreconditionFailed,
    ReplayMismatch,
    StaleRead,
)
from fourfold.kernel.pauses import Pauses
from fourfold.models.documents import overlap, reader
from fourfold.models.documents.ancestry import (
    BranchLink,
    branch_named,
    chain,
    last_seq,
    no_such_branch,
)
from fourfold.models.documents.cache import CacheEntry, Key, LogEnd
from fourfold.models.documents.encoding import stored
from fourfold.models.documents.gc.commit_digests import same_request
from fourfold.models.documents.history import HistoryReader, Row
from fourfold.models.documents.records import Branch, Commit, ConfirmedRead, PendingRead
from fourfold.models.documents.request import DocumentRequest, WriteCounts

LOOK_BACK_ROWS: Final = 256
"""Revisions that are read in one transaction when a read is checked without the writer."""


def replayed(view: HistoryReader, request: DocumentRequest) -> Commit | None:
    """Return the commit of the same request if it was accepted before; refuse a different one.

    This precedes every other check: what was accepted stays accepted, even if the branch has ended
    since.
    """
    row = view.one(view.sql.commit_of_session, (request.session, request.local_seq))
    if row is None:
        return None
    seq, branch, original, _ = row
    if not same_request(original, branch, request.local_seq, request.original):
        raise ReplayMismatch(
            f"session {request.session!r} already sent another transaction as local_seq "
            f"{request.local_seq}; it became seq {seq}",
            details={"session": request.session, "local_seq": request.local_seq, "seq": seq},
        )
    # Its rows may have been collected since, but it is this request that wrote them.
    revisions = WriteCounts(request, seq)
    return Commit(seq, branch, request.session, request.local_seq, revisions, replayed=True)


def standing(view: HistoryReader, name: str) -> LogEnd:
    """Return the end of the log, if the branch `name` can be written."""
    row = view.one(view.sql.standing, (name,))
    if row is None:
        raise no_such_branch(name)
    status, newest, moment = row
    if status != "active":
        raise _ended(name)
    return LogEnd(newest, moment)


def active_branch(view: HistoryReader, name: str) -> Branch:
    """Return a branch that can be written; raise if it is unknown or has ended."""
    branch = branch_named(view, name)
    if not branch.active:
        raise _ended(name)
    return branch


def _ended(name: str) -> BranchEnded:
    return BranchEnded(f"the branch {name!r} was deleted; it can be read, not written")


class ReadTooOld(Exception):
    """A transaction builds on a read so old that the writer would be held for long."""


class ReadCheck(NamedTuple):
    """The result of a check without the writer: it holds for every revision up to `until`."""

    until: int
    conflict_seq: int | None
    """The newest revision among them that overlaps the read."""


class OldReads:
    """Old reads of a transaction, and the number of revisions that it may still check.

    `looked` has a result for each read that was checked before, by its index among all reads.
    """

    def __init__(
        self, looked: Mapping[int, ReadCheck] | None = None, rows_max: int | None = None
    ) -> None:
        self.looked = looked or {}
        self._left = rows_max

    def count(self) -> None:
        """Count one more revision."""
        if self._left is None:
            return
        if not self._left:
            raise ReadTooOld
        self._left -= 1


def check_reads(
    view: HistoryReader,
    request: DocumentRequest,
    newest: int,
    cached: Callable[[Key], CacheEntry | None],
    lookback: OldReads,
) -> list[dict[str, int]]:
    """Refuse a transaction whose author read something that has changed since.

    Returns the resolved pending reads. `known` returns the newest state of an entity that is in
    memory, or None.
    """
    confirmed = request.reads.confirmed
    for place, read in enumerate(confirmed):
        branch = request.branch
        if read.branch is not None and read.branch != branch:
            branch = branch_named(view, read.branch).name
        if not 0 <= read.seq <= newest:
            raise InvalidInput(
                f"the read of {read.id!r} is at seq {read.seq}; the newest is {newest}"
            )
        entry = cached((branch, read.id))
        if entry is not None and entry.seq <= read.seq:
            # What the branch shows has not changed since.
            continue
        _refuse_stale(view, chain(view, branch, newest), read, read.seq, (), place, lookback)
    return [
        resolved
        for place, read in enumerate(request.reads.pending, len(confirmed))
        for resolved in _check_pending(view, request, read, newest, place, lookback)
    ]


def _check_pending(  # noqa: PLR0917
    view: HistoryReader,
    request: DocumentRequest,
    read: PendingRead,
    newest: int,
    place: int,
    lookback: OldReads,
) -> list[dict[str, int]]:
    if not read.local_seqs or not 0 <= read.basis_seq <= newest:
        raise InvalidInput(
            f"the pending read of {read.id!r} needs local_seqs and a basis_seq up to {newest}"
        )
    resolved = []
    for local_seq in sorted(set(read.local_seqs)):
        row = view.one(view.sql.commit_of_session, (request.session, local_seq))
        if row is None:
            raise StaleRead(
                f"the read of {read.id!r} builds on local_seq {local_seq}, which was not accepted",
                details={"entity": read.id, "local_seq": local_seq},
            )
        resolved.append({"local_seq": local_seq, "seq": row[0]})
    own = [confirmed["seq"] for confirmed in resolved]
    links = chain(view, request.branch, newest)
    _refuse_stale(view, links, read, read.basis_seq, own, place, lookback)
    return resolved


def _refuse_stale(  # noqa: PLR0917
    view: HistoryReader,
    links: Sequence[BranchLink],
    read: ConfirmedRead | PendingRead,
    after: int,
    own: Sequence[int],
    place: int,
    lookback: OldReads,
) -> None:
    before = lookback.looked.get(place, ReadCheck(after, None))
    log = LaterRevisions(view)
    seq = _newest_conflict(log, links, read, max(after, before.until), own, lookback)
    if seq is None:
        seq = before.conflict_seq
    if seq is not None:
        raise StaleRead(
            f"{read.id!r} was read at seq {after} and changed at seq {seq}",
            details={"entity": read.id, "read_seq": after, "conflict_seq": seq},
        )


def _newest_conflict(  # noqa: PLR0917
    log: LaterRevisions,
    links: Sequence[BranchLink],
    read: ConfirmedRead | PendingRead,
    after: int,
    own: Sequence[int],
    lookback: OldReads,
) -> int | None:
    """Return the newest revision after a seq that overlaps what was read, of others' revisions."""
    for link in links:
        if link.cap <= after:
            # The caps shrink along the chain, so older branches have nothing newer either.
            return None
        changed = False
        key = (link.branch, read.id, after, link.cap)
        for seq, op, data, _ in log.iter_rows(key):
            changed = True
            if seq in own:
                continue
            lookback.count()
            patches = stored(data) if op == "patch" else ()
            if overlap.conflicts(op, patches, read.path, shape=read.shape):
                return int(seq)
        # What was collected is gone, but there is always a newer change that stayed.
        if changed and (lost := log.lost_seq(key)) is not None:
            return int(lost)
    return None


_Key = tuple[str, str, int, int]
"""Branch, entity, and the seqs after and until which revisions are read."""


class LaterRevisions:
    """Revisions of an entity after a seq, newest first, as one transaction sees them."""

    def __init__(self, view: HistoryReader) -> None:
        self._view = view

    def iter_rows(self, key: _Key) -> Iterator[Row]:
        """Yield seq, op, data and commit of each revision."""
        return self._view.rows(self._view.sql.later_revisions, (*key, -1))

    def lost_seq(self, key: _Key) -> int | None:
        """Return the newest of the revisions that garbage collection removed, if any."""
        return _lost_seq(self._view, key)


class RevisionPages(LaterRevisions):
    """Revisions of an entity in pages, each read in a transaction of its own, with pauses.

    Rows that garbage collection removes meanwhile are found by `lost_seq`, which is read last.
    """

    def __init__(
        self, open_view: Callable[[], AbstractContextManager[HistoryReader]], pauses: Pauses
    ) -> None:
        self.open_view = open_view
        self._pauses = pauses

    def iter_rows(self, key: _Key) -> Iterator[Row]:
        """Yield seq, op, data and commit of each revision."""
        *entity, until = key
        self._pauses.start()
        seen = 0
        while True:
            with self.open_view() as view:
                # The page begins with the rows of the seq that the last one ended in.
                params = (*entity, until, LOOK_BACK_ROWS + seen)
                rows = view.all(view.sql.later_revisions, params)
            for row in rows[seen:]:
                self._pauses.pause()
                yield row
            if len(rows) < LOOK_BACK_ROWS + seen:
                return
            until = rows[-1][0]
            seen = sum(row[0] == until for row in rows)

    def lost_seq(self, key: _Key) -> int | None:
        """Return the newest of the revisions that garbage collection removed, if any."""
        with self.open_view() as view:
            return _lost_seq(view, key)


def _lost_seq(view: HistoryReader, key: _Key) -> int | None:
    seq = view.value(view.sql.lost_revision, key)
    return None if seq is None else int(seq)


def check_committed(
    pages: RevisionPages, request: DocumentRequest, looked: Mapping[int, ReadCheck]
) -> dict[int, ReadCheck]:
    """Check the reads against the commits that earlier rounds have not checked."""
    checks = []
    with pages.open_view() as view:
        newest = last_seq(view)
        for place, (read, branch, after, own) in enumerate(_reads_of(view, request)):
            # A read that is wrong in itself is refused when the transaction comes to it.
            if 0 <= after <= newest and view.one(view.sql.branch, (branch,)) is not None:
                checks.append((place, read, after, own, chain(view, branch, newest)))
    entries = dict(looked)
    for place, read, after, own, links in checks:
        before = looked.get(place, ReadCheck(after, None))
        seq = _newest_conflict(pages, links, read, max(after, before.until), own, OldReads())
        entries[place] = ReadCheck(newest, before.conflict_seq if seq is None else seq)
    return entries


def _reads_of(
    view: HistoryReader, request: DocumentRequest
) -> Iterator[tuple[ConfirmedRead | PendingRead, str, int, list[int]]]:
    """Yield every read with its branch, its seq, and the commits that do not count against it."""
    for confirmed in request.reads.confirmed:
        branch = request.branch if confirmed.branch is None else confirmed.branch
        yield confirmed, branch, confirmed.seq, []
    for pending in request.reads.pending:
        rows = (
            view.one(view.sql.commit_of_session, (request.session, local_seq))
            for local_seq in pending.local_seqs
        )
        own = [row[0] for row in rows if row is not None]
        yield pending, request.branch, pending.basis_seq, own


def check_preconditions(view: HistoryReader, request: DocumentRequest, newest: int) -> None:
    """Raise unless every precondition of a commit holds."""
    for condition in request.preconditions:
        kind = condition.get("kind")
        if kind == "committed":
            _committed(view, request, condition)
        elif kind == "absent":
            _absent(view, chain(view, request.branch, newest), condition)
        elif kind in {"exists", "not_exists"}:
            _exists(view, chain(view, request.branch, newest), condition)
        elif kind == "seq":
            _at_seq(view, chain(view, request.branch, newest), condition)
        elif kind == "in_order":
            _in_order(view, request)
        else:
            raise InvalidInput(
                f"{kind!r} is not a precondition",
                hint="Use committed, absent, exists, not_exists, seq or in_order.",
            )


def _committed(view: HistoryReader, request: DocumentRequest, condition: dict[str, Any]) -> None:
    local_seq = condition.get("local_seq")
    if view.one(view.sql.commit_of_session, (request.session, local_seq)) is None:
        raise PreconditionFailed(
            f"local_seq {local_seq} of session {request.session!r} was not accepted"
        )


def _in_order(view: HistoryReader, request: DocumentRequest) -> None:
    """Raise if the session has continued already: later requests were made without this one."""
    latest = view.value(view.sql.latest_local_seq, (request.session,))
    if latest is not None and latest > request.local_seq:
        raise PreconditionFailed(
            f"local_seq {request.local_seq} of session {request.session!r} is too old: "
            f"{latest} was accepted before it",
            details={"session": request.session, "local_seq": request.local_seq},
        )


def _absent(view: HistoryReader, links: Sequence[BranchLink], condition: dict[str, Any]) -> None:
    entity = condition.get("id", "")
    entry = reader.entry(view, links, entity)
    if entry is not None:
        raise PreconditionFailed(
            f"{entity!r} was written at seq {entry.seq}, so it is not absent",
            details={"entity": entity, "conflict_seq": entry.seq},
        )


def _exists(view: HistoryReader, links: Sequence[BranchLink], condition: dict[str, Any]) -> None:
    """Check whether an entity has a document; a deleted one has none, unlike for `absent`."""
    entity = condition.get("id", "")
    entry = reader.entry(view, links, entity)
    exists = entry is not None and entry.op != "delete"
    if exists != (condition["kind"] == "exists"):
        raise PreconditionFailed(
            f"{entity!r} {'already exists' if exists else 'does not exist'}",
            details={"entity": entity, "conflict_seq": 0 if entry is None else entry.seq},
        )


def _at_seq(view: HistoryReader, links: Sequence[BranchLink], condition: dict[str, Any]) -> None:
    entity = condition.get("id", "")
    entry = reader.entry(view, links, entity)
    at = 0 if entry is None else entry.seq
    if at != condition.get("seq"):
        raise PreconditionFailed(
            f"{entity!r} is at seq {at}, not {condition.get('seq')}",
            details={"entity": entity, "conflict_seq": at},
        )
