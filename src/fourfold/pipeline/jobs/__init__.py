"""Jobs: work over the whole history of a store, in one shape.

`run("load", root, {...})` runs one; `fourfold pipeline run` does the same from a shell. See `shape`
for what a job is, `records` for the table of runs, `registry` for adding one.
"""

from __future__ import annotations

from fourfold.pipeline.jobs.records import Run, history, newest
from fourfold.pipeline.jobs.registry import all_jobs, find, register
from fourfold.pipeline.jobs.running import Done, is_running, run
from fourfold.pipeline.jobs.shape import Context, Job, Option, Plan, Range, Report, Skipped

__all__ = [
    "Context",
    "Done",
    "Job",
    "Option",
    "Plan",
    "Range",
    "Report",
    "Run",
    "Skipped",
    "all_jobs",
    "find",
    "history",
    "is_running",
    "newest",
    "register",
    "run",
]
