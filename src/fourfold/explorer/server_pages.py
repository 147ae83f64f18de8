"""Pages about the server: health and kinds of problems."""

from __future__ import annotations

import asyncio
import re
from typing import Any, Final

from msgspec import UnsetType

from fourfold.errors import Forbidden, tree
from fourfold.explorer import values
from fourfold.explorer.page import ExplorerPage, ExplorerQuery, Visit
from fourfold.server import errors
from fourfold.wire.errors import Health, HealthError, ProblemKind
from fourfold.wire.store import JobInfo, JobPage

LABELS: Final = {"ok": "ok", "warn": "look at it", "fail": "failed", "none": "off"}
CHECKING_JOBS: Final = ("verify", "backup")
"""Jobs whose newest run is part of the health."""
FREE_BYTES_MIN: Final = 1 << 30
"""Free space on the disk below which the page warns."""
_SAMPLE: Final = re.compile(r'^fourfold_(\w+)\{model="([^"]*)"\} (\S+)$', re.MULTILINE)


class ProblemQuery(ExplorerQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the page of a kind of problem."""

    kind: str


async def health_page(visit: Visit, _query: ExplorerQuery) -> dict[str, Any]:
    """Show the health of the server."""
    health, metrics, jobs = await asyncio.gather(
        visit.api.get("/health", Health), _read_metrics(visit), last_jobs(visit)
    )
    return {
        "health": health,
        "checks": [*health_checks(health, visit.now_ms), *job_checks(jobs, visit.now_ms)],
        "metrics": metrics,
    }


async def last_jobs(visit: Visit) -> dict[str, JobInfo | None]:
    """Return the newest jobs that verify and back up the store, if the key may see jobs."""
    pages = await asyncio.gather(
        *(visit.api.find("/v1/jobs", JobPage, kind=kind, limit=1) for kind in CHECKING_JOBS)
    )
    return {
        kind: page.items[0] if page.items else None
        for kind, page in zip(CHECKING_JOBS, pages, strict=True)
        if page is not None
    }


def job_checks(jobs: dict[str, JobInfo | None], now_ms: int) -> list[dict[str, str]]:
    """Return when the store was last verified and backed up, as rows."""
    rows = []
    for kind, job in jobs.items():
        name = kind.capitalize()
        if job is None:
            row = _row(name, "none", "no job of this kind yet")
            rows.append({**row, "label": "not yet", "checked": "never"})
            continue
        age = values.age(job.created_at_ms, now_ms)
        status = {"succeeded": "ok", "failed": "fail"}.get(job.status, "none")
        row = _row(name, status, f"{job.status}, job {job.id}")
        rows.append({**row, "checked": age.removesuffix(" ago")})
    return rows


async def _read_metrics(visit: Visit) -> list[dict[str, Any]] | None:
    """Return the metrics of each open database; None if the key does not allow it."""
    try:
        response = await visit.api.call("GET", "/metrics")
    except Forbidden:
        return None
    return summarize_metrics(response.body.decode())


def summarize_metrics(text: str) -> list[dict[str, Any]]:
    """Return one row for each model in metrics in the Prometheus text format."""
    models: dict[str, dict[str, float]] = {}
    for name, model, value in _SAMPLE.findall(text):
        models.setdefault(model, {})[name] = float(value)
    rows = []
    for model, sample in sorted(models.items()):
        commits = sample.get("transactions_total", 0)
        seconds = sample.get("txn_latency_seconds_sum", 0)
        timed = sample.get("txn_latency_seconds_count", 0)
        rows.append(
            {
                "model": model,
                "size_bytes": int(sample.get("db_size_bytes", 0)),
                "wal_bytes": int(sample.get("wal_size_bytes", 0)),
                "commits": int(commits),
                "mean_ms": 1_000 * seconds / timed if timed else None,
                "waiting": int(sample.get("queued_requests", 0)),
                "rejected": int(sample.get("rejected_total", 0)),
                "slow": int(sample.get("slow_total", 0)),
            }
        )
    return rows


def health_checks(health: Health, now_ms: int) -> list[dict[str, str]]:
    """Return the findings of the health as rows."""
    since = values.minute(health.started_at_ms, now_ms)
    rows = [_check("Server", health.error, f"serves since {since}, transport {health.front}")]
    if health.objects is None:
        rows.append(_row("Archive", "none", "not published: start `fourfold serve --objects URL`"))
    else:
        rows.append(_check("Object store", health.objects.error, "reachable"))
    if health.unpublished_count:
        finding = f"{health.unpublished_count} streams cannot be published"
        rows.append(_row("Streams", "warn", finding))
    databases = health.databases
    if databases is not None:
        last = values.age(databases.last_round_ms, now_ms)
        finding = f"{databases.count} databases, published {last}"
        if databases.unpublished_count:
            finding = f"{databases.unpublished_count} of {databases.count} cannot be published"
        rows.append(_row("Databases", "warn" if databases.unpublished_count else "ok", finding))
    if not isinstance(health.free_bytes, UnsetType):
        status = "warn" if health.free_bytes < FREE_BYTES_MIN else "ok"
        rows.append(_row("Disk", status, f"{values.size(health.free_bytes)} free"))
    return rows


def _check(name: str, error: HealthError | None, finding: str) -> dict[str, str]:
    if error is None:
        return _row(name, "ok", finding)
    message = error.kind if isinstance(error.message, UnsetType) else error.message
    hint = "" if isinstance(error.hint, UnsetType) else error.hint
    return {**_row(name, "fail", message), "hint": hint}


def _row(name: str, status: str, finding: str) -> dict[str, str]:
    return {
        "name": name,
        "status": status,
        "finding": finding,
        "hint": "",
        "label": LABELS[status],
        "checked": "" if status == "none" else "now",
    }


async def problems_page(_visit: Visit, _query: ExplorerQuery) -> dict[str, Any]:
    """List the kinds of problems."""
    kinds = sorted({cls.kind for cls in tree()})
    return {"kinds": [errors.problem_kind(kind) for kind in kinds]}


async def problem_page(visit: Visit, query: ProblemQuery) -> dict[str, Any]:
    """Explain a kind of problem."""
    return {"kind": await visit.api.get(f"{errors.PROBLEMS}{query.kind}", ProblemKind)}


PAGES: Final = (
    ExplorerPage("/status", "health.html", health_page, ExplorerQuery, "Show the health."),
    ExplorerPage(
        "/problems", "problems.html", problems_page, ExplorerQuery, "List kinds of problems."
    ),
    ExplorerPage(
        "/problem", "problem.html", problem_page, ProblemQuery, "Explain a kind of problem."
    ),
)
