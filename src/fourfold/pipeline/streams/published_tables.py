"""Tables that are read from published objects, without the node that published them.

records     every published record, with the generation of its manifest
messages    records as readers get them: in the current version of their stream
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from fourfold.errors import NotFound
from fourfold.query.tables import Column, ModelTables, Table

MODEL: Final = "streams"
RECORDS: Final = "records"
MESSAGES: Final = "messages"

_TABLE: Final = Table(
    name=RECORDS,
    model=MODEL,
    description="Every published record.",
    columns=(
        Column("stream", "string", nullable=False, filtered=True),
        Column("offset", "bigint", nullable=False, filtered=True),
        Column("time", "timestamp", nullable=False),
        Column("payload", "binary", nullable=False),
        Column("text", "string"),
        Column("size", "bigint", nullable=False),
        Column("routing_key", "string", filtered=True),
        Column("headers", "string"),
        Column("content_type", "string", nullable=False, filtered=True),
        Column("generation", "bigint", nullable=False),
    ),
    query="",
    options=("stream", "shared"),
)

_MESSAGES: Final = replace(
    _TABLE,
    name=MESSAGES,
    description="Every published message, in the current version of its stream.",
)

PUBLISHED: Final = ModelTables(
    model=MODEL,
    folder="streams",
    suffix=".sqlite",
    kinds={},
    tables={RECORDS: _TABLE, MESSAGES: _MESSAGES},
    spaces=False,
)


def published_tables(model: str) -> ModelTables:
    """Return the tables of a model that can be read from objects alone."""
    if model != MODEL:
        raise NotFound(
            f"published objects require model 'streams', got {model!r}",
            hint="Omit the option objects, or the option model.",
        )
    return PUBLISHED
