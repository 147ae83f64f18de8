"""Server-sent events out of bytes, in whatever pieces they come. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

_END = re.compile(rb"\r\n|\n|\r(?!\Z)")


class Event(NamedTuple):
    name: str
    data: bytes


class EventParser:
    """Give it bytes, get the events that are complete."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._name = ""
        self._data: list[bytes] = []
        self._first = True

    def feed(self, piece: bytes) -> list[Event]:
        # Bytes without the end of a line are only kept: a long line is put together once.
        if b"\n" not in piece and b"\r" not in piece and not self._ends_with_return():
            self._rest.append(piece)
            return []
        text = b"".join([*self._rest, piece])
        # A return at the very end may be the first half of a line's end.
        *lines, rest = _END.split(text)
        self._rest = [rest] if rest else []
        found = []
        for line in lines:
            event = self._line(line)
            if event is not None:
                found.append(event)
        return found

    def _ends_with_return(self) -> bool:
        return bool(self._rest) and self._rest[-1].endswith(b"\r")

    def _line(self, line: bytes) -> Event | None:
        if self._first:
            line, self._first = line.removeprefix(b"\xef\xbb\xbf"), False
        if not line:
            event = Event(self._name or "message", b"\n".join(self._data)) if self._data else None
            self._name, self._data = "", []
            return event
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            self._name = value.decode("utf-8", "replace")
        elif field == b"data":
            self._data.append(value)
        return None
