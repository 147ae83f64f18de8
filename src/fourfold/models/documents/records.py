"""Records of the documents model: states, revisions, commits, branches and reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from fourfold import html
from fourfold.errors import NotFound

Document = dict[str, Any]
Op = Literal["set", "patch", "delete"]
Operation = dict[str, Any]
"""`{"op": "set", "id", "value"}`, `{"op": "patch", "id", "patches"}` or `{"op": "delete",
"id"}`.
"""


class State(msgspec.Struct, frozen=True):
    """The state of an entity: its document, the last operation on it, and the seq of that.

    A deleted entity has `op == "delete"` and no document.
    """

    document: Document | None
    op: Op
    seq: int

    @property
    def deleted(self) -> bool:
        """True if the entity is deleted."""
        return self.op == "delete"

    def _repr_html_(self) -> str:
        caption = f"{self.op} at seq {self.seq}"
        return html.fragment(html.block(self.document), caption=caption)


def no_entity(did: str, entity: str) -> NotFound:
    """Return the error for an entity that does not exist."""
    return NotFound(
        f"space {did}: no entity {entity!r:.100}", hint="List the existing ids with `space.ids()`."
    )


class Revision(msgspec.Struct, frozen=True):
    """One operation on one entity; `data` is the document, the patches, or None."""

    branch: str
    id: str
    seq: int
    op_index: int
    op: Op
    data: Any


class Commit(msgspec.Struct, frozen=True):
    """A committed transaction.

    `replayed` is True if an earlier call committed the same request, and nothing was written now.
    """

    seq: int
    branch: str
    session: str
    local_seq: int
    revisions: Sequence[Revision]
    replayed: bool = False

    def _repr_html_(self) -> str:
        branch = f" on branch {self.branch}" if self.branch else ""
        caption = f"Commit {self.seq}{branch}{' (replayed)' if self.replayed else ''}"
        rows = ((row.op, row.id, html.block(row.data)) for row in self.revisions)
        return html.fragment(html.table(("op", "id", "data"), rows), caption=caption)


MatchKind = Literal["enter", "change", "leave"]


class MatchChange(msgspec.Struct, frozen=True):
    """A document that a commit moved into a filter, changed in it, or moved out of it."""

    kind: MatchKind
    id: str
    op: Op
    """The last operation of the commit on it."""
    document: Document | None
    """The document after the commit; None if it is deleted."""


class MatchedCommit(msgspec.Struct, frozen=True):
    """A commit as `Space.follow` returns it with a filter: documents that match, or did before."""

    seq: int
    branch: str
    session: str
    local_seq: int
    changes: Sequence[MatchChange]


class LogEntry(msgspec.Struct, frozen=True):
    """A commit in the log: the request as it arrived, and its resolution."""

    seq: int
    branch: str
    session: str
    local_seq: int
    created_at: str
    original: dict[str, Any]
    resolution: dict[str, Any]


class Branch(msgspec.Struct, frozen=True):
    """A branch. The default branch has the name "" and no parent."""

    name: str
    parent: str | None
    fork_seq: int | None
    created_seq: int
    head_seq: int
    status: str
    created_at: str

    @property
    def active(self) -> bool:
        """True unless the branch is deleted."""
        return self.status == "active"


class Distance(msgspec.Struct, frozen=True):
    """Commits that a branch and its parent do not share, each counted up to a limit."""

    ahead: int
    """Commits with changes that the branch has and its parent has not."""
    missing: int
    """Commits with changes that the parent has and the branch has not."""


class ConfirmedRead(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A path of an entity as read at `seq` (0: never written); with `shape`, its keys only."""

    id: str
    seq: int
    path: Sequence[str] = ()
    branch: str | None = None
    shape: bool = False


class PendingRead(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A path of an entity as read through the writer's unconfirmed commits after `basis_seq`."""

    id: str
    local_seqs: Sequence[int]
    basis_seq: int
    path: Sequence[str] = ()
    shape: bool = False


class Reads(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that a transaction has read, for optimistic concurrency."""

    confirmed: Sequence[ConfirmedRead] = ()
    pending: Sequence[PendingRead] = ()
