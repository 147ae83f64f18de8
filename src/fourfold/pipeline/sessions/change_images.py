"""Changes of sessions with their images before and after, from the log in an archive.

A change is an event about an entity: a turn, a step, a message, an eval. Its images are the entity
as JSON without its id, as in the last columns of the tables of these. An event replaces an entity
as a whole, so the image before is in the event before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from fourfold.archive.table_layout import FILE_ID, OP, POINT, PUT
from fourfold.models.sessions.stamps import ENTITY_CODES
from fourfold.pipeline.image_changes import (
    PRESENT,
    ImageLog,
    ImageTask,
    SmallRows,
    kind_of,
    new_rows,
    rows_of,
)
from fourfold.query.tables import Column

LOG: Final = "sessions.events"
_SESSIONS: Final = "sessions.sessions"
_COLUMNS: Final = (
    Column("session", "string"),
    Column("file_id", "string"),
    Column("position", "bigint"),
    Column("event_id", "bigint"),
    Column("type", "string"),
    Column("entity", "string"),
    Column("entity_id", "bigint"),
    Column("change", "string"),
    Column("before", "string"),
    Column("after", "string"),
    Column("_point", "bigint"),
)
_KEYS: Final = (FILE_ID, OP, POINT, "session_key", "entity", "entity_id")
_LOG_COLUMNS: Final = (*_KEYS, "position", "event_id", "type", "body")
_NAMES: Final = {code: name for name, code in ENTITY_CODES.items()}
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])

Key = tuple[str, int, int, int]
"""The id of the database file, the key of a session, and what the event is about."""


def _facts(rows: SmallRows, until: int) -> Mapping[str, dict[int, str]]:
    """Return the ids of sessions by their keys."""
    found: dict[str, dict[int, str]] = {}
    for table in rows(_SESSIONS, (FILE_ID, POINT, OP, "session_key", "session_id")):
        for row in table.to_pylist():
            if row[OP] in PRESENT and row[POINT] <= until:
                found.setdefault(row[FILE_ID], {})[row["session_key"]] = row["session_id"]
    return found


def _key(row: Mapping[str, Any]) -> Key:
    return row[FILE_ID], row["session_key"], row["entity"], row["entity_id"]


def _read(task: ImageTask) -> Iterator[dict[str, Any]]:
    """Yield the changes of a task, in the order of databases, sessions, entities and positions."""
    changed = {_key(row) for row in new_rows(task, _KEYS) if row["entity"] is not None}
    logs: dict[Key, dict[int, Mapping[str, Any]]] = {key: {} for key in changed}
    keys = (session for _, session, _, _ in changed)
    for row in rows_of(task, _LOG_COLUMNS, "session_key", keys) if changed else ():
        log = logs.get(_key(row))
        if log is not None and row[OP] == PUT:
            log[row["position"]] = row
    for key in sorted(logs):
        before: str | None = None
        for position in sorted(logs[key]):
            row = logs[key][position]
            name = _NAMES[row["entity"]]
            after = bytes(_MEMBERS.decode(row["body"])[name]).decode()
            if row[POINT] > task.after:
                yield {
                    "session": task.facts[row[FILE_ID]][row["session_key"]],
                    "file_id": row[FILE_ID],
                    "position": position,
                    "event_id": row["event_id"],
                    "type": row["type"],
                    "entity": name,
                    "entity_id": row["entity_id"],
                    "change": kind_of(before, after),
                    "before": before,
                    "after": after,
                    POINT: row[POINT],
                }
            before = after


IMAGES: Final = {
    "sessions.changes": ImageLog("sessions.changes", LOG, _COLUMNS, _read, _facts),
}
