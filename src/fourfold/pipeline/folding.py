"""The fold of documents over Arrow batches: the very function that answers one read, for all
entities at once.

Rows come in the shape of the table `operations`, those of one entity together and in the order of
the log. What goes out are states:

    fold_state      for each entity the last one
    fold_history    for each entity the one after each commit that touched it

One entity is in memory at a time, and of its log no more than a bounded part, however long it is;
an entity may begin in one batch and end many batches later. A document that no patch followed is
passed on as the text that came.

A snapshot is a row with the operation `snapshot`. It stands behind the operations of its commit,
and whatever stands before it is not needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from fourfold import limits
from fourfold.errors import CorruptData
from fourfold.models.documents import fold
from fourfold.models.documents.encoding import decode, stored, trusted
from fourfold.models.documents.records import State

if TYPE_CHECKING:
    import pyarrow as pa

SNAPSHOT: Final = "snapshot"
"""The operation of a row that holds a whole document without being part of the log."""
KEY: Final = ("space", "branch", "id")
"""What rows of one entity have in common; `branch` is the one that is read, not the one that
wrote.
"""

_Key = tuple[str, ...]
_Row = tuple[_Key, int, str, str | None]
_Folded = tuple[Any, ...]
"""The key, the seq, the operation and the document."""
_key_of = itemgetter(0)


def fold_state(
    batches: Iterable[pa.RecordBatch], key: Sequence[str] = KEY
) -> Iterator[pa.RecordBatch]:
    """The newest state of every entity; a deleted one is a row too."""
    rows = _rows(batches, key)
    return _batches((_newest(each, group) for each, group in groupby(rows, _key_of)), key)


def fold_history(
    batches: Iterable[pa.RecordBatch], key: Sequence[str] = KEY
) -> Iterator[pa.RecordBatch]:
    """The state of every entity after each commit that touched it.

    A snapshot says nothing new where the log before it is there. Where that was left out, it is
    the first version, and what the next one builds on.
    """
    groups = groupby(_rows(batches, key), _key_of)
    return _batches((version for each, group in groups for version in _versions(each, group)), key)


def folded_schema(key: Sequence[str] = KEY) -> pa.Schema:
    """The schema of states, in Arrow's words."""
    import pyarrow as pa  # noqa: PLC0415 - an optional dependency

    texts = [(name, pa.string()) for name in key]
    return pa.schema([*texts, ("seq", pa.int64()), ("op", pa.string()), ("document", pa.string())])


def folded_ddl(key: Sequence[str] = KEY) -> str:
    """The schema of states, in Spark's words."""
    return ", ".join(
        [*(f"{name} string" for name in key), "seq bigint, op string, document string"]
    )


def _rows(batches: Iterable[pa.RecordBatch], key: Sequence[str]) -> Iterator[_Row]:
    for batch in batches:
        keys = zip(*(batch.column(name).to_pylist() for name in key), strict=True)
        rest = (batch.column(name).to_pylist() for name in ("seq", "op", "data"))
        yield from zip(keys, *rest, strict=True)


def _newest(key: _Key, rows: Iterable[_Row]) -> _Folded:
    """What is left of an entity. Texts wait undecoded, because a later row may make them void, but
    not too many of them.
    """
    base: State | None = None
    waiting: list[_Row] = []
    rows_max, chars_left = limits.FOLD_WAITING_ROWS_MAX, limits.FOLD_WAITING_CHARS
    for row in rows:
        if row[2] == "patch":
            waiting.append(row)
            chars_left -= len(row[3] or "")
            if len(waiting) >= rows_max or chars_left < 0:
                base, waiting = _folded(key, base, waiting), []
                chars_left = limits.FOLD_WAITING_CHARS
        else:
            base, waiting = None, [row]
            chars_left = limits.FOLD_WAITING_CHARS - len(row[3] or "")
    if base is None and len(waiting) == 1:
        _, seq, op, data = waiting[0]
        if op in {"set", "delete"} and (data is None) == (op == "delete"):
            return (*key, seq, op, data)
        if op == SNAPSHOT:
            return (*key, seq, "patch", data)
    state = _folded(key, base, waiting)
    return (*key, state.seq, state.op, _text(state))


def _versions(key: _Key, rows: Iterable[_Row]) -> Iterator[_Folded]:
    state: State | None = None
    shown: _Row | None = None
    for row in rows:
        _, seq, op, _ = row
        if op == SNAPSHOT and state is not None and state.seq == seq:
            continue
        if state is not None and shown is not None and shown[1] != seq:
            yield _version(shown, state)
        state = _whole(key, row) if op == SNAPSHOT else _folded(key, state, [row])
        shown = row
    if state is not None and shown is not None:
        yield _version(shown, state)


def _version(row: _Row, state: State) -> _Folded:
    key, seq, op, data = row
    if op in {"set", SNAPSHOT}:
        return (*key, seq, state.op, data)
    return (*key, seq, op, _text(state))


def _folded(key: _Key, base: State | None, rows: list[_Row]) -> State:
    if rows and rows[0][2] == SNAPSHOT:
        base, rows = _whole(key, rows[0]), rows[1:]
    try:
        log = [(seq, op, None if data is None else decode(data)) for _, seq, op, data in rows]
    except (TypeError, ValueError) as error:
        raise _named(key, CorruptData(f"stored text is not JSON any more: {error}")) from error
    try:
        state = fold.fold(base, log)
    except CorruptData as error:
        raise _named(key, error) from error
    assert state is not None
    return state


def _whole(key: _Key, row: _Row) -> State:
    try:
        document = stored(row[3] or "")
    except CorruptData as error:
        raise _named(key, error) from error
    if type(document) is not dict:
        raise _named(key, CorruptData(f"the snapshot at seq {row[1]} holds no document"))
    return State(document, "patch", row[1])


def _text(state: State) -> str | None:
    return None if state.document is None else trusted(state.document)


def _named(key: _Key, error: CorruptData) -> CorruptData:
    *where, branch, entity = key
    return CorruptData(
        f"{' '.join(where)}: {entity!r} on the branch {branch!r}: {error.message}",
        details={"space": where[-1], "branch": branch, "id": entity},
    )


def _batches(rows: Iterable[_Folded], key: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows in batches that are neither long nor large, so that a worker's memory is bounded."""
    schema = folded_schema(key)
    ready: list[_Folded] = []
    size = 0
    for row in rows:
        ready.append(row)
        size += len(row[-1] or "")
        if len(ready) >= limits.FOLD_BATCH_ROWS or size >= limits.FOLD_BATCH_CHARS:
            yield _batch(ready, schema)
            ready, size = [], 0
    if ready:
        yield _batch(ready, schema)


def _batch(rows: list[_Folded], schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415 - an optional dependency

    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
