"""The transcript of a session: messages, calls, and the ends of turns, with their contents.

    transcript = store.sessions.transcript("s-1", at=12)
    transcript.entries[0].content
    transcript.to_markdown(), transcript.to_html(), transcript.to_openai()

References to payloads are replaced by their values. A transcript starts at the newest compaction,
as for the agent itself, unless the whole log is requested. A session that an adapter wrote is read
by that adapter: its transcript is the conversation as the other library sees it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from itertools import islice
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from fourfold import limits
from fourfold.content import PayloadRef, encode
from fourfold.content.canonical import integer_text
from fourfold.errors import MissingDependency, PayloadMissing
from fourfold.models.sessions import transcript_formats as formats
from fourfold.models.sessions.reader import SessionView
from fourfold.models.sessions.records import Event
from fourfold.models.sessions.request import At, check_count

if TYPE_CHECKING:
    from fourfold.models.sessions.sessions import Sessions

_INTEGER_BITS_MAX: Final = 8_192
"""Integers with more digits become strings: most JSON parsers cannot read them."""
_PAYLOAD_BYTES_MAX: Final = 1024 * 1024
"""A larger payload stays a reference, unless all of them are requested."""
_RUNNING: Final = "running"
_UNENDED: Final = frozenset({_RUNNING, "suspended"})
_OUTSIDE_CONTENT: Final = frozenset(
    {"id", "role", "turn_id", "step_id", "below", "index", "entry", "parent"}
)
"""Fields of a message that place it in the log."""
_ADAPTERS: Final = {
    "langgraph": "fourfold.adapters.langgraph.transcript",
    "openai-agents": "fourfold.adapters.openai_agents",
    "pydantic-ai": "fourfold.adapters.pydantic_ai",
}
"""Modules that read the sessions of other libraries, by the `kind` of these sessions."""


class TranscriptEntry(Struct, frozen=True):
    """One part of a transcript."""

    event: int
    """Id of the event that contains it."""
    at: str
    kind: str
    """message, call, turn, summary, state, error or status."""
    title: str
    """The role of a message; what happened otherwise."""
    content: Any = None
    """A JSON value; a payload that was not read is `{"ref": "payload", ...}`."""


class TranscriptHeader(Struct, frozen=True):
    """The session of a transcript, and the point that it shows."""

    id: str
    event_id: int
    at: str | None
    """Time of that event; None for a session without events."""
    activity: str
    turns: int
    head: str | None


class Transcript(Struct, frozen=True):
    """A session as people read it, at one event."""

    header: TranscriptHeader
    entries: list[TranscriptEntry]
    complete: bool = True
    """False if earlier entries were left out by `limit`."""

    def to_markdown(self) -> str:
        """Return the transcript as Markdown; no content can pass for a heading or another entry."""
        return "".join(formats.iter_markdown(self.header, self.entries, self.complete))

    def to_html(self) -> str:
        """Return the transcript as an HTML page without scripts, links or other files."""
        return "".join(formats.iter_html(self.header, self.entries, self.complete))

    def to_openai(self) -> dict[str, Any]:
        """Return `{"messages": [...]}` in the form of OpenAI's chat completions."""
        return {"messages": list(formats.iter_chat_messages(self.entries))}

    def _repr_markdown_(self) -> str:
        return self.to_markdown()


