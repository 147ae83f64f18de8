"""A session of the OpenAI Agents SDK whose items are messages in a log.

    session = AgentsSession("user-42", store.sessions)
    await Runner.run(agent, "Hello", session=session)

It has the methods that the SDK asks for and needs nothing of the SDK itself. Each item is an event,
so what `pop_item` took away and what was there before stay readable in the past of the session;
`clear_session` deletes them, and a collection removes them.

Every message names the one below it, and a `openai-agents/popped` event names what is the last one
now. So the last event of the log tells what the items are, and adding or removing one reads no
other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from fourfold.adapters.naming import Generations, checked
from fourfold.content import encode
from fourfold.errors import CorruptData, InvalidInput, NotFound, PreconditionFailed
from fourfold.limits import ADAPTER_ITEM_BYTES_MAX
from fourfold.models.sessions import Event, Payload, Sessions, SessionView

LIBRARY: Final = "openai-agents"
POPPED: Final = "openai-agents/popped"
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
        given = [_message(item) for item in items]
        if given:
            await self._retried(lambda: self._add(given))

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
            except (PreconditionFailed, NotFound):
                # Somebody added, popped or cleared between the look and the change.
                continue

    def _sid(self) -> str | None:
        """The log of the conversation, if it has begun."""
        for sid in (self._known, self._names.current(self.session_id)):
            try:
                if sid is not None:
                    self._sessions.current_view(sid)
                    self._known = sid
                    return sid
            except NotFound:
                continue
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
        event = view.events[last - 1]
        if event.type == "message/appended":
            return last, event.entity_id
        return last, event.data["top"] if event.type == POPPED else None

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

    def _add(self, given: list[dict[str, Any]]) -> list[Event]:
        sid = self._begun()
        view = self._sessions.current_view(sid)
        last, top = self._top(view)
        number = view.counters.message + 1
        events = []
        for at, message in enumerate(given):
            events.append({"type": "message/appended", "message": {**message, "below": top}})
            top = number + at
        return self._sessions.append_events(sid, events, expected_last_id=last)

    def _pop(self) -> Any:
        sid = self._sid()
        if sid is None:
            return None
        view = self._sessions.current_view(sid)
        last, top = self._top(view)
        if top is None:
            return None
        message = view.messages[top - 1]
        event = {"type": POPPED, "popped": top, "top": message["below"]}
        self._sessions.append_event(sid, event, expected_last_id=last)
        return self._item(message)

    def _clear(self) -> None:
        if self._sid() is None:
            return
        number = self._names.free(self.session_id)
        self._names.move_on(self.session_id, number)
        self._names.delete_before(self.session_id, number)

    def _item(self, message: dict[str, Any]) -> Any:
        try:
            return self._sessions.read_payload(message["item"])
        except KeyError:
            raise CorruptData(
                f"message {message.get('id')} of {self.session_id!r} holds no item"
            ) from None

    def __repr__(self) -> str:
        return f"<AgentsSession {self.session_id!r}>"


def _message(item: Any) -> dict[str, Any]:
    """An item as a message: itself, and its role where it has one, for whoever reads the log."""
    # A message of usual size is one row; stored apart it would be two, and is never the same twice.
    usual = len(encode(item)) <= ADAPTER_ITEM_BYTES_MAX
    message: dict[str, Any] = {"item": item if usual else Payload(item)}
    role = item.get("role") if isinstance(item, dict) else None
    if isinstance(role, str):
        message["role"] = str(role)
    return message
