"""Jobs: bulk work over the history of a store, with one interface.

`run("load", root, {...})` runs one, like `fourfold pipeline run` in a shell. See `job` for the
interface, `runs` for the table of runs, and `runner.register` to add a job.
"""

from __future__ import annotations

from fourfold.pipeline.jobs.job import Context, Job, Option, Plan, Range, Report, SkippedFile
from fourfold.pipeline.jobs.runner import (
    RunReport,
    all_jobs,
    get_job,
    job_names,
    register,
    run,
)
from fourfold.store.pipeline_runs import Run, current_state, history, is_running, newest

__all__ = [
    "Context",
    "Job",
    "Option",
    "Plan",
    "Range",
    "Report",
    "Run",
    "RunReport",
    "SkippedFile",
    "all_jobs",
    "current_state",
    "get_job",
    "history",
    "is_running",
    "job_names",
    "newest",
    "register",
    "run",
]
