"""A space that is used over HTTP, with the methods of `Space`, for tests that compare the two.

Requests and responses are whole, in bytes, and pass the route table; only the socket is missing.
Lists are read in small pages. What has no route is done in process.
"""

from __future__ import annotations

import json
from datetime import datetime
from urllib.parse import urlencode

from fourfold import errors
from fourfold.models.documents import (
    ABSENT,
    OURS,
    THEIRS,
    Branch,
    Commit,
    Revision,
    SearchHit,
    SearchPage,
    State,
    TextSnippet,
)
from fourfold.models.documents.ancestry import BranchPoint
from fourfold.models.documents.comparison import Change, Difference
from fourfold.models.documents.merge import MergeResult
from fourfold.models.documents.records import LogEntry, MatchChange, MatchedCommit
from fourfold.server.branches import BranchRoutes
from fourfold.server.open_spaces import OpenSpaces
from fourfold.server.request import Request
from fourfold.server.space_reads import SpaceReads
from fourfold.server.space_search import SpaceSearch
from fourfold.server.spaces import SpaceRoutes
from fourfold.server.streams import StreamProtocol
from fourfold.server.watches import WatchRoutes
from fourfold.server.workers import Workers
from fourfold.tabular import Rows

KINDS = {cls.kind: cls for cls in errors.tree()}
PAGE = 2
WORKERS = Workers(2)


def serve(store):
    """Return the protocol of a store; its feeds end at the newest commit."""
    spaces = OpenSpaces(store, WORKERS)
    groups = (
        SpaceRoutes(store, WORKERS, spaces),
        SpaceReads(WORKERS, spaces),
        SpaceSearch(WORKERS, spaces),
        BranchRoutes(WORKERS, spaces),
        WatchRoutes(WORKERS, spaces, keep_alive_s=0.0),
    )
    return StreamProtocol(store.streams, models=groups, workers=WORKERS)


class HttpSpace:
    """The methods of a space over a protocol."""

    def __init__(self, protocol, runner, space):
        self._protocol, self._runner, self.real = protocol, runner, space
        self.branches = HttpBranches(self)

    def __getattr__(self, name):
        return getattr(self.real, name)

    # Requests

    def ask(self, method, path, body=None, query=(), headers=None):
        """Return the value of a response, or raise its error."""
        return self._runner.run(self._ask(method, path, body, dict(query), headers or {}))

    async def _ask(self, method, path, body, query, headers):
        sent = b"" if body is None else json.dumps(body).encode()
        sent_query = {name: value for name, value in query.items() if value is not None}
        query = urlencode(sent_query, doseq=True)
        request = Request(
            *(method, f"/v1/spaces/{self.real.did}{path}", query),
            {"host": "localhost", **headers},
            sent,
        )
        response = await self._protocol.handle(request)
        if response.status >= 400:
            problem = json.loads(response.body)
            assert problem["status"] == response.status
            raise KINDS[problem["kind"]](problem["detail"], details=problem["details"])
        if response.pieces is None:
            value = json.loads(response.body)
            if "etag" in response.headers:
                value["etag"] = response.headers["etag"]
            return value
        return await _events(response.pieces)

    def pages(self, path, **query):
        """Return the items of all pages."""
        items, cursor = [], None
        while True:
            page = self.ask("GET", path, query={**query, "limit": PAGE, "cursor": cursor})
            items += page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                return items

    # Writing

    def transact(self, operations, reads=None, session=None, local_seq=None, branch="", **other):
        body = {"operations": operations, "branch": branch, **other}
        if reads is not None:
            body["reads"] = reads
        if session is not None:
            body |= {"session": session, "local_seq": local_seq}
        return _commit(self.ask("POST", "/transact", body), operations)

    def set(self, entity, document, *, branch=""):
        path = f"/documents/{entity}"
        value = self.ask("PUT", path, document, {"branch": branch})
        return _commit(value, [{"op": "set", "id": entity, "value": document}])

    # Reading

    def read(self, entity, branch="", at=None):
        query = {"branch": branch, "at": _at(at)}
        try:
            value = self.ask("GET", f"/documents/{entity}", query=query)
        except errors.NotFound as error:
            if "entity" not in error.details:
                raise
            deleted = error.details["deleted"]
            return State(None, "delete", error.details["seq"]) if deleted else None
        assert value["etag"] == f'"{value["seq"]}"'
        return _state(value)

    def read_many(self, entities, branch="", at=None):
        query = {"branch": branch, "at": _at(at)}
        value = self.ask("POST", "/read", {"ids": list(entities)}, query)
        return {entity: _state(state) for entity, state in value["states"].items()}

    def ids(self, branch="", at=None, *, prefix="", after="", limit=None):
        found = self.pages("/ids", branch=branch, at=_at(at), prefix=prefix)
        return [entity for entity in found if entity > after][:limit]

    def search(self, query, *, index=None, paths=None, order="score", after=None, at=None, **rest):
        options = {"q": query, "index": index, "order": order, "cursor": after, "at": _at(at)}
        page = self.ask("GET", "/search", query={**options, "path": paths or [], **rest})
        hits = [
            SearchHit(**{**row, "snippets": [TextSnippet(**part) for part in row["snippets"]]})
            for row in page["items"]
        ]
        facts = (page["next_cursor"], page["total"], page["index"], page["seq"])
        return SearchPage(Rows(hits, SearchHit), *facts)

    def history(self, entity, branch="", *, after=0, at=None):
        rows = self.pages(f"/history/{entity}", branch=branch, at=_at(at), after=after)
        return [
            Revision(row["branch"], entity, row["seq"], row["op_index"], row["op"], row["data"])
            for row in rows
        ]

    def log(self, *, after=0):
        return [LogEntry(**row) for row in self.pages("/log", after=after)]

    def diff(self, branch="", at1=None, at2=None):
        return self.branches.diff(branch, branch, at1, at2)

    def watch(self, ids=None, after=None, branch="", *, where=None, timeout=None):
        """Return the commits up to now."""
        assert timeout in {0, None}
        assert ids is None
        commits = []
        query = {"after": after, "branch": branch}
        if where is not None:
            query["where"] = json.dumps(where)
        for name, data in self.ask("GET", "/watch", query=query):
            if name == "gap":
                raise errors.HistoryTruncated("gap", details=data)
            if name == "match":
                rows = data.pop("changes")
                changes = [MatchChange(**row) for row in rows]
                commits.append(MatchedCommit(**data, changes=changes))
            if name == "commit":
                rows = data.pop("revisions")
                changed = [
                    Revision(
                        data["branch"],
                        row["id"],
                        data["seq"],
                        row["op_index"],
                        row["op"],
                        row["data"],
                    )
                    for row in rows
                ]
                commits.append(Commit(**data, revisions=changed))
        return commits

    def seq(self):
        return self.ask("GET", "")["seq"]


