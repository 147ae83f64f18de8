"""Peers of searches: DuckDB on the same Parquet, SQLite directly, ripgrep on NDJSON, and Prisma
Streams over HTTP.

Each is optional. One that is absent, or does not answer, is stated with the reason.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import apsw
import msgspec

from bench.ask import prisma
from bench.ask.messages import DAY_MS, START_MS, messages, rare_word
from bench.ask.rounds import batches, least_ms
from fourfold.kernel import load_queries

SQL = load_queries("bench.ask")
SQLITE_BATCH: Final = 10_000
RARE: Final = "rare term, with its message"
RANGE: Final = "range filter, counted, 50 messages"
ROLLUP: Final = "one-minute rollup"
DUCKDB_SQL: Final = {
    RARE: SQL.segments_with_word,
    RANGE: SQL.segments_in_range,
    ROLLUP: SQL.segments_by_minute,
}


class Peers:
    """The times of the peers by figure, and why one was not measured."""

    def __init__(self) -> None:
        self.figures: dict[str, dict[str, float]] = {RARE: {}, RANGE: {}, ROLLUP: {}}
        self.unmeasured: dict[str, str] = {}

    def measure_ripgrep(self, ndjson: Path, count: int, rounds: int) -> None:
        """Measure ripgrep, which finds words and no more, in wall time."""
        name = "ripgrep on NDJSON"
        if shutil.which("rg") is None:
            self.unmeasured[name] = "rg is not installed"
            return

        def search(number: int) -> None:
            pattern = rf"\b{rare_word(number, count)}\b"
            subprocess.run(["rg", "-N", pattern, str(ndjson)], check=True, capture_output=True)

        self.figures[RARE][name] = least_ms(rounds, search, time.perf_counter)[0]

    def measure_sqlite(self, path: Path, count: int, rounds: int) -> None:
        """Measure one SQLite file with a table, an index and FTS5 of the messages, in wall time."""
        name = "SQLite directly"
        connection = apsw.Connection(str(path))
        try:
            _fill_sqlite(connection, count)

            def word(number: int) -> None:
                rows = connection.execute(SQL.logs_with_word, (rare_word(number, count),))
                assert [msgspec.json.decode(body) for (body,) in rows]

            def in_range(number: int) -> None:
                assert connection.execute(SQL.logs_count, (150 + number,)).fetchall()
                rows = connection.execute(SQL.logs_in_range, (150 + number,))
                assert [msgspec.json.decode(body) for (body,) in rows]

            def by_minute(_number: int) -> None:
                assert connection.execute(SQL.logs_by_minute).fetchall()

            for figure, call in {RARE: word, RANGE: in_range, ROLLUP: by_minute}.items():
                self.figures[figure][name] = least_ms(rounds, call, time.perf_counter)[0]
        finally:
            connection.close()

    def measure_duckdb(self, folder: Path, count: int) -> None:
        """Measure DuckDB on the Parquet of the segments, with two threads, in wall time."""
        name = "DuckDB on the segments"
        try:
            import duckdb
        except ImportError:
            self.unmeasured[name] = "duckdb is not installed"
            return
        files = [str(path) for path in sorted(folder.rglob("*.parquet")) if _is_parquet(path)]
        with duckdb.connect(config={"threads": 2}) as connection:
            rows = connection.execute(SQL.segments_count, [files]).fetchall()[0][0]
            if rows != count:
                self.unmeasured[name] = f"the cache has {rows:,} of {count:,} messages"
                return
            for figure, query in DUCKDB_SQL.items():

                def run(_number: int, query: str = query) -> None:
                    assert connection.execute(query, [files]).fetchall()

                self.figures[figure][name] = least_ms(2, run, time.perf_counter)[0]

    def measure_prisma(self, folder: Path, installed: Path, count: int, rounds: int) -> None:
        """Measure Prisma Streams over HTTP, in wall time, once its answers are complete."""
        name = "Prisma Streams over HTTP"
        try:
            with prisma.running(folder, installed) as peer:
                peer.fill(messages(count), count)
                calls: dict[str, Callable[[int], Any]] = {
                    RARE: lambda number: peer.search(rare_word(number, count), size=50)["hits"],
                    RANGE: lambda number: peer.search(
                        f"duration:>{150 + number} service:auth", size=50
                    )["hits"],
                    ROLLUP: lambda _number: peer.rollup(START_MS, START_MS + DAY_MS)["buckets"],
                }
                for figure, call in calls.items():
                    if not call(0):
                        self.unmeasured[f"{name}, {figure}"] = "its answer is empty"
                        continue
                    self.figures[figure][name] = least_ms(rounds, call, time.perf_counter)[0]
        except prisma.Unmeasured as error:
            self.unmeasured[name] = str(error)


def _fill_sqlite(connection: apsw.Connection, count: int) -> None:
    connection.execute(SQL.logs_table)
    connection.execute(SQL.logs_words)
    with connection:
        for first, batch in enumerate(batches(messages(count), SQLITE_BATCH)):
            rows = list(enumerate(batch, first * SQLITE_BATCH))
            connection.executemany(
                SQL.logs_insert,
                (
                    (at, m["time"], m["service"], m["duration"], msgspec.json.encode(m).decode())
                    for at, m in rows
                ),
            )
            connection.executemany(SQL.logs_insert_words, ((at, m["message"]) for at, m in rows))
    connection.execute(SQL.logs_index)


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"PAR1"
