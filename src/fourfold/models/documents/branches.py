"""Branches: lines of history that begin as a view of another one at some seq, and cost nothing to
make.
"""

from __future__ import annotations

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
    """The branches of one space. Making and ending one are commits of their own, with a seq."""

    def __init__(self, space: Space) -> None:
        self._space = space

    def create(self, name: str, parent: str = "", at: At = None) -> Branch:
        """A new branch that shows `parent` as it was at `at` (now, if not given). Names are used
        once.
        """
        check_branch(name)

        def work(txn: Transaction) -> Branch:
            view = self._history.view(txn)
            if view.one(view.sql.branch, (name,)) is not None:
                raise AlreadyExists(
                    f"the name {name!r} is taken by a branch, or was",
                    hint="Choose another name: names of deleted branches are used up too.",
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
        """End a branch: it can still be read, and its children go on; nobody can write it any
        more.
        """
        if not name:
            raise Refused("the default branch cannot be deleted")

        def work(txn: Transaction) -> Branch:
            view = self._history.view(txn)
            if not branch_named(view, name).active:
                raise BranchEnded(f"the branch {name!r} was deleted before")
            self._lifecycle(txn, name, {"cmd": "branch/delete", "name": name})
            txn.execute(view.sql.end_branch, (name,))
            return branch_named(view, name)

        return self._space.database.transact(work)

    def get(self, name: str) -> Branch:
        with self._space.view() as view:
            return branch_named(view, name)

    def list(self, *, deleted: bool = False) -> list[Branch]:
        """Every branch in the order of making; those that have ended only when asked for."""
        with self._space.view() as view:
            found = [Branch(*row) for row in view.rows(view.sql.branches)]
        return [branch for branch in found if branch.active or deleted]

    def diff(self, a: str, b: str, at_a: At = None, at_b: At = None) -> comparison.Difference:
        """What two branches show differently, each now or at a point of its own.

        Each change says which of the two moved away from what both have behind them.
        """
        with self._space.view() as view:
            for name in (a, b):
                branch_named(view, name)
            one = Point(a, target_of(view, a, at_a))
            other = Point(b, target_of(view, b, at_b))
            return comparison.compare(view, one, other)

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
        """Bring what `source` changed into `target`, as one commit there.

        Conflicts raise MergeConflicted, with all of them in its details, and nothing is written.
        `resolutions` decide them. The key is an id, and the value a document, None (delete the
        entity), OURS (the target wins at its conflicts) or THEIRS (the source wins); or the key is
        `(id, path)`, and the value any JSON value, ABSENT (nothing there), OURS or THEIRS. With
        `dry_run` the result says what would be written and where the conflicts are. A deleted
        branch can be a source. A merge cannot undo: see the module `merging`.
        """
        asked = merge_module.ask(source, target, resolutions, field_level=field_level)
        return merge_module.merge(
            self._space, asked, session=session, local_seq=local_seq, dry_run=dry_run
        )

    def _lifecycle(self, txn: Transaction, name: str, original: dict[str, Any]) -> int:
        """The commit row of a branch's birth or end: a seq, and no revisions."""
        seq = txn.claim(self._history.seq)
        session, local_seq = self._space.next_local()
        self._history.append(
            txn, AppendedRows(seq, name, session, local_seq, trusted(original), ())
        )
        # A watch of a branch that ends must notice; the birth of a branch concerns none.
        waiters = self._space.waiters
        ends = original["cmd"] == "branch/delete"
        txn.after_commit(waiters.notify_all if ends else lambda: waiters.notify(seq, name, ()))
        return seq

    @property
    def _history(self) -> History:
        return self._space.history_kind
