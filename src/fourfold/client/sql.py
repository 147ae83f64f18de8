"""The request of a query, and its response as a `Result`, without I/O."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from fourfold.client import responses
from fourfold.client.documents import format_at
from fourfold.client.requests import Address, Call
from fourfold.client.responses import Response
from fourfold.errors import BadAnswer, InvalidInput
from fourfold.sql_result import Result
from fourfold.wire.sql import BYTES_MAX, SqlQuery, SqlResult, SqlTable, SqlTables

Params = Sequence[Any] | Mapping[str, Any]
_HEADERS: Final = {"content-type": "application/json", "accept": "application/json"}


def build_query(
    query: str, params: Params, at: datetime | int | str | None, **options: Any
) -> SqlQuery:
    """Return the body of a request; raise InvalidInput if a value is not valid."""
    if isinstance(at, datetime):
        at = format_at(at)
    body: dict[str, Any] = {"query": query, "params": _encode_params(params), "at": at, **options}
    if isinstance(body.get("max_bytes"), int):
        body["max_bytes"] = min(body["max_bytes"], BYTES_MAX)
    try:
        return msgspec.convert(body, SqlQuery)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"query: {error}") from None


def run_sql(address: Address, body: SqlQuery) -> Call:
    """Build the request that runs a query."""
    url = f"{address.root}/v1/sql"
    data = msgspec.json.encode(body)
    # A query takes as long as its own timeout allows; it is not repeated after that.
    return Call("POST", url, "run a query", _HEADERS, {}, data, live=True, bounded=True)


def list_tables(address: Address) -> Call:
    """Build the request for the tables that queries can read."""
    return Call("GET", f"{address.root}/v1/sql/tables", "list the tables of SQL", {}, {})


def parse_tables(response: Response) -> list[SqlTable]:
    """Return the tables that queries can read."""
    return responses.decode(response, SqlTables, "the tables of SQL").tables


def parse_result(response: Response) -> Result:
    """Return the result of a query, as a local store returns it."""
    result = responses.decode(response, SqlResult, "a query")
    return Result(
        [column.name for column in result.columns],
        [tuple(map(_decode_value, row)) for row in result.rows],
        cut=result.cut,
        truncated=result.truncated,
        warnings=result.warnings,
        types={column.name: column.type for column in result.columns if column.type is not None},
    )


def _encode_params(params: Params) -> Any:
    if isinstance(params, Mapping):
        return {name: _encode_param(value) for name, value in params.items()}
    return [_encode_param(value) for value in params]


def _encode_param(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, float) and math.isinf(value):
        return {"number": str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise InvalidInput(f"params: unsupported type {type(value).__name__}")


def _decode_value(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    try:
        if "base64" in value:
            return base64.b64decode(value["base64"])
        return float(value["number"])
    except (KeyError, ValueError, TypeError):
        raise BadAnswer(f"unexpected value in a result: {value!r:.80}") from None
