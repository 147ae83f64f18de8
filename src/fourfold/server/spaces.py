"""Documents over HTTP: spaces, their documents, and transactions.

The id of an entity may contain slashes, so it is the last part of a path, after the verb:
`/v1/spaces/{did}/history/{id}`. A document is as new as the seq of its last operation, which is its
ETag. An Idempotency-Key becomes the session of the commit, so that it is as durable as the commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import UNSET

from fourfold import limits
from fourfold.errors import (
    BranchEnded,
    HistoryTruncated,
    InvalidInput,
    NotFound,
    PreconditionFailed,
    Refused,
    ReplayMismatch,
    StaleRead,
    UniqueViolation,
)
from fourfold.models.documents import Space
from fourfold.models.documents.documents import describe_space
from fourfold.models.documents.records import Commit, State
from fourfold.server import conditions, cursors
from fourfold.server.open_spaces import OpenSpaces
from fourfold.server.points import digest_text, parse_at, parse_store_time
from fourfold.server.request import Headers, Reply, Request
from fourfold.server.routes import Ok, Route, bind
from fourfold.server.workers import Workers
from fourfold.store import Store
from fourfold.wire.documents import (
    SEQ_MAX,
    BranchQuery,
    CommitInfo,
    DocumentReadHeaders,
    DocumentState,
    NewSpaceQuery,
    Operation,
    Patches,
    PatchOperation,
    PointQuery,
    SetOperation,
    SpaceInfo,
    SpacePage,
    SpaceQuery,
    SpaceRow,
    SpacesQuery,
    Transaction,
    VersionHeaders,
    WriteHeaders,
)
from fourfold.wire.pages import IdempotencyHeaders

SPACES: Final = "/v1/spaces"
SPACE: Final = f"{SPACES}/{{did}}"
DOCUMENT: Final = f"{SPACE}/documents/{{entity:name}}"
_CACHEABLE: Final = "private, max-age=60"


class SpaceRoutes:
    """Handlers of spaces and of their documents."""

    def __init__(self, store: Store, workers: Workers, spaces: OpenSpaces) -> None:
        self._store = store
        self._workers = workers
        self._spaces = spaces

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of these handlers."""
        return bind(_ROUTES, self)

    def stop(self) -> None:
        """Do nothing: no request of these routes waits."""

    # Spaces

    async def list_spaces(self, _request: Request, query: SpacesQuery) -> Reply:
        """Return a page of spaces."""
        at = await parse_store_time(self._store, self._workers, query.at)
        return Reply(await self._workers.run(self._list_spaces, query, at), is_large=True)

    def _list_spaces(self, query: SpacesQuery, at: datetime | None) -> SpacePage:
        listed = cursors.digest_of("spaces", query.prefix, digest_text(query.at))
        cursor = cursors.parse(query.cursor, listed, str)
        after = "" if cursor is None else cursor.after
        dids = [did for did in self._store.spaces() if did.startswith(query.prefix) and did > after]
        rows: list[SpaceRow] = []
        # A page ends early where many spaces are newer than the time: each was opened.
        page = dids[: query.limit]
        for did in page:
            row = self._row(did, at)
            if row is not None:
                rows.append(row)
        more = len(dids) > len(page)
        return SpacePage(
            items=rows,
            next_cursor=cursors.format_cursor(listed, 0, page[-1]) if more else None,
        )

    def _row(self, did: str, at: datetime | None) -> SpaceRow | None:
        """Return a space as a list shows it; None if it did not exist at that time."""
        size, changed_ns = self._store.space_file(did)
        changed_at_ms = changed_ns // 1_000_000
        if at is None or changed_at_ms < at.timestamp() * 1_000:
            return SpaceRow(did=did, size_bytes=size, changed_at_ms=changed_at_ms)
        changed_at = self._store.documents.changed_at(did, at)
        if changed_at is None:
            return None
        changed_at_ms = int(datetime.fromisoformat(changed_at).timestamp() * 1_000)
        return SpaceRow(did=did, size_bytes=None, changed_at_ms=changed_at_ms)

    async def create_space(self, _request: Request, did: str, query: NewSpaceQuery) -> Reply:
        """Create a space, or return the existing one."""
        history = None if query.history is UNSET else query.history
        created = await self._spaces.create(did, history)
        async with self._spaces.use(did) as space:
            info = await self._workers.run(self._info, space, None)
        return Reply(info, 201 if created else 200, location=f"{SPACES}/{did}" if created else None)

    async def get_space(self, _request: Request, did: str, query: SpaceQuery) -> Reply:
        """Return a space."""
        async with self._spaces.use(did) as space:
            return Reply(await self._workers.run(self._info, space, parse_at(query.at)))

    def _info(self, space: Space, at: int | datetime | None) -> SpaceInfo:
        info = describe_space(space, at)
        if info is None:
            raise NotFound(f"space {space.did} did not exist at {at}")
        return SpaceInfo(
            did=space.did,
            history=info.history,  # type: ignore[arg-type]
            seq=info.seq,
            durable_seq=min(info.seq, space.database.durable(space.history_kind.seq)),
            horizon=space.horizon(),
            branches=info.branches,
            size_bytes=self._store.space_file(space.did)[0] if at is None else None,
        )

    # Documents

    async def get_document(
        self, _request: Request, did: str, entity: str, query: PointQuery
    ) -> Reply:
        """Return the state of an entity."""
        async with self._spaces.use(did) as space:
            at = parse_at(query.at)
            cached = None if at is not None else space.cached_bytes(entity, query.branch)
            is_large = cached is None or cached > limits.HTTP_LOOP_BYTES
            if is_large:
                state = await self._workers.run(space.read, entity, query.branch, at)
            else:
                state = space.read(entity, query.branch)
            headers = _cache_headers(space, at)
        if state is None or state.document is None:
            raise _no_document(did, entity, state)
        return Reply(
            document_state(entity, state), headers=headers, etag=str(state.seq), is_large=is_large
        )

    async def put_document(
        self, request: Request, did: str, entity: str, query: BranchQuery, body: dict[str, Any]
    ) -> Reply:
        """Replace the document of an entity."""
        operation = {"op": "set", "id": entity, "value": body}
        return await self._write(request, did, entity, query.branch, operation)

    async def patch_document(
        self, request: Request, did: str, entity: str, query: BranchQuery, body: Patches
    ) -> Reply:
        """Apply patches to the document of an entity."""
        operation = {"op": "patch", "id": entity, "patches": body}
        return await self._write(request, did, entity, query.branch, operation)

    async def delete_document(
        self, request: Request, did: str, entity: str, query: BranchQuery
    ) -> Reply:
        """Delete an entity."""
        return await self._write(request, did, entity, query.branch, {"op": "delete", "id": entity})

    async def _write(
        self, request: Request, did: str, entity: str, branch: str, operation: dict[str, Any]
    ) -> Reply:
        preconditions = _preconditions(request, entity)
        return await self._commit(request, did, [operation], branch, preconditions)

    async def transact(self, request: Request, did: str, body: Transaction) -> Reply:
        """Commit several operations together."""
        return await self._commit(
            request,
            did,
            [_operation(operation) for operation in body.operations],
            body.branch,
            [msgspec.to_builtins(condition) for condition in body.preconditions],
            None if body.reads is None else msgspec.to_builtins(body.reads),
            (body.session, body.local_seq),
        )

    async def _commit(  # noqa: PLR0917  (the order is that of `Space.transact`)
        self,
        request: Request,
        did: str,
        operations: list[dict[str, Any]],
        branch: str,
        preconditions: list[dict[str, Any]],
        reads: Mapping[str, Any] | None = None,
        named: tuple[str | None, int | None] = (None, None),
    ) -> Reply:
        session, local_seq = identity_of(request, *named)
        arguments = (operations, reads, session, local_seq, branch, preconditions)
        async with self._spaces.use(did) as space:
            if len(request.body) > limits.HTTP_LOOP_BYTES:
                commit = await self._workers.write(space.transact, *arguments)
            else:
                commit = await space.transact_async(*arguments)
        return Reply(commit_info(commit), etag=str(commit.seq), headers=_NO_STORE)


