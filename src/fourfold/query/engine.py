"""Run a query over the files of one store, in process.

The tables that a query may use are those whose names occur in it: only their models' files are
attached. A raw table is a view over the files; a folded one is computed while it is read. All of
them show one cut: the newest position of each file at the beginning, or an earlier one with `at`.

More files than can be attached are opened in turn, each at the position of the cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast

from fourfold.errors import InvalidInput, NotFound
from fourfold.kernel import load_queries
from fourfold.kernel.query_connection import ATTACHED_MAX, QueryConnection
from fourfold.kernel.transaction import Params
from fourfold.kernel.virtual_table import VirtualTable
from fourfold.models.model import Model, all_models
from fourfold.query.documents.lines import ALL_BRANCHES
from fourfold.query.files import FoldedTable, Point, QueryFile, open_file
from fourfold.query.tables import FILES, ROOT, SPACE, Column, ModelTables, Table
from fourfold.sql_result import Result
from fourfold.wire.sql import SqlTable, SqlTableColumn

_SQL_TYPES: Final = {
    "string": "TEXT",
    "bigint": "INTEGER",
    "int": "INTEGER",
    "double": "REAL",
    "timestamp": "TEXT",
    "binary": "BLOB",
    "boolean": "INTEGER",
}
_SQL: Final = load_queries("fourfold.query", "engine.sql")
_BRANCH_ARGUMENT: Final = "on_branch"
_LACKING_LISTED: Final = 3
"""Names in one warning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryOptions:
    """Options of a query: what it reads, and its limits."""

    at: Point = None
    branch: str = ""
    model: str | None = None
    """Model whose tables can be named without prefix."""
    space: str | None = None
    """Only this space, of documents alone."""
    prefixes: Mapping[str, tuple[str, ...]] | None = None
    """Readable models, and the prefixes of the names that may be read; None for everything."""
    remote: bool = False
    """True for the query of a client of a server: paths are relative to the store, and temporary
    tables stay in memory, where the limit of the process counts them.
    """
    timeout_s: float = 10.0
    max_rows: int = 100_000
    max_bytes: int = 64 * 1024 * 1024


def tables_of(model: Model[Any]) -> ModelTables | None:
    """Return the tables of a model, or None if it has none."""
    if model.tables is None:
        return None
    return cast("ModelTables", import_module(model.tables).TABLES)


def all_tables() -> dict[str, ModelTables]:
    """Return the tables of every model, by its name."""
    by_model = ((model.name, tables_of(model)) for model in all_models())
    return {name: tables for name, tables in by_model if tables is not None}


def run_query(
    root: Path, query: str, params: Params = (), options: QueryOptions | None = None
) -> Result:
    """Run one SELECT over the tables of the store at `root`, and return its rows."""
    chosen = options or QueryOptions()
    _check_options(chosen)
    with QueryConnection(temporary_files=not chosen.remote) as connection:
        session = _Session(connection, root, str(query), chosen)
        session.define_tables()
        connection.confine()
        rows = connection.query(
            query,
            params,
            timeout_s=chosen.timeout_s,
            max_rows=chosen.max_rows,
            max_bytes=chosen.max_bytes,
        )
        return Result(
            rows.columns,
            rows.rows,
            cut=session.cut(),
            truncated=rows.truncated or bool(session.warnings),
            types=session.types(rows.columns),
            warnings=session.warnings,
        )


def _check_options(options: QueryOptions) -> None:
    if not options.timeout_s > 0 or options.max_rows < 1 or options.max_bytes < 1:
        raise InvalidInput("timeout_s, max_rows and max_bytes must be positive")
    if options.model is not None and options.model not in all_tables():
        raise NotFound(
            f"unknown model {options.model!r:.100}", hint=f"Models: {', '.join(all_tables())}."
        )


@dataclass(slots=True)
class _TableUse:
    """A table of a query, under one or two names."""

    table: Table
    tables: ModelTables
    names: list[str]
    columns: tuple[Column, ...] = ()


@dataclass(slots=True)
class _ModelFiles:
    """The files of a model that a query reads."""

    model: Model[Any]
    tables: ModelTables
    names: list[str]
    attached: list[QueryFile] = field(default_factory=list)
    in_turn: bool = False
    positions: dict[str, int] = field(default_factory=dict)
    """The cut of files that are opened in turn, from the first time."""


