"""Structs of the routes of the store: overview, keys, restore points, backups and jobs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from fourfold.wire.fields import Count
from fourfold.wire.pages import Page, PageQuery

JobKind = Literal["verify", "backup", "gc", "publish", "snapshots", "materialize"]
JobStatus = Literal["queued", "running", "succeeded", "failed", "cancelled", "interrupted"]


# Overview


class ModelOverview(Struct, kw_only=True, frozen=True):
    """What a model of the store contains, counted up to a limit."""

    model: str
    unit: str
    """What is counted: space, stream, app or session."""
    count: Count
    count_exact: bool
    bytes: Count
    bytes_exact: bool
    newest: str | None
    """Time of the newest activity."""
    health: Literal["ok", "warn", "fail"]
    problems: list[str]
    details: dict[str, Any]


class StoreOverview(Struct, kw_only=True, frozen=True):
    """What a store contains."""

    bytes: Count
    models: list[ModelOverview]
    age_ms: Count = 0
    """How long ago this was read: a large store is not counted for every request."""


class RecentEntry(Struct, kw_only=True, frozen=True):
    """An entry of a log: a commit, appended records, a transaction of graphs, or an event."""

    model: str
    at_ms: Count
    name: str
    """DID of the space, or name of the stream, app or session."""
    item: str
    """First entity of a commit; empty otherwise."""
    change: str
    seq: Count
    """Seq of the commit or transaction, offset of the newest record, or id of the event."""
    by: str


class Activity(Struct, kw_only=True, frozen=True):
    """What happened last in a store."""

    minutes: dict[str, list[Count]]
    """For each model the number of entries by the minute of the last hour, newest last."""
    recent: list[RecentEntry]
    """Newest entries of all models, newest first."""
    age_ms: Count = 0
    """How long ago this was read."""


# Keys


class GrantInfo(Struct, kw_only=True, frozen=True):
    """What a key allows for the objects of one model."""

    model: str
    scopes: list[str]
    prefix: str


class KeyInfo(Struct, kw_only=True, frozen=True):
    """A key without its secret."""

    id: str
    label: str
    grants: list[GrantInfo]


class KeyList(Struct, kw_only=True, frozen=True):
    """The keys of a store, and whether requests need one."""

    required: bool
    keys: list[KeyInfo]


class CurrentKey(Struct, kw_only=True, frozen=True):
    """The key of a request; None if requests need none."""

    required: bool
    key: KeyInfo | None


# Restore points and backups


class PointRow(Struct, kw_only=True, frozen=True):
    """A restore point."""

    id: str
    at: str
    """Time of completion, in UTC."""
    databases: Count
    streams: Count
    """Databases and streams that advanced since the point before."""
    restored: str | None
    """Point from which the store continued."""


class PointPage(Page, kw_only=True, frozen=True):
    """A page of restore points, newest first."""

    items: list[PointRow]


class DatabaseStatusRow(Struct, kw_only=True, frozen=True):
    """How far a database is published; what is newer is only on this disk."""

    name: str
    """`spaces/<did>`, `sessions` or `graphs`."""
    published: Count
    newest: Count
    changes: Count
    """Rows that were changed or deleted since, which positions do not show."""
    generation: Count
    """Number of publications; 0 if it was never published."""
    problem: str | None = None
    """Kind of the error if its status cannot be read."""


class DatabaseStatusPage(Page, kw_only=True, frozen=True):
    """A page of databases, in the order of their names."""

    items: list[DatabaseStatusRow]


class BackupRow(Struct, kw_only=True, frozen=True):
    """A backup of the store, made by a job, or of one database, made before its migration."""

    name: str
    kind: Literal["store", "migration"]
    created_at: str
    databases: Count
    bytes: Count


class BackupPage(Page, kw_only=True, frozen=True):
    """A page of backups, by kind and name."""

    items: list[BackupRow]


# Jobs


class VerifyJob(
    Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, tag="verify", tag_field="kind"
):
    """Verify every database and file of the store."""

    objects: bool = False
    """Also verify every published object."""


class BackupJob(
    Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, tag="backup", tag_field="kind"
):
    """Write a verified copy of the store to the folder of backups."""

    name: (
        Annotated[str, Meta(pattern="^[a-z0-9][a-z0-9_-]{0,127}$", description="A new name.")]
        | UnsetType
    ) = UNSET


class GcJob(
    Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, tag="gc", tag_field="kind"
):
    """Remove history that the policies of spaces do not retain, and unreferenced payloads."""


class PublishJob(
    Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, tag="publish", tag_field="kind"
):
    """Publish the new data of the store to its object store, and add restore points."""


class SnapshotsJob(
    Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, tag="snapshots", tag_field="kind"
):
    """Add snapshots where reads of a space would replay many revisions."""


class MaterializeJob(
    Struct,
    kw_only=True,
    frozen=True,
    forbid_unknown_fields=True,
    tag="materialize",
    tag_field="kind",
):
    """Write the state of a model as Parquet files, on Spark."""

    model: Literal["documents", "graphs", "sessions", "streams"] = "documents"
    full: bool = False
    """Fold everything again, instead of what changed since the last run."""


NewJob = VerifyJob | BackupJob | GcJob | PublishJob | SnapshotsJob | MaterializeJob


class JobRate(Struct, frozen=True):
    """Steps that a job did in each interval since it started, oldest first."""

    interval_ms: Count
    steps: list[Count]


class JobProgress(Struct, frozen=True):
    """Steps of a job that are done, of so many; `total` is 0 if it is unknown."""

    label: str = ""
    """What is being worked on."""
    done: Count = 0
    total: Count = 0
    rate: JobRate | None = None
    """Of a job that runs; it is not recorded."""


class JobError(Struct, kw_only=True, frozen=True):
    """Why a job failed."""

    kind: str
    message: str
    hint: str = ""
    retryable: bool = False


class JobInfo(Struct, kw_only=True, frozen=True):
    """A job."""

    id: str
    kind: JobKind
    options: dict[str, Any]
    status: JobStatus
    """`interrupted` if the server stopped before the job ended."""
    created_at_ms: Count
    started_at_ms: Count | None = None
    ended_at_ms: Count | None = None
    progress: JobProgress = JobProgress()
    result: dict[str, Any] | None = None
    error: JobError | None = None


class JobPage(Page, kw_only=True, frozen=True):
    """A page of jobs, newest first."""

    items: list[JobInfo]


class JobsQuery(PageQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of a list of jobs."""

    kind: Annotated[JobKind | UnsetType, Meta(description="Only jobs of this kind.")] = UNSET
    status: Annotated[JobStatus | UnsetType, Meta(description="Only jobs with this status.")] = (
        UNSET
    )


# Probes


class Probe(Struct, kw_only=True, frozen=True):
    """Result of a probe."""

    ok: bool
    failing: Count = 0
    """Open databases that are not ready."""
