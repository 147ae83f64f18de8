"""The calls of `Sessions` about retention."""

from __future__ import annotations

from functools import partial
from typing import Final

from fourfold.errors import ReadOnly
from fourfold.models.sessions.feed import Broadcast
from fourfold.models.sessions.log import Log, LogWriter
from fourfold.models.sessions.reader import Slots
from fourfold.models.sessions.records import RetentionReport
from fourfold.models.sessions.request import check_count
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
    """Retention, for `Sessions`."""

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

        def work(txn: LogWriter) -> list[str] | None:
            group = delete_group(txn, self._slots, policy, sid, newest)
            for deleted in group or ():
                txn.after_commit(partial(self._broadcast.notify, deleted))
            return group

        return self.log.transact(work)
