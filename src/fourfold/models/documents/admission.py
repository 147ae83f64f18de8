"""Whether a transaction may go in: replays, branches, preconditions, and what its author had read.

A conflict is found by path: a later set or delete of an entity conflicts with any read of it, a
later patch only with reads of what it touches. The check may call a conflict where there is none,
never the other way round. It looks through the whole chain of a branch, since a write that a child
inherits can be as new to the reader as one of the child's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fourfold.errors import (
    BranchEnded,
    InvalidInput,
    PreconditionFailed,
    ReplayMismatch,
    StaleRead,
)
from fourfold.models.documents import overlap, reader
from fourfold.models.documents.cache import Entry, Key, Standing
from fourfold.models.documents.chain import Link, branch_named, chain, no_such_branch
from fourfold.models.documents.encoding import stored
from fourfold.models.documents.gc.requests import same_request
from fourfold.models.documents.history import View
from fourfold.models.documents.records import Branch, Commit, PendingRead
from fourfold.models.documents.request import Request, Written


def replayed(view: View, request: Request) -> Commit | None:
    """The commit that this very request became when it came before; refuses another one under its
    name.

    This comes before every other check: what was accepted stays accepted, also when the branch has
    ended since.
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
    revisions = Written(request, seq)
    return Commit(seq, branch, request.session, request.local_seq, revisions, replayed=True)


def standing(view: View, name: str) -> Standing:
    """Where the log is, if the branch `name` can be written."""
    row = view.one(view.sql.standing, (name,))
    if row is None:
        raise no_such_branch(name)
    status, newest, moment = row
    if status != "active":
        raise _ended(name)
    return Standing(newest, moment)


def active_branch(view: View, name: str) -> Branch:
    branch = branch_named(view, name)
    if not branch.active:
        raise _ended(name)
    return branch


def _ended(name: str) -> BranchEnded:
    return BranchEnded(f"the branch {name!r} was deleted; it can be read, not written")


def check_reads(
    view: View, request: Request, newest: int, known: Callable[[Key], Entry | None]
) -> list[dict[str, int]]:
    """Refuse a transaction whose author read something that has changed since; the resolved pending
    reads. `known` gives the newest state of an entity, if that is in memory.
    """
    for read in request.reads.confirmed:
        branch = request.branch
        if read.branch is not None and read.branch != branch:
            branch = branch_named(view, read.branch).name
        if not 0 <= read.seq <= newest:
            raise InvalidInput(
                f"the read of {read.id!r} is at seq {read.seq}; the newest is {newest}"
            )
        entry = known((branch, read.id))
        if entry is not None and entry.seq <= read.seq:
            # What the branch shows has not changed since.
            continue
        _refuse_stale(
            view, chain(view, branch, newest), read.id, read.path, read.seq, shape=read.shape
        )
    return [
        resolved
        for read in request.reads.pending
        for resolved in _check_pending(view, request, read, newest)
    ]


def _check_pending(
    view: View, request: Request, read: PendingRead, newest: int
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
    own = {each["seq"] for each in resolved}
    links = chain(view, request.branch, newest)
    _refuse_stale(view, links, read.id, read.path, read.basis_seq, shape=read.shape, own=own)
    return resolved


def _refuse_stale(
    view: View,
    links: Sequence[Link],
    entity: str,
    path: Sequence[str],
    after: int,
    *,
    shape: bool,
    own: set[int] = frozenset(),  # type: ignore[assignment]
) -> None:
    for link in links:
        if link.cap <= after:
            # The caps shrink along the chain, so older branches have nothing newer either.
            return
        changed = False
        for seq, op, data, _ in view.rows(
            view.sql.later_revisions, (link.branch, entity, after, link.cap)
        ):
            changed = True
            if seq in own:
                continue
            patches = stored(data) if op == "patch" else ()
            if overlap.conflicts(op, patches, path, shape=shape):
                raise _stale(entity, after, seq)
        # What was collected is gone, but there is always a newer change that stayed.
        place = (link.branch, entity, after, link.cap)
        if changed and (lost := view.value(view.sql.lost_revision, place)) is not None:
            raise _stale(entity, after, lost)


def _stale(entity: str, after: int, seq: int) -> StaleRead:
    return StaleRead(
        f"{entity!r} was read at seq {after} and changed at seq {seq}",
        details={"entity": entity, "read_seq": after, "conflict_seq": seq},
    )


def check_preconditions(view: View, request: Request, newest: int) -> None:
    for condition in request.preconditions:
        kind = condition.get("kind")
        if kind == "committed":
            _committed(view, request, condition)
        elif kind == "absent":
            _absent(view, chain(view, request.branch, newest), condition)
        elif kind == "seq":
            _at_seq(view, chain(view, request.branch, newest), condition)
        elif kind == "in_order":
            _in_order(view, request)
        else:
            raise InvalidInput(
                f"{kind!r} is not a precondition", hint="Use committed, absent, seq or in_order."
            )


def _committed(view: View, request: Request, condition: dict[str, Any]) -> None:
    local_seq = condition.get("local_seq")
    if view.one(view.sql.commit_of_session, (request.session, local_seq)) is None:
        raise PreconditionFailed(
            f"local_seq {local_seq} of session {request.session!r} was not accepted"
        )


def _in_order(view: View, request: Request) -> None:
    """Whether the session has not gone on already: what overtook this request was made without
    it.
    """
    latest = view.value(view.sql.latest_local_seq, (request.session,))
    if latest is not None and latest > request.local_seq:
        raise PreconditionFailed(
            f"local_seq {request.local_seq} of session {request.session!r} comes too late: "
            f"{latest} was accepted before it",
            details={"session": request.session, "local_seq": request.local_seq},
        )


def _absent(view: View, links: Sequence[Link], condition: dict[str, Any]) -> None:
    entity = condition.get("id", "")
    found = reader.entry(view, links, entity)
    if found is not None:
        raise PreconditionFailed(
            f"{entity!r} was written at seq {found.seq}, so it is not absent",
            details={"entity": entity, "conflict_seq": found.seq},
        )


def _at_seq(view: View, links: Sequence[Link], condition: dict[str, Any]) -> None:
    entity = condition.get("id", "")
    found = reader.entry(view, links, entity)
    at = 0 if found is None else found.seq
    if at != condition.get("seq"):
        raise PreconditionFailed(
            f"{entity!r} is at seq {at}, not {condition.get('seq')}",
            details={"entity": entity, "conflict_seq": at},
        )
