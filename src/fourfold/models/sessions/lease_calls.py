"""The calls of `Sessions` about leases, each with a twin for coroutines."""

from __future__ import annotations

from fourfold import limits
from fourfold.models.sessions.feed import Broadcast
from fourfold.models.sessions.leases import (
    LeaseRequest,
    check_holder,
    check_ttl,
    resumptions_of,
    to_claim,
)
from fourfold.models.sessions.log import Log
from fourfold.models.sessions.reader import existing
from fourfold.models.sessions.records import Claim, Resumption
from fourfold.models.sessions.request import check_count, check_session_id
from fourfold.models.sessions.request_builder import RequestBuilder


class LeaseCalls:
    """Claims, renewals and releases, for `Sessions`."""

    log: Log
    _preparing: RequestBuilder
    _broadcast: Broadcast

    def claim(
        self,
        sid: str,
        holder: str,
        ttl_s: float = limits.SESSION_LEASE_S,
        *,
        steal: bool = False,
    ) -> Claim:
        """Claim the right to write a session, with a new epoch to pass with each write.

            claim = sessions.claim("s-1", "worker-7")
            sessions.append_event("s-1", event, epoch=claim.epoch)

        Args:
            sid: The id of the session.
            holder: A name of the worker, for people; it is not compared.
            ttl_s: Seconds until another worker may claim the session, unless renewed.
            steal: Claim even if a lease is in force.

        Raises:
            AlreadyClaimed: A lease is in force; `retry_after` is the rest of its time.
            NotFound: There is no session of that id, or it was deleted.
        """
        request = self._claiming(sid, holder, ttl_s)
        return self.log.transact(lambda txn: request.grant(txn, steal=steal))

    async def claim_async(
        self,
        sid: str,
        holder: str,
        ttl_s: float = limits.SESSION_LEASE_S,
        *,
        steal: bool = False,
    ) -> Claim:
        """Claim the right to write a session like `claim`, from a coroutine."""
        request = self._claiming(sid, holder, ttl_s)
        return await self.log.transact_async(lambda txn: request.grant(txn, steal=steal))

    def renew(self, sid: str, epoch: int, ttl_s: float = limits.SESSION_LEASE_S) -> Claim:
        """Let a lease last at least `ttl_s` seconds from now, even if it has expired.

        Raises:
            LeaseLost: The lease was released, or another worker has claimed the session.
        """
        return self.log.transact(self._about(sid, epoch, check_ttl(ttl_s)).extend)

    async def renew_async(
        self, sid: str, epoch: int, ttl_s: float = limits.SESSION_LEASE_S
    ) -> Claim:
        """Extend a lease like `renew`, from a coroutine."""
        return await self.log.transact_async(self._about(sid, epoch, check_ttl(ttl_s)).extend)

    def release(self, sid: str, epoch: int) -> None:
        """End a lease: nothing is written with its epoch any more. A second call changes nothing.

        Raises:
            LeaseLost: Another worker has claimed the session.
        """
        self.log.transact(self._about(sid, epoch, 0.0).end)

    async def release_async(self, sid: str, epoch: int) -> None:
        """End a lease like `release`, from a coroutine."""
        await self.log.transact_async(self._about(sid, epoch, 0.0).end)

    def find_lease(self, sid: str) -> Claim | None:
        """Return the newest lease of a session, expired or not; None without one.

        Raises:
            NotFound: There is no session of that id, or it was deleted.
        """
        check_session_id(sid)
        with self.log.read() as reading:
            lease = reading.lease(existing(reading, sid).key)
        return None if lease is None or lease.holder is None else to_claim(sid, lease)

    def resumptions(self, sid: str) -> list[Resumption]:
        """Return when workers claimed the session while a turn was running, oldest first.

        The worker of that turn had stopped, and the new one resumed it or recorded its end. At most
        the newest 100 are stored.

        Raises:
            NotFound: There is no session of that id, or it was deleted.
        """
        check_session_id(sid)
        with self.log.read() as reading:
            return resumptions_of(reading.lease(existing(reading, sid).key))

    def list_leases(
        self,
        *,
        after: str | None = None,
        limit: int = limits.SESSION_PAGE_EVENTS,
        prefix: str = "",
    ) -> list[Claim]:
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
        with self.log.read() as reading:
            rows = reading.held_leases(after or "", prefix, limit)
        return [to_claim(sid, row) for sid, row in rows]

    def _claiming(self, sid: str, holder: str, ttl_s: float) -> LeaseRequest:
        check_session_id(sid)
        self._broadcast.refuse_reentry(sid)
        return LeaseRequest(
            self._preparing.now_ms(), sid, holder=check_holder(holder), ttl_s=check_ttl(ttl_s)
        )

    def _about(self, sid: str, epoch: int, ttl_s: float) -> LeaseRequest:
        check_session_id(sid)
        check_count(epoch, "epoch", least=1)
        self._broadcast.refuse_reentry(sid)
        return LeaseRequest(self._preparing.now_ms(), sid, epoch=epoch, ttl_s=ttl_s)
