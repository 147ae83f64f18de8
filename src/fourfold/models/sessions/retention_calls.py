"""The calls of `Sessions` that delete: retention and gc."""

from __future__ import annotations

from typing import Any, Final

from fourfold import limits
from fourfold.errors import NotFound, ReadOnly
from fourfold.models.sessions import payloads
from fourfold.models.sessions.feed import Broadcast
from fourfold.models.sessions.log import Log, PolicyRow
from fourfold.models.sessions.reader import Slots
from fourfold.models.sessions.records import GcReport, RetentionReport, StoredRetention
from fourfold.models.sessions.request import check_count, check_session_id
from fourfold.models.sessions.request_builder import RequestBuilder
from fourfold.models.sessions.retention import (
    Place,
    RetentionPolicy,
    check_policy,
    delete_group,
    find_group,
    format_place,
    newest_sessions,
    parse_place,
    read_candidates,
)

SESSION_RETENTION_PAGE: Final = 200
"""Sessions that are examined in one read transaction."""


class RetentionCalls:
    """Retention and gc, for `Sessions`."""

    log: Log
    _preparing: RequestBuilder
    _broadcast: Broadcast
    _slots: Slots

    def apply_retention(
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

            sessions.apply_retention("chat/", max_age_s=30 * 86_400, keep_latest=100, dry_run=True)

        A session is deleted if it exceeds all given limits, and so do all sessions that are
        connected with it by lineage edges or by ids such as `a` and `a/b`. One with a lease in
        force is kept. `gc` removes the events after the grace period.

        Args:
            prefix: Only sessions whose ids begin with it.
            max_age_s: Keep sessions with an event in these last seconds.
            keep_latest: Keep so many sessions with the newest events.
            dry_run: Report what would be deleted, and delete nothing.
            after: Continue after this point, the `next_after` of a report.
            limit: Examine so many sessions, by default all.
        """
        policy = check_policy(self._preparing, prefix, max_age_s, keep_latest)
        place = parse_place(after)
        left = None if limit is None else check_count(limit, "limit", least=1)
        if not dry_run and not self.log.writable:
            raise ReadOnly(f"{self.log!r} is open for reading only")
        return self._apply(policy, place, left, dry_run=dry_run)

    def set_retention(
        self, prefix: str, *, max_age_s: float | None = None, keep_latest: int | None = None
    ) -> StoredRetention:
        """Store a retention policy for the sessions under a prefix, in place of an earlier one.

            sessions.set_retention("chat/", max_age_s=30 * 86_400, keep_latest=100)

        A server applies stored policies every ten minutes, and `gc` applies them first. Of several
        policies, that with the longest prefix of a session's id decides; for one session the prefix
        is its id.

        Args:
            prefix: Sessions whose ids begin with it; the empty text means all.
            max_age_s: Keep sessions with an event in these last seconds.
            keep_latest: Keep so many sessions with the newest events.
        """
        policy = check_policy(self._preparing, prefix, max_age_s, keep_latest)
        age = None if max_age_s is None else float(max_age_s)
        row = PolicyRow(prefix, age, keep_latest, policy.now)
        self.log.transact(lambda txn: txn.put_retention_policy(row))
        return StoredRetention(*row)

    def list_retentions(self) -> list[StoredRetention]:
        """Return the stored retention policies in the order of their prefixes."""
        with self.log.read() as reading:
            return [StoredRetention(*row) for row in reading.retention_policies()]

    def delete_retention(self, prefix: str) -> None:
        """Delete the stored retention policy of a prefix; sessions are no longer deleted by it.

        Raises:
            InvalidInput: The prefix is malformed.
            NotFound: There is no policy of this prefix.
        """
        if prefix:
            check_session_id(prefix)
        if not self.log.transact(lambda txn: txn.delete_retention_policy(prefix)):
            raise NotFound(
                f"no retention policy has the prefix {prefix!r:.200}",
                hint="List the policies with `sessions.list_retentions()`.",
            )

    def apply_stored_retentions(self, *, dry_run: bool = False) -> dict[str, RetentionReport]:
        """Apply all stored retention policies; return the report of each, by prefix.

        Args:
            dry_run: Report what would be deleted, and delete nothing.
        """
        if not dry_run and not self.log.writable:
            raise ReadOnly(f"{self.log!r} is open for reading only")
        stored = self.list_retentions()
        reports = {}
        for policy in stored:
            longer = tuple(
                other.prefix
                for other in stored
                if other.prefix != policy.prefix and other.prefix.startswith(policy.prefix)
            )
            checked = check_policy(
                self._preparing, policy.prefix, policy.max_age_s, policy.keep_latest
            )
            reports[policy.prefix] = self._apply(
                checked._replace(others=longer), None, None, dry_run=dry_run
            )
        return reports

    def gc(
        self: Any,
        grace_s: float = limits.SESSION_GRACE_S,
        *,
        retention: bool = True,
        dry_run: bool = False,
    ) -> GcReport:
        """Remove unreferenced payloads and deleted sessions older than the grace period.

        With a grace period of 0, no other thread may store a payload at the same time.

        Args:
            grace_s: Seconds for which what is stored, and what is deleted, is not removed.
            retention: Apply the stored retention policies first, which delete sessions.
            dry_run: Only count what would be removed, without applying policies.
        """
        if dry_run:
            return payloads.mark(self.log, self.files, self._preparing.cutoff(grace_s))
        if not self.log.writable:
            raise ReadOnly(f"{self.log!r} is open for reading only")
        if retention:
            self.apply_stored_retentions()
        report: GcReport = payloads.collect(self.log, self.files, self._preparing.cutoff(grace_s))
        self.index_texts()
        return report

    def _apply(
        self, policy: RetentionPolicy, place: Place | None, left: int | None, *, dry_run: bool
    ) -> RetentionReport:
        report = RetentionReport(0, 0, [])
        while left is None or left > 0:
            size = SESSION_RETENTION_PAGE if left is None else min(left, SESSION_RETENTION_PAGE)
            deleted, kept, place = self._retain(policy, place, size, dry_run=dry_run)
            report = report.plus(deleted, len(deleted), kept, format_place(place))
            if place is None:
                break
            left = None if left is None else left - size
        return report

    def _retain(
        self, policy: RetentionPolicy, place: Place | None, limit: int, *, dry_run: bool
    ) -> tuple[list[str], int, Place | None]:
        """Apply a policy to the next sessions; return deleted ids, kept ones and the next place."""
        with self.log.paced(), self.log.read() as reading:
            newest = newest_sessions(reading, policy)
            rows, following = read_candidates(reading, policy, place, limit)
            old = [row.id for row in rows if row.id not in newest]
            groups = [(sid, find_group(reading, policy, sid, newest)) for sid in old]
        due = [sid for sid, group in groups if group is not None]
        kept = len(groups) - len(due)
        if dry_run:
            return due, kept, following
        deleted: list[str] = []
        for sid in due:
            with self.log.paced():
                group = self._delete_group(policy, sid, newest)
            kept += group is None
            deleted += group or []
        return deleted, kept, following

    def _delete_group(
        self, policy: RetentionPolicy, sid: str, newest: frozenset[str]
    ) -> list[str] | None:
        """Delete a session with those connected with it, unless one of them is to be kept now."""
        self._broadcast.refuse_reentry(sid)
        return self.log.transact(lambda txn: delete_group(txn, self._slots, policy, sid, newest))
