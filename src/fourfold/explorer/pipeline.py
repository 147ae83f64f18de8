"""The page of the pipeline: jobs on Spark with their progress, runs, and the tables made."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from fourfold.explorer.archive import list_points, point_rows
from fourfold.explorer.jobs import job_row
from fourfold.explorer.page import ExplorerPage, ExplorerQuery, Fragment, Visit
from fourfold.wire.pipeline import RunPage, RunRow, TableFolderPage
from fourfold.wire.store import DatabaseStatusPage, JobPage

RUNS_SHOWN: Final = 20
JOBS_READ: Final = 20
FOLDERS_SHOWN: Final = 50
WATERMARKS_SHOWN: Final = 8
POINTS_SHOWN: Final = 5
JOBS_LINKED: Final = 4
DATABASES_READ: Final = 50
KIND: Final = "materialize"
"""The job of the server that runs on Spark."""


class PipelineQuery(ExplorerQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the page of the pipeline."""

    job: str = ""
    """Only runs of this job."""
    cursor: str = ""
    """Cursor of the runs."""


async def pipeline_page(visit: Visit, query: PipelineQuery) -> dict[str, Any]:
    """Show what runs on Spark, what ran, and the tables that it wrote."""
    running, queued, runs, folders, (points, problem), archive = await asyncio.gather(
        visit.api.get("/v1/jobs", JobPage, status="running", limit=JOBS_READ),
        visit.api.get("/v1/jobs", JobPage, status="queued", kind=KIND, limit=JOBS_READ),
        visit.api.get(
            *("/v1/pipeline/runs", RunPage), job=query.job, cursor=query.cursor, limit=RUNS_SHOWN
        ),
        visit.api.get("/v1/pipeline/tables", TableFolderPage, limit=FOLDERS_SHOWN),
        list_points(visit, "", POINTS_SHOWN),
        visit.api.get("/v1/archive", DatabaseStatusPage, limit=DATABASES_READ),
    )
    until_ms = visit.time_ms
    live = [
        job
        for job in (*running.items, *queued.items)
        if visit.at is None and (job.kind == KIND or job.started_by == "command")
    ]
    return {
        "job": query.job,
        "cursor": query.cursor,
        "live": [job_row(job, visit.now_ms) for job in live],
        "runs": [
            _run_row(run) for run in runs.items if until_ms is None or run.started_at_ms <= until_ms
        ],
        "jobs_shown": sorted({run.job for run in runs.items})[:JOBS_LINKED],
        "next_cursor": runs.next_cursor,
        "folders": [
            {
                **msgspec.to_builtins(folder),
                "watermarks": dict(list(folder.watermarks.items())[:WATERMARKS_SHOWN]),
            }
            for folder in folders.items
            if until_ms is None or folder.written_at_ms <= until_ms
        ],
        "points": point_rows(points, until_ms),
        "points_problem": problem,
        "only_here": sum(max(0, row.newest - row.published) + row.changes for row in archive.items),
        "more_databases": archive.next_cursor is not None,
        "is_empty": not (live or runs.items or folders.items or query.job or query.cursor),
    }


def _run_row(run: RunRow) -> dict[str, Any]:
    """Return a run for the page, with the rows that it read in a second."""
    rate = None
    if run.rows_in and run.duration_ms:
        rate = round(1000 * run.rows_in / run.duration_ms)
    return {**msgspec.to_builtins(run), "rate": rate}


PAGES: Final = (
    ExplorerPage("/pipeline", "pipeline.html", pipeline_page, PipelineQuery, "Show the pipeline."),
)
FRAGMENTS: Final = (
    Fragment(
        *("/pipeline.part", "pipeline_part.html", pipeline_page, PipelineQuery),
        "What ran, after a job has ended.",
    ),
)
