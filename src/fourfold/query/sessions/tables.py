"""Tables of sessions.

    events      the log of all sessions          heads      published heads
    sessions    one row for each session         edges      lineage edges
    turns       the state of each turn           messages   the transcript
    steps       the state of each step           evals      recorded calls
    payloads    metadata; `data` if `columns` contains it
    view        the state of each session at the cut, folded
    files       one row for each file: its kind, its newest position, its problem

All sessions of a store are in one file, ordered by the store's position: a cut, a stream offset
and `at` are positions. Deleted sessions are only in `sessions`.

Entities (turns, steps, messages, evals) have the state after the newest event at or before the cut;
their columns are extracted from the last column, which is the whole entity as canonical JSON (see
`fourfold.content`), without its id, which is a column. `view` is `current_view(sid).state`:
everything that does not grow with the log. The lists of a view are the other tables.

`tail` is internal, the input of `view`: for each session the rows after its newest snapshot, with
the snapshot itself in the first of them. `session_keys` is internal, too: events in the archive
have the key of their session, not its id.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from fourfold.kernel import ReadTransaction, load_queries
from fourfold.kernel.sequences import current
from fourfold.models.sessions.database import MIGRATIONS, POSITION, PROFILE
from fourfold.models.sessions.request_builder import iso
from fourfold.query.tables import Column, Kind, ModelTables, Table, tables_by_name

MODEL = "sessions"
SQL = load_queries("fourfold.query.sessions", "tables.sql")

_SESSION = Column("session", "string", nullable=False, filtered=True)
_EVENT_ID = Column("event_id", "bigint", nullable=False, filtered=True)
_POSITION = Column("position", "bigint", nullable=False, filtered=True)
_TIME = Column("time", "timestamp", nullable=False)
_PLACE = (_EVENT_ID, _POSITION, _TIME)
_TURN_ID = Column("turn_id", "bigint", filtered=True)


def _logged(name: str, description: str, *columns: Column, streamed: bool = True) -> Table:
    """Return a table whose rows are events, each with its position."""
    return Table(
        name=name,
        model=MODEL,
        description=description,
        columns=(_SESSION, *columns),
        query=name,
        position="position",
        by_position=True,
        count_query="count_events" if streamed else "",
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
        description="One row for each session, including deleted ones, with its newest event. "
        "As it is now for any `at`.",
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
        "Every turn at the cut: its outcome and usage.",
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
        "Every step at the cut.",
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
        "The transcript of every session; `compaction` marks a summary of earlier messages.",
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
        "Evaluations and calls, with their results.",
        Column("eval_id", "bigint", nullable=False, filtered=True),
        *_PLACE,
        _TURN_ID,
        Column("name", "string", filtered=True),
        Column("status", "string", filtered=True),
        Column("eval", "string", nullable=False),
    ),
    _logged(
        "heads",
        "Heads: points to continue from, identified by content.",
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
        "Lineage edges: which session came from which.",
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
        description="Large values: hash, size; `data` unless they are stored as files.",
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
        reads="tail",
        options=("event",),
    ),
    Table(
        name="tail",
        model=MODEL,
        description="The input of the fold of views.",
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
    Table(
        name="session_keys",
        model=MODEL,
        description="The keys of sessions that are not deleted, for the events in the archive.",
        columns=(Column("session_key", "bigint", nullable=False), _SESSION),
        query="session_keys",
        public=False,
    ),
)


def _position_at(snapshot: ReadTransaction, time: datetime) -> int:
    """Return the position before the first later event. Imported sessions have old events, so the
    newest event at a time does not determine the position.
    """
    later = snapshot.value(SQL.first_after, (iso(time),))
    return current(POSITION, snapshot, "") if later is None else int(later) - 1


_IDENTITIES = {
    "events": "position",
    "sessions": "session",
    "turns": "session turn_id",
    "steps": "session step_id",
    "messages": "session message_id",
    "evals": "session eval_id",
    "heads": "session head",
    "edges": "session edge",
    "payloads": "hash",
    "view": "session",
}
_DESCRIPTIONS: Final = {
    "session": "Id of the session.",
    "event_id": "Id of the event in its session.",
    "view.event_id": "Id of the newest event of the view.",
    "position": "Position of the event in the log of all sessions.",
    "type": "Type of the event.",
    "edges.type": "Type of the edge.",
    "time": "Time of the event.",
    "sessions.time": "Time of the newest event.",
    "entity": "What the event is about: message, turn, step or eval.",
    "entity_id": "Id of that entity.",
    "request_key": "Idempotency key of the request.",
    "body": "The fields of the event, as JSON.",
    "digest": "Digest of all events up to this one.",
    "created": "Time when the session was created.",
    "deleted": "Time when the session was deleted; null if it was not.",
    "purged": "True if the data of a deleted session is removed.",
    "events": "Number of events.",
    "turn_id": "Id of the turn.",
    "started": "Time when the turn began.",
    "outcome": "Status of the turn.",
    "turns.steps": "Steps of the turn.",
    "view.steps": "Number of steps.",
    "tokens": "Tokens that the turn used.",
    "cost": "Cost of the turn.",
    "usage": "Usage, as JSON.",
    "error": "Error, as JSON; null if there is none.",
    "turn": "The whole turn, as JSON.",
    "step_id": "Id of the step.",
    "status": "Status of the entity.",
    "view.status": "Status of the session.",
    "step": "The whole step, as JSON.",
    "message_id": "Id of the message.",
    "compaction": "True for a summary of earlier messages.",
    "role": "Role of the author.",
    "content": "Content, as JSON.",
    "message": "The whole message, as JSON.",
    "eval_id": "Id of the evaluation or call.",
    "name": "Name of what was called.",
    "eval": "The whole evaluation, as JSON.",
    "head": "Id of the head.",
    "basis": "Head from which it continues.",
    "kind": "Kind of the head.",
    "first_event": "First event that the head covers.",
    "last_event": "Last event that the head covers.",
    "edge": "Id of the edge.",
    "from_session": "Session from which the other came.",
    "to_session": "Session that came from it.",
    "from_head": "Head from which it continues.",
    "to_head": "Head that continues.",
    "hash": "Hash of the payload.",
    "size": "Number of bytes.",
    "touched": "Time when the payload was last stored.",
    "is_file": "True if the payload is stored as a file.",
    "data": "The bytes, unless they are stored as a file.",
    "info": "Fields of the session, as JSON.",
    "messages": "Number of messages.",
    "turns": "Number of turns.",
    "evals": "Number of evaluations.",
    "current_head": "Id of the current head.",
    "covered": "Last event that the current head covers.",
    "vars_ref": "Reference to the variables.",
    "compact_from_event_id": "Event from which the transcript counts.",
}
"""Descriptions of columns, by name, or by `table.column` where tables differ."""

TABLES = ModelTables(
    model=MODEL,
    folder="sessions",
    suffix=".db",
    kinds={PROFILE.name: Kind(PROFILE, MIGRATIONS, POSITION, _position_at, SQL)},
    tables=tables_by_name(MODEL, _TABLES, _IDENTITIES, _DESCRIPTIONS),
    spaces=False,
    rows="fourfold.query.sessions.rows",
    name_column="session",
)
