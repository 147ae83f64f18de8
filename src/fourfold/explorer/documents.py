"""Pages of documents: the spaces, the entities of a space, and a document with its history."""

from __future__ import annotations

import asyncio
import secrets
from datetime import datetime
from typing import Any, ClassVar, Final

import msgspec
from msgspec import Struct, field

from fourfold import limits
from fourfold.content.filters import decode_filter
from fourfold.errors import InvalidInput, NotFound, PreconditionFailed
from fourfold.explorer import values
from fourfold.explorer.differences import Author, differences, find_authors
from fourfold.explorer.drawings import Bar
from fourfold.explorer.links import format_at
from fourfold.explorer.page import ExplorerPage, ExplorerQuery, Form, Fragment, Visit
from fourfold.explorer.space_search import SpaceSearchQuery, search_space
from fourfold.wire.documents import (
    BranchInfo,
    BranchPage,
    DocumentState,
    DocumentStates,
    HistoryPage,
    IdPage,
    LogPage,
    LogRow,
    RevisionRow,
    SpaceInfo,
    SpacePage,
)
from fourfold.wire.find import FacetPage, FoundDocuments, IndexPage, IndexRow

PAGE_ROWS: Final = 50
COMMITS_SHOWN: Final = 12
REVISIONS_SHOWN: Final = 400
"""Revisions of a time bar; links lead to earlier ones."""
BARS_MAX: Final = 160
HISTORY_PAGES: Final = 8
FACETS_SHOWN: Final = 3
FACET_VALUES: Final = 6
"""Indexes whose values the page of a space shows, and values of each."""
MAIN: Final = "main"
"""Displayed name of the default branch, whose name is empty."""


