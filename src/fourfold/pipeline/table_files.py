"""The Parquet files of a table at a cut: what Spark reads, with its own reader.

Live logs are exported: the tasks of a read (`plan`) run in child processes (`exporter`), and their
rows are stored in a cache outside the store (`export_cache`). An export is reused as long as its
SQLite files are unchanged: their ids, sizes and modification times, including those of their WALs,
are part of its key, as are the queries with the positions of the cut.

The files of a folded table contain the input of its fold, grouped by piece and in order;
`fold_rows` applies the fold in Spark's workers.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fourfold import limits, settings
from fourfold.pipeline import java
from fourfold.pipeline.export_cache import ExportCache
from fourfold.pipeline.exporter import ROW, TableExport, run_exports, write_parquet
from fourfold.pipeline.file_facts import file_state
from fourfold.pipeline.scan import Piece, ScanTask, shape_folded
from fourfold.query.tables import FILES, Column, Fold, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from fourfold.pipeline.cut import Cut
    from fourfold.pipeline.options import ReadOptions

EXPORT_TASK_BYTES: Final = 64 * limits.MIB
"""Size of the SQLite data that one exported file has, approximately."""
PIECE: Final = "piece"
"""Column of the input of a fold: the id of the piece of a row."""
_FORMAT: Final = "1"
"""Changes when the same rows would be exported in another way."""


FoldInput = tuple[tuple[tuple[str, Any], ...], int, Any]
"""Constants of a piece, the seq until which its folded rows are dropped, and its context."""


@dataclass(frozen=True, slots=True)
class FilePart:
    """A file of a table; for the input of a fold, with its pieces by id."""

    path: str
    output: tuple[Column, ...]
    fold: Fold | None = None
    inputs: Mapping[int, FoldInput] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The files of a table: `columns` are those in the files, `output` those of the table."""

    parts: tuple[FilePart, ...]
    columns: tuple[Column, ...]
    output: tuple[Column, ...]
    rows: int
    bytes: int
    whole: bool = True
    """True if no file can be split: each has at most one row group."""

    @property
    def fold(self) -> Fold | None:
        """The fold that computes the table from the rows, or None."""
        return self.parts[0].fold


def table_files(cut: Cut, options: ReadOptions) -> TableFiles:
    """Return the files of a table at a cut, exporting what is not in the cache.

    Args:
        options: The table, its columns and conditions; `at` and `since` are in the cut.
    """
    cache = open_cache(options.root)
    if options.table_name == FILES:
        return _files_table(cache, options)
    from fourfold.pipeline import plan  # noqa: PLC0415 - workers do not need the kernel

    output = options.table.select_columns(options.columns)
    part_bytes = min(options.partition_bytes, EXPORT_TASK_BYTES)
    tasks = plan.plan(cut.bounds, replace(options, partition_bytes=part_bytes), output)
    fold = options.table.fold
    if not tasks:
        read = output if fold is None else options.tables.table(options.table.reads).columns
        tasks = [ScanTask((), read, (), "", "", 1, fold)]
    if fold is not None:
        tasks = [_numbered(task) for task in tasks]
    paths = export_tasks(cache, tasks, numbered=fold is not None)
    columns = tasks[0].columns
    if fold is not None:
        columns = (*columns, Column(ROW, "bigint"))
    parts = [
        FilePart(str(path), output, fold, {} if fold is None else _inputs(task))
        for path, task in zip(paths, tasks, strict=True)
    ]
    return _described(parts, columns, output)


def _inputs(task: ScanTask) -> dict[int, FoldInput]:
    return {
        _piece_id(piece): (piece.constants, piece.since, piece.context) for piece in task.pieces
    }


def open_cache(root: str | None) -> ExportCache:
    """Return the cache that the settings of a store name."""
    chosen = settings.load(root, environ=os.environ).pipeline
    return ExportCache(java.export_folder(chosen.cache_folder), chosen.cache_bytes)


def _files_table(cache: ExportCache, options: ReadOptions) -> TableFiles:
    """Return the table `files`, whose rows are the result of opening the files."""
    from fourfold.pipeline.cut import file_rows  # noqa: PLC0415 - workers do not need the kernel

    output = options.table.select_columns(options.columns)
    schema = arrow_schema(output)
    key = uuid.uuid4().hex
    partial_path = cache.partial(key)
    write_parquet(str(partial_path), schema, file_rows(options, schema))
    path = cache.add(key, partial_path)
    return _described([FilePart(str(path), output)], output, output)


