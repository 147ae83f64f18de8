"""Branches of a space: each starts as a view of its parent at a seq, without copying anything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fourfold import limits
from fourfold.errors import AlreadyExists, BranchEnded, InvalidInput, Refused
from fourfold.kernel import Transaction
from fourfold.models.documents import comparison
from fourfold.models.documents import merge as merge_module
from fourfold.models.documents.ancestry import At, Point, branch_named, chain, target_of
from fourfold.models.documents.encoding import trusted
from fourfold.models.documents.history import AppendedRows, History
from fourfold.models.documents.records import Branch
from fourfold.models.documents.resolutions import Resolutions
from fourfold.models.documents.validation import check_branch

if TYPE_CHECKING:
    from fourfold.models.documents.space import Space


class Branches:
    """The branches of one space. Creating or deleting one is a commit of its own, with a seq."""

    def __init__(self, space: Space) -> None:
        self._space = space

    def create(self, name: str, parent: str = "", at: At = None) -> Branch:
        """Create a branch that shows `parent` at `at`, by default now. Names are never reused.

        Raises:
            AlreadyExists: A branch of that name exists, or existed.
        """
        check_branch(name)

        def work(txn: Transaction) -> Branch:
            view = self._history.view(txn)
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
            seq = self._lifecycle(txn, name, original)
            txn.execute(view.sql.insert_branch, (name, origin.name, fork, seq))
            return branch_named(view, name)

        return self._space.database.transact(work)

    def delete(self, name: str) -> Branch:
        """Delete a branch: it can no longer be written, but its history stays readable.

        Branches that were created from it are not affected.
        """
        if not name:
            raise Refused("the default branch cannot be deleted")

        def work(txn: Transaction) -> Branch:
            view = self._history.view(txn)
            if not branch_named(view, name).active:
                raise BranchEnded(f"branch {name!r} is already deleted")
            self._lifecycle(txn, name, {"cmd": "branch/delete", "name": name})
            txn.execute(view.sql.end_branch, (name,))
            return branch_named(view, name)

        return self._space.database.transact(work)

    def get(self, name: str) -> Branch:
        """Return a branch, also a deleted one.

        Raises:
            NotFound: There is no branch of that name.
        """
        with self._space.view() as view:
            return branch_named(view, name)

    def list(self, *, deleted: bool = False) -> list[Branch]:
        """Return the active branches in the order of creation; with `deleted`, all of them."""
        with self._space.view() as view:
            branches = [Branch(*row) for row in view.rows(view.sql.branches)]
        return [branch for branch in branches if branch.active or deleted]

    def diff(self, a: str, b: str, at_a: At = None, at_b: At = None) -> comparison.Difference:
        """Return the differences between two branches, each now or at a point of its own.

        Each change tells on which side the entity differs from their common base.
        """
        with self._space.view() as view:
            for name in (a, b):
                branch_named(view, name)
            point_a = Point(a, target_of(view, a, at_a))
            point_b = Point(b, target_of(view, b, at_b))
            return comparison.compare(view, point_a, point_b)

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

        Raises:
            MergeConflicted: Both branches changed the same thing; nothing was written, and
                `details` lists the conflicts.
        """
        request = merge_module.ask(source, target, resolutions, field_level=field_level)
        return merge_module.merge(
            self._space, request, session=session, local_seq=local_seq, dry_run=dry_run
        )

    def __iter__(self) -> Iterator[Branch]:
        """Yield the active branches in the order of creation."""
        return iter(self.list())

    def __repr__(self) -> str:
        return f"<Branches of {self._space.did}>"

    def _lifecycle(self, txn: Transaction, name: str, original: dict[str, Any]) -> int:
        """Commit the creation or deletion of a branch: a seq without revisions."""
        seq = txn.claim(self._history.seq)
        session, local_seq = self._space.next_local()
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
