"""Rollups of the unsealed tail of streams, in memory.

A stream that declares rollups has them in the companions of its segments; records that are still
in the log have none. An aggregate therefore builds the rollups of the log in pieces of a fixed
number of records, and the next one reads only what was appended since. Records never change, so a
piece is valid as long as the stream and its declaration are. Pieces whose records were trimmed are
not read again, and are the first to be evicted.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple, TypeAlias

from fourfold.archive.parquet import arrow
from fourfold.cache import LruCache
from fourfold.content.json_pointer import ABSENT, Path, lookup
from fourfold.models.streams.records import Record
from fourfold.models.streams.search.companions.plans import CompanionPlan
from fourfold.models.streams.search.companions.rollups import RollupWriter, rollup_of_columns
from fourfold.models.streams.search.projection import compile_decoder
from fourfold.models.streams.search.timestamps import TIME_MAX_MS, compile_time

PIECE_RECORDS: Final = 8_192
"""Records of a piece; the first one of a log has fewer, and the last one grows."""
ROWS_MAX: Final = 400_000
"""Rows of rollups in memory, of all streams together: about 50 bytes each."""

Row: TypeAlias = tuple[int, bytes, int, Any] | Record
"""The fields of a record."""
Key = tuple[str, int, str, int]
"""Incarnation of a stream, the stream that has the records, digest of the plan, and the number."""


class TailPiece(NamedTuple):
    """The rollups of the records from `start` to before `end`."""

    start: int
    end: int
    time_min_ms: int
    time_max_ms: int
    tables: tuple[Any, ...]
    """For each planned rollup its rows, or None if a number does not fit."""
    with_containers: frozenset[int]
    """Rollups that group an array or object like null."""

    @property
    def weight(self) -> int:
        """The number of rows in memory."""
        return 1 + sum(int(table.num_rows) for table in self.tables if table is not None)

    def present(self, *, is_filtered: bool) -> list[int]:
        """Return the rollups that may answer an aggregate."""
        return [
            at
            for at, table in enumerate(self.tables)
            if table is not None and not (is_filtered and at in self.with_containers)
        ]


class TailRollups:
    """The pieces of all streams of a store; bounded, and safe for threads."""

    def __init__(self) -> None:
        self._pieces: LruCache[Key, TailPiece] = LruCache(ROWS_MAX, lambda piece: piece.weight)
        self._lock = threading.Lock()

    def get(self, key: Key) -> TailPiece | None:
        """Return a piece, or None."""
        with self._lock:
            return self._pieces.get(key)

    def put(self, key: Key, piece: TailPiece) -> None:
        """Store a piece instead of the one before."""
        with self._lock:
            self._pieces.put(key, piece)


def ranges(start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the number and the bounds of each piece of a range, the newest first."""
    for number in range((end - 1) // PIECE_RECORDS, start // PIECE_RECORDS - 1, -1):
        first = number * PIECE_RECORDS
        yield number, max(start, first), min(end, first + PIECE_RECORDS)


def build(plan: CompanionPlan, blocks: Iterable[Sequence[Row]], start: int, end: int) -> TailPiece:
    """Return the rollups of some records, which are read block by block."""
    decode = compile_decoder(_names(plan))
    messages: list[Any] = []
    appended: list[int] = []
    for block in blocks:
        messages += decode([row[1] for row in block])
        appended += [row[2] for row in block]
    times = _times(plan, messages, appended)
    columns = {
        place: _column(messages, tuple(plan.fields[place].split(".")))
        for place in {place for rollup in plan.rollups for place in (*rollup.by, *rollup.measures)}
    }
    tables: list[Any] = []
    containers: set[int] = set()
    for at, rollup in enumerate(plan.rollups):
        by = [columns[place] for place in rollup.by]
        measures = [columns[place] for place in rollup.measures]
        table = rollup_of_columns(rollup, times, by, measures)
        if table is None:
            writer = RollupWriter(rollup)
            for time_ms, values, numbers in zip(times, _rows(by), _rows(measures), strict=False):
                writer.add(time_ms, values, numbers)
            table = writer.table() if writer.is_exact else None
            if writer.has_containers:
                containers.add(at)
        tables.append(table)
    return TailPiece(start, end, min(times), max(times), tuple(tables), frozenset(containers))


def _names(plan: CompanionPlan) -> list[str]:
    """Return the names of the fields of a message that its rollups need."""
    fields = [plan.fields[at] for rollup in plan.rollups for at in (*rollup.by, *rollup.measures)]
    if plan.timestamp is not None:
        fields.append(plan.timestamp)
    return [field.split(".")[0] for field in fields]


def _column(messages: list[Any], path: Path) -> list[Any]:
    """Return the value of a field of each message."""
    if len(path) == 1:
        (name,) = path
        try:
            return [message.get(name, ABSENT) for message in messages]
        except AttributeError:
            # One is not an object.
            pass
    return [lookup(message, path) for message in messages]


def _rows(columns: list[list[Any]]) -> Iterable[tuple[Any, ...]]:
    return zip(*columns, strict=True) if columns else repeat(())


def _times(plan: CompanionPlan, messages: list[Any], appended: list[int]) -> list[int]:
    """Return the time of each message."""
    if plan.timestamp is not None:
        times = _column(messages, tuple(plan.timestamp.split(".")))
        if (
            set(map(type, times)) == {int}
            and -TIME_MAX_MS <= min(times) <= max(times) <= TIME_MAX_MS
        ):
            return times
    time_of = compile_time(plan.timestamp)
    return list(map(time_of, messages, appended))


def join(piece: TailPiece, later: TailPiece) -> TailPiece:
    """Return two adjacent pieces as one."""
    pa, _ = arrow()
    tables = tuple(
        None if one is None or two is None else pa.concat_tables([one, two]).combine_chunks()
        for one, two in zip(piece.tables, later.tables, strict=True)
    )
    return TailPiece(
        piece.start,
        later.end,
        min(piece.time_min_ms, later.time_min_ms),
        max(piece.time_max_ms, later.time_max_ms),
        tables,
        piece.with_containers | later.with_containers,
    )
