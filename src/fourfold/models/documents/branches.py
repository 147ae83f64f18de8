"""Branches of a space: each starts as a view of its parent at a seq, without copying anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from fourfold import html, limits
from fourfold.content import content_id
from fourfold.errors import (
    AlreadyExists,
    BranchEnded,
    InvalidInput,
    NotFound,
    Refused,
    ReplayMismatch,
)
from fourfold.kernel import Transaction
from fourfold.models.documents import comparison
from fourfold.models.documents import merge as merge_module
from fourfold.models.documents.ancestry import (
    At,
    BranchPoint,
    branch_named,
    chain,
    seq_of,
    since,
    target_of,
)
from fourfold.models.documents.encoding import decode, trusted
from fourfold.models.documents.history import AppendedRows, History, HistoryReader
from fourfold.models.documents.records import Branch, Distance
from fourfold.models.documents.resolutions import Resolutions
from fourfold.models.documents.validation import check_branch, check_session
from fourfold.tabular import Rows

if TYPE_CHECKING:
    from fourfold.models.documents.space import Space

SEQ_MAX: Final = 2**63 - 1
DISTANCE_MAX: Final = 1_000
"""Commits that are counted on each side of a distance."""


class Branches:
    """The branches of one space. Creating or deleting one is a commit with a seq."""

    def __init__(self, space: Space) -> None:
        self._space = space

    def create(
        self,
        name: str,
        parent: str = "",
        at: At = None,
        *,
        session: str | None = None,
        local_seq: int | None = None,
    ) -> Branch:
        """Create a branch that shows `parent` at `at`, by default now. Names are never reused.

        Args:
            name: The name of the new branch.
            parent: The branch to fork; "" is the default branch.
            at: A seq or a datetime.
            session: With `local_seq`, identifies the request, as in `Space.transact`.
            local_seq: The number of the request within its session.

        Raises:
            AlreadyExists: A branch of that name exists, or existed.
            ReplayMismatch: Another request had the same session and local_seq.
        """
        check_branch(name)
        command = {"cmd": "branch/create", "name": name, "parent": parent, "at": _at_text(at)}
        identity = _Identity.of(session, local_seq, command)

        def work(txn: Transaction) -> Branch:
            view = self._history.view(txn)
            if identity is not None and identity.is_replayed(view):
                return branch_named(view, name)
            if view.one(view.sql.branch, (name,)) is not None:
                raise AlreadyExists(
                    f"branch {name!r} already exists, or existed",
                    hint="Choose another name; names of deleted branches are not reused.",
                )
            origin = branch_named(view, parent)
            fork = target_of(view, parent, at)
            depth = len(chain(view, parent, fork))
            if depth > limits.BRANCH_DEPTH_MAX:
                raise InvalidInput(
                    f"{name!r} would be nested {depth} deep, beyond {limits.BRANCH_DEPTH_MAX}",
                    hint="Fork an older ancestor, or merge first.",
                )
            original = {"cmd": "branch/create", "name": name, "parent": origin.name, "at": fork}
            seq = self._lifecycle(txn, name, original, identity)
            txn.execute(view.sql.insert_branch, (name, origin.name, fork, seq))
            return branch_named(view, name)

        return self._space.database.transact(work)

    def delete(
        self, name: str, *, session: str | None = None, local_seq: int | None = None
    ) -> Branch:
        """Delete a branch: it can no longer be written, but its history stays readable.

        Branches that were created from it are not affected. `session` and `local_seq` identify the
        request, as in `Space.transact`.
        """
        if not name:
            raise Refused("the default branch cannot be deleted")
        identity = _Identity.of(session, local_seq, {"cmd": "branch/delete", "name": name})

        def work(txn: Transaction) -> Branch:
            view = self._history.view(txn)
            if identity is not None and identity.is_replayed(view):
                return branch_named(view, name)
            if not branch_named(view, name).active:
                raise BranchEnded(f"branch {name!r} is already deleted")
            self._lifecycle(txn, name, {"cmd": "branch/delete", "name": name}, identity)
            txn.execute(view.sql.end_branch, (name,))
            return branch_named(view, name)

        return self._space.database.transact(work)

    def get(self, name: str, *, at: At = None) -> Branch:
        """Return a branch, also a deleted one, now or as it was at a seq or a datetime.

        Raises:
            NotFound: There is no branch of that name, or there was none at that point.
        """
        with self._space.view() as view:
            branch = branch_named(view, name)
            if at is None:
                return branch
            seq = seq_of(view, at)
            if branch.created_seq > seq:
                raise NotFound(
                    f"branch {name!r} did not exist at seq {seq}; "
                    f"it was created at {branch.created_seq}"
                )
            return _branch_at(view, branch, seq)

    def list(self, *, deleted: bool = False, at: At = None) -> Rows[Branch]:
        """Return the active branches in the order of creation; with `deleted`, all of them.

        With `at`, a seq or a datetime, they are the branches that existed then, as they were.
        """
        with self._space.view() as view:
            branches = [Branch(*row) for row in view.rows(view.sql.branches)]
            if at is not None:
                seq = seq_of(view, at)
                branches = [
                    _branch_at(view, branch, seq)
                    for branch in branches
                    if branch.created_seq <= seq
                ]
        return Rows((branch for branch in branches if branch.active or deleted), Branch)

    def distance(self, name: str, *, at: At = None) -> Distance | None:
        """Count the commits that a branch and its parent do not share, now or at a point.

        Each side is counted up to 1,000. What a merge brought over is shared. The default branch
        has no parent: None.

        Raises:
            NotFound: There is no branch of that name, or there was none at that point.
        """
        branch = self.get(name, at=at)
        if branch.parent is None:
            return None
        with self._space.view() as view:
            seq = seq_of(view, at)
            ours, theirs = BranchPoint(name, seq), BranchPoint(branch.parent, seq)
            return Distance(_count(view, ours, theirs), _count(view, theirs, ours))

    def diff(
        self,
        a: str,
        b: str,
        at_a: At = None,
        at_b: At = None,
        ids: Iterable[str] | None = None,
    ) -> comparison.Difference:
        """Return the differences between two branches, each now or at its own point.

        Each change tells on which side the entity differs from their common base. With `ids`, only
        these entities are compared.
        """
        with self._space.view() as view:
            for name in (a, b):
                branch_named(view, name)
            point_a = BranchPoint(a, target_of(view, a, at_a))
            point_b = BranchPoint(b, target_of(view, b, at_b))
            return comparison.compare(view, point_a, point_b, ids)

    def merge(
        self,
        source: str,
        target: str = "",
        *,
        resolutions: Resolutions | None = None,
        field_level: bool = True,
        session: str | None = None,
        local_seq: int | None = None,
        dry_run: bool = False,
        heads: tuple[int, int] | None = None,
    ) -> merge_module.MergeResult:
        """Merge the changes of `source` into `target`, as one commit on `target`.

        Args:
            source: The branch to merge from; it may be deleted.
            target: The branch to merge into; "" is the default branch.
            resolutions: Decisions for conflicts. A key is an id, and its value a document, None
                (delete the entity), OURS (the target wins) or THEIRS (the source wins). Or a key
                is `(id, path)`, and its value a JSON value, ABSENT, OURS or THEIRS.
            field_level: Merge the fields of a document one by one; otherwise an entity that both
                changed is a conflict.
            session: With `local_seq`, identifies the request, as in `Space.transact`.
            local_seq: The number of the request within its session.
            dry_run: Write nothing; the result lists operations and conflicts.
            heads: The `heads` of a dry run: refuse to merge anything else than it showed.

        Raises:
            PreconditionFailed: A branch was written since the dry run that `heads` is from.
            MergeConflicted: Both branches changed the same thing; nothing was written, and
                `details` lists the conflicts.
        """
        request = merge_module.ask(source, target, resolutions, field_level=field_level)
        return merge_module.merge(
            *(self._space, request),
            session=session,
            local_seq=local_seq,
            dry_run=dry_run,
            heads=heads,
        )

    def __iter__(self) -> Iterator[Branch]:
        """Yield the active branches in the order of creation."""
        return iter(self.list())

    def __repr__(self) -> str:
        return f"<Branches of {self._space.did}>"

    def _repr_html_(self) -> str:
        return html.fragment(
            html.Html(self.list()._repr_html_()), caption=f"Branches of {self._space.did}"
        )

    def _lifecycle(
        self, txn: Transaction, name: str, original: dict[str, Any], identity: _Identity | None
    ) -> int:
        """Commit the creation or deletion of a branch: a seq without revisions."""
        seq = txn.claim(self._history.seq)
        if identity is None:
            session, local_seq = self._space.next_local()
        else:
            session, local_seq = identity.session, identity.local_seq
            original = {**original, "asked": identity.asked}
        self._history.append(
            txn, AppendedRows(seq, name, session, local_seq, trusted(original), ())
        )
        # The watches of a deleted branch end; a new branch has no watches.
        waiters = self._space.waiters
        ends = original["cmd"] == "branch/delete"
        txn.after_commit(waiters.notify_all if ends else lambda: waiters.notify(seq, name, ()))
        return seq

    @property
    def _history(self) -> History:
        return self._space.history_kind


def _branch_at(view: HistoryReader, branch: Branch, seq: int) -> Branch:
    """Return a branch as it was at a seq, at or after its creation."""
    newest = view.value(view.sql.newest_commit_of_branch, (branch.name, SEQ_MAX))
    if newest is None or newest <= seq:
        return branch
    # The commit that deletes a branch is its last one, so the branch was active.
    head_seq = branch.head_seq
    if head_seq > seq:
        before = view.value(view.sql.newest_commit_of_branch, (branch.name, seq))
        head_seq = branch.created_seq if before is None else before
    return msgspec.structs.replace(branch, head_seq=head_seq, status="active")


def _count(view: HistoryReader, point: BranchPoint, other: BranchPoint) -> int:
    """Count the commits with changes in the past of a point and not in that of another."""
    count = 0
    for interval in since(view, [point], [other]).intervals:
        params = (*interval, None, DISTANCE_MAX - count)
        count += sum(1 for _ in view.rows(view.sql.seqs_touching, params))
        if count >= DISTANCE_MAX:
            break
    return count


class _Identity(NamedTuple):
    """Idempotency key of a request about a branch, with the digest of the request."""

    session: str
    local_seq: int
    asked: str
    """Digest of what was requested."""

    @classmethod
    def of(
        cls, session: str | None, local_seq: int | None, asked: dict[str, Any]
    ) -> _Identity | None:
        if (session is None) != (local_seq is None):
            raise InvalidInput("pass both session and local_seq, or neither")
        if session is None or local_seq is None:
            return None
        check_session(session, local_seq)
        return cls(session, local_seq, content_id(trusted(asked).encode()))

    def is_replayed(self, view: HistoryReader) -> bool:
        """Return True if this request was committed before; raise if another one was."""
        row = view.one(view.sql.commit_of_session, (self.session, self.local_seq))
        if row is None:
            return False
        if decode(row[2]).get("asked") != self.asked:
            raise ReplayMismatch(
                f"session {self.session!r} already sent another request as local_seq "
                f"{self.local_seq}; it became seq {row[0]}",
                details={"session": self.session, "local_seq": self.local_seq, "seq": row[0]},
            )
        return True


def _at_text(at: At) -> int | str | None:
    return at.isoformat() if isinstance(at, datetime) else at
