"""The sink of sessions: rows of a DataFrame or of a Spark stream become events.

A row is an event: `session`, and `event`, the JSON of `append_event`. Idempotency keys of sessions
are the ledger: a page of events has the name of the write, the number of its batch and its own, so
a page that is sent again returns the events of the first time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from fourfold.errors import InvalidInput, NotFound
from fourfold.models.sessions.request import check_session_id, drafts_of_one
from fourfold.pipeline.json_sink import BatchName, JsonRows, Page, json_sink

if TYPE_CHECKING:
    from fourfold.pipeline.json_sink import SinkStore


def check_event(event: Any, sid: str | None) -> None:
    """Raise InvalidInput for what no session accepts."""
    if not isinstance(event, Mapping):
        raise InvalidInput("event must be a JSON object")
    drafts_of_one(check_session_id(sid), event)


def find_sessions(store: SinkStore, names: Sequence[str], texts: Mapping[str, str]) -> None:
    """Create sessions that do not exist, with the option `create`, or raise NotFound."""
    create = texts.get("create", "false").lower()
    if create not in {"true", "false"}:
        raise InvalidInput(f"option 'create' must be true or false, got {create!r}")
    for name in names:
        try:
            store.sessions.open(name)
        except NotFound:
            if create == "false":
                raise NotFound(
                    f"unknown session {name!r}",
                    hint="Create it first, or set the option create to true.",
                ) from None
    if create == "true":
        for name in names:
            store.sessions.create({"id": name})


def append_pages(
    store: SinkStore, sid: str | None, pages: Iterator[Page], batch: BatchName
) -> None:
    """Append the events of a session, each page once."""
    assert sid is not None
    for number, page in enumerate(pages):
        key = f"{batch.key}:{batch.number}:{number}"
        store.sessions.append_events(sid, page, key=key)


SINK: Final = json_sink(
    JsonRows(
        model="sessions",
        value="event",
        group="session",
        check=check_event,
        write=append_pages,
        option_names=("create",),
        prepare=find_sessions,
    )
)
