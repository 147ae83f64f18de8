"""The fold of sessions over Arrow batches: the function that computes `current_view`.

Its input has the columns of the table `tail`: the rows of one session are consecutive, its snapshot
with the first of them, and events in log order. Its output is one row for each session. A session
is folded a page at a time, so that the longest needs no more memory than any other.

The input of a session are the rows after its newest snapshot. A large file is split by session key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from fourfold import limits
from fourfold.pipeline import cut as cuts
from fourfold.pipeline.conditions import as_sql
from fourfold.pipeline.cut import FileBound
from fourfold.pipeline.options import ReadOptions
from fourfold.pipeline.scan import Piece
from fourfold.query.sessions.tables import SQL
from fourfold.query.sessions.view_fold import INPUT, fold_view
from fourfold.query.tables import ROOT, SPACE, arrow

if TYPE_CHECKING:
    import pyarrow as pa


_session_of = itemgetter(0)


def fold_views(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the state of each session as a row of the table `view`."""
    pa = arrow()
    pending: list[dict[str, Any]] = []
    for sid, rows in groupby(_rows(batches), _session_of):
        pending.append(fold_view(sid, rows))
        if len(pending) >= limits.FOLD_BATCH_ROWS:
            yield pa.RecordBatch.from_pylist(pending, schema=_schema())
            pending = []
    if pending:
        yield pa.RecordBatch.from_pylist(pending, schema=_schema())


def _schema() -> pa.Schema:
    pa = arrow()
    texts = ("session", "status", "info", "current_head", "vars_ref", "error", "digest")
    numbers = (
        "event_id",
        "position",
        "messages",
        "turns",
        "steps",
        "evals",
        "covered",
        "compact_from_event_id",
    )
    return pa.schema(
        [*((name, pa.string()) for name in texts), *((name, pa.int64()) for name in numbers)]
    )


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        yield from zip(*(batch.column(name).to_pylist() for name in INPUT), strict=True)


_CASTS: Final = {"string": "TEXT", "bigint": "INTEGER", "binary": "BLOB"}
_SAMPLES: Final = {"string": "''", "bigint": "0", "binary": "x''"}
_NO_EVENT: Final = 2**62


def folded_parts(bounds: Sequence[FileBound], options: ReadOptions) -> Iterator[tuple[int, Piece]]:
    """Yield the input of the table `view`, each piece with its approximate bytes."""
    for bound in bounds:
        keys = _keys(bound, options)
        for after, upto in keys:
            yield bound.bytes // len(keys), build_tail(bound, options, after, upto)


def _keys(bound: FileBound, options: ReadOptions) -> list[tuple[int, int]]:
    count = -(-bound.bytes // options.partition_bytes)
    if count <= 1 or options.conditions.on("session"):
        return [(0, _NO_EVENT)]
    [(greatest,)] = cuts.fetch_rows(bound, SQL.greatest_key)
    width = max(1, -(-greatest // count))
    lows = range(0, max(greatest, 1), width)
    return [(low, low + width) for low in lows]


def build_tail(bound: FileBound, options: ReadOptions, after: int, upto: int) -> Piece:
    """Return the query for the sessions with keys after `after` until `upto`."""
    columns = options.tables.table(options.table.reads).select_columns()
    conditions, values = as_sql(options.conditions.on("session"), 3)
    texts = [text.replace('"session"', "s.session_id") for text in conditions]
    if bound.since:
        texts.append(SQL.touched_since.format(cut=bound.seq, since=bound.since))
    sql = SQL.tail.format(
        samples=", ".join(f'{_SAMPLES[column.type]} AS "{column.name}"' for column in columns),
        columns=", ".join(
            f'CAST("{column.name}" AS {_CASTS[column.type]}) AS "{column.name}"'
            for column in columns
        ),
        cut=bound.seq,
        event=options.event or _NO_EVENT,
        conditions=" AND ".join(texts) or "1",
    )
    constants = ((SPACE, bound.space), (ROOT, bound.root))
    return Piece(bound.path, sql, (after, upto, *values), constants)
