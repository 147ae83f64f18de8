"""Structs of the routes of the pipeline: runs of its jobs, and the tables that they wrote."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from fourfold.wire.fields import Count
from fourfold.wire.pages import Page, PageQuery
from fourfold.wire.store import JobError

RunState = Literal["running", "done", "nothing", "failed", "interrupted"]


class RunRow(Struct, kw_only=True, frozen=True):
    """A run of a pipeline job, started by any process."""

    id: str
    job: str
    job_id: str | None = None
    """Job of the server that started it; None for a run of another process."""
    model: str
    """Model of the input; empty if the job has none."""
    output: str
    """Name of the folder or file that it wrote."""
    state: RunState
    """`nothing` if there was nothing to do."""
    started_at_ms: Count
    ended_at_ms: Count | None = None
    duration_ms: Count | None = None
    inputs: Count = 0
    """Number of inputs, such as spaces."""
    rows_in: Count | None = None
    rows_out: Count | None = None
    skipped: Count = 0
    """Number of inputs that could not be read."""
    error: JobError | None = None


class RunPage(Page, kw_only=True, frozen=True):
    """A page of runs, newest first."""

    items: list[RunRow]


class RunsQuery(PageQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of a list of runs."""

    job: Annotated[
        Annotated[str, Meta(max_length=64)] | UnsetType,
        Meta(description="Only runs of this job."),
    ] = UNSET


class TableRow(Struct, kw_only=True, frozen=True):
    """A table of a folder."""

    name: str
    rows: Count | None
    """None if they were not counted."""
    files: Count
    bytes: Count


class TableFolderRow(Struct, kw_only=True, frozen=True):
    """A folder of tables that a job wrote, in its current version."""

    name: str
    job: str
    model: str
    version: Count
    tables: list[TableRow]
    written_at_ms: Count
    inputs: Count
    """Number of inputs, such as spaces."""
    watermarks: dict[str, Count]
    """Position of each input in the tables, of at most 100 inputs."""
    is_running: bool
    """True while a run writes the next version."""


class TableFolderPage(Page, kw_only=True, frozen=True):
    """A page of folders of tables, in the order of job and name."""

    items: list[TableFolderRow]
