"""What the fold of views reads of a file: of each session, what lies behind its newest snapshot.

A large file is cut into parts by the keys of its sessions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from fourfold.kernel import load_queries
from fourfold.pipeline import cut as cuts
from fourfold.pipeline.conditions import as_sql
from fourfold.pipeline.cut import Mark
from fourfold.pipeline.options import ReadOptions
from fourfold.pipeline.scan import Piece
from fourfold.pipeline.tables import ROOT, SPACE

_SQL: Final = load_queries("fourfold.pipeline.sessions", "tables.sql")
_CASTS: Final = {"string": "TEXT", "bigint": "INTEGER", "binary": "BLOB"}
_SAMPLES: Final = {"string": "''", "bigint": "0", "binary": "x''"}
_NO_EVENT: Final = 2**62


def tails(marks: Sequence[Mark], options: ReadOptions) -> Iterator[tuple[int, Piece]]:
    for mark in marks:
        keys = _keys(mark, options)
        for after, upto in keys:
            yield mark.bytes // len(keys), tail(mark, options, after, upto)


def _keys(mark: Mark, options: ReadOptions) -> list[tuple[int, int]]:
    count = -(-mark.bytes // options.partition_bytes)
    if count <= 1 or options.conditions.on("session"):
        return [(0, _NO_EVENT)]
    [(greatest,)] = cuts.rows(mark, _SQL.greatest_key)
    width = max(1, -(-greatest // count))
    lows = range(0, max(greatest, 1), width)
    return [(low, low + width) for low in lows]


def tail(mark: Mark, options: ReadOptions, after: int, upto: int) -> Piece:
    """The rows of the sessions with keys beyond one and up to another."""
    columns = options.tables.table(options.table.reads).chosen()
    conditions, values = as_sql(options.conditions.on("session"), 3)
    texts = [text.replace('"session"', "s.session_id") for text in conditions]
    if mark.since:
        texts.append(_SQL.touched_since.format(cut=mark.seq, since=mark.since))
    sql = _SQL.tail.format(
        samples=", ".join(f'{_SAMPLES[each.type]} AS "{each.name}"' for each in columns),
        columns=", ".join(
            f'CAST("{each.name}" AS {_CASTS[each.type]}) AS "{each.name}"' for each in columns
        ),
        cut=mark.seq,
        event=options.event or _NO_EVENT,
        conditions=" AND ".join(texts) or "1",
    )
    constants = ((SPACE, mark.space), (ROOT, mark.root))
    return Piece(mark.path, sql, (after, upto, *values), constants)
