"""Consistent cuts: the highest position of each file, fixed before any row is read.

A store is written while a job reads it, and a job reads a file more than once: in several parts,
again after a failure, in two scans that a query joins. So the newest seq of every file is recorded
first, and every scan stops there. Seqs are dense and rows are only added, so the rows of a cut
never change.

Reading a cut opens each file once, several at a time, and checks it: a Fourfold database, of this
model, of a known version. Any other file raises an error that names it, or, with `skip_bad`, is
listed in `Cut.bad` and left out.

Files are discovered by name, without opening them, so finding ten thousand costs one walk through
their folders. `root` is one store, `roots` a pattern that matches many. A folder that is not a
store is an error if it was given as `root`; it is ignored if it matches a pattern, unless no store
matches at all.
"""

from __future__ import annotations

import base64
import os
import time
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from fourfold import limits, settings
from fourfold.archive.capture import record_of
from fourfold.errors import (
    CorruptData,
    ForeignFile,
    FormatError,
    FourfoldError,
    InvalidInput,
    NotFound,
)
from fourfold.file_state import is_closed, is_immutable
from fourfold.kernel import load_queries
from fourfold.kernel.driver import Connection, DriverError, connect, translate
from fourfold.kernel.files import APPLICATION_ID, DatabasePlan, check_for_reading, is_empty
from fourfold.kernel.sequences import current
from fourfold.kernel.transaction import SQL, ReadTransaction
from fourfold.pipeline import java
from fourfold.pipeline.file_facts import FileFacts, InspectedFile, PublishedPositions
from fourfold.pipeline.options import Point, ReadOptions
from fourfold.pipeline.store_files import (
    StoreFile,
    find_files,
    find_stores,
)
from fourfold.query.tables import Kind, ModelTables, arrow
from fourfold.retry import Attempts, Retries

if TYPE_CHECKING:
    import pyarrow as pa

SOURCE_CREATION_WAIT_S: Final = 2.0
"""Maximum wait for a space that is being created."""
SOURCE_OPENERS: Final = 8
"""Files that are opened in parallel to read a cut."""

_SQL: Final = load_queries("fourfold.pipeline", "cut.sql")


@dataclass(frozen=True, slots=True)
class FileBound:
    """A readable file and the seq up to which it is read."""

    root: str
    path: str
    space: str
    kind: str
    seq: int
    bytes: int
    since: int = 0
    file_id: str = ""
    """Id assigned when the file was created; a space created again has another id."""
    horizon: int = 0
    """Seq below which rows may have been removed when the cut was read."""
    version: int = -1
    """Version of the catalog that bounds a database without a file, in the archive at `root`."""
    name: str = ""
    """Name of that database in the catalog."""
    newest: int | None = None
    """Newest position, if `seq` or `since` was derived from a time."""
    until_ms: int | None = None
    since_ms: int | None = None
    """These times, in milliseconds since 1970."""


@dataclass(frozen=True, slots=True)
class UnreadableFile:
    """A file that cannot be read, and the reason."""

    root: str
    path: str
    space: str
    bytes: int
    kind: str
    problem: str


@dataclass(frozen=True, slots=True)
class Cut:
    """The bounds of every file in a read; `token()` passes them to other reads."""

    bounds: tuple[FileBound, ...]
    bad: tuple[UnreadableFile, ...] = field(default=())

    def token(self) -> str:
        """Return the cut as text for the option `cut`, so that several reads share it."""
        packed = zlib.compress(msgspec.json.encode(self), 6)
        return base64.urlsafe_b64encode(packed).decode()


def from_token(token: str) -> Cut:
    """Parse the text that `Cut.token()` returned."""
    try:
        text = zlib.decompress(base64.urlsafe_b64decode(token.encode()))
        return msgspec.json.decode(text, type=Cut)
    except (ValueError, zlib.error, msgspec.MsgspecError) as error:
        raise InvalidInput(
            "option 'cut': not a cut token", hint="Pass the result of Cut.token()."
        ) from error


