"""The registry of the tables that the source can read: what each model plugs in.

A model has a package `pipeline/<model>/` whose `tables.py` makes one `ModelTables`, and a line in
`MODELS` below. It supplies:

    folder, suffix    where its files lie in a store
    kinds             for each name that its databases carry: profile, migrations, the counter
                      whose newest number is the cut, how a moment becomes such a number, and a
                      file of named queries
    tables            names, columns with types, and the name of the query that gives the rows

The queries that every kind has, besides one for each table: `scan` and `part`, which are put around
the others, and `whole_after`, which says whether every row beyond a number is still there (streams
ask). The parameters ?1 and ?2 of a query bound the rows that are wanted; `{cut}` in its text
becomes the number at which the file is cut, for rows that have changed since.

Two kinds of table. A *raw* one is a query over a file. A *folded* one is made by a function over
Arrow batches, `fold`, in Spark's workers: it gets the rows of the table that `reads` names, as the
model's `folded_parts` asks for them, and calls the model's own fold; what a piece is `told` is its
second argument. A table whose rows lie in as
many tables of the file as there are apps, say, is spread by the kind's `spread`.

A stream needs no more than a table with a `counted` query. The source does the rest (finding files,
cuts, partitions, conditions, pruning, offsets) for every model alike.

What a model does for the jobs that cover it are modules of its package, found by their names:

    verifying.py     verify        units(file), faults(unit)
    marking.py       gc            KINDS, NOUN, looked_at, marked(file, grace_s), collected(...)
    measuring.py     stats         TABLE, figures(measure, top), sentence(figures), rows(figures)
    publishing.py    materialize   TABLES, NOUN, WHOLE, generation(mark); documents do it otherwise
    loading.py       load          refuse_options, staged, commit; documents do it otherwise

Types are named as Spark names them in a schema; Arrow's are derived here, so that the two never
disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from fourfold.errors import InvalidInput, MissingDependency, NotFound

if TYPE_CHECKING:
    import pyarrow as pa

    from fourfold.kernel import Migration, Profile, Queries, ReadTransaction
    from fourfold.kernel import Sequence as Counter
    from fourfold.pipeline.conditions import Condition
    from fourfold.pipeline.cut import FileBound
    from fourfold.pipeline.options import ReadOptions
    from fourfold.pipeline.scan import Piece

    FoldedParts = Callable[[Sequence[FileBound], ReadOptions], Iterator[tuple[int, Piece]]]
    """The queries of a folded table, each with about how many bytes it reads."""
    Spread = Callable[[FileBound, ReadOptions, Sequence[Condition], str], Iterator[tuple[str, ...]]]
    """A query as the queries that it is in one file, those of one statement together."""
    Counted = Callable[[FileBound, ReadOptions, int, int], list[tuple[int, int]]]
    """How many rows the first so many numbers behind one have, up to the mark."""

Type = Literal["string", "bigint", "int", "double", "timestamp", "binary", "boolean"]

DEFAULT_MODEL = "documents"
_PACKAGE = "fourfold.pipeline"

SPACE = "space"
"""The column that every table of every file has: which space, stream or app the row is from."""
ROOT = "root"
"""The store that the row is from. Two stores may have the same space; then only both columns
together tell an entity. It is only read when `columns` names it.
"""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. `filtered` says that the option `where` may have a condition on it."""

    name: str
    type: Type
    nullable: bool = True
    filtered: bool = False
    hidden: bool = False
    """Only read when `columns` names it: what is large and seldom wanted."""
    plain: bool = False
    """A text that lies in the file as a TEXT column, which is handed out as a text by itself."""


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a model.

    `query` names the query that gives its rows; `recent` one that gives the same rows and is quick
    when few commits are wanted; `also` one with further rows. All see the parameters ?1 (rows
    beyond this seq) and ?2 (up to this one: the cut). `position` is the column that the two bound.
    `key` is the primary key, by which a large file is cut into parts.
    """

    name: str
    model: str
    columns: tuple[Column, ...]
    query: str
    says: str
    recent: str | None = None
    also: str = ""
    position: str | None = None
    key: tuple[str, ...] = ()
    by_position: bool = False
    """Whether a large file is cut into parts by the position: its rows lie in that order."""
    fold: str = ""
    """For a folded table, `module:function`: what makes its rows of those that it reads."""
    reads: str = ""
    """For a folded table, the internal one that has the columns of what is folded."""
    options: tuple[str, ...] = ()
    """Options of a read that are for this table and not for every one."""
    public: bool = True
    counted: str = ""
    """For a table that can be streamed, the query that counts the rows of each commit."""

    @property
    def folded(self) -> bool:
        return bool(self.fold)

    def column(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise InvalidInput(
            f"the table {self.name} has no column {name!r}",
            hint=f"Its columns: {', '.join(column.name for column in self.columns)}.",
        )

    @property
    def smallest(self) -> tuple[Column, ...]:
        """What is read when only constants are wanted: there must be a column. The position is a
        number, which takes the least, and its bounds are looked at anyway.
        """
        if self.position is not None:
            return (self.column(self.position),)
        return next((each,) for each in self.columns if each.name not in {SPACE, ROOT})

    def chosen(self, names: Iterable[str] | None = None) -> tuple[Column, ...]:
        """The columns with these names, in their order; all that are not hidden if None."""
        if names is None:
            return tuple(column for column in self.columns if not column.hidden)
        wanted = list(names)
        if not wanted or len(set(wanted)) < len(wanted):
            raise InvalidInput(f"{wanted} is not a list of different columns of {self.name}")
        return tuple(self.column(name) for name in wanted)

    def schema(self, names: Iterable[str] | None = None) -> pa.Schema:
        """The Arrow schema of the chosen columns."""
        return arrow_schema(self.chosen(names))

    def ddl(self, names: Iterable[str] | None = None) -> str:
        """The chosen columns as Spark writes a schema."""
        return ", ".join(f"{column.name} {column.type}" for column in self.chosen(names))


@dataclass(frozen=True, slots=True)
class Kind:
    """One of the ways in which a model's databases keep their history."""

    profile: Profile
    migrations: tuple[Migration, ...]
    position: Counter
    """The counter whose newest number is the cut of a file."""
    position_at: Callable[[ReadTransaction, datetime], int]
    """The newest number at or before a moment."""
    queries: Queries
    """One for each table, and those that planning asks."""
    spread: Spread | None = None
    counted: Counted | None = None
    """Instead of the table's query, where one query does not tell."""


