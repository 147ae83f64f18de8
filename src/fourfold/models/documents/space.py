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
from datetime import datetime
from typing import Any, Final, TypeVar, overload

import msgspec

from fourfold import html, limits
from fourfold.arguments import check_arguments
from fourfold.content.filters import parse_filter
from fourfold.errors import InvalidInput, Refused
from fourfold.kernel import Database, Transaction
from fourfold.models.documents import comparison, conflicts, reader, writer
from fourfold.models.documents.ancestry import (
    At,
    BranchPoint,
    branch_named,
    chain,
    last_seq,
    target_of,
)
from fourfold.models.documents.blobs import SpaceBlobs
from fourfold.models.documents.branches import Branches
from fourfold.models.documents.cache import CacheEntry, DocumentCache
from fourfold.models.documents.conflicts import ReadTooOld
from fourfold.models.documents.document_type import DocumentType
from fourfold.models.documents.feed import FilterWatch, Watch
from fourfold.models.documents.gc.horizon import horizon
from fourfold.models.documents.gc.policy import GcPolicy
from fourfold.models.documents.gc.policy import stored as stored_policy
from fourfold.models.documents.gc.records import GcReport
from fourfold.models.documents.history import History, HistoryReader
from fourfold.models.documents.indexes import finder
from fourfold.models.documents.indexes.finder import Facet, FindPage, FindPlan
from fourfold.models.documents.indexes.indexes import Indexes
from fourfold.models.documents.indexes.planner import parse_facet, parse_order
from fourfold.models.documents.indexes.search import (
    SearchOrder,
    SearchPage,
    make_query,
    search,
)
from fourfold.models.documents.records import (
    Commit,
    Document,
    LogEntry,
    Reads,
    Revision,
    State,
    no_entity,
)
from fourfold.models.documents.request import DocumentRequest, make_request, patch_operation
from fourfold.models.documents.snapshots import MaintenanceReport, Retention, maintain
from fourfold.models.documents.timestamps import created_at, stored_time
from fourfold.models.documents.typed_documents import TypedDocuments
from fourfold.models.documents.validation import check_entity, check_known_branch, check_several
from fourfold.models.documents.waiters import Waiters
from fourfold.models.problem import Problem, to_problems
from fourfold.sql_result import Result
from fourfold.tabular import Rows

DOCUMENT_CACHE_BYTES: Final = 64 * limits.MIB
"""Cached current documents of one space."""
STALE_CHECK_ROWS: Final = 100
"""Later revisions that a transaction compares with its reads while it holds the writer."""
STALE_CHECK_ATTEMPTS: Final = 8
"""Comparisons without the writer before a transaction compares while it holds it."""

T = TypeVar("T")


