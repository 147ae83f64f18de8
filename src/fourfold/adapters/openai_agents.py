"""A session of the OpenAI Agents SDK that stores its items as messages.

    session = AgentsSession("user-42", store.sessions)
    await Runner.run(agent, "Hello", session=session)

It implements the SDK's session protocol and does not import the SDK. Each item is an event, so
popped and earlier items stay readable in the history of the session; `clear_session` deletes them,
and garbage collection removes them.

Every message refers to the one below it, and an `openai-agents/popped` event refers to the message
that is now the last. So the newest of these events determines the items, and adding or removing one
reads no other. Other programs may append to the session too: their events are skipped.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

from fourfold.adapters.newest_event import find_newest_event
from fourfold.adapters.session_ids import AnySessions, Generations, check_name, check_sessions
from fourfold.content import encode, encode_each
from fourfold.errors import (
    CorruptData,
    InvalidInput,
    NotFound,
    PayloadMissing,
    PreconditionFailed,
)
from fourfold.kernel.collector import gc_paused
from fourfold.models.sessions import Event, Payload, Sessions, SessionView
from fourfold.models.sessions.request import Alike
from fourfold.models.sessions.transcript import TranscriptEntry, resolve_payloads, to_json

if TYPE_CHECKING:
    from fourfold.client import RemoteSessions

ADAPTER_ITEM_BYTES_MAX: Final = 4_096
"""A larger item of a conversation is a payload; smaller ones are stored in their event."""

LIBRARY: Final = "openai-agents"
POPPED: Final = "openai-agents/popped"
SWITCHED: Final = "openai-agents/switched"
_ADDED: Final = "message/appended"
_PAGE = 256
T = TypeVar("T")


class AgentsSession:
    """A conversation. Several objects may refer to the same one, in threads and coroutines."""

    session_settings: Any = None
    """The SDK's SessionSettings of this session."""

    def __init__(
        self, session_id: str, sessions: AnySessions, *, session_settings: Any = None
    ) -> None:
        self._sessions = check_sessions(sessions, "AgentsSession")
        self.session_id = check_name(session_id, "session_id")
        self.session_settings = session_settings
        self._names = Generations(sessions, LIBRARY)
        self._current_sid: str | None = None
        self._last_seen: tuple[str, int, int | None] | None = None
        """Session, last event and newest item at the last access of this object."""
        self._known = _KnownItems("")
        self._lock = threading.Lock()

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """Return the items, oldest first; with a limit, the newest ones."""
        if limit is None:
            limit = getattr(self.session_settings, "limit", None)
        if limit is not None and type(limit) is not int:
            raise InvalidInput(f"limit: must be an int, got {limit!r:.100}")
        return await self._retry_on_conflict(lambda: self._items(limit))

    async def add_items(self, items: Sequence[Any]) -> None:
        """Append items, all or none."""
        if isinstance(items, (str, bytes, dict)):
            raise InvalidInput(f"items: must be a list, got {type(items).__name__}")
        new_items = _NewItems(list(items))
        while new_items.count:
            # With a known session no thread is needed: the commit is the only blocking part.
            sid = self._current_sid
            if sid is None:
                sid = await asyncio.to_thread(self._get_or_create_sid)
            try:
                if isinstance(self._sessions, Sessions):
                    await self._add(self._sessions, sid, new_items)
                else:
                    await asyncio.to_thread(self._add_remotely, self._sessions, sid, new_items)
            except PreconditionFailed:
                # A concurrent change: read again.
                continue
            except NotFound:
                # The conversation was cleared concurrently.
                self._current_sid = None
                continue
            return

    async def pop_item(self) -> Any:
        """Remove and return the newest item, or None if there is none."""
        return await self._retry_on_conflict(self._pop)

    async def clear_session(self) -> None:
        """Delete all items; the conversation can start again at once.

        Garbage collection removes their events once they are old enough.
        """
        await asyncio.to_thread(self._clear)

    # Inside

    async def _retry_on_conflict(self, change: Callable[[], T]) -> T:
        """Run a change, and retry it after a concurrent change."""
        while True:
            try:
                return await asyncio.to_thread(change)
            except PayloadMissing:
                raise
            except (PreconditionFailed, NotFound):
                # A concurrent change: read again.
                continue

    def _sid(self) -> str | None:
        """Return the session of the conversation, or None before the first item."""
        for sid_hint in (self._current_sid, None):
            sid = sid_hint or self._names.current_prefix(self.session_id)
            try:
                self._sessions.current_view(sid)
            except NotFound:
                continue
            self._current_sid = sid
            return sid
        return None

    def _get_or_create_sid(self) -> str:
        sid = self._sid()
        if sid is None:
            options = {"kind": LIBRARY, "session_id": self.session_id}
            sid = self._current_sid = self._names.begin_current(self.session_id, "", options)
        return sid

    def _find_top(self, view: SessionView) -> tuple[int, int | None]:
        """Return the last event of a view, and the message that is the newest item."""
        last = view.counters.event
        floor, top = 0, None
        if self._last_seen is not None and self._last_seen[0] == view.id:
            _, floor, top = self._last_seen
        event = find_newest_event(view, is_adapter_event, floor)
        if event is not None:
            top = event.entity_id if event.type == _ADDED else event.data["top"]
        self._last_seen = (view.id, last, top)
        return last, top

    def _items(self, limit: int | None) -> list[Any]:
        sid = self._sid()
        if sid is None or (limit is not None and limit <= 0):
            return []
        view = self._sessions.current_view(sid)
        messages = view.messages
        _, top = self._find_top(view)
        with self._lock:
            known = self._known if self._known.sid == sid else _KnownItems(sid)
            items: list[tuple[int, Any]] = []
            page: dict[int, dict[str, Any]] = {}
            while top is not None and top not in known and (limit is None or len(items) < limit):
                if top not in page:
                    size = _PAGE if limit is None else min(_PAGE, limit)
                    start = max(0, top - size)
                    page = {message["id"]: message for message in messages[start:top]}
                message = page[top]
                items.append((top, self._item(message)))
                top = message["below"]
            if top is not None and top not in known:
                # The limit ended the search, and the items below are not known.
                return [item for _, item in reversed(items)]
            known.cut(top)
            for number, item in reversed(items):
                known.add(number, item)
            self._known = known
            return known.copies(limit)

    async def _add(self, sessions: Sessions, sid: str, new_items: _NewItems) -> None:
        view = sessions.current_view(sid)
        last, below = self._places_of(view, new_items.count)
        events: Any = new_items.encoded_events(below) or new_items.events(below)
        await sessions.append_events_async(sid, events, expected_last_id=last)
        self._remember_added(view, new_items.count)

    def _add_remotely(self, sessions: RemoteSessions, sid: str, new_items: _NewItems) -> None:
        view = sessions.current_view(sid)
        last, below = self._places_of(view, new_items.count)
        sessions.append_events(sid, new_items.events(below), expected_last_id=last)
        self._remember_added(view, new_items.count)

    def _places_of(self, view: SessionView, count: int) -> tuple[int, list[int | None]]:
        """Return the last event, and the message below each of `count` new ones."""
        last, top = self._find_top(view)
        newest = view.counters.message
        return last, [top, *range(newest + 1, newest + count)]

    def _remember_added(self, view: SessionView, count: int) -> None:
        counters = view.counters
        self._last_seen = (view.id, counters.event + count, counters.message + count)

    def _pop(self) -> Any:
        sid = self._sid()
        if sid is None:
            return None
        view = self._sessions.current_view(sid)
        last, top = self._find_top(view)
        if top is None:
            return None
        message = view.messages[top - 1]
        item = self._item(message)
        event = {"type": POPPED, "popped": top, "top": message["below"]}
        self._sessions.append_event(sid, event, expected_last_id=last)
        return item

    def _clear(self) -> None:
        if self._sid() is None:
            return
        number = self._names.next_free_number(self.session_id)
        self._names.set_current(self.session_id, number)
        self._names.delete_before(self.session_id, number)

    def _item(self, message: dict[str, Any]) -> Any:
        if "item" not in message:
            raise CorruptData(f"message {message.get('id')} of {self.session_id!r} has no item")
        return self._sessions.read_payload(message["item"])

    def __repr__(self) -> str:
        return f"<AgentsSession {self.session_id!r}>"


