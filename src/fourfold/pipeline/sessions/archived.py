"""Tables of sessions in the archive."""

from __future__ import annotations

from typing import Final

from fourfold.models.sessions.database import PROFILE
from fourfold.pipeline.archive_plan import ArchivedTable, Lookup

_EVENTS: Final = ArchivedTable(
    kind=PROFILE.name,
    source="sessions.events",
    schema={
        "file_id": "string",
        "_point": "bigint",
        "session_key": "bigint",
        "event_id": "bigint",
        "position": "bigint",
        "type": "string",
        "at": "string",
        "entity": "bigint",
        "entity_id": "bigint",
        "request_key": "string",
        "body": "string",
        "digest": "binary",
    },
    columns={
        "event_id": "event_id",
        "position": "position",
        "type": "type",
        "time": "cast(at as timestamp)",
        "entity": "elt(cast(entity as int), 'message', 'turn', 'step', 'eval')",
        "entity_id": "entity_id",
        "request_key": "request_key",
        "body": "body",
        "digest": "concat('sha256:', lower(hex(digest)))",
    },
    position="position",
    lookup=Lookup(columns={"session": "session"}, on=("session_key",), live="session_keys"),
)

ARCHIVED: Final = {"events": _EVENTS}
