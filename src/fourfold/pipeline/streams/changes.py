"""Queries of streams that are put together here: what the folds read, and ranges of offsets."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from fourfold import limits
from fourfold.kernel import load_queries
from fourfold.pipeline import cut as cuts
from fourfold.pipeline import planning
from fourfold.pipeline.conditions import as_sql
from fourfold.pipeline.cut import Mark
from fourfold.pipeline.options import ReadOptions
from fourfold.pipeline.scan import Guard, Piece
from fourfold.pipeline.streams.promoting import Registries, outdated
from fourfold.pipeline.tables import ROOT, SPACE, Column

SQL: Final = load_queries("fourfold.pipeline.streams", "tables.sql")
_CASTS: Final = {"string": "TEXT", "bigint": "INTEGER", "binary": "BLOB", "timestamp": "TEXT"}
_SAMPLES: Final = {"TEXT": "''", "INTEGER": "0", "BLOB": "x''"}

Range = tuple[int, int, int]
"""The key of a stream, an offset, and the one to stop before."""


def registries_in(mark: Mark, pattern: str | None = None) -> Registries:
    """The registries by which messages in a file are promoted. A registry only ever goes on, and
    this is asked after the cut: so whatever is read, its version is one of them.
    """
    rows = cuts.rows(mark, SQL.registries, (pattern,))
    return outdated((stream, text, first) for _, stream, _, text, first in rows)


def folded_parts(marks: Sequence[Mark], options: ReadOptions) -> Iterator[tuple[int, Piece]]:
    """What the folded tables read, each piece with the registries of its file."""
    parts = _changes_in if options.table.reads == "changes" else _stored_in
    for mark in marks:
        registries = registries_in(mark, options.stream)
        for cost, piece in parts(mark, options):
            yield cost, replace(piece, told=registries or None)


def _stored_in(mark: Mark, options: ReadOptions) -> Iterator[tuple[int, Piece]]:
    """What messages are made of."""
    stored = replace(options, table_name=options.table.reads, columns=None)
    return planning.raw_parts([mark], stored, stored.table.chosen())


def _changes_in(mark: Mark, options: ReadOptions) -> Iterator[tuple[int, Piece]]:
    """What the fold of states reads; a large file is cut into parts by the keys of its streams."""
    count = -(-mark.bytes // options.partition_bytes)
    [(greatest,)] = cuts.rows(mark, SQL.greatest_sid)
    width = max(1, -(-greatest // count))
    lows = range(0, max(greatest, 1), width)
    for low in lows:
        yield mark.bytes // len(lows), _changes(mark, options, low, low + width)


def _changes(mark: Mark, options: ReadOptions, after: int, upto: int) -> Piece:
    columns = options.tables.table(options.table.reads).chosen()
    texts, given = as_sql(options.conditions.on("stream"), 3)
    if options.stream is not None:
        texts.append(f'"stream" GLOB {quoted(options.stream)}')
    conditions = " AND ".join(texts) or "1"
    sql = SQL.changes.format(**_shape(columns), cut=mark.seq, conditions=conditions)
    values = (after, upto, *given)
    guard = Guard(
        SQL.changes_whole.format(conditions=conditions),
        values,
        "records of a stream were published, and its state cannot be folded of the others alone",
    )
    return Piece(mark.path, sql, values, _constants(mark), guard=guard)


def ranges(mark: Mark, columns: Sequence[Column], wanted: Sequence[Range]) -> Iterator[Piece]:
    """The records of ranges of offsets, in pieces of a good size; all of them, or an error."""
    own = [each for each in columns if each.name not in {SPACE, ROOT}]
    sql = SQL.ranges.format(**_shape(own))
    for some in _divided(wanted):
        asked = json.dumps(some)
        refusal = "retention or the archive gave up records before they were read"
        guard = Guard(SQL.ranges_whole, (asked,), refusal)
        yield Piece(mark.path, sql, (asked,), _constants(mark), guard=guard)


def _divided(wanted: Sequence[Range]) -> Iterator[list[Range]]:
    """Ranges together until there is enough to do; a long one in several."""
    ready: list[Range] = []
    left = limits.STREAM_TASK_ROWS
    for sid, start, end in wanted:
        low = start
        while low < end:
            high = min(end, low + left)
            ready.append((sid, low, high))
            left -= high - low
            low = high
            if not left:
                yield ready
                ready, left = [], limits.STREAM_TASK_ROWS
    if ready:
        yield ready


def _shape(columns: Sequence[Column]) -> dict[str, str]:
    casts = [(each.name, _CASTS[each.type]) for each in columns]
    return {
        "samples": ", ".join(f'{_SAMPLES[cast]} AS "{name}"' for name, cast in casts),
        "columns": ", ".join(f'CAST("{name}" AS {cast}) AS "{name}"' for name, cast in casts),
    }


def _constants(mark: Mark) -> tuple[tuple[str, str], ...]:
    return ((SPACE, mark.space), (ROOT, mark.root))


def quoted(text: str) -> str:
    """Text inside a query."""
    return "'" + text.replace("'", "''") + "'"
