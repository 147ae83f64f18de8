"""Branches of spaces over HTTP, and merges.

A merge is shown first with `dry_run`. Its ETag is the version of both branches: sent as If-Match
with the merge itself, it is refused (412) if either has changed since.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET

from fourfold.errors import (
    AlreadyExists,
    BranchEnded,
    HistoryTruncated,
    InvalidInput,
    MergeConflicted,
    NotFound,
    PreconditionFailed,
    Refused,
    ReplayMismatch,
    StaleRead,
    UniqueViolation,
)
from fourfold.models.documents import ABSENT, OURS, THEIRS, Branch, Distance, Space
from fourfold.models.documents.ancestry import At
from fourfold.models.documents.merge import MergeResult
from fourfold.server import conditions, cursors
from fourfold.server.open_spaces import OpenSpaces
from fourfold.server.points import digest_text, parse_at
from fourfold.server.request import Reply, Request
from fourfold.server.routes import Ok, Route, bind
from fourfold.server.spaces import (
    SPACE,
    SPACES,
    commit_info,
    identity_of,
    optional_state,
    space_route,
)
from fourfold.server.workers import Workers
from fourfold.wire.documents import (
    BranchesQuery,
    BranchInfo,
    BranchPage,
    ConflictInfo,
    Merge,
    MergeHeaders,
    MergeOutcome,
    NewBranch,
    Operation,
    Point,
    Resolution,
    SpaceQuery,
    VersionHeaders,
)
from fourfold.wire.pages import IdempotencyHeaders

BRANCHES: Final = f"{SPACE}/branches"
BRANCH: Final = f"{BRANCHES}/{{branch:name}}"
_CHOICES: Final = {"ours": OURS, "theirs": THEIRS}


class BranchRoutes:
    """Handlers of the branches of spaces."""

    def __init__(self, workers: Workers, spaces: OpenSpaces) -> None:
        self._workers = workers
        self._spaces = spaces

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of these handlers."""
        return bind(_ROUTES, self)

    def stop(self) -> None:
        """Do nothing: no request of these routes waits."""

    async def list_branches(self, _request: Request, did: str, query: BranchesQuery) -> Reply:
        """Return a page of branches."""
        async with self._spaces.use(did) as space:
            return Reply(await self._workers.run(_list, space, query), is_large=True)

    async def get_branch(
        self, _request: Request, did: str, branch: str, query: SpaceQuery
    ) -> Reply:
        """Return a branch, also a deleted one."""
        async with self._spaces.use(did) as space:
            info = await self._workers.run(_get, space, branch, parse_at(query.at))
        return Reply(info, etag=f"{info.head_seq}-{info.status}-{info.ahead}-{info.missing}")

    async def create_branch(self, request: Request, did: str, body: NewBranch) -> Reply:
        """Create a branch."""
        session, local_seq = identity_of(request)
        async with self._spaces.use(did) as space:
            created = await self._workers.write(
                *(space.branches.create, body.name, body.parent, parse_at(body.at)),
                session=session,
                local_seq=local_seq,
            )
        location = f"{SPACES}/{did}/branches/{created.name}"
        return Reply(_branch_info(created), 201, location=location)

    async def delete_branch(self, request: Request, did: str, branch: str) -> Reply:
        """Delete a branch."""
        session, local_seq = identity_of(request)
        async with self._spaces.use(did) as space:
            deleted = await self._workers.write(
                space.branches.delete, branch, session=session, local_seq=local_seq
            )
        return Reply(_branch_info(deleted))

    async def merge(self, request: Request, did: str, body: Merge) -> Reply:
        """Merge a branch into another, or show what that would do."""
        session, local_seq = identity_of(request)
        async with self._spaces.use(did) as space:
            result = await self._workers.write(
                *(space.branches.merge, body.source, body.target),
                resolutions=_resolutions(body.resolutions),
                field_level=body.field_level,
                session=session,
                local_seq=local_seq,
                dry_run=body.dry_run,
                heads=_parse_heads(request),
            )
        etag = "{}-{}".format(*result.heads) if body.dry_run else None
        return Reply(
            _outcome(result), etag=etag, headers={"cache-control": "no-store"}, is_large=True
        )


def _get(space: Space, name: str, at: At) -> BranchInfo:
    return _branch_info(space.branches.get(name, at=at), space.branches.distance(name, at=at))


def _list(space: Space, query: BranchesQuery) -> BranchPage:
    listed = cursors.digest_of("branches", space.did, query.deleted, digest_text(query.at))
    cursor = cursors.parse(query.cursor, listed, int)
    after = -1 if cursor is None else cursor.after
    at = parse_at(query.at)
    branches = [
        branch
        for branch in space.branches.list(deleted=query.deleted == "true", at=at)
        if branch.created_seq > after
    ]
    page = branches[: query.limit]
    more = len(branches) > len(page)
    return BranchPage(
        items=[_branch_info(row, space.branches.distance(row.name, at=at)) for row in page],
        next_cursor=cursors.format_cursor(listed, 0, page[-1].created_seq) if more else None,
    )