class _Session:
    """The definition of the tables of one query on its connection."""

    def __init__(
        self, connection: QueryConnection, root: Path, query: str, options: QueryOptions
    ) -> None:
        self._connection = connection
        self._root = root
        self._shown_root = "." if options.remote else str(root)
        self._options = options
        self._words = set(re.findall(r"\w+", query.lower()))
        self._files: dict[str, _ModelFiles] = {}
        self._uses = list(self._find_uses())
        self.warnings: list[str] = []
        """What the tables of the query lack."""

    def _find_uses(self) -> Iterator[_TableUse]:
        options = self._options
        for model in all_models():
            tables = tables_of(model)
            if tables is None or (options.space is not None and not tables.spaces):
                continue
            for table in readable_tables(tables, options.prefixes):
                names = [f"{model.name}_{table.name}"]
                if options.model == model.name:
                    names.append(table.name)
                names = [name for name in names if name in self._words]
                if names:
                    yield _TableUse(table, tables, names, self._columns(table))
                    self._files.setdefault(model.name, self._model_files(model, tables))

    def _columns(self, table: Table) -> tuple[Column, ...]:
        """Return the visible columns, and hidden ones that the query names."""
        return tuple(
            column for column in table.columns if not column.hidden or column.name in self._words
        )

    def _model_files(self, model: Model[Any], tables: ModelTables) -> _ModelFiles:
        names = model.location.names(self._root)
        if tables.spaces:
            prefixes = (self._options.prefixes or {}).get(model.name, ("",))
            names = [name for name in names if model.location.id_of(name).startswith(prefixes)]
            if self._options.space is not None:
                names = [
                    name for name in names if model.location.id_of(name) == self._options.space
                ]
                if not names:
                    raise NotFound(
                        f"{self._root}: unknown space {self._options.space!r}",
                        hint="Run `fourfold space list ROOT` to list the spaces.",
                    )
        return _ModelFiles(model, tables, names)

    def define_tables(self) -> None:
        """Attach the files, fix the cut, and define every table that the query may use."""
        self._attach()
        self._check_point()
        for files in self._files.values():
            files.attached = [file.at(self._options.at) for file in files.attached]
        self._check_branch()
        for use in self._uses:
            self._define(use)
        self.warnings = [
            text for use in self._uses if use.table.lacking for text in self._lack(use)
        ]

    def _lack(self, use: _TableUse) -> Iterator[str]:
        """Yield a warning for each file that does not have all rows of a table."""
        for file in self._files[use.table.model].attached:
            query = getattr(file.kind.queries, use.table.lacking)
            conditions = file.prefix_condition(use.tables.name_column)
            sql = query.format(conditions=conditions, count=_LACKING_LISTED + 1)
            names = [row[0] for row in file.snapshot.all(sql)]
            if names:
                listed = ", ".join(f"{name!r:.60}" for name in names[:_LACKING_LISTED])
                more = " and others" if len(names) > _LACKING_LISTED else ""
                yield (
                    f"{use.names[0]}: published records of {listed}{more} are only in segments,"
                    " which SQL in SQLite does not read; use `fourfold sql --engine spark`, or read"
                    " the stream"
                )

    def _attach(self) -> None:
        single = sum(len(files.names) for files in self._files.values() if not files.tables.spaces)
        opened: list[tuple[_ModelFiles, str, Any]] = []
        for files in self._files.values():
            files.in_turn = files.tables.spaces and len(files.names) > ATTACHED_MAX - single
            if not files.in_turn:
                for name in files.names:
                    path = files.model.location.path(self._root, name)
                    opened.append((files, name, self._connection.attach(path)))
        # Together, so that the states of the files are as close in time as possible.
        self._connection.begin()
        for files, name, snapshot in opened:
            files.attached.append(self._file(files, name, snapshot))

    def _file(self, files: _ModelFiles, name: str, snapshot: Any) -> QueryFile:
        location = files.model.location
        space = (
            location.id_of(name) if files.tables.spaces else location.path(self._root, name).stem
        )
        path = location.path(self._root, name)
        file = open_file(name, space, path, self._root, snapshot, files.tables)
        return replace(file, prefixes=self._shared_prefixes(files.tables))

    def _shared_prefixes(self, tables: ModelTables) -> tuple[str, ...]:
        """Return the prefixes that restrict the rows of a file; empty for all rows."""
        prefixes = (self._options.prefixes or {}).get(tables.model, ())
        return () if tables.spaces or "" in prefixes else prefixes

    def _check_point(self) -> None:
        """Raise if `at` is a position and the query reads several logs."""
        at = self._options.at
        if not isinstance(at, int):
            return
        names = [name for files in self._files.values() for name in files.names]
        if len(names) > 1:
            raise InvalidInput(
                f"at must be a time or a restore point, got seq {at}: the query reads"
                f" {len(names)} logs",
                hint="Pass a datetime, or query one space.",
            )
        newest = max(
            (f.newest for files in self._files.values() for f in files.attached), default=0
        )
        if not 0 <= at <= newest:
            raise InvalidInput(f"at must be between 0 and {newest}, got seq {at}")

    def _check_branch(self) -> None:
        branch = self._options.branch
        if not branch or branch == ALL_BRANCHES:
            return
        for name, files in self._files.items():
            if any("branch" in use.table.options for use in self._uses if use.table.model == name):
                for file in self._iter_files(files, None):
                    rows = file.snapshot.all(file.kind.queries.branch_lines, (file.seq,))
                    if any(row[0] == branch for row in rows):
                        return
                raise NotFound(
                    f"{self._root}: unknown branch {branch!r} at that point",
                    hint="Run `fourfold space branch list` to list the branches of a space.",
                )

    def _iter_files(self, files: _ModelFiles, space: str | None) -> Iterator[QueryFile]:
        """Yield the files of a model, or that of one space; those opened in turn one at a time."""
        if not files.in_turn:
            yield from (file for file in files.attached if space in {None, file.space})
            return
        for name in files.names:
            if space not in {None, files.model.location.id_of(name)}:
                continue
            self._connection.check_deadline()
            with QueryConnection() as connection:
                path = files.model.location.path(self._root, name)
                snapshot = connection.attach(path)
                connection.begin()
                file = self._file(files, name, snapshot)
                if name in files.positions:
                    file = file.at(files.positions[name])
                else:
                    file = file.at(self._options.at)
                    files.positions[name] = file.seq
                yield file

    def _define(self, use: _TableUse) -> None:
        files = self._files[use.table.model]
        if use.table.name == FILES:
            table = self._virtual(use, files, FoldedTable(self._file_rows, ()))
        elif use.table.folded:
            folded = import_module(use.tables.rows).FOLDED[use.table.name]
            table = self._virtual(use, files, folded)
        elif files.in_turn:
            table = self._virtual(use, files, FoldedTable(self._raw_rows(use), ()))
        else:
            selects = [
                file.snapshot.qualify(text)
                for file in files.attached
                for text in self._selects(use, file, use.columns)
            ]
            for name in use.names:
                self._connection.add_view(name, selects, [column.name for column in use.columns])
            return
        for name in use.names:
            self._connection.add_virtual_table(name, table)

    def _virtual(self, use: _TableUse, files: _ModelFiles, folded: FoldedTable) -> VirtualTable:
        visible = [column for column in use.table.columns if not column.hidden]
        hidden = [column for column in use.table.columns if column.hidden]
        with_root = bool(hidden) and hidden[-1].name == ROOT
        options = self._options
        root = self._shown_root
        names = [column.name for column in (*visible, *hidden)]
        named = use.tables.name_column
        owner = names.index(named) if named in names else 0

        def rows(constraints: Mapping[str, Any], _used: frozenset[int]) -> Iterator[Sequence[Any]]:
            arguments = dict(constraints)
            if arguments.get(_BRANCH_ARGUMENT) is None:
                arguments[_BRANCH_ARGUMENT] = options.branch
            point = _point_argument(constraints.get("at"))
            selected = self._iter_files(files, constraints.get(SPACE))
            for count, file in enumerate(selected):
                if isinstance(point, int) and (
                    count or (SPACE not in constraints and len(files.names) > 1)
                ):
                    raise InvalidInput(
                        f"{use.names[0]}: at must be a time, got seq {point}: there are"
                        f" {len(files.names)} spaces",
                        hint="Add a condition on `space`, or pass a time.",
                    )
                source: Iterable[Any] = folded.rows(file.at(point), arguments)
                if file.prefixes:
                    # The folds skip other names already; this holds for any of them.
                    source = (row for row in source if file.may_read(row[owner]))
                yield from ((*row, root) for row in source) if with_root else source

        keys = folded.keys or ((SPACE,) if use.tables.spaces else ())
        return VirtualTable(
            [(column.name, _SQL_TYPES[column.type]) for column in visible],
            rows,
            arguments=folded.arguments,
            hidden=[(column.name, _SQL_TYPES[column.type]) for column in hidden],
            keys=keys,
        )

    def _file_rows(self, file: QueryFile, _given: Mapping[str, Any]) -> Iterator[Sequence[Any]]:
        queries = file.kind.queries
        snapshot = file.snapshot
        path = file.path.relative_to(self._root) if self._options.remote else file.path
        yield (
            *(file.space, self._shown_root, str(path), file.kind_name, file.newest),
            *(snapshot.size_bytes, None, None, snapshot.identity, snapshot.value(queries.horizon)),
        )

    def _raw_rows(self, use: _TableUse) -> Callable[[QueryFile, Mapping[str, Any]], Iterator[Any]]:
        """Return a function that yields the rows of a raw table in one file."""
        columns = [column for column in use.table.columns if column.name != ROOT]
        ordered = [column for column in columns if not column.hidden]
        ordered += [column for column in columns if column.hidden]

        def rows(file: QueryFile, _given: Mapping[str, Any]) -> Iterator[Any]:
            for text in self._selects(use, file, tuple(ordered)):
                yield from file.snapshot.rows(text)

        return rows

    def _selects(self, use: _TableUse, file: QueryFile, columns: tuple[Column, ...]) -> list[str]:
        """Return the queries of a raw table on one file, up to its position."""
        table = use.table
        query: str = getattr(file.kind.queries, table.query)
        expand = (
            getattr(import_module(use.tables.rows), "expand", None) if use.tables.rows else None
        )
        texts = [query] if expand is None else expand(file, table.name, query)
        constants = {SPACE: file.space, ROOT: self._shown_root}
        own = {column.name for column in table.columns}
        selected = ", ".join(
            f'{_quoted(constants[column.name])} AS "{column.name}"'
            if column.name in constants and column.name in own
            else f'"{column.name}"'
            for column in columns
        )
        conditions = self._conditions(use, file)
        raw = [
            _SQL.raw.format(columns=selected, query=_bound(text, file.seq), conditions=conditions)
            for text in texts
        ]
        return [_SQL.restricted.format(raw=text) for text in raw] if file.prefixes else raw

    def _conditions(self, use: _TableUse, file: QueryFile) -> str:
        conditions = []
        if use.table.position is not None and file.is_past:
            conditions.append(f'"{use.table.position}" <= {file.seq}')
        if file.prefixes:
            conditions.append(file.prefix_condition(f'"{use.tables.name_column}"'))
        return f" WHERE {' AND '.join(conditions)}" if conditions else ""

    def cut(self) -> dict[str, int]:
        """Return the position of each database that the query could read, by its name."""
        cut: dict[str, int] = {}
        for files in self._files.values():
            cut |= {file.name: file.seq for file in files.attached}
            cut |= files.positions
        return dict(sorted(cut.items()))

    def types(self, names: Sequence[str]) -> dict[str, str]:
        """Return the types of result columns that have one type in all tables of the query."""
        types: dict[str, set[str]] = {}
        for use in self._uses:
            for column in use.table.columns:
                types.setdefault(column.name, set()).add(column.type)
        return {
            name: next(iter(types[name]))
            for name in names
            if name in types and len(types[name]) == 1
        }


