"""Rollups and payloads of the unsealed tail of streams, in memory.

A stream that declares rollups has them in the companions of its segments; records that are still
in the log have none. An aggregate therefore builds the rollups of the log in pieces of a fixed
number of records, and the next one reads only what was appended since. Records never change, so a
piece is valid as long as the stream and its declaration are. Pieces whose records were trimmed are
not read again, and are the first to be evicted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from fourfold.archive.parquet import arrow
from fourfold.cache import LruCache
from fourfold.content.json_pointer import lookup
from fourfold.models.streams.records import Record
from fourfold.models.streams.search.companions.plans import CompanionPlan
from fourfold.models.streams.search.companions.rollups import RollupWriter, rollup_of_columns
from fourfold.models.streams.search.projection import compile_columns, compile_decoder
from fourfold.models.streams.search.tail_text import TEXT_BYTES_MAX, TailText
from fourfold.models.streams.search.timestamps import TIME_MAX_MS, parse_message_time

PIECE_RECORDS: Final = 8_192
"""Records of a piece; the first one of a log has fewer, and the last one grows."""
LINES_RECORDS: Final = 1_024
"""Records that are decoded at once."""
ROWS_MAX: Final = 400_000
"""Rows of rollups in memory, of all streams together: about 50 bytes each."""

Row: TypeAlias = tuple[int, bytes, int, Any] | Record
"""The fields of a record."""
Key = tuple[str, int, str, int]
"""Incarnation of a stream, the stream that has the records, digest of the plan, and the number.

Payloads have no plan.
"""


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


T = TypeVar("T", TailPiece, TailText)


class TailReader(NamedTuple):
    """Reads records of a log, from an offset to before another one."""

    lines: Callable[[int, int], bytes]
    """Returns the payloads, joined by line feeds."""
    rows: Callable[[int, int], Iterable[Sequence[Row]]]
    """Yields the fields of the records, block by block."""
    times: Callable[[int, int], list[int]]
    """Returns when the records were appended."""


class TailPieces(Generic[T]):
    """The pieces of all streams of a store; bounded, and safe for threads."""

    def __init__(self, max_weight: int) -> None:
        self._pieces: LruCache[Key, T] = LruCache(max_weight, lambda piece: piece.weight)
        self._lock = threading.Lock()

    def get(self, key: Key) -> T | None:
        """Return a piece, or None."""
        with self._lock:
            return self._pieces.get(key)

    def put(self, key: Key, piece: T) -> None:
        """Store a piece instead of the one before."""
        with self._lock:
            self._pieces.put(key, piece)


class TailCache:
    """Rollups and payloads of the unsealed tails of a store, in memory."""

    def __init__(self) -> None:
        self.rollups: TailPieces[TailPiece] = TailPieces(ROWS_MAX)
        self.texts: TailPieces[TailText] = TailPieces(TEXT_BYTES_MAX)


def ranges(start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the number and the bounds of each piece of a range, the newest first."""
    for number in range((end - 1) // PIECE_RECORDS, start // PIECE_RECORDS - 1, -1):
        first = number * PIECE_RECORDS
        yield number, max(start, first), min(end, first + PIECE_RECORDS)


def build(plan: CompanionPlan, reader: TailReader, start: int, end: int, step: int) -> TailPiece:
    """Return the rollups of some records, of which so many are decoded at once."""
    pa, _ = arrow()
    fields = _decode(_names(plan), reader, start, end, step)

    def column(field: str) -> list[Any]:
        name, *path = field.split(".")
        values = fields[name]
        return [lookup(value, tuple(path)) for value in values] if path else values

    times = None if plan.timestamp is None else _plain_times(column(plan.timestamp))
    if times is None:
        appended = reader.times(start, end)
        values = appended if plan.timestamp is None else column(plan.timestamp)
        times = pa.array(_times(values, appended), pa.int64())
    columns = {
        place: column(plan.fields[place])
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
            rows = zip(times.to_pylist(), _rows(by), _rows(measures), strict=False)
            for time_ms, groups, numbers in rows:
                writer.add(time_ms, groups, numbers)
            table = writer.table() if writer.is_exact else None
            if writer.has_containers:
                containers.add(at)
        tables.append(table)
    low, high = pa.compute.min_max(times).as_py().values()
    return TailPiece(start, end, low, high, tuple(tables), frozenset(containers))


def _names(plan: CompanionPlan) -> list[str]:
    """Return the names of the fields of a message that its rollups need."""
    fields = [plan.fields[at] for rollup in plan.rollups for at in (*rollup.by, *rollup.measures)]
    if plan.timestamp is not None:
        fields.append(plan.timestamp)
    return [field.split(".")[0] for field in fields]


def _decode(
    names: list[str], reader: TailReader, start: int, end: int, step: int
) -> dict[str, list[Any]]:
    """Return the values of some fields of the messages, by name."""
    decode_columns, decode_objects = compile_columns(names), compile_decoder(names)
    fields: dict[str, list[Any]] = {name: [] for name in names}
    for first in range(start, end, step):
        last = min(end, first + step)
        columns = decode_columns(reader.lines(first, last), last - first)
        if columns is None:
            # One is not an object, or only the other decoder can read it.
            payloads = [row[1] for block in reader.rows(first, last) for row in block]
            messages = decode_objects(payloads)
            columns = {name: [lookup(message, (name,)) for message in messages] for name in names}
        for name, values in columns.items():
            fields[name] += values
    return fields


def _rows(columns: list[list[Any]]) -> Iterable[tuple[Any, ...]]:
    return zip(*columns, strict=True) if columns else repeat(())


def _plain_times(values: list[Any]) -> Any:
    """Return values that are all times in milliseconds as an array, or None."""
    if set(map(type, values)) != {int}:
        return None
    pa, _ = arrow()
    try:
        times = pa.array(values, pa.int64())
    except OverflowError:
        return None
    low, high = pa.compute.min_max(times).as_py().values()
    return times if low >= -TIME_MAX_MS and high <= TIME_MAX_MS else None


def _times(values: list[Any], appended: list[int]) -> list[int]:
    """Return the time of each message by its field, or when it was appended."""
    times = map(parse_message_time, values)
    return [late if time is None else time for time, late in zip(times, appended, strict=True)]


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
