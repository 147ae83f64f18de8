"""Reading in Spark's workers: SQLite to Arrow, file after file.

This is the one place that uses adbc, which carries a SQLite of its own: it runs in Spark's worker
processes, which open no file through the kernel at the same time. A task has one file open at a
time, however many it reads, and every file is opened read-only. A file that stands still (a folder
that nobody can write, no log beside it) is opened as such, because SQLite could not put its shared
memory there; any other never is.

adbc takes the type of a column from the first rows, and calls one that is empty there a number. So
the first row of every result is one that was put there to fix the types; it is dropped here.

Every result is one statement, so it is one state of its file, however long it is read.

What Spark's Python workers keep out of the search for garbage.

Spark collects garbage after every task and after every step of planning. In a process that has
loaded as much as a worker this takes tens of milliseconds, and finds nothing: modules, classes and
functions stay. `settle` takes them out of the search, so that a collection looks at what the last
task left, and at nothing else.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
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
    StorageError,
)
from fourfold.pipeline.cut import is_closed, stands_still
from fourfold.pipeline.spark import carried
from fourfold.pipeline.tables import Column, arrow, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa


_SETTLINGS: Final = 2
"""The first work of a process loads more (adbc, folds), so there is a second time."""
_settled = 0


def settle() -> None:
    """Called where a piece of work begins, which is right after a collection of Spark's: whatever
    is there now is in use. Elsewhere than in a worker it does nothing, since a cycle that is taken
    out of the search is never freed.
    """
    global _settled  # noqa: PLW0603 - the state of the process, as the garbage collector is
    if _settled < _SETTLINGS and _in_worker():
        _settled += 1
        gc.freeze()


def _in_worker() -> bool:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")


_BATCH_ROWS = "adbc.sqlite.query.batch_rows"


@dataclass(frozen=True, slots=True)
class Guard:
    """A question that a file is asked when its rows were read: do they still say all they must?

    A collection that gives up a part of the past says so before it takes a row. So if the answer is
    yes afterwards, nothing was missing.
    """

    sql: str
    parameters: tuple[Any, ...]
    refusal: str


@dataclass(frozen=True, slots=True)
class Piece:
    """A query on one file. `constants` are columns that have one value in all of its rows; what is
    folded of the rows must lie beyond the seq `since`.
    """

    path: str
    sql: str
    parameters: tuple[Any, ...]
    constants: tuple[tuple[str, Any], ...]
    since: int = 0
    guard: Guard | None = None
    told: Any = None
    """What a fold has to know of the file besides its rows."""
    begins: bool = True
    """Whether the file is not attached yet."""
    ends: bool = True


@dataclass(frozen=True, slots=True)
class ScanTask:
    """What one task reads: pieces, one after the other, all with the same columns.

    `fold` names what is made of the rows of each piece (`module:function`), and `kept` the columns
    that are left then.
    """

    pieces: tuple[Piece, ...]
    columns: tuple[Column, ...]
    setup: tuple[str, ...]
    attach: str
    detach: str
    batch_rows: int
    fold: str = ""
    kept: tuple[Column, ...] = ()


def batches(work: ScanTask) -> Iterator[pa.RecordBatch]:
    """The rows of a task, in batches of a good size."""
    try:
        with _few_collections():
            yield from _joined(_all(work), work.batch_rows)
    except FourfoldError as error:
        raise carried(error) from error


@contextmanager
def _few_collections() -> Iterator[None]:
    """Rows make no cycles, so no garbage is searched for while they are read and folded."""
    settle()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _all(work: ScanTask) -> Iterator[pa.RecordBatch]:
    """One connection, to which the files are attached one after the other."""
    if not work.pieces:
        return
    rows = _folded if work.fold else _piece
    with (
        _driver().connect(":memory:", autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        for statement in work.setup:
            cursor.execute(statement)
            cursor.fetchall()
        cursor.adbc_statement.set_options(**{_BATCH_ROWS: str(work.batch_rows)})
        for piece in _sharing(work.pieces):
            yield from rows(piece, work, cursor)


def _sharing(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """The pieces, those of one file on one attachment: to attach a file reads its whole schema,
    which is long where there are many apps.
    """
    paths = [None, *(piece.path for piece in pieces), None]
    for piece, before, after in zip(pieces, paths, paths[2:], strict=False):
        yield replace(piece, begins=before != piece.path, ends=after != piece.path)


def _folded(piece: Piece, work: ScanTask, cursor: Any) -> Iterator[pa.RecordBatch]:
    """What a fold makes of the rows of one file, which it gets on their own: the same space may
    lie in two stores.
    """
    schema = arrow_schema(work.kept)
    constants = _Constants(piece.constants)
    module, _, name = work.fold.partition(":")
    fold = getattr(import_module(module), name)
    told = () if piece.told is None else (piece.told,)
    for batch in fold(_piece(piece, work, cursor), *told):
        rows = _beyond(batch, piece.since) if piece.since else batch
        if rows.num_rows:
            yield _shaped(rows, schema, constants)


def _beyond(batch: pa.RecordBatch, since: int) -> pa.RecordBatch:
    import pyarrow.compute as pc  # noqa: PLC0415 - an optional dependency

    return batch.filter(pc.greater(batch.column("seq"), since))


def _piece(piece: Piece, work: ScanTask, cursor: Any) -> Iterator[pa.RecordBatch]:
    """The rows of one file, with the columns and the types that were asked for."""
    schema = arrow_schema(work.columns)
    constants = _Constants(piece.constants)
    try:
        if piece.begins:
            cursor.execute(work.attach, (_address(piece.path),))
        cursor.execute(piece.sql, piece.parameters)
        skipped = 1
        for batch in cursor.fetch_record_batch():
            rows = batch.slice(skipped) if skipped else batch
            skipped = 0
            if rows.num_rows:
                yield _shaped(rows, schema, constants)
        if piece.guard is not None:
            _ask(piece.guard, piece.path, cursor)
        if piece.ends:
            cursor.execute(work.detach)
    except (_driver().Error, OSError, arrow().ArrowException) as error:
        raise _named(error, piece.path) from error


def _ask(guard: Guard, path: str, cursor: Any) -> None:
    cursor.execute(guard.sql, guard.parameters)
    [(whole,)] = cursor.fetchall()
    if not whole:
        raise HistoryTruncated(f"{path}: {guard.refusal}")


class _Constants:
    """Columns with one value in all rows of a piece. Most batches have as many rows as the one
    before, so each such column is made once.
    """

    def __init__(self, values: Iterable[tuple[str, Any]]) -> None:
        self._values = dict(values)
        self._made: dict[str, pa.Array] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def column(self, field: pa.Field, rows: int) -> pa.Array:
        made = self._made.get(field.name)
        if made is None or len(made) < rows:
            pa = arrow()
            made = pa.repeat(pa.scalar(self._values[field.name], field.type), rows)
            self._made[field.name] = made
        return made if len(made) == rows else made.slice(0, rows)


def _shaped(rows: pa.RecordBatch, schema: pa.Schema, constants: _Constants) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415 - an optional dependency

    arrays = []
    for field in schema:
        if field.name in constants:
            arrays.append(constants.column(field, rows.num_rows))
        else:
            array = rows.column(field.name)
            if array.type != field.type:
                # Bytes in the place of a text are passed on as they are, like any other text.
                array = array.cast(field.type, safe=not pa.types.is_binary(array.type))
            arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _joined(small: Iterable[pa.RecordBatch], rows_wanted: int) -> Iterator[pa.RecordBatch]:
    """Small batches put together: each one that leaves costs a round through Spark."""
    import pyarrow as pa  # noqa: PLC0415 - an optional dependency

    ready: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in small:
        if not ready and batch.num_rows >= rows_wanted:
            yield batch
            continue
        ready.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= rows_wanted or size >= limits.SOURCE_BATCH_BYTES:
            yield pa.concat_batches(ready) if len(ready) > 1 else ready[0]
            ready, rows, size = [], 0, 0
    if ready:
        yield pa.concat_batches(ready) if len(ready) > 1 else ready[0]


def _address(path: str) -> str:
    """The file as SQLite takes it. Live files are never called immutable."""
    try:
        still = stands_still(path)
    except FileNotFoundError as error:
        raise NotFound(f"{path}: has gone") from error
    # The connection never writes (query_only). As one that may, it removes the log and its index
    # when it is the last to close a file that had none.
    mode = "rw" if not still and is_closed(path) else "ro"
    return f"file:{quote(path)}?mode={mode}{'&immutable=1' if still else ''}"


def _driver() -> Any:
    try:
        import adbc_driver_sqlite.dbapi as driver  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise MissingDependency(
            "adbc-driver-sqlite is not installed where Spark's workers run",
            hint="Install it there: `pip install 'fourfold[spark]'`.",
        ) from error
    return driver


def _named(error: Exception, path: str) -> FourfoldError:
    """The error as one of ours, by what SQLite says; it always names the file."""
    said = str(error).strip()
    text = f"{path}: {said}"
    if "malformed" in said or "corrupt" in said.lower() or "Type mismatch" in said:
        return CorruptData(text)
    if "locked" in said or "busy" in said:
        return LockTimeout(text)
    if "not a database" in said:
        return ForeignFile(text)
    return StorageError(text)
