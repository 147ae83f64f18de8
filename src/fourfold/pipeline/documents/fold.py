"""The fold of documents over Arrow batches: the very function that answers one read, for all
entities at once.

Rows come in the shape of the table `operations`, those of one entity together and in the order of
the log. What goes out are states:

    fold_state      for each entity the last one
    fold_history    for each entity the one after each commit that touched it

One entity is in memory at a time, and of its log no more than a bounded part, however long it is;
an entity may begin in one batch and end many batches later. A document that no patch followed is
passed on as the text that came: `fold_state` finds these rows by columns, and makes no Python
object of them. Python sees only what is patched.

A snapshot is a row with the operation `snapshot`. It stands behind the operations of its commit,
and whatever stands before it is not needed.

The fold of documents over any DataFrame of operations, wherever its rows come from.

The source's own tables `state` and `history` fold file by file, in the order in which the rows lie
there. This module is for rows that lie in no order: it resolves branches by a join, lets Spark drop
the rows that later ones make void before Python sees any, brings the rows of each entity together,
and folds them with the very same function.

    state(spark, root=..., branch="draft", at=40)      as .option("table", "state") would give it
    newest(operations)                                 the same of a DataFrame that you have

One entity of a million revisions does not stop it: Spark's sort and window spill to disk, and the
fold streams.

Lines of history: which branches a reader of a branch sees, and how far into each.

The rule is that of `models.documents.chain`: nearest first, and the caps only ever shrink. Here it
is worked out for many files, at the cut of each.
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

    from fourfold.pipeline.cut import Cut, FileBound
    from fourfold.pipeline.options import ReadOptions


SNAPSHOT: Final = "snapshot"
"""The operation of a row that holds a whole document without being part of the log."""
KEY: Final = ("space", "branch", "id")
"""What rows of one entity have in common; `branch` is the one that is read, not the one that
wrote.
"""

_Key = tuple[str, ...]
_Row = tuple[_Key, int, str, str | None]
_Folded = tuple[Any, ...]
"""The key, the seq, the operation and the document."""
_key_of = itemgetter(0)


def fold_state(
    batches: Iterable[pa.RecordBatch], key: Sequence[str] = KEY
) -> Iterator[pa.RecordBatch]:
    """The newest state of every entity; a deleted one is a row too."""
    schema = folded_schema(key)
    under_way: _Entity | None = None
    for batch in batches:
        if not batch.num_rows:
            continue
        part = _Part(batch, key)
        bounds = part.bounds
        first = 0
        if under_way is not None and part.key_at(0) == under_way.key:
            under_way.take(part.rows(0, bounds[1]))
            first = 1
            if len(bounds) == 2:
                continue
        # The last entity may go on in the next batch.
        if under_way is not None:
            yield _batch([under_way.newest()], schema)
        yield from _small(part.newest(first, len(bounds) - 2, schema))
        under_way = _Entity(part.key_at(bounds[-2]))
        under_way.take(part.rows(bounds[-2], bounds[-1]))
    if under_way is not None:
        yield _batch([under_way.newest()], schema)


def fold_history(
    batches: Iterable[pa.RecordBatch], key: Sequence[str] = KEY
) -> Iterator[pa.RecordBatch]:
    """The state of every entity after each commit that touched it.

    A snapshot says nothing new where the log before it is there. Where that was left out, it is
    the first version, and what the next one builds on.
    """
    groups = groupby(_rows(batches, key), _key_of)
    return _batches((version for each, group in groups for version in _versions(each, group)), key)


def folded_schema(key: Sequence[str] = KEY) -> pa.Schema:
    """The schema of states, in Arrow's words."""
    import pyarrow as pa  # noqa: PLC0415 - an optional dependency

    texts = [(name, pa.string()) for name in key]
    return pa.schema([*texts, ("seq", pa.int64()), ("op", pa.string()), ("document", pa.string())])


def folded_ddl(key: Sequence[str] = KEY) -> str:
    """The schema of states, in Spark's words."""
    return ", ".join(
        [*(f"{name} string" for name in key), "seq bigint, op string, document string"]
    )


def _rows(batches: Iterable[pa.RecordBatch], key: Sequence[str]) -> Iterator[_Row]:
    for batch in batches:
        keys = zip(*(batch.column(name).to_pylist() for name in key), strict=True)
        rest = (batch.column(name).to_pylist() for name in ("seq", "op", "data"))
        yield from zip(keys, *rest, strict=True)


