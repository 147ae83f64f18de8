"""Messages between the server and the processes that run queries.

They are apart from `query_process`, so that a server does not load the engine of queries.
"""

from __future__ import annotations

import struct
from typing import Any, Final, Literal

from msgspec import Struct

from fourfold.wire.sql import SqlQuery

Format = Literal["json", "ndjson", "csv", "arrow"]
LENGTH: Final = struct.Struct(">I")
ENVIRONMENT: Final = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}
"""Other allocators reserve more address space than the limit allows."""
BASE64: Final = "base64"
NUMBER: Final = "number"
"""Key of bytes in JSON."""


class QueryTask(Struct, kw_only=True, frozen=True):
    """A query to run: what the client sent, and what its key may read."""

    body: SqlQuery
    """Without its parameters."""
    params: list[Any] | dict[str, Any]
    prefixes: dict[str, tuple[str, ...]] | None
    format: Format


class QueryOutcome(Struct, kw_only=True, frozen=True):
    """Outcome of a query; the bytes of its result follow."""

    error: dict[str, Any] | None = None
    size: int = 0
    rows: int = 0
    truncated: bool = False
    ends: bool = False
    """True if the process ends now: it has used too much memory for another query."""
