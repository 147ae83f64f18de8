"""Spaces of a server with the methods of `fourfold.Space`, for coroutines."""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar, overload

from fourfold import limits
from fourfold.arguments import check_arguments
from fourfold.client import documents, find, sql
from fourfold.client.containers import AsyncDocumentsContainer, AsyncSpaceContainer
from fourfold.client.coroutines.connection import AsyncConnection
from fourfold.client.coroutines.remote_blobs import AsyncRemoteBlobs
from fourfold.client.coroutines.remote_indexes import AsyncRemoteIndexes
from fourfold.client.coroutines.remote_typed_documents import AsyncRemoteTypedDocuments
from fourfold.client.documents import SpaceCalls, SpacePointAt, WriteIdentity
from fourfold.client.find import FindCalls
from fourfold.client.follower import AsyncRemoteFilterWatch, AsyncRemoteWatch
from fourfold.client.reader import EventReader
from fourfold.client.requests import Call
from fourfold.content.filters import parse_filter
from fourfold.errors import NotFound, Refused
from fourfold.models.documents import merge as merges
from fourfold.models.documents.ancestry import At
from fourfold.models.documents.comparison import Difference
from fourfold.models.documents.document_type import DocumentType
from fourfold.models.documents.documents import SpaceInfo
from fourfold.models.documents.feed import check_ids, deadline_of
from fourfold.models.documents.histories import check_history
from fourfold.models.documents.indexes.finder import Facet, FindPage, FindPlan
from fourfold.models.documents.indexes.search import (
    SearchOrder,
    SearchPage,
    make_query,
)
from fourfold.models.documents.merge import MergeResult
from fourfold.models.documents.records import (
    Branch,
    Commit,
    Distance,
    LogEntry,
    Reads,
    Revision,
    State,
)
from fourfold.models.documents.request import patch_operation
from fourfold.models.documents.resolutions import Resolutions
from fourfold.models.documents.validation import (
    check_branch,
    check_did,
    check_entity,
    check_known_branch,
    check_several,
)
from fourfold.sql_result import Result
from fourfold.tabular import Rows
from fourfold.wire import documents as wire
from fourfold.wire.find import DocumentCount, FacetPage, FoundDocuments, PlanInfo

T = TypeVar("T")


