"""The page of the archive: restore points, what is only on this disk, backups, and commands."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from fourfold.errors import Forbidden, FourfoldError
from fourfold.explorer import values
from fourfold.explorer.page import ExplorerPage, ExplorerQuery, Visit
from fourfold.wire.errors import Health
from fourfold.wire.store import (
    ArchiveTableList,
    ArchiveTableRow,
    BackupPage,
    DatabaseStatusPage,
    PointPage,
)

POINTS_SHOWN: Final = 20
DATABASES_SHOWN: Final = 50
BACKUPS_SHOWN: Final = 20


class ArchiveQuery(ExplorerQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the page of the archive."""

    points: str = ""
    """Cursor of the restore points."""
    databases: str = ""
    """Cursor of the databases."""


async def archive_page(visit: Visit, query: ArchiveQuery) -> dict[str, Any]:
    """Show how far the store is published, and how to restore it."""
    health, databases, backups, (points, problem), (tables, tables_problem) = await asyncio.gather(
        visit.api.get("/health", Health),
        visit.api.get(
            *("/v1/archive", DatabaseStatusPage), cursor=query.databases, limit=DATABASES_SHOWN
        ),
        visit.api.get("/v1/backups", BackupPage, limit=BACKUPS_SHOWN),
        list_points(visit, query.points, POINTS_SHOWN),
        _list_tables(visit),
    )
    until_ms = visit.time_ms
    rows = point_rows(points, until_ms)
    status = [
        {**msgspec.to_builtins(row), "only_here": max(0, row.newest - row.published) + row.changes}
        for row in databases.items
    ]
    streams = databases.streams
    newest_ms = rows[0]["at_ms"] if rows and not query.points else None
    return {
        "health": health,
        "problem": problem,
        "points": rows,
        "points_cursor": query.points,
        "next_points": points.next_cursor,
        "newest_ms": newest_ms,
        "lag_ms": None if newest_ms is None else max(0, visit.now_ms - newest_ms),
        "tables": tables,
        "tables_problem": tables_problem,
        "databases": status,
        "databases_cursor": query.databases,
        "next_databases": databases.next_cursor,
        "streams": streams,
        "is_published": not any(row["only_here"] for row in status)
        and (streams is None or not streams.records),
        "is_whole": not (query.databases or databases.next_cursor)
        and (streams is None or streams.complete),
        "only_here": sum(row["only_here"] for row in status),
        "lagging": sum(bool(row["only_here"]) for row in status),
        "backups": backups.items,
    }


async def _list_tables(visit: Visit) -> tuple[list[ArchiveTableRow], str]:
    """Return the tables of the archive, and why they cannot be read."""
    try:
        listed = await visit.api.get("/v1/archive/tables", ArchiveTableList)
    except Forbidden:
        raise
    except FourfoldError as error:
        return [], error.message
    return listed.tables, ""


def point_rows(points: PointPage, until_ms: int | None) -> list[dict[str, Any]]:
    """Return restore points for a page, with their times; those until a time if one is given."""
    rows = [
        {**msgspec.to_builtins(point), "at_ms": values.to_ms(point.at)} for point in points.items
    ]
    return [row for row in rows if until_ms is None or row["at_ms"] <= until_ms]


async def list_points(visit: Visit, cursor: str, limit: int) -> tuple[PointPage, str]:
    """Return a page of restore points, and why there is none."""
    try:
        page = await visit.api.get("/v1/points", PointPage, cursor=cursor, limit=limit)
    except Forbidden:
        raise
    except FourfoldError as error:
        # The object store does not respond; the rest of the page does not need it.
        return PointPage(items=[], next_cursor=None), error.message
    return page, ""


PAGES: Final = (
    ExplorerPage("/archive", "archive.html", archive_page, ArchiveQuery, "Show the archive."),
)
