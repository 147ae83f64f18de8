"""Spaces of a server with the methods of `fourfold.Space`, for coroutines."""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

from fourfold import limits
from fourfold.blobs.protocol import Data, check_data
from fourfold.blobs.table import BLOB_LIST_PAGE
from fourfold.client import documents, sql
from fourfold.client.containers import AsyncDocumentsContainer, AsyncSpaceContainer
from fourfold.client.coroutines.connection import AsyncConnection
from fourfold.client.documents import Identity, SpaceCalls, SpacePointAt
from fourfold.client.follower import AsyncRemoteWatch
from fourfold.client.reader import EventReader
from fourfold.client.requests import Call
from fourfold.content import content_id
from fourfold.errors import InvalidInput, NotFound, Refused
from fourfold.models.documents import merge as merges
from fourfold.models.documents.ancestry import At
from fourfold.models.documents.blobs import BlobStat, meta_document, meta_id
from fourfold.models.documents.comparison import Difference
from fourfold.models.documents.documents import SpaceInfo
from fourfold.models.documents.feed import check_ids, deadline_of
from fourfold.models.documents.histories import check_history
from fourfold.models.documents.merge import MergeResult
from fourfold.models.documents.records import (
    Branch,
    Commit,
    LogEntry,
    Reads,
    Revision,
    State,
)
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

    async def list(self) -> Rows[SpaceInfo]:
        """Return the spaces, sorted by DID. Sends a request for each."""
        infos: builtins.list[SpaceInfo] = []
        async for did in self:
            info = await AsyncRemoteSpace(self._connection, did).info()
            infos.append(
                SpaceInfo(info.did, info.history, info.seq, info.branches, info.size_bytes)
            )
        return Rows(infos, SpaceInfo)

    async def __aiter__(self) -> AsyncIterator[str]:
        """Yield the DIDs of the spaces, sorted."""
        call = documents.list_spaces(self._connection.settings.address)
        async for page in self._connection.pages(call, wire.SpacePage):
            for row in page.items:
                yield row.did

    def __repr__(self) -> str:
        return f"<Documents at {self._connection.settings.address.root}>"


