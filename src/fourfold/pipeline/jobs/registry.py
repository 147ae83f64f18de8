"""Which jobs there are.

The jobs that come with Fourfold are named here by their modules, each of which calls its job `job`;
they are imported when somebody asks. A model adds its jobs to `MODULES`, a user calls `register`.
"""

from __future__ import annotations

import importlib
import re
from typing import Final

from fourfold.errors import AlreadyExists, InvalidInput, NotFound
from fourfold.pipeline.jobs.shape import Job

MODULES: Final = (
    "fourfold.pipeline.jobs.bootstrap",
    "fourfold.pipeline.jobs.compact",
    "fourfold.pipeline.jobs.components",
    "fourfold.pipeline.jobs.delta_streams",
    "fourfold.pipeline.jobs.gc",
    "fourfold.pipeline.jobs.index",
    "fourfold.pipeline.jobs.lineage",
    "fourfold.pipeline.jobs.load",
    "fourfold.pipeline.jobs.materialize",
    "fourfold.pipeline.jobs.seal",
    "fourfold.pipeline.jobs.snapshots",
    "fourfold.pipeline.jobs.stats",
    "fourfold.pipeline.jobs.verify",
)

_NAME = re.compile(r"[a-z][a-z0-9-]{0,63}")
_added: dict[str, Job] = {}


def register(job: Job) -> Job:
    """Make a job of your own known by its name."""
    if not _NAME.fullmatch(job.name):
        raise InvalidInput(f"{job.name!r} cannot be the name of a job", hint="As in `my-job`.")
    if job.name in all_jobs():
        raise AlreadyExists(f"there is a job {job.name!r} already")
    _added[job.name] = job
    return job


def unregister(name: str) -> None:
    """Forget a job of your own."""
    _added.pop(name, None)


def all_jobs() -> dict[str, Job]:
    """Every job by its name, in the order of the names."""
    own: list[Job] = [importlib.import_module(module).job for module in MODULES]
    return {job.name: job for job in sorted([*own, *_added.values()], key=lambda each: each.name)}


def find(name: str) -> Job:
    jobs = all_jobs()
    if name not in jobs:
        raise NotFound(f"there is no job {name!r}", hint=f"Those that exist: {', '.join(jobs)}.")
    return jobs[name]
