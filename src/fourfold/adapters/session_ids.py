"""Map names of other libraries to session ids.

A thread or a conversation may have any name, and may be deleted and started again; a session id has
a small alphabet and cannot be reused after its session was deleted. So each name has a
*generation*: `langgraph/<name>/0`, after a deletion `langgraph/<name>/1`, and so on. The session
`langgraph/<name>` stores the current one, unless it is the first. One event there moves a name to
its next generation, so the change is atomic.
"""

from __future__ import annotations

import base64
import hashlib
import inspect
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias, Union, cast
from uuid import UUID

from fourfold import limits
from fourfold.errors import AlreadyExists, InvalidInput, NotFound, PreconditionFailed
from fourfold.models.sessions import SessionInfo, Sessions, SessionView

if TYPE_CHECKING:
    from fourfold.client import RemoteSessions

AnySessions: TypeAlias = Union[Sessions, "RemoteSessions"]
"""The sessions of a folder, or of a server."""

_PLAIN = re.compile(r"[A-Za-z0-9._:@+-]+")
_FIRST_PAGE = 8
_PLAIN_CHARS_MAX = 64
"""Two names and a generation fit into a session id."""


def encode_name(name: str) -> str:
    """Encode a name in the alphabet of session ids: unchanged, in base64, or as a hash if long.

    The result is unique for each name.
    """
    if len(name) <= _PLAIN_CHARS_MAX and _PLAIN.fullmatch(name):
        return name
    try:
        data = name.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"name: must not contain a lone surrogate, got {name!r:.100}") from None
    text = base64.urlsafe_b64encode(data).decode().rstrip("=")
    if len(text) < _PLAIN_CHARS_MAX:
        return f"={text}"
    return f"=={hashlib.sha256(data).hexdigest()}"


def shorten_name(name: str) -> str:
    """Encode a name for an event key; a UUID, the usual case, takes 22 characters."""
    try:
        uuid = UUID(name)
    except ValueError:
        return encode_name(name)
    if str(uuid) != name:
        return encode_name(name)
    return f"~{base64.urlsafe_b64encode(uuid.bytes).decode()[:22]}"


def expand_name(name: str) -> str:
    """Decode a name from `shorten_name`, if it is a UUID; return other names unchanged."""
    if not name.startswith("~"):
        return name
    return str(UUID(bytes=base64.urlsafe_b64decode(f"{name[1:]}==")))


def check_name(name: Any, label: str) -> str:
    """Return a name as text; a whole number stands for its digits."""
    if type(name) is int:
        return str(name)
    if not isinstance(name, str) or not name:
        raise InvalidInput(
            f"{label}: must be a non-empty string, got {name!r:.100}",
            hint=f"Pass a unique {label} for every conversation.",
        )
    return str(name)


def check_sessions(sessions: Any, user: str) -> AnySessions:
    """Return the sessions of a folder or of a server; raise InvalidInput for anything else."""
    append = getattr(sessions, "append_events", None)
    if append is None or inspect.iscoroutinefunction(append):
        raise InvalidInput(
            f"{user} expects store.sessions, got {type(sessions).__name__}",
            hint="Pass the sessions of fourfold.open(ROOT) or of fourfold.connect(URL).",
        )
    return cast("AnySessions", sessions)


def _is_generation(state: Any) -> bool:
    return isinstance(state, dict) and type(state.get("generation")) is int


class Generations:
    """Generations of the names of one library."""

    def __init__(self, sessions: AnySessions, library: str) -> None:
        self._sessions = sessions
        self._library = library

    def name_prefix(self, name: str) -> str:
        """Return the prefix of the ids of all sessions of a name."""
        return f"{self._library}/{encode_name(name)}"

    def current_prefix(self, name: str) -> str:
        """Return the prefix of the ids of the current sessions of a name."""
        return f"{self.name_prefix(name)}/{self.current_number(name)}"

    def current_number(self, name: str) -> int:
        """Return the current generation of a name."""
        try:
            view = self._sessions.current_view(self.name_prefix(name))
        except NotFound:
            return 0
        return self._number_of(view)

    def _number_of(self, view: SessionView) -> int:
        state = view.vars_ref
        if state is None and view.counters.event <= 1:
            return 0
        if not _is_generation(state):
            # Another program has set variables here: the adapter's own are in the log.
            states = [event.data.get("vars_ref") for event in view.events]
            state = next(filter(_is_generation, reversed(states)), {"generation": 0})
        return int(state["generation"])

    def create_name(self, name: str) -> str:
        """Create the session that stands for a name, unless it exists; return its id."""
        name_prefix = self.name_prefix(name)
        options = {"id": name_prefix, "kind": f"{self._library}-name", "name": name}
        self._sessions.create_session(options)
        return name_prefix

    def set_current(self, name: str, number: int) -> None:
        """Make a generation the current one, unless a later one is."""
        name_prefix = self.create_name(name)
        event = {"type": "session/vars-snapshotted", "vars_ref": {"generation": number}}
        while True:
            view = self._sessions.current_view(name_prefix)
            if self._number_of(view) >= number:
                return
            try:
                self._sessions.append_event(
                    name_prefix, event, expected_last_id=view.counters.event
                )
            except PreconditionFailed:
                continue
            return

    def delete_before(self, name: str, number: int) -> None:
        """Delete earlier generations, including those that a crash left."""
        prefix = f"{self.name_prefix(name)}/"
        for info in self.iter_sessions(prefix):
            if int(info.id[len(prefix) :].partition("/")[0]) < number:
                self._sessions.delete_session(info.id)

    def next_free_number(self, name: str) -> int:
        """Return a number above all that this name ever used."""
        prefix = f"{self.name_prefix(name)}/"
        used = [
            int(i.id[len(prefix) :].partition("/")[0]) for i in self.iter_sessions(prefix, True)
        ]
        return max([self.current_number(name), *used]) + 1

    def begin_current(self, name: str, suffix: str, options: dict[str, Any]) -> str:
        """Create a session of the current generation, unless it exists; return its id.

        If the current generation was deleted, as by retention, the name begins its next one.
        """
        while True:
            root = self.current_prefix(name)
            try:
                self.begin(f"{root}{suffix}", options)
            except InvalidInput:
                if suffix and self._is_open(root):
                    raise
                self.set_current(name, self.next_free_number(name))
                continue
            return f"{root}{suffix}"

    def _is_open(self, sid: str) -> bool:
        try:
            self._sessions.current_view(sid)
        except NotFound:
            return False
        return True

    def begin(self, sid: str, options: dict[str, Any]) -> None:
        """Create a session of a generation, unless it exists."""
        try:
            self._sessions.create_session({"id": sid, **options})
        except AlreadyExists as error:
            raise InvalidInput(
                f"session {sid!r}: was deleted manually, cannot append to it",
                hint="Delete the whole thread or conversation through its adapter.",
            ) from error

    def iter_sessions(self, prefix: str, deleted: bool = False) -> Iterator[SessionInfo]:
        """Yield the sessions whose ids have a prefix, oldest first; few are read ahead."""
        after, size = None, _FIRST_PAGE
        while True:
            page = self._sessions.list_sessions(
                after=after, limit=size, deleted=deleted, prefix=prefix
            )
            yield from page
            if len(page) < size:
                return
            after, size = page[-1].id, min(2 * size, limits.SESSION_PAGE_EVENTS)