class _Part:
    """A batch, and where in it each entity begins and ends."""

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
        columns = (each.slice(begin, end - begin) for each in (self._seq, self._op, self._data))
        return zip(
            repeat(self.key_at(begin), end - begin),
            *(column.to_pylist() for column in columns),
            strict=True,
        )

    def newest(self, first: int, last: int, schema: pa.Schema) -> pa.RecordBatch:
        """The newest states of the entities from `first` on, up to and without `last`.

        Where the newest row is a whole document, or a delete, it is the state. The others end with
        a patch, and only their documents are worked out, from the last whole one on.
        """
        import numpy as np  # noqa: PLC0415 - comes with pyspark, an optional dependency
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.compute as pc  # noqa: PLC0415

        newest = np.asarray(self.bounds[first + 1 : last + 1], dtype=np.int64) - 1
        whole = _plain(pc.equal(self._op, SNAPSHOT))
        given = _plain(self._data.is_valid())
        whole |= _plain(pc.equal(self._op, "set")) & given
        whole |= _plain(pc.equal(self._op, "delete")) & ~given
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
        """The documents of the entities whose newest rows these are."""
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
        found: list[str | None] = []
        for low, high in zip(begin[newest].tolist(), newest.tolist(), strict=True):
            if orderly and ops[low] in _DOCUMENTS:
                text = _replayed(texts[low], texts[low + 1 : high + 1])
                if text is not None:
                    found.append(text)
                    continue
            entity = _Entity(self.key_at(low))
            entity.take(self.rows(low, high + 1))
            found.append(entity.newest()[-1])
        return found


_DOCUMENTS: Final = frozenset(("set", SNAPSHOT))


def _replayed(whole: str | None, patches: list[str | None]) -> str | None:
    """The text of a document after its patches; None when something is wrong with one of them,
    which the fold says best.
    """
    try:
        draft = Draft(decode(whole or ""))
        # As one long list: a list costs as much as a patch.
        steps = chain.from_iterable([_program(each).steps for each in patches])
        draft.apply(Program(tuple(steps)))
        return trusted(draft.take())
    except (TypeError, ValueError, InvalidInput):
        return None


def _program(text: str | None) -> Program:
    """The patches of a row. A log has the same short ones again and again, so these are kept."""
    if text is not None and len(text) <= limits.FOLD_PROGRAM_CHARS_MAX:
        return _short_program(text)
    return compile(decode(text or ""), stored=True)


@lru_cache(maxsize=limits.FOLD_PROGRAMS_REMEMBERED_MAX)
def _short_program(text: str) -> Program:
    return compile(decode(text), stored=True)


def _plain(mask: pa.Array) -> np.ndarray[Any, Any]:
    """A column of truths; what is null is not true."""
    return mask.fill_null(False).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


class _Entity:
    """What is left of an entity as its rows come. Texts wait undecoded, because a later row may
    make them void, but not too many of them.
    """

    __slots__ = ("_base", "_chars_left", "_waiting", "key")

    def __init__(self, key: _Key) -> None:
        self.key = key
        self._base: State | None = None
        self._waiting: list[_Row] = []
        self._chars_left = limits.FOLD_WAITING_CHARS

    def take(self, rows: Iterable[_Row]) -> None:
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
    shown: _Row | None = None
    for row in rows:
        _, seq, op, _ = row
        if op == SNAPSHOT and state is not None and state.seq == seq:
            continue
        if state is not None and shown is not None and shown[1] != seq:
            yield _version(shown, state)
        state = _whole(key, row) if op == SNAPSHOT else _folded(key, state, [row])
        shown = row
    if state is not None and shown is not None:
        yield _version(shown, state)


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
        raise _named(key, CorruptData(f"stored text is not JSON any more: {error}")) from error
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
        raise _named(key, CorruptData(f"the snapshot at seq {row[1]} holds no document"))
    return State(document, "patch", row[1])


def _text(state: State) -> str | None:
    return None if state.document is None else trusted(state.document)


def _named(key: _Key, error: CorruptData) -> CorruptData:
    *where, branch, entity = key
    return CorruptData(
        f"{' '.join(where)}: {entity!r} on the branch {branch!r}: {error.message}",
        details={"space": where[-1], "branch": branch, "id": entity},
    )


