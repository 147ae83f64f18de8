"""The fold of one entity from rows of its log, as text: the state after the newest row, or after
each commit.

Rows are in log order. Their texts stay undecoded until they are needed, because a later set, delete
or snapshot replaces them. A snapshot is a row with the operation `snapshot`: it follows the
operations of its commit and replaces everything before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain
from typing import Any, Final

from fourfold import limits
from fourfold.errors import CorruptData, InvalidInput
from fourfold.models.documents import fold
from fourfold.models.documents.encoding import decode, stored, trusted
from fourfold.models.documents.patch import Draft, Program, compile  # noqa: A004
from fourfold.models.documents.records import State

FOLD_WAITING_ROWS_MAX: Final = 1_000
FOLD_WAITING_CHARS: Final = 4 * limits.MIB
"""Patches of one entity that a bulk fold leaves undecoded, because a later set replaces them."""
FOLD_PROGRAMS_REMEMBERED_MAX: Final = 4_096
FOLD_PROGRAM_CHARS_MAX: Final = 256
"""Cache of compiled patch lists in a bulk fold: logs repeat short ones."""

SNAPSHOT: Final = "snapshot"
"""The operation of a row that holds a whole document and is not part of the log."""

Key = tuple[str, ...]
"""Identity of an entity: `space`, `branch`, `id`."""
Row = tuple[Key, int, str, str | None]
FoldedRow = tuple[Any, ...]
"""The key, the seq, the operation and the document."""

WHOLE_OPS: Final = frozenset(("set", SNAPSHOT))


def replay_text(whole: str | None, patches: list[str | None]) -> str | None:
    """Return the text of a document after its patches, or None if one is invalid; the fold then
    raises the precise error.
    """
    try:
        draft = Draft(decode(whole or ""))
        # One long list, because each list costs as much as a patch.
        steps = chain.from_iterable([_program(patch).steps for patch in patches])
        draft.apply(Program(tuple(steps)))
        return trusted(draft.take())
    except (TypeError, ValueError, InvalidInput):
        return None


def _program(text: str | None) -> Program:
    """Compile the patches of a row. Short ones repeat often in a log, so they are cached."""
    if text is not None and len(text) <= FOLD_PROGRAM_CHARS_MAX:
        return _short_program(text)
    return compile(decode(text or ""), stored=True)


@lru_cache(maxsize=FOLD_PROGRAMS_REMEMBERED_MAX)
def _short_program(text: str) -> Program:
    return compile(decode(text), stored=True)


class Entity:
    """The pending rows of one entity. Texts stay undecoded, because a later row may supersede them,
    up to a limit.
    """

    __slots__ = ("_base", "_chars_left", "_waiting", "key")

    def __init__(self, key: Key) -> None:
        self.key = key
        self._base: State | None = None
        self._waiting: list[Row] = []
        self._chars_left = FOLD_WAITING_CHARS

    def add(self, rows: Iterable[Row]) -> None:
        """Fold more rows of the entity, in the order of the log."""
        rows_max = FOLD_WAITING_ROWS_MAX
        for row in rows:
            if row[2] == "patch":
                self._waiting.append(row)
                self._chars_left -= len(row[3] or "")
                if len(self._waiting) >= rows_max or self._chars_left < 0:
                    self._base, self._waiting = _folded(self.key, self._base, self._waiting), []
                    self._chars_left = FOLD_WAITING_CHARS
            else:
                self._base, self._waiting = None, [row]
                self._chars_left = FOLD_WAITING_CHARS - len(row[3] or "")

    def newest(self) -> FoldedRow:
        """Return the state of the entity after its newest row."""
        if self._base is None and len(self._waiting) == 1:
            _, seq, op, data = self._waiting[0]
            if op in {"set", "delete"} and (data is None) == (op == "delete"):
                return (*self.key, seq, op, data)
            if op == SNAPSHOT:
                return (*self.key, seq, "patch", data)
        state = _folded(self.key, self._base, self._waiting)
        return (*self.key, state.seq, state.op, _text(state))


def iter_versions(key: Key, rows: Iterable[Row]) -> Iterator[FoldedRow]:
    """Yield the state of an entity after each of its rows."""
    state: State | None = None
    last: Row | None = None
    for row in rows:
        _, seq, op, _ = row
        if op == SNAPSHOT and state is not None and state.seq == seq:
            continue
        if state is not None and last is not None and last[1] != seq:
            yield _version(last, state)
        state = _whole(key, row) if op == SNAPSHOT else _folded(key, state, [row])
        last = row
    if state is not None and last is not None:
        yield _version(last, state)


def _version(row: Row, state: State) -> FoldedRow:
    key, seq, op, data = row
    if op in {"set", SNAPSHOT}:
        return (*key, seq, state.op, data)
    return (*key, seq, op, _text(state))


def _folded(key: Key, base: State | None, rows: list[Row]) -> State:
    if rows and rows[0][2] == SNAPSHOT:
        base, rows = _whole(key, rows[0]), rows[1:]
    try:
        log = [(seq, op, None if data is None else decode(data)) for _, seq, op, data in rows]
    except (TypeError, ValueError) as error:
        raise _named(key, CorruptData(f"stored text is not valid JSON: {error}")) from error
    try:
        state = fold.fold(base, log)
    except CorruptData as error:
        raise _named(key, error) from error
    assert state is not None
    return state


def _whole(key: Key, row: Row) -> State:
    try:
        document = stored(row[3] or "")
    except CorruptData as error:
        raise _named(key, error) from error
    if type(document) is not dict:
        raise _named(key, CorruptData(f"the snapshot at seq {row[1]} is not a document"))
    return State(document, "patch", row[1])


def _text(state: State) -> str | None:
    return None if state.document is None else trusted(state.document)


def _named(key: Key, error: CorruptData) -> CorruptData:
    *where, branch, entity = key
    return CorruptData(
        f"{' '.join(where)}: {entity!r} on branch {branch!r}: {error.message}",
        details={"space": where[-1], "branch": branch, "id": entity},
    )
