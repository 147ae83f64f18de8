"""The cut: how far each file is read, taken once, before any row is.

A store is being written while a job reads it, and a job looks at a file more than once: in several
parts, again after a failure, in two scans that a query joins. So the newest seq of every file is
written down first, and every scan stops there. Seqs are dense and rows are only added, so what a
cut shows does not change any more.

Taking it opens each file once, several at a time, and checks what it is: a database of Fourfold, of
this model, of a version that is known. A file that is none of this is an error that names it, or,
with `skip_bad`, one of `Cut.bad`; the other files are read as if it were not there.

Which files of which stores a read is about, found by name and looked at by nobody yet.

`root` is one store; `roots` a pattern that matches many. A folder that is no store is an error when
it was named, and is passed over when it merely matches a pattern, unless nothing matches at all.
No file is opened here, so that finding ten thousand costs a walk through their folders.
"""

from __future__ import annotations

import base64
import glob
import os
import stat
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from fourfold import limits, settings
from fourfold.errors import (
    CorruptData,
    ForeignFile,
    FormatError,
    FourfoldError,
    InvalidInput,
    NotFound,
)
from fourfold.kernel import load_queries
from fourfold.kernel.driver import Connection, DriverError, connect, translate
from fourfold.kernel.files import APPLICATION_ID, Plan, check_for_reading, is_empty
from fourfold.kernel.sequences import current
from fourfold.kernel.transaction import SQL, ReadTransaction
from fourfold.pipeline.options import Point, ReadOptions
from fourfold.pipeline.tables import Kind, ModelTables


@dataclass(frozen=True, slots=True)
class StoreFile:
    """A file that may be a database of the model. `bytes` counts its log too."""

    root: str
    path: str
    space: str
    bytes: int


def stores(root: str | None, roots: str | None) -> list[Path]:
    """The folders of the stores that the two options name: one of them must be given."""
    if (root is None) == (roots is None):
        raise InvalidInput(
            "a read needs the option root (one store) or roots (a pattern), and not both",
            hint="For example .option('root', 'my-store') or .option('roots', '/data/*').",
        )
    if root is not None:
        folder = Path(root).absolute()
        if not _is_store(folder):
            raise NotFound(
                f"{folder}: is not a Fourfold store (it has no {settings.FILE_NAME})",
                hint="Check the path; `fourfold demo ROOT` makes a store to look at.",
            )
        return [folder]
    assert roots is not None
    matched = sorted(glob.glob(roots, recursive=True))  # noqa: PTH207 - the pattern is absolute
    found = [Path(each).absolute() for each in matched if _is_store(Path(each))]
    if not found:
        raise NotFound(
            f"{roots}: matches no Fourfold store",
            hint="The pattern names the folders of stores, for example /data/tenants/*.",
        )
    return found


def files(
    folders: Iterable[Path], tables: ModelTables, space: str | None = None
) -> list[StoreFile]:
    """The files of a model in these stores, in the order of their paths; with `space`, of one."""
    found = []
    for folder in folders:
        place = folder / tables.folder
        try:
            entries = sorted(os.scandir(place), key=lambda entry: _space(entry.name, tables))
        except FileNotFoundError:
            continue
        for entry in entries:
            name = _space(entry.name, tables)
            if name == entry.name or name.startswith(".") or space not in {None, name}:
                continue
            size = _size(entry.path)
            if size is not None:
                found.append(StoreFile(str(folder), entry.path, name, size))
    if space is not None and not found:
        raise NotFound(
            f"there is no space {space!r} in {', '.join(map(str, folders))}",
            hint="`fourfold space list ROOT` names them all.",
        )
    return found


def _space(name: str, tables: ModelTables) -> str:
    """The space that a file of this name holds. Spaces come in their own order: with the suffix at
    the end of their names, some would change places.
    """
    return name.removesuffix(tables.suffix)


def stands_still(path: str) -> bool:
    """Whether nobody can write the file: its folder is closed to all, and it has no log.

    Only such a file may be read without shared memory beside it. Where somebody could write, that
    would one day show a torn state.
    """
    folder = os.path.dirname(path)  # noqa: PTH120 - it runs for every file in a worker
    closed = not stat.S_IMODE(os.stat(folder).st_mode) & 0o222  # noqa: PTH116
    frozen = closed or bool(os.statvfs(folder).f_flag & os.ST_RDONLY)
    return frozen and not os.path.exists(f"{path}-wal")  # noqa: PTH110


def is_closed(path: str) -> bool:
    """Return True if no process has left a log beside the file, and it can be written here."""
    log = f"{path}-wal"
    has_log = os.path.exists(log) and os.path.getsize(log) > 0  # noqa: PTH110, PTH202
    return not has_log and os.access(path, os.W_OK) and os.access(os.path.dirname(path), os.W_OK)  # noqa: PTH120


