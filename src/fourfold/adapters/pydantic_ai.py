"""A conversation store of Pydantic AI that keeps each conversation as a session.

    conversations = FourfoldConversationStore(store.sessions)
    conversation = await conversations.load("user-42") or Conversation(conversation_id="user-42")
    result = await agent.run("Hello", conversation=conversation)
    await conversations.save(result)

Each message is an event, and so is each record. One append stores the new messages with their
record, all or none. The newest `pydantic-ai/saved` event is the record; every message refers to the
one below it, so histories that a conversation has left stay in its log. A fork gets copies of the
messages that it continues. Other programs may append to the session too: their events are skipped.

`store.sessions` of a folder and of a server (`fourfold.connect`) work alike.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse

from fourfold.adapters.newest_event import find_newest_event
from fourfold.adapters.session_ids import AnySessions, Generations, check_name, check_sessions
from fourfold.cache import LruCache
from fourfold.content import encode
from fourfold.errors import AlreadyExists, NotFound, PreconditionFailed
from fourfold.models.sessions import Event, Payload, Sessions, SessionView
from fourfold.models.sessions.transcript import TranscriptEntry, resolve_payloads, to_json

LIBRARY: Final = "pydantic-ai"
SAVED: Final = "pydantic-ai/saved"
DELETED: Final = "pydantic-ai/deleted"
_ADDED: Final = "message/appended"
_ITEM_BYTES_MAX: Final = 4_096
"""A larger message is a payload; smaller ones are stored in their event."""
_FIELDS: Final = ("entry", "parent", "item", "role")
"""Fields of a message of this adapter, beside the message below it."""
_PAGE: Final = 256
_PLACES_MAX: Final = 100_000
_RECORD: Final = TypeAdapter(ConversationRecord)
_ROLES: Final = {"system-prompt": "system"}
"""Roles of the parts of a request; those of other parts are `user`."""


class FourfoldConversationStore(ConversationStore):
    """Conversations of Pydantic AI in the sessions of a store.

    `delete` deletes the session: it can no longer be read, and garbage collection erases it. An
    entry that this object has neither read nor written is searched for in all conversations, since
    its id names none; `load`, `save`, `branch` and `fork` never need to.
    """

    def __init__(self, sessions: AnySessions) -> None:
        self._sessions = check_sessions(sessions, "FourfoldConversationStore")
        self._names = Generations(self._sessions, LIBRARY)
        self._lock = threading.Lock()
        self._places: LruCache[str, tuple[str, int]] = LruCache(_PLACES_MAX)
        """Session and message number of entries."""

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Return the record of a conversation, or None if the store does not have it."""
        return await asyncio.to_thread(lambda: self._find(conversation_id)[2])

    async def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> Sequence[ConversationRecord]:
        """Return the records, or those of a scope, newest first.

        With a limit, no more conversations are read than needed, those that changed last first.
        """
        return await asyncio.to_thread(self._list, scope, limit)

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Store a record with its new entries, all or none.

        Raises:
            ConversationConflict: The stored revision is another one, or an entry is gone.
        """
        await asyncio.to_thread(self._write, record, list(new_entries), expected_revision)

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Delete a conversation. Forks of it keep their messages.

        Raises:
            ConversationConflict: The stored revision is another one.
        """
        await asyncio.to_thread(self._delete, conversation_id, expected_revision)

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return the entry with this id.

        Raises:
            NotFound: No conversation has it.
        """
        return (await self.read_history(entry_id, limit=1))[0]

    async def read_history(
        self, head_id: str | None, *, limit: int | None = None
    ) -> list[ConversationEntry]:
        """Return the entries up to `head_id`, oldest first, or only the last `limit` of them.

        Raises:
            NotFound: No conversation has the entry `head_id`.
        """
        if head_id is None or limit == 0:
            return []
        return await asyncio.to_thread(self._history, head_id, limit)

    # Inside

    def _find(
        self, conversation_id: str
    ) -> tuple[str, SessionView | None, ConversationRecord | None]:
        """Return the session of a conversation, its view if it exists, and the record."""
        name = check_name(conversation_id, "conversation_id")
        while True:
            sid = self._names.current_prefix(name)
            try:
                view = self._sessions.current_view(sid)
            except NotFound:
                return sid, None, None
            event = find_newest_event(view, _is_record)
            if event is None:
                return sid, view, None
            if event.type == SAVED:
                return sid, view, self._record(sid, event)
            self._erase(name, sid)

    def _record(self, sid: str, event: Event) -> ConversationRecord:
        """Return the record of an event, and remember where its entries are."""
        self._remember(sid, event.data["places"])
        record = self._sessions.read_payload(event.data["record"])
        return _RECORD.validate_python(record)

    def _write(
        self,
        record: ConversationRecord,
        entries: list[ConversationEntry],
        expected_revision: str | None,
    ) -> None:
        items = [_to_item(entry) for entry in entries]
        stored_record = _stored(_RECORD.dump_python(record, mode="json"))
        name = record.conversation_id
        while True:
            sid, view, current = self._find(name)
            if (None if current is None else current.revision) != expected_revision:
                raise ConversationConflict(name)
            if view is None:
                self._create(name, sid)
                continue
            tips = {tip for tip in (record.head_id, *record.branches) if tip is not None}
            places, shared = self._places_of(name, view, tips, items, is_new=current is None)
            messages = [
                {**item, "below": None if item["parent"] is None else places[item["parent"]]}
                for item in (*shared, *items)
            ]
            saved = {"record": stored_record, "places": {tip: places[tip] for tip in tips}}
            events = [{"type": _ADDED, "message": message} for message in messages]
            events.append({"type": SAVED, **saved})
            try:
                self._sessions.append_events(sid, events, expected_last_id=view.counters.event)
            except (PreconditionFailed, NotFound):
                # A concurrent change: read again.
                continue
            self._remember(sid, places)
            return

    def _places_of(
        self,
        name: str,
        view: SessionView,
        tips: set[str],
        items: list[dict[str, Any]],
        *,
        is_new: bool,
    ) -> tuple[dict[str, int], list[dict[str, Any]]]:
        """Return the message numbers of all entries that a record needs, and messages to copy.

        Only a new conversation continues another one: it copies the messages of that history.
        """
        new_ids = {item["entry"] for item in items}
        needed = {*tips, *(item["parent"] for item in items if item["parent"] is not None)}
        places = self._numbers(view, needed - new_ids)
        missing = needed - new_ids - places.keys()
        shared: list[dict[str, Any]] = []
        if missing:
            try:
                shared = list(self._walk(missing.pop()))[::-1] if is_new else []
            except NotFound:
                shared = []
            if not shared or missing:
                raise ConversationConflict(name)
        shared = [{key: message[key] for key in _FIELDS if key in message} for message in shared]
        for number, item in enumerate([*shared, *items], view.counters.message + 1):
            places[item["entry"]] = number
        return places, shared

    def _create(self, name: str, sid: str) -> None:
        options = {"id": sid, "kind": LIBRARY, "conversation_id": name}
        try:
            self._sessions.create_session(options)
        except AlreadyExists:
            # The session was deleted without this adapter: its id is never used again.
            self._names.set_current(name, _generation(sid) + 1)

    def _delete(self, name: str, expected_revision: str) -> None:
        while True:
            sid, view, current = self._find(name)
            if view is None or current is None or current.revision != expected_revision:
                raise ConversationConflict(name)
            try:
                self._sessions.append_events(
                    sid, [{"type": DELETED}], expected_last_id=view.counters.event
                )
            except (PreconditionFailed, NotFound):
                continue
            self._erase(name, sid)
            return

    def _erase(self, name: str, sid: str) -> None:
        """Delete the session of a conversation that was deleted. A second call changes nothing."""
        self._names.set_current(name, _generation(sid) + 1)
        self._sessions.delete_session(sid)

    def _list(self, scope: str | None, limit: int | None) -> list[ConversationRecord]:
        found: list[ConversationRecord] = []
        last_second = ""
        for updated_at, view in self._conversations() if limit != 0 else ():
            second = updated_at[: len("2030-01-01T00:00:00")]
            if limit is not None and len(found) >= limit and second != last_second:
                break
            event = find_newest_event(view, _is_record)
            if event is not None and event.type == SAVED:
                record = self._record(view.id, event)
                if scope is None or record.scope == scope:
                    found.append(record)
                    last_second = second
        found.sort(key=lambda record: record.updated_at, reverse=True)
        return found[:limit]

    def _conversations(self) -> Iterator[tuple[str, SessionView]]:
        """Yield the conversations with their last changes, by the second of these, newest first."""
        after = None
        while True:
            page = self._sessions.list(
                after=after, limit=_PAGE, kind=LIBRARY, order="updated", newest_first=True
            )
            for info in page:
                try:
                    yield info.updated_at, self._sessions.current_view(info.id)
                except NotFound:
                    continue
            if len(page) < _PAGE:
                return
            after = page[-1]

    def _history(self, head_id: str, limit: int | None) -> list[ConversationEntry]:
        messages = []
        for message in self._walk(head_id):
            messages.append(message)
            if len(messages) == limit:
                break
        items = [self._sessions.read_payload(message["item"]) for message in messages]
        return [
            ConversationEntry(id=message["entry"], parent_id=message["parent"], message=decoded)
            for message, decoded in zip(
                reversed(messages),
                ModelMessagesTypeAdapter.validate_python(items[::-1]),
                strict=True,
            )
        ]

    def _walk(self, entry_id: str) -> Iterator[dict[str, Any]]:
        """Yield the messages of a history, newest first."""
        sid, start = self._locate(entry_id)
        view = self._sessions.current_view(sid)
        number: int | None = start
        page: dict[int, dict[str, Any]] = {}
        while number is not None:
            if number not in page:
                first = max(0, number - _PAGE)
                page = {message["id"]: message for message in view.messages[first:number]}
            message = page[number]
            self._remember(sid, {message["entry"]: number})
            yield message
            number = message["below"]

    def _remember(self, sid: str, places: Mapping[str, int]) -> None:
        with self._lock:
            for entry_id, number in places.items():
                self._places.put(entry_id, (sid, number))

    def _recall(self, entry_id: str) -> tuple[str, int] | None:
        with self._lock:
            return self._places.get(entry_id)

    def _locate(self, entry_id: str) -> tuple[str, int]:
        place = self._recall(entry_id)
        if place is not None:
            try:
                self._sessions.current_view(place[0])
            except NotFound:
                pass
            else:
                return place
        for _, view in self._conversations():
            places = self._numbers(view, {entry_id}, remembered=False)
            if places:
                return view.id, places[entry_id]
        raise NotFound(f"no conversation has the entry {entry_id!r:.100}")

    def _numbers(
        self, view: SessionView, entry_ids: set[str], *, remembered: bool = True
    ) -> dict[str, int]:
        """Return the message numbers of those entries that are in a session."""
        found = {}
        for entry_id in entry_ids:
            place = self._recall(entry_id) if remembered else None
            if place is not None and place[0] == view.id:
                found[entry_id] = place[1]
        for end in range(view.counters.message, 0, -_PAGE):
            if len(found) == len(entry_ids):
                break
            for message in view.messages[max(0, end - _PAGE) : end]:
                if _is_entry(message) and message["entry"] in entry_ids:
                    found[message["entry"]] = message["id"]
        return found

    def __repr__(self) -> str:
        return f"<FourfoldConversationStore {self._sessions!r}>"


def iter_entries(
    sessions: Sessions, view: SessionView, *, full: bool = False
) -> Iterator[TranscriptEntry]:
    """Yield the history of a conversation at the event of a view, oldest first."""
    saved = find_newest_event(view, _is_record)
    if saved is None or saved.type != SAVED:
        return
    head_id = sessions.read_payload(saved.data["record"])["head_id"]
    number = None if head_id is None else saved.data["places"][head_id]
    remaining: set[int] = set()
    page: dict[int, dict[str, Any]] = {}
    while number is not None:
        if number not in page:
            first = max(0, number - _PAGE)
            page = {message["id"]: message for message in view.messages[first:number]}
        remaining.add(number)
        number = page[number]["below"]
    for start in range(0, view.counters.event, _PAGE):
        for event in view.events[start : min(start + _PAGE, view.counters.event)]:
            if event.type == _ADDED and event.entity_id in remaining:
                item = to_json(resolve_payloads(sessions, event.data["message"]["item"], full=full))
                for role, content in _contents(item):
                    yield TranscriptEntry(event.id, event.at, "message", role, content)


def _is_record(event: Event) -> bool:
    return event.type in {SAVED, DELETED}


def _is_entry(message: Mapping[str, Any]) -> bool:
    """Return True for messages of this adapter, False for those of other programs."""
    return message.keys() >= {"entry", "parent", "below", "item"}


def _generation(sid: str) -> int:
    return int(sid.rpartition("/")[2])


def _to_item(entry: ConversationEntry) -> dict[str, Any]:
    """Return an entry as a message, without the one below it."""
    (item,) = ModelMessagesTypeAdapter.dump_python([entry.message], mode="json")
    role = "assistant" if isinstance(entry.message, ModelResponse) else "user"
    return {"entry": entry.id, "parent": entry.parent_id, "item": _stored(item), "role": role}


def _stored(value: Any) -> Any:
    """Return a value as it is stored: a large one as a payload."""
    return value if len(encode(value)) <= _ITEM_BYTES_MAX else Payload(value)


def _contents(item: Any) -> Iterator[tuple[str, Any]]:
    """Yield the role and the content of each part of a request, or those of a response."""
    if not isinstance(item, dict) or "parts" not in item:
        yield "message", item
    elif item.get("kind") == "response":
        yield "assistant", _response_content(item["parts"])
    else:
        for part in item["parts"]:
            kind = str(part.get("part_kind"))
            content = part.get("content")
            if "tool_call_id" in part and part.get("tool_name"):
                named = {"tool_call_id": part["tool_call_id"], "name": part["tool_name"]}
                yield "tool", {"content": content, **named}
            else:
                yield _ROLES.get(kind, "user"), content


def _response_content(parts: list[dict[str, Any]]) -> Any:
    """Return the text of a response; with its tool calls, a dict."""
    texts = [str(part["content"]) for part in parts if part.get("part_kind") == "text"]
    calls = [
        {
            "type": "tool_call",
            "id": part.get("tool_call_id"),
            "name": part.get("tool_name"),
            "args": part.get("args"),
        }
        for part in parts
        if part.get("part_kind") == "tool-call"
    ]
    text = "\n\n".join(texts)
    return {"content": text, "tool_calls": calls} if calls else text
