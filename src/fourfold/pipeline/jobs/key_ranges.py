"""Tables kept as Parquet files that divide the keys among them: each file holds all rows between
its first key and the first key of the next.

So a change touches few files: those whose range holds a changed key are written anew, from what
they held and what changed, and all others stay as they are. Rows lie in the order of their keys, so
every reader skips what it does not need by the statistics in the files.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fourfold import limits
from fourfold.errors import CorruptData
from fourfold.pipeline.jobs.table_folder import File, Key

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, DataFrameWriter

KEY: Final = ("space", "branch", "id")
RANGE: Final = "range"


def write(rows: DataFrame, folder: Path) -> None:
    """The rows as they are divided among tasks: a file for each."""
    _writer(rows).parquet(str(folder))


def divides(files: Iterable[File]) -> bool:
    """Whether no two files hold keys of the same range, and each is in order."""
    bounds = sorted((file.first, file.last) for file in files if file.first and file.last)
    inside = all(first <= last for first, last in bounds)
    return inside and all(one[1] < other[0] for one, other in pairwise(bounds))


def describe(path: Path) -> File:
    """A file by what it holds: the first and the last key are read, and nothing between them."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - an optional dependency

    try:
        with pq.ParquetFile(path) as file:
            rows = file.metadata.num_rows
            groups = [
                at for at in range(file.num_row_groups) if file.metadata.row_group(at).num_rows
            ]
            if not groups:
                return File(path.name, 0, path.stat().st_size)
            columns = list(KEY)
            begin = file.read_row_group(groups[0], columns).slice(0, 1).to_pylist()[0]
            end = file.read_row_group(groups[-1], columns)
            last = end.slice(end.num_rows - 1).to_pylist()[0]
    except (OSError, ValueError) as error:
        raise CorruptData(f"{path}: is no sound Parquet file: {error}") from error
    return File(path.name, rows, path.stat().st_size, _key(begin), _key(last))


def bounds_of(files: Sequence[File]) -> list[Key]:
    """Where each range but the first begins; the first begins before all keys."""
    return [file.first for file in files[1:] if file.first is not None]


def with_range(rows: DataFrame, bounds: Sequence[Key]) -> DataFrame:
    """The rows with the number of the range that each belongs to."""
    from pyspark.sql.types import IntegerType, StructType  # noqa: PLC0415 - an optional dependency

    schema = StructType([*rows.schema]).add(RANGE, IntegerType())
    return rows.mapInArrow(partial(_ranged, bounds=tuple(bounds)), schema)


def _ranged(batches: Iterator[pa.RecordBatch], bounds: tuple[Key, ...]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa  # noqa: PLC0415 - an optional dependency

    for batch in batches:
        keys = zip(*(batch.column(name).to_pylist() for name in KEY), strict=True)
        numbers = pa.array([bisect_right(bounds, key) for key in keys], pa.int32())
        yield pa.RecordBatch.from_arrays(
            [*batch.columns, numbers], names=[*batch.schema.names, RANGE]
        )


def touched(changed: DataFrame, bounds: Sequence[Key]) -> set[int]:
    """The ranges that hold a changed key."""
    numbers = with_range(changed.select(*KEY), bounds).select(RANGE).distinct()
    return {row[0] for row in numbers.collect()}


def write_merged(
    old: DataFrame, changed: DataFrame, bounds: Sequence[Key], folder: Path
) -> dict[int, list[Path]]:
    """For each range the files that now hold it: the old rows, with the changed ones in the place
    of those with the same key.
    """
    kept = old.join(changed.select(*KEY), list(KEY), "left_anti").select(*changed.columns)
    rows = with_range(kept.unionByName(changed), bounds)
    ready = rows.repartition(RANGE).sortWithinPartitions(RANGE, *KEY)
    _writer(ready).partitionBy(RANGE).parquet(str(folder))
    return {
        int(path.name.partition("=")[2]): _files_in(path)
        for path in sorted(folder.glob(f"{RANGE}=*"))
    }


def _writer(rows: DataFrame) -> DataFrameWriter:
    most = limits.PUBLISHED_FILE_ROWS
    return rows.write.option("compression", "zstd").option("maxRecordsPerFile", most)


def _files_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.parquet"))


def _key(row: dict[str, Any]) -> Key:
    return tuple(row[name] for name in KEY)
