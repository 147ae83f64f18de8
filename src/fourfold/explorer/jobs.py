"""Pages of the server's jobs: the list, one job with its progress, and the preview of a new one."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any, Final, get_args

from msgspec import Struct

from fourfold.errors import InvalidInput
from fourfold.explorer import values
from fourfold.explorer.page import ExplorerPage, ExplorerQuery, Form, Fragment, Visit
from fourfold.wire.pipeline import TableFolderPage
from fourfold.wire.store import (
    ArchiveTableList,
    BackupPage,
    DatabaseStatusPage,
    JobInfo,
    JobKind,
    JobPage,
    JobStatus,
    StoreOverview,
    UploadInfo,
    UploadList,
)

PAGE_ROWS: Final = 50
ENDED: Final = frozenset({"succeeded", "failed", "cancelled", "interrupted"})
KINDS: Final[dict[str, str]] = {
    "verify": "Check every database and file of the store. Only reads.",
    "backup": "Write a verified copy of the store, next to it.",
    "gc": "Remove what policies, retention and grace periods no longer keep, in all models.",
    "publish": "Publish new data to the object store, and add a restore point.",
    "compact": "Merge small files of archive tables, and small segments of streams.",
    "index": "Index routing keys and fields of published records of streams.",
    "companions": "Build the search companions of published segments of streams.",
    "snapshots": "Add snapshots where reads would replay many revisions.",
    "load": "Write the lines of an uploaded file into a model. Repeated, it changes nothing.",
    "materialize": "Write the state of a model as Parquet tables, on Spark.",
    "stats": "Report sizes, duplicates and hot entities of a model, on Spark. Only reads.",
}
"""Descriptions of the jobs."""
MODELS: Final = {
    "load": ("documents", "streams", "graphs"),
    "materialize": ("documents", "streams", "graphs", "sessions"),
    "stats": ("documents", "streams", "graphs", "sessions"),
}
"""Models of the jobs that work on one of them."""
DATABASES_READ: Final = 200
STREAM_TABLE: Final = "streams.records"

_LABELS: Final = {"rows_in": "Rows read", "rows_out": "Rows written", "sentence": "Summary"}
"""Names of figures of a result that are not words."""


class JobsPageQuery(ExplorerQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the list of jobs."""

    kind: str = ""
    status: str = ""
    cursor: str = ""