def _is_store(folder: Path) -> bool:
    return (folder / settings.FILE_NAME).is_file()


def _size(path: str) -> int | None:
    """The bytes of the file and its log; None when it has gone or is no file."""
    total = 0
    for name in (path, f"{path}-wal"):
        try:
            facts = os.stat(name)  # noqa: PTH116 - it runs for every file
        except FileNotFoundError:
            if name == path:
                return None
            continue
        if name == path and not stat.S_ISREG(facts.st_mode):
            return None
        total += facts.st_size
    return total


_SQL: Final = load_queries("fourfold.pipeline", "cut.sql")


@dataclass(frozen=True, slots=True)
class FileBound:
    """A sound file, and the seq up to which it is read."""

    root: str
    path: str
    space: str
    kind: str
    seq: int
    bytes: int
    since: int = 0
    file_id: str = ""
    """The id that the file got when it was created: a space made again has another."""
    horizon: int = 0
    """Below this seq, rows may have been removed when the cut was taken."""


@dataclass(frozen=True, slots=True)
class UnreadableFile:
    """A file that cannot be read, and why."""

    root: str
    path: str
    space: str
    bytes: int
    kind: str
    problem: str


@dataclass(frozen=True, slots=True)
class Cut:
    """How far every file is read. Its `token` is the option `cut` of any number of reads."""

    marks: tuple[FileBound, ...]
    bad: tuple[UnreadableFile, ...] = field(default=())

    def token(self) -> str:
        """The cut as text, for the option `cut`: several tables of the very same moment."""
        packed = zlib.compress(msgspec.json.encode(self), 6)
        return base64.urlsafe_b64encode(packed).decode()


def from_token(token: str) -> Cut:
    try:
        text = zlib.decompress(base64.urlsafe_b64decode(token.encode()))
        return msgspec.json.decode(text, type=Cut)
    except (ValueError, zlib.error, msgspec.MsgspecError) as error:
        raise InvalidInput(
            "the option cut is not a cut", hint="Give what Cut.token() returned."
        ) from error


def take(options: ReadOptions) -> Cut:
    """The cut that a read with these options sees."""
    if options.cut is not None:
        cut = of_space(from_token(options.cut), options.space)
    else:
        found = files(stores(options.root, options.roots), options.tables, options.space)
        cut = take_of(found, options.tables, deep=options.skip_bad, skip_bad=options.skip_bad)
    return bounded(cut, options)


def of_space(cut: Cut, space: str | None) -> Cut:
    """The part of a cut that is about one space; all of it without one."""
    if space is None:
        return cut
    return Cut(tuple(mark for mark in cut.marks if mark.space == space), cut.bad)


def take_of(
    found: Sequence[StoreFile], tables: ModelTables, *, deep: bool = False, skip_bad: bool = False
) -> Cut:
    """The cut of these files as they are now. With `deep` every page of them is looked at."""

    def look(file: StoreFile) -> FileBound | UnreadableFile:
        return look_at(file, tables, deep=deep)

    if len(found) > 1:
        with ThreadPoolExecutor(limits.SOURCE_OPENERS) as pool:
            seen: Iterable[FileBound | UnreadableFile] = list(pool.map(look, found))
    else:
        seen = [look(file) for file in found]
    marks = tuple(each for each in seen if isinstance(each, FileBound))
    bad = tuple(each for each in seen if isinstance(each, UnreadableFile))
    if bad and not skip_bad:
        raise refusal(bad)
    return Cut(marks, bad)


def look_at(
    file: StoreFile, tables: ModelTables, *, deep: bool = False, at: Point = None
) -> FileBound | UnreadableFile:
    """One file: how far it goes, or goes at some point; or what is wrong with it.

    A file that somebody is just creating is waited for a moment.
    """
    give_up = time.monotonic() + limits.SOURCE_CREATION_WAIT_S
    while True:
        try:
            return _sound(file, tables, deep=deep, at=at)
        except FourfoldError as error:
            return UnreadableFile(
                file.root, file.path, file.space, file.bytes, error.kind, error.message
            )
        except _UnfinishedError as error:
            if time.monotonic() > give_up or _age_s(file.path) > limits.SOURCE_CREATION_WAIT_S:
                kind = FormatError.kind
                return UnreadableFile(
                    file.root, file.path, file.space, file.bytes, kind, str(error)
                )
            time.sleep(limits.LOCK_LOOK_S)


def _sound(file: StoreFile, tables: ModelTables, *, deep: bool, at: Point) -> FileBound:
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
    """How long ago the file was changed; for ever, if it is gone."""
    try:
        return time.time() - Path(path).stat().st_mtime
    except FileNotFoundError:
        return float("inf")