@check_arguments()
class AsyncRemoteDocuments(AsyncDocumentsContainer):
    """The spaces of a server, with the methods of `store.documents`."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def create(self, did: str, history: str | None = None) -> AsyncRemoteSpace:
        """Return the space with this DID; create it if it does not exist.

        Args:
            did: The DID of the space.
            history: Kind of history of a new space: "revisions" (the default) or "facts".

        Raises:
            Refused: The space exists with another kind of history.
        """
        check_did(did)
        check_history(history)
        space = AsyncRemoteSpace(self._connection, did)
        if history is None:
            # A key that may only read does not create anything.
            with contextlib.suppress(NotFound):
                await space.info()
                return space
        await self._connection.send(space.calls.create(history))
        return space

    async def open(self, did: str) -> AsyncRemoteSpace:
        """Return a handle of an existing space.

        Raises:
            NotFound: There is no space with this DID.
        """
        space = AsyncRemoteSpace(self._connection, check_did(did))
        await space.info()
        return space

    async def list(self, at: datetime | None = None) -> Rows[SpaceInfo]:
        """Return the spaces, sorted by DID. Sends a request for each.

        With `at`, they are the spaces that existed at that time, as they were.
        """
        infos: builtins.list[SpaceInfo] = []
        async for did in self._iter_dids(at):
            info = await AsyncRemoteSpace(self._connection, did).info(at)
            infos.append(
                SpaceInfo(info.did, info.history, info.seq, info.branches, info.size_bytes)
            )
        return Rows(infos, SpaceInfo)

    async def __aiter__(self) -> AsyncIterator[str]:
        """Yield the DIDs of the spaces, sorted."""
        async for did in self._iter_dids(None):
            yield did

    async def _iter_dids(self, at: datetime | None) -> AsyncIterator[str]:
        call = documents.list_spaces(self._connection.settings.address, at)
        async for page in self._connection.pages(call, wire.SpacePage):
            for row in page.items:
                yield row.did

    def __repr__(self) -> str:
        return f"<Documents at {self._connection.settings.address.root}>"


@check_arguments()
class AsyncRemoteSpace(AsyncSpaceContainer):
    """A space of a server, with the methods of `fourfold.Space`."""

    def __init__(self, connection: AsyncConnection, did: str) -> None:
        self.did = did
        self.connection = connection
        self.calls = SpaceCalls(connection.settings.address, did)
        self.find_calls = FindCalls(connection.settings.address, did)
        self.branches = AsyncRemoteBranches(self)
        self.indexes = AsyncRemoteIndexes(connection, self.find_calls)
        self.blobs = AsyncRemoteBlobs(self)

    async def sql(
        self,
        query: str,
        params: Sequence[Any] | Mapping[str, Any] = (),
        *,
        at: At = None,
        branch: str = "",
        **limits: Any,
    ) -> Result:
        """Run a SELECT over the tables of this space, and return its rows.

            await space.sql("select id, document ->> 'title' from state where op <> 'delete'")

        Tables are named with or without prefix: `state`, `documents_state`.

        Args:
            query: One SELECT, in the dialect of SQLite.
            params: Values of `?` or `:name` in it.
            at: As of this seq or time.
            branch: Branch of `state` and `history`; "*" for every branch.
            limits: `timeout_s`, `max_rows`, `max_bytes`, as in `sql` of the store.
        """
        body = sql.build_query(
            query, params, at, branch=branch, model="documents", space=self.did, **limits
        )
        call = sql.run_sql(self.connection.settings.address, body)
        return sql.parse_result(await self.connection.send(call))

    # Writing

    async def transact(  # noqa: PLR0917  (the order is that of the specification's request)
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
        identity = WriteIdentity.of(session, local_seq)
        request = documents.prepare(operations, reads, identity, branch, preconditions)
        response = await self.connection.send(self.calls.transact(request, identity))
        return documents.parse_commit(response, request)

    async def set(self, entity: str, document: Mapping[str, Any], *, branch: str = "") -> Commit:
        """Replace the whole document of an entity."""
        return await self.transact([{"op": "set", "id": entity, "value": document}], branch=branch)

    async def patch(
        self, entity: str, patches: Sequence[Mapping[str, Any]], *, branch: str = ""
    ) -> Commit:
        """Apply patches to an entity's document; a missing entity starts from `{}`."""
        return await self.transact([patch_operation(entity, patches)], branch=branch)

    async def delete(self, entity: str, *, branch: str = "") -> Commit:
        """Delete an entity; its history stays readable."""
        return await self.transact([{"op": "delete", "id": entity}], branch=branch)

    def typed(self, model: type[T], *, prefix: str = "") -> AsyncRemoteTypedDocuments[T]:
        """Return the documents of this space as instances of a class, validated by it.

        Args:
            model: A `msgspec.Struct`, a dataclass, a `TypedDict` or a `pydantic.BaseModel`.
            prefix: What the ids of these documents begin with, so that a space can have several
                types.
        """
        return AsyncRemoteTypedDocuments(self, DocumentType(model, prefix))

    # Reading

    async def read(self, entity: str, branch: str = "", at: At = None) -> State | None:
        """Return the state of an entity, or None if it was never written.

        `at` is a seq or a datetime; the state is that of the last commit at or before it, by
        default the newest. A deleted entity has a state without a document.
        """
        return (await self.read_many([entity], branch, at))[entity]

    async def read_many(
        self, entities: Iterable[str], branch: str = "", at: At = None
    ) -> dict[str, State | None]:
        """Return the states of several entities at one point in history, by id."""
        ids = [check_entity(entity) for entity in check_several(entities, "the ids to read")]
        check_known_branch(branch)
        states: dict[str, State | None] = {}
        for start in range(0, max(len(ids), 1), limits.PAGE_ITEMS_MAX):
            page = ids[start : start + limits.PAGE_ITEMS_MAX]
            response = await self.connection.send(self.calls.read(page, branch, at))
            result = documents.parse(response, wire.DocumentStates)
            # The next page shows the same state.
            at = result.seq
            states |= {id_: documents.to_state(state) for id_, state in result.states.items()}
        return {entity: states[entity] for entity in ids}

    async def ids(
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
            limit: Maximum number of ids.
        """
        ids: list[str] = []
        call = self.calls.ids(check_known_branch(branch), at, prefix, after)
        size = limits.PAGE_ITEMS_MAX if limit is None else limit
        async for page in self.connection.pages(call, wire.IdPage, size):
            ids += page.items
            if limit is not None and len(ids) >= limit:
                return ids[:limit]
        return ids

    async def search(
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
            branch=check_known_branch(branch),
            at=at,
        )
        call = self.calls.search(made, query, vector, limit, after)
        return documents.parse_search(await self.connection.send(call))

    async def history(
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
        call = self.calls.history(entity, branch, after, at)
        rows: list[Revision] = []
        async for page in self.connection.pages(call, wire.HistoryPage, limit):
            rows += [documents.to_revision(entity, row) for row in page.items]
            if len(rows) >= limit:
                break
        return Rows(rows[:limit], Revision)

    async def log(
        self, *, after: int = 0, until: int | None = None, limit: int = limits.HISTORY_PAGE_ROWS
    ) -> Rows[LogEntry]:
        """Return the commits of the space after `after` and up to `until`, oldest first."""
        entries: list[LogEntry] = []
        async for page in self.connection.pages(self.calls.log(after), wire.LogPage, limit):
            entries += map(documents.to_log_entry, page.items)
            if len(entries) >= limit or (until is not None and entries and entries[-1].seq > until):
                break
        kept = (entry for entry in entries[:limit] if until is None or entry.seq <= until)
        return Rows(kept, LogEntry)

    async def diff(
        self,
        branch: str = "",
        at1: At = None,
        at2: At = None,
        ids: Iterable[str] | None = None,
    ) -> Difference:
        """Return what changed on a branch from `at1` to `at2`; None means now.

        With `ids`, only these entities are compared.

        The `operations` of the result turn the first state into the second. To restore the state at
        a seq: `space.transact(space.diff(branch, None, seq).operations, branch=branch)`.
        """
        return await self.compare(SpacePointAt(branch, at1), SpacePointAt(branch, at2), ids)

    async def compare(
        self, a: SpacePointAt, b: SpacePointAt, ids: Iterable[str] | None
    ) -> Difference:
        """Return the differences between two points."""
        for point in (a, b):
            check_known_branch(point.branch)
        rows: list[wire.ChangeRow] = []
        first = None
        async for page in self.connection.pages(self.calls.diff(a, b, ids), wire.DiffPage):
            first = first or page
            rows += page.items
        assert first is not None
        return documents.to_difference(first, rows)

    # Finding

    async def find(
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

            page = await space.find({"status": "open", "/total": {"$gte": 100}}, order_by="-/total")
            for match in page: print(match.id, match.document)
            page = await space.find(..., after=page.next)         # until next is None

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
        call = self.find_calls.find(
            where,
            order_by=order_by,
            limit=limit,
            after=after,
            at=at,
            branch=branch,
            scan=scan,
        )
        return find.to_page(documents.parse(await self.connection.send(call), FoundDocuments))

    async def count(
        self, where: Mapping[str, Any] | None = None, *, at: At = None, branch: str = ""
    ) -> int:
        """Return the number of documents that match a filter.

        Raises:
            DeadlineExceeded: Counting without an index took too long.
        """
        response = await self.connection.send(self.find_calls.count(where, branch, at))
        return documents.parse(response, DocumentCount).count

    async def facets(
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
        response = await self.connection.send(
            self.find_calls.facets(path, where, limit, branch, at)
        )
        return find.to_facets(documents.parse(response, FacetPage))

    async def explain(
        self,
        where: Mapping[str, Any] | None = None,
        *,
        order_by: str | None = None,
        at: At = None,
        branch: str = "",
    ) -> FindPlan:
        """Return how `find` would answer: which index serves it, or that it scans."""
        call = self.find_calls.explain(where, order_by, branch, at)
        return find.to_plan(documents.parse(await self.connection.send(call), PlanInfo))

    @overload
    def follow(
        self,
        ids: Iterable[str] | None = None,
        after: int | None = None,
        branch: str = "",
        *,
        where: None = None,
        timeout: float | None = None,
    ) -> AsyncRemoteWatch: ...
    @overload
    def follow(
        self,
        ids: Iterable[str] | None = None,
        after: int | None = None,
        branch: str = "",
        *,
        where: Mapping[str, Any],
        timeout: float | None = None,
    ) -> AsyncRemoteFilterWatch: ...
    def follow(
        self,
        ids: Iterable[str] | None = None,
        after: int | None = None,
        branch: str = "",
        *,
        where: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> AsyncRemoteWatch | AsyncRemoteFilterWatch:
        """Iterate over the commits on a branch and wait for more.

        It continues after broken connections.

        Args:
            ids: Only commits that change one of these entities, reduced to these entities.
            after: Begin after this seq, by default after the newest commit.
            branch: The branch to follow.
            where: A filter. Yields a `MatchedCommit` for each commit after which a document
                matches that did not before ("enter"), was changed and still matches ("change"),
                or does not match any more ("leave"). `{}` matches every document that exists.
            timeout: End after this many seconds without a commit.
        """
        deadline_of(timeout)
        listed = None if ids is None else check_ids(ids)
        settings = self.connection.settings
        if where is None:
            call = self.calls.watch(listed, after, branch, None)
            return AsyncRemoteWatch(settings, EventReader(call, documents.decode_event), timeout)
        call = self.calls.watch(listed, after, branch, parse_filter(where))
        return AsyncRemoteFilterWatch(settings, EventReader(call, documents.decode_match), timeout)

    watch = follow
    """Alias of `follow`: the name in specification 000."""

    async def position(self) -> int:
        """Return the newest seq of the space."""
        return (await self.info()).seq

    async def seq(self) -> int:
        """Alias of `position`."""
        return await self.position()

    async def horizon(self) -> int:
        """Return the oldest seq from which every state of every branch is readable."""
        return (await self.info()).horizon

    async def __aiter__(self) -> AsyncIterator[str]:
        """Yield the ids of the entities that exist now on the default branch, sorted."""
        async for page in self.connection.pages(self.calls.ids("", None), wire.IdPage):
            for entity in page.items:
                yield entity

    def __repr__(self) -> str:
        return f"<Space {self.did}>"

    async def info(self, at: At = None) -> wire.SpaceInfo:
        """Return what the server reports about the space, now or at a seq or a datetime.

        Raises:
            NotFound: There is no such space, or there was none at that time.
        """
        return documents.parse(await self.connection.send(self.calls.get(at)), wire.SpaceInfo)


class AsyncRemoteBranches:
    """The branches of one space of a server, with the methods of a local space."""

    def __init__(self, space: AsyncRemoteSpace) -> None:
        self._space = space

    async def create(
        self,
        name: str,
        parent: str = "",
        at: At = None,
        *,
        session: str | None = None,
        local_seq: int | None = None,
    ) -> Branch:
        """Create a branch that shows `parent` at `at`, by default now. Names are never reused.

        Args:
            name: The name of the new branch.
            parent: The branch to fork; "" is the default branch.
            at: A seq or a datetime.
            session: With `local_seq`, identifies the request, as in `Space.transact`.
            local_seq: The number of the request within its session.

        Raises:
            AlreadyExists: A branch of that name exists, or existed.
            ReplayMismatch: Another request had the same session and local_seq.
        """
        identity = WriteIdentity.of(session, local_seq)
        check_branch(name)
        call = self._space.calls.create_branch(name, check_known_branch(parent), at, identity)
        return await self._send(call)

    async def delete(
        self, name: str, *, session: str | None = None, local_seq: int | None = None
    ) -> Branch:
        """Delete a branch: it can no longer be written, but its history stays readable.

        Branches that were created from it are not affected. `session` and `local_seq` identify the
        request, as in `Space.transact`.
        """
        if not name:
            raise Refused("the default branch cannot be deleted")
        identity = WriteIdentity.of(session, local_seq)
        return await self._send(self._space.calls.delete_branch(check_known_branch(name), identity))

    async def get(self, name: str, *, at: At = None) -> Branch:
        """Return a branch, also a deleted one, now or as it was at a seq or a datetime.

        Raises:
            NotFound: There is no branch of that name, or there was none at that point.
        """
        if not check_known_branch(name):
            return (await self.list(at=at))[0]
        return await self._send(self._space.calls.branch(name, at))

    async def distance(self, name: str, *, at: At = None) -> Distance | None:
        """Count the commits that a branch and its parent do not share, now or at a point.

        Each side is counted up to 1,000. What a merge brought over is shared. The default branch
        has no parent: None.

        Raises:
            NotFound: There is no branch of that name, or there was none at that point.
        """
        if not check_known_branch(name):
            return None
        response = await self._space.connection.send(self._space.calls.branch(name, at))
        return documents.to_distance(documents.parse(response, wire.BranchInfo))

    async def list(self, *, deleted: bool = False, at: At = None) -> Rows[Branch]:
        """Return the active branches in the order of creation; with `deleted`, all of them.

        With `at`, a seq or a datetime, they are the branches that existed then, as they were.
        """
        call = self._space.calls.branches(deleted=deleted, at=at)
        branches: Rows[Branch] = Rows((), Branch)
        async for page in self._space.connection.pages(call, wire.BranchPage):
            branches += map(documents.to_branch, page.items)
        return branches

    async def diff(
        self,
        a: str,
        b: str,
        at_a: At = None,
        at_b: At = None,
        ids: Iterable[str] | None = None,
    ) -> Difference:
        """Return the differences between two branches, each now or at its own point.

        Each change tells on which side the entity differs from their common base. With `ids`, only
        these entities are compared.
        """
        return await self._space.compare(SpacePointAt(a, at_a), SpacePointAt(b, at_b), ids)

    async def merge(
        self,
        source: str,
        target: str = "",
        *,
        resolutions: Resolutions | None = None,
        field_level: bool = True,
        session: str | None = None,
        local_seq: int | None = None,
        dry_run: bool = False,
        heads: tuple[int, int] | None = None,
    ) -> MergeResult:
        """Merge the changes of `source` into `target`, as one commit on `target`.

        Args:
            source: The branch to merge from; it may be deleted.
            target: The branch to merge into; "" is the default branch.
            resolutions: Decisions for conflicts. A key is an id, and its value a document, None
                (delete the entity), OURS (the target wins) or THEIRS (the source wins). Or a key
                is `(id, path)`, and its value a JSON value, ABSENT, OURS or THEIRS.
            field_level: Merge the fields of a document one by one; otherwise an entity that both
                changed is a conflict.
            session: With `local_seq`, identifies the request, as in `Space.transact`.
            local_seq: The number of the request within its session.
            dry_run: Write nothing; the result lists operations and conflicts.
            heads: The `heads` of a dry run: merge exactly what it showed.

        Raises:
            PreconditionFailed: A branch was written since the dry run with these `heads`.
            MergeConflicted: Both branches changed the same thing; nothing was written, and
                `details` lists the conflicts.
        """
        identity = WriteIdentity.of(session, local_seq)
        request = merges.ask(source, target, resolutions, field_level=field_level)
        for name in (source, target):
            check_known_branch(name)
        call = self._space.calls.merge(request, identity, dry_run=dry_run, heads=heads)
        return documents.parse_merge(await self._space.connection.send(call))

    async def __aiter__(self) -> AsyncIterator[Branch]:
        """Yield the active branches in the order of creation."""
        for branch in await self.list():
            yield branch

    def __repr__(self) -> str:
        return f"<Branches of {self._space.did}>"

    async def _send(self, call: Call) -> Branch:
        response = await self._space.connection.send(call)
        return documents.to_branch(documents.parse(response, wire.BranchInfo))
