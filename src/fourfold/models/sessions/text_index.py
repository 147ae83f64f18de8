"""The index of the words of events: what a transcript shows, without what it is stored in.

An append does not touch the index: its transaction costs what it did without one. Events are added
later, in the order of their positions: by a server while it is idle, by `gc`, and by a search
before it reads. So the index is complete up to one position, and a search of a log that it cannot
write reads the later events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any, Final, NamedTuple

from fourfold import limits
from fourfold.blobs import BlobStore
from fourfold.content import PayloadRef, find_refs
from fourfold.content.text import searchable, tokens
from fourfold.errors import CorruptData, FourfoldError, PayloadMissing
from fourfold.models.sessions.hits import IndexProgress
from fourfold.models.sessions.log import (
    Log,
    LogAudit,
    LogReader,
    LogWriter,
    OpenReading,
    session_word,
)
from fourfold.models.sessions.payloads import fetch_with
from fourfold.models.sessions.records import Event
from fourfold.models.sessions.stamps import event_of
from fourfold.models.sessions.transcript import describe_event, to_json
from fourfold.models.sessions.transcript_formats import to_text

SESSION_TEXT_CHARS_MAX: Final = 65_536
"""Characters of an event that are indexed: the beginning of its text."""
SESSION_TEXT_PAYLOAD_BYTES_MAX: Final = limits.MIB
"""A larger payload is not searched."""
THREAD_TYPES: Final = ("step/started", "step/put")
"""Types of the events that add messages to a thread of LangGraph."""
SESSION_INDEX_EVENTS: Final = 200
"""Events that one transaction indexes."""
_THREADS: Final = "langgraph/"
"""Beginning of the ids of sessions that the adapter of LangGraph writes."""
_THREAD_MESSAGES: Final = "fourfold.adapters.langgraph_items"
"""Module that reads the messages of these sessions; it needs no other library."""
_COMPARED_WORDS: Final = 64
"""Words of an event that verification looks up: from its beginning, and from its end."""


class EventText(NamedTuple):
    """Text of an event, and its place in a transcript."""

    kind: str
    title: str
    text: str


def read_text(open_reading: OpenReading, files: BlobStore | None, event: Event) -> EventText | None:
    """Return the text of an event, with its payloads; None if it has none."""
    if event.session.startswith(_THREADS) and event.type in THREAD_TYPES:
        return _thread_text(open_reading, files, event)
    description = describe_event(event)
    if description is None:
        return None
    kind, title, content = description
    text = to_text(to_json(_resolve(open_reading, files, content)))
    if kind == "call":
        text = f"{event.data['eval'].get('name', '')}\n{text}"
    return EventText(kind, title, text[:SESSION_TEXT_CHARS_MAX]) if text else None


def _thread_text(
    open_reading: OpenReading, files: BlobStore | None, event: Event
) -> EventText | None:
    """Return the messages that a checkpoint of LangGraph added; None if it added none."""

    def find(event_id: int) -> Event:
        with open_reading() as reading:
            row = reading.session(event.session)
            rows = [] if row is None else reading.events(row.key, event_id - 1, event_id, 1)
        if not rows:
            raise CorruptData(f"session {event.session!r} has no event {event_id}")
        return event_of(event.session, rows[0])

    def read(ref: PayloadRef) -> Any:
        return _resolve(open_reading, files, ref)

    adapter = import_module(_THREAD_MESSAGES)
    messages = list(adapter.message_texts(event, find, read))
    text = "\n".join(filter(None, (to_text(to_json(content)) for _, content in messages)))
    roles = ", ".join(dict.fromkeys(role for role, _ in messages))
    return EventText("message", roles, text[:SESSION_TEXT_CHARS_MAX]) if text else None


def _resolve(open_reading: OpenReading, files: BlobStore | None, value: Any) -> Any:
    """Replace references by their payloads; None for one that cannot be read."""
    if isinstance(value, dict):
        return {name: _resolve(open_reading, files, item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_resolve(open_reading, files, item) for item in value]
    if not isinstance(value, PayloadRef):
        return value
    if value.size > SESSION_TEXT_PAYLOAD_BYTES_MAX:
        return None
    try:
        return fetch_with(open_reading, files, value)
    except (PayloadMissing, CorruptData):
        return None


def index_events(log: Log, files: BlobStore | None, limit: int | None = None) -> IndexProgress:
    """Index events that are not indexed yet, oldest first, at most about `limit` of them.

    Events that are appended meanwhile may be left: others can append as fast as this indexes.
    """
    count, target = 0, None
    while True:
        size = SESSION_INDEX_EVENTS if limit is None else min(limit - count, SESSION_INDEX_EVENTS)
        with log.paced() as end_step:
            with log.read() as reading:
                start, end = reading.text_until(), reading.position()
                target = end if target is None else target
                if start >= target or size <= 0:
                    return IndexProgress(count, max(0, end - start))
                rows = reading.all_events(start, size)
                until = rows[-1][1].position if len(rows) == size else end
                keys = {sid: _key(reading, sid) for sid in {sid for sid, _ in rows}}
            end_step()
            texts = []
            for sid, row in rows:
                key = keys[sid]
                text = _searchable(log.read, files, event_of(sid, row))
                if text is not None and key is not None:
                    texts.append((row.position, key, text))
                end_step()

        def work(
            writing: LogWriter, start: int = start, until: int = until, texts: Any = texts
        ) -> None:
            # Another thread may have indexed the same events.
            if writing.text_until() == start:
                writing.index_texts(texts, until)

        with log.paced():
            log.transact(work)
        count += len(rows)


def _key(reading: LogReader, sid: str) -> int | None:
    row = reading.session(sid)
    return None if row is None else row.key


def _searchable(open_reading: OpenReading, files: BlobStore | None, event: Event) -> str | None:
    try:
        text = read_text(open_reading, files, event)
    except (FourfoldError, KeyError, TypeError, AttributeError):
        # Damaged, which verification reports.
        return None
    return None if text is None else searchable(text.text)


def text_problems(
    log: Log, files: BlobStore | None, is_damaged: Callable[[str], bool]
) -> Iterator[str]:
    """Yield problems of the index of words: rows without an event, and events without words.

    Args:
        log: The log.
        files: The files of its large payloads.
        is_damaged: Returns True for a session whose own events are not what was appended.
    """
    if not log.indexes_texts:
        return
    with log.read_step() as reading:
        until, end = reading.text_until(), reading.position()
    if until > end:
        yield f"the index of words is complete until position {until}, the log ends at {end}"
    after = 0
    while after < until:
        with log.read_step() as reading:
            events = [
                (sid, row)
                for sid, row in reading.all_events(after, SESSION_INDEX_EVENTS)
                if row.position <= until
            ]
            keys = {sid: _key(reading, sid) for sid, _ in events}
        last = until if len(events) < SESSION_INDEX_EVENTS else events[-1][1].position
        # No step pauses inside another one, so texts are read before the audit.
        texts = [
            (sid, row.position, event, _searchable(log.read_step, files, event))
            for sid, row in events
            if not is_damaged(sid)
            for event in [event_of(sid, row)]
        ]
        with log.audit_step() as audit:
            indexed = set(audit.text_rows(after + 1, last))
            found = [
                (sid, position, event, problem)
                for sid, position, event, text in texts
                if (problem := _text_problem(audit, text, keys[sid], position, indexed))
            ]
        for sid, position, event, problem in found:
            # A session that was purged meanwhile has no events and no words.
            if _is_stored(log, position) and _is_readable(log, files, event):
                yield f"event {event.id} of session {sid!r}: {problem}"
        # Events of a deleted session stay until they are purged.
        yield from _stray_rows(log, indexed.difference(row.position for _, row in events))
        after = last
    with log.audit_step() as audit:
        later = audit.text_rows(until + 1, limits.INTEGER_MAX)
    if later and until == _text_until(log):
        for position in later:
            yield f"the index of words has a row for position {position}, beyond its end"


def _is_readable(log: Log, files: BlobStore | None, event: Event) -> bool:
    """Return True if all payloads of an event can be read."""
    try:
        for ref in find_refs(event.data):
            fetch_with(log.read_step, files, ref)
    except (PayloadMissing, CorruptData):
        return False
    return True


def _text_problem(
    audit: LogAudit, text: str | None, key: int | None, position: int, indexed: set[int]
) -> str | None:
    if text is None:
        return "has no text, but a row in the index of words" if position in indexed else None
    if position not in indexed:
        return "has no row in the index of words"
    is_right = audit.has_words(_words_expression(text, key), position)
    return None if is_right else "its words differ from those of the index"


def _stray_rows(log: Log, positions: Iterable[int]) -> Iterator[str]:
    for position in sorted(positions):
        if not _is_stored(log, position):
            yield f"the index of words has a row for position {position}, which has no event"


def _is_stored(log: Log, position: int) -> bool:
    with log.read_step() as reading:
        return reading.event_at_position(position) is not None


def _text_until(log: Log) -> int:
    with log.read_step() as reading:
        return reading.text_until()


def _words_expression(text: str, key: int | None) -> str:
    words = tokens(text)
    compared = words[:_COMPARED_WORDS] + words[-_COMPARED_WORDS:]
    named = "" if key is None else f'session : "{session_word(key)}"'
    if not compared:
        return named
    phrase = " AND ".join(f'"{word}"' for word in dict.fromkeys(compared))
    return f"{named} AND (text : ({phrase}))" if named else f"text : ({phrase})"
