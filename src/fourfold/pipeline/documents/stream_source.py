"""`spark.readStream.format("fourfold")`: the commits of every space as they come.

The offset of a stream is how far it has read each file: `{"did:web:a": 12, ...}`. Seqs are dense
and the log is only added to, so a range of seqs names the same rows for ever, and a batch that is
run again reads what it read before.

A batch has about `max_rows` rows: each file with something new gets a share, and a commit is never
divided. A space that appears while the stream runs is read from its first commit on. With the
trigger AvailableNow the end is fixed when the run begins.

Before an offset is given out, the logs of the files that it names are brought to the disk. A commit
that a power cut could take back would otherwise have left the machine already.
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
from fourfold.pipeline.options import ReadOptions, read_options
from fourfold.pipeline.scan import read_batches
from fourfold.pipeline.source import Task, column_names
from fourfold.pipeline.spark import wrap_error

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from fourfold.pipeline.stream_source import FileFollower, Offset

_OF_A_BATCH: Final = ("at", "cut", "branch", "where")


def stream_reader(options: Mapping[str, str], schema: StructType) -> FourfoldStreamReader:
    """The reader of `DataSource.streamReader`."""
    try:
        read = read_options(options)
        given = {name.lower() for name in options}
        for name in _OF_A_BATCH:
            if name in given:
                raise InvalidInput(f"the option {name} is for a batch, not for a stream")
        if not read.table.counted:
            names = ", ".join(each.name for each in read.tables.tables.values() if each.counted)
            raise InvalidInput(
                f"the table {read.table_name} cannot be streamed: its rows change",
                hint=f"These can, since rows are only added to them: {names}.",
            )
        return FourfoldStreamReader(read, column_names(read, schema))
    except FourfoldError as error:
        raise wrap_error(error) from error


class FourfoldStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream. One instance lives on the driver for as long as the query runs."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._files: FileFollower | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        try:
            return self._following().start_offset()
        except FourfoldError as error:
            raise wrap_error(error) from error

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.max_rows)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        rows = getattr(limit, "max_rows", self._options.max_rows)
        everything = isinstance(limit, ReadAllAvailable)
        try:
            return self._following().end_offset(start, None if everything else rows)
        except FourfoldError as error:
            raise wrap_error(error) from error

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """How far the logs go, for the progress of the query."""
        try:
            return self._following().newest_offset()
        except FourfoldError as error:
            raise wrap_error(error) from error

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        try:
            self._following().freeze_end()
        except FourfoldError as error:
            raise wrap_error(error) from error

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        try:
            columns = self._options.table.chosen(self._columns)
            return [Task(work) for work in self._following().works(start, end, columns)]
        except FourfoldError as error:
            raise wrap_error(error) from error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        return read_batches(partition.work)

    def __getstate__(self) -> dict[str, Any]:
        """What a worker gets: not what was seen of ten thousand files."""
        return self.__dict__ | {"_files": None}

    def _following(self) -> FileFollower:
        if self._files is None:
            from fourfold.pipeline.stream_source import FileFollower  # noqa: PLC0415

            self._files = FileFollower(self._options)
        return self._files
