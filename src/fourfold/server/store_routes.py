"""The store as a whole over HTTP: overview, restore points, backups, jobs and probes.

Keys for these routes are for the model `store`. Backups of jobs are in the folder of the setting
`server.backups`, which is outside of the store; clients see their names only.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import UnsetType

from fourfold.archive.restore_points import PointInfo
from fourfold.errors import FourfoldError, NotFound, Refused, ReplayMismatch
from fourfold.kernel.backup import read_sidecar
from fourfold.kernel.idempotency import IdempotentRequest, digest_of
from fourfold.server import conditions, cursors
from fourfold.server.errors import without_paths
from fourfold.server.event_stream import END, SSE_KEEP_ALIVE_S, Feed, FeedEvent, event_response
from fourfold.server.job_list import JobList, is_run
from fourfold.server.jobs import Jobs
from fourfold.server.points import parse_store_time
from fourfold.server.request import Reply, Request, Response
from fourfold.server.routes import Ok, Route, bind
from fourfold.server.shared_read import SharedRead, SharedReads
from fourfold.server.workers import Workers
from fourfold.settings import Settings
from fourfold.store import Store, activity, backup, database_files, layout, open_store, overview
from fourfold.wire.pages import EventHeaders, IdempotencyHeaders, PageQuery
from fourfold.wire.store import (
    Activity,
    ArchiveTableList,
    BackupPage,
    BackupRow,
    DatabaseStatusPage,
    DatabaseStatusRow,
    JobInfo,
    JobPage,
    JobsQuery,
    NewJob,
    PointPage,
    PointRow,
    Probe,
    StoreOverview,
    StoreQuery,
    UnpublishedStreamRow,
    UnpublishedStreamsInfo,
)

STORE: Final = "/v1/store"
JOBS: Final = "/v1/jobs"
JOB: Final = f"{JOBS}/{{job_id}}"
PROGRESS: Final = "progress"
UNPUBLISHED_LISTED: Final = 20
UNPUBLISHED_EXAMINED: Final = 100_000
"""Streams of which the largest unpublished ones are chosen: some tenths of a second."""
RUN_POLL_S: Final = 0.5
"""Interval at which the progress of a run of another process is read."""
_DONE: Final = frozenset({"succeeded", "failed", "cancelled", "interrupted"})


def backups_folder(root: Path, settings: Settings) -> Path:
    """Return the folder for backups that jobs make: by default next to the store."""
    name = settings.server.backups
    return root.with_name(f"{root.name}-backups") if name == "auto" else root / name


class StoreRoutes:
    """Handlers of the store as a whole."""

    def __init__(
        self,
        store: Store,
        workers: Workers,
        jobs: Jobs,
        backups: Path,
        *,
        keep_alive_s: float = SSE_KEEP_ALIVE_S,
    ) -> None:
        self._store = store
        self._workers = workers
        self._jobs = jobs
        self._job_list = JobList(jobs, store.root)
        self._backups = backups
        self._keep_alive_s = keep_alive_s
        self._overview = SharedRead(partial(workers.run, _overview, store.root))
        self._activity = SharedRead(partial(workers.run, _read_activity, store.root))
        self._past = SharedReads(partial(workers.run, _overview, store.root))

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of these handlers."""
        return bind(_ROUTES, self)

    def stop(self) -> None:
        """Interrupt the jobs, and end feeds of their progress."""
        self._jobs.stop()

    # Probes

    async def livez(self, _request: Request) -> Reply:
        """Return that the event loop runs."""
        return Reply(Probe(ok=True))

    async def readyz(self, _request: Request) -> Reply:
        """Return whether the open databases are ready for requests."""
        health = await self._workers.run(self._store.health)
        failing = sum(not state.ready for state in health.values())
        ready = not failing and not self._jobs.is_stopping()
        return Reply(Probe(ok=ready, failing=failing), 200 if ready else 503)

    # What exists

    async def get_store(self, _request: Request, query: StoreQuery) -> Reply:
        """Return what the store contains; in a large store, as it was some seconds ago."""
        at = await parse_store_time(self._store, self._workers, query.at)
        result = await (self._overview.get() if at is None else self._past.get(at))
        return Reply(msgspec.structs.replace(result.value, age_ms=result.age_ms))

    async def get_activity(self, _request: Request, query: StoreQuery) -> Reply:
        """Return what happened last; in a large store, as it was some seconds ago."""
        at = await parse_store_time(self._store, self._workers, query.at)
        if at is not None:
            until_ms = int(at.timestamp() * 1_000)
            return Reply(await self._workers.run(_read_activity, self._store.root, until_ms))
        result = await self._activity.get()
        return Reply(msgspec.structs.replace(result.value, age_ms=result.age_ms))

    async def list_points(self, _request: Request, query: PageQuery) -> Reply:
        """Return a page of restore points."""
        return Reply(await self._workers.run(_list_points, self._store, query), is_large=True)

    async def get_point(self, _request: Request, point: str) -> Reply:
        """Return a restore point."""
        info = await self._workers.run(self._store.point, point)
        return Reply(_point_row(info))

    async def list_databases(self, _request: Request, query: PageQuery) -> Reply:
        """Return a page of databases with how far they are published."""
        return Reply(await self._workers.run(_list_databases, self._store, query), is_large=True)

    async def list_archive_tables(self, _request: Request) -> Reply:
        """Return the tables of the archive."""
        return Reply(await self._workers.run(_list_tables, self._store))

    async def list_backups(self, _request: Request, query: PageQuery) -> Reply:
        """Return a page of backups."""
        page = await self._workers.run(_list_backups, self._store.root, self._backups, query)
        return Reply(page, is_large=True)

    # Jobs

    async def start_job(self, request: Request, body: NewJob) -> Reply:
        """Start a job."""
        key, sent = conditions.parse_idempotency_key(request), None
        if key is not None:
            sent = IdempotentRequest(
                request.key_id, key, digest_of(b"start_job", msgspec.json.encode(body))
            )
        loop = asyncio.get_running_loop()
        job = await self._workers.write(self._jobs.start, body, sent, loop)
        return Reply(job, 202, location=f"{JOBS}/{job.id}")

    async def list_jobs(self, _request: Request, query: JobsQuery) -> Reply:
        """Return a page of jobs."""
        return Reply(await self._workers.run(self._list_jobs, query), is_large=True)

    def _list_jobs(self, query: JobsQuery) -> JobPage:
        status, kind = _or_none(query.status), _or_none(query.kind)
        listed = cursors.digest_of("jobs", status, kind)
        cursor = cursors.parse(query.cursor, listed, str)
        position = "" if cursor is None else cursor.after
        page, following = self._job_list.page(position, status, kind, query.limit)
        more = None if following is None else cursors.format_cursor(listed, 0, following)
        return JobPage(items=page, next_cursor=more)

    async def get_job(self, _request: Request, job_id: str) -> Reply:
        """Return a job."""
        return Reply(await self._workers.run(self._job_list.get, job_id))

    async def cancel_job(self, _request: Request, job_id: str) -> Reply:
        """Cancel a job, and return it once its work has ended."""
        return Reply(await self._workers.write(self._job_list.cancel, job_id))

    async def follow_job(self, _request: Request, job_id: str) -> Response:
        """Return a feed of the progress of a job."""
        await self._workers.run(self._job_list.get, job_id)
        open_feed = partial(self._open_feed, job_id)
        return event_response(open_feed, keep_alive_s=self._keep_alive_s)

    @asynccontextmanager
    async def _open_feed(self, job_id: str) -> AsyncIterator[Feed]:
        feed = _JobFeed(job_id, self._jobs, self._job_list, self._workers)
        yield Feed(feed.next_event, lambda: job_id, self._jobs.is_stopping)


