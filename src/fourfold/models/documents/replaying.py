"""Checking that the log can be replayed, and that every snapshot is what replay gives there.

The rows of an entity are folded once, in order, from its first one on, and compared with each
snapshot on the way. So the cost is that of the log, however many snapshots there are, and one
document is in memory at a time.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Iterable, Iterator
from itertools import groupby
from typing import Any, Final, NamedTuple

from fourfold import limits
from fourfold.content import content_id
from fourfold.errors import FourfoldError
from fourfold.models.documents import fold, reader
from fourfold.models.documents.chain import Link, chain
from fourfold.models.documents.encoding import decode, trusted
from fourfold.models.documents.faults import Fault, Part, text
from fourfold.models.documents.history import Row, View
from fourfold.models.documents.records import State

UNREADABLE: Final = (
    FourfoldError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    RecursionError,
)
"""What damaged rows raise when they are read. A text that is no text is a ValueError."""
_AFTER_ALL: Final = 2**31
"""The place of a snapshot among the operations of its seq: it holds all of them."""


class _Lost:
    """The state after a row that cannot be folded: nobody knows it until the next whole one."""


_LOST: Final = _Lost()
_State = State | None | _Lost


class _Step(NamedTuple):
    seq: int
    op: str
    data: bytes | None


def replays(view: View, part: Part) -> Iterator[str]:
    """Every entity of a part, from its first row to its last."""
    parents: dict[str, list[Link]] = {}
    log = view.rows(view.sql.verify_operations, part.bounds)
    wholes = (
        (branch, entity, seq, _AFTER_ALL, value, digest)
        for branch, entity, seq, value, digest in view.rows(view.sql.verify_snapshots, part.bounds)
    )
    merged = heapq.merge(log, wholes, key=lambda row: row[:4])
    for (branch, entity), rows in groupby(merged, key=lambda row: row[:2]):
        named, of = text(branch), text(entity)
        if named not in parents:
            # The caps of the ancestors do not depend on where in the branch one looks.
            try:
                parents[named] = chain(view, named, limits.SEQ_MAX)[1:]
            except UNREADABLE as error:
                yield Fault(
                    f"branch {named!r}: what it was forked from cannot be found: {error}",
                    "branch",
                    {"name": named},
                )
                parents[named] = []
        yield from _Entity(view, parents[named], named, of).check(rows)


class _Entity:
    """One entity of one branch."""

    def __init__(self, view: View, parents: list[Link], branch: str, entity: str) -> None:
        self._view = view
        self._parents = parents
        self._branch = branch
        self._entity = entity
        self._started = False
        self._state: _State = None
        self._waiting: list[_Step] = []
        self._bytes = 0

    def check(self, rows: Iterable[Row]) -> Iterator[str]:
        for _, _, seq, place, *rest in rows:
            if place == _AFTER_ALL:
                value, digest = rest
                yield from self._whole(seq, value, digest)
                continue
            op, data = rest
            self._waiting.append(_Step(seq, text(op), data))
            self._bytes += len(data or b"")
            full = (
                len(self._waiting) >= limits.VERIFY_WAITING_ROWS
                or self._bytes >= limits.VERIFY_WAITING_BYTES
            )
            # The rows of the last seq wait on: a snapshot that the log begins with may follow.
            if full and self._waiting[0].seq < seq:
                older = [step for step in self._waiting if step.seq < seq]
                yield from self._fold(older)
                self._waiting = self._waiting[len(older) :]
                self._bytes = sum(len(step.data or b"") for step in self._waiting)
        yield from self._fold(self._waiting)

    def _whole(self, seq: int, value: bytes | None, digest: bytes | None) -> Iterator[str]:
        """A snapshot: one that is derived is compared, one that the log begins with is taken."""
        where = f"snapshot of {self._entity!r} on {self._branch!r} at seq {seq}"
        key = {"branch": self._branch, "id": self._entity, "seq": seq}
        if digest is not None:
            yield from self._fold([step for step in self._waiting if step.seq < seq])
            self._waiting = []
            self._started = True
            found = content_id(value or b"")
            if text(digest) != found:
                # Nobody can say whether the document or the note of its digest is damaged.
                sentence = f"{where} is not what a collection left there"
                yield Fault(sentence, "snapshot", key, expected=digest, found=found)
                yield Fault(f"the digest of the {where} is not its own", "gc_base", key)
            self._state = _whole_state(value, seq)
            return
        yield from self._fold(self._waiting)
        self._waiting = []
        state = self._state
        if isinstance(state, _Lost):
            yield Fault(f"{where} cannot be checked: the log before it is damaged", "snapshot", key)
            return
        expected = None
        if state is not None and state.seq == seq and state.document is not None:
            expected = trusted(state.document)
        if expected is None or expected != text(value):
            yield Fault(
                f"{where} is not what the log says",
                "snapshot",
                key,
                expected="none at this seq" if expected is None else expected,
                found=value,
            )

    def _fold(self, steps: list[_Step]) -> Iterator[str]:
        if not steps:
            return
        if not self._started:
            self._started = True
            if steps[0].op == "patch":
                yield from self._inherit(steps[0].seq)
        try:
            self._state = _folded(self._state, steps)
        except UNREADABLE:
            yield from self._one_by_one(steps)

    def _one_by_one(self, steps: list[_Step]) -> Generator[str, None, None]:
        """The same again, to find the rows that cannot be folded."""
        for step in steps:
            try:
                self._state = _folded(self._state, [step])
            except UNREADABLE as error:
                self._state = _LOST
                yield Fault(
                    f"revision of {self._entity!r} on {self._branch!r} at seq {step.seq} "
                    f"cannot be replayed: {error}",
                    "revision",
                    {"branch": self._branch, "id": self._entity, "seq": step.seq},
                    found=step.data,
                )

    def _inherit(self, seq: int) -> Iterator[str]:
        """What the branch showed before it said anything itself."""
        try:
            found = reader.entry(self._view, self._parents, self._entity, derived=False)
        except UNREADABLE as error:
            self._state = _LOST
            yield Fault(
                f"revision of {self._entity!r} on {self._branch!r} at seq {seq}: what it builds on "
                f"cannot be read: {error}",
                "revision",
                {"branch": self._branch, "id": self._entity, "seq": seq},
            )
            return
        self._state = None if found is None else State(found.document, found.op, found.seq)


def _folded(state: _State, steps: list[_Step]) -> _State:
    rows: list[_Step] = steps
    if isinstance(state, _Lost):
        first = next((at for at, step in enumerate(steps) if step.op != "patch"), None)
        if first is None:
            return state
        state, rows = None, steps[first:]
    return fold.fold(state, ((step.seq, step.op, _read(step.data)) for step in rows))


def _read(data: bytes | None) -> Any:
    return None if data is None else decode(data)


def _whole_state(value: bytes | None, seq: int) -> _State:
    try:
        document = _read(value)
    except UNREADABLE:
        return _LOST
    return State(document, "patch", seq) if isinstance(document, dict) else _LOST
