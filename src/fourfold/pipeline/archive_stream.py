"""The streaming source over an archive: `readStream.format("fourfold").option("archive", URL)`.

It needs no store: the workers read the files of the archive. The offset is a point of the archive,
whatever the number of databases. A batch has as many points as have about `max_rows` rows, and at
least one.

Several archives are read together: the option is a list of URLs, the offset has the point of each,
and each has an equal share of a batch. An archive that is added later is read from its first point.
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

    urls: tuple[str, ...]
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
    listed = [url for url in map(str.strip, texts[ARCHIVE].split(",")) if url]
    urls = tuple(url if ":" in url else str(Path(url).absolute()) for url in listed)
    if not urls or len(set(urls)) < len(urls):
        raise InvalidInput(f"option 'archive' must be distinct URLs, got {texts[ARCHIVE]!r}")
    branch = texts.get("branch", "")
    images = image_log(texts["table"])
    if branch and (images is None or not images.branches):
        raise InvalidInput(
            f"option 'branch' is not supported for the table {texts['table']!r}",
            hint="Rows of a log name their branch.",
        )
    return ArchiveOptions(urls, texts["table"], columns, int(rows), branch)


def archive_ddl(options: Mapping[str, str]) -> str:
    """Return the columns of a read as a Spark schema string."""
    parsed = read_archive_options(options)
    schemas = [changes.schema() for changes in _changes_of(parsed).values()]
    schema = schemas[0]
    for url, other in zip(parsed.urls, schemas, strict=True):
        # All columns are those of the first archive.
        lacking = (set(parsed.columns or schema.names) & set(schema.names)) - set(other.names)
        if lacking:
            raise InvalidInput(
                f"{url}: {parsed.table} lacks columns of {parsed.urls[0]}: {sorted(lacking)}",
                hint="Select columns that all archives have.",
            )
    unknown = set(parsed.columns) - set(schema.names)
    if unknown or len(set(parsed.columns)) < len(parsed.columns):
        raise InvalidInput(
            f"{parsed.table}: columns must be distinct names, got {list(parsed.columns)}",
            hint=f"Columns: {', '.join(schema.names)}.",
        )
    names = parsed.columns or tuple(schema.names)
    return ", ".join(f"`{name}` {_spark_type(schema.field(name).type)}" for name in names)


def _changes_of(options: ArchiveOptions) -> dict[str, ArchiveChanges]:
    """Return the changes of each archive, by its URL."""
    images = image_log(options.table)
    if images is not None:
        return {url: ImageChanges(url, images, options.branch) for url in options.urls}
    return {url: ArchiveChanges(url, options.table) for url in options.urls}


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
        self._changes: dict[str, ArchiveChanges] | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        """Return the offset before the first point."""
        return START if len(self._options.urls) == 1 else {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the row limit of a batch."""
        return ReadMaxRows(self._options.max_rows)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return the end of the next batch."""
        rows = getattr(limit, "max_rows", self._options.max_rows)
        share = max(1, rows // len(self._options.urls))
        most = None if isinstance(limit, ReadAllAvailable) else share
        return self._of_all(lambda url, changes: changes.end_offset(self._point(start, url), most))

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """Return the newest point, for the progress of the query."""
        return self._of_all(lambda _url, changes: changes.newest_offset())

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of the run."""
        self._call(lambda _url, changes: changes.freeze_end())

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Plan the tasks of a batch."""

        def plan(url: str, changes: ArchiveChanges) -> Sequence[ChangedFile | ImageTask]:
            points = self._point(start, url), self._point(end, url)
            if isinstance(changes, ImageChanges):
                return changes.tasks(*points, self._columns)
            return changes.files(*points, self._columns)

        return [ChangePartition(work) for works in self._call(plan).values() for work in works]

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

    def _point(self, offset: Offset, url: str) -> Offset:
        """Return the point of one archive in an offset."""
        return offset if len(self._options.urls) == 1 else offset.get(url, START)

    def _of_all(self, function: Callable[[str, ArchiveChanges], Offset]) -> Offset:
        """Return the points of all archives as one offset."""
        points = self._call(function)
        return points if len(points) > 1 else next(iter(points.values()))

    def _call(self, function: Callable[[str, ArchiveChanges], T]) -> dict[str, T]:
        """Return the results of a function for each archive, by its URL."""
        try:
            if self._changes is None:
                self._changes = _changes_of(self._options)
            return {url: function(url, changes) for url, changes in self._changes.items()}
        except FourfoldError as error:
            raise wrap_error(error) from error
