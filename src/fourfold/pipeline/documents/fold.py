"""The fold of documents over Arrow batches and DataFrames.

The fold is the function that also answers a single read, applied to all entities at once. Rows have
the columns of the table `operations`; the rows of one entity are consecutive and in log order. The
result are states:

    fold_state      for each entity the newest one
    fold_history    for each entity the one after each commit that touched it

One entity is in memory at a time, and only a bounded part of its log, however long it is; an entity
may begin in one batch and end many batches later. A document without later patches is passed
through as text: `fold_state` finds these rows by column operations, without Python objects. Python
only handles patched documents.

A snapshot is a row with the operation `snapshot`. It follows the operations of its commit and
replaces everything before it.

The tables `state` and `history` of the source fold file by file, in the stored order of the rows.
`state()` and `newest()` here fold rows in any order: they resolve branches by a join, let Spark
drop superseded rows before they reach Python, bring the rows of each entity together, and apply the
same fold.

    state(spark, root=..., branch="draft", at=40)      equals .option("table", "state")
    newest(operations)                                 folds your own DataFrame

An entity with a million revisions is no problem: Spark's sort and window spill to disk, and the
fold streams.

A line of history lists the branches that a reader of a branch sees, and the cap of each. The rule
is that of `models.documents.chain`: nearest first, and caps only decrease.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from fourfold import limits
from fourfold.query.documents.row_fold import (
    SNAPSHOT,
    WHOLE_OPS,
    Entity,
    FoldedRow,
    Key,
    Row,
    iter_versions,
    replay_text,
)

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

FOLD_BATCH_CHARS: Final = 8 * limits.MIB
"""States in one output batch of a bulk fold; small batches limit the memory of a worker."""

KEY: Final = ("space", "branch", "id")
"""Columns that identify an entity; `branch` is the branch being read, not the one that wrote."""

_key_of = itemgetter(0)


def fold_state(
    batches: Iterable[pa.RecordBatch], key: Sequence[str] = KEY
) -> Iterator[pa.RecordBatch]:
    """Yield the newest state of every entity, including deleted ones."""
    schema = folded_schema(key)
    entity: Entity | None = None
    for batch in batches:
        if not batch.num_rows:
            continue
        part = _EntityBatch(batch, key)
        bounds = part.bounds
        first = 0
        if entity is not None and part.key_at(0) == entity.key:
            entity.add(part.rows(0, bounds[1]))
            first = 1
            if len(bounds) == 2:
                continue
        # The last entity may continue in the next batch.
        if entity is not None:
            yield _batch([entity.newest()], schema)
        yield from _small(part.newest(first, len(bounds) - 2, schema))
        entity = Entity(part.key_at(bounds[-2]))
        entity.add(part.rows(bounds[-2], bounds[-1]))
    if entity is not None:
        yield _batch([entity.newest()], schema)


def fold_history(
    batches: Iterable[pa.RecordBatch], key: Sequence[str] = KEY
) -> Iterator[pa.RecordBatch]:
    """Yield the state of every entity after each commit that touched it.

    A snapshot is redundant if the log before it is complete. If that was removed, it is the first
    version, and the base of the next one.
    """
    groups = groupby(_rows(batches, key), _key_of)
    return _batches(
        (version for entity, group in groups for version in iter_versions(entity, group)), key
    )


def folded_schema(key: Sequence[str] = KEY) -> pa.Schema:
    """Return the Arrow schema of states."""
    import pyarrow as pa  # noqa: PLC0415 - an optional dependency

    texts = [(name, pa.string()) for name in key]
    return pa.schema([*texts, ("seq", pa.int64()), ("op", pa.string()), ("document", pa.string())])


def folded_ddl(key: Sequence[str] = KEY) -> str:
    """Return the Spark schema of states."""
    return ", ".join(
        [*(f"{name} string" for name in key), "seq bigint, op string, document string"]
    )


def _rows(batches: Iterable[pa.RecordBatch], key: Sequence[str]) -> Iterator[Row]:
    for batch in batches:
        keys = zip(*(batch.column(name).to_pylist() for name in key), strict=True)
        rest = (batch.column(name).to_pylist() for name in ("seq", "op", "data"))
        yield from zip(keys, *rest, strict=True)


class _EntityBatch:
    """A batch and the row bounds of each entity in it."""

    def __init__(self, batch: pa.RecordBatch, key: Sequence[str]) -> None:
        import numpy as np  # noqa: PLC0415 - comes with pyspark, an optional dependency
        import pyarrow.compute as pc  # noqa: PLC0415

        self._batch = batch
        self._keys = [batch.column(name) for name in key]
        self._seq, self._op, self._data = (batch.column(name) for name in ("seq", "op", "data"))
        size = batch.num_rows
        begins = np.ones(size, dtype=bool)
        begins[1:] = False
        for column in self._keys:
            begins[1:] |= _plain(pc.not_equal(column.slice(1), column.slice(0, size - 1)))
        self.bounds: list[int] = [*np.flatnonzero(begins).tolist(), size]
        self._begins = begins

    def key_at(self, row: int) -> Key:
        return tuple(column[row].as_py() for column in self._keys)

    def rows(self, begin: int, end: int) -> Iterator[Row]:
        columns = (column.slice(begin, end - begin) for column in (self._seq, self._op, self._data))
        return zip(
            repeat(self.key_at(begin), end - begin),
            *(column.to_pylist() for column in columns),
            strict=True,
        )

    def newest(self, first: int, last: int, schema: pa.Schema) -> pa.RecordBatch:
        """Return the newest states of the entities from `first` up to but excluding `last`.

        If the newest row is a whole document or a delete, it is the state. The other entities end
        with a patch; only their documents are computed, starting at the last whole one.
        """
        import numpy as np  # noqa: PLC0415 - comes with pyspark, an optional dependency
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.compute as pc  # noqa: PLC0415

        newest = np.asarray(self.bounds[first + 1 : last + 1], dtype=np.int64) - 1
        whole = _plain(pc.equal(self._op, SNAPSHOT))
        has_data = _plain(self._data.is_valid())
        whole |= _plain(pc.equal(self._op, "set")) & has_data
        whole |= _plain(pc.equal(self._op, "delete")) & ~has_data
        patched = ~whole[newest]
        at = pa.array(newest)
        documents, ops = self._data.take(at), self._op.take(at)
        if patched.any():
            texts = pa.array(self._folded(newest[patched]), pa.string())
            documents = pc.replace_with_mask(documents, pa.array(patched), texts)
        ops = pc.if_else(pc.equal(ops, SNAPSHOT), "patch", ops)
        keys = (column.take(at) for column in self._keys)
        return pa.RecordBatch.from_arrays(
            [*keys, self._seq.take(at), ops, documents], schema=schema
        )

    def _folded(self, newest: np.ndarray[Any, Any]) -> list[str | None]:
        """Return the documents of the entities with these newest rows."""
        import numpy as np  # noqa: PLC0415 - comes with pyspark, an optional dependency
        import pyarrow.compute as pc  # noqa: PLC0415

        patches = _plain(pc.equal(self._op, "patch"))
        rows = np.arange(len(patches))
        begin = np.maximum.accumulate(np.where(~patches | self._begins, rows, 0))
        seqs = self._seq.to_numpy()
        ordered = np.ones(len(seqs), dtype=bool)
        ordered[1:] = (seqs[1:] >= seqs[:-1]) | self._begins[1:]
        orderly = bool(ordered.all())
        texts = self._data.to_pylist()
        ops = self._op.to_pylist()
        documents: list[str | None] = []
        for low, high in zip(begin[newest].tolist(), newest.tolist(), strict=True):
            if orderly and ops[low] in WHOLE_OPS:
                text = replay_text(texts[low], texts[low + 1 : high + 1])
                if text is not None:
                    documents.append(text)
                    continue
            entity = Entity(self.key_at(low))
            entity.add(self.rows(low, high + 1))
            documents.append(entity.newest()[-1])
        return documents


def _plain(mask: pa.Array) -> np.ndarray[Any, Any]:
    """Convert a boolean column to NumPy; null is False."""
    return mask.fill_null(False).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _small(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the batch in parts of limited size, so that a worker's memory is bounded."""
    import pyarrow.compute as pc  # noqa: PLC0415 - an optional dependency

    documents = batch.column(batch.num_columns - 1)
    begin = size = 0
    if (documents.nbytes or 0) > FOLD_BATCH_CHARS:
        for at, length in enumerate(pc.binary_length(documents).to_pylist(), 1):
            size += length or 0
            if size >= FOLD_BATCH_CHARS:
                yield batch.slice(begin, at - begin)
                begin, size = at, 0
    if begin < batch.num_rows:
        yield batch.slice(begin)


def _batches(rows: Iterable[FoldedRow], key: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of limited length and size, so that memory is bounded."""
    schema = folded_schema(key)
    pending: list[FoldedRow] = []
    size = 0
    for row in rows:
        pending.append(row)
        size += len(row[-1] or "")
        if len(pending) >= limits.FOLD_BATCH_ROWS or size >= FOLD_BATCH_CHARS:
            yield _batch(pending, schema)
            pending, size = [], 0
    if pending:
        yield _batch(pending, schema)


def _batch(rows: list[FoldedRow], schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415 - an optional dependency

    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