class HttpBranches:
    """The methods of branches over a protocol."""

    def __init__(self, space):
        self._space = space

    def create(self, name, parent="", at=None):
        body = {"name": name, "parent": parent, "at": at}
        return _branch(self._space.ask("POST", "/branches", body))

    def delete(self, name):
        if not name:
            # The default branch has no path.
            raise errors.Refused("the default branch cannot be deleted")
        return _branch(self._space.ask("DELETE", f"/branches/{name}"))

    def list(self, *, deleted=False):
        rows = self._space.pages("/branches", deleted=str(deleted).lower())
        return [_branch(row) for row in rows]

    def diff(self, a, b, at_a=None, at_b=None):
        query = {"branch": a, "branch_b": b, "a": _at(at_a), "b": _at(at_b)}
        first = self._space.ask("GET", "/diff", query=query)
        rows = self._space.pages("/diff", **query)
        changes = tuple(
            Change(
                *(row["id"], _state(row["a"]), _state(row["b"])),
                row["changed_on"],
                row["patches"],
            )
            for row in rows
        )
        points = (BranchPoint(**first[name]) for name in ("a", "b", "base"))
        return Difference(*points, changes)

    def merge(self, source, target="", *, field_level=True, resolutions=None):
        """Merge as a page does: show it first, and merge exactly what was shown."""
        body = {"source": source, "target": target, "field_level": field_level}
        if resolutions:
            body["resolutions"] = [_resolution(*item) for item in resolutions.items()]
        preview = self._space.ask("POST", "/merges", {**body, "dry_run": True})
        value = self._space.ask("POST", "/merges", body, headers={"if-match": preview["etag"]})
        assert value["operations"] == preview["operations"]
        commit = value["commit"]
        return MergeResult(
            *(BranchPoint(**value[name]) for name in ("source", "target", "base")),
            tuple(value["operations"]),
            commit=None if commit is None else _commit(commit, value["operations"]),
        )


def _resolution(key, value):
    entity, path = key if isinstance(key, tuple) else (key, None)
    found = {"id": entity} if path is None else {"id": entity, "path": path}
    if value in (OURS, THEIRS):
        return found | {"choice": value.value}
    if value is ABSENT or (path is None and value is None):
        return found | {"choice": "delete"}
    return found | {"value": value}


async def _events(pieces):
    """Return name and data of every event until nothing more happens."""
    events = []
    async for piece in pieces:
        fields = dict(line.split(": ", 1) for line in piece.decode().splitlines() if line)
        if "" in fields:
            break
        if "event" in fields:
            events.append((fields["event"], json.loads(fields["data"])))
    await pieces.aclose()
    return events


def _commit(value, operations):
    revisions = [
        Revision(
            *(value["branch"], operation["id"], value["seq"], index, operation["op"]),
            operation.get("value", operation.get("patches")),
        )
        for index, operation in enumerate(operations)
    ]
    names = ("seq", "branch", "session", "local_seq", "replayed")
    fields = {name: value[name] for name in names}
    return Commit(**fields, revisions=revisions)


def _branch(value):
    return Branch(**{field: value[field] for field in Branch.__struct_fields__})


def _state(value):
    return None if value is None else State(value["document"], value["op"], value["seq"])


def _at(at):
    return at.isoformat() if isinstance(at, datetime) else at
