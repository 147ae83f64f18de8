"""Tables of graphs.

    parents, attrs, edges, ratings    rows as they were written, every version, of all apps
    changes     the rows of all kinds together: the change feed; can be streamed
    current     the newest version of every object at the cut, without suppressed ones; folded
    apps        the apps, with their usage        types       the types of every app
    envelopes   the app and the kinds of each transaction; can be streamed
    logs        the apps' own logs                identities  public keys
    peers       what peers and this node have sent and received
    files       one row for each file: its kind, its newest seq, its problem

There is one table for each kind, whatever apps there are: the column `app` has the app of a row,
and the option `app` selects one. Everything is ordered by `global_seq`: a cut, a stream offset and
`at` are seqs. A transaction is never split.

`versions` is internal, the input of `current`: the versions of objects, and with each the ratings
that suppress its object or its targets, grouped by object.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from fourfold.kernel import ReadTransaction, load_queries
from fourfold.kernel.sequences import current
from fourfold.models.graphs.database import GLOBAL_SEQ, MIGRATIONS, PROFILE
from fourfold.query.graphs import shapes
from fourfold.query.tables import Column, Kind, ModelTables, Table, tables_by_name

MODEL = "graphs"
SQL = load_queries("fourfold.query.graphs", "tables.sql")
_SEQ = Column("global_seq", "bigint", nullable=False, filtered=True)
_CREATED = Column("created_at", "timestamp")


def _written(name: str, description: str, columns: tuple[Column, ...]) -> Table:
    """Return a table of log rows."""
    return Table(
        name=name,
        model=MODEL,
        description=description,
        columns=columns,
        query="rows",
        position="global_seq",
        by_position=True,
        options=("app",),
        count_query="numbers",
    )


_TABLES = (
    _written("parents", "The objects of all apps: every version.", shapes.of_kind("parent")),
    _written("attrs", "The attributes of objects: every version.", shapes.of_kind("attr")),
    _written("edges", "The edges between objects: every version.", shapes.of_kind("edge")),
    _written("ratings", "The ratings of objects: every version.", shapes.of_kind("rating")),
    _written("changes", "The rows of all kinds, in the order of the log.", shapes.of_all()),
    Table(
        name="current",
        model=MODEL,
        description="The newest version of every object at the cut, without suppressed ones.",
        columns=shapes.of_folded(),
        query="",
        reads="versions",
        options=("app", "trusted", "suppressed"),
    ),
    Table(
        name="versions",
        model=MODEL,
        description="The input of the fold of current objects.",
        columns=(
            Column("target", "bigint"),
            *(Column(column.name, column.type) for column in shapes.of_all()),
            Column("node", "string"),
            Column("wanted", "string"),
            Column("via", "bigint"),
            Column("judged_owner", "bigint"),
            Column("trusted", "string"),
            Column("suppressed", "boolean"),
        ),
        query="versions",
        public=False,
    ),
    Table(
        name="apps",
        model=MODEL,
        description="The apps, with their usage and limits. As they are now for any `at`.",
        columns=(
            *shapes.APP,
            Column("title", "string", nullable=False),
            Column("version", "bigint", nullable=False),
            _CREATED,
            *(Column(name, "bigint") for name in ("rows", "bytes", "rows_max", "bytes_max")),
        ),
        query="apps",
    ),
    Table(
        name="types",
        model=MODEL,
        description="The types of every app, by kind. As they are now for any `at`.",
        columns=(
            *shapes.APP,
            Column("type_id", "bigint", nullable=False, filtered=True),
            shapes.KIND,
            shapes.TYPE,
        ),
        query="types",
        options=("app",),
    ),
    Table(
        name="envelopes",
        model=MODEL,
        description="One row for each transaction: its app and its kinds.",
        columns=(
            *shapes.APP,
            _SEQ,
            Column("kinds", "bigint", nullable=False),
            Column("sync_flags", "bigint", nullable=False),
            _CREATED,
            Column("trace_id", "string", filtered=True),
        ),
        query="envelopes",
        position="global_seq",
        by_position=True,
        count_query="count_envelopes",
    ),
    Table(
        name="logs",
        model=MODEL,
        description="The apps' own logs, which have no seq. As they are now for any `at`.",
        columns=(
            *shapes.APP,
            Column("id", "bigint", nullable=False),
            Column("level", "string", nullable=False, filtered=True),
            Column("event_type", "string", nullable=False, filtered=True),
            Column("context_json", "string", nullable=False),
            _CREATED,
        ),
        query="logs",
        options=("app",),
    ),
    Table(
        name="identities",
        model=MODEL,
        description="The known public keys. As they are now for any `at`.",
        columns=(
            Column("id", "bigint", nullable=False, filtered=True),
            Column("pubkey", "string", nullable=False, filtered=True),
            Column("label", "string"),
            _CREATED,
        ),
        query="identities",
    ),
    Table(
        name="peers",
        model=MODEL,
        description="Peers and domains: positions, lag, and pending messages. As they are now for "
        "any `at`.",
        columns=(
            Column("peer_id", "bigint", nullable=False, filtered=True),
            Column("identity_id", "bigint", nullable=False, filtered=True),
            Column("endpoint", "string", nullable=False),
            Column("domain", "string", nullable=False, filtered=True),
            *(Column(name, "bigint") for name in ("received", "sent", "newest", "lag", "waiting")),
        ),
        query="peers",
    ),
)


def _seq_at(snapshot: ReadTransaction, time: datetime) -> int:
    """Return the last seq that was assigned at or before a time."""
    later = snapshot.value(SQL.first_after, (time.astimezone(UTC).isoformat(),))
    return current(GLOBAL_SEQ, snapshot, "") if later is None else int(later) - 1


_IDENTITIES = {
    "parents": "app id",
    "attrs": "app id",
    "edges": "app id",
    "ratings": "app id",
    "changes": "app kind id",
    "current": "app kind object_id",
    "apps": "app",
    "types": "app type_id",
    "envelopes": "global_seq",
    "logs": "app id",
    "identities": "id",
    "peers": "peer_id domain",
}
_DESCRIPTIONS: Final = {
    "app": "Slug of the app.",
    "app_id": "Id of the app.",
    "kind": "Kind of the row: parent, attr, edge or rating.",
    "type": "Key of the type.",
    "type_id": "Id of the type.",
    "id": "Id of the row.",
    "identities.id": "Id of the identity.",
    "logs.id": "Number of the entry.",
    "object_id": "Id of the object: that of its first row.",
    "version": "Number of the version of the object.",
    "apps.version": "Version of the schema of the app.",
    "owner_identity": "Identity that owns the object.",
    "global_seq": "Seq of the transaction.",
    "sync_flags": "Bits of the domains in which the row is synced.",
    "created_at": "Time of creation, as its writer set it.",
    "updated_at": "Time of the change, as its writer set it.",
    "origin": "Node that wrote the row.",
    "origin_seq": "Seq of the transaction on that node.",
    "position": "Place of the row in its transaction.",
    "leads": "True if this was the newest version of its object when it arrived here.",
    "parent_id": "Object to which the attribute belongs.",
    "src_parent_id": "Object from which the edge leads.",
    "dst_parent_id": "Object to which the edge leads.",
    "dst_attr_id": "Attribute to which the edge leads.",
    "target_parent_id": "Object that is rated.",
    "target_attr_id": "Attribute that is rated.",
    "value_text": "Value as text.",
    "value_number": "Value as a number.",
    "value_json": "Value as JSON.",
    "value_blob": "Value as bytes.",
    "title": "Title of the app.",
    "rows": "Rows that the app has.",
    "bytes": "Bytes that the app uses.",
    "rows_max": "Limit of its rows.",
    "bytes_max": "Limit of its bytes.",
    "kinds": "Bits of the kinds that the transaction wrote.",
    "trace_id": "Text that the writer gave the transaction.",
    "level": "Level of the entry.",
    "event_type": "Type of the entry.",
    "context_json": "The entry, as JSON.",
    "pubkey": "Public key.",
    "label": "Display name.",
    "peer_id": "Id of the peer.",
    "identity_id": "Identity of the peer.",
    "endpoint": "Address of the peer.",
    "domain": "Domain of the sync.",
    "received": "Envelopes of the domain that were accepted from the peer.",
    "sent": "Envelopes of the domain that the peer has confirmed.",
    "newest": "Envelopes of the domain that this node has.",
    "lag": "Envelopes that the peer has not confirmed.",
    "waiting": "Shared rows of the domain that are not signed yet.",
}
"""Descriptions of columns, by name, or by `table.column` where tables differ."""

TABLES = ModelTables(
    model=MODEL,
    folder="graphs",
    suffix=".db",
    kinds={PROFILE.name: Kind(PROFILE, MIGRATIONS, GLOBAL_SEQ, _seq_at, SQL)},
    tables=tables_by_name(MODEL, _TABLES, _IDENTITIES, _DESCRIPTIONS),
    spaces=False,
    rows="fourfold.query.graphs.rows",
    name_column="app",
)