def to_json(value: Any) -> Any:
    """Convert a value to JSON; a reference becomes a dict, other tags stay."""
    if isinstance(value, PayloadRef):
        return value.as_dict()
    if isinstance(value, dict):
        return {name: to_json(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if type(value) is int and value.bit_length() > _INTEGER_BITS_MAX:
        return integer_text(value)
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    return json.loads(encode(value))


def activity(view: SessionView) -> str:
    """Return what the session does now.

    Its stored status is `running` from its start until it is stopped; in between, a session whose
    newest turn has ended is idle, unless it waits for a person.
    """
    status = (view.session or {}).get("status", _RUNNING)
    if status != _RUNNING:
        return str(status)
    if not view.counters.turn:
        return "idle" if view.counters.event else "not started"
    ended = view.turns[-1].get("status")
    if ended in {_RUNNING, "waiting", "suspended"}:
        return str(ended)
    return "idle" if ended == "final" else f"idle (the last turn: {ended})"


class TranscriptReader:
    """A transcript that is read while it is iterated over, oldest entry first."""

    def __init__(
        self, sessions: Sessions, sid: str, at: At = None, *, whole: bool, full: bool
    ) -> None:
        view = sessions.view_at(sid, at)
        self._sessions, self._view, self._full = sessions, view, full
        self._first = 0 if whole else (view.compact_from_event_id or 1) - 1
        turns = view.counters.turn
        self._open_turn = turns if turns and view.turns[-1].get("status") == _RUNNING else 0
        events = view.counters.event
        self.header = TranscriptHeader(
            view.id,
            events,
            view.events[events - 1].at if events else None,
            activity(view),
            turns,
            view.current_head,
        )

    def __iter__(self) -> Iterator[TranscriptEntry]:
        """Yield the entries, oldest first."""
        if (kind := _adapter(self._view)) is not None:
            adapter = _import_adapter(kind)
            yield from adapter.iter_entries(self._sessions, self._view, full=self._full)
            return
        end = len(self._view.events)
        for start in range(self._first, end, limits.SESSION_PAGE_EVENTS):
            page = self._view.events[start : min(end, start + limits.SESSION_PAGE_EVENTS)]
            yield from filter(None, map(self._entry, page))

    def newest(self, limit: int) -> tuple[list[TranscriptEntry], bool]:
        """Return the newest entries, oldest first, and True if there are no earlier ones."""
        newest_first = self._backwards() if _adapter(self._view) is None else reversed([*self])
        entries = list(islice(newest_first, limit + 1))
        return entries[:limit][::-1], len(entries) <= limit

    def _backwards(self) -> Iterator[TranscriptEntry]:
        stop = len(self._view.events)
        while stop > self._first:
            start = max(self._first, stop - limits.SESSION_PAGE_EVENTS)
            page = reversed(self._view.events[start:stop])
            yield from filter(None, map(self._entry, page))
            stop = start

    def _entry(self, event: Event) -> TranscriptEntry | None:
        """Return the entry of an event; None for those that a transcript does not show."""
        description = describe_event(event)
        if description is None:
            return None
        kind, title, content = description
        if event.type == "turn/started" and event.entity_id == self._open_turn:
            title = f"{title}: {_RUNNING}"
        content = to_json(resolve_payloads(self._sessions, content, full=self._full))
        return TranscriptEntry(event.id, event.at, kind, title, content)


def describe_event(event: Event) -> tuple[str, str, Any] | None:
    """Return kind, title and content of the entry of an event; None if it is not shown.

    The content may have references to payloads.
    """
    data = event.data
    kind, title, content = "status", event.type.removeprefix("session/"), None
    if event.type in {"message/appended", "session/compacted"}:
        message = data["message"]
        kind = "message" if event.type == "message/appended" else "summary"
        title, content = str(message.get("role") or kind), message_content(message)
    elif event.type == "eval/added":
        call = data["eval"]
        kind, title = "call", f"call {call.get('name', '')}: {call.get('status', '')}"
        content = call.get("error") if "error" in call else call.get("result_ref")
    elif event.type == "turn/put" and data["turn"].get("status") not in _UNENDED:
        turn = data["turn"]
        kind, title = "turn", f"turn {turn['id']}: {turn.get('status', '')}"
        question = turn.get("question_ref", turn.get("question"))
        content = turn.get("error") if "error" in turn else turn.get("final_ref", question)
    elif event.type == "turn/started":
        kind, title = "turn", f"turn {event.entity_id or 0}"
    elif event.type == "session/error":
        kind, title, content = "error", "error", data["error"]
    elif event.type not in {"session/stop-requested", "session/stopped"}:
        return None
    return kind, title, content


def read_transcript(
    sessions: Sessions,
    sid: str,
    at: At = None,
    *,
    limit: int | None = None,
    whole: bool = False,
    full: bool = False,
) -> Transcript:
    """Return the transcript of a session at a point; with a limit, its newest entries."""
    reader = TranscriptReader(sessions, sid, at, whole=whole, full=full)
    if limit is None:
        return Transcript(reader.header, list(reader))
    return Transcript(reader.header, *reader.newest(check_count(limit, "limit", least=1)))


def message_content(message: dict[str, Any]) -> Any:
    """Return the content or the item of a message, or all its fields if it has more."""
    fields = {name: value for name, value in message.items() if name not in _OUTSIDE_CONTENT}
    for name in ("content", "item"):
        if set(fields) == {name}:
            return fields[name]
    return fields


def resolve_payloads(sessions: Sessions, value: Any, *, full: bool) -> Any:
    """Replace references by their payloads; a missing one stays a reference."""
    if isinstance(value, dict):
        return {name: resolve_payloads(sessions, item, full=full) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [resolve_payloads(sessions, item, full=full) for item in value]
    if not isinstance(value, PayloadRef) or (value.size > _PAYLOAD_BYTES_MAX and not full):
        return value
    try:
        return sessions.read_payload(value)
    except PayloadMissing:
        return value


def _import_adapter(kind: str) -> ModuleType:
    try:
        return import_module(_ADAPTERS[kind])
    except MissingDependency:
        raise
    except ImportError as error:
        raise MissingDependency(
            f"the transcript of a session of kind {kind!r} requires {error.name}, "
            "which is not installed",
            hint=f"pip install 'fourfold[{kind}]'",
        ) from error


def _adapter(view: SessionView) -> str | None:
    """Return the library whose adapter wrote a session, or None."""
    kind = (view.session or {}).get("kind")
    return kind if kind in _ADAPTERS and view.id.startswith(f"{kind}/") else None
