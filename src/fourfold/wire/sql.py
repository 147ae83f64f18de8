"""Structs of SQL over HTTP: a query, and its result as JSON."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from fourfold import limits
from fourfold.wire.fields import Count, header_name

QUERY_CHARS_MAX = 256 * limits.KIB
ROWS_MAX = 100_000
BYTES_MAX = 16 * limits.MIB
SECONDS_MAX = 60


class SqlQuery(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A query, and how much it may use."""

    query: Annotated[str, Meta(max_length=QUERY_CHARS_MAX, description="One SELECT.")]
    params: Annotated[
        list[Any] | dict[str, Any],
        Meta(
            description="Values of `?` or `:name` in the query; bytes are an object with `base64`,"
            " and infinite numbers one with `number`."
        ),
    ] = []
    at: Annotated[
        Annotated[int, Meta(ge=0, le=2**63 - 1)] | str | None,
        Meta(
            description="As of a time or the id of a restore point; a seq if the query reads one "
            "log."
        ),
    ] = None
    branch: Annotated[
        str, Meta(description="Branch of documents_state and documents_history; * for all.")
    ] = ""
    model: Annotated[
        Literal["documents", "streams", "graphs", "sessions"] | None,
        Meta(description="Model whose tables can be named without prefix."),
    ] = None
    space: Annotated[str | None, Meta(description="Only this space, of documents alone.")] = None
    timeout_s: Annotated[
        float, Meta(ge=0.1, le=SECONDS_MAX, description="Time after which the query is stopped.")
    ] = 10.0
    max_rows: Annotated[
        int, Meta(ge=1, le=ROWS_MAX, description="Rows after which the result is truncated.")
    ] = ROWS_MAX
    max_bytes: Annotated[
        int, Meta(ge=1, le=BYTES_MAX, description="Bytes after which the result is truncated.")
    ] = BYTES_MAX


class SqlColumn(Struct, kw_only=True, frozen=True):
    """A column of a result; `type` is None for an expression."""

    name: str
    type: str | None


class SqlResult(Struct, kw_only=True, frozen=True):
    """The result of a query.

    In rows, bytes are an object with `base64`, and an infinite number is one with `number`.
    """

    columns: list[SqlColumn]
    rows: list[list[Any]]
    cut: dict[str, Count]
    """Position of each database that the query could read, by its name."""
    truncated: bool
    """True if there are more rows than `max_rows` or `max_bytes` allows, or `warnings`."""
    warnings: list[str] = []
    """What the tables of the query lack, such as records that are only in segments."""


class SqlTableColumn(Struct, kw_only=True, frozen=True):
    """A column of a table."""

    name: str
    type: str
    hidden: bool
    """True if `*` does not include it."""
    description: str


class SqlTable(Struct, kw_only=True, frozen=True):
    """A table that queries can read."""

    name: str
    model: str
    description: str
    key: list[str]
    """The columns that identify a row."""
    columns: list[SqlTableColumn]


class SqlTables(Struct, kw_only=True, frozen=True):
    """The tables that the key may query."""

    tables: list[SqlTable]


class SqlHeaders(Struct, kw_only=True, frozen=True, rename=header_name):
    """Headers of a result, in every format."""

    query_rows: Annotated[str, Meta(description="Number of rows.")]
    query_truncated: Annotated[str, Meta(description="true if rows are missing.")]