class _JobFeed:
    """The progress of one job, as events: each is the whole job, so none needs to be repeated."""

    def __init__(self, job_id: str, jobs: Jobs, job_list: JobList, workers: Workers) -> None:
        self._job_id = job_id
        self._jobs = jobs
        self._job_list = job_list
        self._workers = workers
        self._sent: JobInfo | None = None

    async def next_event(self, timeout_s: float) -> FeedEvent | None:
        """Return the job after a change, or its end; None if nothing happens in time."""
        deadline = time.monotonic() + timeout_s
        with self._jobs.notifier.listen(self._job_id) as listener:
            while not self._jobs.is_stopping():
                listener.drain()
                job = await self._workers.run(self._job_list.get, self._job_id)
                if job.status in _DONE:
                    return FeedEvent(END, job, self._job_id)
                if job != self._sent:
                    self._sent = job
                    return FeedEvent(PROGRESS, job, self._job_id)
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                # No other process notifies this one.
                await listener.wait(min(left, RUN_POLL_S) if is_run(self._job_id) else left)
        return None


def _overview(root: Path, at: datetime | None = None) -> StoreOverview:
    rows = overview.describe(root, at)
    for row in rows:
        row["problems"] = [without_paths(text) for text in row["problems"]]
    return overview.summarize(rows)