def read_cut(options: ReadOptions) -> Cut:
    """Return the cut for a read with these options."""
    if options.cut is not None:
        cut = select_space(from_token(options.cut), options.space)
    elif options.urls:
        raise InvalidInput(
            "archives are read by URL only by read, views and sql of fourfold.pipeline",
            hint="Pass the folder of a store; `fourfold follow` makes a copy of one.",
        )
    else:
        store_files = find_files(
            find_stores(options.root, options.roots), options.tables, options.space
        )
        facts = None if options.skip_bad else open_facts(options)
        cut = read_files_cut(
            store_files,
            options.tables,
            deep=options.skip_bad,
            skip_bad=options.skip_bad,
            facts=facts,
        )
        if facts is not None:
            facts.save((file.path for file in store_files) if options.space is None else None)
    return apply_bounds(cut, options)


def select_space(cut: Cut, space: str | None) -> Cut:
    """Return the part of a cut that covers one space, or all of it if `space` is None."""
    if space is None:
        return cut
    return Cut(tuple(bound for bound in cut.bounds if bound.space == space), cut.bad)


def read_files_cut(
    store_files: Sequence[StoreFile],
    tables: ModelTables,
    *,
    deep: bool = False,
    skip_bad: bool = False,
    facts: FileFacts | None = None,
) -> Cut:
    """Return the current cut of these files; `deep` also checks every page of them.

    Files that are unchanged since `facts` were collected are not opened.
    """

    def inspect(file: StoreFile) -> FileBound | UnreadableFile:
        return inspect_file(file, tables, deep=deep)

    known = {file.path: _known_bound(file, facts) for file in store_files}
    new = [file for file in store_files if known[file.path] is None]
    if len(new) > 1:
        with ThreadPoolExecutor(SOURCE_OPENERS) as pool:
            inspected = list(pool.map(inspect, new))
    else:
        inspected = [inspect(file) for file in new]
    for file, result in zip(new, inspected, strict=True):
        if facts is not None and file.state is not None and isinstance(result, FileBound):
            facts.put(file.path, _facts(result, file.state))
    found = dict(zip((file.path for file in new), inspected, strict=True))
    results = [known[file.path] or found[file.path] for file in store_files]
    bounds = tuple(result for result in results if isinstance(result, FileBound))
    bad = tuple(result for result in results if isinstance(result, UnreadableFile))
    if bad and not skip_bad:
        raise unreadable_error(bad)
    return Cut(bounds, bad)


def open_facts(options: ReadOptions) -> FileFacts:
    """Return what earlier reads found out about the files of a read."""
    chosen = settings.load(options.root, environ=os.environ).pipeline
    where = f"{options.model}\n{options.root}\n{options.roots}"
    return FileFacts(java.export_folder(chosen.cache_folder), where)


def _known_bound(file: StoreFile, facts: FileFacts | None) -> FileBound | None:
    known = None if facts is None else facts.find(file.path, file.state)
    if known is None:
        return None
    return FileBound(
        *(file.root, file.path, file.space, known.kind, known.seq, known.bytes),
        file_id=known.file_id,
        horizon=known.horizon,
    )


def _facts(bound: FileBound, state: str) -> InspectedFile:
    return InspectedFile(state, bound.kind, bound.seq, bound.bytes, bound.file_id, bound.horizon)


def inspect_file(
    file: StoreFile, tables: ModelTables, *, deep: bool = False, at: Point = None
) -> FileBound | UnreadableFile:
    """Return the bound of one file, at `at` if given, or the reason it is unreadable.

    A file that is just being created is awaited briefly.
    """
    attempts = Attempts(Retries.every(limits.LOCK_LOOK_S, within_s=SOURCE_CREATION_WAIT_S))
    while True:
        try:
            return _inspect(file, tables, deep=deep, at=at)
        except FourfoldError as error:
            return UnreadableFile(
                file.root, file.path, file.space, file.bytes, error.kind, error.message
            )
        except _UnfinishedError as error:
            pause = attempts.next_pause()
            if pause is None or _age_s(file.path) > SOURCE_CREATION_WAIT_S:
                kind = FormatError.kind
                return UnreadableFile(
                    file.root, file.path, file.space, file.bytes, kind, str(error)
                )
            time.sleep(pause)


