"""Scan files: SQLite to Arrow, one file after the other.

This is the only module that uses adbc, which ships its own SQLite: it runs in children of the
process that plans a read, and in Spark's workers for streaming queries, which open no file through
the kernel at the same time. A task has one file open at a time, however many it reads, and every
file is opened read-only. An immutable file (in a folder without write permission, without a WAL) is
opened as such, because SQLite could not create its shared memory there; no other file ever is.

adbc infers the type of a column from the first rows, and treats an empty column as a number. So the
first row of every result is a sample that fixes the types; it is dropped here.

Every result is one statement, so it is one state of its file, however long it is read.

Spark runs the garbage collector after every task and every planning step. In a process that has
loaded as much as a worker this takes tens of milliseconds and finds nothing: modules, classes and
functions stay. `freeze_garbage` excludes them, so that a collection only examines what the last
task left.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from fourfold import limits
from fourfold.errors import (
    CorruptData,
    ForeignFile,
    FourfoldError,
    HistoryTruncated,
    LockTimeout,
    MissingDependency,
    NotFound,
    SequenceRegression,
    StorageError,
)
from fourfold.file_state import is_closed, is_immutable
from fourfold.pipeline.spark import DAEMON, wrap_error
from fourfold.query.tables import Column, Fold, arrow, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa


_FREEZES_MAX: Final = 2
"""The first task of a process loads more modules (adbc, folds), so freeze twice."""
_freezes = 0


def freeze_garbage() -> None:
    """Exclude all current objects from garbage collection, in a worker process only.

    Called at the start of a task, right after Spark ran the collector, so every object is in use.
    Elsewhere it does nothing, because a frozen cycle is never freed.
    """
    global _freezes  # noqa: PLW0603 - process-wide, as the garbage collector is
    if _freezes < _FREEZES_MAX and _in_worker():
        _freezes += 1
        gc.freeze()


def _in_worker() -> bool:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name.startswith(("pyspark.", DAEMON))


_BATCH_ROWS = "adbc.sqlite.query.batch_rows"


@dataclass(frozen=True, slots=True)
class Guard:
    """A query that checks, after the rows were read, that none of them had been removed.

    Gc records that it removes a part of the history before it deletes a row. So if the check passes
    afterwards, no row was missing.
    """

    sql: str
    parameters: tuple[Any, ...]
    problem: str


@dataclass(frozen=True, slots=True)
class Origin:
    """The file of the cut. `sql` selects the id and the newest position of the file that is read;
    the position is null if that of a file may go back.
    """

    sql: str
    file_id: str
    position: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A query on one file. `constants` are columns with the same value in all rows; folded rows at
    or before the seq `since` are dropped.
    """

    path: str
    sql: str
    parameters: tuple[Any, ...]
    constants: tuple[tuple[str, Any], ...]
    since: int = 0
    guard: Guard | None = None
    origin: Origin | None = None
    context: Any = None
    """Second argument of the fold, if it needs more than the rows."""
    begins: bool = True
    """True if the file must be attached first."""
    ends: bool = True
    """True if the file is detached afterwards."""


@dataclass(frozen=True, slots=True)
class ScanTask:
    """The queries of one Spark task, run in order, all with the same columns.

    `fold` is the function applied to the rows of each piece, and `output` the columns of its
    result. It is pickled by its name, so a worker only imports the module of that fold.
    """

    pieces: tuple[Piece, ...]
    columns: tuple[Column, ...]
    setup: tuple[str, ...]
    attach: str
    detach: str
    batch_rows: int
    fold: Fold | None = None
    output: tuple[Column, ...] = ()


