"""Tables as Parquet files with disjoint key ranges.

Each file has all rows between its first key and the first key of the next file. So a change affects
few files: those whose range has a changed key are rewritten, and all others stay unchanged. Rows
are sorted by key, so readers skip what they do not need by the statistics in the files.
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
from fourfold.store.table_manifest import Key, MaterializedFile

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, DataFrameWriter

KEY: Final = ("space", "branch", "id")
RANGE: Final = "range"


def write(rows: DataFrame, folder: Path) -> None:
    """Write the rows, one file per task."""
    _writer(rows).parquet(str(folder))


def are_disjoint(files: Iterable[MaterializedFile]) -> bool:
    """Return True if the key ranges of the files do not overlap and each is in order."""
    bounds = sorted((file.first, file.last) for file in files if file.first and file.last)
    inside = all(first <= last for first, last in bounds)
    return inside and all(one[1] < other[0] for one, other in pairwise(bounds))


def describe(path: Path) -> MaterializedFile:
    """Describe a file; only its first and last key are read."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - an optional dependency

    try:
        with pq.ParquetFile(path) as file:
            rows = file.metadata.num_rows
            groups = [
                at for at in range(file.num_row_groups) if file.metadata.row_group(at).num_rows
            ]
            if not groups:
                return MaterializedFile(path.name, 0, path.stat().st_size)
            columns = list(KEY)
            begin = file.read_row_group(groups[0], columns).slice(0, 1).to_pylist()[0]
            end = file.read_row_group(groups[-1], columns)
            last = end.slice(end.num_rows - 1).to_pylist()[0]
    except (OSError, ValueError) as error:
        raise CorruptData(f"{path}: invalid Parquet file: {error}") from error
    return MaterializedFile(path.name, rows, path.stat().st_size, _key(begin), _key(last))


def range_bounds(files: Sequence[MaterializedFile]) -> list[Key]:
    """Return the first key of each range except the first, which is unbounded."""
    return [file.first for file in files[1:] if file.first is not None]


def with_range(rows: DataFrame, bounds: Sequence[Key]) -> DataFrame:
    """Add the number of the range to each row."""
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


def find_touched(changed: DataFrame, bounds: Sequence[Key]) -> set[int]:
    """Return the ranges with a changed key."""
    numbers = with_range(changed.select(*KEY), bounds).select(RANGE).distinct()
    return {row[0] for row in numbers.collect()}


def write_merged(
    old: DataFrame, changed: DataFrame, bounds: Sequence[Key], folder: Path
) -> dict[int, list[Path]]:
    """Write the old rows merged with the changed ones; return the new files of each range."""
    unchanged = old.join(changed.select(*KEY), list(KEY), "left_anti").select(*changed.columns)
    rows = with_range(unchanged.unionByName(changed), bounds)
    sorted_rows = rows.repartition(RANGE).sortWithinPartitions(RANGE, *KEY)
    _writer(sorted_rows).partitionBy(RANGE).parquet(str(folder))
    return {
        int(path.name.partition("=")[2]): _files_in(path)
        for path in sorted(folder.glob(f"{RANGE}=*"))
    }


def _writer(rows: DataFrame) -> DataFrameWriter:
    max_rows = limits.MATERIALIZED_FILE_ROWS
    return rows.write.option("compression", "zstd").option("maxRecordsPerFile", max_rows)


def _files_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.parquet"))


def _key(row: dict[str, Any]) -> Key:
    return tuple(row[name] for name in KEY)
