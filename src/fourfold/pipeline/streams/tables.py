"""The tables of streams, for Spark.

    streams     one row for each stream          producers   what each producer has written
    schemas     one row for each version of each registry
    records     the records that are in the file, each once, as they are stored
    messages    the same as their readers get them: in the version that their stream is at
    state       the newest value of each key of every state stream, folded
    files       one row for each file: what is in it, how far it goes, what is wrong with it

All streams of a store lie in one file. `records` is its hot part: what was sealed and published is
in the segments. A record that a fork shares with its source stands under the source's name alone.
The number that a read is cut at is the position of the newest record in the file; streaming reads
know their place by an offset for each stream instead, see `following`.

`changes` is what the fold of `state` reads, and internal: the messages of each JSON stream in
order, those that a fork shares included. `stored` is what `messages` are made of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from fourfold.kernel import ReadTransaction, Sequence
from fourfold.models.streams import MIGRATIONS, PROFILE
from fourfold.pipeline.conditions import Condition
from fourfold.pipeline.cut import FileBound
from fourfold.pipeline.options import ReadOptions
from fourfold.pipeline.streams.fold import SQL, folded_parts, quoted
from fourfold.pipeline.tables import Column, Kind, ModelTables, Table, tables_by_name

MODEL = "streams"
_STREAM = Column("stream", "string", nullable=False, filtered=True)
_OFFSET = Column("offset", "bigint", nullable=False, filtered=True)
_ONLY = ("stream",)
_STORED = (
    _STREAM,
    _OFFSET,
    Column("position", "bigint", nullable=False, filtered=True),
    Column("time", "timestamp", nullable=False),
    Column("payload", "binary", nullable=False),
    Column("routing_key", "string", filtered=True),
    Column("content_type", "string", nullable=False, filtered=True),
)

_TABLES = (
    Table(
        name="records",
        model=MODEL,
        description="The records that are in the file: bytes, and text where the stream holds text.",
        columns=(
            _STREAM,
            _OFFSET,
            Column("position", "bigint", nullable=False, filtered=True),
            Column("time", "timestamp", nullable=False),
            Column("payload", "binary", nullable=False),
            Column("text", "string"),
            Column("size", "bigint", nullable=False, filtered=True),
            Column("routing_key", "string", filtered=True),
            Column("content_type", "string", nullable=False, filtered=True),
        ),
        query="records",
        position="position",
        by_position=True,
        options=_ONLY,
    ),
    Table(
        name="messages",
        model=MODEL,
        description="The same as readers get them: each message in the version that its stream is at.",
        # The size is not filtered by SQLite, which knows that of what is stored.
        columns=(
            *_STORED[:5],
            Column("text", "string"),
            Column("size", "bigint", nullable=False),
            *_STORED[5:],
        ),
        query="",
        position="position",
        fold="fourfold.pipeline.streams.fold:promoted",
        reads="stored",
        options=_ONLY,
    ),
    Table(
        name="streams",
        model=MODEL,
        description="One row for each stream as it is now: offsets, sizes, its end, where it came from.",
        columns=(
            _STREAM,
            Column("content_type", "string", nullable=False, filtered=True),
            Column("created", "timestamp", nullable=False),
            Column("updated", "timestamp", nullable=False),
            Column("first_offset", "bigint", nullable=False),
            Column("next_offset", "bigint", nullable=False, filtered=True),
            Column("records", "bigint", nullable=False),
            Column("bytes", "bigint", nullable=False),
            Column("size", "bigint", nullable=False),
            Column("closed", "boolean", nullable=False),
            Column("ttl_seconds", "bigint"),
            Column("expires", "timestamp"),
            Column("forked_from", "string", filtered=True),
            Column("fork_offset", "bigint"),
            Column("forks", "bigint", nullable=False),
            Column("profile", "string", nullable=False, filtered=True),
            Column("schema_version", "bigint", filtered=True),
        ),
        query="streams",
        options=_ONLY,
    ),
    Table(
        name="schemas",
        model=MODEL,
        description="Each version of each registry: where it begins, its schema, the lens to it.",
        columns=(
            _STREAM,
            Column("version", "bigint", nullable=False, filtered=True),
            Column("from_offset", "bigint", nullable=False),
            Column("schema", "string", nullable=False),
            Column("lens", "string"),
            Column("current", "boolean", nullable=False),
        ),
        query="schemas",
        options=_ONLY,
    ),
    Table(
        name="producers",
        model=MODEL,
        description="Each producer of each stream: its epoch, and its last request.",
        columns=(
            _STREAM,
            Column("producer", "string", nullable=False, filtered=True),
            Column("epoch", "bigint", nullable=False),
            Column("last_seq", "bigint", nullable=False),
            Column("updated", "timestamp", nullable=False),
        ),
        query="producers",
        options=_ONLY,
    ),
    Table(
        name="state",
        model=MODEL,
        description="The newest value of each key of every state stream, in the order of last changes.",
        columns=(
            _STREAM,
            Column("type", "string", nullable=False),
            Column("key", "string", nullable=False),
            Column("value", "string", nullable=False),
        ),
        query="",
        fold="fourfold.pipeline.streams.fold:fold_states",
        reads="changes",
        options=_ONLY,
    ),
    Table(
        name="changes",
        model=MODEL,
        description="What the fold of states reads.",
        columns=(_STREAM, _OFFSET, Column("payload", "binary", nullable=False)),
        query="changes",
        public=False,
    ),
    Table(
        name="stored",
        model=MODEL,
        description="What messages are made of.",
        columns=_STORED,
        query="records",
        position="position",
        by_position=True,
        options=_ONLY,
        public=False,
    ),
)

POSITION = Sequence("records", read=SQL.position, claim="", advance="", seed="")
"""Only read: SQLite gives a record its position."""


def _position_at(snapshot: ReadTransaction, moment: datetime) -> int:
    return int(snapshot.value(SQL.position_at, (int(moment.timestamp() * 1000),)))


def _only(
    _mark: FileBound, options: ReadOptions, _conditions: Iterable[Condition], query: str
) -> Iterator[tuple[str, ...]]:
    """The option `stream`, around the query of a table."""
    if options.stream is None:
        yield (query,)
    else:
        yield (SQL.named.format(query=query, pattern=quoted(options.stream)),)


STREAMS = ModelTables(
    model=MODEL,
    folder="streams",
    suffix=".sqlite",
    kinds={PROFILE.name: Kind(PROFILE, MIGRATIONS, POSITION, _position_at, SQL, _only)},
    tables=tables_by_name(MODEL, _TABLES),
    folded_parts=folded_parts,
    spaces=False,
    stream_reader="fourfold.pipeline.streams.stream_source:stream_reader",
    sink="fourfold.pipeline.streams.sink",
)
