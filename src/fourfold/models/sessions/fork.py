"""Forks: sessions that continue from a point of another session, which stays as it is.

A fork starts with what counts at that point: the fields of the session, its variables, and the
messages of its transcript after the last compaction. Turns and steps stay in the source. The first
head of a fork covers all of that, and a lineage edge of the type `derivation` points to it. Large
values are references to payloads, so they are not copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from fourfold import limits
from fourfold.errors import AlreadyExists, InvalidInput
from fourfold.models.sessions import writer
from fourfold.models.sessions.heads import edge_content
from fourfold.models.sessions.log import LogWriter, SessionRow
from fourfold.models.sessions.reader import SessionView, Slots
from fourfold.models.sessions.records import Head
from fourfold.models.sessions.request import encoded
from fourfold.models.sessions.request_builder import RequestBuilder
from fourfold.models.sessions.writer import EventAppend, Publish

KIND = "fork"
"""The kind of the session, of its first head, and of the edge that points to it."""
_OWN = ("id", "status", "kind", "source_session", "source_head", "source_event_id")


class SessionFork(NamedTuple):
    """A request to fork a session, checked."""

    create: EventAppend
    publish: Publish
    edge: dict[str, Any]

    @property
    def sid(self) -> str:
        """The id of the new session."""
        return self.create.sid

    @property
    def whole(self) -> EventAppend:
        """All drafts and payloads of the request."""
        whole = self.publish.whole
        return whole._replace(
            drafts=[*self.create.drafts, *whole.drafts],
            payloads=[*self.create.payloads, *whole.payloads],
        )


def prepare_fork(
    builder: RequestBuilder,
    view: SessionView,
    head: Head | None,
    session: Mapping[str, Any] | None,
) -> SessionFork:
    """Check a fork of a view, and encode its events.

    Args:
        builder: Makes the requests of the new session.
        view: The source at the point from which the fork continues.
        head: The head at that point; its variables are those of the fork.
        session: Fields of the new session; they replace those of the source.
    """
    source = {
        "source_session": view.id,
        "source_head": None if head is None else head.id,
        "source_event_id": view.counters.event,
    }
    inherited = {key: value for key, value in (view.session or {}).items() if key not in _OWN}
    if session is not None and not isinstance(session, Mapping):
        raise InvalidInput(f"session must be a dict, got {type(session).__name__}")
    create = builder.creation({**inherited, "kind": KIND, **(session or {}), **source})
    messages: list[dict[str, Any]] = []
    for message in view.kept_messages():
        if len(messages) == limits.SESSION_BATCH_EVENTS_MAX:
            raise InvalidInput(
                f"cannot fork session {view.id!r}: its transcript has more than "
                f"{limits.SESSION_BATCH_EVENTS_MAX} messages",
                hint="Compact the session first, or fork it at an earlier point.",
            )
        messages.append({"type": "message/appended", "message": message})
    variables = view.vars_ref if head is None else head.vars_ref
    events = messages
    if variables is not None:
        events = [{"type": "session/vars-snapshotted", "vars_ref": variables}, *messages]
    publish = builder.publishing(create.sid, {"kind": KIND}, None, None, None, events=events)
    edge = {
        "type": "derivation",
        "kind": KIND,
        "from_session": view.id,
        "from_head": source["source_head"],
        "from_event_id": view.counters.event,
    }
    return SessionFork(create, publish, edge)


def write_fork(writing: LogWriter, slots: Slots, fork: SessionFork) -> SessionRow:
    """Create the session with its head and its edge, in one transaction.

    Raises:
        AlreadyExists: There is a session of that id.
    """
    row, created = writer.create(writing, slots, fork.create)
    if not created:
        raise AlreadyExists(f"session {fork.sid!r} already exists")
    head = writer.add_head(writing, slots, fork.publish)
    content = edge_content(fork.sid, {**fork.edge, "to_session": fork.sid, "to_head": head.id})
    draft = encoded("lineage/edge-added", {"edge": content})
    writer.add_edge(writing, slots, fork.create._replace(drafts=[draft], payloads=()))
    return row
