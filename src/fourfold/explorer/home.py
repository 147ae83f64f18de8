"""The home of a store, and the search by name."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from fourfold.errors import Forbidden
from fourfold.explorer import waiting
from fourfold.explorer.jobs import job_row
from fourfold.explorer.page import ExplorerPage, ExplorerQuery, Fragment, Visit
from fourfold.explorer.server_pages import health_checks, job_checks, last_jobs
from fourfold.wire.documents import SpacePage
from fourfold.wire.errors import Health
from fourfold.wire.store import Activity, JobPage, StoreOverview
from fourfold.wire.streams import StreamPage

RESULTS: Final = 20
JOBS_SHOWN: Final = 3
RUNNING_SHOWN: Final = 2


class SearchPageQuery(ExplorerQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the search."""

    prefix: str = ""


async def home_page(visit: Visit, _query: ExplorerQuery) -> dict[str, Any]:
    """Show what a store holds, what happened last, and its health."""
    overview, activity, health, grants, (jobs, running), checked = await asyncio.gather(
        visit.api.find("/v1/store", StoreOverview, at=visit.time),
        visit.api.find("/v1/store/activity", Activity, at=visit.time),
        visit.api.get("/health", Health),
        visit.grants(),
        _read_jobs(visit),
        last_jobs(visit),
    )
    return {
        "overview": overview,
        "grants": grants,
        "minutes": {} if activity is None else activity.minutes,
        "recent": [] if activity is None else activity.recent,
        "waiting": await waiting.list_waiting(visit),
        "health": health,
        "checks": [*health_checks(health, visit.now_ms), *job_checks(checked, visit.now_ms)],
        **_jobs(visit, jobs, running),
    }


async def home_part(visit: Visit, _query: ExplorerQuery) -> dict[str, Any]:
    """Show the newest jobs, which change when one ends."""
    jobs, running = await _read_jobs(visit)
    return _jobs(visit, jobs, running)


async def _read_jobs(visit: Visit) -> tuple[JobPage | None, JobPage | None]:
    """Return the newest jobs and those that run, if the key may see jobs."""
    return await asyncio.gather(
        visit.api.find("/v1/jobs", JobPage, limit=JOBS_SHOWN),
        visit.api.find("/v1/jobs", JobPage, status="running", limit=RUNNING_SHOWN),
    )


def _jobs(visit: Visit, jobs: JobPage | None, running: JobPage | None) -> dict[str, Any]:
    until_ms = visit.time_ms
    return {
        "jobs": None
        if jobs is None
        else [job for job in jobs.items if until_ms is None or job.created_at_ms <= until_ms],
        "running": []
        if running is None or visit.at is not None
        else [job_row(job, visit.now_ms) for job in running.items],
    }


async def search_page(visit: Visit, query: SearchPageQuery) -> dict[str, Any]:
    """Find spaces and streams whose names start with a text."""
    spaces = await _find(visit, "/v1/spaces", SpacePage, query.prefix, at=visit.time)
    if not query.prefix.startswith("did:") and query.prefix:
        web = await _find(visit, "/v1/spaces", SpacePage, f"did:web:{query.prefix}", at=visit.time)
        known = {row.did for row in spaces.items} if spaces is not None else set()
        if spaces is not None and web is not None:
            spaces.items.extend(row for row in web.items if row.did not in known)
    streams = await _find(visit, "/v1/streams", StreamPage, query.prefix)
    return {
        "prefix": query.prefix,
        "spaces": [] if spaces is None else spaces.items,
        "streams": []
        if streams is None
        else [
            row
            for row in streams.streams
            if visit.time_ms is None or row.created_at_ms <= visit.time_ms
        ],
    }


async def _find(visit: Visit, path: str, kind: Any, prefix: str, at: str = "") -> Any:
    """Return the first names with a prefix, or None if the key does not allow to list them."""
    try:
        return await visit.api.get(path, kind, prefix=prefix, limit=RESULTS, at=at)
    except Forbidden:
        return None


PAGES: Final = (
    ExplorerPage("/", "home.html", home_page, ExplorerQuery, "Show the store."),
    ExplorerPage("/search", "search.html", search_page, SearchPageQuery, "Search names."),
)
FRAGMENTS: Final = (
    Fragment("/home.part", "home_part.html", home_part, ExplorerQuery, "Newest jobs."),
)
