"""The pipeline over HTTP: runs of its jobs, and the tables that they wrote.

Jobs of the server and commands write the same records. Clients see names of folders, never their
paths. Keys for these routes are for the model `store`.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import islice
from pathlib import Path
from typing import Any, Final

from msgspec import UnsetType

from fourfold.errors import FourfoldError
from fourfold.server import cursors
from fourfold.server.job_list import to_ms
from fourfold.server.jobs import job_error
from fourfold.server.request import Reply, Request
from fourfold.server.routes import Ok, Route, bind
from fourfold.server.workers import Workers
from fourfold.store import Store, pipeline_runs
from fourfold.store.pipeline_runs import Run
from fourfold.store.table_manifest import CURRENT, MANIFEST, FolderManifest, read_manifest
from fourfold.wire.pages import PageQuery
from fourfold.wire.pipeline import (
    RunPage,
    RunRow,
    RunsQuery,
    TableFolderPage,
    TableFolderRow,
    TableRow,
)

PIPELINE: Final = "/v1/pipeline"
WATERMARKS_MAX: Final = 100


class PipelineRoutes:
    """Handlers of the runs and tables of the pipeline."""

    def __init__(self, store: Store, workers: Workers) -> None:
        self._root = store.root
        self._workers = workers

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of these handlers."""
        return bind(_ROUTES, self)

    def stop(self) -> None:
        """Do nothing: there are no feeds."""

    async def list_runs(self, _request: Request, query: RunsQuery) -> Reply:
        """Return a page of runs."""
        return Reply(await self._workers.run(_list_runs, self._root, query), is_large=True)

    async def list_tables(self, _request: Request, query: PageQuery) -> Reply:
        """Return a page of folders of tables."""
        return Reply(await self._workers.run(_list_tables, self._root, query), is_large=True)


def _list_runs(root: Path, query: RunsQuery) -> RunPage:
    job = None if isinstance(query.job, UnsetType) else query.job
    listed = cursors.digest_of("runs", job)
    cursor = cursors.parse(query.cursor, listed, str)
    before = None if cursor is None else cursor.after
    runs = pipeline_runs.history(root, job, query.limit + 1, before=before)
    page = runs[: query.limit]
    more = len(runs) > len(page)
    return RunPage(
        items=[_run_row(root, run) for run in page],
        next_cursor=cursors.format_cursor(listed, 0, page[-1].id) if more else None,
    )


def _run_row(root: Path, run: Run) -> RunRow:
    return RunRow(
        id=run.id,
        job=run.job,
        job_id=pipeline_runs.job_of(run),
        model=_text(run.options.get("model")),
        output=Path(run.output).name,
        state=pipeline_runs.current_state(root, run),  # type: ignore[arg-type]
        started_at_ms=to_ms(run.started_at),
        ended_at_ms=None if run.finished_at is None else to_ms(run.finished_at),
        duration_ms=run.duration_ms,
        inputs=run.input.get("sources", 0),
        rows_in=run.rows_in,
        rows_out=run.rows_out,
        skipped=len(run.skipped),
        error=None if run.error is None else job_error(run.error),
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _list_tables(root: Path, query: PageQuery) -> TableFolderPage:
    listed = cursors.digest_of("tables")
    cursor = cursors.parse(query.cursor, listed, int)
    # A folder is its place in the order, since a cursor shows no path.
    start = 0 if cursor is None else max(0, cursor.after)
    folders = [run for run in pipeline_runs.newest(root) if _manifest_path(run).is_file()]
    page = folders[start : start + query.limit]
    more = len(folders) > start + len(page)
    rows = (_folder_row(root, run) for run in page)
    return TableFolderPage(
        items=[row for row in rows if row is not None],
        next_cursor=cursors.format_cursor(listed, 0, start + len(page)) if more else None,
    )


def _manifest_path(run: Run) -> Path:
    return Path(run.target) / CURRENT / MANIFEST


def _folder_row(root: Path, run: Run) -> TableFolderRow | None:
    """Return the tables that a run wrote, or None if they cannot be read any more."""
    try:
        manifest = read_manifest(Path(run.target))
        tables = _table_rows(Path(run.target), manifest)
        written_at = _manifest_path(run).stat().st_mtime
    except (FourfoldError, OSError):
        return None
    return TableFolderRow(
        name=Path(run.target).name,
        job=run.job,
        model=_text(run.options.get("model")),
        version=manifest.version,
        tables=tables,
        written_at_ms=int(written_at * 1000),
        inputs=len(manifest.spaces),
        watermarks=dict(islice(sorted(manifest.spaces.items()), WATERMARKS_MAX)),
        is_running=pipeline_runs.current_state(root, run) == "running",
    )


def _table_rows(into: Path, manifest: FolderManifest) -> list[TableRow]:
    files = defaultdict(list)
    for file in manifest.files:
        # Documents list the files of their first table only, without its name.
        table, slash, _ = file.name.partition("/")
        files[table if slash else manifest.tables[0]].append(file)
    return [
        TableRow(
            name=name,
            rows=sum(file.rows for file in files[name]),
            files=len(files[name]),
            bytes=sum(file.bytes for file in files[name]),
        )
        if files[name]
        else _uncounted_table(into / CURRENT / name)
        for name in manifest.tables
    ]


def _uncounted_table(folder: Path) -> TableRow:
    """Return a table that the manifest only names: derived from another one, like `variant`."""
    sizes = [path.stat().st_size for path in folder.glob("*.parquet")]
    return TableRow(name=folder.name, rows=None, files=len(sizes), bytes=sum(sizes))


def _pipeline_route(path: str, handler: Any, **options: Any) -> Route:
    return Route("GET", path, handler, model="store", scope="admin", **options)


_ROUTES: Final = (
    _pipeline_route(
        *(f"{PIPELINE}/runs", PipelineRoutes.list_runs),
        operation="list_runs",
        summary="List runs of pipeline jobs, newest first, whichever process started them.",
        query=RunsQuery,
        ok={200: Ok("A page of runs.", RunPage)},
    ),
    _pipeline_route(
        *(f"{PIPELINE}/tables", PipelineRoutes.list_tables),
        operation="list_tables",
        summary="List the tables that pipeline jobs wrote, with rows, sizes and watermarks.",
        query=PageQuery,
        ok={200: Ok("A page of folders of tables.", TableFolderPage)},
    ),
)
