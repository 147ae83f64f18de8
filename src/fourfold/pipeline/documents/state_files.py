"""Fold states and write them as Parquet in Spark's workers.

The folded rows never pass through Java: a task returns one row for each file that it wrote. File
names are unique per attempt, so the files of a failed attempt are never used.

Rows are in fold order, which is key order, in row groups whose statistics let readers skip what
they do not need.
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
from fourfold.pipeline.documents import key_ranges
from fourfold.pipeline.options import read_options
from fourfold.pipeline.scan import ScanTask, read_batches
from fourfold.pipeline.spark import wrap_error
from fourfold.query.tables import arrow, arrow_schema
from fourfold.store.table_manifest import Key, MaterializedFile

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

MATERIALIZED_GROUP_ROWS: Final = 100_000
MATERIALIZED_GROUP_BYTES: Final = 64 * limits.MIB
"""Size of a row group, which a worker holds in memory."""

NAME: Final = "fourfold_state_files"
_OWN: Final = ("into", "file_rows")
_SCHEMA: Final = (
    "name string, rows bigint, bytes bigint, first array<string>, last array<string>, task bigint"
)


def write(
    spark: SparkSession, options: dict[str, str], folder: Path, target: Path, label: str
) -> list[MaterializedFile]:
    """Write the rows of a folded table as files in `target` with disjoint key ranges, in order.

    `options` are those of a read. `folder` is for unfinished files.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    target.mkdir(mode=0o700, exist_ok=True)
    spark.dataSource.register(StateFiles)
    source = spark.read.format(NAME).options(**options).option("into", str(folder))
    source = source.option("file_rows", limits.MATERIALIZED_FILE_ROWS)
    descriptions = sorted(source.load().collect(), key=lambda row: (row["task"], row["name"]))
    written = [
        MaterializedFile(
            row["name"], row["rows"], row["bytes"], _key(row["first"]), _key(row["last"])
        )
        for row in descriptions
    ]
    files = [file for file in written if file.rows] or written[:1]
    if not key_ranges.are_disjoint(files):
        rows = spark.read.parquet(*(str(folder / file.name) for file in files))
        sorted_folder = folder / "sorted"
        key_ranges.write(rows.orderBy(*key_ranges.KEY), sorted_folder)
        files = [key_ranges.describe(path) for path in sorted(sorted_folder.glob("*.parquet"))]
        files = [file for file in files if file.rows]
        source_folder = sorted_folder
    else:
        source_folder = folder
    placed = []
    for number, file in enumerate(sorted(files, key=lambda file: file.first or ())):
        name = f"{label[-24:]}-{number:05}.parquet"
        (source_folder / file.name).rename(target / name)
        placed.append(MaterializedFile(name, file.rows, file.bytes, file.first, file.last))
    shutil.rmtree(folder)
    return placed


class StateFiles(DataSource):
    """A source whose rows describe the files that reading it has written."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return NAME

    def schema(self) -> str:
        """Return the columns of a file description."""
        return _SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader, which plans like a read of the table."""
        del schema
        from fourfold.pipeline import cut, plan  # noqa: PLC0415 - workers do not need the kernel

        texts = {name: value for name, value in self.options.items() if name not in _OWN}
        try:
            options = read_options(texts)
            columns = options.table.select_columns(options.columns)
            tasks = plan.plan(cut.read_cut(options).bounds, options, columns)
        except FourfoldError as error:
            raise wrap_error(error) from error
        # Of no rows, a file is written as well.
        tasks = tasks or [ScanTask((), columns, (), "", "", 1)]
        return StateFilesReader(tasks, self.options["into"], int(self.options["file_rows"]))


class NumberedFile(InputPartition):
    """The input partition of one task, with its number."""

    def __init__(self, number: int, task: ScanTask) -> None:
        super().__init__(number)
        self.task = task


class StateFilesReader(DataSourceReader):
    """Plans like a batch read; `read` runs in the workers."""

    def __init__(self, tasks: Sequence[ScanTask], into: str, file_rows: int) -> None:
        self._tasks = tasks
        self._into = into
        self._file_rows = file_rows

    def partitions(self) -> Sequence[InputPartition]:
        """Number the tasks of the read."""
        return [NumberedFile(at, task) for at, task in enumerate(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Write the rows of one task; yield a description of each file."""
        assert isinstance(partition, NumberedFile)
        task = partition.task
        label = f"{partition.value:06}-{os.getpid()}-{uuid.uuid4().hex[:12]}"
        schema = arrow_schema(task.output or task.columns)
        descriptions = [
            {**description, "task": partition.value}
            for description in self._written(read_batches(task), schema, label)
        ]
        pa = arrow()
        texts = pa.list_(pa.string())
        yield pa.RecordBatch.from_pylist(
            descriptions,
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
        """Write the rows to one or more files; yield a description of each."""
        folder = Path(self._into)
        file = _GrowingFile(folder / f"{label}-0000.parquet", schema)
        number = 0
        try:
            for batch in rows:
                remaining = batch
                while remaining.num_rows:
                    if file.rows >= self._file_rows:
                        yield file.finish()
                        number += 1
                        file = _GrowingFile(folder / f"{label}-{number:04}.parquet", schema)
                    fitting = remaining.slice(0, self._file_rows - file.rows)
                    file.add(fitting)
                    remaining = remaining.slice(fitting.num_rows)
            yield file.finish()
        except OSError as error:
            raise wrap_error(StorageError(f"{folder}: cannot write: {error}")) from error

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the plan, which workers do not need."""
        return self.__dict__ | {"_tasks": ()}


class _GrowingFile:
    """A Parquet file that is written one row group at a time."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq  # noqa: PLC0415 - an optional dependency

        self._path = path
        self._schema = schema
        order = [pq.SortingColumn(schema.get_field_index(name)) for name in key_ranges.KEY]
        self._writer = pq.ParquetWriter(
            path, schema, compression="zstd", sorting_columns=order, write_page_index=True
        )
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = self._pending_bytes = 0
        self.rows = 0
        self._first: list[str] | None = None
        self._last: list[str] | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        if self._first is None:
            self._first = _key_at(batch, 0)
        self._last = _key_at(batch, batch.num_rows - 1)
        self._pending.append(batch)
        self.rows += batch.num_rows
        self._pending_rows += batch.num_rows
        self._pending_bytes += batch.nbytes
        if (
            self._pending_rows >= MATERIALIZED_GROUP_ROWS
            or self._pending_bytes >= MATERIALIZED_GROUP_BYTES
        ):
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            table = arrow().Table.from_batches(self._pending, schema=self._schema)
            self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        self._pending = []
        self._pending_rows = self._pending_bytes = 0

    def finish(self) -> dict[str, Any]:
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


def _key(values: list[str] | None) -> Key | None:
    return None if values is None else tuple(values)
