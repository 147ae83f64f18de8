"""Plan the tasks of a read: which queries on which files, and which of them share a task.

A file larger than `partition_bytes` is split into parts: by key where the whole log is read,
because rows are stored in key order and each part is then one contiguous range of the file; by seq
where only recent commits are read, which an index finds. Smaller files are packed together until a
task has enough to do. So a file of a gigabyte and ten thousand small ones both become a sensible
number of tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from fourfold import limits
from fourfold.kernel import Queries, load_queries
from fourfold.pipeline import cut as cuts
from fourfold.pipeline.conditions import as_sql
from fourfold.pipeline.cut import FileBound
from fourfold.pipeline.options import ReadOptions
from fourfold.pipeline.scan import Guard, Origin, Piece, ScanTask
from fourfold.pipeline.task_groups import pack
from fourfold.query.tables import ROOT, SPACE, Column, Table

SOURCE_FOLD_SHARE: Final = 2
"""Divisor of the input of a task that folds, which takes longer than one that scans."""

T = TypeVar("T")
_SQL: Final = load_queries("fourfold.pipeline", "source.sql")
ATTACH: Final = _SQL.attach
DETACH: Final = _SQL.detach
_RECENT_SHARE: Final = 8
"""A range of less than one in this many commits is looked up by index, not scanned."""
_CASTS: Final = {
    "string": "TEXT",
    "bigint": "INTEGER",
    "int": "INTEGER",
    "double": "REAL",
    "timestamp": "TEXT",
    "binary": "BLOB",
    "boolean": "INTEGER",
}
_SAMPLES: Final = {"TEXT": "''", "INTEGER": "0", "REAL": "0.0", "BLOB": "x''"}
LOOKED_UP: Final = ("id", "session")
"""Columns by which an index finds few rows, so that the file is not split."""
CUT_MARK: Final = "{cut}"
"""Placeholder in a query for the position of the cut of its file."""


def setup() -> tuple[str, ...]:
    """Return the statements that prepare a worker's connection."""
    return (
        _SQL.busy.format(milliseconds=limits.SOURCE_BUSY_TIMEOUT_MS),
        _SQL.query_only,
        _SQL.cells,
        _SQL.temporary,
    )


def plan(
    bounds: Sequence[FileBound],
    options: ReadOptions,
    columns: tuple[Column, ...],
    *,
    whole: bool = False,
) -> list[ScanTask]:
    """Return the tasks of a scan; with `whole`, rows missing from the range are an error."""
    table = options.table
    if options.tables.check is not None:
        options.tables.check(bounds, options)
    selected = [bound for bound in bounds if options.conditions.allow(SPACE, bound.space)]
    parts: Iterator[tuple[int, Piece]]
    if table.fold is not None:
        assert options.tables.folded_parts is not None
        read = options.tables.table(table.reads).select_columns()
        parts = options.tables.folded_parts(selected, options)
    else:
        read = columns
        parts = iter_raw_parts(selected, options, columns, whole=whole)
    origins = {bound.path: _origin(bound, options) for bound in selected}
    parts = ((cost, replace(piece, origin=origins[piece.path])) for cost, piece in parts)
    return [
        ScanTask(
            pieces=tuple(build_pieces),
            columns=read,
            setup=setup(),
            attach=ATTACH,
            detach=DETACH,
            batch_rows=options.batch_rows,
            fold=table.fold,
            output=columns,
        )
        for build_pieces in pack_parts(parts, task_bytes(options))
    ]


def _origin(bound: FileBound, options: ReadOptions) -> Origin | None:
    """Return the check that a worker reads the file of the cut; cuts of old tokens have none."""
    if not bound.file_id:
        return None
    counter = options.tables.kinds[bound.kind].position
    # A counter that nothing claims is the newest row, which may be deleted.
    position = counter.read if counter.claim else "NULL"
    return Origin(_SQL.origin.format(position=position), bound.file_id, bound.seq)