class AsyncRemoteSpace(AsyncSpaceContainer):
    """A space of a server, with the methods of `fourfold.Space`."""

    def __init__(self, connection: AsyncConnection, did: str) -> None:
        self.did = did
        self.connection = connection
        self.calls = SpaceCalls(connection.settings.address, did)
        self.branches = AsyncRemoteBranches(self)
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
        identity = Identity.of(session, local_seq)
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
        operation = {
            "op": "patch",
            "id": entity,
            "patches": list(patches) if isinstance(patches, tuple) else patches,
        }
        return await self.transact([operation], branch=branch)

    async def delete(self, entity: str, *, branch: str = "") -> Commit:
        """Delete an entity; its history stays readable."""
        return await self.transact([{"op": "delete", "id": entity}], branch=branch)

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

    def follow(
        self,
        ids: Iterable[str] | None = None,
        after: int | None = None,
        branch: str = "",
        *,
        timeout: float | None = None,
    ) -> AsyncRemoteWatch:
        """Iterate over the commits on a branch and wait for more.

        It continues after broken connections.

        Args:
            ids: Only commits that change one of these entities, reduced to these entities.
            after: Begin after this seq, by default after the newest commit.
            branch: The branch to follow.
            timeout: End after this many seconds without a commit.
        """
        deadline_of(timeout)
        call = self.calls.watch(None if ids is None else check_ids(ids), after, branch)
        reader = EventReader(call, documents.decode_event)
        return AsyncRemoteWatch(self.connection.settings, reader, timeout)

    def watch(
        self,
        ids: Iterable[str] | None = None,
        after: int | None = None,
        branch: str = "",
        *,
        timeout: float | None = None,
    ) -> AsyncRemoteWatch:
        """Alias of `follow`: the name in specification 000."""
        return self.follow(ids, after, branch, timeout=timeout)

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

    async def info(self) -> wire.SpaceInfo:
        """Return what the server reports about the space."""
        return documents.parse(await self.connection.send(self.calls.get()), wire.SpaceInfo)


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
        identity = Identity.of(session, local_seq)
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
        identity = Identity.of(session, local_seq)
        return await self._send(self._space.calls.delete_branch(check_known_branch(name), identity))

    async def get(self, name: str) -> Branch:
        """Return a branch, also a deleted one.

        Raises:
            NotFound: There is no branch of that name.
        """
        if not check_known_branch(name):
            return (await self.list())[0]
        return await self._send(self._space.calls.branch(name))

    async def list(self, *, deleted: bool = False) -> Rows[Branch]:
        """Return the active branches in the order of creation; with `deleted`, all of them."""
        call = self._space.calls.branches(deleted=deleted)
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
        """Return the differences between two branches, each now or at a point of its own.

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
        identity = Identity.of(session, local_seq)
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


class AsyncRemoteBlobs:
    """Blobs of one space of a server. A hash is written `sha256:<64 digits>`."""

    def __init__(self, space: AsyncRemoteSpace) -> None:
        self._space = space

    async def put(
        self,
        data: Data,
        content_type: str | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
        branch: str = "",
    ) -> str:
        """Store bytes and return their hash; an existing blob keeps its first content type.

        `metadata` replaces the metadata entity on `branch`, in a transaction of its own.
        """
        if content_type is not None and not isinstance(content_type, str):
            raise InvalidInput(f"content_type must be text, got {content_type!r:.100}")
        flat = check_data(data, limits.HTTP_BODY_MAX)
        blob = content_id(flat)
        if metadata is not None:
            meta_document(blob, len(flat), content_type, metadata)
        response = await self._space.connection.send(
            self._space.calls.put_blob(bytes(flat), content_type)
        )
        info = documents.parse(response, wire.BlobInfo)
        if metadata is not None:
            document = meta_document(blob, len(flat), content_type, metadata)
            await self._space.set(meta_id(blob), document, branch=branch)
        return info.hash

    async def describe(self, blob: str, metadata: Mapping[str, Any], *, branch: str = "") -> Commit:
        """Replace the metadata of an existing blob on `branch`."""
        stat = await self.stat(blob)
        document = meta_document(blob, stat.size, stat.content_type, metadata)
        return await self._space.set(meta_id(blob), document, branch=branch)

    async def get(self, blob: str) -> bytes:
        """Return the bytes of a blob, verified by their hash."""
        response = await self._space.connection.send(self._space.calls.get_blob(blob))
        return documents.parse_blob(response, blob)

    async def has(self, blob: str) -> bool:
        """Return True if the blob exists."""
        try:
            await self.stat(blob)
        except NotFound:
            return False
        return True

    async def stat(self, blob: str) -> BlobStat:
        """Return the size and content type of a blob."""
        call = self._space.calls.get_blob(blob, "HEAD")
        return documents.parse_stat(await self._space.connection.send(call), blob)

    async def meta(self, blob: str, branch: str = "", at: At = None) -> State | None:
        """Return the metadata entity of a blob on a branch, or None if it has none."""
        return await self._space.read(meta_id(blob), branch, at)

    async def list(
        self, *, after: str = "", limit: int = BLOB_LIST_PAGE
    ) -> builtins.list[BlobStat]:
        """Return up to `limit` blobs after the hash `after`, sorted by hash."""
        stats: builtins.list[BlobStat] = []
        pages = self._space.connection.pages(self._space.calls.blobs(), wire.BlobPage)
        async for page in pages:
            stats += [documents.to_stat(info) for info in page.items if info.hash > after]
            if len(stats) >= limit:
                break
        return stats[:limit]

    async def ids(self) -> AsyncIterator[str]:
        """Return an iterator over the hashes of all blobs, sorted."""
        pages = self._space.connection.pages(self._space.calls.blobs(), wire.BlobPage)
        async for page in pages:
            for info in page.items:
                yield info.hash
