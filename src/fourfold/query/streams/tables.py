"""Tables of streams.

    streams     one row for each stream          producers   the last request of each producer
    schemas     one row for each version of each registry
    records     the records, each once, as stored
    messages    records as readers get them: in the current version of their stream
    state       the newest value of each key of every state stream, folded
    files       one row for each file: its kind, its newest position, its problem

All streams of a store are in one file, but published records are in segments, which only Spark
reads. A record that a fork shares with its source has the name of the source only. The cut of a
read is the position of the newest record in the file; streaming reads have an offset for each
stream instead, see `stream_source`.

`changes` and `stored` are internal: the input of `state`, which are the messages of each JSON
stream in order, including those that a fork shares, and the input of `messages`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from fourfold.kernel import ReadTransaction, Sequence, load_queries
from fourfold.models.streams import MIGRATIONS, PROFILE
from fourfold.query.tables import Column, Kind, ModelTables, Table, tables_by_name

MODEL = "streams"
SQL = load_queries("fourfold.query.streams", "tables.sql")
_STREAM = Column("stream", "string", nullable=False, filtered=True)
_OFFSET = Column("offset", "bigint", nullable=False, filtered=True)
_ONLY = ("stream",)
_STORED = (
    _STREAM,
    _OFFSET,
    Column("position", "bigint", filtered=True),
    Column("time", "timestamp", nullable=False),
    Column("payload", "binary", nullable=False),
    Column("routing_key", "string", filtered=True),
    Column("headers", "string"),
    Column("content_type", "string", nullable=False, filtered=True),
)

_TABLES = (
    Table(
        name="records",
        model=MODEL,
        description="The records: bytes, and text if the stream has text. In process those in the "
        "file: published ones are in segments, and a warning names their streams.",
        columns=(
            _STREAM,
            _OFFSET,
            Column("position", "bigint", filtered=True),
            Column("time", "timestamp", nullable=False),
            Column("payload", "binary", nullable=False),
            Column("text", "string"),
            Column("size", "bigint", nullable=False, filtered=True),
            Column("routing_key", "string", filtered=True),
            Column("headers", "string"),
            Column("content_type", "string", nullable=False, filtered=True),
        ),
        query="records",
        position="position",
        by_position=True,
        options=_ONLY,
        lacking="published",
    ),
    Table(
        name="messages",
        model=MODEL,
        description="The records as readers get them, in the current version of their stream. In "
        "process those in the file: published ones are in segments, and a warning names their "
        "streams.",
        # The size is not filtered by SQLite, which knows that of what is stored.
        columns=(
            *_STORED[:5],
            Column("text", "string"),
            Column("size", "bigint", nullable=False),
            *_STORED[5:],
        ),
        query="",
        position="position",
        reads="stored",
        options=_ONLY,
        lacking="published",
    ),
    Table(
        name="streams",
        model=MODEL,
        description="One row for each stream: offsets, sizes, whether it is closed, its origin. As "
        "it is now; `at` leaves out streams that were created later.",
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
        description="Each version of each registry: its first offset, schema and lens. As it is "
        "now; `at` leaves out streams that were created later.",
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
        description="Each producer of each stream: its epoch and its last request. As it is "
        "now; `at` leaves out streams that were created later.",
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
        description="The newest value of each key of every state stream, by last change.",
        columns=(
            _STREAM,
            Column("type", "string", nullable=False),
            Column("key", "string", nullable=False),
            Column("value", "string", nullable=False),
        ),
        query="",
        reads="changes",
        options=_ONLY,
    ),
    Table(
        name="changes",
        model=MODEL,
        description="The input of the fold of states.",
        columns=(_STREAM, _OFFSET, Column("payload", "binary", nullable=False)),
        query="changes",
        public=False,
    ),
    Table(
        name="stored",
        model=MODEL,
        description="The input of messages.",
        columns=_STORED,
        query="records",
        position="position",
        by_position=True,
        options=_ONLY,
        public=False,
    ),
)

POSITION = Sequence("records", read=SQL.position, claim="", advance="", seed="")
"""Read-only: SQLite assigns the position of a record."""


def _position_at(snapshot: ReadTransaction, time: datetime) -> int:
    return int(snapshot.value(SQL.position_at, (int(time.timestamp() * 1000),)))


_IDENTITIES = {
    "records": "position",
    "messages": "position",
    "streams": "stream",
    "schemas": "stream version",
    "producers": "stream producer",
    "state": "stream type key",
}
_DESCRIPTIONS: Final = {
    "stream": "Name of the stream.",
    "offset": "Offset of the record in its stream.",
    "position": "Position of the record in the log of all streams; null for published ones in "
    "Spark.",
    "time": "Time of the append.",
    "payload": "The bytes of the record.",
    "text": "The record as text, if the stream has text or JSON.",
    "size": "Number of bytes of the record.",
    "streams.size": "Bytes of all records that were ever appended.",
    "routing_key": "Routing key of the record.",
    "headers": "Headers of the record as JSON; null without any.",
    "content_type": "Media type of the stream.",
    "created": "Time when the stream was created.",
    "updated": "Time of the newest change of the stream.",
    "producers.updated": "Time of the last request of the producer.",
    "first_offset": "Earliest offset that is retained.",
    "next_offset": "Offset of the next record.",
    "records": "Records of the stream in the file.",
    "bytes": "Bytes of the records in the file.",
    "closed": "True if nothing more can be appended.",
    "ttl_seconds": "Seconds after which the stream expires.",
    "expires": "Time when the stream expires.",
    "forked_from": "Stream from which it was forked.",
    "fork_offset": "Offset of the source at which the fork begins.",
    "forks": "Number of forks of the stream.",
    "profile": "Profile of the stream.",
    "schema_version": "Current version of the schema; null without one.",
    "version": "Version of the schema.",
    "from_offset": "First offset that was written with this version.",
    "schema": "The JSON Schema.",
    "lens": "The lens from the version before, as JSON.",
    "current": "True for the current version.",
    "producer": "Id of the producer.",
    "epoch": "Epoch of the producer.",
    "last_seq": "Number of its last request.",
    "type": "Type of the row in the state.",
    "key": "Key of the row.",
    "value": "Newest value of the key, as JSON.",
}
"""Descriptions of columns, by name, or by `table.column` where tables differ."""

TABLES = ModelTables(
    model=MODEL,
    folder="streams",
    suffix=".sqlite",
    kinds={PROFILE.name: Kind(PROFILE, MIGRATIONS, POSITION, _position_at, SQL)},
    tables=tables_by_name(MODEL, _TABLES, _IDENTITIES, _DESCRIPTIONS),
    spaces=False,
    rows="fourfold.query.streams.rows",
    name_column="stream",
)
