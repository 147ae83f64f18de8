"""Child processes that export rows of live files as Parquet.

adbc reads SQLite into Arrow fastest, but ships its own SQLite, and two copies of SQLite in one
process break each other's locks. So rows are exported in children of the process that plans a read:
it may have the same files open for writing. A child runs one export at a time, lives as long as its
parent, and ends when its standard input does.
"""

from __future__ import annotations

import atexit
import os
import pickle
import queue
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from typing import IO, TYPE_CHECKING, Any, Final

from fourfold import limits
from fourfold.errors import FourfoldError, StorageError
from fourfold.pipeline.scan import ScanTask, read_batches
from fourfold.pipeline.spark import unwrap_error
from fourfold.query.tables import arrow, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

EXPORT_GROUP_ROWS: Final = 1_000_000
EXPORT_GROUP_BYTES: Final = 64 * limits.MIB
"""Size of a row group, which a child holds in memory; Spark reads row groups in parallel."""
EXPORT_FOLD_BYTES: Final = 256 * limits.MIB
"""Size of a row group of the input of a fold, which is one for each file if possible."""
_CHILD: Final = "from fourfold.pipeline.exporter import serve; serve()"
ROW: Final = "row"
"""Column of the input of a fold: the place of a row in its file."""


@dataclass(frozen=True, slots=True)
class TableExport:
    """Rows to be written to a file; `numbered` adds the column `row`."""

    task: ScanTask
    path: str
    numbered: bool = False


def run_exports(exports: Sequence[TableExport]) -> None:
    """Write all files, as many at a time as there are processors."""
    if len(exports) == 1:
        _run(exports[0])
    elif exports:
        with ThreadPoolExecutor(min(len(exports), os.cpu_count() or 1)) as pool:
            list(pool.map(_run, exports))


def write_export(export: TableExport) -> None:
    """Write the rows of a task to a Parquet file."""
    task = export.task
    write_parquet(
        export.path,
        arrow_schema(task.columns if task.fold is None else task.output),
        read_batches(task),
        numbered=export.numbered,
    )


def write_parquet(
    path: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch], *, numbered: bool = False
) -> None:
    """Write batches in row groups of limited size; `numbered` adds the column `row`."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - an optional dependency

    if numbered:
        schema = schema.append(arrow().field(ROW, arrow().int64()))
        batches = _with_rows(batches, schema)
    max_bytes = EXPORT_FOLD_BYTES if numbered else EXPORT_GROUP_BYTES
    max_rows = None if numbered else EXPORT_GROUP_ROWS
    with pq.ParquetWriter(path, schema, compression="snappy", write_page_index=True) as writer:
        for group in _groups(batches, max_bytes, max_rows):
            table = arrow().Table.from_batches(group, schema=schema)
            writer.write_table(table, row_group_size=max(table.num_rows, 1))


def _with_rows(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    pa = arrow()
    first = 0
    for batch in batches:
        places = pa.array(range(first, first + batch.num_rows), pa.int64())
        first += batch.num_rows
        yield pa.RecordBatch.from_arrays([*batch.columns, places], schema=schema)


def _groups(
    batches: Iterable[pa.RecordBatch], max_bytes: int, max_rows: int | None
) -> Iterator[list[pa.RecordBatch]]:
    """Yield the batches of each row group."""
    group: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        group.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if size >= max_bytes or (max_rows is not None and rows >= max_rows):
            yield group
            group, rows, size = [], 0, 0
    if group:
        yield group


class _ChildProcess:
    """A running child process."""

    def __init__(self) -> None:
        path = os.pathsep.join(filter(None, sys.path))
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CHILD],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def run(self, export: TableExport) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            pickle.dump(export, self._process.stdin)
            self._process.stdin.flush()
            problem = pickle.load(self._process.stdout)  # noqa: S301 - written by our own child
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            self.close()
            raise StorageError(
                f"the export process ended with status {self._process.returncode}",
                hint="Check for low memory and a full disk.",
            ) from error
        if problem is not None:
            raise unwrap_error(RuntimeError(problem))

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self._process.wait()


_idle: queue.SimpleQueue[_ChildProcess] = queue.SimpleQueue()


def _run(export: TableExport) -> None:
    child = _take_child()
    try:
        child.run(export)
    finally:
        if not child.ended:
            _idle.put(child)


def _take_child() -> _ChildProcess:
    """Return an idle child that is alive, or a new one."""
    with suppress(queue.Empty):
        while True:
            child = _idle.get_nowait()
            if not child.ended:
                return child
            child.close()
    return _ChildProcess()


def _close_children() -> None:
    with suppress(queue.Empty):
        while True:
            _idle.get_nowait().close()


def _drop_children() -> None:
    """Leave the children to the process that started them."""
    global _idle  # noqa: PLW0603 - a fork must not share its pipes
    _idle = queue.SimpleQueue()


atexit.register(_close_children)
os.register_at_fork(after_in_child=_drop_children)


def main(requests: IO[bytes], replies: IO[bytes]) -> None:
    """Run exports until there are no more requests."""
    while True:
        try:
            export = pickle.load(requests)  # noqa: S301 - written by our own parent
        except EOFError:
            return
        pickle.dump(_problem(export), replies)
        replies.flush()


def _problem(export: TableExport) -> str | None:
    """Run an export; return the error as text, or None."""
    try:
        write_export(export)
    except FourfoldError as error:
        return f"{type(error).__module__}.{type(error).__name__}: {error.message}"
    except (OSError, arrow().ArrowException) as error:
        return f"fourfold.errors.StorageError: {export.path}: cannot write: {error}"
    return None


class _WithoutPandas(MetaPathFinder):
    """Hide pandas from pyarrow, which imports it for the first array of Python objects.

    The import takes longer than most exports.
    """

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname, name=fullname)


def serve() -> None:
    """Serve the parent of this process."""
    # Nothing else may write to the replies.
    replies: Any = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.meta_path.insert(0, _WithoutPandas())
    main(sys.stdin.buffer, replies)
