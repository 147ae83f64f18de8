"""A space: one database of documents with their whole history.

    space.set("urn:note:1", {"value": {"text": "hello"}})
    space.patch("urn:note:1", [{"op": "replace", "path": "/value/text", "value": "goodbye"}])
    space.read("urn:note:1").document                   # now
    space.read("urn:note:1", at=1).document             # then

An entity is a JSON object under an id. Every change is a commit with a seq; every past state of
every entity on every branch stays readable.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from fourfold import limits
from fourfold.errors import InvalidInput
from fourfold.kernel import Database, Transaction
from fourfold.models.documents import comparison, conflicts, reader, writer
from fourfold.models.documents.ancestry import At, Point, branch_named, chain, last_seq, target_of
from fourfold.models.documents.blobs import SpaceBlobs
from fourfold.models.documents.branches import Branches
from fourfold.models.documents.cache import DocumentCache, Entry
from fourfold.models.documents.conflicts import ReadTooOld
from fourfold.models.documents.feed import Watch
from fourfold.models.documents.gc import sweep
from fourfold.models.documents.gc.horizon import horizon
from fourfold.models.documents.gc.policy import GcPolicy
from fourfold.models.documents.gc.policy import stored as stored_policy
from fourfold.models.documents.gc.records import GcReport
from fourfold.models.documents.history import History, HistoryReader
from fourfold.models.documents.records import Commit, LogEntry, Reads, Revision, State
from fourfold.models.documents.request import Request, make_request
from fourfold.models.documents.snapshots import MaintenanceReport, Retention, maintain
from fourfold.models.documents.validation import check_entity, check_known_branch, check_several
from fourfold.models.documents.verify import faults_by_parts
from fourfold.models.documents.waiters import Waiters


class Space:
    """Documents with history. Made by `store.space(did)`."""

    def __init__(self, did: str, database: Database, history: History) -> None:
        self.did = did
        self.database = database
        self.history_kind = history
        self.branches = Branches(self)
        self.blobs = SpaceBlobs(self)
        self.waiters = Waiters()
        self.upkeep = threading.RLock()
        """Held by maintenance and by collections: each relies on what the other might take."""
        self._cache = DocumentCache(limits.DOCUMENT_CACHE_BYTES)
        # Requests that nobody named get a name of their own, which no other process will ever use.
        self._session = f"local:{uuid.uuid4().hex}"
        self._local_seqs = itertools.count(1)

    # Writing

    def transact(  # noqa: PLR0917  (the order is that of the specification's request)
        self,
        operations: Sequence[Mapping[str, Any]],
        reads: Reads | Mapping[str, Any] | None = None,
        session: str | None = None,
        local_seq: int | None = None,
        branch: str = "",
        preconditions: Sequence[Mapping[str, Any]] = (),
    ) -> Commit:
        """Commit several operations together: all of them, under one seq, or none.

        With `session` and `local_seq` the request has a name: sent again, it gives the same commit
        again. `reads` say what the author had seen; if something of that has changed since, the
        transaction is refused with StaleRead.
        """
        return self.submit(
            self._request(operations, reads, session, local_seq, branch, preconditions)
        )

    async def transact_async(  # noqa: PLR0917
        self,
        operations: Sequence[Mapping[str, Any]],
        reads: Reads | Mapping[str, Any] | None = None,
        session: str | None = None,
        local_seq: int | None = None,
        branch: str = "",
        preconditions: Sequence[Mapping[str, Any]] = (),
    ) -> Commit:
        """The same from a coroutine. Many that commit at once share one database transaction, and
        each has its own commit or its own error.
        """
        request = self._request(operations, reads, session, local_seq, branch, preconditions)
        if request.size >= limits.GROUP_BYTES_MAX:
            # It would keep the event loop for long.
            return await asyncio.to_thread(self.submit, request)
        work = self._work(request, rows_max=limits.STALE_CHECK_ROWS)
        try:
            return await self.database.transact_async(work, size=request.size)
        except ReadTooOld:
            return await asyncio.to_thread(self.submit, request)

    def _request(  # noqa: PLR0917
        self,
        operations: Sequence[Mapping[str, Any]],
        reads: Reads | Mapping[str, Any] | None,
        session: str | None,
        local_seq: int | None,
        branch: str,
        preconditions: Sequence[Mapping[str, Any]],
    ) -> Request:
        named = session is not None
        if named != (local_seq is not None):
            raise InvalidInput("session and local_seq belong together: give both, or neither")
        who, number = (session, local_seq) if named else self.next_local()
        assert who is not None
        assert number is not None
        return make_request(
            operations,
            branch=branch,
            session=who,
            local_seq=number,
            replayable=named,
            reads=reads,
            preconditions=preconditions,
        )

    def submit(
        self,
        request: Request,
        before: Callable[[HistoryReader], None] | None = None,
        *,
        size: int = 0,
    ) -> Commit:
        """Commit a request that was checked already. `before` runs first, in the same transaction,
        and may refuse it.
        """
        looked: dict[int, conflicts.ReadCheck] = {}
        for _ in range(limits.STALE_CHECK_ATTEMPTS):
            work = self._work(request, before, looked, rows_max=limits.STALE_CHECK_ROWS)
            try:
                return self._run(work, request.size + size)
            except ReadTooOld:
                with self.background_view() as view:
                    looked = conflicts.look_back(view, request, looked)
        return self._run(self._work(request, before, looked), request.size + size)

    def _run(self, work: Callable[[Transaction], Commit], size: int) -> Commit:
        if size < limits.GROUP_BYTES_MAX:
            return self.database.transact(work, size=size)
        # Too large to share a commit with others.
        with self.database.write() as txn:
            return work(txn)

    def _work(
        self,
        request: Request,
        before: Callable[[HistoryReader], None] | None = None,
        looked: Mapping[int, conflicts.ReadCheck] | None = None,
        *,
        rows_max: int | None = None,
    ) -> Callable[[Transaction], Commit]:
        def work(txn: Transaction) -> Commit:
            if before is not None:
                before(self.history_kind.view(txn))
            lookback = conflicts.Lookback(looked, rows_max)
            commit = writer.commit(txn, self.history_kind, request, self._cache, lookback)
            if not commit.replayed:
                entities = (step.id for step in request.steps)
                txn.after_commit(lambda: self.waiters.notify(commit.seq, request.branch, entities))
            return commit

        return work

    def set(self, entity: str, document: Mapping[str, Any], *, branch: str = "") -> Commit:
        """Replace the whole document of an entity."""
        return self.transact([{"op": "set", "id": entity, "value": document}], branch=branch)

    def patch(
        self, entity: str, patches: Sequence[Mapping[str, Any]], *, branch: str = ""
    ) -> Commit:
        """Change parts of an entity's document; on one that does not exist they start from `{}`."""
        listed = list(patches) if isinstance(patches, tuple) else patches
        operation = {"op": "patch", "id": entity, "patches": listed}
        return self.transact([operation], branch=branch)

    def delete(self, entity: str, *, branch: str = "") -> Commit:
        """Mark an entity as deleted; its past stays."""
        return self.transact([{"op": "delete", "id": entity}], branch=branch)

    # Reading

    def read(self, entity: str, branch: str = "", at: At = None) -> State | None:
        """The state of an entity; None if it was never written. `at` is a seq or a moment, now if
        not given.
        """
        check_entity(entity)
        if at is None:
            return self._newest(entity, branch)
        with self.view() as view:
            target = target_of(view, branch, at)
            found = reader.entry(view, chain(view, branch, target), entity)
        return None if found is None else _own(found)

    def read_many(
        self, entities: Iterable[str], branch: str = "", at: At = None
    ) -> dict[str, State | None]:
        """The states of many entities, all of the same point in history."""
        wanted = [check_entity(each) for each in check_several(entities, "the ids to read")]
        if wanted and at is None and self.database.writable:
            check_known_branch(branch)
            known = self._cache.get_all([(branch, entity) for entity in wanted])
            if known is not None:
                return {key[1]: _copy(entry) for key, entry in known.items()}
        with self.view() as view:
            branch_named(view, branch)
            links = chain(view, branch, target_of(view, branch, at))
            return reader.states(view, links, wanted)

    def ids(
        self,
        branch: str = "",
        at: At = None,
        *,
        prefix: str = "",
        after: str = "",
        limit: int | None = None,
    ) -> list[str]:
        """Return the ids of the entities that exist (written, and not deleted), sorted.

        With `limit` at most so many of them, from the first after `after` on: a page costs its
        length, however many there are. `prefix` leaves out all that do not begin with it.
        """
        with self.view() as view:
            branch_named(view, branch)
            links = chain(view, branch, target_of(view, branch, at))
            return reader.live_ids(view, links, prefix, after, limit)

    def history(
        self,
        entity: str,
        branch: str = "",
        *,
        after: int = 0,
        at: At = None,
        limit: int = limits.HISTORY_PAGE_ROWS,
    ) -> list[Revision]:
        """The revisions of an entity that a reader of the branch sees, oldest first, beyond the seq
        `after`.
        """
        check_entity(entity)
        with self.view() as view:
            branch_named(view, branch)
            links = chain(view, branch, target_of(view, branch, at))
            return list(reader.revisions(view, links, entity, after, limit))

    def log(
        self, *, after: int = 0, until: int | None = None, limit: int = limits.HISTORY_PAGE_ROWS
    ) -> list[LogEntry]:
        """The commits of the space beyond the seq `after`, oldest first."""
        with self.view() as view:
            newest = last_seq(view)
            return reader.log(view, after, newest if until is None else until, limit)

    def diff(self, branch: str = "", at1: At = None, at2: At = None) -> comparison.Difference:
        """What changed on a branch between two points; `at2` is now if not given.

        `.operations` of the result turn the first state into the second. So what brings the state
        at a seq back is `space.transact(space.diff(branch, None, seq).operations, branch=branch)`.
        """
        with self.view() as view:
            branch_named(view, branch)
            points = (Point(branch, target_of(view, branch, at)) for at in (at1, at2))
            return comparison.compare(view, *points)

    def watch(
        self,
        ids: Iterable[str] | None = None,
        after: int | None = None,
        branch: str = "",
        *,
        timeout: float | None = None,
    ) -> Watch:
        """The commits on a branch beyond the seq `after` (now, if not given), as they come.

        With `ids` only those that change one of these entities, and of them only these parts. An
        iterator for `for` and `async for`; `timeout` ends it after so many seconds of silence.
        """
        return Watch(self, ids, after, branch, timeout)

    def seq(self) -> int:
        """The newest seq of the space."""
        return self.database.sequence(self.history_kind.seq)

    def verify(self) -> list[str]:
        """What is wrong with this space, in sentences; empty when its log and all that is derived
        from it agree.
        """
        problems = self.database.integrity_check()
        faults = faults_by_parts(
            self.background_view,
            self.history_kind,
            self.database.path.stat().st_size,
        )
        return [*problems, *map(str, faults)]

    def maintain(
        self, retention: Retention = "all", *, pins: Iterable[int] = ()
    ) -> MaintenanceReport:
        """Make snapshots where reads go through many patches, and drop those that `retention` does
        not keep: "all" keeps all of them, a number the newest of each entity, "log" ever fewer the
        older they are. No state changes; `pins` are seqs that shall stay quick to read.

        A space that has a policy for collections is then collected by it; `pins` stay readable.
        """
        pinned = tuple(check_several(pins, "the seqs to pin"))
        done = maintain(self, retention, pinned)
        if self.gc_policy() is None:
            return done
        collected = sweep.collect(self, None, pins=pinned)
        return msgspec.structs.replace(done, collected=collected)

    def gc(self, policy: GcPolicy | None = None, *, dry_run: bool = False) -> GcReport:
        """Give up what `policy` allows or, if it is not given, what the policy of the space does;
        Refused when there is none. Nothing else in Fourfold gives up anything.

        Reads below the new horizon raise HistoryTruncated, but for the points that branches, merges
        and pins need. A dry run reports what would go; it works on a copy of the space.
        """
        return sweep.collect(self, policy, dry_run=dry_run)

    def gc_policy(self) -> GcPolicy | None:
        """What the space gives up whenever it is maintained; None, as at first, if nothing."""
        with self.view() as view:
            return stored_policy(view)

    def set_gc_policy(self, policy: GcPolicy | None) -> None:
        """Keep a policy in the space, or none. Nothing is collected now."""
        sweep.keep_policy(self, policy)

    def horizon(self) -> int:
        """The oldest seq from which on every state of every branch can be read."""
        with self.view() as view:
            return horizon(view)

    @contextmanager
    def view(self) -> Iterator[HistoryReader]:
        """One consistent state of the space."""
        with self.database.read() as snapshot:
            yield self.history_kind.view(snapshot)

    @contextmanager
    def background_view(self) -> Iterator[HistoryReader]:
        """One consistent state of the space for long work, which pauses while others write."""
        with self.database.read_in_background() as snapshot:
            yield self.history_kind.view(snapshot)

    def next_local(self) -> tuple[str, int]:
        """A name for a request that its author did not name."""
        return self._session, next(self._local_seqs)

    def _newest(self, entity: str, branch: str) -> State | None:
        check_known_branch(branch)
        # Another process may write while this one reads, so only the writer can trust its memory.
        remembers = self.database.writable
        known = self._cache.get((branch, entity)) if remembers else None
        if known is not None:
            return _copy(known)
        mark = self._cache.published
        with self.database.read() as snapshot:
            view = self.history_kind.view(snapshot)
            # Nothing is newer than what the snapshot shows.
            found = reader.entry(view, chain(view, branch, limits.SEQ_MAX), entity)
        if found is None or not remembers:
            return None if found is None else _own(found)
        self._cache.offer((branch, entity), found, mark)
        return _copy(found)

    def __iter__(self) -> Iterator[str]:
        return iter(self.ids())

    def __repr__(self) -> str:
        return f"<Space {self.did}>"


def _own(found: Entry) -> State:
    """What was just read from the file belongs to this caller alone."""
    return State(found.document, found.op, found.seq)


def _copy(found: Entry) -> State:
    """A copy for the caller: what the cache holds is shared, and must never change."""
    return State(found.copied(), found.op, found.seq)
