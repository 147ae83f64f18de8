"""Peers of the questions to one store: SQLite directly, and DuckDB on the same rows as Parquet.

They read the newest state only: neither knows history. DuckDB has one thread, so that its processor
time compares with that of the others, and is opened before the clock starts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import duckdb
import msgspec

from fourfold.kernel import load_queries
from fourfold.sql_result import Result

SQL = load_queries("bench.ask")


class Parquet:
    """Rows in a Parquet file, read by DuckDB."""

    def __init__(self, folder: Path, result: Result) -> None:
        path = folder / "rows.parquet"
        result.write_parquet(path)
        self._connection = duckdb.connect(config={"threads": 1})
        self._connection.execute(SQL.parquet_view.format(path=path))

    def query(self, sql: str) -> list[Any]:
        """Return the rows of a query over the table `rows`."""
        return self._connection.execute(sql).fetchall()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class Plain:
    """Documents in a table of SQLite, with an index on a field."""

    def __init__(self, path: Path, rows: list[tuple[str, str]], field: str) -> None:
        self._connection = apsw.Connection(str(path))
        self._connection.execute(SQL.plain_table)
        with self._connection:
            self._connection.executemany(SQL.plain_insert, rows)
        self._connection.execute(SQL.plain_index.format(field=field))
        self._page = SQL.plain_page.format(field=field)

    def page(self, value: str, limit: int) -> list[dict[str, Any]]:
        """Return the first documents with a value, decoded."""
        rows: list[tuple[Any, ...]] = self._connection.execute(
            self._page, (value, limit)
        ).fetchall()
        return [{"id": entity, "document": msgspec.json.decode(text)} for entity, text in rows]

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