def _read_activity(root: Path, until_ms: int | None = None) -> Activity:
    # Connections that only read lock no database that another process may want to write.
    with open_store(root, mode="r") as store:
        return activity.read_activity(store, time.time_ns() // 1_000_000, until_ms)


def _point_row(point: PointInfo) -> PointRow:
    return PointRow(**msgspec.structs.asdict(point))


def _list_points(store: Store, query: PageQuery) -> PointPage:
    listed = cursors.digest_of("points")
    cursor = cursors.parse(query.cursor, listed, int)
    points = store.points()
    # Counted from the oldest, so that pages do not shift when points are added.
    end = len(points) if cursor is None else min(cursor.after, len(points))
    page = points[max(0, end - query.limit) : end]
    left = end - len(page)
    return PointPage(
        items=[_point_row(point) for point in reversed(page)],
        next_cursor=cursors.format_cursor(listed, 0, left) if left else None,
    )


def _list_databases(store: Store, query: PageQuery) -> DatabaseStatusPage:
    listed = cursors.digest_of("archive")
    cursor = cursors.parse(query.cursor, listed, str)
    after = "" if cursor is None else cursor.after
    names = sorted(name for name in database_files.names(store.root) if name > after)
    page = names[: query.limit]
    more = len(names) > len(page)
    return DatabaseStatusPage(
        items=[_database_row(store, name) for name in page],
        next_cursor=cursors.format_cursor(listed, 0, page[-1]) if more else None,
        streams=None if cursor is not None else _unpublished_streams(store),
    )


def _list_tables(store: Store) -> ArchiveTableList:
    return ArchiveTableList(tables=store.archive_tables())


def _unpublished_streams(store: Store) -> UnpublishedStreamsInfo | None:
    from fourfold.store.publish import has_streams  # noqa: PLC0415 - few stores publish

    if not has_streams(store):
        return None
    found = store.archive.find_unpublished(UNPUBLISHED_LISTED, examined=UNPUBLISHED_EXAMINED)
    return UnpublishedStreamsInfo(
        streams=found.streams,
        records=found.records,
        bytes=found.bytes,
        complete=found.complete,
        largest=[UnpublishedStreamRow(**row._asdict()) for row in found.largest],
    )


def _database_row(store: Store, name: str) -> DatabaseStatusRow:
    from fourfold.store.publish import read_status  # noqa: PLC0415 - few stores publish

    try:
        status = read_status(store, name)
    except FourfoldError as error:
        # Deleted meanwhile, or unreadable: the others are listed all the same.
        return DatabaseStatusRow(
            name=name, published=0, newest=0, changes=0, generation=0, problem=error.kind
        )
    return DatabaseStatusRow(**status._asdict())


def _list_backups(root: Path, backups: Path, query: PageQuery) -> BackupPage:
    listed = cursors.digest_of("backups")
    cursor = cursors.parse(query.cursor, listed, str)
    after = "" if cursor is None else cursor.after
    rows = [row for row in _iter_backups(root, backups) if f"{row.kind}/{row.name}" > after]
    rows.sort(key=lambda row: (row.kind, row.name))
    page = rows[: query.limit]
    more = len(rows) > len(page)
    last = f"{page[-1].kind}/{page[-1].name}" if page else ""
    return BackupPage(
        items=page, next_cursor=cursors.format_cursor(listed, 0, last) if more else None
    )


def _iter_backups(root: Path, backups: Path) -> Iterator[BackupRow]:
    for folder in backups.iterdir() if backups.is_dir() else ():
        try:
            manifest = backup.read_manifest(folder)
        except FourfoldError:
            # Not a complete backup.
            continue
        size = sum(database.size for database in manifest.databases.values())
        size += sum(file.size for file in manifest.files)
        yield BackupRow(
            name=folder.name,
            kind="store",
            created_at=manifest.created_at,
            databases=len(manifest.databases),
            bytes=size,
        )
    migrations = layout.migration_backups(root, root / "x")
    for path in migrations.rglob("v*.sqlite"):
        try:
            sidecar = read_sidecar(path)
        except FourfoldError:
            continue
        yield BackupRow(
            name=str(path.relative_to(migrations)),
            kind="migration",
            created_at=sidecar.created_at,
            databases=1,
            bytes=sidecar.size,
        )


def _or_none(value: Any) -> Any:
    return None if isinstance(value, UnsetType) else value


def _store_route(method: str, path: str, handler: Any, **options: Any) -> Route:
    """Return a route of the store; a key must be for the store."""
    return Route(method, path, handler, model="store", **{"scope": "admin", **options})


_ROUTES: Final = (
    Route(
        *("GET", "/livez", StoreRoutes.livez),
        operation="livez",
        summary="Probe whether the server runs; restart it if this fails.",
        scope="public",
        ok={200: Ok("It runs.", Probe)},
    ),
    Route(
        *("GET", "/readyz", StoreRoutes.readyz),
        operation="readyz",
        summary="Probe whether the server is ready; send it no requests while this fails.",
        scope="public",
        ok={200: Ok("It is ready.", Probe), 503: Ok("It is not ready.", Probe)},
    ),
    _store_route(
        *("GET", STORE, StoreRoutes.get_store),
        operation="get_store",
        summary="Get an overview of every model: size, counts, newest activity and health.",
        scope="read",
        query=StoreQuery,
        ok={200: Ok("The overview.", StoreOverview)},
        errors=(NotFound,),
    ),
    _store_route(
        *("GET", f"{STORE}/activity", StoreRoutes.get_activity),
        operation="get_activity",
        summary="Get the newest entries of all models, now or at a time, and their number.",
        scope="read",
        query=StoreQuery,
        ok={200: Ok("The activity.", Activity)},
        errors=(NotFound,),
    ),
    _store_route(
        *("GET", "/v1/points", StoreRoutes.list_points),
        operation="list_points",
        summary="List restore points, newest first.",
        query=PageQuery,
        ok={200: Ok("A page of restore points.", PointPage)},
    ),
    _store_route(
        *("GET", "/v1/points/{point}", StoreRoutes.get_point),
        operation="get_point",
        summary="Get a restore point by its id.",
        scope="read",
        ok={200: Ok("The restore point.", PointRow)},
        errors=(NotFound,),
        no_past="a restore point never changes",
    ),
    _store_route(
        *("GET", "/v1/archive", StoreRoutes.list_databases),
        operation="list_databases",
        summary="List databases and how far they are published; the rest is only on this disk.",
        query=PageQuery,
        ok={200: Ok("A page of databases.", DatabaseStatusPage)},
    ),
    _store_route(
        *("GET", "/v1/archive/tables", StoreRoutes.list_archive_tables),
        operation="list_archive_tables",
        summary="List the Delta tables of the archive: versions, files, rows and bytes.",
        ok={200: Ok("The tables.", ArchiveTableList)},
    ),
    _store_route(
        *("GET", "/v1/backups", StoreRoutes.list_backups),
        operation="list_backups",
        summary="List backups that jobs made, and those before migrations.",
        query=PageQuery,
        ok={200: Ok("A page of backups.", BackupPage)},
    ),
    _store_route(
        *("POST", JOBS, StoreRoutes.start_job),
        operation="start_job",
        summary="Start a job, such as verify, publish, compact, load or stats.",
        headers=IdempotencyHeaders,
        body=NewJob,
        ok={202: Ok("It is recorded, and starts when it is its turn.", JobInfo)},
        errors=(NotFound, Refused, ReplayMismatch),
    ),
    _store_route(
        *("GET", JOBS, StoreRoutes.list_jobs),
        operation="list_jobs",
        summary="List jobs and runs of the pipeline, newest first.",
        query=JobsQuery,
        ok={200: Ok("A page of jobs.", JobPage)},
    ),
    _store_route(
        *("GET", JOB, StoreRoutes.get_job),
        operation="get_job",
        summary="Get a job: its status, progress, and result or error.",
        ok={200: Ok("The job.", JobInfo)},
        errors=(NotFound,),
    ),
    _store_route(
        *("DELETE", JOB, StoreRoutes.cancel_job),
        operation="cancel_job",
        summary="Cancel a job; one that has ended stays as it is.",
        ok={200: Ok("The job, which has ended.", JobInfo)},
        errors=(NotFound, Refused),
    ),
    _store_route(
        *("GET", f"{JOB}/events", StoreRoutes.follow_job),
        operation="follow_job",
        summary="Follow a job as server-sent events: progress and end, each with the job.",
        headers=EventHeaders,
        ok={200: Ok("The events.", "events", content_type="text/event-stream")},
        errors=(NotFound,),
    ),
)
