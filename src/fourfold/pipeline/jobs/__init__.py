"""Jobs: work over the whole history of a store, in one shape.

`run("load", root, {...})` runs one; `fourfold pipeline run` does the same from a shell. See `shape`
for what a job is, `records` for the table of runs, `registry` for adding one.
"""

from __future__ import annotations

from fourfold.pipeline.jobs.job import Context, Job, Option, Plan, Range, Report, SkippedFile
from fourfold.pipeline.jobs.runner import RunReport, all_jobs, find, is_running, register, run
from fourfold.pipeline.jobs.runs import Run, history, newest

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
    "find",
    "history",
    "is_running",
    "newest",
    "register",
    "run",
]
