"""Changes of documents with their images before and after, from the log in an archive.

A change is one version of a document of the default branch: what a commit left of it, and what was
there before. The offset, the batches and their limits are those of the log (`archive_changes`). A
batch is divided by databases. For each, a task selects the documents that changed in the points of
the batch, reads their whole log until its end, and folds it: so a repeated batch has the same rows.
Spaces with the history `facts` have no rows here; their log is the table of facts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from fourfold import limits
from fourfold.archive.catalog_rows import DatabaseRow, digest_tag
from fourfold.archive.table_layout import FILE_ID, OP, POINT, PUT, table_prefix
from fourfold.archive.table_reader import points_of
from fourfold.errors import HistoryTruncated
from fourfold.models.documents.revisions.log import REVISIONS
from fourfold.models.model import model_of_database
from fourfold.objects import open_objects
from fourfold.pipeline.archive_changes import ArchiveChanges, Interval, Offset, opened_file
from fourfold.pipeline.task_groups import pack
from fourfold.query.documents.row_fold import iter_versions
from fourfold.query.tables import Column, arrow, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

TABLE: Final = "documents.changes"
"""Name of the table in the option `table`; the archive has no such table."""
LOG: Final = "documents.revision"
_HORIZONS: Final = "documents.gc_horizon"
COLUMNS: Final = (
    Column("space", "string"),
    Column("file_id", "string"),
    Column("id", "string"),
    Column("seq", "bigint"),
    Column("change", "string"),
    Column("op", "string"),
    Column("before", "string"),
    Column("after", "string"),
    Column("_point", "bigint"),
)
IMAGE_TASK_BYTES: Final = 32 * limits.MIB
"""Published bytes of the databases of one task, approximately."""
_KEYS: Final = (FILE_ID, OP, POINT, "branch", "id")
_LOG_COLUMNS: Final = (*_KEYS, "space", "seq", "op_index", "op", "data")
_DEFAULT_BRANCH: Final = ""

Key = tuple[str, str]
"""The id of a database file, and of a document."""
LogRow = tuple[int, int, str, str | None, int]
"""The seq, the number in its commit, the operation, its data, and the point."""


@dataclass(slots=True)
class DocumentLog:
    """The rows of a document that were published until the end of a batch."""

    space: str = ""
    rows: list[LogRow] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)
    """Seqs of rows that gc has removed."""


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file of the log, and the points of its rows."""

    key: str
    digest: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class ImageTask:
    """Databases of a batch, and the files that may have rows of them."""

    url: str
    files: tuple[LogFile, ...]
    names: tuple[str, ...]
    """Names of the columns that are read."""
    after: int
    until: int
    intervals: Mapping[str, Interval]
    """Points of the rows that count, by the id of the database file."""
    horizons: Mapping[str, int]
    """Seqs until which gc may have removed rows, by the same id."""


class ImageChanges(ArchiveChanges):
    """The changes of documents in an archive, with images."""

    def __init__(self, url: str) -> None:
        super().__init__(url, LOG)

    def schema(self) -> pa.Schema:
        """Return the columns of a change; raise NotFound if the archive has no documents."""
        super().schema()
        return arrow_schema(COLUMNS)

    def tasks(self, start: Offset, end: Offset, columns: Sequence[str]) -> list[ImageTask]:
        """Return the tasks of the points after `start` until `end`."""
        after, until = start["point"], end["point"]
        changed = [
            row
            for name, row in self.changed_databases(start, end)
            if model_of_database(name).kind(row.model).profile == REVISIONS.profile
        ]
        files = [
            LogFile(key, digest_tag(file, key), *points)
            for file in self.log_files()
            if (points := points_of(file))[0] <= until
            and (key := f"{table_prefix(LOG)}/{file.path}")
        ]
        horizons = self._horizons(until)
        groups = pack(((row.bytes, row) for row in changed), IMAGE_TASK_BYTES)
        return [
            ImageTask(
                *(self.url, tuple(files), tuple(columns), after, until),
                {row.file_id: _interval(row) for row in group},
                {row.file_id: horizons.get(row.file_id, 0) for row in group},
            )
            for group in groups
        ]

    def _horizons(self, until: int) -> dict[str, int]:
        horizons: dict[str, int] = {}
        for rows in self.rows(_HORIZONS, (FILE_ID, POINT, "seq")):
            for row in rows.to_pylist():
                if row[POINT] <= until:
                    known = horizons.get(row[FILE_ID], 0)
                    horizons[row[FILE_ID]] = max(known, row["seq"] or 0)
        return horizons


def _interval(row: DatabaseRow) -> Interval:
    return row.base, row.point