def read_batches(task: ScanTask) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task in batches of `batch_rows`."""
    try:
        with _paused_gc():
            yield from _joined(_all_pieces(task), task.batch_rows)
    except FourfoldError as error:
        raise wrap_error(error) from error


@contextmanager
def _paused_gc() -> Iterator[None]:
    """Disable garbage collection while rows are read and folded: rows create no cycles."""
    freeze_garbage()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _all_pieces(task: ScanTask) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all pieces over one connection, attaching one file at a time."""
    if not task.pieces:
        return
    rows = _piece if task.fold is None else _folded
    with (
        _driver().connect(":memory:", autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        for statement in task.setup:
            cursor.execute(statement)
            cursor.fetchall()
        cursor.adbc_statement.set_options(**{_BATCH_ROWS: str(task.batch_rows)})
        for piece in _sharing(task.pieces):
            yield from rows(piece, task, cursor)


def _sharing(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """Yield the pieces, sharing one attachment per file: attaching reads the whole schema, which is
    large if there are many apps.
    """
    paths = [None, *(piece.path for piece in pieces), None]
    for piece, before, after in zip(pieces, paths, paths[2:], strict=False):
        yield replace(piece, begins=before != piece.path, ends=after != piece.path)


def _folded(piece: Piece, task: ScanTask, cursor: Any) -> Iterator[pa.RecordBatch]:
    """Yield the folded rows of one piece. Each file is folded separately, because two stores may
    have the same space.
    """
    assert task.fold is not None
    context = () if piece.context is None else (piece.context,)
    folded = task.fold(_piece(piece, task, cursor), *context)
    yield from shape_folded(folded, task.output, piece.constants, piece.since)


def shape_folded(
    folded: Iterable[pa.RecordBatch],
    output: Sequence[Column],
    values: Iterable[tuple[str, Any]],
    since: int,
) -> Iterator[pa.RecordBatch]:
    """Yield the result of a fold with the columns of its table, without rows until `since`."""
    schema = arrow_schema(output)
    constants = _Constants(values)
    for batch in folded:
        rows = _after(batch, since) if since else batch
        if rows.num_rows:
            yield _shaped(rows, schema, constants)


def _after(batch: pa.RecordBatch, since: int) -> pa.RecordBatch:
    import pyarrow.compute as pc  # noqa: PLC0415 - an optional dependency

    return batch.filter(pc.greater(batch.column("seq"), since))


def _piece(piece: Piece, task: ScanTask, cursor: Any) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one query with the requested columns and types."""
    schema = arrow_schema(task.columns)
    constants = _Constants(piece.constants)
    try:
        if piece.begins:
            cursor.execute(task.attach, (_address(piece.path),))
            if piece.origin is not None:
                _check_origin(piece.origin, piece.path, cursor)
        cursor.execute(piece.sql, piece.parameters)
        skipped = 1
        for batch in cursor.fetch_record_batch():
            rows = batch.slice(skipped) if skipped else batch
            skipped = 0
            if rows.num_rows:
                yield _shaped(rows, schema, constants)
        if piece.guard is not None:
            _check_guard(piece.guard, piece.path, cursor)
        if piece.ends:
            cursor.execute(task.detach)
    except (_driver().Error, OSError, arrow().ArrowException) as error:
        raise _named(error, piece.path) from error


def _check_origin(origin: Origin, path: str, cursor: Any) -> None:
    """Raise if a file has replaced that of the cut: positions of another file are other rows."""
    cursor.execute(origin.sql)
    [(file_id, position)] = cursor.fetchall()
    if file_id != origin.file_id:
        raise NotFound(
            f"{path}: the file was created again after it was planned to be read",
            hint="Create the DataFrame again.",
        )
    if position is not None and position < origin.position:
        raise SequenceRegression(
            f"{path}: expected position {origin.position} or later, found {position}",
            hint="The file was replaced by an older one: create the DataFrame again.",
        )


def _check_guard(guard: Guard, path: str, cursor: Any) -> None:
    cursor.execute(guard.sql, guard.parameters)
    [(whole,)] = cursor.fetchall()
    if not whole:
        raise HistoryTruncated(f"{path}: {guard.problem}")


class _Constants:
    """Columns with one value in all rows of a piece. Arrays are reused, because most batches have
    as many rows as the previous one.
    """

    def __init__(self, values: Iterable[tuple[str, Any]]) -> None:
        self._values = dict(values)
        self._arrays: dict[str, pa.Array] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def column(self, field: pa.Field, rows: int) -> pa.Array:
        array = self._arrays.get(field.name)
        if array is None or len(array) < rows:
            pa = arrow()
            array = pa.repeat(pa.scalar(self._values[field.name], field.type), rows)
            self._arrays[field.name] = array
        return array if len(array) == rows else array.slice(0, rows)


def _shaped(rows: pa.RecordBatch, schema: pa.Schema, constants: _Constants) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415 - an optional dependency

    arrays = []
    for field in schema:
        if field.name in constants:
            arrays.append(constants.column(field, rows.num_rows))
        else:
            array = rows.column(field.name)
            if array.type != field.type:
                # Bytes stored in a text column are passed through unchanged.
                array = array.cast(field.type, safe=not pa.types.is_binary(array.type))
            arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _joined(small: Iterable[pa.RecordBatch], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Concatenate small batches: each batch costs a round trip through Spark."""
    import pyarrow as pa  # noqa: PLC0415 - an optional dependency

    pending: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in small:
        if not pending and batch.num_rows >= batch_rows:
            yield batch
            continue
        pending.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= batch_rows or size >= limits.SOURCE_BATCH_BYTES:
            yield pa.concat_batches(pending) if len(pending) > 1 else pending[0]
            pending, rows, size = [], 0, 0
    if pending:
        yield pa.concat_batches(pending) if len(pending) > 1 else pending[0]


def _address(path: str) -> str:
    """Return the URI for SQLite. Files that can change are never opened as immutable."""
    try:
        immutable = is_immutable(path)
    except FileNotFoundError as error:
        raise NotFound(f"{path}: file does not exist") from error
    # The connection never writes (query_only). Opened read-write, it removes the WAL and its index
    # when it is the last to close a file that had none.
    mode = "rw" if not immutable and is_closed(path) else "ro"
    return f"file:{quote(path)}?mode={mode}{'&immutable=1' if immutable else ''}"


def _driver() -> Any:
    try:
        with _without_polars():
            import adbc_driver_sqlite.dbapi as driver  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise MissingDependency(
            "adbc-driver-sqlite is not installed where Spark's workers run",
            hint="Install it there: `pip install 'fourfold[spark]'`.",
        ) from error
    return driver


@contextmanager
def _without_polars() -> Iterator[None]:
    """Hide polars from adbc, which imports it for results that are not requested here.

    The import takes a third of a second of CPU time in each of Spark's Python processes.
    """
    if "adbc_driver_manager" in sys.modules or "polars" in sys.modules:
        yield
        return
    sys.modules["polars"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["polars"]


def _named(error: Exception, path: str) -> FourfoldError:
    """Return a Fourfold error for an SQLite error, with the path of the file."""
    message = str(error).strip()
    text = f"{path}: {message}"
    if "malformed" in message or "corrupt" in message.lower() or "Type mismatch" in message:
        return CorruptData(text)
    if "locked" in message or "busy" in message:
        return LockTimeout(text)
    if "not a database" in message:
        return ForeignFile(text)
    return StorageError(text)
