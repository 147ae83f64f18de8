"""The fold of state streams over Arrow batches, and promotion of messages.

The fold is the function of `streams.state`. Its input has the columns of the table `changes`:
the messages of one stream are consecutive and in order, each in its stored version. Its output is a
row for each key that has a value.

Stored messages never change. If the schema of a stream had several versions, messages of older ones
are promoted here to the current version, by the function that serves its readers; the records of
all other streams pass through unchanged.

The queries of folds and of ranges of offsets are built here too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from fourfold import limits
from fourfold.pipeline import cut as cuts
from fourfold.pipeline import plan
from fourfold.pipeline.conditions import as_sql
from fourfold.pipeline.cut import FileBound
from fourfold.pipeline.options import ReadOptions
from fourfold.pipeline.scan import Guard, Piece
from fourfold.query.streams.promotion import (
    Promote,
    Registries,
    fold_messages,
    outdated,
    promoter,
)
from fourfold.query.streams.tables import SQL
from fourfold.query.tables import ROOT, SPACE, Column, arrow

if TYPE_CHECKING:
    import pyarrow as pa

STREAM_TASK_ROWS: Final = 50_000

_PROMOTED: Final = frozenset({"payload", "text", "size"})
"""Columns that depend on the version of a message."""
_INPUT: Final = (
    Column("stream", "string", nullable=False),
    Column("offset", "bigint", nullable=False),
    Column("payload", "binary", nullable=False),
    Column("content_type", "string", nullable=False),
)
"""Columns from which they are computed."""


def shows_messages(columns: Iterable[Column]) -> bool:
    """Return True if one of these columns depends on the version of a message."""
    return any(column.name in _PROMOTED for column in columns)


def columns_read(columns: Iterable[Column]) -> tuple[Column, ...]:
    """Return the columns that `promoted` needs to compute these columns."""
    unchanged = tuple(column for column in columns if column.name not in _PROMOTED)
    names = {column.name for column in unchanged}
    return (*unchanged, *(column for column in _INPUT if column.name not in names))


def promoted(
    batches: Iterable[pa.RecordBatch], registries: Registries | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield stored records as promoted messages, with `text` and `size` of the new payload."""
    import pyarrow.compute as pc  # noqa: PLC0415 - an optional dependency

    pa = arrow()
    promote = promoter(registries or {})
    names = pa.array(list(registries or {}), pa.string())
    for batch in batches:
        outdated_rows = pc.is_in(batch.column("stream"), value_set=names)
        payload = _payloads(batch, pc.indices_nonzero(outdated_rows).to_pylist(), promote)
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        columns |= {
            "payload": payload,
            "text": _texts(payload, batch.column("content_type")),
            "size": pc.binary_length(payload).cast(pa.int64()),
        }
        yield pa.RecordBatch.from_pydict(columns)


def _payloads(batch: pa.RecordBatch, indexes: list[int], promote: Promote) -> pa.Array:
    stored = batch.column("payload")
    if not indexes:
        return stored
    values = stored.to_pylist()
    streams, offsets = batch.column("stream"), batch.column("offset")
    for at in indexes:
        values[at] = promote(streams[at].as_py(), offsets[at].as_py(), values[at])
    return arrow().array(values, stored.type)


def _texts(payload: pa.Array, content_type: pa.Array) -> pa.Array:
    """Return JSON and text payloads as strings, without validation, like SQLite and Spark."""
    import pyarrow.compute as pc  # noqa: PLC0415 - an optional dependency

    pa = arrow()
    textual = pc.match_substring_regex(content_type, "^(application/json|text/)", ignore_case=True)
    return pc.if_else(textual, payload.view(pa.string()), pa.scalar(None, pa.string()))


_NAMES = ("stream", "type", "key", "value")


