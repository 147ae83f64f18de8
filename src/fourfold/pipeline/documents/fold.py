"""The fold of documents over Arrow batches and DataFrames.

The fold is the function that also answers a single read, applied to all entities at once. Rows have
the columns of the table `operations`; the rows of one entity are consecutive and in log order. The
result are states:

    fold_state      for each entity the newest one
    fold_history    for each entity the one after each commit that touched it

One entity is in memory at a time, and only a bounded part of its log, however long it is; an entity
may begin in one batch and end many batches later. A document without later patches is passed
through as text: `fold_state` finds these rows by column operations, without Python objects. Python
only handles patched documents.

A snapshot is a row with the operation `snapshot`. It follows the operations of its commit and
replaces everything before it.

The tables `state` and `history` of the source fold file by file, in the stored order of the rows.
`state()` and `newest()` here fold rows in any order: they resolve branches by a join, let Spark
drop superseded rows before they reach Python, bring the rows of each entity together, and apply the
same fold.

    state(spark, root=..., branch="draft", at=40)      equals .option("table", "state")
    newest(operations)                                 folds your own DataFrame

An entity with a million revisions is no problem: Spark's sort and window spill to disk, and the
fold streams.

A line of history lists the branches that a reader of a branch sees, and the cap of each. The rule
is that of `models.documents.chain`: nearest first, and caps only decrease.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import chain, groupby, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fourfold import limits
from fourfold.errors import CorruptData, HistoryTruncated, InvalidInput, NotFound
from fourfold.models.documents import fold
from fourfold.models.documents.encoding import decode, stored, trusted
from fourfold.models.documents.patch import Draft, Program, compile  # noqa: A004
from fourfold.models.documents.records import State
from fourfold.pipeline import cut as cuts
from fourfold.pipeline.cut import FileBound
from fourfold.pipeline.options import ALL_BRANCHES, ReadOptions
from fourfold.pipeline.tables import ROOT, SPACE

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

    from fourfold.pipeline.cut import Cut


SNAPSHOT: Final = "snapshot"
"""The operation of a row that holds a whole document and is not part of the log."""
KEY: Final = ("space", "branch", "id")
"""Columns that identify an entity; `branch` is the branch being read, not the one that wrote."""

_Key = tuple[str, ...]
_Row = tuple[_Key, int, str, str | None]
_Folded = tuple[Any, ...]
"""The key, the seq, the operation and the document."""
_key_of = itemgetter(0)


def fold_state(
    batches: Iterable[pa.RecordBatch], key: Sequence[str] = KEY
) -> Iterator[pa.RecordBatch]:
    """Yield the newest state of every entity, including deleted ones."""
    schema = folded_schema(key)
    entity: _Entity | None = None
    for batch in batches:
        if not batch.num_rows:
            continue
        part = _Part(batch, key)
        bounds = part.bounds
        first = 0
        if entity is not None and part.key_at(0) == entity.key:
            entity.add(part.rows(0, bounds[1]))
            first = 1
            if len(bounds) == 2:
                continue
        # The last entity may continue in the next batch.
        if entity is not None:
            yield _batch([entity.newest()], schema)
        yield from _small(part.newest(first, len(bounds) - 2, schema))
        entity = _Entity(part.key_at(bounds[-2]))
        entity.add(part.rows(bounds[-2], bounds[-1]))
    if entity is not None:
        yield _batch([entity.newest()], schema)


def fold_history(
    batches: Iterable[pa.RecordBatch], key: Sequence[str] = KEY
) -> Iterator[pa.RecordBatch]:
    """Yield the state of every entity after each commit that touched it.

    A snapshot is redundant if the log before it is complete. If that was removed, it is the first
    version, and the base of the next one.
    """
    groups = groupby(_rows(batches, key), _key_of)
    return _batches(
        (version for entity, group in groups for version in _versions(entity, group)), key
    )


def folded_schema(key: Sequence[str] = KEY) -> pa.Schema:
    """Return the Arrow schema of states."""
    import pyarrow as pa  # noqa: PLC0415 - an optional dependency

    texts = [(name, pa.string()) for name in key]
    return pa.schema([*texts, ("seq", pa.int64()), ("op", pa.string()), ("document", pa.string())])


def folded_ddl(key: Sequence[str] = KEY) -> str:
    """Return the Spark schema of states."""
    return ", ".join(
        [*(f"{name} string" for name in key), "seq bigint, op string, document string"]
    )


def _rows(batches: Iterable[pa.RecordBatch], key: Sequence[str]) -> Iterator[_Row]:
    for batch in batches:
        keys = zip(*(batch.column(name).to_pylist() for name in key), strict=True)
        rest = (batch.column(name).to_pylist() for name in ("seq", "op", "data"))
        yield from zip(keys, *rest, strict=True)


class _Part:
    """A batch and the row bounds of each entity in it."""

    def __init__(self, batch: pa.RecordBatch, key: Sequence[str]) -> None:
        import numpy as np  # noqa: PLC0415 - comes with pyspark, an optional dependency
        import pyarrow.compute as pc  # noqa: PLC0415

        self._batch = batch
        self._keys = [batch.column(name) for name in key]
        self._seq, self._op, self._data = (batch.column(name) for name in ("seq", "op", "data"))
        size = batch.num_rows
        begins = np.ones(size, dtype=bool)
        begins[1:] = False
        for column in self._keys:
            begins[1:] |= _plain(pc.not_equal(column.slice(1), column.slice(0, size - 1)))
        self.bounds: list[int] = [*np.flatnonzero(begins).tolist(), size]
        self._begins = begins

    def key_at(self, row: int) -> _Key:
        return tuple(column[row].as_py() for column in self._keys)

    def rows(self, begin: int, end: int) -> Iterator[_Row]:
        columns = (column.slice(begin, end - begin) for column in (self._seq, self._op, self._data))
        return zip(
            repeat(self.key_at(begin), end - begin),
            *(column.to_pylist() for column in columns),
            strict=True,
        )

    def newest(self, first: int, last: int, schema: pa.Schema) -> pa.RecordBatch:
        """Return the newest states of the entities from `first` up to but excluding `last`.

        If the newest row is a whole document or a delete, it is the state. The other entities end
        with a patch; only their documents are computed, starting at the last whole one.
        """
        import numpy as np  # noqa: PLC0415 - comes with pyspark, an optional dependency
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.compute as pc  # noqa: PLC0415

        newest = np.asarray(self.bounds[first + 1 : last + 1], dtype=np.int64) - 1
        whole = _plain(pc.equal(self._op, SNAPSHOT))
        has_data = _plain(self._data.is_valid())
        whole |= _plain(pc.equal(self._op, "set")) & has_data
        whole |= _plain(pc.equal(self._op, "delete")) & ~has_data
        patched = ~whole[newest]
        at = pa.array(newest)
        documents, ops = self._data.take(at), self._op.take(at)
        if patched.any():
            texts = pa.array(self._folded(newest[patched]), pa.string())
            documents = pc.replace_with_mask(documents, pa.array(patched), texts)
        ops = pc.if_else(pc.equal(ops, SNAPSHOT), "patch", ops)
        keys = (column.take(at) for column in self._keys)
        return pa.RecordBatch.from_arrays(
            [*keys, self._seq.take(at), ops, documents], schema=schema
        )

    def _folded(self, newest: np.ndarray[Any, Any]) -> list[str | None]:
        """Return the documents of the entities with these newest rows."""
        import numpy as np  # noqa: PLC0415 - comes with pyspark, an optional dependency
        import pyarrow.compute as pc  # noqa: PLC0415

        patches = _plain(pc.equal(self._op, "patch"))
        rows = np.arange(len(patches))
        begin = np.maximum.accumulate(np.where(~patches | self._begins, rows, 0))
        seqs = self._seq.to_numpy()
        ordered = np.ones(len(seqs), dtype=bool)
        ordered[1:] = (seqs[1:] >= seqs[:-1]) | self._begins[1:]
        orderly = bool(ordered.all())
        texts = self._data.to_pylist()
        ops = self._op.to_pylist()
        documents: list[str | None] = []
        for low, high in zip(begin[newest].tolist(), newest.tolist(), strict=True):
            if orderly and ops[low] in _DOCUMENTS:
                text = _replayed(texts[low], texts[low + 1 : high + 1])
                if text is not None:
                    documents.append(text)
                    continue
            entity = _Entity(self.key_at(low))
            entity.add(self.rows(low, high + 1))
            documents.append(entity.newest()[-1])
        return documents


_DOCUMENTS: Final = frozenset(("set", SNAPSHOT))


def _replayed(whole: str | None, patches: list[str | None]) -> str | None:
    """Return the text of a document after its patches, or None if one is invalid; the fold then
    raises the precise error.
    """
    try:
        draft = Draft(decode(whole or ""))
        # One long list, because each list costs as much as a patch.
        steps = chain.from_iterable([_program(patch).steps for patch in patches])
        draft.apply(Program(tuple(steps)))
        return trusted(draft.take())
    except (TypeError, ValueError, InvalidInput):
        return None


def _program(text: str | None) -> Program:
    """Compile the patches of a row. Short ones repeat often in a log, so they are cached."""
    if text is not None and len(text) <= limits.FOLD_PROGRAM_CHARS_MAX:
        return _short_program(text)
    return compile(decode(text or ""), stored=True)


@lru_cache(maxsize=limits.FOLD_PROGRAMS_REMEMBERED_MAX)
def _short_program(text: str) -> Program:
    return compile(decode(text), stored=True)


def _plain(mask: pa.Array) -> np.ndarray[Any, Any]:
    """Convert a boolean column to NumPy; null is False."""
    return mask.fill_null(False).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


class _Entity:
    """The pending rows of one entity. Texts stay undecoded, because a later row may supersede them,
    up to a limit.
    """

    __slots__ = ("_base", "_chars_left", "_waiting", "key")

    def __init__(self, key: _Key) -> None:
        self.key = key
        self._base: State | None = None
        self._waiting: list[_Row] = []
        self._chars_left = limits.FOLD_WAITING_CHARS

    def add(self, rows: Iterable[_Row]) -> None:
        rows_max = limits.FOLD_WAITING_ROWS_MAX
        for row in rows:
            if row[2] == "patch":
                self._waiting.append(row)
                self._chars_left -= len(row[3] or "")
                if len(self._waiting) >= rows_max or self._chars_left < 0:
                    self._base, self._waiting = _folded(self.key, self._base, self._waiting), []
                    self._chars_left = limits.FOLD_WAITING_CHARS
            else:
                self._base, self._waiting = None, [row]
                self._chars_left = limits.FOLD_WAITING_CHARS - len(row[3] or "")

    def newest(self) -> _Folded:
        if self._base is None and len(self._waiting) == 1:
            _, seq, op, data = self._waiting[0]
            if op in {"set", "delete"} and (data is None) == (op == "delete"):
                return (*self.key, seq, op, data)
            if op == SNAPSHOT:
                return (*self.key, seq, "patch", data)
        state = _folded(self.key, self._base, self._waiting)
        return (*self.key, state.seq, state.op, _text(state))


def _versions(key: _Key, rows: Iterable[_Row]) -> Iterator[_Folded]:
    state: State | None = None
    last: _Row | None = None
    for row in rows:
        _, seq, op, _ = row
        if op == SNAPSHOT and state is not None and state.seq == seq:
            continue
        if state is not None and last is not None and last[1] != seq:
            yield _version(last, state)
        state = _whole(key, row) if op == SNAPSHOT else _folded(key, state, [row])
        last = row
    if state is not None and last is not None:
        yield _version(last, state)


def _version(row: _Row, state: State) -> _Folded:
    key, seq, op, data = row
    if op in {"set", SNAPSHOT}:
        return (*key, seq, state.op, data)
    return (*key, seq, op, _text(state))


def _folded(key: _Key, base: State | None, rows: list[_Row]) -> State:
    if rows and rows[0][2] == SNAPSHOT:
        base, rows = _whole(key, rows[0]), rows[1:]
    try:
        log = [(seq, op, None if data is None else decode(data)) for _, seq, op, data in rows]
    except (TypeError, ValueError) as error:
        raise _named(key, CorruptData(f"stored text is not valid JSON: {error}")) from error
    try:
        state = fold.fold(base, log)
    except CorruptData as error:
        raise _named(key, error) from error
    assert state is not None
    return state


def _whole(key: _Key, row: _Row) -> State:
    try:
        document = stored(row[3] or "")
    except CorruptData as error:
        raise _named(key, error) from error
    if type(document) is not dict:
        raise _named(key, CorruptData(f"the snapshot at seq {row[1]} is not a document"))
    return State(document, "patch", row[1])


def _text(state: State) -> str | None:
    return None if state.document is None else trusted(state.document)


def _named(key: _Key, error: CorruptData) -> CorruptData:
    *where, branch, entity = key
    return CorruptData(
        f"{' '.join(where)}: {entity!r} on branch {branch!r}: {error.message}",
        details={"space": where[-1], "branch": branch, "id": entity},
    )


def _small(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the batch in parts of limited size, so that a worker's memory is bounded."""
    import pyarrow.compute as pc  # noqa: PLC0415 - an optional dependency

    documents = batch.column(batch.num_columns - 1)
    begin = size = 0
    if (documents.nbytes or 0) > limits.FOLD_BATCH_CHARS:
        for at, length in enumerate(pc.binary_length(documents).to_pylist(), 1):
            size += length or 0
            if size >= limits.FOLD_BATCH_CHARS:
                yield batch.slice(begin, at - begin)
                begin, size = at, 0
    if begin < batch.num_rows:
        yield batch.slice(begin)