class JobQuery(ExplorerQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the page of a job."""

    id: str


class RunQuery(ExplorerQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the preview of a job."""

    kind: str = ""
    """Kind of the job; empty to choose one."""
    model: str = "documents"
    upload: str = ""
    """File to load."""


class RunFields(Struct, kw_only=True, frozen=True):
    """Fields of the form that starts a job."""

    kind: str
    token: str
    """Idempotency key: sending the form again does not start a second job."""
    name: str = ""
    model: str = ""
    full: bool = False
    objects: bool = False
    upload: str = ""
    target: str = ""
    """Space or stream of a load."""


class CancelFields(Struct, kw_only=True, frozen=True):
    """Fields of the form that cancels a job."""

    id: str


async def jobs_page(visit: Visit, query: JobsPageQuery) -> dict[str, Any]:
    """List jobs by kind and status, newest first."""
    page = await visit.api.get(
        *("/v1/jobs", JobPage),
        kind=query.kind,
        status=query.status,
        cursor=query.cursor,
        limit=PAGE_ROWS,
    )
    until_ms = visit.time_ms
    return {
        "kind": query.kind,
        "status": query.status,
        "cursor": query.cursor,
        "jobs": [
            job_row(job, visit.now_ms)
            for job in page.items
            if until_ms is None or job.created_at_ms <= until_ms
        ],
        "kinds": sorted({*get_args(JobKind), *(job.kind for job in page.items), query.kind} - {""}),
        "statuses": list(get_args(JobStatus)),
        "is_empty": not (page.items or query.kind or query.status or query.cursor),
        "next_cursor": page.next_cursor,
    }


async def job_page(visit: Visit, query: JobQuery) -> dict[str, Any]:
    """Show a job: its progress while it runs, and its result or error."""
    job = await visit.api.get(f"/v1/jobs/{query.id}", JobInfo)
    return {"job": job_row(job, visit.now_ms), "is_live": visit.at is None and is_live(job)}


def is_live(job: JobInfo) -> bool:
    """Return True if a job has not ended."""
    return job.status not in ENDED


def job_row(job: JobInfo, now_ms: int) -> dict[str, Any]:
    """Return a job for a page, with its duration, its speed and an estimate of the rest."""
    end_ms = now_ms if job.ended_at_ms is None else job.ended_at_ms
    progress = job.progress
    elapsed_ms = None if job.started_at_ms is None else max(0, end_ms - job.started_at_ms)
    left_ms = None
    if is_live(job) and elapsed_ms and 0 < progress.done < progress.total:
        # Each stage counts its own steps.
        begun_ms = job.stages[-1].started_at_ms if job.stages else job.started_at_ms
        spent_ms = max(0, end_ms - (begun_ms or end_ms))
        left_ms = spent_ms * (progress.total - progress.done) // progress.done
    return {
        "id": job.id,
        "kind": job.kind,
        "options": {name: value for name, value in job.options.items() if value not in ("", False)},
        "status": job.status,
        "created_at_ms": job.created_at_ms,
        "started_at_ms": job.started_at_ms,
        "ended_at_ms": job.ended_at_ms,
        "elapsed_ms": elapsed_ms,
        "left_ms": left_ms,
        "progress": progress,
        "percent": 100 * progress.done // progress.total if progress.total else None,
        "is_live": is_live(job),
        "is_cancellable": is_live(job) and job.started_by == "server",
        "started_by": job.started_by,
        "rates": _rates(job),
        "stages": _stage_rows(job, end_ms),
        "run": job.run,
        "result": result_rows(job.result or {}),
        "problems": [str(text) for text in (job.result or {}).get("problems", [])],
        "lines": [str(text) for text in (job.result or {}).get("lines", [])],
        "error": job.error,
    }


def _stage_rows(job: JobInfo, end_ms: int) -> list[dict[str, Any]]:
    """Return the stages of a job with their times; the last is current while the job runs."""
    rows = []
    for stage in job.stages:
        is_last = stage is job.stages[-1]
        state = "ok"
        if is_last and job.status != "succeeded":
            state = "run" if is_live(job) else "fail"
        rows.append(
            {
                "name": stage.name,
                "done": stage.done,
                "total": stage.total,
                "state": state,
                "is_current": is_last and is_live(job),
                "took_ms": max(0, (stage.ended_at_ms or end_ms) - stage.started_at_ms),
            }
        )
    return rows


def _rates(job: JobInfo) -> list[float]:
    """Return the steps a second by interval, oldest first."""
    rate = job.progress.rate
    if rate is None or not any(rate.steps) or job.started_at_ms is None:
        return []
    return [round(1000 * steps / rate.interval_ms, 1) for steps in rate.steps]


def result_rows(result: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the figures of a result: names and values as text; lists are shown apart."""
    rows = []
    for name, value in result.items():
        if name in {"problems", "lines"}:
            continue
        label = _LABELS.get(name) or name.replace("_", " ").capitalize()
        if isinstance(value, bool):
            rows.append((label, "yes" if value else "no"))
        elif isinstance(value, int):
            rows.append((label, values.size(value) if name == "bytes" else values.count(value)))
        elif value is not None:
            rows.append((label, _part(value) or "none"))
    return rows


def _part(value: Any) -> str:
    """Return a part of a result as text: the items of a list, or the names and values of a dict."""
    if isinstance(value, list):
        return ("; " if any(isinstance(item, dict) for item in value) else ", ").join(
            map(_part, value)
        )
    if isinstance(value, dict):
        return ", ".join(f"{key.replace('_', ' ')} {_part(part)}" for key, part in value.items())
    return str(value)


# Starting a job


async def run_page(visit: Visit, query: RunQuery) -> dict[str, Any]:
    """Show what a job would do, with the form that starts it; without a kind, all kinds."""
    if query.kind and query.kind not in KINDS:
        raise InvalidInput(
            f"kind: must be one of {', '.join(KINDS)}, got {query.kind!r:.80}",
            hint="Choose a job from the list.",
        )
    return {
        "kind": query.kind,
        "kinds": [{"name": name, "summary": summary} for name, summary in KINDS.items()],
        "summary": KINDS.get(query.kind, ""),
        "model": query.model,
        "models": MODELS.get(query.kind, ()),
        "upload": query.upload,
        "uploads": await _uploads(visit) if query.kind == "load" else [],
        "preview": await _preview(visit, query),
        "token": secrets.token_hex(16),
    }


async def _uploads(visit: Visit) -> list[UploadInfo]:
    return (await visit.api.get("/v1/uploads", UploadList)).items


async def _preview(visit: Visit, query: RunQuery) -> list[tuple[str, str]]:
    """Return what a job would work on, as rows of a table."""
    if query.kind == "publish":
        return await _preview_publish(visit)
    if query.kind == "materialize":
        return await _preview_materialize(visit, query.model)
    if query.kind == "load":
        return await _preview_load(visit, query)
    if query.kind in {"compact", "index", "companions"}:
        return await _preview_archive(visit, query.kind)
    return await _preview_store(visit, query) if query.kind else []


async def _preview_store(visit: Visit, query: RunQuery) -> list[tuple[str, str]]:
    """Return the models that a job of the whole store would work on."""
    overview, backups = await asyncio.gather(
        visit.api.find("/v1/store", StoreOverview),
        visit.api.get("/v1/backups", BackupPage, limit=DATABASES_READ),
    )
    rows = []
    for model in [] if overview is None else overview.models:
        if query.kind == "snapshots" and model.model != "documents":
            continue
        if query.kind == "stats" and model.model != query.model:
            continue
        noun = f"{model.unit}{'' if model.count == 1 else 's'}"
        more = "" if model.count_exact else " or more"
        size = "" if model.bytes is None else f", {values.size(model.bytes)}"
        rows.append((model.model.capitalize(), f"{values.count(model.count)}{more} {noun}{size}"))
    if query.kind == "backup":
        made = [row.name for row in backups.items if row.kind == "store"]
        rows.append(("Backups so far", f"{len(made)}{f', newest {made[-1]}' if made else ''}"))
    return rows


async def _preview_publish(visit: Visit) -> list[tuple[str, str]]:
    page = await visit.api.get("/v1/archive", DatabaseStatusPage, limit=DATABASES_READ)
    new = [max(0, row.newest - row.published) + row.changes for row in page.items]
    more = " or more" if page.next_cursor else ""
    streams = page.streams
    records, least = "none", "" if streams is None or streams.complete else " or more"
    if streams is not None and streams.records:
        size = values.size(streams.bytes)
        records = f"{values.count(streams.records)}{least} records, {size}, of {streams.streams}"
    return [
        ("Databases", f"{sum(map(bool, new))}{more} of {len(page.items)}{more} have new rows"),
        ("Rows", f"{values.count(sum(new))}{more} are only on this disk"),
        ("Streams", records),
    ]


async def _preview_archive(visit: Visit, kind: str) -> list[tuple[str, str]]:
    tables = (await visit.api.get("/v1/archive/tables", ArchiveTableList)).tables
    streams = [table for table in tables if table.name == STREAM_TABLE]
    rows = [
        ("Streams", f"{values.count(table.files)} segments, {values.size(table.bytes)}")
        for table in streams
    ]
    if kind == "compact" and tables:
        files = sum(table.files for table in tables if table not in streams)
        rows.insert(0, ("Tables", f"{len(tables) - len(streams)} with {values.count(files)} files"))
    return rows or [("Archive", "nothing is published yet")]


async def _preview_materialize(visit: Visit, model: str) -> list[tuple[str, str]]:
    page = await visit.api.get("/v1/pipeline/tables", TableFolderPage, limit=DATABASES_READ)
    rows = [("Reads", f"the history of {model} since the last run"), ("Writes", "Parquet files")]
    for folder in page.items:
        if folder.job == "materialize" and folder.model == model and folder.name == model:
            total = sum(table.rows or 0 for table in folder.tables)
            age = values.age(folder.written_at_ms, visit.now_ms)
            rows.append(
                ("Replaces", f"version {folder.version}: {values.count(total)} rows, made {age}")
            )
            break
    else:
        rows.append(("Replaces", "nothing: there are no such tables yet"))
    return rows


async def _preview_load(visit: Visit, query: RunQuery) -> list[tuple[str, str]]:
    written = {
        "documents": "a document for each line, by its field id",
        "streams": "a message for each line",
        "graphs": "the objects of an envelope for each line",
    }
    rows = [("Writes", written.get(query.model, "")), ("Before", "every line is checked")]
    for upload in await _uploads(visit):
        if upload.name == query.upload:
            age = values.age(upload.changed_at_ms, visit.now_ms)
            rows.insert(0, ("Reads", f"{upload.name}: {values.size(upload.bytes)}, sent {age}"))
    return rows


async def run(visit: Visit, fields: RunFields) -> str:
    """Start a job."""
    body: dict[str, Any] = {"kind": fields.kind}
    if fields.kind == "backup" and fields.name:
        body["name"] = fields.name
    if fields.kind == "verify":
        body["objects"] = fields.objects
    if fields.kind == "materialize":
        body |= {"model": fields.model or "documents", "full": fields.full}
    if fields.kind == "stats":
        body["model"] = fields.model or "documents"
    if fields.kind == "load":
        body |= {"upload": fields.upload, "model": fields.model or "documents"}
        target = {"documents": "space", "streams": "stream"}.get(fields.model)
        body |= {target: fields.target} if target else {}
    headers = {"idempotency-key": fields.token}
    response = await visit.api.call("POST", "/v1/jobs", body, headers)
    return visit.link("/job", id=visit.api.decode(response, JobInfo).id)


async def cancel(visit: Visit, fields: CancelFields) -> str:
    """Cancel a job."""
    await visit.api.call("DELETE", f"/v1/jobs/{fields.id}")
    return visit.link("/job", id=fields.id)


PAGES: Final = (
    ExplorerPage("/jobs", "jobs.html", jobs_page, JobsPageQuery, "List jobs."),
    ExplorerPage("/job", "job.html", job_page, JobQuery, "Show a job."),
    ExplorerPage("/run", "run.html", run_page, RunQuery, "Preview a job."),
)
FRAGMENTS: Final = (Fragment("/job.part", "job_part.html", job_page, JobQuery, "New progress."),)
FORMS: Final = (
    Form("/run", run, RunFields, "Start a job."),
    Form("/cancel", cancel, CancelFields, "Cancel a job."),
)