@check_arguments(unchecked={"read", "view", "background_view", "step_view", "submit", "next_local"})
class Space:
    """A collection of documents with their whole history. Opened by `store.space(did)`.

    space.set("note-1", {"title": "Hello"})
    space["note-1"]                                # the document
    space.read("note-1", at=1)                     # its state at a seq or a time
    "note-1" in space, len(space), list(space)     # the ids of existing entities
    """

    def __init__(
        self,
        did: str,
        database: Database,
        history: History,
        *,
        sql: Callable[..., Result] | None = None,
    ) -> None:
        self.did = did
        self._sql = sql
        self.database = database
        self.history_kind = history
        self.branches = Branches(self)
        self.indexes = Indexes(self)
        self.blobs = SpaceBlobs(self)
        self.waiters = Waiters()
        self.upkeep = threading.RLock()
        """Serializes maintenance and garbage collection, which rely on the same rows."""
        self._cache = DocumentCache(DOCUMENT_CACHE_BYTES)
        # Requests without a session and local_seq get unique ones of this process.
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
        """Commit several operations in one transaction, under one seq, or none of them.

        Args:
            operations: Each is `{"op": "set", "id", "value"}`, `{"op": "patch", "id", "patches"}`
                or `{"op": "delete", "id"}`.
            reads: What the operations depend on, for optimistic concurrency.
            session: With `local_seq`, identifies the request: a repeated request returns the same
                commit, with `replayed` set.
            local_seq: The number of the request within its session.
            branch: The branch to commit to; "" is the default branch.
            preconditions: Conditions on entities that must hold at the time of the commit.

        Raises:
            StaleRead: Something in `reads` has changed since.
            PreconditionFailed: A precondition does not hold.
            ReplayMismatch: Another request had the same session and local_seq.
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
        """Commit several operations like `transact`, from a coroutine.

        Concurrent calls share one database transaction; each gets its own commit or its own error.
        """
        request = self._request(operations, reads, session, local_seq, branch, preconditions)
        if request.size >= limits.GROUP_BYTES_MAX:
            # Large requests would block the event loop.
            return await asyncio.to_thread(self.submit, request)
        work = self._work(request, rows_max=STALE_CHECK_ROWS)
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
    ) -> DocumentRequest:
        named = session is not None
        if named != (local_seq is not None):
            raise InvalidInput("pass both session and local_seq, or neither")
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
        request: DocumentRequest,
        before: Callable[[HistoryReader], None] | None = None,
        *,
        size: int = 0,
    ) -> Commit:
        """Commit a validated request; `before` runs first in the transaction and may refuse it."""
        checks: dict[int, conflicts.ReadCheck] = {}
        for _ in range(STALE_CHECK_ATTEMPTS):
            work = self._work(request, before, checks, rows_max=STALE_CHECK_ROWS)
            try:
                return self._run(work, request.size + size)
            except ReadTooOld:
                pages = conflicts.RevisionPages(self.view, self.database.pauses)
                checks = conflicts.check_committed(pages, request, checks)
        return self._run(self._work(request, before, checks), request.size + size)

    def _run(self, work: Callable[[Transaction], Commit], size: int) -> Commit:
        if size < limits.GROUP_BYTES_MAX:
            return self.database.transact(work, size=size)
        # Too large to share a commit with others.
        with self.database.write() as txn:
            return work(txn)

    def _work(
        self,
        request: DocumentRequest,
        before: Callable[[HistoryReader], None] | None = None,
        checks: Mapping[int, conflicts.ReadCheck] | None = None,
        *,
        rows_max: int | None = None,
    ) -> Callable[[Transaction], Commit]:
        def work(txn: Transaction) -> Commit:
            if before is not None:
                before(self.history_kind.view(txn))
            lookback = conflicts.OldReads(checks, rows_max)
            commit = writer.commit(txn, self.history_kind, request, self._cache, lookback)
            if not commit.replayed:
                entities = (step.id for step in request.steps)
                txn.after_commit(lambda: self._committed(commit, entities))
            return commit

        return work

    def _committed(self, commit: Commit, entities: Iterable[str]) -> None:
        """Notify the waiters of a commit, and continue the builds of indexes that a stop left."""
        self.waiters.notify(commit.seq, commit.branch, entities)
        tip = self._cache.tip
        building = tip is not None and not all(index.is_complete for index in tip.indexes)
        if building and not self.indexes.builder.is_running:
            self.indexes.builder.start()

    def set(self, entity: str, document: Mapping[str, Any], *, branch: str = "") -> Commit:
        """Replace the whole document of an entity."""
        return self.transact([{"op": "set", "id": entity, "value": document}], branch=branch)

    def patch(
        self, entity: str, patches: Sequence[Mapping[str, Any]], *, branch: str = ""
    ) -> Commit:
        """Apply patches to an entity's document; a missing entity starts from `{}`."""
        return self.transact([patch_operation(entity, patches)], branch=branch)

    def delete(self, entity: str, *, branch: str = "") -> Commit:
        """Delete an entity; its history stays readable."""
        return self.transact([{"op": "delete", "id": entity}], branch=branch)

    def typed(self, model: type[T], *, prefix: str = "") -> TypedDocuments[T]:
        """Return the documents of this space as instances of a class, validated by it.

            class Note(msgspec.Struct):
                title: str

            notes = space.typed(Note, prefix="note-")
            notes.set("note-1", Note("Hello"))
            notes.get("note-1").title

        Args:
            model: A `msgspec.Struct`, a dataclass, a `TypedDict` or a `pydantic.BaseModel`.
            prefix: What the ids of these documents begin with, so that a space can have several
                types.
        """
        return TypedDocuments(self, DocumentType(model, prefix))

    # Reading

    def read(self, entity: str, branch: str = "", at: At = None) -> State | None:
        """Return the state of an entity, or None if it was never written.

        `at` is a seq or a datetime; the state is that of the last commit at or before it, by
        default the newest. A deleted entity has a state without a document.
        """
        check_entity(entity)
        if at is None:
            return self._newest(entity, branch)
        with self.view() as view:
            target = target_of(view, branch, at)
            entry = reader.entry(view, chain(view, branch, target), entity)
        return None if entry is None else _to_state(entry)

    def read_many(
        self, entities: Iterable[str], branch: str = "", at: At = None
    ) -> dict[str, State | None]:
        """Return the states of several entities at one point in history, by id."""
        ids = [check_entity(entity) for entity in check_several(entities, "the ids to read")]
        if ids and at is None and self.database.writable:
            check_known_branch(branch)
            cached = self._cache.get_all([(branch, entity) for entity in ids])
            if cached is not None:
                return {key[1]: _copy_state(entry) for key, entry in cached.items()}
        with self.view() as view:
            branch_named(view, branch)
            links = chain(view, branch, target_of(view, branch, at))
            return reader.states(view, links, ids)

    def ids(
        self,
        branch: str = "",
        at: At = None,
        *,
        prefix: str = "",
        after: str = "",
        limit: int | None = None,
    ) -> list[str]:
        """Return the ids of the existing entities (written and not deleted), sorted.

        Args:
            branch: The branch to read; "" is the default branch.
            at: A seq or a datetime, by default now.
            prefix: Only ids that begin with it.
            after: Only ids that sort after it: the last id of the previous page.
            limit: Maximum number of ids. The cost of a page does not depend on the number of
                entities.
        """
        with self.database.paced() as end_step, self.view() as view:
            branch_named(view, branch)
            links = chain(view, branch, target_of(view, branch, at))
            return reader.live_ids(view, links, prefix, after, limit, end_step=end_step)

    def history(
        self,
        entity: str,
        branch: str = "",
        *,
        after: int = 0,
        at: At = None,
        limit: int = limits.HISTORY_PAGE_ROWS,
    ) -> Rows[Revision]:
        """Return the revisions of an entity after the seq `after`, oldest first.

        Includes those that the branch inherits from its parents.
        """
        check_entity(entity)
        with self.view() as view:
            branch_named(view, branch)
            links = chain(view, branch, target_of(view, branch, at))
            return Rows(reader.revisions(view, links, entity, after, limit), Revision)

    def log(
        self, *, after: int = 0, until: int | None = None, limit: int = limits.HISTORY_PAGE_ROWS
    ) -> Rows[LogEntry]:
        """Return the commits of the space after `after` and up to `until`, oldest first."""
        with self.view() as view:
            newest = last_seq(view)
            until = newest if until is None else until
            return Rows(reader.log(view, after, until, limit), LogEntry)

    def diff(
        self,
        branch: str = "",
        at1: At = None,
        at2: At = None,
        ids: Iterable[str] | None = None,
    ) -> comparison.Difference:
        """Return what changed on a branch from `at1` to `at2`; None means now.

        With `ids`, only these entities are compared.

        The `operations` of the result turn the first state into the second. To restore the state at
        a seq: `space.transact(space.diff(branch, None, seq).operations, branch=branch)`.
        """
        with self.view() as view:
            branch_named(view, branch)
            a, b = (BranchPoint(branch, target_of(view, branch, at)) for at in (at1, at2))
            return comparison.compare(view, a, b, ids)

    def sql(
        self,
        query: str,
        params: Sequence[Any] | Mapping[str, Any] = (),
        *,
        at: At = None,
        branch: str = "",
        **limits: Any,
    ) -> Result:
        """Run a SELECT over the tables of this space, and return its rows.

            space.sql("select id, document ->> 'title' from state where op <> 'delete'")

        Tables are named with or without prefix: `state`, `documents_state`.

        Args:
            query: One SELECT, in the dialect of SQLite.
            params: Values of `?` or `:name` in it.
            at: As of this seq or time.
            branch: Branch of `state` and `history`; "*" for every branch.
            limits: `timeout_s`, `max_rows`, `max_bytes`, as in `Store.sql`.
        """
        if self._sql is None:
            raise Refused("this space was opened without a store", hint="Use fourfold.open(root).")
        return self._sql(
            query, params, at=at, branch=branch, model="documents", space=self.did, **limits
        )

    # Finding

    def find(
        self,
        where: Mapping[str, Any] | None = None,
        *,
        order_by: str | None = None,
        limit: int = limits.PAGE_ITEMS,
        after: str | None = None,
        at: At = None,
        branch: str = "",
        scan: bool = True,
    ) -> FindPage:
        """Return a page of the documents that match a filter.

            page = space.find({"status": "open", "/total": {"$gte": 100}}, order_by="-/total")
            for match in page: print(match.id, match.document)
            page = space.find(..., after=page.next)         # until next is None

        One declared index serves the filter or the order, see `indexes`; without one, documents
        are read one after the other. `page.plan` says which, and `plan.complete` is False if a page
        ended early because it had read enough. All pages show the state of the first one.

        Args:
            where: A filter; see the reference of filters. By default everything matches.
            order_by: A field or a JSON Pointer, with "-" before it for the descending order.
                Documents without a scalar there are left out. By default, the order is that of the
                index, or of the ids.
            limit: Maximum number of documents, up to 1,000.
            after: `next` of the page before, with all other arguments unchanged.
            at: A seq or a datetime, by default now.
            branch: The branch to read; "" is the default branch.
            scan: With False, a query without an index is refused.

        Raises:
            Refused: No index serves the query, and `scan` is False.
            LimitExceeded: Too many documents would have to be sorted without an index.
        """
        query = finder.FindQuery(parse_filter(where), parse_order(order_by), branch, at, scan)
        return finder.find(self, query, limit, after)

    def search(
        self,
        query: str | None = None,
        *,
        vector: Sequence[float] | None = None,
        where: Mapping[str, Any] | None = None,
        index: str | None = None,
        paths: Sequence[str] | None = None,
        order: SearchOrder = "score",
        limit: int = limits.PAGE_ITEMS,
        after: str | None = None,
        at: At = None,
        branch: str = "",
    ) -> SearchPage:
        """Return a page of the documents with the words of a query, the nearest vectors, or both.

            space.indexes.create("words", ["/title", "/body"], kind="text")
            for hit in space.search('leek "hot soup" sal* -chili'):
                print(hit.score, hit.id, hit.snippets)
            space.indexes.create("meaning", "/embedding", kind="vector")
            space.search(vector=embed("warm food"), limit=10)

        Words must all occur, each at any of the paths; `"two words"` is a phrase, `pre*` a prefix,
        and `-word` must not occur. Case, diacritics and punctuation do not matter.

        Args:
            query: The words.
            vector: Numbers: the documents whose vectors of the same length have the most similar
                direction come first. With words, too, the ranks by both are combined: documents
                that are good in one are found, and those good in both come first. Requires
                `fourfold[vectors]`.
            where: Only documents that match this filter.
            index: Name of the index; needed if several fit.
            paths: Only these paths of the index.
            order: "score" for the most relevant first, "newest" for the texts that changed last.
            limit: Maximum number of hits, up to 1,000.
            after: `next` of the page before, with all other arguments unchanged.
            at: A seq or a datetime, by default now.
            branch: The branch to read; "" is the default branch.

        Raises:
            Refused: There is no index with these paths.
            Busy: The index is still being built.
            LimitExceeded: `where` would have to compare too many documents.
            MissingDependency: `vector` requires sqlite-vec, which is not installed.
        """
        made = make_query(
            *(query, vector),
            where=where,
            index=index,
            paths=paths,
            order=order,
            limit=limit,
            branch=branch,
            at=at,
        )
        return search(self, made, limit, after)

    def count(
        self, where: Mapping[str, Any] | None = None, *, at: At = None, branch: str = ""
    ) -> int:
        """Return the number of documents that match a filter.

        Raises:
            DeadlineExceeded: Counting without an index took too long.
        """
        return finder.count(self, finder.FindQuery(parse_filter(where), None, branch, at))

    def facets(
        self,
        path: str,
        *,
        where: Mapping[str, Any] | None = None,
        limit: int = limits.PAGE_ITEMS,
        at: At = None,
        branch: str = "",
    ) -> Rows[Facet]:
        """Return the most frequent values at a path, each with the number of its documents.

        Args:
            path: A field or a JSON Pointer, in which `*` stands for every item of an array.
            where: Only documents that match this filter.
            limit: Maximum number of values.
            at: A seq or a datetime, by default now.
            branch: The branch to read.

        Raises:
            DeadlineExceeded: Counting without an index took too long.
        """
        query = finder.FindQuery(parse_filter(where), None, branch, at)
        return finder.facets(self, query, parse_facet(path), limit)

    def explain(
        self,
        where: Mapping[str, Any] | None = None,
        *,
        order_by: str | None = None,
        at: At = None,
        branch: str = "",
    ) -> FindPlan:
        """Return the plan of a `find`: the index that serves it, or a scan."""
        query = finder.FindQuery(parse_filter(where), parse_order(order_by), branch, at)
        return finder.explain(self, query)

    @overload
    def follow(
        self,
        ids: Iterable[str] | None = None,
        after: int | None = None,
        branch: str = "",
        *,
        where: None = None,
        timeout: float | None = None,
    ) -> Watch: ...
    @overload
    def follow(
        self,
        ids: Iterable[str] | None = None,
        after: int | None = None,
        branch: str = "",
        *,
        where: Mapping[str, Any],
        timeout: float | None = None,
    ) -> FilterWatch: ...
    def follow(
        self,
        ids: Iterable[str] | None = None,
        after: int | None = None,
        branch: str = "",
        *,
        where: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> Watch | FilterWatch:
        """Iterate over the commits on a branch and wait for more, with `for` or `async for`.

        Args:
            ids: Only commits that change one of these entities, reduced to these entities.
            after: Begin after this seq, by default after the newest commit.
            branch: The branch to follow.
            where: A filter. Yields a `MatchedCommit` for each commit after which a document
                matches that did not before ("enter"), was changed and still matches ("change"),
                or does not match any more ("leave"). `{}` matches every document that exists.
            timeout: End after this many seconds without a commit.
        """
        if where is None:
            return Watch(self, ids, after, branch, timeout)
        return FilterWatch(self, parse_filter(where), ids, after, branch=branch, timeout=timeout)

    watch = follow
    """Alias of `follow`: the name in specification 000."""

    def seq_at(self, at: At, branch: str = "") -> int:
        """Return the seq that `at` means on a branch: a datetime is the last commit by then.

        Raises:
            HistoryTruncated: Garbage collection removed the state at that seq.
        """
        with self.view() as view:
            return target_of(view, branch, at)

    def existed_at(self, at: datetime) -> bool:
        """Return True if the space had been created by a time."""
        with self.view() as view:
            return created_at(view) <= stored_time(at)

    def commit_times(self, seqs: Iterable[int]) -> dict[int, str]:
        """Return the times of commits by seq, as UTC text."""
        with self.view() as view:
            rows = (view.one(view.sql.commit_before, (seq,)) for seq in set(seqs))
            return {row[0]: row[1] for row in rows if row is not None}

    def cached_bytes(self, entity: str, branch: str = "") -> int | None:
        """Return the approximate size of the newest state if a read needs no disk, else None."""
        entry = self._cache.get((branch, entity)) if self.database.writable else None
        return None if entry is None else entry.weight

    def position(self) -> int:
        """Return the newest seq of the space."""
        return self.database.sequence(self.history_kind.seq)

    def seq(self) -> int:
        """Alias of `position`."""
        return self.position()

    def verify(self) -> list[Problem]:
        """Check the file, the log and everything derived from it; return the problems found."""
        from fourfold.models.documents.verify import (  # noqa: PLC0415 - rare
            iter_problems_in_slices,
        )

        problems = to_problems(self.database.integrity_check())
        size = self.database.path.stat().st_size
        problems += iter_problems_in_slices(
            self.step_view, self.background_view, self.history_kind, size
        )
        return problems

    def maintain(
        self, retention: Retention = "all", *, pins: Iterable[int] = ()
    ) -> MaintenanceReport:
        """Add missing snapshots and drop those that `retention` does not keep.

        No state changes. If the space has a garbage collection policy, it is applied afterwards.

        Args:
            retention: "all" keeps every snapshot, a number the newest ones of each entity, "log"
                fewer of the older ones.
            pins: Seqs that stay fast to read, and readable after garbage collection.
        """
        pinned = tuple(check_several(pins, "the seqs to pin"))
        report = maintain(self, retention, pinned)
        if self.gc_policy() is None:
            return report
        from fourfold.models.documents.gc import sweep  # noqa: PLC0415 - few spaces have a policy

        collected = sweep.collect(self, None, pins=pinned)
        return msgspec.structs.replace(report, collected=collected)

    def gc(self, policy: GcPolicy | None = None, *, dry_run: bool = False) -> GcReport:
        """Remove the history that `policy`, by default the policy of the space, does not retain.

        Reads below the new horizon raise HistoryTruncated, except at points that branches, merges
        and pins need. With `dry_run` the report says what would be removed.

        Raises:
            Refused: There is no policy.
        """
        from fourfold.models.documents.gc import sweep  # noqa: PLC0415 - rare

        return sweep.collect(self, policy, dry_run=dry_run)

    def gc_policy(self) -> GcPolicy | None:
        """Return the policy that `maintain` applies; None, the default, removes nothing."""
        with self.view() as view:
            return stored_policy(view)

    def set_gc_policy(self, policy: GcPolicy | None) -> None:
        """Store the policy that `maintain` applies, or remove it. Collects nothing now."""
        from fourfold.models.documents.gc import sweep  # noqa: PLC0415 - rare

        sweep.keep_policy(self, policy)

    def horizon(self) -> int:
        """Return the oldest seq from which every state of every branch is readable."""
        with self.view() as view:
            return horizon(view)

    @contextmanager
    def view(self) -> Iterator[HistoryReader]:
        """Open a read transaction: one consistent state of the space."""
        with self.database.read() as snapshot:
            yield self.history_kind.view(snapshot)

    @contextmanager
    def background_view(self) -> Iterator[HistoryReader]:
        """Open a read transaction for long work, which pauses while others write."""
        with self.database.read_in_background() as snapshot:
            yield self.history_kind.view(snapshot)

    @contextmanager
    def step_view(self) -> Iterator[HistoryReader]:
        """Open a read transaction for a short step of long work; pause after it if others write."""
        with self.database.read_step() as snapshot:
            yield self.history_kind.view(snapshot)

    def next_local(self) -> tuple[str, int]:
        """Return a unique session and local_seq for a request without them."""
        return self._session, next(self._local_seqs)

    def _newest(self, entity: str, branch: str) -> State | None:
        check_known_branch(branch)
        # Another process may write while this one reads, so only the writer can use its cache.
        is_cached = self.database.writable
        cached = self._cache.get((branch, entity)) if is_cached else None
        if cached is not None:
            return _copy_state(cached)
        mark = self._cache.published
        with self.database.read() as snapshot:
            view = self.history_kind.view(snapshot)
            # The snapshot contains nothing newer than its newest commit.
            entry = reader.entry(view, chain(view, branch, limits.INTEGER_MAX), entity)
        if entry is None or not is_cached:
            return None if entry is None else _to_state(entry)
        self._cache.offer((branch, entity), entry, mark)
        return _copy_state(entry)

    def __getitem__(self, entity: str) -> Document:
        """Return the document of an entity on the default branch.

        Raises:
            NotFound: The entity was never written, or is deleted.
        """
        state = self.read(entity)
        if state is None or state.document is None:
            raise no_entity(self.did, entity)
        return state.document

    def __contains__(self, entity: object) -> bool:
        """Return True if the entity exists on the default branch."""
        if not isinstance(entity, str):
            return False
        state = self.read(entity)
        return state is not None and state.document is not None

    def __len__(self) -> int:
        """Return the number of entities that exist on the default branch."""
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        """Always True: an empty space is still a space."""
        return True

    def __iter__(self) -> Iterator[str]:
        """Yield the ids of the entities that exist now on the default branch, sorted."""
        at, after = self.position(), ""
        while page := self.ids(at=at, after=after, limit=limits.HISTORY_PAGE_ROWS):
            yield from page
            after = page[-1]

    def __repr__(self) -> str:
        return f"<Space {self.did}>"

    def _repr_html_(self) -> str:
        states = self.read_many(self.ids(limit=html.ROWS_MAX))
        return show_space(self.did, self.seq(), states)


def show_space(did: str, seq: int, states: Mapping[str, State | None]) -> str:
    """Return a space with the states of its first entities as HTML."""
    rows = ((id_, state.seq, html.block(state.document)) for id_, state in states.items() if state)
    table = html.table(("id", "seq", "document"), rows)
    return html.fragment(table, caption=f"Space {did} at seq {seq}")


def _to_state(entry: CacheEntry) -> State:
    """Return the state of an entry that was just decoded and is not shared."""
    return State(entry.document, entry.op, entry.seq)


def _copy_state(entry: CacheEntry) -> State:
    """Return the state of a cached entry with a copy of its document."""
    return State(entry.copied(), entry.op, entry.seq)
