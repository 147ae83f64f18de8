"""From a cut to tasks: which queries on which files, and which of them share a task.

A file that is larger than `partition_bytes` is cut into parts: by its keys where the whole log is
read, because rows lie in the order of their keys and each part is then one stretch of the file; by
seqs where only recent commits are wanted, which an index finds. Smaller files are packed together
until a task has enough to do. So a file of a gigabyte and ten thousand small ones both become a
sensible number of tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from fourfold import limits
from fourfold.kernel import Queries, load_queries
from fourfold.pipeline import cut as cuts
from fourfold.pipeline.conditions import Condition, as_sql
from fourfold.pipeline.cut import FileBound
from fourfold.pipeline.documents.fold import Line, lines
from fourfold.pipeline.documents.fold_query import relevant
from fourfold.pipeline.options import ReadOptions
from fourfold.pipeline.scan import Guard, Piece, ScanTask
from fourfold.pipeline.tables import ROOT, SPACE, Column, Table

T = TypeVar("T")
_SQL: Final = load_queries("fourfold.pipeline", "source.sql")
ATTACH: Final = _SQL.attach
DETACH: Final = _SQL.detach
_RECENT_SHARE: Final = 8
"""A range of less than one in so many commits is looked up by an index, not scanned for."""
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
"""Columns by which an index finds the few rows that are wanted: there is nothing to divide."""
CUT_MARK: Final = "{cut}"
"""In a query, the number at which its file is cut."""


def setup() -> tuple[str, ...]:
    """What a worker's connection is prepared with."""
    return (
        _SQL.busy.format(milliseconds=limits.SOURCE_BUSY_TIMEOUT_MS),
        _SQL.query_only,
        _SQL.cells,
        _SQL.temporary,
    )


def plan(
    marks: Sequence[FileBound],
    options: ReadOptions,
    columns: tuple[Column, ...],
    *,
    whole: bool = False,
) -> list[ScanTask]:
    """The tasks of a scan. With `whole` a file that lacks a row in its range is an error."""
    table = options.table
    if options.tables.check is not None:
        options.tables.check(marks, options)
    wanted = [mark for mark in marks if options.conditions.allow(SPACE, mark.space)]
    parts: Iterator[tuple[int, Piece]]
    if table.folded:
        read, fold = options.tables.table(table.reads).chosen(), table.fold
        parts = (options.tables.folded_parts or _folded_parts)(wanted, options)
    else:
        read, fold = columns, ""
        parts = raw_parts(wanted, options, columns, whole=whole)
    return [
        ScanTask(
            pieces=tuple(pieces),
            columns=read,
            setup=setup(),
            attach=ATTACH,
            detach=DETACH,
            batch_rows=options.batch_rows,
            fold=fold,
            kept=columns,
        )
        for pieces in packed(parts, task_bytes(options))
    ]