def bounded(cut: Cut, options: ReadOptions) -> Cut:
    """The cut moved back to `at`, and bounded below by `since`, as the options say."""
    if options.at is None and options.since is None:
        return cut
    check_reach(cut, options.at, options.location)
    marks = []
    for mark in cut.marks:
        upto, since = mark.seq, mark.since
        if isinstance(options.at, int):
            upto = min(upto, options.at)
        if isinstance(options.since, int):
            since = options.since
        if isinstance(options.at, datetime) or isinstance(options.since, datetime):
            kind = options.tables.kinds[mark.kind]
            with _OpenFile(mark.path) as opened:
                if isinstance(options.at, datetime):
                    upto = min(upto, opened.seq_of(kind, options.at))
                if isinstance(options.since, datetime):
                    since = opened.seq_of(kind, options.since)
        marks.append(replace(mark, seq=upto, since=since))
    return Cut(tuple(marks), cut.bad)


def check_reach(cut: Cut, at: Point, where: str) -> None:
    """Refuse a seq that no file has reached: nobody can know that state yet."""
    newest = max((mark.seq for mark in cut.marks), default=0)
    if isinstance(at, int) and at > newest:
        raise InvalidInput(
            f"seq {at} is not in the history of {where}, which goes from 0 to {newest}"
        )


def rows(mark: FileBound, sql: str, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """What a question about a file is answered with, when a read is planned."""
    with _OpenFile(mark.path) as opened:
        return opened.rows(sql, parameters)


def each(mark: FileBound, sql: str, parameters: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The same, a row at a time: for answers that may be long."""
    with _OpenFile(mark.path) as opened:
        yield from opened.each(sql, parameters)


def refusal(bad: Sequence[UnreadableFile]) -> FourfoldError:
    """The error that says which files cannot be read."""
    from fourfold import errors  # noqa: PLC0415 - the tree is asked for a class by its kind

    kinds = {cls.kind: cls for cls in errors.tree()}
    more = f"; and {len(bad) - 1} more" if len(bad) > 1 else ""
    return kinds[bad[0].kind](
        f"{bad[0].problem}{more}",
        hint="Mend or remove it, or read the others: the option skip_bad (--skip-bad).",
        details={"bad": [{"path": each.path, "problem": each.problem} for each in bad[:100]]},
    )


class _OpenFile:
    """A file, open for a moment."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.connection: Connection

    def __enter__(self) -> Self:
        try:
            still = stands_still(self._path)
            # The last connection that may write removes the log and its index when it closes; one
            # that may only read leaves them beside a file that had none.
            tidy = not still and is_closed(self._path)
            self.connection = connect(Path(self._path), readonly=not tidy, immutable=still)
            self.connection.set_busy_timeout(limits.SOURCE_BUSY_TIMEOUT_MS)
            self.connection.execute(_SQL.query_only)
            # All questions are about one state, whoever commits between them.
            self.connection.execute(SQL.begin_read)
        except DriverError as error:
            raise translate(error, self._path) from error
        except FileNotFoundError as error:
            raise NotFound(f"{self._path}: has gone") from error
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def check(self, tables: ModelTables) -> str:
        """The kind of the database; an error when this version cannot read it."""
        try:
            mark = self.connection.pragma("application_id")
            if is_empty(self.connection) and mark in {0, APPLICATION_ID}:
                raise _UnfinishedError(
                    f"{self._path}: holds nothing yet; its creation was never finished"
                )
            if mark != APPLICATION_ID:
                raise ForeignFile(f"{self._path}: is not one of Fourfold's databases")
        except DriverError as error:
            raise translate(error, self._path) from error
        [(name,)] = self.rows(_SQL.model)
        if name not in tables.kinds:
            raise ForeignFile(
                f"{self._path}: holds {name!r} data, not {tables.model}",
                hint="Open it with the part of Fourfold that wrote it.",
            )
        kind = tables.kinds[name]
        check_for_reading(
            self.connection, Plan(Path(self._path), kind.profile, kind.migrations, (kind.position,))
        )
        return str(name)

    def check_pages(self) -> None:
        """Every page of the file, so that no scan stumbles over one later."""
        found = [str(row[0]) for row in self.rows(_SQL.pages)]
        if found != ["ok"]:
            raise CorruptData(f"{self._path}: {found[0]}")

    def seq_of(self, kind: Kind, point: int | datetime) -> int:
        if isinstance(point, int):
            return point
        return kind.position_at(self.snapshot(), point)

    def size(self) -> int:
        """The bytes of the database: its log may hold many copies of a page."""
        return int(self.rows(_SQL.size)[0][0])

    def snapshot(self) -> ReadTransaction:
        return ReadTransaction(self.connection, self._path)

    def rows(self, sql: str, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        return list(self.each(sql, parameters))

    def each(self, sql: str, parameters: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        try:
            yield from self.connection.execute(sql, parameters)
        except DriverError as error:
            raise translate(error, self._path) from error