class _KnownItems:
    """Items of a conversation that were read, from the first one on; only copies are returned."""

    def __init__(self, sid: str) -> None:
        self.sid = sid
        self._items: list[Any] = []
        self._numbers: list[int] = []
        self._places: dict[int, int] = {}

    def __contains__(self, number: int) -> bool:
        """Return True if the item of a message is known, and all below it."""
        return number in self._places

    def cut(self, top: int | None) -> None:
        """Drop the items above a message; all of them if it is None."""
        size = 0 if top is None else self._places[top] + 1
        for number in self._numbers[size:]:
            del self._places[number]
        del self._items[size:], self._numbers[size:]

    def add(self, number: int, item: Any) -> None:
        """Add the item of a message above the others."""
        self._places[number] = len(self._items)
        self._items.append(item)
        self._numbers.append(number)

    def copies(self, limit: int | None) -> list[Any]:
        """Return copies of the newest items."""
        with gc_paused:
            items = self._items if limit is None else self._items[-limit:]
            return [_copy(item) for item in items]


def _copy(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        return {name: _copy(item) for name, item in value.items()}
    return [_copy(item) for item in value] if kind is list else value


def is_adapter_event(event: Event) -> bool:
    """Return True for events of this adapter, False for those of other programs."""
    if event.type == _ADDED:
        message: dict[str, Any] = event.data["message"]
        return message.keys() >= {"below", "item"}
    return event.type in {POPPED, SWITCHED}


def iter_entries(
    sessions: Sessions, view: SessionView, *, full: bool = False
) -> Iterator[TranscriptEntry]:
    """Yield the items of a conversation at the event of a view, oldest first; no popped ones."""
    newest = find_newest_event(view, is_adapter_event)
    if newest is None:
        return
    top = newest.entity_id if newest.type == _ADDED else newest.data["top"]
    remaining: set[int] = set()
    page: dict[int, dict[str, Any]] = {}
    while top is not None:
        if top not in page:
            page = {message["id"]: message for message in view.messages[max(0, top - _PAGE) : top]}
        remaining.add(top)
        top = page[top]["below"]
    for start in range(0, view.counters.event, _PAGE):
        for event in view.events[start : min(start + _PAGE, view.counters.event)]:
            if event.type == _ADDED and event.entity_id in remaining:
                item = resolve_payloads(sessions, event.data["message"]["item"], full=full)
                role = _role(item) or (item.get("type") if isinstance(item, dict) else None)
                title = str(role or "message")
                yield TranscriptEntry(event.id, event.at, "message", title, to_json(item))


class _NewItems:
    """Items to append, encoded as messages.

    A message has the item, the message below it, and its role, if any, for readers of the log.
    """

    def __init__(self, items: list[Any]) -> None:
        self.count = len(items)
        self._items = items
        self._texts: list[str] | None = None
        encoded = encode_each(items)
        self._sizes = [len(encode(i)) for i in items] if encoded is None else [*map(len, encoded)]
        if encoded and max(self._sizes) <= ADAPTER_ITEM_BYTES_MAX:
            # The usual case is encoded once. The keys of a message are in alphabetical order.
            roles = [_role_text(_role(item)) for item in items]
            self._texts = [
                f',"item":{data.decode()}{role}}}}}'
                for data, role in zip(encoded, roles, strict=True)
            ]
            self._size = sum(map(len, self._texts))

    def encoded_events(self, below: list[int | None]) -> Alike | None:
        """Return the events that append the items, encoded; None if an item is large.

        Each is above the message number from `below`.
        """
        if self._texts is None:
            return None
        numbers = ["null" if number is None else number for number in below]
        bodies = [
            f'{{"message":{{"below":{number}{text}'
            for number, text in zip(numbers, self._texts, strict=True)
        ]
        return Alike(_ADDED, bodies, self._size)

    def events(self, below: list[int | None]) -> list[dict[str, Any]]:
        """Return the events that append the items, each above the message number from `below`."""
        events = []
        for item, size, number in zip(self._items, self._sizes, below, strict=True):
            # An item of usual size is one row; as a payload it would be two, and is never shared.
            stored = item if size <= ADAPTER_ITEM_BYTES_MAX else Payload(item)
            message = {"item": stored, "below": number}
            if (role := _role(item)) is not None:
                message["role"] = role
            events.append({"type": _ADDED, "message": message})
        return events


def _role(item: Any) -> str | None:
    role = item.get("role") if isinstance(item, dict) else None
    return str(role) if isinstance(role, str) else None


@lru_cache(maxsize=64)
def _role_text(role: str | None) -> str:
    return "" if role is None else f',"role":{encode(role).decode()}'
