"""The lineage of heads over many stores: what a worker does in one round of a walk.

A round follows every head of the frontier through each file to its very end, by one recursive
query: a chain of ten thousand heads in one store is one step. What is found is the frontier of the
next round, in which every *other* file goes on from it. So the number of rounds is that of the
changes from one store to another on the way, and no pair of a head and a file is followed twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from fourfold import limits
from fourfold.kernel import load_queries
from fourfold.pipeline import cut as cuts
from fourfold.pipeline.cut import Mark
from fourfold.pipeline.tables import arrow

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

BACK: Final = "ancestor"
FORTH: Final = "descendant"
FOUND: Final = "origin string, relation string, head string, finder int"
"""What a round finds: the head that was asked for, what the found one is to it, and the number of
the file that led to it.
"""
FRONTIER: Final = "origin string, relation string, head string, finders array<int>"
_SQL: Final = load_queries("fourfold.pipeline.sessions", "walking.sql")
_KNOWN: Final = {BACK: _SQL.known_back, FORTH: _SQL.known_forth}
_WALK: Final = {BACK: _SQL.back, FORTH: _SQL.forth}


class Walking:
    """What a worker does with the numbers of the tasks that it is given: each is some files."""

    def __init__(self, work: Sequence[Sequence[tuple[int, Mark]]], frontier: str) -> None:
        self._work = work
        self._frontier = frontier

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq  # noqa: PLC0415 - an optional dependency

        pa = arrow()
        asked = pq.read_table(self._frontier).to_pylist()
        for batch in batches:
            for place in batch.column(0).to_pylist():
                for number, mark in self._work[place]:
                    for rows in _pages(_found(number, mark, asked), limits.SOURCE_BATCH_ROWS):
                        yield pa.RecordBatch.from_pylist(rows, schema=_schema())


def _pages(items: Iterable[T], size: int) -> Iterator[list[T]]:
    left = iter(items)
    while page := list(islice(left, size)):
        yield page


def _schema() -> pa.Schema:
    pa = arrow()
    texts = [(name, pa.string()) for name in ("origin", "relation", "head")]
    return pa.schema([*texts, ("finder", pa.int32())])


def _found(number: int, mark: Mark, asked: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The heads that one file leads to from those of the frontier that it has not followed yet."""
    waiting: dict[str, list[tuple[str, str]]] = {BACK: [], FORTH: []}
    for row in asked:
        if number not in row["finders"]:
            waiting[row["relation"]].append((row["origin"], row["head"]))
    for relation, pairs in waiting.items():
        known: set[str] = set()
        for some in _pages(sorted({head for _, head in pairs}), limits.SOURCE_BATCH_ROWS):
            known.update(row[0] for row in cuts.rows(mark, _KNOWN[relation], (json.dumps(some),)))
        seeds = [pair for pair in pairs if pair[1] in known]
        if seeds:
            for origin, head in cuts.each(mark, _WALK[relation], (json.dumps(seeds), mark.seq)):
                yield {"origin": origin, "relation": relation, "head": head, "finder": number}