def task_bytes(options: ReadOptions) -> int:
    """About how many bytes one task reads."""
    if options.table.folded:
        return max(1, options.partition_bytes // limits.SOURCE_FOLD_SHARE)
    return options.partition_bytes


def packed(parts: Iterable[tuple[int, T]], most: int) -> Iterator[list[T]]:
    """Neighbours together until a task has enough; each brings the cost of opening its file."""
    ready: list[T] = []
    size = 0
    for cost, piece in parts:
        whole = cost + limits.SOURCE_FILE_COST_BYTES
        if ready and size + whole > most:
            yield ready
            ready, size = [], 0
        ready.append(piece)
        size += whole
    if ready:
        yield ready


@dataclass(frozen=True, slots=True)
class _Range:
    """A part of a file: keys beyond `after` and up to `upto`, seqs beyond `since`, up to `seq`."""

    since: int
    seq: int
    after: tuple[Any, ...] | None = None
    upto: tuple[Any, ...] | None = None
    last_branch: str | None = None
    """The greatest branch of the file, if it was asked for."""

    @property
    def branch(self) -> str | None:
        """The one branch that all rows of the part are on, if that is known."""
        if self.after is None and self.upto is None:
            return None
        lowest = "" if self.after is None else self.after[0]
        greatest = self.last_branch if self.upto is None else self.upto[0]
        return str(lowest) if lowest == greatest else None


def raw_parts(
    marks: Sequence[FileBound],
    options: ReadOptions,
    columns: tuple[Column, ...],
    *,
    whole: bool = False,
) -> Iterator[tuple[int, Piece]]:
    """The queries of a table that lies in its files, each with about how many bytes it reads."""
    table = options.table
    for mark in marks:
        wanted = bounds_of(mark, options)
        if wanted is None:
            continue
        recent = is_recent(mark, table, wanted)
        ranges = list(_ranges(mark, options, wanted, recent=recent))
        guard = _complete(mark, options, whole=whole)
        for each in ranges:
            made = pieces(mark, options, columns, each, recent=recent)
            for one in made:
                cost = _cost(mark, wanted, recent=recent) // len(ranges) // len(made)
                yield cost, replace(one, guard=guard)


def _complete(mark: FileBound, options: ReadOptions, *, whole: bool) -> Guard:
    """Check that no rows were removed: none at all with `whole`, else none since the cut."""
    after = mark.since if whole else max(mark.since, mark.horizon)
    return Guard(
        options.tables.kinds[mark.kind].queries.whole_after,
        (after,),
        f"a collection removed rows after seq {after}",
    )


def bounds_of(mark: FileBound, options: ReadOptions) -> _Range | None:
    """The seqs that are wanted of a file; None when there are none."""
    table, since, seq = options.table, mark.since, mark.seq
    if table.position is not None:
        low, high = options.conditions.bounds(table.position)
        since = max(since, low)
        seq = seq if high is None else min(seq, high)
        if since >= seq and not (table.position == "created_seq" and mark.since == 0):
            return None
    return _Range(since, seq)


def is_recent(mark: FileBound, table: Table, whole: _Range) -> bool:
    return table.recent is not None and (whole.seq - whole.since) * _RECENT_SHARE < mark.seq


def _cost(mark: FileBound, whole: _Range, *, recent: bool) -> int:
    """About how many bytes are read."""
    if recent:
        return mark.bytes * (whole.seq - whole.since) // max(mark.seq, 1)
    return mark.bytes


def _ranges(
    mark: FileBound, options: ReadOptions, whole: _Range, *, recent: bool
) -> Iterator[_Range]:
    table = options.table
    count = part_count(_cost(mark, whole, recent=recent), options.partition_bytes)
    if count <= 1 or any(options.conditions.on(name) for name in LOOKED_UP):
        yield whole
    elif recent or table.by_position:
        width = max(1, -(-(whole.seq - whole.since) // count))
        for low in range(whole.since, whole.seq, width):
            yield _Range(low, min(low + width, whole.seq))
    elif table.key:
        queries = options.tables.kinds[mark.kind].queries
        keys = _keys(mark, queries, count)
        [(last,)] = cuts.rows(mark, queries.last_branch)
        for after, upto in zip([None, *keys], [*keys, None], strict=True):
            yield _Range(whole.since, whole.seq, after, upto, last)
    else:
        yield whole


def part_count(cost: int, most: int) -> int:
    """Into how many parts a file is cut: an even number of them, of about the same size, so that
    not one is left over at the end for a single core.
    """
    count = -(-cost // most)
    return count + count % 2 if count > 1 else count


def _keys(mark: FileBound, queries: Queries, count: int) -> list[tuple[Any, ...]]:
    """Keys between the parts of a file, so that each part has about as many entities."""
    [(heads,)] = cuts.rows(mark, queries.heads)
    width = -(-heads // count)
    found: list[tuple[Any, ...]] = []
    after: tuple[Any, ...] = ("", "")
    while width > 1 and len(found) < count - 1:
        row = cuts.rows(mark, queries.next_bound, (*after, width - 1))
        if not row:
            break
        after = tuple(row[0])
        found.append(after)
    return found


def pieces(
    mark: FileBound,
    options: ReadOptions,
    columns: tuple[Column, ...],
    part: _Range,
    *,
    recent: bool = False,
) -> list[Piece]:
    """The queries of one part of one file: one, but where a table is spread over many."""
    table, kind = options.table, options.tables.kinds[mark.kind]
    queries, conditions = kind.queries, options.conditions.without(SPACE)
    texts, parameters = _bounds(table, part)
    more, values = as_sql(
        [each for each in conditions if each.column != table.position or each.sign == "in"],
        len(parameters) + 1,
    )
    if table.key and any(each.column == "id" and each.sign in {"=", "in"} for each in conditions):
        more.append(queries.each_branch)
    constants: dict[str, Any] = {SPACE: mark.space, ROOT: mark.root}
    if table.key and part.branch is not None:
        # What all rows have in common is not read from each of them.
        constants[table.key[0]] = part.branch
    own = tuple(column for column in columns if column.name not in constants)
    first = table.recent if recent and table.recent else table.query
    named = [getattr(queries, name) for name in (first, table.also) if name]
    groups: Iterable[tuple[str, ...]] = [tuple(named)]
    if kind.spread is not None:
        groups = kind.spread(mark, options, conditions, named[0])
    return [
        Piece(
            mark.path,
            _around(queries, group, own or table.smallest, texts + more).replace(
                CUT_MARK, str(mark.seq)
            ),
            (*parameters, *values),
            tuple(constants.items()),
        )
        for group in groups
    ]


def _bounds(table: Table, part: _Range) -> tuple[list[str], list[Any]]:
    parameters: list[Any] = [part.since, part.seq]
    if table.position is None:
        # The two are bound all the same; a query may not leave a number out.
        texts = ["?1 <= max(?1, ?2)"]
    else:
        texts = [f'"{table.position}" > ?1', f'"{table.position}" <= ?2']
    if table.position == "created_seq":
        # The default branch was there before the first commit.
        texts[0] = f'("{table.position}" > ?1 OR ?1 = 0)'
    more, values = _between(table.key, part, len(parameters) + 1)
    return texts + more, parameters + values


def _between(key: Sequence[str], part: _Range, first: int) -> tuple[list[str], list[Any]]:
    """The keys of a part. Where all of them are on one branch that is said, since SQLite then looks
    up both ends and compares no row with them.
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
    """Queries with what is put around them: the chosen columns, cast where SQLite does
    not keep to a type by itself, and the conditions.
    """
    casts = [(column.name, _CASTS[column.type]) for column in columns]
    chosen = ", ".join(
        f'"{name}"' if column.plain else f'CAST("{name}" AS {cast}) AS "{name}"'
        for column, (name, cast) in zip(columns, casts, strict=True)
    )
    wanted = " AND ".join(conditions)
    parts = [
        templates.part.format(columns=chosen, query=query, conditions=wanted) for query in queries
    ]
    samples = ", ".join(f'{_SAMPLES[cast]} AS "{name}"' for name, cast in casts)
    return templates.scan.format(samples=samples, parts=" ".join(parts))


def _folded_parts(marks: Sequence[FileBound], options: ReadOptions) -> Iterator[tuple[int, Piece]]:
    """For every line of history that is wanted, the rows that its readers see, in fold order."""
    branches = options.conditions.on("branch")
    for mark, found in lines(marks, options):
        for line in found:
            if all(each.holds(line.branch) for each in branches):
                for part, share in _folded_ranges(mark, options):
                    yield mark.bytes // share, folded_piece(mark, options, line, part)


def _folded_ranges(
    mark: FileBound, options: ReadOptions
) -> Iterator[tuple[tuple[str | None, str | None], int]]:
    count = part_count(mark.bytes, task_bytes(options))
    if count <= 1 or options.conditions.on("id"):
        yield (None, None), 1
        return
    queries = options.tables.kinds[mark.kind].queries
    ids = sorted({key[1] for key in _keys(mark, queries, count)})
    for after, upto in zip([None, *ids], [*ids, None], strict=True):
        yield (after, upto), len(ids) + 1


def folded_piece(
    mark: FileBound,
    options: ReadOptions,
    line: Line,
    part: tuple[str | None, str | None] = (None, None),
) -> Piece:
    """The rows of one line that matter to the fold, those of an entity together and in the order
    of the log.
    """
    wanted = [
        Condition("id", sign, (key,))
        for sign, key in ((">", part[0]), ("<=", part[1]))
        if key is not None
    ]
    wanted += options.conditions.on("id")
    sql, parameters = relevant(
        options.tables.kinds[mark.kind].queries,
        line.links,
        versions=options.table_name == "history",
        since=max(mark.since, line.since),
        conditions=lambda first: as_sql(wanted, first),
    )
    return Piece(
        mark.path,
        sql,
        tuple(parameters),
        ((SPACE, mark.space), (ROOT, mark.root), ("branch", line.branch)),
        max(mark.since, line.since),
        _guard(mark, options, line),
    )


def _guard(mark: FileBound, options: ReadOptions, line: Line) -> Guard:
    """A state is right only while a collection has not given it up, nor the versions before it."""
    queries = options.tables.kinds[mark.kind].queries
    if options.table_name == "history":
        return Guard(
            queries.whole_after,
            (line.since + 1,),
            f"a collection gave up versions beyond seq {line.since}",
        )
    where = f"the branch {line.branch!r}" if line.branch else "the default branch"
    return Guard(
        queries.readable,
        (line.branch, mark.seq),
        f"how {where} was at seq {mark.seq} was given up by a collection",
    )