class SpacesPageQuery(ExplorerQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the list of spaces."""

    prefix: str = ""
    cursor: str = ""


class SpacePageQuery(SpaceSearchQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the page of a space."""

    did: str
    branch: str = ""
    prefix: str = ""
    cursor: str = ""


class DocumentQuery(ExplorerQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the page of a document."""

    did: str
    id: str
    branch: str = ""
    start: int | None = field(default=None, name="from")
    """Seq to compare with; by default that of the revision before."""
    end: int | None = None
    """Last seq of the time bar; by default now."""
    blame: int = 0
    """1 to show which commit last set each value."""


class RestoreQuery(ExplorerQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the preview of a restored state."""

    did: str
    id: str
    seq: int
    branch: str = ""
    moved: int = 0
    """1 if the document changed after an earlier preview."""


class RestoreFields(Struct, kw_only=True, frozen=True):
    """Fields of the form that restores a state."""

    did: str
    id: str
    seq: int
    current: int
    """Seq of the document in the preview; 0 if it did not exist."""
    branch: str = ""


class BranchFields(Struct, kw_only=True, frozen=True):
    """Fields of the form that creates a branch."""

    did: str
    name: str
    parent: str = ""
    seq: str = ""
    id: str = ""
    """Document to show on the new branch; empty for the list of branches."""
    token: str
    """Idempotency key: sending the form again creates no second branch."""


# Spaces


async def spaces_page(visit: Visit, query: SpacesPageQuery) -> dict[str, Any]:
    """List spaces by prefix, a page at a time."""
    prefix = await visit.list_prefix("documents", query.prefix)
    page = await visit.api.get(
        *("/v1/spaces", SpacePage),
        prefix=prefix,
        cursor=query.cursor,
        limit=PAGE_ROWS,
        at=visit.time,
    )
    return {
        "prefix": prefix,
        "cursor": query.cursor,
        "spaces": page.items,
        "next_cursor": page.next_cursor,
    }


async def space_page(visit: Visit, query: SpacePageQuery) -> dict[str, Any]:
    """Show the entities of a space by prefix or filter, its branches and its newest commits."""
    path = f"/v1/spaces/{query.did}"
    info, branches = await asyncio.gather(
        visit.api.get(path, SpaceInfo), read_branches(visit, query.did)
    )
    branch = branch_at(branches, query.branch, visit.at)
    if visit.at is not None:
        branches = await read_branches(visit, query.did, format_at(visit.at))
    point = {"branch": branch, "at": format_at(visit.at)}
    indexes = (await visit.api.get(f"{path}/indexes", IndexPage)).items
    filters = query.where and not query.searches
    entities, log, facets, liked = await asyncio.gather(
        _find_entities(visit, query, point) if filters else _list_ids(visit, query, point),
        newest_commits(visit, query.did, info.seq),
        _read_facets(visit, query.did, indexes, point),
        read_states(visit, query.did, [query.like] if query.like else [], **point),
    )
    vectors = [row for row in indexes if row.kind == "vector"]
    return {
        **await search_space(
            *(visit, query.did, query, vectors), liked=liked.get(query.like), point=point
        ),
        "q": query.q,
        "vector": query.vector,
        "like": query.like,
        "index": query.index,
        "searches": query.searches,
        "indexes": indexes,
        "vectors": vectors,
        "seq": info.seq,
        "find_problem": "",
        "plan": None,
        **entities,
        "facets": facets,
        "space": info,
        "branch": query.branch,
        "branches": branches,
        "prefix": query.prefix,
        "where": query.where,
        "cursor": query.cursor,
        "commits": [commit_row(row, visit.now_ms) for row in reversed(log)],
    }


async def _list_ids(visit: Visit, query: SpacePageQuery, point: dict[str, str]) -> dict[str, Any]:
    """Return a page of the entities by prefix."""
    page = await visit.api.get(
        *(f"/v1/spaces/{query.did}/ids", IdPage),
        prefix=query.prefix,
        cursor=query.cursor,
        limit=PAGE_ROWS,
        **point,
    )
    states = await read_states(visit, query.did, page.items, **point)
    return {
        "entities": [_entity_row(name, states.get(name)) for name in page.items],
        "next_cursor": page.next_cursor,
        "seq": page.seq,
    }


async def _find_entities(
    visit: Visit, query: SpacePageQuery, point: dict[str, str]
) -> dict[str, Any]:
    """Return a page of the entities that match the filter, or why there are none."""
    body: dict[str, Any] = {name: value for name, value in point.items() if value}
    if query.cursor:
        body["cursor"] = query.cursor
    try:
        body |= {"where": decode_filter(query.where).where, "limit": PAGE_ROWS}
        page = await visit.api.post(f"/v1/spaces/{query.did}/find", FoundDocuments, body)
    except InvalidInput as error:
        return {"entities": [], "next_cursor": None, "find_problem": f"{error.message}."}
    return {
        "entities": [
            {"id": row.id, "seq": row.seq, "document": row.document} for row in page.items
        ],
        "next_cursor": page.next_cursor,
        "seq": page.seq,
        "plan": page.plan,
    }


async def _read_facets(
    visit: Visit, did: str, indexes: list[IndexRow], point: dict[str, str]
) -> list[dict[str, Any]]:
    """Return the most frequent values of some indexes, each with a filter that selects it."""
    path = f"/v1/spaces/{did}"
    body = {name: value for name, value in point.items() if value}
    facets = []
    for row in [row for row in indexes if _has_facets(row)][:FACETS_SHOWN]:
        field_path = row.paths[0]
        request = {**body, "path": field_path, "limit": FACET_VALUES}
        page = await visit.api.post(f"{path}/facets", FacetPage, request)
        rows = [
            {
                "value": facet.value,
                "count": facet.count,
                "where": msgspec.json.encode({field_path: facet.value}).decode(),
            }
            for facet in page.items
        ]
        facets.append({"path": field_path, "rows": rows})
    return facets


def _has_facets(row: IndexRow) -> bool:
    """Return True for a built index whose values are quick to count, at any point."""
    is_plain = row.kind == "value" and len(row.paths) == 1 and "*" not in row.paths[0].split("/")
    return is_plain and row.state != "building" and row.history == "all"


async def read_states(
    visit: Visit, did: str, ids: list[str], *, branch: str = "", at: str = ""
) -> dict[str, DocumentState | None]:
    """Return the states of several entities at one point."""
    if not ids:
        return {}
    path = f"/v1/spaces/{did}/read"
    response = await visit.api.call("POST", path, {"ids": ids}, branch=branch, at=at)
    return visit.api.decode(response, DocumentStates).states


async def read_branches(visit: Visit, did: str, at: str = "") -> list[BranchInfo]:
    """Return a page of the branches of a space, deleted ones included, now or at a point."""
    path = f"/v1/spaces/{did}/branches"
    page = await visit.api.get(path, BranchPage, deleted="true", at=at, limit=limits.PAGE_ITEMS_MAX)
    return page.items


async def newest_commits(visit: Visit, did: str, seq: int) -> list[LogRow]:
    """Return the newest commits up to the time of the visit, oldest first."""
    at = format_at(visit.at)
    if isinstance(visit.at, int):
        seq = min(seq, visit.at)
    after = max(0, seq - COMMITS_SHOWN)
    path = f"/v1/spaces/{did}/log"
    if not at or isinstance(visit.at, int):
        page = await visit.api.get(path, LogPage, after=after, limit=COMMITS_SHOWN, at=at)
        return page.items
    page = await visit.api.get(path, LogPage, at=at, limit=1)
    after = max(0, page.seq - COMMITS_SHOWN)
    page = await visit.api.get(path, LogPage, after=after, limit=COMMITS_SHOWN, at=at)
    return page.items


def branch_at(branches: list[BranchInfo], name: str, at: int | datetime | None) -> str:
    """Return the branch that showed the states of a branch at a point, before it was created."""
    known = {branch.name: branch for branch in branches}
    while at is not None and name in known and known[name].parent is not None:
        branch = known[name]
        exists = (
            branch.created_seq <= at
            if isinstance(at, int)
            else values.to_ms(branch.created_at) <= at.timestamp() * 1000
        )
        if exists:
            break
        name = branch.parent or ""
    return name


def _entity_row(name: str, state: DocumentState | None) -> dict[str, Any]:
    document = None if state is None else state.document
    return {"id": name, "seq": 0 if state is None else state.seq, "document": document}


def commit_row(row: LogRow, now_ms: int) -> dict[str, Any]:
    """Return a commit for a table: what it changed, on which branch, and when."""
    original = row.original
    operations = original.get("operations", [])
    merge = original.get("merge")
    if "cmd" in original:
        change = original["cmd"].replace("branch/", "") + f" branch {original.get('name', '')}"
    elif merge is not None:
        change = f"merge {merge.get('source') or MAIN}"
    else:
        change = ", ".join(_operation_text(operation) for operation in operations[:3])
    return {
        "seq": row.seq,
        "branch": row.branch,
        "at_ms": values.to_ms(row.created_at),
        "age": values.age(values.to_ms(row.created_at), now_ms),
        "session": row.session,
        "ids": [operation["id"] for operation in operations],
        "change": change,
        "source": None if merge is None else merge.get("source"),
    }


def _operation_text(operation: dict[str, Any]) -> str:
    patches = operation.get("patches", [])
    paths = " ".join(str(patch.get("path", "")) for patch in patches[:3])
    return f"{operation['op']} {paths}".strip()


# A document


class DocumentReader:
    """Read a document at points of its history."""

    page: ClassVar[str] = "/document"
    """Path of the page that shows it."""

    def __init__(
        self, visit: Visit, query: DocumentQuery | RestoreQuery, branches: list[BranchInfo]
    ) -> None:
        self._visit = visit
        self._query = query
        self._branches = branches
        self._path = f"/v1/spaces/{query.did}"

    async def state(self, at: int | datetime | None) -> DocumentState | None:
        """Return the state at a point; None if the document was not written until then."""
        query = self._query
        branch = branch_at(self._branches, query.branch, at)
        states = await read_states(
            self._visit, query.did, [query.id], branch=branch, at=format_at(at)
        )
        return states.get(query.id)

    async def commit(self, seq: int) -> dict[str, Any] | None:
        """Return a commit by its seq; None if gc has removed it."""
        page = await self._visit.api.get(f"{self._path}/log", LogPage, after=seq - 1, limit=1)
        return commit_row(page.items[0], self._visit.now_ms) if page.items else None

    async def authors(self, state: DocumentState) -> dict[str, int]:
        """Return for each value of a state the seq that last set it."""
        revisions, _ = await self.revisions(state.seq)
        newest_first = [
            Author(revision.seq, revision.op, revision.data) for revision in reversed(revisions)
        ]
        return find_authors(state.document, newest_first)

    async def changes(self, state: DocumentState | None, start: int) -> dict[str, Any]:
        """Return what changed between the seq `start` and a state."""
        before = await self.state(start) if start else None
        after = state
        if before is not None and after is not None and before.seq > after.seq:
            before, after = after, before
        changes = differences(
            None if before is None else before.document, None if after is None else after.document
        )
        changed = [change.path for change in changes if change.sign != "-"]
        return {"start": start, "changes": changes, "changed": changed}

    async def revisions(self, end: int) -> tuple[list[RevisionRow], bool]:
        """Return the newest revisions up to a seq, oldest first; True if there are earlier ones.

        The API lists them oldest first, so the start is searched in growing steps back.
        """
        width = REVISIONS_SHOWN
        while True:
            after = max(0, end - width)
            rows = await self._history(after, end)
            if len(rows) >= REVISIONS_SHOWN or after == 0:
                return rows[-REVISIONS_SHOWN:], after > 0 or len(rows) > REVISIONS_SHOWN
            width *= 4

    async def _history(self, after: int, end: int) -> list[RevisionRow]:
        rows: list[RevisionRow] = []
        cursor: str | None = ""
        for _ in range(HISTORY_PAGES):
            page = await self._visit.api.get(
                *(f"{self._path}/history/{self._query.id}", HistoryPage),
                branch=branch_at(self._branches, self._query.branch, end),
                at=str(end),
                after=after,
                cursor=cursor,
                limit=limits.PAGE_ITEMS_MAX,
            )
            rows += page.items
            cursor = page.next_cursor
            if cursor is None:
                break
        return rows


async def document_page(visit: Visit, query: DocumentQuery) -> dict[str, Any]:
    """Show a document at a point of its history, what changed, and the time bar."""
    return await read_document(visit, query, DocumentReader)


async def read_document(
    visit: Visit, query: DocumentQuery, make_reader: type[DocumentReader]
) -> dict[str, Any]:
    """Return what a page shows of a document, as `make_reader` reads it."""
    info, branches = await asyncio.gather(
        visit.api.get(f"/v1/spaces/{query.did}", SpaceInfo), read_branches(visit, query.did)
    )
    reader = make_reader(visit, query, branches)
    view = await _read_view(visit, query, reader)
    state: DocumentState | None = view["state"]
    end = query.end or info.seq
    revisions, has_earlier = await reader.revisions(end)
    if state is not None and revisions and state.seq < revisions[0].seq and query.end is None:
        # The point is before the bar: show the part of the history that ends there.
        end = state.seq
        revisions, has_earlier = await reader.revisions(end)
    if state is None and not revisions:
        raise NotFound(
            f"space {query.did} has no entity {query.id!r:.100}",
            hint="Check the id and the branch; entities are listed on the page of the space.",
        )
    seqs = list(dict.fromkeys(revision.seq for revision in revisions))
    if query.start is None and state is not None:
        before = [seq for seq in seqs if seq < state.seq]
        view |= await reader.changes(state, before[-1] if before else 0)
    return {
        "space": info,
        "id": query.id,
        "branch": query.branch,
        "branches": [branch for branch in branches if branch.status == "active"],
        **view,
        "seqs": seqs,
        "bars": _bars(visit, query, revisions, reader.page),
        "first_at_ms": values.to_ms(revisions[0].created_at) if revisions else None,
        "last_at_ms": values.to_ms(revisions[-1].created_at) if revisions else None,
        "has_earlier": has_earlier,
        "end": end if end < info.seq else None,
        "token": secrets.token_hex(16),
    }


async def document_part(visit: Visit, query: DocumentQuery) -> dict[str, Any]:
    """Show what changes on the page of a document with a step of its time bar."""
    return await read_step(visit, query, DocumentReader)


async def read_step(
    visit: Visit, query: DocumentQuery, make_reader: type[DocumentReader]
) -> dict[str, Any]:
    """Return what changes on the page of a document with a step of its time bar."""
    info, branches = await asyncio.gather(
        visit.api.get(f"/v1/spaces/{query.did}", SpaceInfo), read_branches(visit, query.did)
    )
    view = await _read_view(visit, query, make_reader(visit, query, branches))
    return {"space": info, "id": query.id, "branch": query.branch, **view}


async def _read_view(visit: Visit, query: DocumentQuery, reader: DocumentReader) -> dict[str, Any]:
    """Return the state at the point of the visit, its commit, authors and changes."""
    state, newest = await asyncio.gather(reader.state(visit.at), reader.state(None))
    commit, authors = None, None
    if state is not None:
        commit = await reader.commit(state.seq)
        authors = await reader.authors(state) if query.blame else None
    return {
        "state": state,
        "newest": newest,
        "commit": commit,
        "authors": authors,
        "blame": bool(query.blame),
        **await reader.changes(state, query.start or 0),
    }


def _bars(visit: Visit, query: DocumentQuery, revisions: list[RevisionRow], page: str) -> list[Bar]:
    """Return a bar for each revision, or for several neighbours if there are many."""
    count = min(len(revisions), BARS_MAX)
    bars = []
    for number in range(count):
        group = revisions[number * len(revisions) // count : (number + 1) * len(revisions) // count]
        last = group[-1]
        operations = {revision.op for revision in group}
        op = next(op for op in ("delete", "set", "patch") if op in operations)
        title = f"seq {last.seq}, {last.op}, {values.clock(values.to_ms(last.created_at))} UTC"
        if len(group) > 1:
            title = f"seq {group[0].seq} to {last.seq}, {len(group)} revisions"
        url = visit.link(
            page,
            did=query.did,
            id=query.id,
            branch=query.branch,
            at=last.seq,
            **{"from": query.start, "end": query.end, "blame": query.blame or None},
        )
        size = sum(len(values.dump(revision.data)) for revision in group)
        bars.append(Bar(last.seq, op, size, url, title))
    return bars


# Changes


async def restore_page(visit: Visit, query: RestoreQuery) -> dict[str, Any]:
    """Show what restoring an earlier state of a document would change."""
    reader = DocumentReader(visit, query, await read_branches(visit, query.did))
    current, then, info = await asyncio.gather(
        reader.state(None),
        reader.state(query.seq),
        visit.api.get(f"/v1/spaces/{query.did}", SpaceInfo),
    )
    changes = differences(
        None if current is None else current.document, None if then is None else then.document
    )
    return {
        "space": info,
        "id": query.id,
        "branch": query.branch,
        "seq": query.seq,
        "current": current,
        "then": then,
        "changes": changes,
        "moved": bool(query.moved),
    }


async def restore(visit: Visit, fields: RestoreFields) -> str:
    """Write an earlier state of a document again, unless the document has changed meanwhile."""
    query = RestoreQuery(did=fields.did, id=fields.id, branch=fields.branch, seq=fields.seq)
    reader = DocumentReader(visit, query, await read_branches(visit, query.did))
    then = await reader.state(fields.seq)
    path = f"/v1/spaces/{fields.did}/documents/{fields.id}"
    headers = {"if-match": f'"{fields.current}"'} if fields.current else {"if-none-match": "*"}
    address = {"did": fields.did, "id": fields.id, "branch": fields.branch}
    method = "DELETE" if then is None or then.document is None else "PUT"
    body = None if then is None else then.document
    try:
        await visit.api.call(method, path, body, headers, branch=fields.branch)
    except PreconditionFailed:
        return visit.link("/restore", **address, seq=fields.seq, moved=1)
    return visit.link("/document", **address)


async def create_branch(visit: Visit, fields: BranchFields) -> str:
    """Create a branch at a point of the history of another one."""
    if not fields.name:
        raise InvalidInput("branch: the name is empty", hint="Enter a name.")
    body = {"name": fields.name, "parent": fields.parent}
    if fields.seq:
        body |= {"at": fields.seq}
    headers = {"idempotency-key": fields.token}
    await visit.api.call("POST", f"/v1/spaces/{fields.did}/branches", body, headers)
    if fields.id:
        return visit.link("/document", did=fields.did, id=fields.id, branch=fields.name)
    return visit.link("/branches", did=fields.did)


PAGES: Final = (
    ExplorerPage("/documents", "documents.html", spaces_page, SpacesPageQuery, "List spaces."),
    ExplorerPage("/space", "space.html", space_page, SpacePageQuery, "Show a space."),
    ExplorerPage("/document", "document.html", document_page, DocumentQuery, "Show a document."),
    ExplorerPage(
        "/restore", "restore.html", restore_page, RestoreQuery, "Preview a restored state."
    ),
)
FRAGMENTS: Final = (
    Fragment("/document.part", "document_part.html", document_part, DocumentQuery, "Step in time."),
)
FORMS: Final = (
    Form("/restore", restore, RestoreFields, "Restore a state."),
    Form("/branch", create_branch, BranchFields, "Create a branch."),
)
