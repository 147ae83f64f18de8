"""Structs of the routes of the store: overview, keys, restore points, backups and jobs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from fourfold.wire.fields import Count, StoreTime
from fourfold.wire.pages import Page, PageQuery

JobKind = Literal[
    "verify",
    "backup",
    "gc",
    "publish",
    "compact",
    "index",
    "companions",
    "snapshots",
    "load",
    "materialize",
    "stats",
]
JobStatus = Literal["queued", "running", "succeeded", "failed", "cancelled", "interrupted"]


# Overview


class ModelOverview(Struct, kw_only=True, frozen=True):
    """Contents of a model of the store, counted up to a limit."""

    model: str
    unit: str
    """Unit of the count: space, stream, app or session."""
    count: Count
    count_exact: bool
    bytes: Count | None
    """Size of its files; None in the past, for which it is not stored."""
    bytes_exact: bool
    newest: str | None
    """Time of the newest activity."""
    health: Literal["ok", "warn", "fail"]
    """Health now, whatever the time of the overview."""
    problems: list[str]
    details: dict[str, Any]


class StoreOverview(Struct, kw_only=True, frozen=True):
    """Contents of a store."""

    bytes: Count | None
    """Size of all files; None in the past."""
    models: list[ModelOverview]
    age_ms: Count = 0
    """Age of these counts: a large store is not counted for every request."""


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


class StoreQuery(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Point of a read of the whole store."""

    at: StoreTime | UnsetType = UNSET


class Activity(Struct, kw_only=True, frozen=True):
    """Latest activity in a store."""

    minutes: dict[str, list[Count]]
    """For each model the number of entries by the minute of the hour before, newest last."""
    recent: list[RecentEntry]
    """Newest entries of all models, newest first."""
    age_ms: Count = 0
    """Age of this list."""


# Keys


class GrantInfo(Struct, kw_only=True, frozen=True):
    """Grant of a key for the objects of one model."""

    model: str
    scopes: list[str]
    prefix: str


class KeyInfo(Struct, kw_only=True, frozen=True):
    """A key without its secret."""

    id: str
    label: str
    grants: list[GrantInfo]
    created_at_ms: Count | None = None
    """Time of its creation; None if an older version created it."""
    created_by: str = ""
    """Id of the key that created it; empty for the command line or a client without key."""
    expires_at_ms: Count | None = None
    """Time from which it is refused; None if it does not expire."""
    last_used_on: str | None = None
    """Day of its last use in UTC, as in 2026-07-14; None if it was not used."""
    replaces: str = ""
    """Id of the key that it replaces by rotation; empty if it replaces none."""
    requests_per_s: float | None = None
    bytes_per_day: Count | None = None
    """Quotas; None for no limit."""


class CreatedKey(KeyInfo, kw_only=True, frozen=True):
    """A new key."""

    key: str | None
    """The secret, which is not stored; None if an earlier request created this key."""


