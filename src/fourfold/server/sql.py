"""SQL over HTTP: queries of clients over what their key may read, in processes of their own."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from fourfold.errors import (
    CorruptData,
    Forbidden,
    FormatError,
    HistoryTruncated,
    InvalidInput,
    LimitExceeded,
    MissingDependency,
    NotFound,
    Refused,
)
from fourfold.limits import MIB
from fourfold.server.key_store import Grant
from fourfold.server.query_messages import BASE64, NUMBER, Format, QueryTask
from fourfold.server.query_pool import QueryPool
from fourfold.server.replies import JSON, NDJSON
from fourfold.server.request import Reply, Request, Response
from fourfold.server.routes import Ok, Route, bind
from fourfold.store import Store
from fourfold.wire.sql import (
    SqlHeaders,
    SqlQuery,
    SqlResult,
    SqlTables,
)

SQL: Final = "/v1/sql"
TABLES: Final = f"{SQL}/tables"
CSV: Final = "text/csv"
ARROW: Final = "application/vnd.apache.arrow.stream"
FORMATS: Final[dict[str, Format]] = {NDJSON: "ndjson", CSV: "csv", ARROW: "arrow", JSON: "json"}
"""Formats of results by content type."""
BODY_MAX: Final = 1 * MIB


class SqlRoutes:
    """Handler of queries."""

    def __init__(self, store: Store) -> None:
        settings = store.settings.server
        self._pool = QueryPool(
            store.root,
            processes=settings.query_processes,
            memory_bytes=settings.query_memory_bytes,
        )

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of these handlers."""
        return bind(_ROUTES, self)

    def stop(self) -> None:
        """Kill the processes of queries."""
        self._pool.stop()

    async def list_tables(self, request: Request) -> Reply:
        """Return the tables that the key may query."""
        from fourfold.query.engine import describe_tables  # noqa: PLC0415 - large

        prefixes = None if request.grants is None else readable_prefixes(request.grants)
        return Reply(SqlTables(tables=list(describe_tables(prefixes))))

    async def run_sql(self, request: Request, body: SqlQuery) -> Response:
        """Run a query and return its result in the format that the client accepts."""
        content_type = _accepted(request.header("accept") or "")
        task = QueryTask(
            body=msgspec.structs.replace(body, params=[]),
            params=_params(body.params),
            prefixes=None if request.grants is None else readable_prefixes(request.grants),
            format=FORMATS[content_type],
        )
        result = await self._pool.run(task, request.key_id)
        headers = {
            "content-type": f"{CSV}; charset=utf-8" if content_type == CSV else content_type,
            "cache-control": "no-store",
            "vary": "Accept",
            "query-rows": str(result.rows),
            "query-truncated": str(result.truncated).lower(),
        }
        return Response(200, headers, result.body)


def readable_prefixes(grants: Iterable[Grant]) -> dict[str, tuple[str, ...]]:
    """Return what queries with these grants may read: prefixes of names by model.

    A grant counts if it has both scopes, `query` and `read`.

    Raises:
        Forbidden: nothing may be read.
    """
    prefixes: dict[str, tuple[str, ...]] = {}
    for grant in grants:
        allowed = grant.allows("query", None) and grant.allows("read", None)
        if allowed and grant.model != "store":
            prefixes[grant.model] = (*prefixes.get(grant.model, ()), grant.prefix)
    if not prefixes:
        raise Forbidden(
            "the key may query no model",
            hint="Create a key with the scopes read and query for a model.",
            details={"scope": "query"},
        )
    return prefixes


def _params(params: list[Any] | dict[str, Any]) -> list[Any] | dict[str, Any]:
    if isinstance(params, dict):
        return {name: _param(value) for name, value in params.items()}
    return [_param(value) for value in params]


def _param(value: Any) -> Any:
    """Return a parameter as SQLite takes it."""
    if isinstance(value, dict) and set(value) == {BASE64}:
        try:
            return base64.b64decode(value[BASE64], validate=True)
        except (TypeError, ValueError, binascii.Error) as error:
            raise InvalidInput(f"params: must be valid base64: {error}") from None
    if value in ({NUMBER: "inf"}, {NUMBER: "-inf"}):
        return float(value[NUMBER])
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise InvalidInput(f"params: integers must have 64 bits, got {value}")
    if value is None or isinstance(value, str | int | float):
        return value
    raise InvalidInput(
        f"params: must be texts, numbers, booleans and nulls, got {value!r:.80}",
        hint='Send bytes as {"base64": "..."}, and infinity as {"number": "inf"}.',
    )


def _accepted(accept: str) -> str:
    """Return the first content type that a client accepts and a result can have; JSON if none."""
    accepted = [(accept.find(name), name) for name in FORMATS if name in accept]
    return min(accepted)[1] if accepted else JSON


_ROUTES: Final = (
    Route(
        *("GET", TABLES, SqlRoutes.list_tables),
        operation="list_sql_tables",
        summary="List the tables that the key may query, with their columns.",
        scope="query",
        model="any",
        resource="any",
        ok={200: Ok("The tables.", SqlTables)},
    ),
    Route(
        *("POST", SQL, SqlRoutes.run_sql),
        operation="run_sql",
        summary="Run a SELECT over the tables of all models that the key may query.",
        scope="query",
        model="any",
        resource="any",
        body=SqlQuery,
        body_max=BODY_MAX,
        cancellable=True,
        ok={
            200: Ok(
                "The result: JSON, or NDJSON, CSV or an Arrow stream by Accept.",
                SqlResult,
                headers=SqlHeaders,
                others=(NDJSON, CSV, ARROW),
            )
        },
        errors=(
            NotFound,
            Refused,
            LimitExceeded,
            HistoryTruncated,
            CorruptData,
            FormatError,
            MissingDependency,
        ),
    ),
)
