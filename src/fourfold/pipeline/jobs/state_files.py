"""States that become Parquet where they are folded: the workers write the files themselves.

What is folded need not go through Java and be taken apart again, so a task hands on a row for each
file that it has written, and nothing else. A file gets a name that no other attempt at the same
task has: what a failed one left is never taken for a result.

Rows lie in a file as the fold gives them, which is the order of their keys, in row groups whose
statistics let a reader skip what it does not need.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from fourfold import limits
from fourfold.errors import FourfoldError, StorageError
from fourfold.pipeline.jobs import key_ranges
from fourfold.pipeline.jobs.table_folder import File, Key
from fourfold.pipeline.options import read_options
from fourfold.pipeline.scan import read_batches
from fourfold.pipeline.source import FourfoldReader, Task
from fourfold.pipeline.spark import wrap_error
from fourfold.pipeline.tables import arrow, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

NAME: Final = "fourfold_state_files"
_OWN: Final = ("into", "file_rows")
_SCHEMA: Final = (
    "name string, rows bigint, bytes bigint, first array<string>, last array<string>, task bigint"
)


def write(
    spark: SparkSession, options: dict[str, str], folder: Path, target: Path, label: str
) -> list[File]:
    """The rows of a folded table as files in `target` that divide the keys, in their order.

    `options` are those of a read. `folder` is a place for files that are not finished.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    target.mkdir(mode=0o700, exist_ok=True)
    spark.dataSource.register(StateFiles)
    source = spark.read.format(NAME).options(**options).option("into", str(folder))
    source = source.option("file_rows", limits.PUBLISHED_FILE_ROWS)
    told = sorted(source.load().collect(), key=lambda row: (row["task"], row["name"]))
    written = [
        File(row["name"], row["rows"], row["bytes"], _key(row["first"]), _key(row["last"]))
        for row in told
    ]
    kept = [file for file in written if file.rows] or written[:1]
    if not key_ranges.divides(kept):
        rows = spark.read.parquet(*(str(folder / file.name) for file in kept))
        again = folder / "sorted"
        key_ranges.write(rows.orderBy(*key_ranges.KEY), again)
        kept = [key_ranges.describe(path) for path in sorted(again.glob("*.parquet"))]
        kept = [file for file in kept if file.rows]
        folder_of_kept = again
    else:
        folder_of_kept = folder
    placed = []
    for number, file in enumerate(sorted(kept, key=lambda each: each.first or ())):
        name = f"{label[-24:]}-{number:05}.parquet"
        (folder_of_kept / file.name).rename(target / name)
        placed.append(File(name, file.rows, file.bytes, file.first, file.last))
    shutil.rmtree(folder)
    return placed


class StateFiles(DataSource):
    """A source whose rows tell of the files that reading it has written."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return _SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        del schema
        from fourfold.pipeline import cut  # noqa: PLC0415 - workers do without the kernel

        given = {name: value for name, value in self.options.items() if name not in _OWN}
        try:
            options = read_options(given)
            names = tuple(column.name for column in options.table.chosen(options.columns))
            planned = FourfoldReader(options, names, cut.read_cut(options))
        except FourfoldError as error:
            raise wrap_error(error) from error
        return StateFilesReader(planned, self.options["into"], int(self.options["file_rows"]))


class NumberedFile(InputPartition):
    """What one task writes."""

    def __init__(self, number: int, task: Task) -> None:
        super().__init__(number)
        self.task = task


class StateFilesReader(DataSourceReader):
    """Plans as any read does; `read` runs in the workers."""

    def __init__(self, planned: FourfoldReader, into: str, file_rows: int) -> None:
        self._planned = planned
        self._into = into
        self._file_rows = file_rows

    def partitions(self) -> Sequence[InputPartition]:
        tasks = self._planned.partitions()
        return [NumberedFile(at, each) for at, each in enumerate(tasks) if isinstance(each, Task)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, NumberedFile)
        work = partition.task.work
        label = f"{partition.value:06}-{os.getpid()}-{uuid.uuid4().hex[:12]}"
        schema = arrow_schema(work.output or work.columns)
        told = [
            {**each, "task": partition.value}
            for each in self._written(read_batches(work), schema, label)
        ]
        pa = arrow()
        texts = pa.list_(pa.string())
        yield pa.RecordBatch.from_pylist(
            told,
            schema=pa.schema(
                [
                    ("name", pa.string()),
                    ("rows", pa.int64()),
                    ("bytes", pa.int64()),
                    ("first", texts),
                    ("last", texts),
                    ("task", pa.int64()),
                ]
            ),
        )

    def _written(
        self, rows: Iterator[pa.RecordBatch], schema: pa.Schema, label: str
    ) -> Iterator[dict[str, Any]]:
        """Write the rows to one file, or to more of them; say of each what it holds."""
        folder = Path(self._into)
        file = _GrowingFile(folder / f"{label}-0000.parquet", schema)
        number = 0
        try:
            for batch in rows:
                rest = batch
                while rest.num_rows:
                    if file.rows >= self._file_rows:
                        yield file.finished()
                        number += 1
                        file = _GrowingFile(folder / f"{label}-{number:04}.parquet", schema)
                    fitting = rest.slice(0, self._file_rows - file.rows)
                    file.add(fitting)
                    rest = rest.slice(fitting.num_rows)
            yield file.finished()
        except OSError as error:
            raise wrap_error(StorageError(f"{folder}: cannot be written: {error}")) from error

    def __getstate__(self) -> dict[str, Any]:
        """What a worker gets: its task says all that it needs."""
        return self.__dict__ | {"_planned": None}


class _GrowingFile:
    """A Parquet file that is being written, row group after row group."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq  # noqa: PLC0415 - an optional dependency

        self._path = path
        self._schema = schema
        order = [pq.SortingColumn(schema.get_field_index(name)) for name in key_ranges.KEY]
        self._writer = pq.ParquetWriter(
            path, schema, compression="zstd", sorting_columns=order, write_page_index=True
        )
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0
        self.rows = 0
        self._first: list[str] | None = None
        self._last: list[str] | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        if self._first is None:
            self._first = _key_at(batch, 0)
        self._last = _key_at(batch, batch.num_rows - 1)
        self._waiting.append(batch)
        self.rows += batch.num_rows
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += batch.nbytes
        if (
            self._waiting_rows >= limits.PUBLISHED_GROUP_ROWS
            or self._waiting_bytes >= limits.PUBLISHED_GROUP_BYTES
        ):
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            table = arrow().Table.from_batches(self._waiting, schema=self._schema)
            self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        self._waiting = []
        self._waiting_rows = self._waiting_bytes = 0

    def finished(self) -> dict[str, Any]:
        self._flush()
        self._writer.close()
        return {
            "name": self._path.name,
            "rows": self.rows,
            "bytes": self._path.stat().st_size,
            "first": self._first,
            "last": self._last,
        }


def _key_at(batch: pa.RecordBatch, row: int) -> list[str]:
    return [batch.column(name)[row].as_py() for name in key_ranges.KEY]


def _key(found: list[str] | None) -> Key | None:
    return None if found is None else tuple(found)
