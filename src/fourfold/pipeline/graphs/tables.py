"""The tables of graphs, for Spark.

    parents, attrs, edges, ratings    rows as they were written, every version, of all apps
    changes     the same rows of all kinds together: the change feed; can be streamed
    current     the newest version of every object at the cut, without what is suppressed; folded
    apps        the apps, with what they hold     types       the types of every app
    envelopes   what was written under each number; can be streamed
    logs        the apps' own logs                identities  public keys
    peers       how far peers and this node have told each other
    files       one row for each file: what is in it, how far it goes, what is wrong with it

There is one table for each kind, whatever apps there are: the column `app` says whose row it is,
and the option `app` reads one app alone. The number that orders everything is `global_seq`: a cut
is one, an offset of a stream is one, and `at` may be one. Nothing that was written under one number
is ever cut.

`versions` is what the fold of `current` reads, and internal: the versions of objects, and with each
the ratings that suppress its object or what it points at, those of one object together.
"""

from __future__ import annotations

from datetime import UTC, datetime

from fourfold.kernel import ReadTransaction
from fourfold.kernel.sequences import current
from fourfold.models.graphs.model import GLOBAL_SEQ, MIGRATIONS, PROFILE
from fourfold.pipeline.graphs import shapes
from fourfold.pipeline.graphs.app_tables import SQL, check_app, counted, spread
from fourfold.pipeline.graphs.fold import objects
from fourfold.pipeline.tables import Column, Kind, ModelTables, Table, tables_by_name

MODEL = "graphs"
_SEQ = Column("global_seq", "bigint", nullable=False, filtered=True)
_CREATED = Column("created_at", "timestamp")


def _written(name: str, says: str, columns: tuple[Column, ...]) -> Table:
    """A table of rows of the log."""
    return Table(
        name=name,
        model=MODEL,
        description=says,
        columns=columns,
        query="rows",
        position="global_seq",
        by_position=True,
        options=("app",),
        counted="numbers",
    )


_TABLES = (
    _written("parents", "The objects of all apps: every version.", shapes.of_kind("parent")),
    _written("attrs", "The attributes of objects: every version.", shapes.of_kind("attr")),
    _written("edges", "The edges between objects: every version.", shapes.of_kind("edge")),
    _written("ratings", "What was said about objects: every version.", shapes.of_kind("rating")),
    _written("changes", "The rows of all kinds, in the order of the log.", shapes.of_all()),
    Table(
        name="current",
        model=MODEL,
        description="The newest version of every object at the cut, without what is suppressed.",
        columns=shapes.of_folded(),
        query="",
        fold="fourfold.pipeline.graphs.fold:fold_current",
        reads="versions",
        options=("app", "trusted", "suppressed"),
    ),
    Table(
        name="versions",
        model=MODEL,
        description="What the fold of current objects reads.",
        columns=(
            Column("target", "bigint"),
            *(Column(each.name, each.type) for each in shapes.of_all()),
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
        description="The apps, with what they hold and may hold.",
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
        description="The types of every app, by kind.",
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
        description="What was written under each number: in which app, in which tables.",
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
        counted="count_envelopes",
    ),
    Table(
        name="logs",
        model=MODEL,
        description="The apps' own logs, which have no number.",
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
        description="The public keys that are known.",
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
        description="Peers and domains: how far each has come, and what waits for it.",
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


def _seq_at(snapshot: ReadTransaction, moment: datetime) -> int:
    """The number before the first one that was given out later."""
    later = snapshot.value(SQL.first_after, (moment.astimezone(UTC).isoformat(),))
    return current(GLOBAL_SEQ, snapshot, "") if later is None else int(later) - 1


GRAPHS = ModelTables(
    model=MODEL,
    folder="graphs",
    suffix=".db",
    kinds={
        PROFILE.name: Kind(
            PROFILE, MIGRATIONS, GLOBAL_SEQ, _seq_at, SQL, spread=spread, counted=counted
        )
    },
    tables=tables_by_name(MODEL, _TABLES),
    folded_parts=objects,
    check=check_app,
    spaces=False,
)
