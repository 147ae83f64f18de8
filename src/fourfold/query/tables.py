"""Descriptions of the tables of the models: one registry for SQL in process and for Spark.

The `tables.py` of a model defines one `ModelTables`, as `TABLES`:

    folder, suffix    where its files are in a store
    kinds             for each model name stored in a database: profile, migrations, the counter
                      whose newest number is the cut, how a time becomes such a number, and a
                      file of named queries
    tables            names, columns with types, and the name of the query for the rows
    rows              the module that computes folded tables in process, as `FOLDED`

Besides one query for each table, every kind has queries for planning. The parameters ?1 and ?2 of a
query bound its rows; `{cut}` in its text is replaced by the position of the cut, for rows that have
changed since.

A *raw* table is a query over a file. A *folded* one is computed by the fold of the model from the
rows of the table `reads`. The pipeline adds to this registry what only Spark needs, with
`ModelTables.for_spark`: functions over Arrow batches, and how a file is split into tasks.

Types have the names that Spark uses in a schema; Arrow's are derived here, so that the two never
disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from fourfold.errors import InvalidInput, MissingDependency, NotFound

if TYPE_CHECKING:
    import pyarrow as pa

    from fourfold.kernel import Migration, Profile, Queries, ReadTransaction
    from fourfold.kernel import Sequence as Counter

Type = Literal["string", "bigint", "int", "double", "timestamp", "binary", "boolean"]

Fold = Callable[..., Iterator[Any]]
"""Computes the batches of a folded table from those that it reads, in a worker of Spark."""
FoldedParts = Callable[..., Iterator[tuple[int, Any]]]
"""Yields the queries of a folded table, each with the approximate bytes that it reads."""
Spread = Callable[..., Iterator[tuple[str, ...]]]
"""Expands a query into the queries of one file, grouped by statement."""
CountRows = Callable[..., list[tuple[int, int]]]
"""Count the rows of the first `limit` positions after `after`, up to the bound."""

SPACE = "space"
"""The column that every table has: the space, stream or app of the row."""
ROOT = "root"
"""The store of the row. Two stores may have the same space; then both columns together identify an
entity. It is only read when `columns` contains it.
"""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. `filtered` allows conditions on it in the option `where`."""

    name: str
    type: Type
    nullable: bool = True
    filtered: bool = False
    hidden: bool = False
    """Only read when `columns` contains it: large and rarely needed."""
    plain: bool = False
    """Stored in a TEXT column of the file, so it needs no cast."""
    description: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a model.

    `query` is the name of the query for its rows; `recent` one for the same rows that is fast for
    few commits; `also` one for further rows. All have the parameters ?1 (rows after this seq) and
    ?2 (until this seq: the cut). `position` is the column that they bound. `key` is the primary
    key, by which a large file is split into parts.
    """

    name: str
    model: str
    columns: tuple[Column, ...]
    query: str
    description: str
    recent: str | None = None
    also: str = ""
    bulk: str = ""
    """The name of a query for the same rows that is fast for most of them."""
    position: str | None = None
    key: tuple[str, ...] = ()
    identity: tuple[str, ...] = ()
    """The columns that identify a row of a store."""
    by_position: bool = False
    """Split a large file by position, because its rows are stored in that order."""
    fold: Fold | None = None
    """For a folded table, the function that computes its rows in Spark."""
    reads: str = ""
    """For a folded table, the internal table with the input columns of the fold."""
    options: tuple[str, ...] = ()
    """Options that apply to this table but not to every table."""
    public: bool = True
    lacking: str = ""
    """The name of a query for names of streams whose rows are not all in the file."""
    count_query: str = ""
    """For a table that can be streamed, the query that counts the rows of each commit."""

    @property
    def folded(self) -> bool:
        """True if the rows are computed by a fold."""
        return bool(self.reads)

    def column(self, name: str) -> Column:
        """Return a column by name."""
        for column in self.columns:
            if column.name == name:
                return column
        raise InvalidInput(
            f"{self.name}: unknown column {name!r}",
            hint=f"Columns: {', '.join(column.name for column in self.columns)}.",
        )

    @property
    def smallest(self) -> tuple[Column, ...]:
        """The column to read if only constants are selected: the position, which is small and is
        compared anyway.
        """
        if self.position is not None:
            return (self.column(self.position),)
        return next((column,) for column in self.columns if column.name not in {SPACE, ROOT})

    def select_columns(self, names: Iterable[str] | None = None) -> tuple[Column, ...]:
        """Return the columns with these names, in their order; all that are not hidden if None."""
        if names is None:
            return tuple(column for column in self.columns if not column.hidden)
        selected = list(names)
        if not selected or len(set(selected)) < len(selected):
            raise InvalidInput(f"{self.name}: columns must be distinct names, got {selected}")
        return tuple(self.column(name) for name in selected)

    def schema(self, names: Iterable[str] | None = None) -> pa.Schema:
        """Return the Arrow schema of the selected columns."""
        return arrow_schema(self.select_columns(names))

    def ddl(self, names: Iterable[str] | None = None) -> str:
        """Return the selected columns as a Spark schema string."""
        return ", ".join(f"{column.name} {column.type}" for column in self.select_columns(names))


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """One way in which the databases of a model store their history."""

    profile: Profile
    migrations: tuple[Migration, ...]
    position: Counter
    """The counter whose newest number is the cut of a file."""
    position_at: Callable[[ReadTransaction, datetime], int]
    """Returns the newest position at or before a time."""
    queries: Queries
    """One query for each table, and those used for planning."""
    spread: Spread | None = None
    count_rows: CountRows | None = None
    """Used instead of the table's `count_query` if one query cannot count the rows."""


