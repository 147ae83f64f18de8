"""Staging: tasks check rows and store them in files until they are committed.

A task checks every row separately, writes the valid ones to an Arrow IPC file under the store's
`.pipeline/staging`, syncs it, and reports the invalid rows. No space is changed.

Inside a file the rows of one space are consecutive, sorted by branch and then by the order columns.
So the committing process reads the rows of one space, in order, from many files, with bounded
memory and a bounded number of open files.
"""

from __future__ import annotations

import heapq
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from fourfold import limits
from fourfold.cache import LruCache
from fourfold.durability import sync_file, sync_folder
from fourfold.errors import ContentError, FourfoldError, InvalidInput, StorageError
from fourfold.models.documents import patch
from fourfold.models.documents.encoding import checked, decode
from fourfold.models.documents.validation import (
    check_did,
    check_entity,
    check_known_branch,
    check_session,
)
from fourfold.query.tables import arrow

SINK_RUN_BYTES: Final = 64 * limits.MIB
"""Rows that a task of the sink sorts in memory before it writes them."""
SINK_RUN_ROWS: Final = 500_000
SINK_BATCH_ROWS: Final = 4_096
SINK_FILES_OPEN: Final = 64
SINK_MERGE_ROWS: Final = 65_536
"""Rows in memory while the staged files of one space are merged."""
SINK_REFUSED_NAMED: Final = 20
"""Bad rows that a task describes; further ones are only counted."""
SINK_STAGING_AGE_S: Final = 86_400.0
"""Staged files of writes without a name are swept when they are older than this."""

COLUMNS: Final = ("space", "branch", "id", "op", "data")
OPERATIONS: Final = ("set", "patch", "delete")
DEFAULT_ORDER: Final = ("seq", "op_index")
_ORDER_TYPES: Final = re.compile(
    r"tinyint|smallint|int|bigint|string|date|timestamp|timestamp_ntz|decimal\(\d+,\d+\)"
)


class ColumnRoles(msgspec.Struct, frozen=True):
    """The meaning of the columns of the rows."""

    space: str | None
    """The space of every row; None if a column contains it."""
    order: tuple[str, ...]
    """The columns that order the rows of a space."""


class Batch(msgspec.Struct, frozen=True):
    """The name of a batch, and how it is committed."""

    session: str
    number: int = 0
    history: str | None = None
    """The kind of history of a space that does not exist yet."""
    skip_bad: bool = False
    wait_s: float = limits.SINK_LOCK_WAIT_S

    def __post_init__(self) -> None:
        check_session(self.session, self.number)


class RefusedRow(msgspec.Struct, frozen=True):
    """A row that was refused, and the reason."""

    partition: int
    row: int
    space: str
    id: str
    kind: str
    cause: str
    at: str = ""
    """Its position in the order, if the rows have one."""

    def __str__(self) -> str:
        at = f"{self.at}, " if self.at else ""
        return (
            f"row {self.row} of partition {self.partition} "
            f"({at}space {self.space!r}, id {self.id!r}): {self.cause}"
        )


class StagedPart(msgspec.Struct, frozen=True, array_like=True):
    """The rows of one space in one sorted run of a staged file."""

    space: str
    first: int
    """Index of its first record batch in the file."""
    batches: int
    rows: int
    patches: int
    branches: tuple[str, ...]


class StagedFile(msgspec.Struct, frozen=True):
    """The result of a task: a file, and the rows that were refused."""

    path: str
    rows: int
    ordered: bool
    refused: tuple[RefusedRow, ...] = ()
    refused_rows: int = 0


def shape_of(
    fields: Sequence[tuple[str, str]], *, space: str | None, order: Sequence[str] | None
) -> ColumnRoles:
    """Return the meaning of columns, given as names and Spark types, after checking them."""
    types = dict(fields)
    if len(types) < len(fields):
        raise InvalidInput(f"duplicate column in {', '.join(name for name, _ in fields)}")
    order_names = [name for name in (DEFAULT_ORDER if order is None else order) if name in types]
    if order is not None and len(order_names) < len(order):
        missing = ", ".join(name for name in order if name not in order_names)
        raise InvalidInput(f"option 'order': unknown column {missing}")
    _check_columns(list(types), order_names, space)
    for name in COLUMNS:
        if types.get(name, "string") != "string":
            raise InvalidInput(
                f"column {name!r} must be string, got {types[name]}",
                hint="For `data`: `to_json(struct(...))` returns the text of a document.",
            )
    for name in order_names:
        if not _ORDER_TYPES.fullmatch(types[name]):
            raise InvalidInput(
                f"cannot order rows by column {name!r} of type {types[name]}",
                hint="Order by integers, strings, dates or times.",
            )
    if space is not None:
        check_did(space)
    return ColumnRoles(space, tuple(order_names))