@dataclass(frozen=True, slots=True)
class ModelTables:
    """What a model plugs into the source."""

    model: str
    folder: str
    """Where the model's files lie in a store."""
    suffix: str
    kinds: Mapping[str, Kind]
    """By the name that a database carries."""
    tables: Mapping[str, Table]
    folded_parts: FoldedParts | None = None
    """If not given, the lines of history that documents have."""
    check: Callable[[Sequence[FileBound], ReadOptions], None] | None = None
    """Refuses options that no file can answer."""
    spaces: bool = True
    """Whether each file is a space of its own, which the option `space` names."""
    stream_reader: str = ""
    """`module:function` of a model whose streams know their place by more than one number."""
    sink: str = ""
    """The module with `batch_writer` and `stream_writer` of a model that has a sink of its own."""

    def table(self, name: str) -> Table:
        found = self.tables.get(name)
        if found is None:
            names = ", ".join(each.name for each in self.tables.values() if each.public)
            raise NotFound(f"{self.model} have no table {name!r}", hint=f"There are: {names}.")
        return found


FILES = "files"
"""The table of files, which every model has: nobody opens them but the tasks that describe them."""


def listed(model: str, tables: Iterable[Table]) -> dict[str, Table]:
    """The tables of a model by their names, each with the hidden column `root`, and `files`."""
    root = Column(ROOT, "string", nullable=False, hidden=True)
    found = {table.name: replace(table, columns=(*table.columns, root)) for table in tables}
    files = Table(
        name=FILES,
        model=model,
        says="One row for each file: its kind, its newest number, its size, its problem if any.",
        columns=(
            Column(SPACE, "string", nullable=False),
            Column(ROOT, "string", nullable=False),
            Column("path", "string", nullable=False),
            Column("kind", "string"),
            Column("seq", "bigint"),
            Column("bytes", "bigint", nullable=False),
            Column("error", "string"),
            Column("problem", "string"),
            Column("file_id", "string"),
            Column("horizon", "bigint"),
        ),
        query="",
    )
    return {**found, FILES: files}


def model_tables(model: str) -> ModelTables:
    """What a model has plugged in, by its name."""
    if model not in MODELS:
        raise NotFound(f"there are no tables of {model!r}", hint=f"Models: {', '.join(MODELS)}.")
    return MODELS[model]()


def _documents() -> ModelTables:
    from fourfold.pipeline.documents.tables import DOCUMENTS  # noqa: PLC0415 - it imports this one

    return DOCUMENTS


def _sessions() -> ModelTables:
    from fourfold.pipeline.sessions.tables import SESSIONS  # noqa: PLC0415 - as above

    return SESSIONS


def _graphs() -> ModelTables:
    from fourfold.pipeline.graphs.tables import GRAPHS  # noqa: PLC0415 - as above

    return GRAPHS


def _streams() -> ModelTables:
    from fourfold.pipeline.streams.tables import STREAMS  # noqa: PLC0415 - as above

    return STREAMS


MODELS: dict[str, Callable[[], ModelTables]] = {
    "documents": _documents,
    "sessions": _sessions,
    "graphs": _graphs,
    "streams": _streams,
}
"""Every model with tables; a model's module is imported when it is first asked for."""


def models_with(part: str) -> tuple[str, ...]:
    """The models whose package has a module of this name: what a job asks them for."""
    return tuple(model for model in MODELS if find_spec(f"{_PACKAGE}.{model}.{part}") is not None)


def part_of(model: str, part: str) -> Any:
    """The module of a model that does its part of a job."""
    if model not in models_with(part):
        raise NotFound(
            f"{model} have no part in this job", hint=f"Models: {', '.join(models_with(part))}."
        )
    return import_module(f"{_PACKAGE}.{model}.{part}")


def arrow() -> Any:
    """The package pyarrow, or an error that says how to get it."""
    try:
        import pyarrow as pa  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise MissingDependency(
            "pyarrow is not installed", hint="Install it: `pip install 'fourfold[spark]'`."
        ) from error
    return pa


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    pa = arrow()
    types = {
        "string": pa.string(),
        "bigint": pa.int64(),
        "int": pa.int32(),
        "double": pa.float64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "binary": pa.binary(),
        "boolean": pa.bool_(),
    }
    return pa.schema([pa.field(column.name, types[column.type]) for column in columns])