def read_images(task: ImageTask) -> Iterator[pa.RecordBatch]:
    """Yield the changes of a task, in the order of databases and documents.

    Raises:
        HistoryTruncated: Gc removed rows that an image needs.
    """
    logs = _read_logs(task)
    schema = arrow_schema([column for column in COLUMNS if column.name in task.names])
    rows = (row for key in sorted(logs) for row in _changes(key, logs[key], task))
    while page := list(islice(rows, limits.FOLD_BATCH_ROWS)):
        batch = arrow().RecordBatch.from_pylist(page, schema=schema)
        yield batch.select(list(task.names))


def _read_logs(task: ImageTask) -> dict[Key, DocumentLog]:
    """Return the logs of the documents that changed in the points of a batch, until its end."""
    logs: dict[Key, DocumentLog] = {}
    for row in _rows(task, _KEYS, None):
        if row[POINT] > task.after and row[OP] == PUT:
            logs[row[FILE_ID], row["id"]] = DocumentLog()
    if not logs:
        return logs
    fields = itemgetter("seq", "op_index", "op", "data", POINT)
    for row in _rows(task, _LOG_COLUMNS, {name for _, name in logs}):
        log = logs.get((row[FILE_ID], row["id"]))
        if log is None:
            continue
        if row[OP] == PUT:
            log.space = row["space"]
            log.rows.append(fields(row))
        else:
            log.removed.append(row["seq"])
    return logs


def _rows(task: ImageTask, columns: Sequence[str], ids: set[str] | None) -> Iterator[Any]:
    """Yield the rows of the default branch until the end of the batch, of these documents only; of
    all documents the rows of files that have points of the batch.
    """
    import pyarrow.compute as pc  # noqa: PLC0415 - an optional dependency

    pa = arrow()
    file_ids = pa.array(list(task.intervals), pa.string())
    documents = None if ids is None else pa.array(sorted(ids), pa.string())
    objects = open_objects(task.url)
    for file in task.files:
        if ids is None and file.last <= task.after:
            continue
        with opened_file(objects, file.key, file.digest) as opened:
            for group in range(opened.metadata.num_row_groups):
                rows = opened.read_row_group(group, columns=list(columns), use_threads=False)
                rows = rows.filter(pc.is_in(rows[FILE_ID], value_set=file_ids))
                rows = rows.filter(pc.equal(rows["branch"], _DEFAULT_BRANCH))
                if documents is not None:
                    rows = rows.filter(pc.is_in(rows["id"], value_set=documents))
                yield from (row for row in rows.to_pylist() if _counts(row, task))


def _counts(row: Mapping[str, Any], task: ImageTask) -> bool:
    """Return True if a row was published until the end of the batch, and belongs to its file."""
    base, last = task.intervals[row[FILE_ID]]
    return bool(base <= row[POINT] <= min(last, task.until))


def _changes(key: Key, log: DocumentLog, task: ImageTask) -> Iterator[dict[str, Any]]:
    """Yield the changes of a document in the points of a batch."""
    file_id, name = key
    rows = _needed_rows(log, task.after, task.horizons[file_id])
    if rows is None:
        raise HistoryTruncated(
            f"space {log.space!r}: gc removed rows of the document {name!r}, so its images are"
            " not known",
            hint=f"Read the table {LOG!r}, or start a new query.",
        )
    points = {seq: point for seq, _, _, _, point in rows}
    entity = (log.space, _DEFAULT_BRANCH, name)
    before: str | None = None
    versions = iter_versions(entity, ((entity, seq, op, data) for seq, _, op, data, _ in rows))
    for *_, seq, op, document in versions:
        if points[seq] > task.after:
            yield {
                "space": log.space,
                "file_id": file_id,
                "id": name,
                "seq": seq,
                "change": _kind(before, document),
                "op": op,
                "before": before,
                "after": document,
                POINT: points[seq],
            }
        before = document


def _needed_rows(log: DocumentLog, after: int, horizon: int) -> list[LogRow] | None:
    """Return the rows from the last whole document before the changes on; None if some of them may
    have been removed.
    """
    rows = sorted(log.rows)
    first = next(at for at, row in enumerate(rows) if row[4] > after)
    base = max((at for at in range(first) if rows[at][2] != "patch"), default=None)
    start = 0 if base is None else base
    if rows[start][2] == "patch" or rows[first][0] <= horizon:
        return None
    lowest = 0 if base is None else rows[base][0]
    return None if any(seq >= lowest for seq in log.removed) else rows[start:]


def _kind(before: str | None, after: str | None) -> str:
    if after is None:
        return "delete"
    return "insert" if before is None else "update"
