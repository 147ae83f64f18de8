"""Changes with their images before and after, from a log in an archive.

A change is a row of a log, with what was there before it and after it. The offset, the batches and
their limits are those of the log (`archive_changes`). A batch is divided by databases. For each, a
task selects what changed in the points of the batch, reads the whole log of that until its end, and
computes the images: so a repeated batch has the same rows.

A model defines an `ImageLog` for each of its tables of changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from fourfold import limits
from fourfold.archive.catalog_rows import DatabaseRow, digest_tag
from fourfold.archive.table_layout import FILE_ID, OP, POINT, PUT, WHOLE, table_prefix
from fourfold.archive.table_reader import points_of
from fourfold.models.model import model_of_database
from fourfold.objects import open_objects
from fourfold.pipeline.archive_changes import ArchiveChanges, Interval, Offset, opened_file
from fourfold.pipeline.models import get_model
from fourfold.pipeline.task_groups import pack
from fourfold.query.tables import Column, arrow, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from fourfold.kernel.profiles import Profile

IMAGE_TASK_BYTES: Final = 32 * limits.MIB
"""Published bytes of the databases of one task, approximately."""
EVERY_BRANCH: Final = "*"
PRESENT: Final = frozenset({PUT, WHOLE})
"""Operations of rows of small tables, which may be published as a whole."""

Row = Mapping[str, Any]
SmallRows = Callable[[str, Sequence[str]], Iterator["pa.Table"]]
"""Returns columns of all rows of a small table."""


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

    table: str
    """Name of the table of changes."""
    url: str
    files: tuple[LogFile, ...]
    names: tuple[str, ...]
    """Names of the columns that are read."""
    after: int
    until: int
    intervals: Mapping[str, Interval]
    """Points of the rows that count, by the id of the database file."""
    facts: Mapping[str, Any]
    """What else the log says about each of these files, by the same id."""
    branch: str = ""
    """Branch of the changes, or `EVERY_BRANCH`."""

    def counts(self, row: Row) -> bool:
        """Return True if a row was published until the end of the batch, and is of its file."""
        base, last = self.intervals[row[FILE_ID]]
        return bool(base <= row[POINT] <= min(last, self.until))

    def is_new(self, row: Row) -> bool:
        """Return True if a row was published in the points of the batch."""
        return bool(row[POINT] > self.after and row[OP] == PUT)


@dataclass(frozen=True, slots=True)
class ImageLog:
    """A table of changes: the log that it is computed from, and how."""

    name: str
    """Name in the option `table`; the archive has no such table."""
    log: str
    columns: tuple[Column, ...]
    read: Callable[[ImageTask], Iterator[dict[str, Any]]]
    """Yields the changes of a task, in a fixed order."""
    facts: Callable[[SmallRows, int], Mapping[str, Any]] = lambda _rows, _until: {}
    """Returns what a task needs besides the log, by file id, at a point."""
    profile: Profile | None = None
    """Profile of the databases with changes; None for all databases of the log."""
    branches: bool = False
    """True if the changes are those of a branch."""


def image_log(name: str) -> ImageLog | None:
    """Return a table of changes by its name, or None if no model has it."""
    from fourfold.models import model as registry  # noqa: PLC0415 - workers need no registry

    model = name.partition(".")[0]
    if model not in {each.name for each in registry.all_models()}:
        return None
    images = get_model(model).images
    return None if images is None else images().get(name)


class ImageChanges(ArchiveChanges):
    """The changes of a log in an archive, with images."""

    def __init__(self, url: str, images: ImageLog, branch: str = "") -> None:
        super().__init__(url, images.log)
        self._images = images
        self._branch = branch

    def schema(self) -> pa.Schema:
        """Return the columns of a change; raise NotFound if the archive has no such log."""
        super().schema()
        return arrow_schema(self._images.columns)

    def tasks(self, start: Offset, end: Offset, columns: Sequence[str]) -> list[ImageTask]:
        """Return the tasks of the points after `start` until `end`."""
        after, until = start["point"], end["point"]
        images = self._images
        changed = [
            row for name, row in self.changed_databases(start, end) if self._has_log(name, row)
        ]
        files = [
            LogFile(key, digest_tag(file, key), *points)
            for file in self.log_files()
            if (points := points_of(file))[0] <= until
            and (key := f"{table_prefix(images.log)}/{file.path}")
        ]
        facts = images.facts(self.rows, until)
        return [
            ImageTask(
                *(images.name, self.url, tuple(files), tuple(columns), after, until),
                {row.file_id: (row.base, row.point) for row in group},
                {row.file_id: facts[row.file_id] for row in group if row.file_id in facts},
                self._branch,
            )
            for group in pack(((row.bytes, row) for row in changed), IMAGE_TASK_BYTES)
        ]

    def _has_log(self, name: str, row: DatabaseRow) -> bool:
        model = model_of_database(name)
        if model.name != self._images.log.partition(".")[0]:
            return False
        profile = self._images.profile
        return profile is None or model.kind(row.model).profile == profile


def read_images(task: ImageTask) -> Iterator[pa.RecordBatch]:
    """Yield the changes of a task.

    Raises:
        HistoryTruncated: Gc removed rows that an image needs.
    """
    images = image_log(task.table)
    assert images is not None
    schema = arrow_schema([column for column in images.columns if column.name in task.names])
    rows = images.read(task)
    while page := list(islice(rows, limits.FOLD_BATCH_ROWS)):
        batch = arrow().RecordBatch.from_pylist(page, schema=schema)
        yield batch.select(list(task.names))


def new_rows(task: ImageTask, columns: Sequence[str]) -> Iterator[Row]:
    """Yield the rows that were published in the points of a batch."""
    files = [file for file in task.files if file.last > task.after]
    return (row for row in _rows(task, files, columns, None) if task.is_new(row))


def rows_of(
    task: ImageTask, columns: Sequence[str], key: str, values: Iterable[Any]
) -> Iterator[Row]:
    """Yield the rows until the end of a batch whose column `key` has one of these values."""
    return _rows(task, task.files, columns, (key, sorted(set(values))))


def _rows(
    task: ImageTask,
    files: Iterable[LogFile],
    columns: Sequence[str],
    only: tuple[str, list[Any]] | None,
) -> Iterator[Row]:
    import pyarrow.compute as pc  # noqa: PLC0415 - an optional dependency

    pa = arrow()
    file_ids = pa.array(list(task.intervals), pa.string())
    objects = open_objects(task.url)
    for file in files:
        with opened_file(objects, file.key, file.digest) as opened:
            for group in range(opened.metadata.num_row_groups):
                rows = opened.read_row_group(group, columns=list(columns), use_threads=False)
                rows = rows.filter(pc.is_in(rows[FILE_ID], value_set=file_ids))
                if only is not None:
                    held = rows[only[0]]
                    wanted = pa.array(only[1], held.type)
                    rows = rows.filter(pc.is_in(held, value_set=wanted))
                yield from filter(task.counts, rows.to_pylist())


def kind_of(before: str | None, after: str | None) -> str:
    """Return what a change is: an insert, an update or a delete."""
    if after is None:
        return "delete"
    return "insert" if before is None else "update"
