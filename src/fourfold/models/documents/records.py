"""What the documents model gives out and takes in: frozen records, plain values inside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

Document = dict[str, Any]
Op = Literal["set", "patch", "delete"]
Operation = dict[str, Any]
"""`{"op": "set", "id", "value"}`, `{"op": "patch", "id", "patches"}` or `{"op": "delete",
"id"}`.
"""


class State(msgspec.Struct, frozen=True):
    """An entity at some point: its document, the operation that made it so, and the seq of that.

    A deleted entity has `op == "delete"` and no document; one never written has no State at all.
    """

    document: Document | None
    op: Op
    seq: int

    @property
    def deleted(self) -> bool:
        return self.op == "delete"


class Revision(msgspec.Struct, frozen=True):
    """One row of the log: one operation on one entity. `data` is the document, the patches, or
    None.
    """

    branch: str
    id: str
    seq: int
    op_index: int
    op: Op
    data: Any


class Commit(msgspec.Struct, frozen=True):
    """An accepted transaction. `replayed` says that it had been accepted before and nothing was
    written now.
    """

    seq: int
    branch: str
    session: str
    local_seq: int
    revisions: Sequence[Revision]
    replayed: bool = False


class LogEntry(msgspec.Struct, frozen=True):
    """A commit as the log lists it: what was asked, and what was decided."""

    seq: int
    branch: str
    session: str
    local_seq: int
    created_at: str
    original: dict[str, Any]
    resolution: dict[str, Any]


class Branch(msgspec.Struct, frozen=True):
    """A line of history. The default branch has the name "" and no parent."""

    name: str
    parent: str | None
    fork_seq: int | None
    created_seq: int
    head_seq: int
    status: str
    created_at: str

    @property
    def active(self) -> bool:
        return self.status == "active"


class ConfirmedRead(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a writer saw: this path of this entity, as of `seq` (0: never written). `shape` means
    keys only.
    """

    id: str
    seq: int
    path: Sequence[str] = ()
    branch: str | None = None
    shape: bool = False


class PendingRead(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a writer saw through its own commits that were not confirmed yet, on top of
    `basis_seq`.
    """

    id: str
    local_seqs: Sequence[int]
    basis_seq: int
    path: Sequence[str] = ()
    shape: bool = False


class Reads(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that a transaction depends on."""

    confirmed: Sequence[ConfirmedRead] = ()
    pending: Sequence[PendingRead] = ()
