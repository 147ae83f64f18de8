"""Rollups of the unsealed tail of streams, in memory.

A stream that declares rollups has them in the companions of its segments; records that are still
in the log have none. An aggregate therefore builds the rollups of the log in pieces of a fixed
number of records, and the next one reads only what was appended since. Records never change, so a
piece is valid as long as the stream and its declaration are. Pieces whose records were trimmed are
not read again, and are the first to be evicted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from fourfold.archive.parquet import arrow
from fourfold.cache import LruCache
from fourfold.content.json_pointer import ABSENT, lookup
from fourfold.models.streams.records import Record
from fourfold.models.streams.search.companions.plans import CompanionPlan
from fourfold.models.streams.search.companions.rollups import RollupWriter
from fourfold.models.streams.search.query import decode_message
from fourfold.models.streams.search.timestamps import compile_time

PIECE_RECORDS: Final = 2_048
"""Records of a piece; the first one of a log has fewer, and the last one grows."""
ROWS_MAX: Final = 400_000
"""Rows of rollups in memory, of all streams together: about 50 bytes each."""

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


def build(plan: CompanionPlan, records: Iterable[Record], start: int, end: int) -> TailPiece:
    """Return the rollups of some records."""
    time_of = compile_time(plan.timestamp)
    decode = _compile_decoder(plan)
    paths = [tuple(field.split(".")) for field in plan.fields]
    writers = [
        (
            RollupWriter(rollup),
            [paths[at] for at in rollup.by],
            [paths[at] for at in rollup.measures],
        )
        for rollup in plan.rollups
    ]
    times: list[int] = []
    for record in records:
        message = decode(record.payload)
        time_ms = time_of(message, record.ts_ms)
        times.append(time_ms)
        for writer, by, measures in writers:
            writer.add(
                time_ms,
                [lookup(message, path) for path in by],
                [lookup(message, path) for path in measures],
            )
    tables = tuple(writer.table() if writer.is_exact else None for writer, _, _ in writers)
    containers = frozenset(at for at, (writer, _, _) in enumerate(writers) if writer.has_containers)
    return TailPiece(start, end, min(times), max(times), tables, containers)


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


def _compile_decoder(plan: CompanionPlan) -> Callable[[bytes], Any]:
    """Return the function that decodes what rollups need of a message, and skips the rest."""
    fields = [plan.fields[at] for rollup in plan.rollups for at in (*rollup.by, *rollup.measures)]
    if plan.timestamp is not None:
        fields.append(plan.timestamp)
    names = list(dict.fromkeys(field.split(".")[0] for field in fields))
    struct = msgspec.defstruct(
        "TailMessage",
        [(f"field{at}", Any, ABSENT) for at in range(len(names))],
        rename={f"field{at}": name for at, name in enumerate(names)},
    )
    decode = msgspec.json.Decoder(struct).decode

    def decode_fields(payload: bytes) -> Any:
        try:
            values = msgspec.structs.astuple(decode(payload))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # Not an object, or only the other decoder can read it.
            return decode_message(payload)
        return {
            name: value for name, value in zip(names, values, strict=True) if value is not ABSENT
        }

    return decode_fields