def _batches(rows: Iterable[_Folded], key: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of limited length and size, so that memory is bounded."""
    schema = folded_schema(key)
    pending: list[_Folded] = []
    size = 0
    for row in rows:
        pending.append(row)
        size += len(row[-1] or "")
        if len(pending) >= limits.FOLD_BATCH_ROWS or size >= limits.FOLD_BATCH_CHARS:
            yield _batch(pending, schema)
            pending, size = [], 0
    if pending:
        yield _batch(pending, schema)


def _batch(rows: list[_Folded], schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415 - an optional dependency

    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


SHUFFLED_KEY: Final = (ROOT, SPACE, "branch", "id")
"""Includes the root, because two stores may have the same space, for instance as a copy."""
COLUMNS: Final = (*SHUFFLED_KEY, "seq", "op_index", "op", "data")
LINES: Final = f"{ROOT} string, {SPACE} string, read string, branch string, cap bigint"
"""The branches that a reader of the branch `read` sees, and the cap of each."""


def state(spark: SparkSession, **options: Any) -> DataFrame:
    """Return the state of every entity of a branch. Options are those of the source."""
    return newest(visible_operations(spark, **options))


def history(spark: SparkSession, **options: Any) -> DataFrame:
    """Return every version of every entity of a branch."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - an optional dependency

    read, cut = _cut({**options, "table": "history"})
    rows = _visible(spark, read, cut)
    truncated = [
        (bound.root, bound.space, line.since)
        for bound, lines in _lines_of(cut.marks, read)
        for line in lines[:1]
        if line.since
    ]
    if not truncated:
        return versions(rows)
    horizons = spark.createDataFrame(truncated, f"{ROOT} string, {SPACE} string, since bigint")

    def with_since(frame: DataFrame) -> DataFrame:
        joined = frame.join(f.broadcast(horizons), [ROOT, SPACE], "left")
        return joined.withColumn("since", f.coalesce("since", f.lit(0)))

    # The log before the first version is incomplete after gc.
    first = (f.col("since") > 0) & (f.col("seq") <= f.col("since") + 1)
    whole = _from_last(with_since(rows), (f.col("op") != "patch") & first, SHUFFLED_KEY).drop(
        "since"
    )
    return with_since(versions(whole)).where(f.col("seq") > f.col("since")).drop("since")


def newest(operations: DataFrame, key: Sequence[str] = SHUFFLED_KEY) -> DataFrame:
    """Return the newest state of each entity in `operations`, whose `branch` is the one read."""
    rows = relevant(operations, key)
    return rows.mapInArrow(partial(_fold_state, key=tuple(key)), folded_ddl(key))


def versions(operations: DataFrame, key: Sequence[str] = SHUFFLED_KEY) -> DataFrame:
    """Return the state of each entity after each commit that touched it."""
    rows = operations.repartition(*key).sortWithinPartitions(*key, "seq", "op_index")
    return rows.mapInArrow(partial(_fold_history, key=tuple(key)), folded_ddl(key))


def relevant(operations: DataFrame, key: Sequence[str] = SHUFFLED_KEY) -> DataFrame:
    """Return the rows from the last whole document of each entity, grouped and in order.

    A window finds them in one pass over rows that must be grouped and sorted anyway. Finding the
    last whole documents by an aggregation and joining them back was not faster, and reads
    everything twice.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - an optional dependency

    return _from_last(operations, f.col("op") != "patch", key)


def _from_last(rows: DataFrame, matches: Column, key: Sequence[str]) -> DataFrame:
    """Return the rows of each entity from its last match on; all rows if none matches."""
    from pyspark.sql import Window  # noqa: PLC0415 - an optional dependency
    from pyspark.sql import functions as f  # noqa: PLC0415

    position = f.struct("seq", "op_index")
    of_entity = (
        Window.partitionBy(*key)
        .orderBy("seq", "op_index")
        .rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    )
    last = f.max(f.when(matches, position)).over(of_entity)
    with_last = rows.repartition(*key).withColumn("last", last)
    return with_last.where(f.col("last").isNull() | (position >= f.col("last"))).drop("last")


def visible_operations(spark: SparkSession, **options: Any) -> DataFrame:
    """Return the operations that a reader of a branch sees; `branch` is the one read.

    They are found by a join with the lines of history on (branch, cap); the default branch has no
    ancestors and needs none.
    """
    read, cut = _cut({**options, "table": "state"})
    _check_horizon(cut, read)
    return _visible(spark, read, cut)


def _cut(options: Mapping[str, Any]) -> tuple[ReadOptions, Cut]:
    from fourfold.pipeline import cut as cuts  # noqa: PLC0415 - it opens files through the kernel
    from fourfold.pipeline.options import read_options  # noqa: PLC0415

    read = read_options({name: str(value) for name, value in options.items()})
    if read.since is not None:
        raise InvalidInput("option 'since' is not supported by a fold", hint="Filter the result.")
    cut = cuts.read_cut(read)
    return read, replace(cut, marks=tuple(replace(bound, since=0) for bound in cut.marks))


def _check_horizon(cut: Cut, read: ReadOptions) -> None:
    """Raise HistoryTruncated below the horizon. Only the source's own `state` knows the points that
    gc retains there.
    """
    from fourfold.pipeline import cut as cuts  # noqa: PLC0415 - it opens files through the kernel

    for bound in cut.marks:
        [(horizon,)] = cuts.fetch_rows(bound, read.tables.kinds[bound.kind].queries.horizon)
        if bound.seq < horizon:
            raise HistoryTruncated(
                f"{bound.path}: history begins at seq {horizon}, got {bound.seq}",
                details={"horizon": horizon, "path": bound.path},
            )


def _visible(spark: SparkSession, read: ReadOptions, cut: Cut) -> DataFrame:
    from pyspark.sql import functions as f  # noqa: PLC0415 - an optional dependency

    source = spark.read.format("fourfold").option("table", "operations")
    source = source.option("cut", cut.token()).option("columns", ",".join(COLUMNS))
    for name in ("root", "roots"):
        if getattr(read, name) is not None:
            source = source.option(name, getattr(read, name))
    rows = source.load()
    if not read.branch:
        return rows.where(f.col("branch") == "")
    links = [
        (bound.root, bound.space, line.branch, link.branch, link.cap)
        for bound, file_lines in _lines_of(cut.marks, read)
        for line in file_lines
        for link in line.links
    ]
    lines = spark.createDataFrame(links, LINES)
    joined = rows.join(f.broadcast(lines), [ROOT, SPACE, "branch"]).where(
        f.col("seq") <= f.col("cap")
    )
    return joined.withColumn("branch", f.col("read")).select(*COLUMNS)


def _lines_of(
    bounds: Sequence[FileBound], options: ReadOptions
) -> Iterator[tuple[FileBound, list[Line]]]:
    return lines(bounds, options)


def _fold_state(
    batches: Iterator[pa.RecordBatch], key: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    return fold_state(batches, key)


def _fold_history(
    batches: Iterator[pa.RecordBatch], key: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    return fold_history(batches, key)


class Link(NamedTuple):
    """A branch and the newest seq of it that is visible."""

    branch: str
    cap: int


class Line(NamedTuple):
    """The branches visible on `branch`, nearest first. Versions begin after the seq `since`."""

    branch: str
    links: tuple[Link, ...]
    since: int = 0


def lines(
    bounds: Sequence[FileBound], options: ReadOptions
) -> Iterator[tuple[FileBound, list[Line]]]:
    """Yield the selected lines of each file: one branch, or every branch that existed.

    A file without the branch has no line; if no file has it, NotFound is raised.
    """
    known = not bounds
    for bound in bounds:
        default = [Line("", (Link("", bound.seq),))]
        selected = file_lines(bound, options) if options.branch else default
        known = known or bool(selected)
        if options.table_name == "history":
            since = first_complete_seq(bound, options)
            selected = [line._replace(since=since) for line in selected]
        yield bound, selected
    if not known:
        raise _unknown_branch(options)


def check_branch(bounds: Sequence[FileBound], options: ReadOptions) -> None:
    """Raise NotFound if no file has the branch; files after the first match are not opened."""
    if bounds and not any(file_lines(bound, options) for bound in bounds):
        raise _unknown_branch(options)


def _unknown_branch(options: ReadOptions) -> NotFound:
    return NotFound(
        f"{options.location}: unknown branch {options.branch!r} at that point",
        hint="Run `fourfold space branch list` to list the branches of a space.",
    )


def first_complete_seq(bound: FileBound, options: ReadOptions) -> int:
    """Return the seq after which a file has every version; raise if `since` is earlier."""
    [(horizon,)] = cuts.fetch_rows(bound, options.tables.kinds[bound.kind].queries.horizon)
    lowest = max(int(horizon) - 1, 0)
    if options.since is not None and bound.since < lowest:
        raise HistoryTruncated(
            f"{bound.path}: history begins at seq {horizon}, got since {bound.since}",
            details={"horizon": horizon, "path": bound.path},
        )
    return max(bound.since, lowest)


def file_lines(bound: FileBound, options: ReadOptions) -> list[Line]:
    """Return the selected lines of one file."""
    rows = cuts.fetch_rows(
        bound, options.tables.kinds[bound.kind].queries.branch_lines, (bound.seq,)
    )
    parents = {name: (parent, fork) for name, parent, fork in rows}
    if options.branch != ALL_BRANCHES:
        selected = [options.branch] if options.branch in parents else []
    else:
        selected = sorted(parents)
    result = []
    for branch in selected:
        links = [Link(branch, bound.seq)]
        parent, fork = parents[branch]
        while parent is not None and fork is not None:
            links.append(Link(parent, min(links[-1].cap, fork)))
            if parent not in parents or len(links) > limits.BRANCH_DEPTH_MAX + 1:
                raise CorruptData(f"{bound.path}: branch {branch!r} has no root")
            parent, fork = parents[parent]
        result.append(Line(branch, tuple(links)))
    return result