def _described(
    parts: Sequence[FilePart], columns: tuple[Column, ...], output: tuple[Column, ...]
) -> TableFiles:
    import pyarrow.parquet as pq  # noqa: PLC0415 - an optional dependency

    footers = [pq.read_metadata(part.path) for part in parts]
    return TableFiles(
        tuple(parts),
        columns,
        output,
        sum(footer.num_rows for footer in footers),
        sum(Path(part.path).stat().st_size for part in parts),
        all(footer.num_row_groups <= 1 for footer in footers),
    )


def export_tasks(
    cache: ExportCache, tasks: Sequence[ScanTask], *, numbered: bool = False
) -> list[Path]:
    """Return the exports of the tasks, in their order."""
    keys = list(_keys(tasks))
    found = {key: path for key in keys if (path := cache.find(key)) is not None}
    missing = {
        key: TableExport(task, str(cache.partial(key)), numbered)
        for key, task in zip(keys, tasks, strict=True)
        if key not in found
    }
    try:
        run_exports(list(missing.values()))
        found |= {key: cache.add(key, Path(export.path)) for key, export in missing.items()}
    finally:
        for export in missing.values():
            Path(export.path).unlink(missing_ok=True)
    return [found[key] for key in keys]


def _keys(tasks: Iterable[ScanTask]) -> Iterator[str]:
    """Yield the key of each task: what it reads, of which state of which files."""
    states: dict[str, str] = {}
    for task in tasks:
        names = [(column.name, column.type) for column in task.columns]
        facts = [_FORMAT, repr(names)]
        if task.fold is not None:
            facts.append(repr((task.fold.__qualname__, [column.name for column in task.output])))
        for piece in task.pieces:
            if piece.path not in states:
                states[piece.path] = _state(piece.path)
            facts += [states[piece.path], repr((piece.sql, piece.parameters, piece.constants))]
            facts.append(repr((piece.path, piece.guard, piece.origin)))
        yield hashlib.sha256("\n".join(facts).encode("utf-8", "surrogatepass")).hexdigest()


def _state(path: str) -> str:
    """Return a text that changes whenever a file or its WAL does."""
    return file_state(path) or uuid.uuid4().hex


def _numbered(task: ScanTask) -> ScanTask:
    """Return the task that exports the input of a fold, with the id of the piece in each row."""
    pieces = tuple(
        replace(piece, constants=(*piece.constants, (PIECE, _piece_id(piece))))
        for piece in task.pieces
    )
    columns = (*task.columns, Column(PIECE, "bigint"))
    return replace(task, pieces=pieces, columns=columns, fold=None, output=())


def _piece_id(piece: Piece) -> int:
    """Return an id that depends only on what the piece reads."""
    constants = [item for item in piece.constants if item[0] != PIECE]
    facts = repr((piece.path, piece.sql, piece.parameters, constants))
    digest = hashlib.sha256(facts.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], signed=True)


def fold_function(parts: Sequence[FilePart]) -> Any:
    """Return the function for `mapInArrow` that folds the rows of these files."""
    fold, output = parts[0].fold, parts[0].output
    assert fold is not None
    inputs = {number: piece for part in parts for number, piece in part.inputs.items()}
    return partial(fold_rows, fold=fold, output=output, inputs=inputs)


def fold_rows(
    batches: Iterable[pa.RecordBatch],
    fold: Fold,
    output: tuple[Column, ...],
    inputs: Mapping[int, FoldInput],
) -> Iterator[pa.RecordBatch]:
    """Yield the folded rows of consecutive pieces; each is folded by itself, because two stores may
    have the same space.
    """
    for number, group in groupby(_slices(batches), itemgetter(0)):
        constants, since, context = inputs[number]
        rows = (batch for _, batch in group)
        folded = fold(rows) if context is None else fold(rows, context)
        yield from shape_folded(folded, output, constants, since)


def read_part(part: FilePart) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one file, folded if the table is."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - an optional dependency

    with pq.ParquetFile(part.path) as file:
        batches = file.iter_batches(limits.SOURCE_BATCH_ROWS)
        yield from batches if part.fold is None else fold_function([part])(batches)


def _slices(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of each piece in each batch."""
    import numpy as np  # noqa: PLC0415 - comes with pyspark, an optional dependency

    for batch in batches:
        if not batch.num_rows:
            continue
        numbers = batch.column(PIECE).to_numpy()
        starts = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), len(numbers)]
        for start, end in pairwise(starts):
            yield int(numbers[start]), batch.slice(start, end - start)
