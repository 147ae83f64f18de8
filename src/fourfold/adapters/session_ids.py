"""Names of other libraries as ids of sessions.

A thread, or a conversation, has a name in any language and may be deleted and begun anew; the id of
a session has a small alphabet and is used up once its session is deleted. So each name leads to a
*generation*: `langgraph/<name>/0`, after a deletion `langgraph/<name>/1`, and so on. Which one is
the present one stands in the session `langgraph/<name>`, once it is not the first any more. One
event there moves a name to its next generation, so that happens altogether or not at all.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from fourfold import limits
from fourfold.errors import AlreadyExists, InvalidInput, NotFound
from fourfold.models.sessions import SessionInfo, Sessions

_PLAIN = re.compile(r"[A-Za-z0-9._:@+-]+")
_FIRST_PAGE = 8
_PLAIN_CHARS_MAX = 64
"""Two names and a generation fit into the id of a session."""


def encoded(name: str) -> str:
    """A name in the alphabet of session ids: itself, or in base64, or its hash if it is long. Two
    names never give the same.
    """
    if len(name) <= _PLAIN_CHARS_MAX and _PLAIN.fullmatch(name):
        return name
    try:
        data = name.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{name!r:.100} has a lone surrogate in it") from None
    text = base64.urlsafe_b64encode(data).decode().rstrip("=")
    if len(text) < _PLAIN_CHARS_MAX:
        return f"={text}"
    return f"=={hashlib.sha256(data).hexdigest()}"


def short(name: str) -> str:
    """A name for the key of an event: a UUID, which most are, in 22 characters."""
    try:
        number = UUID(name)
    except ValueError:
        return encoded(name)
    if str(number) != name:
        return encoded(name)
    return f"~{base64.urlsafe_b64encode(number.bytes).decode()[:22]}"


def long(name: str) -> str:
    """The name that `short` made short, if it can be told from it."""
    if not name.startswith("~"):
        return name
    return str(UUID(bytes=base64.urlsafe_b64decode(f"{name[1:]}==")))


def checked(name: Any, what: str) -> str:
    """A name as callers give it: a text, or a whole number, which stands for its digits."""
    if type(name) is int:
        return str(name)
    if not isinstance(name, str) or not name:
        raise InvalidInput(
            f"{what} is {name!r:.100}, not a text of at least one character",
            hint=f"Give every conversation {what} of its own.",
        )
    return str(name)


def _is_generation(state: Any) -> bool:
    return isinstance(state, dict) and type(state.get("generation")) is int


class Generations:
    """The generations of the names of one library."""

    def __init__(self, sessions: Sessions, library: str) -> None:
        self._sessions = sessions
        self._library = library

    def family(self, name: str) -> str:
        """What the ids of all sessions of a name begin with."""
        return f"{self._library}/{encoded(name)}"

    def current(self, name: str) -> str:
        """What the ids of its present sessions begin with."""
        return f"{self.family(name)}/{self.number(name)}"

    def number(self, name: str) -> int:
        try:
            view = self._sessions.current_view(self.family(name))
        except NotFound:
            return 0
        state = view.vars_ref
        if not _is_generation(state):
            # Another program left variables here: what this one wrote is in the log.
            states = [event.data.get("vars_ref") for event in view.events]
            state = next(filter(_is_generation, reversed(states)), {"generation": 0})
        return int(state["generation"])

    def move_on(self, name: str, number: int) -> None:
        """Make a generation the present one."""
        family = self.family(name)
        described = {"id": family, "kind": f"{self._library}-name", "name": name}
        self._sessions.create_session(described)
        event = {"type": "session/vars-snapshotted", "vars_ref": {"generation": number}}
        self._sessions.append_event(family, event)

    def delete_before(self, name: str, number: int) -> None:
        """Delete what earlier generations left, also one that a crash kept from being deleted."""
        prefix = f"{self.family(name)}/"
        for info in self.listed(prefix):
            if int(info.id[len(prefix) :].partition("/")[0]) < number:
                self._sessions.delete_session(info.id)

    def free(self, name: str) -> int:
        """A number behind all that this name ever used."""
        prefix = f"{self.family(name)}/"
        used = [int(i.id[len(prefix) :].partition("/")[0]) for i in self.listed(prefix, True)]
        return max([self.number(name), *used]) + 1

    def begin(self, sid: str, described: dict[str, Any]) -> None:
        """Create a session of a generation, unless it is there."""
        try:
            self._sessions.create_session({"id": sid, **described})
        except AlreadyExists as error:
            raise InvalidInput(
                f"session {sid!r} was deleted by hand, so nothing can be added to it",
                hint="Delete the whole thread or conversation through its adapter.",
            ) from error

    def listed(self, prefix: str, deleted: bool = False) -> Iterator[SessionInfo]:
        """Yield the sessions whose ids begin with a prefix, oldest first. Few are read ahead."""
        after, size = None, _FIRST_PAGE
        while True:
            page = self._sessions.list_sessions(
                after=after, limit=size, deleted=deleted, prefix=prefix
            )
            yield from page
            if len(page) < size:
                return
            after, size = page[-1].id, min(2 * size, limits.SESSION_PAGE_EVENTS)
