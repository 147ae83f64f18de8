"""The streaming source: `spark.readStream.format("fourfold")`.

The offset of a stream has the seq up to which each file was read: `{"did:web:a": 12, ...}`. Seqs
are dense and the log is append-only, so a range of seqs always has the same rows, and a repeated
batch reads the same rows.

A batch has about `max_rows` rows: each file with new rows gets a share, and a commit is never
split. A space that is created while the stream runs is read from its first commit. With the trigger
AvailableNow the end is fixed when the run begins.

Before an offset is returned, the WALs of its files are synced. Otherwise a commit that a power
failure can undo might already have left the machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from fourfold.errors import FourfoldError, InvalidInput
from fourfold.pipeline.options import ReadOptions, read_options, refuse_options
from fourfold.pipeline.scan import read_batches
from fourfold.pipeline.source import ScanPartition, column_names
from fourfold.pipeline.spark import wrap_error

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from fourfold.pipeline.stream_source import FileFollower, Offset

_OF_A_BATCH: Final = ("at", "cut", "branch", "where")


def stream_reader(options: Mapping[str, str], schema: StructType) -> FourfoldStreamReader:
    """Return the reader for `DataSource.streamReader`."""
    try:
        read = read_options(options)
        refuse_options(options, _OF_A_BATCH)
        if not read.table.count_query:
            names = ", ".join(
                table.name for table in read.tables.tables.values() if table.count_query
            )
            raise InvalidInput(
                f"table {read.table_name!r} cannot be streamed: its rows change",
                hint=f"Tables that can be streamed: {names}.",
            )
        return FourfoldStreamReader(read, column_names(read, schema))
    except FourfoldError as error:
        raise wrap_error(error) from error


class FourfoldStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming reader. One instance exists on the driver while the query runs."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._files: FileFollower | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        """Return the offset where the stream begins."""
        try:
            return self._follower().start_offset()
        except FourfoldError as error:
            raise wrap_error(error) from error

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the row limit of a batch."""
        return ReadMaxRows(self._options.max_rows)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return the end of the next batch."""
        rows = getattr(limit, "max_rows", self._options.max_rows)
        everything = isinstance(limit, ReadAllAvailable)
        try:
            return self._follower().end_offset(start, None if everything else rows)
        except FourfoldError as error:
            raise wrap_error(error) from error

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """Return the end of the logs, for the progress of the query."""
        try:
            return self._follower().newest_offset()
        except FourfoldError as error:
            raise wrap_error(error) from error

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of the run."""
        try:
            self._follower().freeze_end()
        except FourfoldError as error:
            raise wrap_error(error) from error

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Plan the tasks of a batch."""
        try:
            columns = self._options.table.select_columns(self._columns)
            return [
                ScanPartition(task) for task in self._follower().plan_tasks(start, end, columns)
            ]
        except FourfoldError as error:
            raise wrap_error(error) from error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        assert isinstance(partition, ScanPartition)
        return read_batches(partition.work)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the file bounds, which workers do not need."""
        return self.__dict__ | {"_files": None}

    def _follower(self) -> FileFollower:
        if self._files is None:
            from fourfold.pipeline.stream_source import FileFollower  # noqa: PLC0415

            self._files = FileFollower(self._options)
        return self._files
