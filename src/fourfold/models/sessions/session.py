"""The handle of one session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fourfold import limits
from fourfold.arguments import check_arguments
from fourfold.models.sessions.feed import Item, SessionFeed, SessionSubscription
from fourfold.models.sessions.hits import SessionHitKind, SessionHitOrder, SessionHitPage
from fourfold.models.sessions.reader import SessionView
from fourfold.models.sessions.records import UNSET, Claim, Epoch, Event, Head, Unset
from fourfold.models.sessions.request import At
from fourfold.tabular import Rows

if TYPE_CHECKING:
    from fourfold.models.sessions.sessions import Sessions
    from fourfold.models.sessions.transcript import Transcript


@check_arguments()
class Session:
    """A handle of one session, by its id. It holds no state.

    session = store.sessions.create({"id": "s-1"})
    session.append({"type": "turn/started", "turn": {"status": "running"}})
    session.read().turns                  # now
    session.read(at=1).turns              # after event 1
    for event in session.follow(): ...
    """

    __slots__ = ("created", "created_at", "id", "sessions")

    def __init__(
        self, sessions: Sessions, sid: str, created_at: str, *, created: bool = False
    ) -> None:
        self.sessions = sessions
        self.id = sid
        self.created_at = created_at
        self.created = created
        """True if the call that returned this handle created the session."""

    def append(
        self,
        events: Mapping[str, Any] | Iterable[Mapping[str, Any]],
        *,
        expected_last_id: int | Unset = UNSET,
        key: str | None = None,
        epoch: Epoch | None = None,
    ) -> Sequence[Event]:
        """Append one event or several with consecutive ids, or none of them.

        Args:
            events: A dict with a `type` and the fields of that type, or several of them.
            expected_last_id: The id of the newest event that the caller knows; the append is
                refused if there are later ones.
            key: An idempotency key: a repeated request returns the events of the first one.
            epoch: That of the caller's claim, or the claim: the write is refused if it is lost.

        Raises:
            LeaseLost: The lease of `epoch` is not the current one.
            PreconditionFailed: `expected_last_id` is not the newest event.
        """
        several = [events] if isinstance(events, Mapping) else events
        return self.sessions.append_events(
            self.id, several, expected_last_id=expected_last_id, key=key, epoch=epoch
        )

    async def append_async(
        self,
        events: Mapping[str, Any] | Iterable[Mapping[str, Any]],
        *,
        expected_last_id: int | Unset = UNSET,
        key: str | None = None,
        epoch: Epoch | None = None,
    ) -> Sequence[Event]:
        """Append one event or several like `append`, from a coroutine."""
        several = [events] if isinstance(events, Mapping) else events
        return await self.sessions.append_events_async(
            self.id, several, expected_last_id=expected_last_id, key=key, epoch=epoch
        )

    def append_event(
        self,
        event: Mapping[str, Any],
        *,
        expected_last_id: int | Unset = UNSET,
        key: str | None = None,
        epoch: Epoch | None = None,
    ) -> Event:
        """Append one event and return it, like `Sessions.append_event`."""
        return self.sessions.append_event(
            self.id, event, expected_last_id=expected_last_id, key=key, epoch=epoch
        )

    def append_events(
        self,
        events: Iterable[Mapping[str, Any]],
        *,
        expected_last_id: int | Unset = UNSET,
        key: str | None = None,
        epoch: Epoch | None = None,
    ) -> Sequence[Event]:
        """Append several events or none of them, like `Sessions.append_events`."""
        return self.sessions.append_events(
            self.id, events, expected_last_id=expected_last_id, key=key, epoch=epoch
        )

    def publish_head(
        self,
        head: Mapping[str, Any] | None = None,
        *,
        expected_basis: str | Unset | None = UNSET,
        to_event_id: int | None = None,
        key: str | None = None,
        events: Iterable[Mapping[str, Any]] = (),
        epoch: Epoch | None = None,
    ) -> Head:
        """Publish a head that covers the events since the current head.

        Args:
            head: The fields of the head, such as `kind` and `turn_id`.
            expected_basis: The id of the head that the caller knows as the current one; None means
                that there is none.
            to_event_id: The last event that the head covers, by default the newest.
            key: An idempotency key: a repeated request returns the same head.
            events: Events to append first, in the same transaction; the head covers them.
            epoch: That of the caller's claim, or the claim: the write is refused if it is lost.

        Raises:
            LeaseLost: The lease of `epoch` is not the current one.
            HeadMoved: The current head is not `expected_basis`; nothing was written.
        """
        return self.sessions.publish_head(
            self.id,
            head,
            expected_basis=expected_basis,
            to_event_id=to_event_id,
            key=key,
            events=events,
            epoch=epoch,
        )

    def claim(
        self, holder: str, ttl_s: float = limits.SESSION_LEASE_S, *, steal: bool = False
    ) -> Claim:
        """Claim the right to write this session, like `Sessions.claim`.

        Raises:
            AlreadyClaimed: A lease is in force; `retry_after` is the rest of its time.
        """
        return self.sessions.claim(self.id, holder, ttl_s, steal=steal)

    def renew(self, epoch: int, ttl_s: float = limits.SESSION_LEASE_S) -> Claim:
        """Let a lease last at least `ttl_s` seconds from now, even if it has expired.

        Raises:
            LeaseLost: The lease was released, or another worker has claimed the session.
        """
        return self.sessions.renew(self.id, epoch, ttl_s)

    def release(self, epoch: int) -> None:
        """End a lease: nothing is written with its epoch any more.

        Raises:
            LeaseLost: Another worker has claimed the session.
        """
        self.sessions.release(self.id, epoch)

    def fork(self, session: Mapping[str, Any] | None = None, *, at: At = None) -> Session:
        """Create a session that continues from a point of this one, which stays as it is.

        Args:
            session: Fields of the new session, such as its `id`.
            at: An event id, a time, or the id of a head of this session; by default now.

        Raises:
            AlreadyExists: There is a session of that id.
        """
        return self.sessions.fork(self.id, session, at=at)

    def read(self, at: At = None) -> SessionView:
        """Return the view now, at an event id, at or before a time, or at one of its heads.

        Raises:
            NotFound: The session has no such event or head.
        """
        if at is None:
            return self.sessions.current_view(self.id)
        return self.sessions.view_at(self.id, at)

    def transcript(
        self,
        at: At = None,
        *,
        limit: int | None = None,
        whole: bool = False,
        full: bool = False,
    ) -> Transcript:
        """Return the session as people read it, like `Sessions.transcript`."""
        return self.sessions.transcript(self.id, at, limit=limit, whole=whole, full=full)

    def search(
        self,
        query: str,
        *,
        at: At = None,
        kinds: Sequence[SessionHitKind] | None = None,
        order: SessionHitOrder = "score",
        limit: int = 20,
        after: str | None = None,
    ) -> SessionHitPage:
        """Search the words of this session, like `Sessions.search`."""
        return self.sessions.search(
            query, sid=self.id, at=at, kinds=kinds, order=order, limit=limit, after=after
        )

    def view(self) -> SessionView:
        """Alias of `read` without a position."""
        return self.read()

    def log(
        self, *, after: int = 0, until: int | None = None, limit: int | None = None
    ) -> Rows[Event]:
        """Return the events after the id `after` and up to `until`, at most `limit`."""
        return self.sessions.events(self.id, after=after, until=until, limit=limit)

    def history(
        self, *, after: int = 0, until: int | None = None, limit: int | None = None
    ) -> Rows[Event]:
        """Return the events like `log`: a session is its own history."""
        return self.log(after=after, until=until, limit=limit)

    def events_since(self, event_id: int = 0, *, limit: int | None = None) -> Rows[Event]:
        """Return the events after `event_id`, like `log`."""
        return self.sessions.events_since(self.id, event_id, limit=limit)

    def position(self) -> int:
        """Return the id of the newest event; 0 if there is none."""
        return self.sessions.peek_next_id(self.id) - 1

    def follow(
        self,
        *,
        after: int | None = None,
        timeout: float | None = None,
        bound: int = limits.SESSION_FEED_TRANSIENTS_MAX,
    ) -> SessionFeed:
        """Iterate over the events and wait for more, with `for` or `async for`.

        Args:
            after: Begin after this event id, by default after the newest event.
            timeout: End after this many seconds without an event.
            bound: Maximum number of buffered transient items; older ones are dropped.
        """
        return self.sessions.follow(self.id, after=after, timeout=timeout, bound=bound)

    def subscribe(
        self, callback: Callable[[Item], Any], *, after: int | None = None
    ) -> SessionSubscription:
        """Call `callback` for every event after `after`; call the result to unsubscribe."""
        return self.sessions.subscribe(self.id, callback, after=after)

    def delete(self) -> None:
        """Delete the session: it can no longer be read or written."""
        self.sessions.delete_session(self.id)

    def __len__(self) -> int:
        """Return the number of events."""
        return self.position()

    def __bool__(self) -> bool:
        """Always True: a session without events is still a session."""
        return True

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Session):
            return NotImplemented
        return self.sessions is other.sessions and self.id == other.id

    def __hash__(self) -> int:
        return hash((id(self.sessions), self.id))

    def __repr__(self) -> str:
        return f"<Session {self.id}>"

    def _repr_html_(self) -> str:
        return self.read()._repr_html_()
