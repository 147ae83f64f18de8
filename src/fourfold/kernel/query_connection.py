"""A connection for queries of users over several database files: read-only, bounded, confined.

The connection is an empty database in memory. Files are attached to it read-only, views select from
them, and virtual tables compute rows in Python. One read transaction covers all attached files.

The SQL of a user is not trusted. A statement is prepared under an authorizer that allows reads of
the published tables and some functions, and nothing else. Views and files have names that cannot be
guessed, because SQLite reports the name of a common table expression like that of a view: a name
that a query could contain would not show who reads a table.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final, Self, cast
from urllib.parse import quote

import apsw
import msgspec

from fourfold import limits
from fourfold.errors import (
    CorruptData,
    DeadlineExceeded,
    FourfoldError,
    InvalidInput,
    LimitExceeded,
    NotFound,
    Refused,
)
from fourfold.file_state import is_closed, is_immutable
from fourfold.kernel.driver import translate
from fourfold.kernel.named_queries import load_queries
from fourfold.kernel.transaction import SQL, Params, ReadTransaction, Row
from fourfold.kernel.virtual_table import Module, VirtualTable

ATTACHED_MAX: Final = 100
"""Files that are attached at once; SQLite allows 125."""
_QUERIES: Final = load_queries("fourfold.kernel", "query_connection.sql")
_CHUNK_ROWS: Final = 1_000
_CHUNK_BYTES: Final = limits.MIB
"""Rows whose size is computed together."""
_ENCODER: Final = msgspec.msgpack.Encoder()
_PROGRESS_STEPS: Final = 20_000
_LIMITS: Final = {
    apsw.SQLITE_LIMIT_LENGTH: 16 * limits.MIB,
    apsw.SQLITE_LIMIT_SQL_LENGTH: 256 * limits.KIB,
    apsw.SQLITE_LIMIT_EXPR_DEPTH: 200,
    apsw.SQLITE_LIMIT_COMPOUND_SELECT: 200,
    apsw.SQLITE_LIMIT_VDBE_OP: 1_000_000,
    apsw.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1_000,
    apsw.SQLITE_LIMIT_VARIABLE_NUMBER: 10_000,
    apsw.SQLITE_LIMIT_WORKER_THREADS: 0,
    apsw.SQLITE_LIMIT_ATTACHED: 0,
}
FUNCTIONS: Final = frozenset(
    [
        "abs",
        "acos",
        "acosh",
        "asin",
        "asinh",
        "atan",
        "atan2",
        "atanh",
        "avg",
        "ceil",
        "ceiling",
        "changes",
        "char",
        "coalesce",
        "concat",
        "concat_ws",
        "cos",
        "cosh",
        "count",
        "cume_dist",
        "current_date",
        "current_time",
        "current_timestamp",
        "date",
        "datetime",
        "degrees",
        "dense_rank",
        "exp",
        "first_value",
        "floor",
        "format",
        "glob",
        "group_concat",
        "hex",
        "if",
        "ifnull",
        "iif",
        "instr",
        "json",
        "json_array",
        "json_array_length",
        "json_error_position",
        "json_extract",
        "json_group_array",
        "json_group_object",
        "json_object",
        "json_patch",
        "json_pretty",
        "json_quote",
        "json_remove",
        "json_replace",
        "json_set",
        "json_type",
        "json_valid",
        "julianday",
        "lag",
        "last_value",
        "lead",
        "length",
        "like",
        "likelihood",
        "likely",
        "ln",
        "log",
        "log10",
        "log2",
        "lower",
        "ltrim",
        "max",
        "median",
        "min",
        "mod",
        "nth_value",
        "ntile",
        "nullif",
        "octet_length",
        "percent_rank",
        "percentile",
        "percentile_cont",
        "percentile_disc",
        "pi",
        "pow",
        "power",
        "printf",
        "quote",
        "radians",
        "random",
        "rank",
        "replace",
        "round",
        "row_number",
        "rtrim",
        "sign",
        "sin",
        "sinh",
        "soundex",
        "sqrt",
        "strftime",
        "string_agg",
        "substr",
        "substring",
        "subtype",
        "sum",
        "tan",
        "tanh",
        "time",
        "timediff",
        "total",
        "trim",
        "trunc",
        "typeof",
        "unhex",
        "unicode",
        "unistr",
        "unixepoch",
        "unlikely",
        "upper",
        "->",
        "->>",
    ]
)
"""Functions that a query may call."""
TABLE_FUNCTIONS: Final = frozenset({"json_each", "json_tree"})
_TABLE_REFERENCE: Final = re.compile(
    r'\b(FROM|JOIN)(\s+)("?)([A-Za-z_]\w*)\3(?![\w.("])(?=(\s+AS\b)?)', re.IGNORECASE
)
_VIEW: Final = re.compile(
    r"CREATE VIEW\s+\S+?\s*(\([^)]*\))?\s+AS\s+(.*)", re.DOTALL | re.IGNORECASE
)
_BLANK: Final = re.compile(r"(?:[\s;]++|--[^\n]*+|/\*.*?\*/)*+", re.DOTALL)
_COMMON_TABLE: Final = re.compile(
    r"""(?<!\w)(\w++|"[^"]++"|\[[^\[\]]++\]|`[^`]++`)\s*+(?:\([^()]*+\)\s*+)?AS\s*+"""
    r"(?:NOT\s++)?(?:MATERIALIZED\s*+)?\(",
    re.IGNORECASE,
)
"""The name of a common table expression."""


