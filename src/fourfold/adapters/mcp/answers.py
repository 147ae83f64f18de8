"""Answers of tools: records as JSON values, at most so many items and bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

import msgspec

from fourfold.models.sessions.transcript import to_json

ITEMS_MAX: Final = 200
"""Items of one answer; a tool may be asked for fewer."""
ANSWER_BYTES_MAX: Final = 64 * 1024
"""Bytes of one answer as JSON, about 16,000 tokens."""
_START_CHARS: Final = 4_000
"""Characters that are shown of an item that is too large for an answer."""


def to_plain(value: Any) -> Any:
    """Convert a record or a value to JSON; bytes become their text, or base64 with a tag."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return to_json(value)
    record = _fields(value)
    if record is not None:
        return {str(name): to_plain(item) for name, item in record.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return to_json(value)


def _fields(value: Any) -> Mapping[Any, Any] | None:
    """Return the fields of a record or the items of a mapping; None for other values."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, msgspec.Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return dict(value._asdict())
    return None


def limit_value(value: Any) -> Any:
    """Return a JSON value, or its start if it is too large for an answer."""
    text = json.dumps(value, ensure_ascii=False)
    if len(text.encode()) <= ANSWER_BYTES_MAX:
        return value
    return {"truncated": True, "bytes": len(text.encode()), "start": text[:_START_CHARS]}


def limit_items(items: Iterable[Any]) -> tuple[list[Any], bool]:
    """Return as many first items as an answer may have, and True if these are all."""
    chosen: list[Any] = []
    left = ANSWER_BYTES_MAX
    for item in items:
        shown = limit_value(item)
        left -= len(json.dumps(shown, ensure_ascii=False).encode())
        if chosen and left < 0:
            return chosen, False
        chosen.append(shown)
    return chosen, True


def limit_text(text: str) -> str:
    """Return a text, or its newest part if it is too large for an answer."""
    data = text.encode()
    if len(data) <= ANSWER_BYTES_MAX:
        return text
    rest = data[-ANSWER_BYTES_MAX:].decode(errors="ignore")
    return f"[{len(data) - len(rest.encode())} bytes before this are left out]\n{rest}"
