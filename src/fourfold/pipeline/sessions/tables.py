"""The tables of sessions, for Spark.

    events      the log of all sessions          heads      heads that were published
    sessions    one row for each session         edges      lineage edges
    turns       how each turn stands             messages   the transcript
    steps       how each step stands             evals      calls that were recorded
    payloads    metadata; `data` if it is asked for by name
    view        the state of each session at the cut, folded
    files       one row for each file: what is in it, how far it goes, what is wrong with it

All sessions of a store lie in one file. The number that orders it is the store's position: a cut is
one, an offset of a stream is one, and `at` may be one. Sessions that were deleted are in `sessions`
and nowhere else.

Entities (turns, steps, messages, evals) come as the newest event at or before the cut left them;
their own columns are picked out of the last one, which is the whole entity as canonical JSON (see
`fourfold.content`), without its id, which is a column. `view` is what `current_view(sid).state` is:
everything that does not grow with the log. The lists of a view are the other tables.

`tail` is what the fold of `view` reads, and internal: for each session the rows behind its newest
snapshot, the snapshot itself with the first of them.

The log of a store's sessions, opened for reading, in a worker or on the driver.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from fourfold.blobs import FolderBlobs
from fourfold.kernel import Database, ReadTransaction, load_queries
from fourfold.kernel.sequences import current
from fourfold.models.sessions.prepared import iso
from fourfold.models.sessions.sqlite_log import MIGRATIONS, POSITION, PROFILE, SqliteLog
from fourfold.pipeline.sessions.fold import tails
from fourfold.pipeline.tables import Column, Kind, ModelTables, Table, tables_by_name

MODEL = "sessions"
SQL = load_queries("fourfold.pipeline.sessions", "tables.sql")

_SESSION = Column("session", "string", nullable=False, filtered=True)
_EVENT_ID = Column("event_id", "bigint", nullable=False, filtered=True)
_POSITION = Column("position", "bigint", nullable=False, filtered=True)
_TIME = Column("time", "timestamp", nullable=False)
_PLACE = (_EVENT_ID, _POSITION, _TIME)
_TURN_ID = Column("turn_id", "bigint", filtered=True)


def _logged(name: str, says: str, *columns: Column, streamed: bool = True) -> Table:
    """A table whose rows are events, each at its position."""
    return Table(
        name=name,
        model=MODEL,
        description=says,
        columns=(_SESSION, *columns),
        query=name,
        position="position",
        by_position=True,
        counted="count_events" if streamed else "",
    )


_TABLES = (
    _logged(
        "events",
        "The log of all sessions: one row for each event.",
        _EVENT_ID,
        _POSITION,
        Column("type", "string", nullable=False, filtered=True),
        _TIME,
        Column("entity", "string", filtered=True),
        Column("entity_id", "bigint", filtered=True),
        Column("request_key", "string", filtered=True),
        Column("body", "string", nullable=False),
        Column("digest", "string", nullable=False),
    ),
    Table(
        name="sessions",
        model=MODEL,
        description="One row for each session, deleted ones too, with its newest event at the cut.",
        columns=(
            _SESSION,
            Column("created", "timestamp", nullable=False),
            Column("deleted", "timestamp"),
            Column("purged", "boolean", nullable=False),
            Column("events", "bigint", nullable=False),
            Column("position", "bigint"),
            Column("time", "timestamp"),
        ),
        query="sessions",
    ),
    _logged(
        "turns",
        "Every turn as it stands at the cut: its outcome, and what it used up.",
        Column("turn_id", "bigint", nullable=False, filtered=True),
        _EVENT_ID,
        _POSITION,
        Column("started", "timestamp", nullable=False),
        _TIME,
        Column("outcome", "string", filtered=True),
        Column("steps", "bigint"),
        Column("tokens", "double"),
        Column("cost", "double"),
        Column("usage", "string"),
        Column("error", "string"),
        Column("turn", "string", nullable=False),
        streamed=False,
    ),
    _logged(
        "steps",
        "Every step as it stands at the cut.",
        Column("step_id", "bigint", nullable=False, filtered=True),
        *_PLACE,
        _TURN_ID,
        Column("status", "string", filtered=True),
        Column("usage", "string"),
        Column("step", "string", nullable=False),
        streamed=False,
    ),
    _logged(
        "messages",
        "The transcript of every session; `compaction` marks a summary of what came before.",
        Column("message_id", "bigint", nullable=False, filtered=True),
        *_PLACE,
        Column("compaction", "boolean", nullable=False),
        _TURN_ID,
        Column("role", "string", filtered=True),
        Column("content", "string"),
        Column("message", "string", nullable=False),
    ),
    _logged(
        "evals",
        "What was evaluated, called or tried, with its result.",
        Column("eval_id", "bigint", nullable=False, filtered=True),
        *_PLACE,
        _TURN_ID,
        Column("name", "string", filtered=True),
        Column("status", "string", filtered=True),
        Column("eval", "string", nullable=False),
    ),
    _logged(
        "heads",
        "Heads: points to go on from, named by their content.",
        Column("head", "string", nullable=False, filtered=True),
        Column("basis", "string", filtered=True),
        Column("kind", "string", nullable=False, filtered=True),
        Column("first_event", "bigint", nullable=False),
        Column("last_event", "bigint", nullable=False),
        _TURN_ID,
        *_PLACE,
        Column("content", "string", nullable=False),
    ),
    _logged(
        "edges",
        "Lineage edges: which session came from which, in whichever log they stand.",
        Column("edge", "string", nullable=False, filtered=True),
        Column("type", "string", nullable=False, filtered=True),
        Column("from_session", "string", nullable=False, filtered=True),
        Column("to_session", "string", nullable=False, filtered=True),
        Column("from_head", "string", filtered=True),
        Column("to_head", "string", nullable=False, filtered=True),
        *_PLACE,
        Column("content", "string", nullable=False),
    ),
    Table(
        name="payloads",
        model=MODEL,
        description="Large values: hash, size; the bytes of those that are no files as `data`.",
        columns=(
            Column("hash", "string", nullable=False, filtered=True),
            Column("size", "bigint", nullable=False, filtered=True),
            Column("touched", "timestamp", nullable=False),
            Column("is_file", "boolean", nullable=False),
            Column("data", "binary", hidden=True),
        ),
        query="payloads",
    ),
    Table(
        name="view",
        model=MODEL,
        description="The state of every session at the cut.",
        columns=(
            _SESSION,
            Column("event_id", "bigint", nullable=False),
            Column("position", "bigint"),
            Column("status", "string"),
            Column("info", "string"),
            Column("messages", "bigint", nullable=False),
            Column("turns", "bigint", nullable=False),
            Column("steps", "bigint", nullable=False),
            Column("evals", "bigint", nullable=False),
            Column("current_head", "string"),
            Column("covered", "bigint", nullable=False),
            Column("vars_ref", "string"),
            Column("compact_from_event_id", "bigint"),
            Column("error", "string"),
            Column("digest", "string"),
        ),
        query="",
        fold="fourfold.pipeline.sessions.fold:fold_views",
        reads="tail",
        options=("event",),
    ),
    Table(
        name="tail",
        model=MODEL,
        description="What the fold of views reads.",
        columns=(
            _SESSION,
            Column("base", "bigint"),
            Column("state", "string"),
            Column("position", "bigint"),
            Column("event_id", "bigint"),
            Column("type", "string"),
            Column("at", "string"),
            Column("entity", "bigint"),
            Column("entity_id", "bigint"),
            Column("request_key", "string"),
            Column("body", "string"),
            Column("digest", "binary"),
        ),
        query="tail",
        public=False,
    ),
)


def _position_at(snapshot: ReadTransaction, moment: datetime) -> int:
    """The position before the first event that is later. Sessions that were imported bring events
    of the past with them, so the newest event of a time says nothing about the log.
    """
    later = snapshot.value(SQL.first_after, (iso(moment),))
    return current(POSITION, snapshot, "") if later is None else int(later) - 1


SESSIONS = ModelTables(
    model=MODEL,
    folder="sessions",
    suffix=".db",
    kinds={PROFILE.name: Kind(PROFILE, MIGRATIONS, POSITION, _position_at, SQL)},
    tables=tables_by_name(MODEL, _TABLES),
    folded_parts=tails,
    spaces=False,
)


@contextmanager
def log_in(path: str) -> Iterator[SqliteLog]:
    """The log in a file, beside whoever writes it."""
    with Database.open(
        Path(path), profile=PROFILE, migrations=MIGRATIONS, sequences=(POSITION,), mode="r"
    ) as database:
        yield SqliteLog(database)


def files_beside(path: str) -> FolderBlobs:
    """Where the largest payloads of that log lie."""
    return FolderBlobs(Path(path).parent / "blobs")