class FileReadTransaction(ReadTransaction):
    """Reads of one attached file: the tables of a statement are those of the file."""

    __slots__ = ("_owner", "_qualified", "_schema", "_tables", "_views")

    def __init__(
        self, owner: QueryConnection, schema: str, tables: Mapping[str, str | None], subject: str
    ) -> None:
        super().__init__(owner.connection, subject)
        self._owner = owner
        self._schema = schema
        self._tables = tables
        """The tables of the file, and the statement of each view."""
        self._qualified: dict[str, str] = {}
        self._views: dict[str, str] = {}

    def qualify(self, sql: str) -> str:
        """Return a statement of Fourfold that reads the tables of this file."""
        text = self._qualified.get(sql)
        if text is None:
            text = self._qualified[sql] = _TABLE_REFERENCE.sub(self._replace, sql)
        return text

    def _replace(self, match: re.Match[str]) -> str:
        word, gap, mark, name, alias = match.groups()
        if name not in self._tables:
            return match.group()
        if self._tables[name] is None:
            return f"{word}{gap}{self._schema}.{mark}{name}{mark}"
        return f"{word}{gap}{self._view(name)}{'' if alias else f' AS {name}'}"

    def _view(self, name: str) -> str:
        """Return the name of a view like one of the file, which the authorizer recognizes."""
        view = self._views.get(name)
        if view is None:
            match = _VIEW.match(self._tables[name] or "")
            assert match is not None, self._tables[name]
            body = self.qualify(match.group(2))
            view = self._views[name] = self._owner.add_inner_view(
                f"{self._schema}_{name}", match.group(1) or "", body
            )
        return view

    def all(self, sql: str, params: Params = ()) -> list[Row]:
        """Return all rows."""
        with self._owner.trusted():
            return super().all(self.qualify(sql), params)

    def one(self, sql: str, params: Params = ()) -> Row | None:
        """Return the first row, or None."""
        with self._owner.trusted():
            return super().one(self.qualify(sql), params)

    def rows(self, sql: str, params: Params = ()) -> Iterator[Row]:
        """Yield rows in bounded memory."""
        text = self.qualify(sql)
        try:
            with self._owner.trusted():
                cursor = self._connection.cursor()
                cursor.execute(text, params)
            yield from cursor
        except (apsw.Error, UnicodeError) as error:
            raise self._translate(error) from error

    @property
    def size_bytes(self) -> int:
        """Size of the database without its WAL."""
        with self._owner.trusted():
            pages = self._connection.pragma("page_count", schema=self._schema)
            return int(pages) * int(self._connection.pragma("page_size", schema=self._schema))

    @property
    def identity(self) -> str:
        """Id that was assigned when the file was created."""
        return str(self.value(SQL.meta_get, ("database_id",)))

    @property
    def application_id(self) -> int:
        """The application id in the header of the file."""
        with self._owner.trusted():
            return int(self._connection.pragma("application_id", schema=self._schema))


@dataclass(frozen=True, slots=True)
class QueryRows:
    """The result of a query: the names of its columns, its rows, and if there are more."""

    columns: tuple[str, ...]
    rows: list[Row]
    truncated: bool