_NO_STORE: Final[Headers] = {"cache-control": "no-store"}


def identity_of(
    request: Request, session: str | None = None, local_seq: int | None = None
) -> tuple[str | None, int | None]:
    """Return session and local_seq of a commit, by its Idempotency-Key or as its body has them."""
    idempotent = conditions.idempotent_session(request)
    if idempotent is None:
        if session is not None and session.startswith(conditions.IDEMPOTENT_SESSION):
            raise InvalidInput(
                f"session: must not start with {conditions.IDEMPOTENT_SESSION!r}, got "
                f"{session!r:.100}",
                hint="Send the key in the header Idempotency-Key.",
            )
        return session, local_seq
    if session is not None or local_seq is not None:
        raise InvalidInput(
            "send an Idempotency-Key, or session and local_seq, but not both",
        )
    return idempotent, 1


def document_state(entity: str, state: State) -> DocumentState:
    """Return the state of an entity as a response has it."""
    return DocumentState(id=entity, seq=state.seq, op=state.op, document=state.document)


def optional_state(entity: str, state: State | None) -> DocumentState | None:
    """Return the state of an entity as a response has it; None if it was never written."""
    return None if state is None else document_state(entity, state)


def commit_info(commit: Commit) -> CommitInfo:
    """Return a commit as a response has it."""
    return CommitInfo(
        seq=commit.seq,
        branch=commit.branch,
        session=commit.session,
        local_seq=commit.local_seq,
        replayed=commit.replayed,
    )


