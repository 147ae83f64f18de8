"""The fold of documents: the state of one entity after a log of sets, patches and deletes.

    set      the document is what the row holds
    patch    the row's patches are applied to the document; to `{}` when there is none, because the
             entity was never written or is deleted
    delete   there is no document; the state says so, which is not the same as having no state

It is a fold in the strict sense: `fold(fold(base, some), more) == fold(base, some + more)`,
wherever the rows are cut. Nothing here has a clock, a disk or a database, nothing that comes in is
changed, and one document is in memory at a time, however long the log.

Rows are taken as the log gives them back, so they were checked when they were written. One that
cannot be folded is therefore no wrong call but a damaged log, and CorruptData says at which seq.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from fourfold.content.json_pointer import kind_of
from fourfold.errors import CorruptData, InvalidInput
from fourfold.models.documents.patch import Draft, Program, compile  # noqa: A004
from fourfold.models.documents.records import Document, Op, State

SEMANTICS: Final = 1
"""Version of the rules of this fold and its patches.

Every space stores the version that it was written with. A change that makes an old log read
differently gets the next version: two readers that disagree must know it, and a snapshot depends on
the rules that made it.
"""

Row: TypeAlias = tuple[int, str, Any]
"""The seq, the operation, and its data: a document, a list of patches, or None for a delete."""


def fold(base: State | None, rows: Iterable[Row]) -> State | None:
    """Return the state after the rows, which follow `base` in the order of the log.

    Returns None for an entity that was never written.
    """
    folding = _Fold(base)
    for row in rows:
        folding.take(row)
    return folding.state()


def states(base: State | None, rows: Iterable[Row]) -> Iterator[State]:
    """Yield the state after each row. Neighbours share what did not change between them."""
    folding = _Fold(base)
    for row in rows:
        folding.take(row)
        state = folding.state()
        assert state is not None
        yield state


def patched(base: State, rows: Sequence[Row]) -> State:
    """Return the state after rows that are all patches, like `fold`, in half the time."""
    if not rows:
        return base
    try:
        document = replay(base.document or {}, [data for _, _, data in rows])
    except InvalidInput:
        # One by one, so that the error names the one that does not fit.
        fold(base, rows)
        raise
    return State(document, "patch", rows[-1][0])


def replay(document: Document, patches: Iterable[list[dict[str, Any]]]) -> Document:
    """Return the document after all lists of patches; `document` is not changed."""
    draft = Draft(document)
    # As one long list: a list costs as much as a patch.
    joined: list[dict[str, Any]] = []
    for patch in patches:
        if type(patch) is not list:
            raise InvalidInput(f"patches are a list, not {kind_of(patch)}")
        joined += patch
    draft.repeat(joined)
    return draft.take()


class _Fold:
    """A running fold. The document is a draft while patches follow, so that each costs its path."""

    __slots__ = ("_document", "_draft", "_op", "_seq")

    def __init__(self, base: State | None) -> None:
        self._document = None if base is None else base.document
        self._draft: Draft | None = None
        self._op: Op | None = None if base is None else base.op
        self._seq = 0 if base is None else base.seq

    def take(self, row: Row) -> None:
        seq, op, data = row
        if seq < self._seq:
            raise InvalidInput(
                f"the rows of an entity are not in order: seq {seq} follows {self._seq}",
                hint="Sort them by seq and, within one, by op_index.",
            )
        if op == "patch":
            self._patch(seq, data)
            self._op = "patch"
        elif op == "set":
            if type(data) is not dict:
                raise CorruptData(f"the set at seq {seq} holds {kind_of(data)} and not a document")
            self._document, self._draft, self._op = data, None, "set"
        elif op == "delete":
            if data is not None:
                raise CorruptData(f"the delete at seq {seq} holds {kind_of(data)}")
            self._document, self._draft, self._op = None, None, "delete"
        else:
            raise CorruptData(f"{op!r} at seq {seq} is not an operation")
        self._seq = seq

    def _patch(self, seq: int, data: Any) -> None:
        if self._draft is None:
            self._draft = Draft({} if self._document is None else self._document)
        try:
            self._draft.apply(data if isinstance(data, Program) else compile(data, stored=True))
        except InvalidInput as error:
            raise CorruptData(
                f"the patch at seq {seq} does not fit the state before it: {error}"
            ) from error

    def state(self) -> State | None:
        if self._op is None:
            return None
        if self._draft is not None:
            self._document = self._draft.take()
        return State(self._document, self._op, self._seq)