def _check_columns(names: Sequence[str], order: Sequence[str], space: str | None) -> None:
    unknown = [name for name in names if name not in COLUMNS and name not in order]
    if unknown:
        raise InvalidInput(
            f"unknown column {', '.join(unknown)} of the sink",
            hint=f"Columns: {', '.join(COLUMNS)}, and those named by the option `order` "
            f"(default {', '.join(DEFAULT_ORDER)}). Select those.",
        )
    if "id" not in names or "data" not in names:
        raise InvalidInput("columns 'id' and 'data' are required")
    if (space is None) != ("space" in names):
        raise InvalidInput("pass either the option 'space' or the column 'space'")


# In the tasks


def stage(
    batches: Iterable[Any], shape: ColumnRoles, folder: str | Path, partition: int, offset: int = 0
) -> StagedFile:
    """Check the rows of a task and store the valid ones in a file below `folder`."""
    path = Path(folder) / f"{partition:05d}-{uuid.uuid4().hex}.arrow"
    staging_file = _StagingFile(path, shape, partition, offset)
    try:
        for batch in batches:
            staging_file.add(batch)
        return staging_file.close()
    except BaseException:
        staging_file.discard()
        raise


class _StagingFile:
    """A staged file while it is written."""

    def __init__(self, path: Path, shape: ColumnRoles, partition: int, offset: int) -> None:
        self._path = path
        self._shape = shape
        self._partition = partition
        self._row = offset
        self._file: Any = None
        self._ipc: Any = None
        self._schema: Any = None
        self._parts: list[StagedPart] = []
        self._batches = 0
        self._rows = 0
        self._refused: list[RefusedRow] = []
        self._refused_rows = 0
        self._begin_run()

    def _begin_run(self) -> None:
        self._columns: dict[str, list[Any]] = {
            name: [] for name in ("space", "branch", *self._shape.order, "row", "id", "op", "text")
        }
        self._bytes = 0

    def add(self, batch: Any) -> None:
        pa = arrow()
        if self._schema is None:
            self._schema = _staged_schema(batch.schema, self._shape)
        size = batch.num_rows
        names = batch.schema.names
        spaces = _column(batch, "space", self._shape.space)
        branches = _column(batch, "branch", "")
        ops = _column(batch, "op", "set")
        orders = [batch.column(names.index(name)).to_pylist() for name in self._shape.order]
        ids, datas = _column(batch, "id", None), _column(batch, "data", None)
        for index in range(size):
            row = (spaces[index], branches[index], ids[index], ops[index], datas[index])
            order = [column[index] for column in orders]
            try:
                text = _checked(row, order, self._shape.order)
            except FourfoldError as error:
                self._refuse(row, order, error)
            else:
                values = (*row[:2], *order, self._row, *row[2:4], text)
                for column, value in zip(self._columns.values(), values, strict=True):
                    column.append(value)
                self._bytes += len(text or "") + len(row[2]) + 64
            self._row += 1
            full = len(self._columns["id"]) >= SINK_RUN_ROWS
            if full or self._bytes >= SINK_RUN_BYTES:
                self._flush(pa)

    def _refuse(self, row: Sequence[Any], order: Sequence[Any], error: FourfoldError) -> None:
        self._refused_rows += 1
        if len(self._refused) < SINK_REFUSED_NAMED:
            space, _, entity, _, _ = row
            self._refused.append(
                RefusedRow(
                    partition=self._partition,
                    row=self._row,
                    space=str(space),
                    id=str(entity),
                    kind=error.kind,
                    cause=error.message,
                    at=", ".join(
                        f"{name.lstrip('_')} {value}"
                        for name, value in zip(self._shape.order, order, strict=True)
                    ),
                )
            )

    def _flush(self, pa: Any) -> None:
        """Sort the pending rows and write them, grouped by space."""
        if not self._columns["id"]:
            return
        table = pa.table(self._columns, schema=self._schema)
        keys = ("space", "branch", *self._shape.order, "row")
        table = table.sort_by([(name, "ascending") for name in keys]).combine_chunks()
        if self._ipc is None:
            self._open(pa)
        start = 0
        for space, rows in _runs_of(table.column("space").to_pylist()):
            slice_ = table.slice(start, rows)
            first = self._batches
            for batch in slice_.to_batches(max_chunksize=SINK_BATCH_ROWS):
                self._ipc.write_batch(batch)
                self._batches += 1
            ops = slice_.column("op").to_pylist()
            branches = tuple(sorted(set(slice_.column("branch").to_pylist())))
            patches = sum(op == "patch" for op in ops)
            self._parts.append(
                StagedPart(space, first, self._batches - first, rows, patches, branches)
            )
            start += rows
        self._rows += table.num_rows
        self._begin_run()

    def _open(self, pa: Any) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._file = os.fdopen(descriptor, "wb")
        self._ipc = pa.ipc.new_file(self._file, self._schema)

    def close(self) -> StagedFile:
        self._flush(arrow())
        path = ""
        if self._ipc is not None:
            self._ipc.close()
            index = index_path(self._path)
            descriptor = os.open(index, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.encode(self._parts))
                _to_disk(file)
            _to_disk(self._file)
            self._file.close()
            sync_folder(self._path.parent)
            path = str(self._path)
        return StagedFile(
            path, self._rows, bool(self._shape.order), tuple(self._refused), self._refused_rows
        )

    def discard(self) -> None:
        if self._file is not None:
            self._file.close()
        remove([StagedFile(str(self._path), 0, ordered=False)])