def _operation(operation: Operation) -> dict[str, Any]:
    """Return an operation as the model has it."""
    if isinstance(operation, SetOperation):
        return {"op": "set", "id": operation.id, "value": operation.value}
    if isinstance(operation, PatchOperation):
        return {"op": "patch", "id": operation.id, "patches": operation.patches}
    return {"op": "delete", "id": operation.id}


def _preconditions(request: Request, entity: str) -> list[dict[str, Any]]:
    """Return the preconditions that the headers of a write state."""
    preconditions: list[dict[str, Any]] = []
    version = conditions.parse_if_match(request)
    if version == conditions.ANY:
        preconditions.append({"kind": "exists", "id": entity})
    elif version is not None:
        if not version.isdecimal() or len(version) > len(str(SEQ_MAX)):
            raise PreconditionFailed(
                f"{entity!r:.100} never had the ETag {version!r:.80}", details={"entity": entity}
            )
        preconditions.append({"kind": "seq", "id": entity, "seq": min(int(version), SEQ_MAX)})
    if conditions.must_not_exist(request):
        # A deleted entity does not exist either, unlike for the precondition `absent`.
        preconditions.append({"kind": "not_exists", "id": entity})
    return preconditions


def _cache_headers(space: Space, at: int | datetime | None) -> Headers:
    """Return the headers for caches: a durable past does not change, but gc may remove it."""
    if isinstance(at, int) and at <= space.database.durable(space.history_kind.seq):
        return {"cache-control": _CACHEABLE}
    return {}


def _no_document(did: str, entity: str, state: State | None) -> NotFound:
    details: dict[str, object] = {"did": did, "entity": entity, "deleted": state is not None}
    if state is not None:
        details["seq"] = state.seq
    what = "has no entity" if state is None else "has deleted the entity"
    return NotFound(f"space {did} {what} {entity!r:.100}", details=details)


WRITE_ERRORS: Final = (
    *(NotFound, StaleRead, PreconditionFailed, ReplayMismatch, BranchEnded),
    *(HistoryTruncated, UniqueViolation),
)
READ_ERRORS: Final = (NotFound, HistoryTruncated)


def space_route(method: str, path: str, handler: Any, **options: Any) -> Route:
    """Return a route of documents; a key must be for the space in its path."""
    return Route(method, path, handler, model="documents", **{"resource": "did", **options})


def _write_route(method: str, handler: Any, body: Any = None, **options: Any) -> Route:
    return space_route(
        *(method, DOCUMENT, handler),
        scope="write",
        query=BranchQuery,
        headers=WriteHeaders,
        body=body,
        ok={200: Ok("Committed.", CommitInfo, VersionHeaders)},
        errors=WRITE_ERRORS,
        **options,
    )


_ROUTES: Final = (
    space_route(
        *("GET", DOCUMENT, SpaceRoutes.get_document),
        operation="get_document",
        summary="Get a document, now or at a point of its history.",
        scope="read",
        query=PointQuery,
        headers=DocumentReadHeaders,
        ok={
            200: Ok("The state of the entity.", DocumentState, VersionHeaders),
            304: Ok("The client has this version already.", headers=VersionHeaders),
        },
        errors=READ_ERRORS,
    ),
    _write_route(
        *("PUT", SpaceRoutes.put_document, dict[str, Any]),
        operation="put_document",
        summary="Replace a document.",
    ),
    _write_route(
        *("PATCH", SpaceRoutes.patch_document, Patches),
        operation="patch_document",
        summary="Apply patches to a document; a missing one starts as {}.",
    ),
    _write_route(
        *("DELETE", SpaceRoutes.delete_document),
        operation="delete_document",
        summary="Delete a document; its history stays readable.",
    ),
    space_route(
        *("POST", f"{SPACE}/transact", SpaceRoutes.transact),
        operation="transact",
        summary="Commit several operations together, or none of them.",
        scope="write",
        headers=IdempotencyHeaders,
        body=Transaction,
        ok={200: Ok("Committed.", CommitInfo, VersionHeaders)},
        errors=WRITE_ERRORS,
    ),
    space_route(
        *("GET", SPACES, SpaceRoutes.list_spaces),
        operation="list_spaces",
        summary="List spaces in the order of their DIDs, now or at a time.",
        scope="read",
        resource="prefix",
        query=SpacesQuery,
        ok={200: Ok("A page of spaces.", SpacePage)},
        errors=(NotFound,),
    ),
    space_route(
        *("PUT", SPACE, SpaceRoutes.create_space),
        operation="create_space",
        summary="Create a space; idempotent.",
        scope="write",
        query=NewSpaceQuery,
        ok={200: Ok("It exists.", SpaceInfo), 201: Ok("It was created.", SpaceInfo)},
        errors=(Refused,),
    ),
    space_route(
        *("GET", SPACE, SpaceRoutes.get_space),
        operation="get_space",
        summary="Get a space, now or at a point: its newest seq, its horizon and its size.",
        scope="read",
        query=SpaceQuery,
        ok={200: Ok("The space.", SpaceInfo)},
        errors=(NotFound,),
    ),
)
