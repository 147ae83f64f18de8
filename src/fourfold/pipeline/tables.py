"""The registry of the tables that the source can read: what each model plugs in.

A model registers a `ModelTables`: where its files lie, the kinds of databases that they are, and
its tables. A `Kind` has the queries, and says how a cut is taken. A `Table` is a name, columns with
types, and the name of a query. The source does the rest (finding files, cuts, partitions, pushdown,
pruning) for every model alike.

Two kinds of table. A *raw* one is a query over a file. A *folded* one is made from the rows of
another table, in the order of their keys, by the model's fold.

Types are named as Spark names them in a schema; Arrow's are derived here, so that the two never
disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from fourfold.errors import InvalidInput, MissingDependency, NotFound

if TYPE_CHECKING:
    import pyarrow as pa

    from fourfold.kernel import Migration, Profile, Queries, Sequence, Snapshot

Type = Literal["string", "bigint", "int", "timestamp", "binary", "boolean"]

SPACE = "space"
"""The column that every table of every file has: which space, stream or app the row is from."""
ROOT = "root"
"""The store that the row is from. Two stores may have the same space; then only both columns
together tell an entity. It is only read when `columns` names it.
"""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. `filtered` says that SQLite can apply a condition on it."""

    name: str
    type: Type
    nullable: bool = True
    filtered: bool = False
    hidden: bool = False
    """Only read when `columns` names it: what is large and seldom wanted."""


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
    folded: bool = False
    public: bool = True
    counted: str = ""
    """For a table that can be streamed, the query that counts the rows of each commit."""

    def column(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise InvalidInput(
            f"the table {self.name} has no column {name!r}",
            hint=f"Its columns: {', '.join(column.name for column in self.columns)}.",
        )

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
    position: Sequence
    """The counter whose newest number is the cut of a file."""
    position_at: Callable[[Snapshot, datetime], int]
    """The newest number at or before a moment."""
    queries: Queries
    """One for each table, and those that planning asks."""


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

    def table(self, name: str) -> Table:
        found = self.tables.get(name)
        if found is None:
            names = ", ".join(each.name for each in self.tables.values() if each.public)
            raise NotFound(f"{self.model} have no table {name!r}", hint=f"There are: {names}.")
        return found


def model_tables(model: str) -> ModelTables:
    """What a model has plugged in, by its name."""
    if model not in MODELS:
        raise NotFound(f"there are no tables of {model!r}", hint=f"Models: {', '.join(MODELS)}.")
    return MODELS[model]()


def _documents() -> ModelTables:
    from fourfold.pipeline.documents.tables import DOCUMENTS  # noqa: PLC0415 - it imports this one

    return DOCUMENTS


MODELS: dict[str, Callable[[], ModelTables]] = {"documents": _documents}
"""Every model with tables; a model's module is imported when it is first asked for."""


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
        "timestamp": pa.timestamp("us", tz="UTC"),
        "binary": pa.binary(),
        "boolean": pa.bool_(),
    }
    return pa.schema([pa.field(column.name, types[column.type]) for column in columns])
