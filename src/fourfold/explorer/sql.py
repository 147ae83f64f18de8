"""The page of SQL: a query in the address, its result, a chart of it, and the tables."""

from __future__ import annotations

import time
from typing import Any, Final, Literal

from fourfold.errors import FourfoldError, Unauthorized
from fourfold.explorer.links import format_at
from fourfold.explorer.page import ExplorerPage, ExplorerQuery, PageFeed, Visit
from fourfold.server.errors import redact_paths
from fourfold.server.request import Response
from fourfold.server.sql import ARROW, CSV, SQL, TABLES
from fourfold.wire.sql import SqlResult, SqlTables

ROWS_SHOWN: Final = 500
ROWS_CHOICES: Final = (100, 500, 1000)
DEADLINES: Final = (10, 30, 60)
CHART_ROWS: Final = (2, 60)
"""A result with this many rows, from and to, has a chart."""
EXPORTS: Final = {
    "csv": (CSV, "result.csv"),
    "json": ("application/json", "result.json"),
    "arrow": (ARROW, "result.arrows"),
}
SAMPLES: Final = (
    (
        "Entities by space",
        "select space, count(*) as entities from documents_state group by space order by 2 desc",
    ),
    (
        "Newest commits",
        "select time, space, branch, seq from documents_commits order by time desc limit 20",
    ),
    (
        "Largest streams",
        "select stream, records, bytes from streams_streams order by bytes desc limit 20",
    ),
    (
        "Tokens by session",
        "select session, sum(tokens) as tokens from sessions_turns group by session limit 20",
    ),
    (
        "Objects by app and type",
        "select app, type, count(*) as objects from graphs_current group by 1, 2 order by 3 desc",
    ),
)


class SqlPageQuery(ExplorerQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the page of SQL."""

    query: str = ""
    """The SELECT to run; empty for none."""
    rows: Literal[100, 500, 1000] = ROWS_SHOWN
    """Rows to show at most."""
    deadline: Literal[10, 30, 60] = 10
    """Seconds after which the query is stopped."""
    model: str = ""
    """Model whose tables are listed; by default that of the first table in the query."""
    table: str = ""
    """Table whose columns are listed."""


class ExportQuery(SqlPageQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of a download."""

    format: Literal["csv", "json", "arrow"] = "csv"


async def sql_page(visit: Visit, query: SqlPageQuery) -> dict[str, Any]:
    """Run the query of the address, and show its result."""
    tables = await visit.api.get(TABLES, SqlTables)
    result: SqlResult | None = None
    problem: FourfoldError | None = None
    began = time.monotonic()
    if query.query.strip():
        try:
            body = _body(visit, query, max_rows=query.rows)
            result = visit.api.decode(await visit.api.call("POST", SQL, body), SqlResult)
        except Unauthorized:
            raise
        except FourfoldError as error:
            problem = redact_paths(error)
    table = next((row for row in tables.tables if row.name == query.table), None)
    used = (row for row in tables.tables if row.name in query.query)
    first = table or next(used, None) or next(iter(tables.tables), None)
    return {
        "query": query.query,
        "rows": query.rows,
        "deadline": query.deadline,
        "choices": {"rows": ROWS_CHOICES, "deadline": DEADLINES},
        "took_ms": round(1000 * (time.monotonic() - began)),
        "models": list(dict.fromkeys(row.model for row in tables.tables)),
        "model": query.model or ("" if first is None else first.model),
        "table": table,
        "tables": tables.tables,
        "result": result,
        "problem": None if problem is None else problem.as_dict(),
        "chart": None if result is None else chart_of(result),
        "samples": [{"title": title, "query": text} for title, text in SAMPLES],
        "exports": list(EXPORTS),
    }


async def export(visit: Visit, query: ExportQuery) -> Response:
    """Return the result of a query as a file."""
    accept, name = EXPORTS[query.format]
    body = _body(visit, query)
    response = await visit.api.call("POST", SQL, body, {"accept": accept})
    response.headers["content-disposition"] = f'attachment; filename="{name}"'
    return response


def _body(visit: Visit, query: SqlPageQuery, **options: Any) -> dict[str, Any]:
    at = visit.at if isinstance(visit.at, int) else format_at(visit.at) or None
    return {"query": query.query, "at": at, "timeout_s": query.deadline, **options}


def chart_of(result: SqlResult) -> dict[str, Any] | None:
    """Return the values of the last column of numbers, with labels; None if there is no chart."""
    first, last = CHART_ROWS
    if result.truncated or not first <= len(result.rows) <= last:
        return None
    columns = list(zip(*result.rows, strict=True))
    for at in reversed(range(len(columns))):
        if all(_is_amount(value) for value in columns[at]):
            named = next((index for index in range(len(columns)) if index != at), None)
            labels = range(1, len(result.rows) + 1) if named is None else columns[named]
            return {
                "column": result.columns[at].name,
                "by": "" if named is None else result.columns[named].name,
                "labels": [str(label) for label in labels],
                "amounts": list(columns[at]),
            }
    return None


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


PAGES: Final = (
    ExplorerPage("/sql", "sql.html", sql_page, SqlPageQuery, "Run a query.", cancellable=True),
)
FEEDS: Final = (
    PageFeed(
        "/sql/export", export, ExportQuery, "Download the result of a query.", cancellable=True
    ),
)
