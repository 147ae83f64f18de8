"""Requests built from the arguments of callers: checked, encoded and timestamped.

Invalid arguments raise here, before there is a transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from fourfold import limits
from fourfold.blobs import BlobStore
from fourfold.blobs.protocol import check_age
from fourfold.content import InternedPayload
from fourfold.errors import InvalidInput
from fourfold.models.sessions.heads import check_expected_basis, check_head, edge_content
from fourfold.models.sessions.leases import check_ownership
from fourfold.models.sessions.payloads import Cutoff
from fourfold.models.sessions.records import UNSET, Claim, Epoch, Unset
from fourfold.models.sessions.request import (
    Alike,
    EventDraft,
    check_count,
    check_key,
    check_session_id,
    draft_of,
    drafts_of,
    drafts_of_one,
    encoded,
    fresh_id,
    intern_payloads,
)
from fourfold.models.sessions.writer import EventAppend, Publish

_request = tuple.__new__
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class RequestBuilder:
    """Builds requests with the clock and the store of large payloads."""

    def __init__(self, clock: Callable[[], datetime], files: BlobStore | None) -> None:
        self._clock = clock
        self._files = files
        self._second = (0, "1970-01-01T00:00:00.")

    def now(self) -> tuple[str, int]:
        """Return the time as events store it, and in whole seconds."""
        moment = self._clock()
        if moment.tzinfo is not UTC:
            moment = moment.astimezone(UTC)
        since = moment - _EPOCH
        second = since.days * 86_400 + since.seconds
        cached_second, text = self._second
        if cached_second != second:
            # Many events come in one second, and to write it out takes longer than all the rest.
            text = iso(moment)[: -len("000Z")]
            self._second = (second, text)
        return f"{text}{since.microseconds // 1_000:03d}Z", second

    def time(self) -> datetime:
        """Return the time."""
        return self._clock()

    def now_ms(self) -> int:
        """Return the time in milliseconds since 1970."""
        return (self._clock() - _EPOCH) // timedelta(milliseconds=1)

    def creation(self, session: Mapping[str, Any] | None) -> EventAppend:
        """Return the request to create a session."""
        if session is not None and not isinstance(session, Mapping):
            raise InvalidInput(
                f"a session is described by a dict, not {type(session).__name__}",
                hint='As in create_session({"id": "s-1"}).',
            )
        fields = dict(session or {})
        check_ownership(fields)
        sid = fields.pop("id", None)
        sid = fresh_id() if sid is None else check_session_id(sid)
        started = [draft_of(sid, {"type": "session/started", "session": fields})] if fields else []
        payloads = tuple(started[0].payloads) if started else ()
        return EventAppend(sid, started, *self.now(), files=self._files, payloads=payloads)

    def appending(
        self,
        sid: str,
        events: Iterable[Mapping[str, Any]] | Alike,
        expected_last_id: int | Unset,
        key: str | None,
        epoch: Epoch | None = None,
    ) -> EventAppend:
        """Return the request to append events."""
        check_session_id(sid)
        return self._appending(sid, drafts_of(sid, events), expected_last_id, key, epoch)

    def appending_one(
        self,
        sid: str,
        event: Mapping[str, Any],
        expected_last_id: int | Unset,
        key: str | None,
        epoch: Epoch | None = None,
    ) -> EventAppend:
        """Return the request to append one event."""
        check_session_id(sid)
        return self._appending(sid, drafts_of_one(sid, event), expected_last_id, key, epoch)

    def _appending(
        self,
        sid: str,
        drafts: Sequence[EventDraft],
        expected_last_id: int | Unset,
        key: str | None,
        epoch: Epoch | None = None,
    ) -> EventAppend:
        if expected_last_id is not UNSET:
            check_count(expected_last_id, "expected_last_id")
        if key is not None:
            check_key(key)
        payloads: Sequence[InternedPayload] = ()
        if type(drafts) is not Alike:
            payloads = [payload for draft in drafts if draft.payloads for payload in draft.payloads]
        at, now = self.now()
        held, lease_of = (None, None) if epoch is None else _lease(sid, epoch)
        return _request(
            EventAppend,
            (sid, drafts, at, now, expected_last_id, key, self._files, payloads, held, lease_of),
        )

    def publishing(
        self,
        sid: str,
        head: Mapping[str, Any] | None,
        expected_basis: str | Unset | None,
        to_event_id: int | None,
        key: str | None,
        *,
        events: Iterable[Mapping[str, Any]] = (),
        epoch: Epoch | None = None,
    ) -> Publish:
        """Return the request to publish a head."""
        check_session_id(sid)
        check_key(key)
        lease = _lease(sid, epoch)
        check_expected_basis(expected_basis)
        fields = check_head({} if head is None else head)
        stored = intern_payloads(fields)
        # Encoded once to no purpose but this: what cannot be is refused before the transaction.
        draft = encoded("head/published", {"head": fields})
        append = EventAppend(sid, [draft], *self.now(), UNSET, key, self._files, stored, *lease)
        covered = self._appending(sid, drafts_of(sid, events), UNSET, None)
        if not covered.drafts:
            return Publish(append, fields, expected_basis, to_event_id)
        if to_event_id is not None:
            raise InvalidInput(
                "pass `events` or `to_event_id`: a head with new events ends at the last of them"
            )
        # The payloads are stored with the events, which come first.
        covered = covered._replace(payloads=[*covered.payloads, *stored], at=append.at)
        append = append._replace(payloads=())
        return Publish(append, fields, expected_basis, None, covered)

    def joining(self, sid: str, edge: Mapping[str, Any], epoch: Epoch | None = None) -> EventAppend:
        """Return the request to add an edge."""
        epoch_of_lease, lease_of = _lease(sid, epoch)
        fields = dict(edge) if isinstance(edge, Mapping) else edge
        stored = intern_payloads(fields) if isinstance(fields, dict) else []
        content = edge_content(check_session_id(sid), fields)
        draft = encoded("lineage/edge-added", {"edge": content})
        return EventAppend(
            *(sid, [draft], *self.now()),
            files=self._files,
            payloads=stored,
            epoch=epoch_of_lease,
            lease_of=lease_of,
        )

    def cutoff(self, grace_s: float) -> Cutoff:
        """Return what gc with this grace period may remove."""
        if type(grace_s) not in {int, float}:
            raise InvalidInput(f"grace_s must be a number of seconds, got {repr(grace_s)[:100]}")
        check_age(grace_s)
        try:
            moment = self._clock() - timedelta(seconds=grace_s)
        except OverflowError:
            raise InvalidInput(f"a grace age of {grace_s!r} seconds is too long") from None
        slack = limits.SESSION_PAYLOAD_TOUCH_S if grace_s else 0
        return Cutoff(iso(moment), moment.timestamp(), int(moment.timestamp()) - slack)


def _lease(sid: str, epoch: Epoch | None) -> tuple[int | None, str | None]:
    """Return the epoch that a write needs, and the session of its lease if it is another one."""
    if not isinstance(epoch, Claim):
        return None if epoch is None else check_count(epoch, "epoch", least=1), None
    check_count(epoch.epoch, "epoch", least=1)
    return epoch.epoch, None if epoch.session == sid else check_session_id(epoch.session)


def iso(moment: datetime) -> str:
    """Return a time as text, in UTC with milliseconds."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
