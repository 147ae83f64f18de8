"""Sessions of a server with the methods of `fourfold.Sessions`, for coroutines."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from fourfold import limits
from fourfold.arguments import check_arguments
from fourfold.client import sessions
from fourfold.client.containers import AsyncSessionsContainer
from fourfold.client.coroutines.connection import AsyncConnection
from fourfold.client.coroutines.remote_session import AsyncRemoteSession
from fourfold.client.follower import AsyncRemoteFeed
from fourfold.client.reader import EventReader
from fourfold.client.requests import Call
from fourfold.client.session_view import AsyncRemoteView, AsyncViewLoader
from fourfold.client.sessions import SessionCalls
from fourfold.content import InternedPayload, PayloadRef, encode, is_ref
from fourfold.content.filters import parse_filter
from fourfold.content.refs import check_kind
from fourfold.errors import InvalidInput
from fourfold.models.documents.feed import deadline_of
from fourfold.models.sessions.feed import Item
from fourfold.models.sessions.hits import SessionHitKind, SessionHitOrder, SessionHitPage
from fourfold.models.sessions.listing import ListingOptions, SessionOrder, check_listing
from fourfold.models.sessions.payloads import interned
from fourfold.models.sessions.records import (
    UNSET,
    BundleReport,
    Claim,
    Epoch,
    Event,
    Head,
    HeadComparison,
    LineageEdge,
    LineageGraph,
    Resumption,
    RetentionReport,
    SessionInfo,
    StoredRetention,
    Unset,
)
from fourfold.models.sessions.request import At, Payload, check_count, check_key, check_session_id
from fourfold.models.sessions.sessions import COUNTERS
from fourfold.models.sessions.transcript import Transcript
from fourfold.tabular import Rows
from fourfold.wire import sessions as wire


@check_arguments()
class AsyncRemoteSessions(AsyncSessionsContainer):
    """The sessions of a server, with the methods of `fourfold.Sessions`."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self._calls = SessionCalls(connection.settings.address)
        self._views = AsyncViewLoader(connection, self._calls)

    # Sessions

    async def create(self, session: Mapping[str, Any] | None = None) -> AsyncRemoteSession:
        """Create a session with the id `session["id"]`, by default a new one.

        An existing session is returned unchanged. Other keys of `session` are stored in the
        `session/started` event, the first of a new session.
        """
        fields = await self._intern_fields(session) if isinstance(session, Mapping) else session
        return await self._new_session(self._calls.create(fields))

    async def open(self, sid: str) -> AsyncRemoteSession:
        """Return a handle of an existing session.

        Raises:
            NotFound: There is no session of that id, or it was deleted.
        """
        info = await self.info(sid)
        return AsyncRemoteSession(self, info.id, info.created_at)

    async def info(self, sid: str, at: At = None) -> SessionInfo:
        """Return what a list shows of one session, now or at an event id, a time or a head.

        Raises:
            NotFound: There is no session of that id, or it was deleted, or has no such point.
        """
        response = await self._connection.send(self._calls.get(check_session_id(sid), at))
        return sessions.to_info(sessions.parse(response, wire.SessionRecord))

    async def list(
        self,
        *,
        after: str | SessionInfo | None = None,
        limit: int = limits.SESSION_PAGE_EVENTS,
        deleted: bool = False,
        prefix: str = "",
        newest_first: bool = False,
        where: Mapping[str, Any] | None = None,
        at: datetime | None = None,
        order: SessionOrder = "created",
        status: str | None = None,
        kind: str | None = None,
        since: datetime | None = None,
    ) -> Rows[SessionInfo]:
        """Return sessions in the order of creation, or of their newest events.

        Args:
            after: A session or its id: return those that come after it in this order. A
                `SessionInfo` continues a list by update even if the session was updated since.
            limit: Maximum number of sessions.
            deleted: Include deleted sessions.
            prefix: Only sessions whose ids begin with it.
            newest_first: Reverse the order.
            where: A filter on the fields of the session and those of its `SessionInfo`. No index
                serves it: sessions are examined until `limit` match.
            at: Sessions that existed at this time, as they were; by default now. One that was
                deleted later has its `deleted_at`, and can no longer be read.
            order: `created`, or `updated` for the order of the newest events, to the second. In
                this order an index serves one of `status` and `kind`, and `since`.
            status: Only sessions with this status.
            kind: Only sessions of this kind.
            since: Only sessions with an event at or after this time.
        """
        options = ListingOptions(
            *(None, limit, deleted, prefix, newest_first, None, order, status, kind)
        )
        listing = check_listing(after, options, since, at)
        infos: builtins.list[SessionInfo] = []
        call = self._calls.list(listing, None if where is None else parse_filter(where), at)
        async for page in self._connection.pages(call, wire.SessionPage, limit):
            infos += map(sessions.to_info, page.items)
            if len(infos) >= limit:
                break
        return Rows(infos[:limit], SessionInfo)

    async def fork(
        self, sid: str, session: Mapping[str, Any] | None = None, *, at: At = None
    ) -> AsyncRemoteSession:
        """Create a session that continues from a point of another one, which stays as it is.

        It has the fields, the variables and the messages of the source at that point, a head that
        covers them, and a lineage edge to that head.

        Args:
            sid: The id of the source.
            session: Fields of the new session, such as its `id`.
            at: An event id, a time, or the id of a head of the source; by default now.

        Raises:
            AlreadyExists: There is a session of that id.
            NotFound: The source has no such event or head.
        """
        return await self._new_session(self._calls.fork(check_session_id(sid), session, at))

    async def delete_session(self, sid: str) -> None:
        """Delete a session: it can no longer be read or written, and its id is never reused."""
        await self._connection.send(self._calls.delete(check_session_id(sid)))

    # Appending

    async def append_event(
        self,
        sid: str,
        event: Mapping[str, Any],
        *,
        expected_last_id: int | Unset = UNSET,
        key: str | None = None,
        epoch: Epoch | None = None,
    ) -> Event:
        """Append one event and return it with its ids, time and digest.

        Args:
            sid: The id of the session.
            event: A dict with a `type` and the fields of that type.
            expected_last_id: The id of the newest event that the caller knows; the append is
                refused if there are later ones.
            key: An idempotency key: a repeated request returns the events of the first one.
            epoch: That of the caller's claim, or the claim: the write is refused if it is lost.

        Raises:
            LeaseLost: The lease of `epoch` is not the current one.
            PreconditionFailed: `expected_last_id` is not the newest event.
        """
        events = await self.append_events(
            sid, [event], expected_last_id=expected_last_id, key=key, epoch=epoch
        )
        return events[0]

    async def append_events(
        self,
        sid: str,
        events: Iterable[Mapping[str, Any]],
        *,
        expected_last_id: int | Unset = UNSET,
        key: str | None = None,
        epoch: Epoch | None = None,
    ) -> Sequence[Event]:
        """Append several events with consecutive ids, or none of them.

        Args:
            sid: The id of the session.
            events: Dicts with a `type` and the fields of that type.
            expected_last_id: The id of the newest event that the caller knows; the append is
                refused if there are later ones.
            key: An idempotency key: a repeated request returns the events of the first one.
            epoch: That of the caller's claim, or the claim: the write is refused if it is lost.

        Raises:
            LeaseLost: The lease of `epoch` is not the current one.
            PreconditionFailed: `expected_last_id` is not the newest event.
        """
        drafts = await self._intern_events(events)
        call = self._calls.append(sid, drafts, expected_last_id, key, epoch)
        appended = sessions.parse(await self._connection.send(call), wire.AppendedEvents)
        return [sessions.to_event(record) for record in appended.events]

    async def publish_head(
        self,
        sid: str,
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
            sid: The id of the session.
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
        drafts = await self._intern_events(events)
        fields = await self._intern_fields(head or {})
        call = self._calls.publish_head(
            sid, fields, expected_basis, to_event_id, key, drafts, epoch
        )
        return sessions.to_head(sessions.parse(await self._connection.send(call), wire.HeadRecord))

    async def append_lineage_edge(
        self, sid: str, edge: Mapping[str, Any], *, epoch: Epoch | None = None
    ) -> Event:
        """Append a lineage edge and return its event; an existing edge is not added again."""
        fields = await self._intern_fields(edge)
        response = await self._connection.send(self._calls.append_edge(sid, fields, epoch))
        return sessions.to_event(sessions.parse(response, wire.EventRecord))

    # Leases

    async def claim(
        self,
        sid: str,
        holder: str,
        ttl_s: float = limits.SESSION_LEASE_S,
        *,
        steal: bool = False,
    ) -> Claim:
        """Claim the right to write a session, with a new epoch to pass with each write.

        Args:
            sid: The id of the session.
            holder: A name of the worker, for people; it is not compared.
            ttl_s: Seconds until another worker may claim the session, unless renewed.
            steal: Claim even if a lease is in force.

        Raises:
            AlreadyClaimed: A lease is in force; `retry_after` is the rest of its time.
            NotFound: There is no session of that id, or it was deleted.
        """
        call = self._calls.claim(check_session_id(sid), holder, ttl_s, steal=steal)
        return sessions.to_claim(
            sessions.parse(await self._connection.send(call), wire.LeaseRecord)
        )

    async def renew(self, sid: str, epoch: int, ttl_s: float = limits.SESSION_LEASE_S) -> Claim:
        """Let a lease last at least `ttl_s` seconds from now, even if it has expired.

        Raises:
            LeaseLost: The lease was released, or another worker has claimed the session.
        """
        call = self._calls.renew(check_session_id(sid), epoch, ttl_s)
        return sessions.to_claim(
            sessions.parse(await self._connection.send(call), wire.LeaseRecord)
        )

    async def release(self, sid: str, epoch: int) -> None:
        """End a lease: nothing is written with its epoch any more. A second call changes nothing.

        Raises:
            LeaseLost: Another worker has claimed the session.
        """
        await self._connection.send(self._calls.release(check_session_id(sid), epoch))

    async def find_lease(self, sid: str) -> Claim | None:
        """Return the newest lease of a session, expired or not; None without one.

        Raises:
            NotFound: There is no session of that id, or it was deleted.
        """
        response = await self._connection.send(self._calls.lease(check_session_id(sid)))
        lease = sessions.parse(response, wire.SessionLease).lease
        return None if lease is None else sessions.to_claim(lease)

    async def resumptions(self, sid: str) -> builtins.list[Resumption]:
        """Return claims while a turn was running, as its worker had stopped; at most 100."""
        response = await self._connection.send(self._calls.lease(check_session_id(sid)))
        return sessions.to_resumptions(sessions.parse(response, wire.SessionLease))

    async def list_leases(
        self,
        *,
        after: str | None = None,
        limit: int = limits.SESSION_PAGE_EVENTS,
        prefix: str = "",
    ) -> builtins.list[Claim]:
        """Return leases that were not released, expired or not, in the order of session ids.

        Args:
            after: The id of a session: return those of the sessions after it.
            limit: Maximum number of leases.
            prefix: Only sessions whose ids begin with it.
        """
        check_count(limit, "limit", least=1)
        for sid in (prefix, after):
            if sid:
                check_session_id(sid)
        claims: builtins.list[Claim] = []
        call = self._calls.leases(after, prefix)
        async for page in self._connection.pages(call, wire.LeasePage, limit):
            claims += map(sessions.to_claim, page.items)
            if len(claims) >= limit:
                break
        return claims[:limit]

    async def set_retention(
        self, prefix: str, *, max_age_s: float | None = None, keep_latest: int | None = None
    ) -> StoredRetention:
        """Store a retention policy for the sessions under a prefix, in place of an earlier one.

        The server applies stored policies every ten minutes. Of several policies, that with the
        longest prefix of a session's id decides; for one session the prefix is its id.

        Args:
            prefix: Sessions whose ids begin with it; the empty text means all.
            max_age_s: Keep sessions with an event in these last seconds.
            keep_latest: Keep so many sessions with the newest events.
        """
        call = self._calls.put_policy(prefix, max_age_s, keep_latest)
        record = sessions.parse(await self._connection.send(call), wire.PolicyRecord)
        return sessions.to_policy(record)

    async def list_retentions(self) -> builtins.list[StoredRetention]:
        """Return the stored retention policies in the order of their prefixes."""
        response = await self._connection.send(self._calls.policies())
        return [*map(sessions.to_policy, sessions.parse(response, wire.PolicyList).items)]

    async def delete_retention(self, prefix: str) -> None:
        """Delete the stored retention policy of a prefix; sessions are no longer deleted by it."""
        await self._connection.send(self._calls.delete_policy(prefix))

    async def apply_retention(
        self,
        prefix: str = "",
        *,
        max_age_s: float | None = None,
        keep_latest: int | None = None,
        dry_run: bool = False,
        after: str | None = None,
        limit: int | None = None,
    ) -> RetentionReport:
        """Delete sessions that had no event for a time, or are not among the newest.

        A session is deleted if it exceeds all given limits, and so do all sessions that are
        connected with it by lineage edges or by ids such as `a` and `a/b`. One with a lease in
        force is kept.

        Args:
            prefix: Only sessions whose ids begin with it.
            max_age_s: Keep sessions with an event in these last seconds.
            keep_latest: Keep so many sessions with the newest events.
            dry_run: Report what would be deleted, and delete nothing.
            after: Continue after this point, the `next_after` of a report.
            limit: Any limit means one request, which examines as many as the server allows.
        """
        if limit is not None:
            check_count(limit, "limit", least=1)
        report = RetentionReport(0, 0, [])
        while True:
            call = self._calls.retention(
                prefix,
                max_age_s=max_age_s,
                keep_latest=keep_latest,
                dry_run=dry_run,
                after=after,
            )
            record = sessions.parse(await self._connection.send(call), wire.RetentionRecord)
            part = sessions.to_retention(record)
            report = report.plus(part.sessions, part.deleted, part.kept, part.next_after)
            after = part.next_after
            if after is None or limit is not None:
                return report

    # Payloads

    async def intern_payload(self, value: Any, kind: str = "message") -> PayloadRef:
        """Store a value under the hash of its canonical bytes, and return a reference to it."""
        return await self._put_payload(interned(value, kind))

    async def _put_payload(self, payload: InternedPayload) -> PayloadRef:
        return sessions.parse_ref(await self._connection.send(self._calls.put_payload(payload)))

    async def maybe_intern(self, value: Any, kind: str = "message") -> Any:
        """Return the value if it has at most 512 canonical bytes, else store it as a payload."""
        check_kind(kind)
        if is_ref(value) or len(encode(value)) <= limits.PAYLOAD_INLINE_BYTES_MAX:
            return value
        return await self.intern_payload(value, kind)

    async def _intern_events(
        self, events: Iterable[Mapping[str, Any]]
    ) -> builtins.list[Mapping[str, Any]]:
        """Return events without `Payload`: each large value is stored first and referred to."""
        drafts: builtins.list[Mapping[str, Any]] = []
        for event in events:
            draft = await self._intern_fields(event)
            for name, value in draft.items():
                if isinstance(value, Mapping):
                    draft[name] = await self._intern_fields(value)
            drafts.append(draft)
        return drafts

    async def _intern_fields(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        drafted = dict(fields)
        for name, value in fields.items():
            if isinstance(value, Payload):
                drafted[name] = await self.maybe_intern(value.value, value.kind)
            elif isinstance(value, InternedPayload):
                drafted[name] = await self._put_payload(value)
        return drafted

    async def read_payload(self, ref: Any) -> Any:
        """Return the value of a reference, verified by its hash; other values unchanged."""
        if not isinstance(ref, PayloadRef):
            return ref
        response = await self._connection.send(self._calls.get_payload(ref))
        return sessions.parse_payload(response, ref)

    # Transcripts and bundles

    async def transcript(
        self,
        sid: str,
        at: At = None,
        *,
        limit: int | None = None,
        whole: bool = False,
        full: bool = False,
    ) -> Transcript:
        """Return a session as people read it: messages, calls and ends of turns, with contents.

        Args:
            sid: The id of the session.
            at: An event id, a time, or the id of a head; by default now.
            limit: Maximum number of entries, the newest; by default all.
            whole: Include what is before the newest compaction.
            full: Read payloads over 1 MiB too; otherwise they stay references.
        """
        if limit is not None:
            check_count(limit, "limit", least=1)
        call = self._calls.transcript(check_session_id(sid), at, limit, whole=whole, full=full)
        async with self._connection.transport.open(call) as (_, pieces):
            body = bytearray()
            async for piece in pieces:
                body += piece
        return sessions.parse_transcript(bytes(body).splitlines(), limit)

    async def search(
        self,
        query: str,
        *,
        sid: str | None = None,
        prefix: str = "",
        at: At = None,
        kinds: Sequence[SessionHitKind] | None = None,
        order: SessionHitOrder = "score",
        limit: int = 20,
        after: str | None = None,
    ) -> SessionHitPage:
        """Search the words of messages, calls, summaries, errors and ends of turns.

        Args:
            query: Words that must all occur, `"phrases"`, prefixes (`pre*`) and `-words` that must
                not occur. Case and diacritics do not matter.
            sid: Search this session only.
            prefix: Only sessions whose ids begin with it.
            at: Only what had been appended at this time; for one session also an event id or a
                head. Sessions that were deleted since have no hits.
            kinds: Only `message`, `call`, `turn`, `summary` or `error`; by default all.
            order: By `score` (BM25), or `newest` first.
            limit: Maximum number of hits.
            after: Continue after this page: its `next`.
        """
        call = self._calls.search(query, sid, prefix, at, kinds, order, limit, after)
        response = await self._connection.send(call)
        return sessions.to_hit_page(sessions.parse(response, wire.SessionHitPageRecord))

    async def export_bundle(self, sid: str) -> AsyncIterator[bytes]:
        """Yield a session, the sessions its edges lead to, and their payloads as JSON lines."""
        call = self._calls.export_bundle(check_session_id(sid))
        async with self._connection.transport.open(call) as (_, pieces):
            rest = b""
            async for piece in pieces:
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    yield line + b"\n"

    async def import_bundle(self, path: str | Path) -> BundleReport:
        """Import the sessions of a bundle under their ids, after checking every digest.

        An existing session must have the same history, and receives the events that it lacks.
        """
        response = await self._connection.send(self._calls.import_bundle(path))
        counts = sessions.parse(response, wire.BundleCounts)
        return BundleReport(counts.sessions, counts.events, counts.payloads)

    # Reading

    async def current_view(self, sid: str) -> AsyncRemoteView:
        """Return the view of a session, including every append that has returned."""
        return await self.view_at(sid, None)

    async def read_state(self, sid: str) -> AsyncRemoteView:
        """Return the view of a session as stored, including appends of other processes."""
        return await self.view_at(sid, None)

    async def view_at(self, sid: str, at: At) -> AsyncRemoteView:
        """Return the view at an event id, at or before a time, or at one of the heads.

        Raises:
            NotFound: The session has no such event or head.
        """
        return await self._views.load(await self._state(sid, at))

    async def events_since(
        self, sid: str, event_id: int = 0, *, limit: int | None = None
    ) -> Rows[Event]:
        """Return the events of a session after `event_id`, at most `limit`."""
        return await self.events(sid, after=check_count(event_id, "event_id"), limit=limit)

    async def events(
        self, sid: str, *, after: int = 0, until: int | None = None, limit: int | None = None
    ) -> Rows[Event]:
        """Return the events of a session after `after` and up to `until`, at most `limit`."""
        check_count(after, "after")
        if until is not None:
            check_count(until, "until")
        if limit is not None:
            check_count(limit, "limit", least=1)
        call = self._calls.events(check_session_id(sid), after, until)
        events: builtins.list[Event] = []
        size = limits.PAGE_ITEMS_MAX if limit is None else limit
        async for page in self._connection.pages(call, wire.EventPage, size):
            events += map(sessions.to_event, page.items)
            if limit is not None and len(events) >= limit:
                break
        return Rows(events[:limit], Event)

    async def events_of_key(self, sid: str, key: str) -> builtins.list[Event]:
        """Return the events that the request with this idempotency key appended, if any."""
        check_session_id(sid)
        if check_key(key) is None:
            return []
        call = self._calls.events(sid, 0, None, key)
        pages = self._connection.pages(call, wire.EventPage)
        return [sessions.to_event(record) async for page in pages for record in page.items]

    async def peek_next_id(self, sid: str, counter: str = "event") -> int:
        """Return the next id of a counter: event, message, turn, step or eval.

        Another writer may use it first.
        """
        if counter not in COUNTERS:
            raise InvalidInput(
                f"unknown counter {counter!r:.100}", hint=f"Use one of: {', '.join(COUNTERS)}."
            )
        return int(getattr((await self._state(sid, None)).counters, counter)) + 1

    # Lineage

    async def head(self, head_id: str) -> Head:
        """Return a published head by its id.

        Raises:
            NotFound: There is no head of that id.
        """
        response = await self._connection.send(self._calls.head(head_id))
        return sessions.to_head(sessions.parse(response, wire.HeadRecord))

    async def lineage(self, sid: str, *, at: datetime | None = None) -> builtins.list[LineageEdge]:
        """Return the edges that begin or end at a session, whichever log contains them.

        With `at`, those that were added at or before this time.
        """
        graph = await self.lineage_graph(sid, at=at)
        return [edge for edge in graph.edges if sid in {edge.from_session, edge.to_session}]

    async def lineage_graph(
        self, sid: str, *, limit: int | None = None, at: datetime | None = None
    ) -> LineageGraph:
        """Return the heads and edges of all sessions connected to a session.

        Args:
            sid: The id of the session.
            limit: Maximum of both together: those of the nearest sessions.
            at: Those that were published at or before this time; by default now.
        """
        if limit is not None:
            check_count(limit, "limit", least=1)
        call = self._calls.lineage(check_session_id(sid), limit, at)
        response = await self._connection.send(call)
        return sessions.to_graph(sessions.parse(response, wire.LineageRecord))

    async def ancestors(self, head_id: str) -> builtins.list[str]:
        """Return the ids of the heads that a head derives from, nearest first."""
        response = await self._connection.send(self._calls.relatives("ancestors", head_id))
        return sessions.parse(response, wire.HeadIds).items

    async def descendants(self, head_id: str) -> builtins.list[str]:
        """Return the ids of the heads that derive from a head, nearest first."""
        response = await self._connection.send(self._calls.relatives("descendants", head_id))
        return sessions.parse(response, wire.HeadIds).items

    async def compare_heads(self, one: str, other: str) -> HeadComparison:
        """Compare two heads, of the same session or of two: variables, messages, common ancestor.

        A server sends at most 1000 new and 1000 gone messages.

        Raises:
            NotFound: There is no head of one of these ids.
        """
        response = await self._connection.send(self._calls.compare_heads(one, other))
        return sessions.to_comparison(sessions.parse(response, wire.HeadDifference))

    # Live

    async def notify_transient(self, sid: str, item: Any) -> None:
        """Deliver a transient item to current followers, best effort; it is not stored."""
        await self._connection.send(self._calls.send_transient(check_session_id(sid), item))

    def follow(
        self,
        sid: str,
        *,
        after: int | None = None,
        timeout: float | None = None,
        bound: int = limits.SESSION_FEED_TRANSIENTS_MAX,
    ) -> AsyncRemoteFeed:
        """Iterate over the events of a session and wait for more.

        It continues after broken connections; transient items of the time between are lost.

        Args:
            sid: The id of the session.
            after: Begin after this event id, by default after the newest event.
            timeout: End after this many seconds without an event.
            bound: Ignored: the server limits how many transient items it buffers.
        """
        del bound
        deadline_of(timeout)
        return self._follow(check_session_id(sid), after, timeout)

    def follow_all(
        self,
        *,
        after: int | None = None,
        timeout: float | None = None,
        bound: int = limits.SESSION_FEED_TRANSIENTS_MAX,
    ) -> AsyncRemoteFeed:
        """Iterate over the events of all sessions after a position, and wait for more.

        It continues after broken connections; transient items of the time between are lost.

        Args:
            after: Begin after this position of the store, by default after the newest event.
            timeout: End after this many seconds without an event.
            bound: Ignored: the server limits how many transient items it buffers.
        """
        del bound
        deadline_of(timeout)
        return self._follow(None, after, timeout)

    def _follow(self, sid: str | None, after: int | None, timeout: float | None) -> AsyncRemoteFeed:
        call = self._calls.live(sid, after)
        reader: EventReader[Item] = EventReader(call, sessions.decode_item)
        return AsyncRemoteFeed(self._connection.settings, reader, timeout)

    def __repr__(self) -> str:
        return f"<Sessions at {self._connection.settings.address.root}>"

    async def _state(self, sid: str, at: At) -> wire.ViewRecord:
        response = await self._connection.send(self._calls.view(check_session_id(sid), at))
        return sessions.parse(response, wire.ViewRecord)

    async def _new_session(self, call: Call) -> AsyncRemoteSession:
        response = await self._connection.send(call)
        record = sessions.parse(response, wire.SessionRecord)
        created = response.status == 201
        return AsyncRemoteSession(self, record.id, record.created_at, created=created)