def _small(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in parts that are not large, so that a worker's memory is bounded."""
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
    """The rows in batches that are neither long nor large, so that a worker's memory is bounded."""
    schema = folded_schema(key)
    ready: list[_Folded] = []
    size = 0
    for row in rows:
        ready.append(row)
        size += len(row[-1] or "")
        if len(ready) >= limits.FOLD_BATCH_ROWS or size >= limits.FOLD_BATCH_CHARS:
            yield _batch(ready, schema)
            ready, size = [], 0
    if ready:
        yield _batch(ready, schema)


def _batch(rows: list[_Folded], schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415 - an optional dependency

    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


SHUFFLED_KEY: Final = (ROOT, SPACE, "branch", "id")
"""The same space may lie in two stores, for instance as a copy."""
COLUMNS: Final = (*SHUFFLED_KEY, "seq", "op_index", "op", "data")
LINES: Final = f"{ROOT} string, {SPACE} string, read string, branch string, cap bigint"
"""Which branch a reader of the branch `read` sees, and how far."""


def state(spark: SparkSession, **options: Any) -> DataFrame:
    """Every entity that a branch shows. Options are those of the source."""
    return newest(visible_operations(spark, **options))


def history(spark: SparkSession, **options: Any) -> DataFrame:
    """Every version of every entity that a branch shows."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - an optional dependency

    asked, cut = _cut({**options, "table": "history"})
    rows = _visible(spark, asked, cut)
    given_up = [
        (mark.root, mark.space, line.since)
        for mark, lines in _lines_of(cut.marks, asked)
        for line in lines[:1]
        if line.since
    ]
    if not given_up:
        return versions(rows)
    begin = spark.createDataFrame(given_up, f"{ROOT} string, {SPACE} string, since bigint")

    def with_since(frame: DataFrame) -> DataFrame:
        met = frame.join(f.broadcast(begin), [ROOT, SPACE], "left")
        return met.withColumn("since", f.coalesce("since", f.lit(0)))

    # What a collection left of the log before the first version is not whole.
    first = (f.col("since") > 0) & (f.col("seq") <= f.col("since") + 1)
    whole = _from_last(with_since(rows), (f.col("op") != "patch") & first, SHUFFLED_KEY).drop(
        "since"
    )
    return with_since(versions(whole)).where(f.col("seq") > f.col("since")).drop("since")


def newest(operations: DataFrame, key: Sequence[str] = SHUFFLED_KEY) -> DataFrame:
    """The newest state of each entity of `operations`, whose `branch` is the one that is read."""
    rows = relevant(operations, key)
    return rows.mapInArrow(partial(_fold_state, key=tuple(key)), folded_ddl(key))


def versions(operations: DataFrame, key: Sequence[str] = SHUFFLED_KEY) -> DataFrame:
    """The state of each entity after each commit that touched it."""
    rows = operations.repartition(*key).sortWithinPartitions(*key, "seq", "op_index")
    return rows.mapInArrow(partial(_fold_history, key=tuple(key)), folded_ddl(key))


def relevant(operations: DataFrame, key: Sequence[str] = SHUFFLED_KEY) -> DataFrame:
    """The rows that make a difference to the newest state: from the last whole document of each
    entity on. They come out together and in order.

    A window finds them in one pass over rows that must be brought together and sorted anyway. To
    find the last whole documents by an aggregation, and to join them back, was no faster and reads
    everything twice.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - an optional dependency

    return _from_last(operations, f.col("op") != "patch", key)


def _from_last(rows: DataFrame, wanted: Column, key: Sequence[str]) -> DataFrame:
    """Of each entity the rows from the last wanted one on; all where there is none."""
    from pyspark.sql import Window  # noqa: PLC0415 - an optional dependency
    from pyspark.sql import functions as f  # noqa: PLC0415

    place = f.struct("seq", "op_index")
    of_entity = (
        Window.partitionBy(*key)
        .orderBy("seq", "op_index")
        .rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    )
    last = f.max(f.when(wanted, place)).over(of_entity)
    marked = rows.repartition(*key).withColumn("last", last)
    return marked.where(f.col("last").isNull() | (place >= f.col("last"))).drop("last")


def visible_operations(spark: SparkSession, **options: Any) -> DataFrame:
    """The operations that a reader of a branch sees, `branch` being the one that is read.

    They are found by a join with the lines of history on (branch, cap); only the default branch,
    which has no ancestors, needs none.
    """
    asked, cut = _cut({**options, "table": "state"})
    _refuse_given_up(cut, asked)
    return _visible(spark, asked, cut)


def _cut(options: Mapping[str, Any]) -> tuple[ReadOptions, Cut]:
    from fourfold.pipeline import cut as cuts  # noqa: PLC0415 - it opens files through the kernel
    from fourfold.pipeline.options import read_options  # noqa: PLC0415

    asked = read_options({name: str(each) for name, each in options.items()})
    if asked.since is not None:
        raise InvalidInput("a fold needs the log from its beginning", hint="Filter the result.")
    cut = cuts.read_cut(asked)
    return asked, replace(cut, marks=tuple(replace(mark, since=0) for mark in cut.marks))


def _refuse_given_up(cut: Cut, asked: ReadOptions) -> None:
    """The source's own `state` also knows the points that a collection kept below its horizon."""
    from fourfold.pipeline import cut as cuts  # noqa: PLC0415 - it opens files through the kernel

    for mark in cut.marks:
        [(horizon,)] = cuts.fetch_rows(mark, asked.tables.kinds[mark.kind].queries.horizon)
        if mark.seq < horizon:
            raise HistoryTruncated(
                f"{mark.path}: how it was at seq {mark.seq} was given up by a collection, "
                f"which keeps the history of this space from seq {horizon} on",
                details={"horizon": horizon, "path": mark.path},
            )


def _visible(spark: SparkSession, asked: ReadOptions, cut: Cut) -> DataFrame:
    from pyspark.sql import functions as f  # noqa: PLC0415 - an optional dependency

    source = spark.read.format("fourfold").option("table", "operations")
    source = source.option("cut", cut.token()).option("columns", ",".join(COLUMNS))
    for name in ("root", "roots"):
        if getattr(asked, name) is not None:
            source = source.option(name, getattr(asked, name))
    rows = source.load()
    if not asked.branch:
        return rows.where(f.col("branch") == "")
    links = [
        (mark.root, mark.space, line.branch, link.branch, link.cap)
        for mark, found in _lines_of(cut.marks, asked)
        for line in found
        for link in line.links
    ]
    lines = spark.createDataFrame(links, LINES)
    met = rows.join(f.broadcast(lines), [ROOT, SPACE, "branch"]).where(f.col("seq") <= f.col("cap"))
    return met.withColumn("branch", f.col("read")).select(*COLUMNS)


def _lines_of(
    marks: Sequence[FileBound], asked: ReadOptions
) -> Iterator[tuple[FileBound, list[Line]]]:

    return lines(marks, asked)


def _fold_state(
    batches: Iterator[pa.RecordBatch], key: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    return fold_state(batches, key)


def _fold_history(
    batches: Iterator[pa.RecordBatch], key: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    return fold_history(batches, key)


class Link(NamedTuple):
    """A branch, and the newest seq of it that is visible."""

    branch: str
    cap: int


class Line(NamedTuple):
    """What is visible on `branch`: nearest first. Versions begin beyond the seq `since`."""

    branch: str
    links: tuple[Link, ...]
    since: int = 0


def lines(
    marks: Sequence[FileBound], options: ReadOptions
) -> Iterator[tuple[FileBound, list[Line]]]:
    """For each file the lines that are wanted of it: one branch, or every branch that existed.

    A file without the branch has none; when no file has it, the name is wrong.
    """
    known = not marks
    for mark in marks:
        default = [Line("", (Link("", mark.seq),))]
        found = of_file(mark, options) if options.branch else default
        known = known or bool(found)
        if options.table_name == "history":
            since = beginning(mark, options)
            found = [line._replace(since=since) for line in found]
        yield mark, found
    if not known:
        raise _unknown_branch(options)


def check_branch(marks: Sequence[FileBound], options: ReadOptions) -> None:
    """Refuse a branch that no file has; files after the first that has it are not opened."""
    if marks and not any(of_file(mark, options) for mark in marks):
        raise _unknown_branch(options)


def _unknown_branch(options: ReadOptions) -> NotFound:
    return NotFound(
        f"no space of {options.location} has a branch {options.branch!r} at that point",
        hint="`fourfold space branch list` names the branches of a space.",
    )


def beginning(mark: FileBound, options: ReadOptions) -> int:
    """The seq beyond which a file has every version. Who asks for more is refused."""
    [(horizon,)] = cuts.fetch_rows(mark, options.tables.kinds[mark.kind].queries.horizon)
    least = max(int(horizon) - 1, 0)
    if options.since is not None and mark.since < least:
        raise HistoryTruncated(
            f"{mark.path}: versions beyond seq {mark.since} were given up: "
            f"a collection keeps the history of this space from seq {horizon} on",
            details={"horizon": horizon, "path": mark.path},
        )
    return max(mark.since, least)


def of_file(mark: FileBound, options: ReadOptions) -> list[Line]:
    rows = cuts.fetch_rows(mark, options.tables.kinds[mark.kind].queries.branch_lines, (mark.seq,))
    parents = {name: (parent, fork) for name, parent, fork in rows}
    if options.branch != ALL_BRANCHES:
        parents_wanted = [options.branch] if options.branch in parents else []
    else:
        parents_wanted = sorted(parents)
    found = []
    for branch in parents_wanted:
        links = [Link(branch, mark.seq)]
        parent, fork = parents[branch]
        while parent is not None and fork is not None:
            links.append(Link(parent, min(links[-1].cap, fork)))
            if parent not in parents or len(links) > limits.BRANCH_DEPTH_MAX + 1:
                raise CorruptData(f"{mark.path}: the branch {branch!r} has no beginning")
            parent, fork = parents[parent]
        found.append(Line(branch, tuple(links)))
    return found