def readable_tables(
    tables: ModelTables, prefixes: Mapping[str, tuple[str, ...]] | None
) -> list[Table]:
    """Return the tables of a model that a reader with these prefixes may use."""
    allowed = ("",) if prefixes is None else prefixes.get(tables.model, ())
    if "" in allowed or (allowed and tables.spaces):
        return tables.public()
    # All streams, sessions or apps share a file: what has no name of one cannot be restricted.
    return [
        table
        for table in tables.public()
        if allowed and any(column.name == tables.name_column for column in table.columns)
    ]


def describe_tables(
    prefixes: Mapping[str, tuple[str, ...]] | None = None,
) -> Iterator[SqlTable]:
    """Yield the tables of all models that a reader with these prefixes may use, by their names."""
    for model, tables in all_tables().items():
        for table in readable_tables(tables, prefixes):
            columns = [
                SqlTableColumn(
                    name=column.name,
                    type=column.type,
                    hidden=column.hidden,
                    description=column.description,
                )
                for column in table.columns
            ]
            yield SqlTable(
                name=f"{model}_{table.name}",
                model=model,
                description=table.description,
                key=list(table.identity),
                columns=columns,
            )


def _point_argument(value: Any) -> Point:
    if value is None or isinstance(value, int):
        return cast("Point", value)
    return parse_time(str(value))


def parse_time(text: str) -> datetime:
    """Parse an ISO 8601 time, which is UTC without a time zone."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(
            f"at must be a seq (12) or a time (2026-03-01T12:00:00Z), got {text!r:.100}"
        ) from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


_FIRST: Final = re.compile(r"\?1(?!\d)")
_LAST: Final = re.compile(r"\?2(?!\d)")


def _bound(query: str, seq: int) -> str:
    """Return a query of the registry with its bounds: everything until `seq`."""
    return _LAST.sub(str(seq), _FIRST.sub("0", query.replace("{cut}", str(seq))))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