class NewKey(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Grants of a new key."""

    scopes: Annotated[
        list[Literal["read", "write", "admin", "metrics", "query", "audit", "sync"]],
        Meta(min_length=1, max_length=16, description="What it may do."),
    ]
    models: Annotated[
        list[Literal["documents", "streams", "graphs", "sessions", "store"]],
        Meta(max_length=16, description="Models that it is for; all, if the list is empty."),
    ] = []
    prefix: Annotated[
        str, Meta(max_length=1024, description="Only objects whose names start with this.")
    ] = ""
    label: Annotated[str, Meta(max_length=200, description="A name that is shown in lists.")] = ""
    expires_in_s: Annotated[
        float | None, Meta(description="Time until it expires; null for a key that does not.")
    ] = None
    requests_per_s: Annotated[
        float | None, Meta(description="Requests per second that it may send; null for no limit.")
    ] = None
    bytes_per_day: Annotated[
        int | None,
        Meta(description="Bytes per day of the bodies that it sends and gets; null for no limit."),
    ] = None


class RotateKey(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Options for replacing a key."""

    overlap_s: Annotated[
        float, Meta(description="Time until the old key expires; both are accepted until then.")
    ] = 0.0
    expires_in_s: Annotated[
        float | None, Meta(description="Lifetime of the new key; null for that of the old one.")
    ] = None


class ExpireKey(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Expiry time of a key."""

    after_s: Annotated[float | None, Meta(description="Time until it expires; null for never.")] = (
        0.0
    )


class DeletedKey(Struct, kw_only=True, frozen=True):
    """A key that was deleted."""

    id: str
    left: Count
    """Number of the other keys."""


class KeyList(Struct, kw_only=True, frozen=True):
    """The keys of a store, and whether requests need one."""

    required: bool
    keys: list[KeyInfo]


class CurrentKey(Struct, kw_only=True, frozen=True):
    """The key of a request; None if requests need none."""

    required: bool
    key: KeyInfo | None


# Audit log


class AuditEntry(Struct, kw_only=True, frozen=True):
    """A write or a refused request: who, what and its outcome."""

    time_ms: Count
    key: str
    """Id of the key; empty without one, or if it is unknown."""
    address: str
    """Address of the client, or `uid NUMBER` for a command on the machine of the store."""
    operation: str
    """Operation, as in the OpenAPI document; empty if none has this path."""
    method: str
    path: str
    """Path without the query, at most 500 characters of it."""
    status: Count
    """Status of the response; 0 for a command."""
    error: str = ""
    """Kind of the error; empty for a success."""
    suppressed: Count = 0
    """Refusals of the same key or address before this one that are not in the log."""


class AuditPage(Page, kw_only=True, frozen=True):
    """A page of the audit log, newest entries first."""

    items: list[AuditEntry]


class AuditQuery(PageQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the audit log."""

    key: Annotated[str | UnsetType, Meta(description="Only entries of this key.")] = UNSET
    operation: Annotated[str | UnsetType, Meta(description="Only entries of this operation.")] = (
        UNSET
    )
    refused: Annotated[
        Literal["true", "false"], Meta(description="Only requests that failed or were refused.")
    ] = "false"


# Restore points and backups


class PointRow(Struct, kw_only=True, frozen=True):
    """A restore point."""

    id: str
    at: str
    """Time of completion, in UTC."""
    started_ms: Count
    """Time at which it was begun, in milliseconds since 1970."""
    sha256: str
    databases: Count
    streams: Count
    """Databases and streams that advanced since the point before."""
    restored: str | None
    """Point from which the store continued."""
    whole: bool = False
    """True if it contains every stream, because earlier points were removed."""


class PointPage(Page, kw_only=True, frozen=True):
    """A page of restore points, newest first."""

    items: list[PointRow]


class DatabaseStatusRow(Struct, kw_only=True, frozen=True):
    """Published position of a database; newer data is only on this disk."""

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


class UnpublishedStreamRow(Struct, kw_only=True, frozen=True):
    """A stream with records that are only on this disk."""

    name: str
    records: Count
    bytes: Count


class UnpublishedStreamsInfo(Struct, kw_only=True, frozen=True):
    """Streams with records that are only on this disk."""

    streams: Count
    records: Count
    bytes: Count
    complete: bool
    """False if the store has more streams than were examined: these are the least numbers."""
    largest: list[UnpublishedStreamRow]
    """Those with most bytes, the largest first."""


class DatabaseStatusPage(Page, kw_only=True, frozen=True):
    """A page of databases, in the order of their names."""

    items: list[DatabaseStatusRow]
    streams: UnpublishedStreamsInfo | None = None
    """The streams of the store, on the first page, if it has any."""


class ArchiveTableRow(Struct, kw_only=True, frozen=True):
    """A Delta table of the archive, at its newest commit."""

    name: str
    folder: str
    """Its folder below the URL of the archive."""
    version: Count
    files: Count
    rows: Count
    """Rows of all kept versions: a table is the log of changes of its rows."""
    bytes: Count
    changed_ms: Count | None
    """Time at which its newest file was written, in milliseconds since 1970; null without one."""


class ArchiveTableList(Struct, kw_only=True, frozen=True):
    """The Delta tables of the archive, by name; none before the first publication."""

    tables: list[ArchiveTableRow]


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
    one_point: bool = False
    """Copy all models as of one point in time."""


class GcJob(
    Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, tag="gc", tag_field="kind"
):
    """Remove what policies, retention and grace periods no longer keep, in all models."""


class PublishJob(
    Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, tag="publish", tag_field="kind"
):
    """Publish the new data of the store to its object store, and add restore points."""


class CompactJob(
    Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, tag="compact", tag_field="kind"
):
    """Merge small files of archive tables, and small segments of streams, into larger ones."""


class BuildIndexJob(
    Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, tag="index", tag_field="kind"
):
    """Index routing keys and fields of published records of streams."""


class BuildCompanionsJob(
    Struct,
    kw_only=True,
    frozen=True,
    forbid_unknown_fields=True,
    tag="companions",
    tag_field="kind",
):
    """Build the search companions of published segments of streams."""


class SnapshotsJob(
    Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, tag="snapshots", tag_field="kind"
):
    """Add snapshots where reads of a space would replay many revisions."""


class LoadJob(
    Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, tag="load", tag_field="kind"
):
    """Write the lines of an upload into a model, in slices; repeated, it changes nothing."""

    upload: Annotated[
        str,
        Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$", description="Name of the upload."),
    ]
    model: Literal["documents", "streams", "graphs"] = "documents"
    rows: Literal["documents", "operations"] = "documents"
    """Format of a line in a load of documents."""
    space: str = ""
    """DID of the space of all lines; it is created if needed."""
    space_from: str = ""
    """Field of a document with the DID of its space, instead of `space`."""
    id: str = "id"
    """Field of a document with its id."""
    history: Literal["", "revisions", "facts"] = ""
    """Kind of history of new spaces."""
    stream: str = ""
    """Stream to append to."""


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


class StatsJob(
    Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, tag="stats", tag_field="kind"
):
    """Report sizes, duplicates and hot entities of a model, on Spark."""

    model: Literal["documents", "graphs", "sessions", "streams"] = "documents"


NewJob = (
    VerifyJob
    | BackupJob
    | GcJob
    | PublishJob
    | CompactJob
    | BuildIndexJob
    | BuildCompanionsJob
    | SnapshotsJob
    | LoadJob
    | MaterializeJob
    | StatsJob
)


class JobRate(Struct, frozen=True):
    """Steps that a job did in each interval since it started, oldest first."""

    interval_ms: Count
    steps: list[Count]


class JobProgress(Struct, frozen=True):
    """Completed and total steps of a job; `total` is 0 if it is unknown."""

    label: str = ""
    """Current item of work."""
    done: Count = 0
    total: Count = 0
    rate: JobRate | None = None
    """Of a job that runs, and of a run of the pipeline."""


class JobStage(Struct, frozen=True):
    """A stage of a job, such as a table that it writes."""

    name: str
    done: Count
    total: Count
    """0 if it is unknown."""
    started_at_ms: Count
    ended_at_ms: Count | None = None


class JobInput(Struct, kw_only=True, frozen=True):
    """An input of a run, and the positions that it read: after `after` until `until`."""

    name: str
    after: Count
    until: Count


class JobRun(Struct, kw_only=True, frozen=True):
    """The run of a job on the pipeline."""

    id: str
    process: str
    """Process and host."""
    version: str
    """Version of Fourfold that ran it."""
    output: str
    """Name of the folder or file that it wrote."""
    input_count: Count
    inputs: list[JobInput]
    """At most 100 inputs."""
    skipped: list[str]
    """Inputs that could not be read, and why; at most 100."""
    resumed: bool
    """True if it continued the work of a run that was killed."""


class JobError(Struct, kw_only=True, frozen=True):
    """Error of a failed job."""

    kind: str
    message: str
    hint: str = ""
    retryable: bool = False


class JobInfo(Struct, kw_only=True, frozen=True):
    """A job."""

    id: str
    """A number; of a run that another process started, the id of the run."""
    kind: str
    options: dict[str, Any]
    status: JobStatus
    """`interrupted` if its process stopped before the job ended."""
    created_at_ms: Count
    started_at_ms: Count | None = None
    ended_at_ms: Count | None = None
    progress: JobProgress = JobProgress()
    result: dict[str, Any] | None = None
    error: JobError | None = None
    started_by: Literal["server", "command"] = "server"
    """`command` if another process than the server runs it."""
    stages: list[JobStage] = []
    """Stages of a job that has several, in their order."""
    run: JobRun | None = None
    """Its run on the pipeline; only of one job, not in lists."""


class JobPage(Page, kw_only=True, frozen=True):
    """A page of jobs, newest first."""

    items: list[JobInfo]


class JobsQuery(PageQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of a list of jobs."""

    kind: Annotated[
        Annotated[str, Meta(pattern="^[a-z][a-z0-9-]{0,63}$")] | UnsetType,
        Meta(description="Only jobs of this kind."),
    ] = UNSET
    status: Annotated[JobStatus | UnsetType, Meta(description="Only jobs with this status.")] = (
        UNSET
    )


# Uploads


class UploadInfo(Struct, kw_only=True, frozen=True):
    """A file that was uploaded for a job."""

    name: str
    bytes: Count
    changed_at_ms: Count


class UploadList(Struct, kw_only=True, frozen=True):
    """The uploads of a server."""

    items: list[UploadInfo]


class UploadQuery(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Query parameters of one part of an upload."""

    offset: Annotated[
        Count, Meta(description="Bytes before this piece; 0 replaces an upload of this name.")
    ] = 0


# Probes


class Probe(Struct, kw_only=True, frozen=True):
    """Result of a probe."""

    ok: bool
    failing: Count = 0
    """Open databases that are not ready."""