class QueryConnection:
    """An empty database with attached files, views and virtual tables, for queries of users."""

    def __init__(self, *, temporary_files: bool = True) -> None:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
        self.connection = apsw.Connection(":memory:", flags=flags)
        for option in (
            apsw.SQLITE_DBCONFIG_DQS_DML,
            apsw.SQLITE_DBCONFIG_DQS_DDL,
            apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA,
            apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER,
        ):
            self.connection.config(option, 0)
        self.connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        # Otherwise SQLite prepares the statement of a lookup again for each value.
        self.connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        self.connection.set_busy_timeout(limits.SOURCE_BUSY_TIMEOUT_MS)
        if not temporary_files:
            self.connection.pragma("temp_store", "MEMORY")
        self._token = secrets.token_hex(8)
        self._trusted = 1
        self._deadline = float("inf")
        self._schemas: dict[str, str] = {}
        self._views: set[str] = set()
        self._inner: set[str] = set()
        self._file_tables: set[str] = set()
        self._common_tables: set[str] = set()
        self._denied: str | None = None
        self._buffer = bytearray()
        self.connection.authorizer = self._authorize
        self.connection.set_progress_handler(self._is_overdue, _PROGRESS_STEPS)

    def attach(self, path: Path) -> FileReadTransaction:
        """Attach a file read-only, and return its reads; they see one state of it from now on."""
        subject = str(path)
        schema = f"f{self._token}_{len(self._schemas)}"
        try:
            self.connection.execute(_QUERIES.attach.format(schema=schema), (_address(subject),))
            rows = self.connection.execute(_QUERIES.tables.format(schema=schema)).fetchall()
        except FileNotFoundError as error:
            raise NotFound(f"{subject}: file does not exist") from error
        except apsw.Error as error:
            raise translate(error, subject) from error
        self._schemas[schema] = subject
        self._file_tables.update(str(name).lower() for name, _ in rows)
        tables = {str(name): None if sql is None else str(sql) for name, sql in rows}
        return FileReadTransaction(self, schema, tables, subject)

    def begin(self) -> None:
        """Begin the read transaction: each file keeps the state of its first read."""
        self.connection.execute(SQL.begin_read)

    def add_inner_view(self, name: str, columns: str, body: str) -> str:
        """Add a view that only other views use; return its name, which a query cannot guess."""
        inner = f"v{self._token}_{name}"
        with self.trusted():
            self.connection.execute(_QUERIES.view.format(name=inner, columns=columns, body=body))
        self._inner.add(inner)
        return inner

    def add_view(self, name: str, selects: Sequence[str], columns: Sequence[str]) -> None:
        """Add a table: the rows of all `selects`, or none if there is none."""
        names = ", ".join(f'"{column}"' for column in columns)
        nothing = _QUERIES.nothing.format(columns=", ".join("NULL" for _ in columns))
        body = " UNION ALL ".join(selects) if selects else nothing
        inner = self.add_inner_view(name, f"({names})", body)
        outer = _QUERIES.all_rows.format(name=inner)
        self.connection.execute(_QUERIES.view.format(name=name, columns=f"({names})", body=outer))
        self._views.add(name)

    def add_virtual_table(self, name: str, table: VirtualTable) -> None:
        """Add a table whose rows are computed."""
        module = f"m{self._token}_{name}"
        self.connection.create_module(
            module,
            cast("Any", Module(table, self.check_deadline)),
            use_bestindex_object=True,
            read_only=True,
        )
        self.connection.execute(_QUERIES.virtual_table.format(name=name, module=module))
        self._views.add(name)

    @contextmanager
    def trusted(self) -> Iterator[None]:
        """Prepare statements of Fourfold in this block, which may read any table."""
        self._trusted += 1
        try:
            yield
        finally:
            self._trusted -= 1

    def confine(self) -> None:
        """Limit and authorize all later statements: they are those of users."""
        self._trusted = 0
        for limit, value in _LIMITS.items():
            self.connection.limit(limit, value)

    def query(
        self,
        sql: str,
        params: Params = (),
        *,
        timeout_s: float,
        max_rows: int,
        max_bytes: int,
    ) -> QueryRows:
        """Run one SELECT of a user and return its rows, up to the limits.

        Raises:
            InvalidInput: The statement is not valid SQL, or not one SELECT.
            Refused: It does something else than to read the published tables.
            DeadlineExceeded: It took longer than `timeout_s`.
        """
        if not self.connection.in_transaction:
            self.begin()
        self._denied = None
        self._common_tables = {
            match.group(1).strip('"[]`').lower() for match in _COMMON_TABLE.finditer(str(sql))
        } - self._file_tables
        self._deadline = time.monotonic() + timeout_s
        try:
            _check_text(sql, params)
            return self._run(self._statement(sql), params, max_rows, max_bytes)
        except FourfoldError as error:
            raise self._explain(error) from error
        except (apsw.Error, TypeError, OverflowError, UnicodeError, RecursionError) as error:
            raise self._explain(error, timeout_s) from error
        finally:
            self._deadline = float("inf")

    def _statement(self, sql: str) -> str:
        """Return the one statement of a query, without comments after it."""
        import apsw.ext  # noqa: PLC0415 - large, and a server runs queries in other processes

        info = apsw.ext.query_info(self.connection, sql, expanded_sql=False)
        if info.query_remaining is not None and not is_blank(info.query_remaining):
            raise InvalidInput("a query is one statement", hint="Run one query after the other.")
        if info.is_explain == 1:
            raise Refused("EXPLAIN is not allowed here", hint="Use EXPLAIN QUERY PLAN.")
        if not info.description_full and not info.is_explain:
            raise InvalidInput("the query is empty or returns no rows", hint="Pass a SELECT.")
        return sql if info.query_remaining is None else str(info.first_query)

    def _run(self, sql: str, params: Params, max_rows: int, max_bytes: int) -> QueryRows:
        columns: list[str] = []
        cursor = self.connection.cursor()

        def trace(traced: Any, _sql: str, _bindings: Any) -> bool:
            columns[:] = [name for name, *_ in traced.get_description()]
            return True

        cursor.exec_trace = trace
        rows: list[Row] = []
        size = 0
        truncated = False
        try:
            results = cursor.execute(sql, params)
            count = 1
            while chunk := list(islice(results, min(count, max_rows + 1 - len(rows)))):
                chunk_bytes = self._bytes_of(chunk)
                if len(rows) + len(chunk) > max_rows or size + chunk_bytes > max_bytes:
                    truncated = self._extend(rows, chunk, max_rows, max_bytes - size)
                    if truncated:
                        break
                else:
                    rows += chunk
                size += chunk_bytes
                # Few large rows at a time, and many small ones.
                count = max(1, min(_CHUNK_ROWS, _CHUNK_BYTES * len(chunk) // chunk_bytes))
        finally:
            cursor.close(True)
        return QueryRows(tuple(columns), rows, truncated)

    def _bytes_of(self, chunk: list[Row]) -> int:
        """Return the approximate bytes of rows; encoding them is faster than a loop."""
        try:
            _ENCODER.encode_into(chunk, self._buffer)
        except UnicodeError:
            return sum(map(row_bytes, chunk))
        return len(self._buffer)

    @staticmethod
    def _extend(rows: list[Row], chunk: list[Row], max_rows: int, max_bytes: int) -> bool:
        """Append the rows that the limits allow; return True if one is left."""
        size = 0
        for row in chunk:
            size += row_bytes(row)
            if len(rows) >= max_rows or size > max_bytes:
                return True
            rows.append(row)
        return False

    def check_deadline(self) -> None:
        """Raise DeadlineExceeded if the time of the current query is over."""
        if time.monotonic() > self._deadline:
            raise DeadlineExceeded("query: the time is over")

    def _is_overdue(self) -> bool:
        return time.monotonic() > self._deadline

    def _explain(  # noqa: PLR0911 - one for each kind of error
        self, error: Exception, timeout_s: float = 0.0
    ) -> FourfoldError:
        """Return the error for the user of a query."""
        message = str(error).removeprefix(f"{type(error).__name__}: ").replace(self._token, "")
        if isinstance(error, apsw.InterruptError | DeadlineExceeded):
            return DeadlineExceeded(
                f"query: not finished after {timeout_s:g} s"
                if timeout_s
                else "query: the time is over",
                hint="Narrow the query, or raise `timeout_s`.",
            )
        if isinstance(error, FourfoldError):
            return error
        if self._denied is not None and isinstance(error, apsw.AuthError | apsw.SQLError):
            return self._refusal(message)
        if isinstance(error, apsw.TooBigError):
            return LimitExceeded(f"query: {message}", hint="Select less in each row.")
        if isinstance(error, apsw.NoMemError):
            return LimitExceeded("query: out of memory", hint="Narrow the query.")
        if isinstance(
            error, apsw.SQLError | apsw.BindingsError | apsw.MismatchError | apsw.RangeError
        ):
            if message.startswith("no such table: "):
                return self._unknown_table(message.removeprefix("no such table: "))
            return InvalidInput(
                f"query: {message}",
                hint="`fourfold sql --tables` lists the tables and their columns.",
            )
        if isinstance(error, apsw.Error):
            return translate(error, "query")
        if isinstance(error, UnicodeError):
            return CorruptData(f"query: stored text is damaged: {message}")
        return InvalidInput(f"query: {message}")

    def _unknown_table(self, name: str) -> FourfoldError:
        known = sorted(self._views)
        return NotFound(
            f"query: unknown table {name!r:.100}",
            hint="Tables have the model as prefix, such as documents_state: `fourfold sql --tables`"
            " lists them." + (f" Here: {', '.join(known)}." if known else ""),
        )

    def _refusal(self, message: str) -> FourfoldError:
        assert self._denied is not None
        action, _, name = self._denied.partition(" ")
        if action == "READ":
            return self._unknown_table(name.split(" ")[0])
        if action == "FUNCTION":
            return Refused(f"query: function {name!r} is not allowed")
        return Refused(
            f"query: {self._denied} is not allowed ({message})", hint="A query is one SELECT."
        )

    def _authorize(
        self, action: int, first: str | None, second: str | None, base: str | None, by: str | None
    ) -> int:
        if self._trusted or self._is_allowed(action, first or "", second or "", base, by):
            return int(apsw.SQLITE_OK)
        name = str(apsw.mapping_authorizer_function[action]).removeprefix("SQLITE_")
        shown = [second] if action == apsw.SQLITE_FUNCTION else [first, second]
        self._denied = " ".join([name, *(word for word in shown if word)]).replace(self._token, "")
        return int(apsw.SQLITE_DENY)

    def _is_allowed(  # noqa: PLR0911 - one for each rule
        self, action: int, first: str, second: str, base: str | None, by: str | None
    ) -> bool:
        if action in {apsw.SQLITE_SELECT, apsw.SQLITE_RECURSIVE}:
            return True
        if action == apsw.SQLITE_FUNCTION:
            # Views call functions whose names cannot be guessed.
            return second.lower() in FUNCTIONS or self._token in second
        if action != apsw.SQLITE_READ:
            return False
        if by is not None and by in self._inner:
            return True
        if base is not None and base in self._schemas:
            # Without a column: a table of a view of which the query uses no column. A statement
            # that names the table itself has no schema here, because it cannot name one.
            return not second
        if first in self._inner:
            return by in self._views or not second
        if first in self._views:
            return base in {"temp", None}
        if not second and base is None and first.lower() in self._common_tables:
            # Rows of a common table expression are counted.
            return True
        return first in TABLE_FUNCTIONS

    def close(self) -> None:
        """Close the connection and the files."""
        self.connection.close(True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def limit_heap(limit_bytes: int) -> None:
    """Limit the memory of all connections of this process; for a process that only runs queries."""
    apsw.hard_heap_limit(limit_bytes)


def row_bytes(row: Row) -> int:
    """Return the approximate bytes of a row in memory."""
    size = 0
    for value in row:
        size += len(value) if isinstance(value, str | bytes) else 8
    return size


def is_complete(text: str) -> bool:
    """Return True if a text ends with a whole statement and `;`, and maybe comments."""
    # A comment ends at the end of its line.
    return apsw.complete(f"{text}\n")


def is_blank(text: str) -> bool:
    """Return True if a text has nothing but blanks, whole comments and `;`."""
    return _BLANK.fullmatch(text) is not None


def _check_text(sql: str, params: Params) -> None:
    """Raise InvalidInput for a query or a parameter that is no text for SQLite."""
    if not isinstance(sql, str) or "\0" in sql:
        raise InvalidInput("query must be a text without null characters")
    values = params.values() if isinstance(params, Mapping) else params
    for name, value in (("query", sql), *(("params", value) for value in values)):
        if isinstance(value, str):
            try:
                value.encode()
            except UnicodeEncodeError:
                raise InvalidInput(
                    f"{name}: a lone surrogate is not text, got {value!r:.100}"
                ) from None


def _address(path: str) -> str:
    """Return the URI for SQLite. Files that can change are never opened as immutable."""
    immutable = is_immutable(path)
    # Nothing is written. Opened read-write, the connection removes the WAL and its index when it is
    # the last to close a file that had none.
    mode = "rw" if not immutable and is_closed(path) else "ro"
    return f"file:{quote(path)}?mode={mode}{'&immutable=1' if immutable else ''}"