def file_rows(options: ReadOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the table `files`. The problem of an unreadable file is in its row."""
    stores = find_stores(options.root, options.roots)
    store_files = find_files(stores, options.tables, options.space)

    def row(file: StoreFile) -> dict[str, Any]:
        result = inspect_file(file, options.tables, deep=options.skip_bad, at=options.at)
        row = {"space": file.space, "root": file.root, "path": file.path, "bytes": file.bytes}
        if isinstance(result, UnreadableFile):
            return row | {"error": result.kind, "problem": result.problem}
        columns = {"kind": result.kind, "seq": result.seq, "bytes": result.bytes}
        return row | columns | {"file_id": result.file_id, "horizon": result.horizon}

    with ThreadPoolExecutor(SOURCE_OPENERS) as pool:
        rows = list(pool.map(row, store_files))
    yield arrow().RecordBatch.from_pylist(rows, schema=schema)


def _inspect(file: StoreFile, tables: ModelTables, *, deep: bool, at: Point) -> FileBound:
    with _OpenFile(file.path) as opened:
        kind = opened.check(tables)
        if deep:
            opened.check_pages()
        seq = current(tables.kinds[kind].position, opened.snapshot(), file.path)
        if at is not None:
            seq = min(seq, opened.seq_of(tables.kinds[kind], at))
        queries = tables.kinds[kind].queries
        [(horizon,)] = opened.rows(queries.horizon)
        [(file_id,)] = opened.rows(_SQL.file_id)
        return FileBound(
            *(file.root, file.path, file.space, kind, seq, opened.size()),
            file_id=str(file_id),
            horizon=int(horizon),
        )


class _UnfinishedError(Exception):
    """The file holds nothing yet."""


def _age_s(path: str) -> float:
    """Return the seconds since the file was modified; infinity if it is gone."""
    try:
        return time.time() - Path(path).stat().st_mtime
    except FileNotFoundError:
        return float("inf")


def apply_bounds(cut: Cut, options: ReadOptions) -> Cut:
    """Return the cut limited to `at` and starting after `since`, as the options request."""
    if options.at is None and options.since is None:
        return cut
    check_reach(cut, options.at, options.location)
    bounds = []
    for bound in cut.bounds:
        until, since = bound.seq, bound.since
        if isinstance(options.at, int):
            until = min(until, options.at)
        if isinstance(options.since, int):
            since = options.since
        if isinstance(options.at, datetime) or isinstance(options.since, datetime):
            kind = options.tables.kinds[bound.kind]
            with _OpenFile(bound.path) as opened:
                if isinstance(options.at, datetime):
                    until = min(until, opened.seq_of(kind, options.at))
                if isinstance(options.since, datetime):
                    since = opened.seq_of(kind, options.since)
        until_ms, since_ms = _ms(options.at), _ms(options.since)
        newest = None if until_ms is since_ms is None else bound.seq
        bounds.append(
            replace(
                bound,
                seq=until,
                since=since,
                newest=newest,
                until_ms=until_ms,
                since_ms=since_ms,
            )
        )
    return Cut(tuple(bounds), cut.bad)


def _ms(point: Point) -> int | None:
    return int(point.timestamp() * 1000) if isinstance(point, datetime) else None


def check_reach(cut: Cut, at: Point, where: str) -> None:
    """Raise InvalidInput if no file has reached the seq `at`."""
    newest = max((bound.seq for bound in cut.bounds), default=0)
    if isinstance(at, int) and at > newest:
        raise InvalidInput(f"{where}: at must be between 0 and {newest}, got seq {at}")


def read_publication(bound: FileBound, tables: ModelTables) -> PublishedPositions | None:
    """Return how far a file is published; None if it never was."""
    with _OpenFile(bound.path) as opened:
        record = record_of(opened.snapshot())
        if record is None:
            return None
        [(collected,)] = opened.rows(tables.kinds[bound.kind].queries.collected)
        return PublishedPositions(
            record.generation,
            record.version,
            record.state.positions,
            tuple(sorted(str(row[0]) for row in opened.rows(_SQL.changed_tables))),
            bool(collected),
        )


def fetch_rows(
    bound: FileBound, sql: str, parameters: tuple[Any, ...] = ()
) -> list[tuple[Any, ...]]:
    """Return the rows of a query on a file, used while a read is planned."""
    with _OpenFile(bound.path) as opened:
        return opened.rows(sql, parameters)


def iter_rows(
    bound: FileBound, sql: str, parameters: tuple[Any, ...] = ()
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a query on a file one at a time, for long results."""
    with _OpenFile(bound.path) as opened:
        yield from opened.iter_rows(sql, parameters)


@contextmanager
def read_file(bound: FileBound) -> Iterator[ReadTransaction]:
    """Yield a read transaction on a file, for several queries on one state."""
    with _OpenFile(bound.path) as opened:
        yield opened.snapshot()


def unreadable_error(bad: Sequence[UnreadableFile]) -> FourfoldError:
    """Return the error that names the unreadable files."""
    from fourfold import errors  # noqa: PLC0415 - to look up the class by its kind

    kinds = {cls.kind: cls for cls in errors.tree()}
    more = f"; and {len(bad) - 1} more" if len(bad) > 1 else ""
    return kinds[bad[0].kind](
        f"{bad[0].problem}{more}",
        hint="Repair or remove it, or skip it with the option skip_bad (--skip-bad).",
        details={"bad": [{"path": file.path, "problem": file.problem} for file in bad[:100]]},
    )


class _OpenFile:
    """A database file that is open while it is inspected."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.connection: Connection

    def __enter__(self) -> Self:
        try:
            immutable = is_immutable(self._path)
            # The last connection that may write removes the log and its index when it closes; one
            # that may only read leaves them beside a file that had none.
            tidy = not immutable and is_closed(self._path)
            self.connection = connect(Path(self._path), readonly=not tidy, immutable=immutable)
            self.connection.set_busy_timeout(limits.SOURCE_BUSY_TIMEOUT_MS)
            self.connection.execute(_SQL.query_only)
            # All queries see one state, whatever is committed between them.
            self.connection.execute(SQL.begin_read)
        except DriverError as error:
            raise translate(error, self._path) from error
        except FileNotFoundError as error:
            raise NotFound(f"{self._path}: has gone") from error
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def check(self, tables: ModelTables) -> str:
        """Return the kind of the database, or raise if this version cannot read it."""
        try:
            application_id = self.connection.pragma("application_id")
            if is_empty(self.connection) and application_id in {0, APPLICATION_ID}:
                raise _UnfinishedError(f"{self._path}: is empty; its creation never finished")
            if application_id != APPLICATION_ID:
                raise ForeignFile(f"{self._path}: not a Fourfold database")
        except DriverError as error:
            raise translate(error, self._path) from error
        [(name,)] = self.rows(_SQL.model)
        if name not in tables.kinds:
            raise ForeignFile(
                f"{self._path}: expected {tables.model}, found {name!r}",
                hint="Open it with the model that wrote it.",
            )
        kind = tables.kinds[name]
        check_for_reading(
            self.connection,
            DatabasePlan(Path(self._path), kind.profile, kind.migrations, (kind.position,)),
        )
        return str(name)

    def check_pages(self) -> None:
        """Check every page of the file, so that no scan fails on one later."""
        messages = [str(row[0]) for row in self.rows(_SQL.pages)]
        if messages != ["ok"]:
            raise CorruptData(f"{self._path}: {messages[0]}")

    def seq_of(self, kind: Kind, point: int | datetime) -> int:
        if isinstance(point, int):
            return point
        return kind.position_at(self.snapshot(), point)

    def size(self) -> int:
        """Return the size of the database without its WAL, which may hold pages repeatedly."""
        return int(self.rows(_SQL.size)[0][0])

    def snapshot(self) -> ReadTransaction:
        return ReadTransaction(self.connection, self._path)

    def rows(self, sql: str, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        return list(self.iter_rows(sql, parameters))

    def iter_rows(self, sql: str, parameters: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        try:
            yield from self.connection.execute(sql, parameters)
        except DriverError as error:
            raise translate(error, self._path) from error