@dataclass(frozen=True, slots=True)
class ModelTables:
    """The tables of a model and how they are read."""

    model: str
    folder: str
    """Folder of the model's files in a store."""
    suffix: str
    kinds: Mapping[str, Kind]
    """Kinds by the model name stored in a database."""
    tables: Mapping[str, Table]
    folded_parts: FoldedParts | None = None
    """Yields the parts of folded tables."""
    check: Callable[..., None] | None = None
    """Raises for options that match no file."""
    spaces: bool = True
    """True if each file is a space, which the option `space` selects."""
    rows: str = ""
    """Module whose `FOLDED` computes the folded tables in process."""
    name_column: str = SPACE
    """The column with the name of a space, stream, session or app, which prefixes of keys restrict.
    A table without it is only for readers of the whole model.
    """

    def table(self, name: str) -> Table:
        """Return a table by name."""
        table = self.tables.get(name)
        if table is None:
            names = ", ".join(other.name for other in self.tables.values() if other.public)
            raise NotFound(f"{self.model}: unknown table {name!r}", hint=f"Tables: {names}.")
        return table

    def public(self) -> list[Table]:
        """Return the tables that users see."""
        return [table for table in self.tables.values() if table.public]

    def for_spark(
        self,
        folds: Mapping[str, Fold],
        *,
        folded_parts: FoldedParts,
        check: Callable[..., None] | None = None,
        spread: Spread | None = None,
        count_rows: CountRows | None = None,
    ) -> ModelTables:
        """Return these tables with what Spark needs: folds over Arrow batches, and parts."""
        tables = {
            name: replace(table, fold=folds[name]) if name in folds else table
            for name, table in self.tables.items()
        }
        kinds = {
            name: replace(kind, spread=spread, count_rows=count_rows)
            for name, kind in self.kinds.items()
        }
        return replace(self, tables=tables, kinds=kinds, folded_parts=folded_parts, check=check)


FILES = "files"
"""The table of files, which every model has; its rows are read by the tasks that open them."""


def tables_by_name(
    model: str,
    tables: Iterable[Table],
    identities: Mapping[str, str] | None = None,
    descriptions: Mapping[str, str] | None = None,
) -> dict[str, Table]:
    """Return the tables by name, each with the hidden column `root`, and the table `files`.

    Args:
        identities: The columns that identify a row, by table, separated by spaces.
        descriptions: What columns mean, by their name, or by `table.column` where tables differ.
    """
    root = Column(ROOT, "string", nullable=False, hidden=True)
    by_name = {
        table.name: replace(
            table,
            columns=(*table.columns, root),
            identity=tuple((identities or {}).get(table.name, "").split()),
        )
        for table in tables
    }
    files = Table(
        name=FILES,
        model=model,
        description="One row for each file: kind, newest position, size, and problem if any.",
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
        identity=("path",),
    )
    return {
        name: replace(
            table, columns=_described(table, {**(descriptions or {}), **_FILE_DESCRIPTIONS})
        )
        for name, table in {**by_name, FILES: files}.items()
    }


def _described(table: Table, descriptions: Mapping[str, str]) -> tuple[Column, ...]:
    """Return the columns with their descriptions; internal tables may have none."""
    return tuple(
        replace(
            column,
            description=descriptions.get(f"{table.name}.{column.name}")
            or descriptions.get(column.name, ""),
        )
        for column in table.columns
    )


_FILE_DESCRIPTIONS: Final = {
    "files.space": "Name of the file: the DID of a space, or the stem of its name.",
    "files.path": "Path of the file.",
    "files.kind": "Kind of history that the file has.",
    "files.seq": "Newest position in the file.",
    "files.bytes": "Size of the file without its WAL.",
    "files.error": "Kind of the error if the file cannot be read.",
    "files.problem": "Why the file cannot be read.",
    "files.file_id": "Id that the file got when it was created.",
    "files.horizon": "Position below which history was removed; 0 if it is whole.",
    "root": "Folder of the store.",
}
"""Of the columns that every model has."""


def arrow() -> Any:
    """Import pyarrow, or raise MissingDependency."""
    try:
        import pyarrow as pa  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise MissingDependency(
            "pyarrow is not installed", hint="Install it: `pip install 'fourfold[spark]'`."
        ) from error
    return pa


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    """Return the Arrow schema of these columns."""
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