def task_bytes(options: ReadOptions) -> int:
    """Return the target size of one task's input."""
    if options.table.folded:
        return max(1, options.partition_bytes // SOURCE_FOLD_SHARE)
    return options.partition_bytes


def pack_parts(parts: Iterable[tuple[int, T]], max_bytes: int) -> Iterator[list[T]]:
    """Group consecutive parts into tasks, counting the cost of opening each file."""
    return pack(((cost + limits.SOURCE_FILE_COST_BYTES, part) for cost, part in parts), max_bytes)


@dataclass(frozen=True, slots=True)
class _Range:
    """A part of a file: keys after `after` until `upto`, seqs after `since` until `seq`."""

    since: int
    seq: int
    after: tuple[Any, ...] | None = None
    upto: tuple[Any, ...] | None = None
    last_branch: str | None = None
    """The greatest branch of the file, if it is known."""

    @property
    def branch(self) -> str | None:
        """The only branch of the part, or None if there are several or it is unknown."""
        if self.after is None and self.upto is None:
            return None
        lowest = "" if self.after is None else self.after[0]
        greatest = self.last_branch if self.upto is None else self.upto[0]
        return str(lowest) if lowest == greatest else None


def iter_raw_parts(
    bounds: Sequence[FileBound],
    options: ReadOptions,
    columns: tuple[Column, ...],
    *,
    whole: bool = False,
) -> Iterator[tuple[int, Piece]]:
    """Yield the queries of a raw table, each with the approximate bytes that it reads."""
    table = options.table
    for bound in bounds:
        range_ = select_range(bound, options)
        if range_ is None:
            continue
        recent = is_recent(bound, table, range_)
        ranges = list(_ranges(bound, options, range_, recent=recent))
        guard = _complete(bound, options, whole=whole)
        for part in ranges:
            queries = build_pieces(bound, options, columns, part, recent=recent)
            for query in queries:
                cost = _cost(bound, range_, recent=recent) // len(ranges) // len(queries)
                yield cost, replace(query, guard=guard)


def _complete(bound: FileBound, options: ReadOptions, *, whole: bool) -> Guard:
    """Return the guard against removed rows: any in the range with `whole`, else since the cut."""
    after = bound.since if whole else max(bound.since, bound.horizon)
    return Guard(
        options.tables.kinds[bound.kind].queries.whole_after,
        (after,),
        f"gc removed rows after seq {after}",
    )


def select_range(bound: FileBound, options: ReadOptions) -> _Range | None:
    """Return the seq range to read from a file, or None if it is empty."""
    table, since, seq = options.table, bound.since, bound.seq
    if table.position is not None:
        low, high = options.conditions.bounds(table.position)
        since = max(since, low)
        seq = seq if high is None else min(seq, high)
        if since >= seq and not (table.position == "created_seq" and bound.since == 0):
            return None
    return _Range(since, seq)


def is_recent(bound: FileBound, table: Table, whole: _Range) -> bool:
    """Return True if the range is small enough to be looked up by index."""
    return table.recent is not None and (whole.seq - whole.since) * _RECENT_SHARE < bound.seq


def _cost(bound: FileBound, whole: _Range, *, recent: bool) -> int:
    """Return the approximate bytes that are read."""
    if recent:
        return bound.bytes * (whole.seq - whole.since) // max(bound.seq, 1)
    return bound.bytes


def _ranges(
    bound: FileBound, options: ReadOptions, whole: _Range, *, recent: bool
) -> Iterator[_Range]:
    table = options.table
    count = count_parts(_cost(bound, whole, recent=recent), options.partition_bytes)
    if count <= 1 or any(options.conditions.on(name) for name in LOOKED_UP):
        yield whole
    elif recent or table.by_position:
        width = max(1, -(-(whole.seq - whole.since) // count))
        for low in range(whole.since, whole.seq, width):
            yield _Range(low, min(low + width, whole.seq))
    elif table.key:
        queries = options.tables.kinds[bound.kind].queries
        keys = split_keys(bound, queries, count)
        [(last,)] = cuts.fetch_rows(bound, queries.last_branch)
        for after, upto in zip([None, *keys], [*keys, None], strict=True):
            yield _Range(whole.since, whole.seq, after, upto, last)
    else:
        yield whole


def count_parts(cost: int, part_bytes: int) -> int:
    """Return the number of parts of a file: even, so that no single part is left for one core."""
    count = -(-cost // part_bytes)
    return count + count % 2 if count > 1 else count


def split_keys(bound: FileBound, queries: Queries, count: int) -> list[tuple[Any, ...]]:
    """Return the keys between the parts of a file, each with about as many entities."""
    [(heads,)] = cuts.fetch_rows(bound, queries.heads)
    width = -(-heads // count)
    keys: list[tuple[Any, ...]] = []
    after: tuple[Any, ...] = ("", "")
    while width > 1 and len(keys) < count - 1:
        row = cuts.fetch_rows(bound, queries.next_bound, (*after, width - 1))
        if not row:
            break
        after = tuple(row[0])
        keys.append(after)
    return keys


def build_pieces(
    bound: FileBound,
    options: ReadOptions,
    columns: tuple[Column, ...],
    part: _Range,
    *,
    recent: bool = False,
) -> list[Piece]:
    """Return the queries of one part of a file; several if a table is spread over many tables."""
    table, kind = options.table, options.tables.kinds[bound.kind]
    queries, conditions = kind.queries, options.conditions.without(SPACE)
    texts, parameters = _bounds(table, part)
    more, values = as_sql(
        [
            condition
            for condition in conditions
            if condition.column != table.position or condition.sign == "in"
        ],
        len(parameters) + 1,
    )
    if table.key and any(
        condition.column == "id" and condition.sign in {"=", "in"} for condition in conditions
    ):
        more.append(queries.each_branch)
    constants: dict[str, Any] = {SPACE: bound.space, ROOT: bound.root}
    if table.key and part.branch is not None:
        # A value that all rows share is not read from each of them.
        constants[table.key[0]] = part.branch
    own = tuple(column for column in columns if column.name not in constants)
    first = table.recent if recent and table.recent else table.query
    if table.bulk and not recent and not any(options.conditions.on(name) for name in LOOKED_UP):
        first = table.bulk
    named = [getattr(queries, name) for name in (first, table.also) if name]
    groups: Iterable[tuple[str, ...]] = [tuple(named)]
    if kind.spread is not None:
        groups = kind.spread(bound, options, conditions, named[0])
    return [
        Piece(
            bound.path,
            _around(queries, group, own or table.smallest, texts + more).replace(
                CUT_MARK, str(bound.seq)
            ),
            (*parameters, *values),
            tuple(constants.items()),
        )
        for group in groups
    ]


def _bounds(table: Table, part: _Range) -> tuple[list[str], list[Any]]:
    parameters: list[Any] = [part.since, part.seq]
    if table.position is None:
        # Both are bound nevertheless: a query may not skip a parameter number.
        texts = ["?1 <= max(?1, ?2)"]
    else:
        texts = [f'"{table.position}" > ?1', f'"{table.position}" <= ?2']
    if table.position == "created_seq":
        # The default branch exists before the first commit.
        texts[0] = f'("{table.position}" > ?1 OR ?1 = 0)'
    more, values = _between(table.key, part, len(parameters) + 1)
    return texts + more, parameters + values


def _between(key: Sequence[str], part: _Range, first: int) -> tuple[list[str], list[Any]]:
    """Return the key conditions of a part. If all keys are on one branch, compare it for equality:
    SQLite then seeks both ends and compares no row with them.
    """
    after, upto = part.after, part.upto
    if part.branch is not None:
        texts, values = [f'"{key[0]}" = ?{first}'], [part.branch]
        for sign, bound in ((">", after), ("<=", upto)):
            if bound is not None:
                values.append(bound[1])
                texts.append(f'"{key[1]}" {sign} ?{first + len(values) - 1}')
        return texts, values
    names = ", ".join(f'"{name}"' for name in key)
    texts, values = [], []
    for sign, bound in ((">", after), ("<=", upto)):
        if bound is not None:
            numbers = ", ".join(f"?{first + len(values) + at}" for at in range(len(bound)))
            values.extend(bound)
            texts.append(f"({names}) {sign} ({numbers})")
    return texts, values


def _around(
    templates: Queries, queries: Sequence[str], columns: Sequence[Column], conditions: Sequence[str]
) -> str:
    """Wrap queries in the selected columns, cast where SQLite does not guarantee the type, and in
    the conditions.
    """
    casts = [(column.name, _CASTS[column.type]) for column in columns]
    selected = ", ".join(
        f'"{name}"' if column.plain else f'CAST("{name}" AS {cast}) AS "{name}"'
        for column, (name, cast) in zip(columns, casts, strict=True)
    )
    condition = " AND ".join(conditions)
    parts = [
        templates.part.format(columns=selected, query=query, conditions=condition)
        for query in queries
    ]
    samples = ", ".join(f'{_SAMPLES[cast]} AS "{name}"' for name, cast in casts)
    return templates.scan.format(samples=samples, parts=" ".join(parts))