def _to_disk(file: Any) -> None:
    file.flush()
    sync_file(file.fileno())


def _column(batch: Any, name: str, default: str | None) -> list[Any]:
    if name not in batch.schema.names:
        return [default] * int(batch.num_rows)
    values: list[Any] = batch.column(batch.schema.names.index(name)).to_pylist()
    return values


def _staged_schema(schema: Any, shape: ColumnRoles) -> Any:
    pa = arrow()
    text = pa.string()
    order = [(name, schema.field(name).type) for name in shape.order]
    names = [("space", text), ("branch", text), *order, ("row", pa.int64())]
    return pa.schema([*names, ("id", text), ("op", text), ("text", pa.large_string())])


def _checked(row: Sequence[Any], order: Sequence[Any], names: Sequence[str]) -> str | None:
    """Return the data of a row as stored in the log; raise if no space would accept it."""
    space, branch, entity, op, data = row
    check_did(space)
    check_entity(entity)
    check_known_branch(branch)
    for name, value in zip(names, order, strict=True):
        if value is None:
            raise InvalidInput(f"order column {name!r} is null")
    if op not in OPERATIONS:
        raise InvalidInput(f"unknown operation {op!r}", hint="Use set, patch or delete.")
    if op == "delete":
        if data is not None:
            raise InvalidInput("operation 'delete' must not have data")
        return None
    if data is None:
        raise InvalidInput(f"operation {op!r} requires data")
    try:
        value = decode(data)
    except (TypeError, ValueError, RecursionError) as error:
        raise ContentError(f"data is not valid JSON: {error}") from error
    if op == "set":
        if not isinstance(value, dict):
            raise InvalidInput("document must be a JSON object", hint='Wrap it: {"value": ...}.')
        return checked(value, "the document")[0]
    text, patches = checked(value, "the list of patches")
    patch.compile(patches)
    return text