def fold_states(
    batches: Iterable[pa.RecordBatch], registries: Registries | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the state of each stream as rows of the table `state`."""
    pa = arrow()
    promote = promoter(registries or {})
    schema = pa.schema([(name, pa.string()) for name in _NAMES])
    pending: list[tuple[str, str, str, str]] = []
    for name, rows in groupby(_rows(batches), itemgetter(0)):
        for key, value in fold_messages(name, rows, promote).items():
            pending.append((name, *key, json.dumps(value, ensure_ascii=False)))
            if len(pending) >= limits.FOLD_BATCH_ROWS:
                yield _batch(pending, schema)
                pending = []
    if pending:
        yield _batch(pending, schema)


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, int, bytes]]:
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ("stream", "offset", "payload"))
        yield from zip(*columns, strict=True)


def _batch(rows: list[tuple[str, str, str, str]], schema: pa.Schema) -> pa.RecordBatch:
    pa = arrow()
    return pa.RecordBatch.from_arrays(
        [pa.array(column, pa.string()) for column in zip(*rows, strict=True)], schema=schema
    )


_CASTS: Final = {"string": "TEXT", "bigint": "INTEGER", "binary": "BLOB", "timestamp": "TEXT"}
_SAMPLES: Final = {"TEXT": "''", "INTEGER": "0", "BLOB": "x''"}

Range = tuple[int, int, int]
"""The key of a stream, the first offset, and the end offset (exclusive)."""


def registries_in(bound: FileBound, pattern: str | None = None) -> Registries:
    """Return the registries that promote messages in a file. They are read after the cut and only
    gain versions, so they know every version in it.
    """
    rows = cuts.fetch_rows(bound, SQL.registries, (pattern,))
    return outdated((stream, text, first) for _, stream, _, text, first in rows)


def folded_parts(bounds: Sequence[FileBound], options: ReadOptions) -> Iterator[tuple[int, Piece]]:
    """Yield the input of folded tables, each piece with the registries of its file."""
    parts = _changes_in if options.table.reads == "changes" else _stored_in
    for bound in bounds:
        registries = registries_in(bound, options.stream)
        for cost, piece in parts(bound, options):
            yield cost, replace(piece, context=registries or None)


def _stored_in(bound: FileBound, options: ReadOptions) -> Iterator[tuple[int, Piece]]:
    """Yield the input of the table `messages`."""
    stored = replace(options, table_name=options.table.reads, columns=None)
    return plan.iter_raw_parts([bound], stored, stored.table.select_columns())


def _changes_in(bound: FileBound, options: ReadOptions) -> Iterator[tuple[int, Piece]]:
    """Yield the input of the table `state`; a large file is split by stream key."""
    count = -(-bound.bytes // options.partition_bytes)
    [(greatest,)] = cuts.fetch_rows(bound, SQL.greatest_sid)
    width = max(1, -(-greatest // count))
    lows = range(0, max(greatest, 1), width)
    for low in lows:
        yield bound.bytes // len(lows), _changes(bound, options, low, low + width)


def _changes(bound: FileBound, options: ReadOptions, after: int, until: int) -> Piece:
    columns = options.tables.table(options.table.reads).select_columns()
    texts, condition_values = as_sql(options.conditions.on("stream"), 3)
    if options.stream is not None:
        texts.append(f'"stream" GLOB {quoted(options.stream)}')
    conditions = " AND ".join(texts) or "1"
    sql = SQL.changes.format(**_shape(columns), cut=bound.seq, conditions=conditions)
    values = (after, until, *condition_values)
    guard = Guard(
        SQL.changes_whole.format(conditions=conditions),
        values,
        "the state of a stream cannot be folded: some of its records are only in segments",
    )
    return Piece(bound.path, sql, values, _constants(bound), guard=guard)


def ranges(
    bound: FileBound, columns: Sequence[Column], selected: Sequence[Range]
) -> Iterator[Piece]:
    """Yield the queries for ranges of offsets; missing records are an error."""
    own = [column for column in columns if column.name not in {SPACE, ROOT}]
    sql = SQL.ranges.format(**_shape(own))
    for group in _divided(selected):
        parameter = json.dumps(group)
        problem = "retention or the archive deleted records before they were read"
        guard = Guard(SQL.ranges_whole, (parameter,), problem)
        yield Piece(bound.path, sql, (parameter,), _constants(bound), guard=guard)


def _divided(selected: Sequence[Range]) -> Iterator[list[Range]]:
    """Group ranges into tasks, splitting long ones."""
    group: list[Range] = []
    left = STREAM_TASK_ROWS
    for sid, start, end in selected:
        low = start
        while low < end:
            high = min(end, low + left)
            group.append((sid, low, high))
            left -= high - low
            low = high
            if not left:
                yield group
                group, left = [], STREAM_TASK_ROWS
    if group:
        yield group


def _shape(columns: Sequence[Column]) -> dict[str, str]:
    casts = [(column.name, _CASTS[column.type]) for column in columns]
    return {
        "samples": ", ".join(f'{_SAMPLES[cast]} AS "{name}"' for name, cast in casts),
        "columns": ", ".join(f'CAST("{name}" AS {cast}) AS "{name}"' for name, cast in casts),
    }


def _constants(bound: FileBound) -> tuple[tuple[str, str], ...]:
    return ((SPACE, bound.space), (ROOT, bound.root))


def quoted(text: str) -> str:
    """Return a text as an SQL string literal."""
    return "'" + text.replace("'", "''") + "'"
