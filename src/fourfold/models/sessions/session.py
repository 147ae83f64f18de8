"""A session in hand: the calls of the store with the id filled in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fourfold.models.sessions.feed import Item, Subscription
from fourfold.models.sessions.reader import SessionView
from fourfold.models.sessions.records import UNSET, Event, Head, Unset

if TYPE_CHECKING:
    from fourfold.models.sessions.sessions import Sessions


class Session:
    """Made by `create_session` and `open_session`. It holds no state of its own."""

    __slots__ = ("created_at", "id", "sessions")

    def __init__(self, sessions: Sessions, sid: str, created_at: str) -> None:
        self.sessions = sessions
        self.id = sid
        self.created_at = created_at

    def append_event(
        self,
        event: Mapping[str, Any],
        *,
        expected_last_id: int | Unset = UNSET,
        key: str | None = None,
    ) -> Event:
        return self.sessions.append_event(
            self.id, event, expected_last_id=expected_last_id, key=key
        )

    def append_events(
        self,
        events: Iterable[Mapping[str, Any]],
        *,
        expected_last_id: int | Unset = UNSET,
        key: str | None = None,
    ) -> Sequence[Event]:
        return self.sessions.append_events(
            self.id, events, expected_last_id=expected_last_id, key=key
        )

    def publish_head(
        self,
        head: Mapping[str, Any] | None = None,
        *,
        expected_basis: str | Unset | None = UNSET,
        to_event_id: int | None = None,
        key: str | None = None,
        events: Iterable[Mapping[str, Any]] = (),
    ) -> Head:
        return self.sessions.publish_head(
            self.id,
            head,
            expected_basis=expected_basis,
            to_event_id=to_event_id,
            key=key,
            events=events,
        )

    def view(self) -> SessionView:
        return self.sessions.current_view(self.id)

    def events_since(self, event_id: int = 0, *, limit: int | None = None) -> list[Event]:
        return self.sessions.events_since(self.id, event_id, limit=limit)

    def subscribe(
        self, callback: Callable[[Item], Any], *, after: int | None = None
    ) -> Subscription:
        return self.sessions.subscribe(self.id, callback, after=after)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Session):
            return NotImplemented
        return self.sessions is other.sessions and self.id == other.id

    def __hash__(self) -> int:
        return hash((id(self.sessions), self.id))

    def __repr__(self) -> str:
        return f"<Session {self.id}>"