def _runs_of(values: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Yield each value of a sorted list with its count."""
    start = 0
    for index in range(1, len(values) + 1):
        if index == len(values) or values[index] != values[start]:
            yield values[start], index - start
            start = index


def index_path(path: Path) -> Path:
    """Return the path of the index of a staged file."""
    return path.with_suffix(".index")


# Cleaning up


def remove(staged: Iterable[StagedFile | None]) -> None:
    """Remove staged files, ignoring those that do not exist."""
    for file in staged:
        if file is not None and file.path:
            Path(file.path).unlink(missing_ok=True)
            index_path(Path(file.path)).unlink(missing_ok=True)


def newest_mtime(staged: Iterable[StagedFile]) -> float:
    """Return the modification time of the newest of these files."""
    times = [Path(file.path).stat().st_mtime for file in staged if file.path]
    return max(times, default=0.0)


def sweep(staging: Path, own: Path, *, until: float, now: float | None = None) -> None:
    """Remove the files of a completed write, and old files of unnamed writes in `staging`.

    In the folder `own` only files up to `until` are removed: a committing process may outlive its
    driver, and the next one may be staging the same batch there again.
    """
    with suppress(FileNotFoundError):
        for path in own.iterdir():
            if path.stat().st_mtime <= until:
                path.unlink(missing_ok=True)
    with suppress(OSError):
        # Fails if it is not empty.
        own.rmdir()
    current = time.time() if now is None else now
    if staging.is_dir():
        for folder in staging.glob("write-*"):
            if _age(folder, current) > SINK_STAGING_AGE_S:
                shutil.rmtree(folder, ignore_errors=True)


def _age(folder: Path, now: float) -> float:
    try:
        return now - max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
    except FileNotFoundError:
        return 0.0


def count_rows(staged: Iterable[StagedFile]) -> Mapping[str, int]:
    """Return the numbers of staged and of refused rows."""
    files = list(staged)
    return {
        "rows": sum(file.rows for file in files),
        "refused": sum(file.refused_rows for file in files),
    }


Located = tuple[str, StagedPart]
"""A staged file and a part of it."""


def index_parts(staged: Iterable[StagedFile]) -> dict[str, list[Located]]:
    """Return the parts of each space, ordered by the name of the space."""
    parts: dict[str, list[Located]] = {}
    for file in staged:
        if file.path:
            for part in _parts(Path(file.path)):
                parts.setdefault(part.space, []).append((file.path, part))
    return dict(sorted(parts.items()))


def _parts(path: Path) -> list[StagedPart]:
    try:
        return msgspec.json.decode(index_path(path).read_bytes(), type=list[StagedPart])
    except FileNotFoundError:
        raise StorageError(
            f"{path}: staged file does not exist",
            hint="Tasks and the driver must share one folder: mount the store everywhere, or set "
            "the option `staging`. If it was swept meanwhile, run again; nothing was written.",
        ) from None


class StagedOperation(msgspec.Struct, frozen=True, gc=False):
    """An operation as it was staged."""

    branch: str
    id: str
    op: str
    text: str | None
    partition: int
    row: int

    @property
    def where(self) -> str:
        """The position of the row, for messages."""
        return f"row {self.row} of partition {self.partition}"


class StagedReader:
    """Reads parts of staged files, with a bounded number of open files."""

    def __init__(self) -> None:
        self._files: LruCache[str, Any] = LruCache(SINK_FILES_OPEN)

    def rows(self, parts: Sequence[Located]) -> Iterator[StagedOperation]:
        """Yield the rows of one space, by branch and then in their order."""
        step = max(16, SINK_MERGE_ROWS // len(parts))
        runs = [self._run(number, path, part, step) for number, (path, part) in enumerate(parts)]
        merged = runs[0] if len(runs) == 1 else heapq.merge(*runs, key=_by_key)
        for _, row in merged:
            yield row

    def find_duplicate(self, parts: Sequence[Located]) -> tuple[str, str] | None:
        """Return a branch and an entity with more than one row, or None."""
        pa = arrow()
        batches = [
            self._batch(path, number).select(["branch", "id"])
            for path, part in parts
            for number in range(part.first, part.first + part.batches)
        ]
        names = pa.Table.from_batches(batches).group_by(["branch", "id"])
        counts = names.aggregate([([], "count_all")])
        if counts.num_rows == sum(part.rows for _, part in parts):
            return None
        duplicate = counts.filter(pa.compute.field("count_all") > 1).slice(0, 1).to_pylist()[0]
        return str(duplicate["branch"]), str(duplicate["id"])

    def _run(
        self, number: int, path: str, part: StagedPart, step: int
    ) -> Iterator[tuple[tuple[Any, ...], StagedOperation]]:
        partition = int(Path(path).name.partition("-")[0])
        for index in range(part.first, part.first + part.batches):
            start, size = 0, 1
            while start < size:
                batch = self._batch(path, index)
                size = batch.num_rows
                columns = [column.to_pylist() for column in batch.slice(start, step).columns]
                del batch
                _, branches, *order, rows, ids, ops, texts = columns
                for at, branch in enumerate(branches):
                    key = (branch, *(column[at] for column in order), number, rows[at])
                    yield (
                        key,
                        StagedOperation(branch, ids[at], ops[at], texts[at], partition, rows[at]),
                    )
                start += step

    def _batch(self, path: str, number: int) -> Any:
        file = self._files.get(path)
        if file is None:
            pa = arrow()
            file = pa.ipc.open_file(pa.memory_map(path))
            self._files.put(path, file)
        return file.get_batch(number)


def _by_key(item: tuple[tuple[Any, ...], StagedOperation]) -> tuple[Any, ...]:
    return item[0]