def _branch_info(branch: Branch, distance: Distance | None = None) -> BranchInfo:
    return BranchInfo(
        name=branch.name,
        parent=branch.parent,
        fork_seq=branch.fork_seq,
        created_seq=branch.created_seq,
        head_seq=branch.head_seq,
        status="active" if branch.active else "deleted",
        created_at=branch.created_at,
        ahead=None if distance is None else distance.ahead,
        missing=None if distance is None else distance.missing,
    )


def _parse_heads(request: Request) -> tuple[int, int] | None:
    """Return the heads in If-Match, which is the ETag of a dry run."""
    version = conditions.parse_if_match(request)
    if version is None or version == conditions.ANY:
        return None
    source, _, target = version.partition("-")
    if not (source.isdecimal() and target.isdecimal() and version.isascii()):
        raise PreconditionFailed(
            f"{version!r:.80} is not the ETag of a merge",
            hint="Send the ETag of the response to the same merge with dry_run.",
        )
    return int(source[:20]), int(target[:20])


def _resolutions(resolutions: list[Resolution]) -> dict[Any, Any]:
    """Return resolutions as the model has them."""
    decided: dict[Any, Any] = {}
    for resolution in resolutions:
        key = resolution.id if resolution.path is UNSET else (resolution.id, resolution.path)
        if (resolution.choice is UNSET) == (resolution.value is UNSET) or key in decided:
            raise InvalidInput(
                f"resolution of {key!r:.100}: must be sent once, with a choice or a value"
            )
        if resolution.choice is UNSET:
            decided[key] = resolution.value
        elif resolution.choice == "delete":
            decided[key] = None if resolution.path is UNSET else ABSENT
        else:
            decided[key] = _CHOICES[resolution.choice]
    return decided


def _outcome(result: MergeResult) -> MergeOutcome:
    return MergeOutcome(
        source=Point(*result.source),
        target=Point(*result.target),
        base=Point(*result.base),
        operations=msgspec.convert(list(result.operations), list[Operation]),
        conflicts=[
            ConflictInfo(
                id=conflict.id,
                paths=list(conflict.paths),
                base=optional_state(conflict.id, conflict.base),
                source=optional_state(conflict.id, conflict.source),
                target=optional_state(conflict.id, conflict.target),
            )
            for conflict in result.conflicts
        ],
        commit=None if result.commit is None else commit_info(result.commit),
    )


_ROUTES: Final = (
    space_route(
        *("GET", BRANCHES, BranchRoutes.list_branches),
        operation="list_branches",
        summary="List the branches of a space in the order of creation, now or at a point.",
        scope="read",
        query=BranchesQuery,
        ok={200: Ok("A page of branches.", BranchPage)},
        errors=(NotFound,),
    ),
    space_route(
        *("POST", BRANCHES, BranchRoutes.create_branch),
        operation="create_branch",
        summary="Create a branch from a point of its parent.",
        scope="write",
        headers=IdempotencyHeaders,
        body=NewBranch,
        ok={201: Ok("It was created, now or by an earlier request with this key.", BranchInfo)},
        errors=(NotFound, AlreadyExists, HistoryTruncated, ReplayMismatch),
    ),
    space_route(
        *("GET", BRANCH, BranchRoutes.get_branch),
        operation="get_branch",
        summary="Get a branch, also a deleted one, now or at a point.",
        scope="read",
        query=SpaceQuery,
        ok={
            200: Ok("The branch.", BranchInfo, VersionHeaders),
            304: Ok("The client has this version already.", headers=VersionHeaders),
        },
        errors=(NotFound,),
    ),
    space_route(
        *("DELETE", BRANCH, BranchRoutes.delete_branch),
        operation="delete_branch",
        summary="Delete a branch: it stays readable, and its name is not used again.",
        scope="write",
        headers=IdempotencyHeaders,
        ok={200: Ok("It was deleted.", BranchInfo)},
        errors=(NotFound, BranchEnded, Refused, ReplayMismatch),
    ),
    space_route(
        *("POST", f"{SPACE}/merges", BranchRoutes.merge),
        operation="merge",
        summary="Merge a branch into another; with dry_run, show what that would do.",
        scope="write",
        headers=MergeHeaders,
        body=Merge,
        ok={200: Ok("What was merged, or would be.", MergeOutcome, VersionHeaders)},
        errors=(
            *(NotFound, MergeConflicted, UniqueViolation, StaleRead, BranchEnded),
            HistoryTruncated,
            *(PreconditionFailed, ReplayMismatch),
        ),
    ),
)
