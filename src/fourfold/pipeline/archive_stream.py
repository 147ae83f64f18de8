"""The streaming source over an archive: `readStream.format("fourfold").option("archive", URL)`.

It needs no store: the workers read the files of the archive. The offset is a point of the archive,
whatever the number of databases. A batch has as many points as have about `max_rows` rows, and at
least one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from fourfold.errors import FourfoldError, InvalidInput
from fourfold.pipeline.archive_changes import (
    START,
    ArchiveChanges,
    ChangedFile,
    Offset,
    read_changes,
)
from fourfold.pipeline.image_changes import ImageChanges, ImageTask, image_log, read_images
from fourfold.pipeline.options import STREAM_BATCH_ROWS
from fourfold.pipeline.spark import wrap_error

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

ARCHIVE: Final = "archive"
_NAMES: Final = (ARCHIVE, "table", "columns", "max_rows", "branch")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ArchiveOptions:
    """The parsed options of a read of an archive."""

    url: str
    table: str
    columns: tuple[str, ...]
    """Empty for all of them."""
    max_rows: int
    branch: str = ""
    """Branch of changes with images; "*" for every branch."""


def read_archive_options(raw_options: Mapping[str, str]) -> ArchiveOptions:
    """Parse and check the options of a read."""
    texts = {name.lower(): value for name, value in raw_options.items()}
    for name in texts:
        if name not in _NAMES:
            raise InvalidInput(
                f"option {name!r} is not supported with the option 'archive'",
                hint=f"Options: {', '.join(_NAMES)}.",
            )
    if not texts.get("table"):
        raise InvalidInput(
            "option 'table' is required", hint="Name an archive table: documents.revision."
        )
    columns = tuple(filter(None, map(str.strip, texts.get("columns", "").split(","))))
    rows = texts.get("max_rows", str(STREAM_BATCH_ROWS)).strip()
    if not rows.isdecimal() or not 1 <= int(rows) < 1 << 63:
        raise InvalidInput(f"option 'max_rows' must be a positive integer, got {rows!r}")
    url = texts[ARCHIVE]
    if ":" not in url:
        url = str(Path(url).absolute())
    branch = texts.get("branch", "")
    images = image_log(texts["table"])
    if branch and (images is None or not images.branches):
        raise InvalidInput(
            f"option 'branch' is not supported for the table {texts['table']!r}",
            hint="Rows of a log name their branch.",
        )
    return ArchiveOptions(url, texts["table"], columns, int(rows), branch)


def archive_ddl(options: Mapping[str, str]) -> str:
    """Return the columns of a read as a Spark schema string."""
    parsed = read_archive_options(options)
    schema = _changes_of(parsed).schema()
    unknown = set(parsed.columns) - set(schema.names)
    if unknown or len(set(parsed.columns)) < len(parsed.columns):
        raise InvalidInput(
            f"{parsed.table}: columns must be distinct names, got {list(parsed.columns)}",
            hint=f"Columns: {', '.join(schema.names)}.",
        )
    names = parsed.columns or tuple(schema.names)
    return ", ".join(f"`{name}` {_spark_type(schema.field(name).type)}" for name in names)


def _changes_of(options: ArchiveOptions) -> ArchiveChanges:
    images = image_log(options.table)
    if images is not None:
        return ImageChanges(options.url, images, options.branch)
    return ArchiveChanges(options.url, options.table)


def _spark_type(kind: Any) -> str:
    types = {"int64": "bigint", "double": "double", "binary": "binary", "string": "string"}
    return types[str(kind)]


def archive_stream_reader(options: Mapping[str, str], schema: StructType) -> ArchiveStreamReader:
    """Return the reader for `DataSource.streamReader`."""
    try:
        return ArchiveStreamReader(options, schema)
    except FourfoldError as error:
        raise wrap_error(error) from error


class ChangePartition(InputPartition):
    """The input partition of one file, or of some databases."""

    def __init__(self, work: ChangedFile | ImageTask) -> None:
        super().__init__(None)
        self.work = work


class ArchiveStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming reader of an archive table, of which the driver has one instance."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = read_archive_options(options)
        self._columns = tuple(schema.fieldNames())
        self._changes: ArchiveChanges | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        """Return the offset before the first point."""
        return START

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the row limit of a batch."""
        return ReadMaxRows(self._options.max_rows)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return the end of the next batch."""
        rows = getattr(limit, "max_rows", self._options.max_rows)
        everything = isinstance(limit, ReadAllAvailable)
        return self._call(lambda changes: changes.end_offset(start, None if everything else rows))

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """Return the newest point, for the progress of the query."""
        return self._call(lambda changes: changes.newest_offset())

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of the run."""
        self._call(lambda changes: changes.freeze_end())

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Plan the tasks of a batch."""

        def plan(changes: ArchiveChanges) -> Sequence[ChangedFile | ImageTask]:
            if isinstance(changes, ImageChanges):
                return changes.tasks(start, end, self._columns)
            return changes.files(start, end, self._columns)

        return [ChangePartition(work) for work in self._call(plan)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition."""
        assert isinstance(partition, ChangePartition)
        work = partition.work
        try:
            yield from read_images(work) if isinstance(work, ImageTask) else read_changes(work)
        except FourfoldError as error:
            raise wrap_error(error) from error

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the catalog, which workers do not need."""
        return self.__dict__ | {"_changes": None}

    def _call(self, function: Callable[[ArchiveChanges], T]) -> T:
        try:
            if self._changes is None:
                self._changes = _changes_of(self._options)
            return function(self._changes)
        except FourfoldError as error:
            raise wrap_error(error) from error
