"""Reads of many documents and of history: ids, states, revisions, the log and differences.

None of them has a bound on its cost, so all run in workers, in steps with pauses while others
write. The first page of a list fixes the seq that all its pages show.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from fourfold import limits
from fourfold.errors import TooLarge
from fourfold.models.documents import Space
from fourfold.models.documents.ancestry import BranchPoint, branch_named
from fourfold.models.documents.comparison import Change, compare
from fourfold.models.documents.records import LogEntry
from fourfold.server import cursors
from fourfold.server.open_spaces import OpenSpaces
from fourfold.server.points import parse_at
from fourfold.server.request import Reply, Request
from fourfold.server.routes import Ok, Route, bind
from fourfold.server.spaces import (
    READ_ERRORS,
    SPACE,
    optional_state,
    space_route,
)
from fourfold.server.workers import Workers
from fourfold.wire.documents import (
    ChangeRow,
    DiffPage,
    DiffQuery,
    DocumentState,
    DocumentStates,
    EntityIds,
    HistoryPage,
    HistoryQuery,
    IdPage,
    IdsQuery,
    LogPage,
    LogQuery,
    LogRow,
    Point,
    PointQuery,
    RevisionRow,
)

READ_MANY_BYTES: Final = 64 * limits.MIB
"""Size of the documents that one request may read."""
_SLICE: Final = 32
"""Rows that are read at once: they may be large, and a page ends by its size too."""
R = TypeVar("R", RevisionRow, LogRow)
_encode: Final = msgspec.json.Encoder().encode


class SpaceReads:
    """Handlers of reads of many documents."""

    def __init__(self, workers: Workers, spaces: OpenSpaces) -> None:
        self._workers = workers
        self._spaces = spaces

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of these handlers."""
        return bind(_ROUTES, self)

    def stop(self) -> None:
        """Do nothing: no request of these routes waits."""

    async def read_documents(
        self, _request: Request, did: str, query: PointQuery, body: EntityIds
    ) -> Reply:
        """Return the states of several entities at one seq."""
        return await self._run(did, _read_many, query, body.ids)

    async def list_ids(self, _request: Request, did: str, query: IdsQuery) -> Reply:
        """Return a page of the ids of existing entities."""
        return await self._run(did, _ids, query)

    async def history(self, _request: Request, did: str, entity: str, query: HistoryQuery) -> Reply:
        """Return a page of the revisions of an entity."""
        return await self._run(did, _history, entity, query)

    async def log(self, _request: Request, did: str, query: LogQuery) -> Reply:
        """Return a page of the commits of a space."""
        return await self._run(did, _log, query)

    async def diff(self, _request: Request, did: str, query: DiffQuery) -> Reply:
        """Return a page of the entities that differ between two points."""
        return await self._run(did, _diff, query)

    async def _run(self, did: str, read: Callable[..., Struct], *arguments: Any) -> Reply:
        async with self._spaces.use(did) as space:
            return Reply(await self._workers.run(read, space, *arguments), is_large=True)


def _read_many(space: Space, query: PointQuery, ids: list[str]) -> DocumentStates:
    seq = space.seq_at(parse_at(query.at), query.branch)
    states: dict[str, DocumentState | None] = {}
    size = 0
    for start in range(0, max(1, len(ids)), _SLICE):
        with space.database.paced():
            part = space.read_many(ids[start : start + _SLICE], query.branch, seq)
            for entity, state in part.items():
                states[entity] = optional_state(entity, state)
                size += len(_encode(states[entity]))
        if size > READ_MANY_BYTES:
            raise TooLarge(
                f"the documents have more than {READ_MANY_BYTES} bytes",
                hint="Read fewer of them at once.",
            )
    return DocumentStates(seq=seq, states=states)


def _ids(space: Space, query: IdsQuery) -> IdPage:
    listed = cursors.digest_of(
        "ids", space.did, query.branch, query.prefix, query.after, _or_none(query.at)
    )
    cursor = cursors.parse(query.cursor, listed, str)
    if cursor is None:
        seq, after = space.seq_at(parse_at(query.at), query.branch), query.after
    else:
        seq, after = cursor.at, cursor.after
    ids = space.ids(query.branch, seq, prefix=query.prefix, after=after, limit=query.limit + 1)
    page = ids[: query.limit]
    more = len(ids) > len(page)
    return IdPage(
        items=page,
        seq=seq,
        next_cursor=cursors.format_cursor(listed, seq, page[-1]) if more else None,
    )


def _history(space: Space, entity: str, query: HistoryQuery) -> HistoryPage:
    listed = cursors.digest_of(
        "history", space.did, entity, query.branch, _or_none(query.at), query.after
    )
    cursor = cursors.parse(query.cursor, listed, int)
    if cursor is None:
        seq, after = space.seq_at(parse_at(query.at), query.branch), query.after
    else:
        seq, after = cursor.at, cursor.after

    def read(after: int, limit: int) -> list[RevisionRow]:
        rows = space.history(entity, query.branch, after=after, at=seq, limit=limit)
        times = space.commit_times(row.seq for row in rows)
        return [
            RevisionRow(
                seq=row.seq,
                op_index=row.op_index,
                branch=row.branch,
                op=row.op,
                data=row.data,
                created_at=times[row.seq],
            )
            for row in rows
        ]

    items, more = _collect(space, read, after, query.limit)
    return HistoryPage(
        items=items,
        seq=seq,
        next_cursor=cursors.format_cursor(listed, seq, items[-1].seq) if more else None,
    )


