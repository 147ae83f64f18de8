"""Branches: lines of history that begin as a view of another one at some seq, and cost nothing to
make.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fourfold import limits
from fourfold.errors import AlreadyExists, BranchEnded, InvalidInput, Refused
from fourfold.kernel import Transaction, load_queries
from fourfold.models.documents import writer
from fourfold.models.documents.chain import At, branch_named, chain, target_of
from fourfold.models.documents.encoding import trusted
from fourfold.models.documents.names import check_branch
from fourfold.models.documents.records import Branch

if TYPE_CHECKING:
    from fourfold.models.documents.space import Space

_SQL = load_queries("fourfold.models.documents.revisions")


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
            if txn.one(_SQL.branch, (name,)) is not None:
                raise AlreadyExists(
                    f"the name {name!r} is taken by a branch, or was",
                    hint="Choose another name: names of deleted branches are used up too.",
                )
            origin = branch_named(txn, parent)
            fork = target_of(txn, parent, at)
            depth = len(chain(txn, parent, fork))
            if depth > limits.BRANCH_DEPTH_MAX:
                raise InvalidInput(
                    f"{name!r} would be nested {depth} deep; the limit is {limits.BRANCH_DEPTH_MAX}",
                    hint="Fork an older ancestor, or merge first.",
                )
            original = {"cmd": "branch/create", "name": name, "parent": origin.name, "at": fork}
            seq = self._lifecycle(txn, name, original)
            txn.execute(_SQL.insert_branch, (name, origin.name, fork, seq))
            return branch_named(txn, name)

        return self._space.database.transact(work)

    def delete(self, name: str) -> Branch:
        """End a branch: it can still be read, and its children go on; nobody can write it any
        more.
        """
        if not name:
            raise Refused("the default branch cannot be deleted")

        def work(txn: Transaction) -> Branch:
            if not branch_named(txn, name).active:
                raise BranchEnded(f"the branch {name!r} was deleted before")
            self._lifecycle(txn, name, {"cmd": "branch/delete", "name": name})
            txn.execute(_SQL.end_branch, (name,))
            return branch_named(txn, name)

        return self._space.database.transact(work)

    def get(self, name: str) -> Branch:
        with self._space.database.read() as snapshot:
            return branch_named(snapshot, name)

    def list(self, *, deleted: bool = False) -> list[Branch]:
        """Every branch in the order of making; those that have ended only when asked for."""
        with self._space.database.read() as snapshot:
            found = [Branch(*row) for row in snapshot.rows(_SQL.branches)]
        return [branch for branch in found if branch.active or deleted]

    def _lifecycle(self, txn: Transaction, name: str, original: dict[str, Any]) -> int:
        """The commit row of a branch's birth or end: a seq, and no revisions."""
        seq = txn.claim(writer.SEQ)
        session, local_seq = self._space.next_local()
        text = trusted(original)
        resolution = trusted({"seq": seq, "digest": writer.digest(text, ())})
        txn.execute(_SQL.insert_commit, (seq, name, session, local_seq, text, resolution))
        return seq
