"""The transcript of a LangGraph thread: the messages of its newest checkpoint at one event.

A message has the event of the checkpoint that added it. Values of other channels follow as one
entry, `state`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any, Final

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic import BaseModel

from fourfold.adapters.langgraph.thread_log import ThreadLog
from fourfold.adapters.langgraph.values import Serde
from fourfold.models.sessions import Sessions, SessionView
from fourfold.models.sessions.transcript import TranscriptEntry

_ROLES: Final = {"human": "user", "ai": "assistant"}


def iter_entries(
    sessions: Sessions, view: SessionView, *, full: bool = False
) -> Iterator[TranscriptEntry]:
    """Yield the messages of a thread at the event of a view, then the rest of its state.

    LangGraph's values are always read as a whole, so `full` changes nothing.
    """
    del full
    log = ThreadLog(sessions, view.id, Serde(JsonPlusSerializer()))
    record = log.newest_at(view.counters.event)
    if record is None:
        return
    state: dict[str, Any] = {}
    for channel, value in log.values(record.places).items():
        if isinstance(value, list) and value and all(map(_is_message, value)):
            events = log.origins(channel, record.places[channel], len(value))
            for message, event in zip(value, events, strict=True):
                role = _ROLES.get(message.type, message.type)
                yield TranscriptEntry(event.id, event.at, "message", role, _content(message))
        elif not channel.startswith(("__", "branch:")):
            state[channel] = _to_json(value)
    if state:
        at = view.events[record.event - 1].at
        yield TranscriptEntry(record.event, at, "state", "state", state)


def _is_message(value: Any) -> bool:
    return isinstance(value, BaseModel) and hasattr(value, "type") and hasattr(value, "content")


def _content(message: Any) -> Any:
    """Return the text of a message; with its calls, or the call that it answers, a dict."""
    fields: dict[str, Any] = {"content": _to_json(message.content)}
    calls = getattr(message, "tool_calls", None)
    if calls:
        fields["tool_calls"] = [{"type": "tool_call", **_to_json(call)} for call in calls]
    for name in ("tool_call_id", "name"):
        if isinstance(getattr(message, name, None), str):
            fields[name] = getattr(message, name)
    return fields["content"] if set(fields) == {"content"} else fields


def _to_json(value: Any) -> Any:
    """Convert a value of a channel to JSON; what JSON lacks becomes its text."""
    if isinstance(value, BaseModel):
        return _to_json(value.model_dump())
    if isinstance(value, dict):
        return {str(name): _to_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_to_json(item) for item in value]
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    return value.isoformat() if isinstance(value, date) else str(value)