def _log(space: Space, query: LogQuery) -> LogPage:
    listed = cursors.digest_of(
        "log",
        space.did,
        None if query.branch is UNSET else query.branch,
        _or_none(query.at),
        query.after,
    )
    cursor = cursors.parse(query.cursor, listed, int)
    if cursor is None:
        seq, after = space.seq_at(parse_at(query.at)), query.after
    else:
        seq, after = cursor.at, cursor.after

    def read(after: int, limit: int) -> list[LogRow]:
        return [_log_row(entry) for entry in space.log(after=after, until=seq, limit=limit)]

    items, more = _collect(space, read, after, query.limit)
    last = items[-1].seq if items else after
    if query.branch is not UNSET:
        space.branches.get(query.branch)
        items = [row for row in items if row.branch == query.branch]
    return LogPage(
        items=items,
        seq=seq,
        next_cursor=cursors.format_cursor(listed, seq, last) if more else None,
    )


def _log_row(entry: LogEntry) -> LogRow:
    return LogRow(
        seq=entry.seq,
        branch=entry.branch,
        session=entry.session,
        local_seq=entry.local_seq,
        created_at=entry.created_at,
        original=entry.original,
        resolution=entry.resolution,
    )


def _diff(space: Space, query: DiffQuery) -> DiffPage:
    branch_b = query.branch if query.branch_b is UNSET else query.branch_b
    listed = cursors.digest_of(
        "diff", space.did, query.branch, branch_b, _or_none(query.a), _or_none(query.b), query.id
    )
    cursor = cursors.parse(query.cursor, listed, str)
    if cursor is None:
        a, b = (
            space.seq_at(parse_at(at), branch)
            for at, branch in ((query.a, query.branch), (query.b, branch_b))
        )
        after = ""
    else:
        # Two seqs: the second is before the id.
        a, (number, _, after) = cursor.at, cursor.after.partition(":")
        b = int(number)
    with space.database.paced() as end_step, space.view() as view:
        difference = compare(
            view,
            BranchPoint(branch_named(view, query.branch).name, a),
            BranchPoint(branch_named(view, branch_b).name, b),
            query.id or None,
            after=after,
            limit=query.limit + 1,
            end_step=end_step,
        )
    items, size = [], 0
    for change in difference.changes[: query.limit]:
        items.append(_change_row(change))
        size += len(_encode(items[-1]))
        if size > limits.PAGE_BYTES:
            break
    more = len(difference.changes) > len(items)
    return DiffPage(
        items=items,
        a=Point(*difference.a),
        b=Point(*difference.b),
        base=Point(*difference.base),
        next_cursor=cursors.format_cursor(listed, a, f"{b}:{items[-1].id}") if more else None,
    )


def _change_row(change: Change) -> ChangeRow:
    return ChangeRow(
        id=change.id,
        changed_on=change.changed_on,
        a=optional_state(change.id, change.a),
        b=optional_state(change.id, change.b),
        patches=change.patches,
    )


def _or_none(text: str | UnsetType) -> str | None:
    return None if isinstance(text, UnsetType) else text


def _collect(
    space: Space, read: Callable[[int, int], list[R]], after: int, limit: int
) -> tuple[list[R], bool]:
    """Return up to `limit` rows, or fewer if they are large, and True if there are more.

    `read` returns the first rows after a seq. The rows of one seq are never split, since the next
    page starts after a seq; they may exceed the limit if they are the only ones.
    """
    items: list[R] = []
    size, more = 0, True
    while more and len(items) < limit and size <= limits.PAGE_BYTES:
        count = min(_SLICE, limit - len(items))
        with space.database.paced():
            rows = read(after, count + 1)
        more = len(rows) > count
        if more:
            whole = [row for row in rows if row.seq != rows[-1].seq]
            if not whole and items:
                break
            rows = whole or _rows_of_seq(read, after, count)
        items += rows
        size += sum(len(_encode(row)) for row in rows)
        after = items[-1].seq if items else after
    return items, more


def _rows_of_seq(read: Callable[[int, int], list[R]], after: int, count: int) -> list[R]:
    """Return all rows of the first seq after a seq."""
    while True:
        count *= 4
        rows = read(after, count)
        if len(rows) < count or rows[-1].seq != rows[0].seq:
            return [row for row in rows if row.seq == rows[0].seq]


_ROUTES: Final = (
    space_route(
        *("POST", f"{SPACE}/read", SpaceReads.read_documents),
        operation="read_documents",
        summary="Read several documents at one point of their history.",
        scope="read",
        query=PointQuery,
        body=EntityIds,
        ok={200: Ok("The states by id.", DocumentStates)},
        errors=READ_ERRORS,
    ),
    space_route(
        *("GET", f"{SPACE}/ids", SpaceReads.list_ids),
        operation="list_ids",
        summary="List the ids of existing entities.",
        scope="read",
        query=IdsQuery,
        ok={200: Ok("A page of ids.", IdPage)},
        errors=READ_ERRORS,
    ),
    space_route(
        *("GET", f"{SPACE}/history/{{entity:name}}", SpaceReads.history),
        operation="history",
        summary="List the revisions of an entity, oldest first.",
        scope="read",
        query=HistoryQuery,
        ok={200: Ok("A page of revisions.", HistoryPage)},
        errors=READ_ERRORS,
    ),
    space_route(
        *("GET", f"{SPACE}/log", SpaceReads.log),
        operation="log",
        summary="List the commits of a space, oldest first.",
        scope="read",
        query=LogQuery,
        ok={200: Ok("A page of commits.", LogPage)},
        errors=READ_ERRORS,
    ),
    space_route(
        *("GET", f"{SPACE}/diff", SpaceReads.diff),
        operation="diff",
        summary="Compare two points of the history, of one branch or of two.",
        scope="read",
        query=DiffQuery,
        ok={200: Ok("A page of the entities that differ.", DiffPage)},
        errors=READ_ERRORS,
    ),
)
