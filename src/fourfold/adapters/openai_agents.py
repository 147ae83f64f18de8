"""A session of the OpenAI Agents SDK whose items are messages in a log.

    session = AgentsSession("user-42", store.sessions)
    await Runner.run(agent, "Hello", session=session)

It has the methods that the SDK asks for and needs nothing of the SDK itself. Each item is an event,
so what `pop_item` took away and what was there before stay readable in the past of the session;
`clear_session` deletes them, and a collection removes them.

Every message names the one below it, and a `openai-agents/popped` event names what is the last one
now. So the newest of these events tells what the items are, and adding or removing one reads no
other. Other programs may append to the session too: what they wrote since is passed over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, TypeVar

from fourfold.adapters.session_ids import Generations, checked
from fourfold.content import encode, encode_each
from fourfold.errors import (
    CorruptData,
    InvalidInput,
    NotFound,
    PayloadMissing,
    PreconditionFailed,
)
from fourfold.limits import ADAPTER_ITEM_BYTES_MAX
from fourfold.models.sessions import Event, Payload, Sessions, SessionView
from fourfold.models.sessions.request import Alike

LIBRARY: Final = "openai-agents"
POPPED: Final = "openai-agents/popped"
_ADDED: Final = "message/appended"
_PAGE = 256
T = TypeVar("T")


class AgentsSession:
    """One conversation. Several objects may stand for the same one, in threads and coroutines."""

    session_settings: Any = None
    """What the SDK wants to know of a session, as its SessionSettings."""

    def __init__(
        self, session_id: str, sessions: Sessions, *, session_settings: Any = None
    ) -> None:
        if not isinstance(sessions, Sessions):
            raise InvalidInput(
                f"an AgentsSession stands on sessions, not on {type(sessions).__name__}",
                hint='As in AgentsSession("user-42", store.sessions).',
            )
        self.session_id = checked(session_id, "session_id")
        self.session_settings = session_settings
        self._sessions = sessions
        self._names = Generations(sessions, LIBRARY)
        self._known: str | None = None
        self._seen: tuple[str, int, int | None] | None = None
        """Log, last event and newest item, as this object left or found them."""

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """The items, oldest first; with a limit the newest of them."""
        if limit is None:
            limit = getattr(self.session_settings, "limit", None)
        if limit is not None and type(limit) is not int:
            raise InvalidInput(f"limit is {limit!r:.100}, not a number of items")
        return await self._retried(lambda: self._items(limit))

    async def add_items(self, items: Sequence[Any]) -> None:
        """Append items, all of them or none."""
        if isinstance(items, (str, bytes, dict)):
            raise InvalidInput(f"the items to add are a list, not {type(items).__name__}")
        given = _Given(list(items))
        while given.count:
            # Where the conversation is known no thread is needed: the commit is all there is.
            sid = self._known
            if sid is None:
                sid = await asyncio.to_thread(self._begun)
            try:
                await self._add(sid, given)
            except PreconditionFailed:
                # Somebody added or popped between the look and the change.
                continue
            except NotFound:
                # Somebody cleared it.
                self._known = None
                continue
            return

    async def pop_item(self) -> Any:
        """Take away the newest item; None if there is none."""
        return await self._retried(self._pop)

    async def clear_session(self) -> None:
        """Delete all items. Their events go with the next collection that they are old enough for;
        the conversation can begin anew at once.
        """
        await asyncio.to_thread(self._clear)

    # Inside

    async def _retried(self, change: Callable[[], T]) -> T:
        """Change the conversation, once more if somebody else did so meanwhile."""
        while True:
            try:
                return await asyncio.to_thread(change)
            except PayloadMissing:
                raise
            except (PreconditionFailed, NotFound):
                # Somebody added, popped or cleared between the look and the change.
                continue

    def _sid(self) -> str | None:
        """The log of the conversation, if it has begun."""
        for known in (self._known, None):
            sid = known or self._names.current(self.session_id)
            try:
                self._sessions.current_view(sid)
            except NotFound:
                continue
            self._known = sid
            return sid
        return None

    def _begun(self) -> str:
        sid = self._sid()
        if sid is None:
            sid = self._known = self._names.current(self.session_id)
            self._names.begin(sid, {"kind": LIBRARY, "session_id": self.session_id})
        return sid

    def _top(self, view: SessionView) -> tuple[int, int | None]:
        """The last event of a view, and the message that is the newest item."""
        last = view.counters.event
        floor, top = 0, None
        if self._seen is not None and self._seen[0] == view.id:
            _, floor, top = self._seen
        end, size = last, 1
        while end > floor:
            # The last event is nearly always the one; each page of others is larger.
            start = max(floor, end - size)
            own = next(filter(_is_own, reversed(view.events[start:end])), None)
            if own is not None:
                top = own.entity_id if own.type == _ADDED else own.data["top"]
                break
            end, size = start, min(2 * size, _PAGE)
        self._seen = (view.id, last, top)
        return last, top

    def _items(self, limit: int | None) -> list[Any]:
        sid = self._sid()
        if sid is None or (limit is not None and limit <= 0):
            return []
        view = self._sessions.current_view(sid)
        messages = view.messages
        _, top = self._top(view)
        found: list[Any] = []
        page: dict[int, dict[str, Any]] = {}
        while top is not None and (limit is None or len(found) < limit):
            if top not in page:
                wanted = _PAGE if limit is None else min(_PAGE, limit)
                page = {each["id"]: each for each in messages[max(0, top - wanted) : top]}
            message = page[top]
            found.append(self._item(message))
            top = message["below"]
        return found[::-1]

    async def _add(self, sid: str, given: _Given) -> None:
        view = self._sessions.current_view(sid)
        last, top = self._top(view)
        newest = view.counters.message
        events = given.events([top, *range(newest + 1, newest + given.count)])
        await self._sessions.append_events_async(sid, events, expected_last_id=last)
        self._seen = (sid, last + given.count, newest + given.count)

    def _pop(self) -> Any:
        sid = self._sid()
        if sid is None:
            return None
        view = self._sessions.current_view(sid)
        last, top = self._top(view)
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
        number = self._names.free(self.session_id)
        self._names.move_on(self.session_id, number)
        self._names.delete_before(self.session_id, number)

    def _item(self, message: dict[str, Any]) -> Any:
        if "item" not in message:
            raise CorruptData(f"message {message.get('id')} of {self.session_id!r} holds no item")
        return self._sessions.read_payload(message["item"])

    def __repr__(self) -> str:
        return f"<AgentsSession {self.session_id!r}>"


def _is_own(event: Event) -> bool:
    """Tell an event of this adapter from those of other programs."""
    if event.type == _ADDED:
        message: dict[str, Any] = event.data["message"]
        return message.keys() >= {"below", "item"}
    return event.type == POPPED


class _Given:
    """Items on their way into the log. Each becomes a message: the item, the message below it, and
    its role where it has one, for whoever reads the log.
    """

    def __init__(self, items: list[Any]) -> None:
        self.count = len(items)
        self._items = items
        self._sizes: list[int] = []
        self._texts: list[str] | None = None
        found = encode_each(items)
        if found is None:
            self._sizes = [len(encode(item)) for item in items]
        elif items and max(map(len, found)) <= ADAPTER_ITEM_BYTES_MAX:
            # What most are is encoded once. The keys of a message are in the order of the alphabet.
            roles = [_role_text(_role(item)) for item in items]
            self._texts = [
                f',"item":{data.decode()}{role}}}}}'
                for data, role in zip(found, roles, strict=True)
            ]
            self._size = sum(map(len, self._texts))
        else:
            self._sizes = [*map(len, found)]

    def events(self, below: list[int | None]) -> Iterable[Any]:
        """The events that add them, each on top of the message with the number from `below`."""
        if self._texts is not None:
            numbers = ["null" if number is None else number for number in below]
            bodies = [
                f'{{"message":{{"below":{number}{text}'
                for number, text in zip(numbers, self._texts, strict=True)
            ]
            return Alike(_ADDED, bodies, self._size)
        events = []
        for item, size, number in zip(self._items, self._sizes, below, strict=True):
            # One of usual size is one row; stored apart it would be two, and is never the same
            # twice.
            kept = item if size <= ADAPTER_ITEM_BYTES_MAX else Payload(item)
            message = {"item": kept, "below": number}
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
