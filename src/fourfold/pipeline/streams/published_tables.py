"""The tables that are read from published objects, without the node that published them.

    records     every published record, with the generation of the manifest that tells of it
    messages    the same as readers get them: in the version that their stream is at

Where the folder of the node is given too, the records that are not published yet are in it as well,
without a generation.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from fourfold.errors import NotFound
from fourfold.pipeline.tables import Column, ModelTables, Table

MODEL: Final = "streams"
RECORDS: Final = "records"
MESSAGES: Final = "messages"

_TABLE: Final = Table(
    name=RECORDS,
    model=MODEL,
    description="Every published record, of whichever node.",
    columns=(
        Column("stream", "string", nullable=False, filtered=True),
        Column("offset", "bigint", nullable=False, filtered=True),
        Column("time", "timestamp", nullable=False),
        Column("payload", "binary", nullable=False),
        Column("text", "string"),
        Column("size", "bigint", nullable=False),
        Column("routing_key", "string", filtered=True),
        Column("content_type", "string", nullable=False, filtered=True),
        Column("generation", "bigint"),
    ),
    query="",
    options=("stream", "shared"),
)

_MESSAGES: Final = replace(
    _TABLE,
    name=MESSAGES,
    description="Every published message, in the version that its stream is at.",
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
    """What of a model can be read from objects alone."""
    if model != MODEL:
        raise NotFound(
            f"the objects of {model} are no tables",
            hint="Only those of streams are: leave out the option objects, or the model.",
        )
    return PUBLISHED
