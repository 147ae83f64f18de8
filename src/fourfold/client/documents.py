"""Requests and responses of documents: each operation as a `Call`, and its result, without I/O.

Whatever a local space checks before it needs its database is checked here too, by the same code, so
that a wrong call raises the same error. Writes have an Idempotency-Key, so that they can be sent
again when no response arrives.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Struct

from fourfold.client import responses
from fourfold.client.requests import Address, Call, format_time, stringify
from fourfold.client.responses import Response
from fourfold.content import content_id, parse_content_id
from fourfold.content.filters import Filter
from fourfold.content.json_pointer import ABSENT
from fourfold.errors import CorruptData, HistoryTruncated, InvalidInput
from fourfold.models.documents.ancestry import At
from fourfold.models.documents.ancestry import BranchPoint as SpacePoint
from fourfold.models.documents.blobs import BlobStat
from fourfold.models.documents.comparison import Change, Difference
from fourfold.models.documents.encoding import trusted
from fourfold.models.documents.field_merge import Choice
from fourfold.models.documents.indexes.search import (
    DocumentSearch,
    SearchHit,
    SearchPage,
    TextSnippet,
)
from fourfold.models.documents.merge import MergeConflict, MergeRequest, MergeResult
from fourfold.models.documents.records import (
    Branch,
    Commit,
    Distance,
    LogEntry,
    MatchChange,
    MatchedCommit,
    Operation,
    Reads,
    Revision,
    State,
)
from fourfold.models.documents.request import DocumentRequest, WriteCounts, make_request
from fourfold.models.documents.timestamps import stored_time
from fourfold.tabular import Rows
from fourfold.wire import documents as wire
from fourfold.wire.documents import BranchInfo, CommitInfo, DocumentState, Point

S = TypeVar("S", bound=Struct)
_JSON = {"content-type": "application/json"}
_OCTETS = "application/octet-stream"


class WriteIdentity(NamedTuple):
    """Identity of a write: session and number of the caller, or a key of this client."""

    session: str | None
    local_seq: int | None

    @classmethod
    def of(cls, session: str | None, local_seq: int | None) -> WriteIdentity:
        """Return the identity of a call; raise InvalidInput unless both are passed, or neither."""
        if (session is None) != (local_seq is None):
            raise InvalidInput("pass both session and local_seq, or neither")
        return cls(session, local_seq)

    @property
    def key(self) -> str:
        """The Idempotency-Key: a new one, if the caller does not number its requests."""
        if self.session is None:
            return uuid.uuid4().hex
        return hashlib.sha256(f"{self.local_seq}/{self.session}".encode()).hexdigest()


class SpaceCalls:
    """The requests about one space."""

    def __init__(self, address: Address, did: str) -> None:
        self._did = did
        self._root = f"{address.root}/v1/spaces/{quote(did, safe=':')}"

    def _get(self, path: str, operation: str, *params: tuple[str, object]) -> Call:
        return Call("GET", self._root + path, operation, {}, stringify(*params))

    def _post(self, path: str, operation: str, body: str, key: str | None = None) -> Call:
        headers = _JSON if key is None else {**_JSON, "idempotency-key": key}
        return Call("POST", self._root + path, operation, headers, {}, body.encode())

    def get(self, at: At = None) -> Call:
        """Build the request for the space itself, now or at a point."""
        return self._get("", f"get the space {self._did}", ("at", format_at(at)))

    def create(self, history: str | None) -> Call:
        """Build the request that creates the space, if there is none."""
        params = stringify(("history", history))
        return Call("PUT", self._root, f"create the space {self._did}", {}, params)

    def transact(self, request: DocumentRequest, identity: WriteIdentity) -> Call:
        """Build the request that commits a checked transaction."""
        # The text of the request has every field but the session.
        start = f'{{"branch":{trusted(request.branch)},'
        rest = request.original.removeprefix(f'{start}"local_seq":{request.local_seq},')
        operation = f"write to {self._did}"
        if identity.session is None:
            return self._post("/transact", operation, start + rest, identity.key)
        named = f'"session":{trusted(identity.session)},"local_seq":{identity.local_seq},'
        return self._post("/transact", operation, start + named + rest)

    def read(self, ids: Sequence[str], branch: str, at: At) -> Call:
        """Build the request for the states of entities."""
        call = self._post("/read", f"read from {self._did}", trusted({"ids": list(ids)}))
        return call._replace(params=_point(branch, at))

    def ids(self, branch: str, at: At, prefix: str = "", after: str = "") -> Call:
        """Build the request for the ids of existing entities."""
        filters = ("prefix", prefix or None), ("after", after or None)
        call = self._get("/ids", f"list the ids of {self._did}", *filters)
        return call._replace(params=call.params | _point(branch, at))

    def search(
        self,
        query: DocumentSearch,
        text: str | None,
        vector: Sequence[float] | None,
        limit: int,
        after: str | None,
    ) -> Call:
        """Build the request for a page of a search by words, by vector, or both."""
        if vector is not None or query.where:
            body = {
                "q": text,
                "vector": None if vector is None else list(vector),
                "where": query.where.where or None,
                "path": None if query.paths is None else list(query.paths),
                "order": None if query.order == "score" else query.order,
                "index": query.index_name,
                "limit": limit,
                "cursor": after,
                "branch": query.branch,
                "at": format_at(query.at),
            }
            members = {name: value for name, value in body.items() if value is not None}
            return self._post("/search", f"search in {self._did}", trusted(members))
        call = self._get(
            *("/search", f"search in {self._did}"),
            ("q", text),
            ("index", query.index_name),
            ("order", query.order),
            ("limit", limit),
            ("cursor", after),
        )
        params: dict[str, Any] = call.params | _point(query.branch, query.at)
        if query.paths is not None:
            params["path"] = list(query.paths)
        return call._replace(params=params)

    def history(self, entity: str, branch: str, after: int, at: At) -> Call:
        """Build the request for the revisions of an entity."""
        path = f"/history/{_segment(entity)}"
        call = self._get(path, f"read the history of {entity!r}", ("after", after))
        return call._replace(params=call.params | _point(branch, at))

    def log(self, after: int) -> Call:
        """Build the request for the commits of the space."""
        return self._get("/log", f"read the log of {self._did}", ("after", after))

    def diff(self, a: SpacePointAt, b: SpacePointAt, ids: Iterable[str] | None) -> Call:
        """Build the request for the differences between two points."""
        params: dict[str, Any] = stringify(
            ("branch", a.branch or None),
            ("a", format_at(a.at)),
            ("branch_b", b.branch if b.branch != a.branch else None),
            ("b", format_at(b.at)),
        )
        if ids is not None:
            params["id"] = list(ids)
        return self._get("/diff", f"compare states of {self._did}")._replace(params=params)

    def branches(self, *, deleted: bool, at: At) -> Call:
        """Build the request for the branches, now or at a point."""
        params = ("deleted", str(deleted).lower()), ("at", format_at(at))
        return self._get("/branches", f"list the branches of {self._did}", *params)

    def branch(self, name: str, at: At) -> Call:
        """Build the request for a branch, now or at a point."""
        path = f"/branches/{_segment(name)}"
        return self._get(path, f"get the branch {name!r}", ("at", format_at(at)))

    def create_branch(self, name: str, parent: str, at: At, identity: WriteIdentity) -> Call:
        """Build the request that creates a branch."""
        body = {"name": name, "parent": parent}
        if at is not None:
            body["at"] = str(format_at(at))
        return self._post("/branches", f"create the branch {name!r}", trusted(body), identity.key)

    def delete_branch(self, name: str, identity: WriteIdentity) -> Call:
        """Build the request that deletes a branch."""
        url = f"{self._root}/branches/{_segment(name)}"
        headers = {"idempotency-key": identity.key}
        return Call("DELETE", url, f"delete the branch {name!r}", headers, {})

    def merge(
        self,
        request: MergeRequest,
        identity: WriteIdentity,
        *,
        dry_run: bool,
        heads: tuple[int, int] | None,
    ) -> Call:
        """Build the request that merges a branch."""
        body = {
            "source": request.source,
            "target": request.target,
            "resolutions": _resolutions(request),
            "field_level": request.field_level,
            "dry_run": dry_run,
        }
        operation = f"merge {request.source!r}"
        key = None if dry_run else identity.key
        call = self._post("/merges", operation, trusted(body), key)
        if heads is None:
            return call
        return call._replace(headers={**call.headers, "if-match": '"{}-{}"'.format(*heads)})

    def blobs(self) -> Call:
        """Build the request for the blobs."""
        return self._get("/blobs", f"list the blobs of {self._did}")

    def put_blob(self, data: bytes, content_type: str | None) -> Call:
        """Build the request that stores a blob. Repeated, it changes nothing."""
        headers = stringify(("content-type", content_type))
        return Call("POST", f"{self._root}/blobs", "store a blob", headers, {}, data)

    def get_blob(self, blob: str, method: str = "GET") -> Call:
        """Build the request for a blob, or with HEAD for its size and content type."""
        parse_content_id(blob)
        url = f"{self._root}/blobs/{quote(blob, safe=':')}"
        return Call(method, url, f"get the blob {blob}", {"accept-encoding": "identity"}, {})

    def watch(
        self, ids: Sequence[str] | None, after: int | None, branch: str, where: Filter | None
    ) -> Call:
        """Build the request for the feed of commits, or of those that a filter selects."""
        params: dict[str, Any] = stringify(
            ("after", after),
            ("branch", branch or None),
            ("where", None if where is None else trusted(where.where)),
        )
        if ids is not None:
            params["id"] = list(ids)
        headers = {"accept": "text/event-stream", "accept-encoding": "identity"}
        operation = f"follow the space {self._did}"
        return Call("GET", f"{self._root}/watch", operation, headers, params, live=True)


def list_spaces(address: Address, at: datetime | None = None) -> Call:
    """Build the request for the spaces of a server, now or at a time."""
    params = stringify(("at", format_time(at)))
    return Call("GET", f"{address.root}/v1/spaces", "list the spaces", {}, params)


class SpacePointAt(NamedTuple):
    """A branch at a seq, a time, or now."""

    branch: str
    at: At


def format_at(at: At) -> str | None:
    """Return a point in history as a parameter; raise InvalidInput for another type."""
    if at is None:
        return None
    if isinstance(at, datetime):
        return stored_time(at)
    if type(at) is not int:
        raise InvalidInput(f"at must be a seq or a datetime, got {at!r:.100}")
    if at < 0:
        raise InvalidInput(f"at must be a seq from 0, got {at}")
    return str(at)


def _segment(name: str) -> str:
    """Return a name as one part of a path; one that is only dots would be removed."""
    return quote(name, safe="").replace(".", "%2E")


def _point(branch: str, at: At) -> dict[str, str]:
    return stringify(("branch", branch or None), ("at", format_at(at)))


def prepare(
    operations: Sequence[Mapping[str, Any]],
    reads: Reads | Mapping[str, Any] | None,
    identity: WriteIdentity,
    branch: str,
    preconditions: Sequence[Mapping[str, Any]],
) -> DocumentRequest:
    """Check a transaction as a local space does."""
    return make_request(
        operations,
        branch=branch,
        session=identity.session or "client",
        local_seq=identity.local_seq or 0,
        replayable=identity.session is not None,
        reads=reads,
        preconditions=preconditions,
    )


def parse(response: Response, kind: type[S]) -> S:
    """Return the body of a response."""
    return responses.decode(response, kind, "a request about documents")


def to_commit(info: CommitInfo, revisions: Sequence[Revision]) -> Commit:
    """Return a commit."""
    return Commit(
        info.seq, info.branch, info.session, info.local_seq, revisions, replayed=info.replayed
    )


def parse_commit(response: Response, request: DocumentRequest) -> Commit:
    """Return the commit that a transaction became."""
    info = parse(response, CommitInfo)
    return to_commit(info, WriteCounts(request, info.seq))


def to_state(state: DocumentState | None) -> State | None:
    """Return the state of an entity."""
    return None if state is None else State(state.document, state.op, state.seq)


def to_branch(info: BranchInfo) -> Branch:
    """Return a branch."""
    return Branch(*(getattr(info, name) for name in Branch.__struct_fields__))


def to_distance(info: BranchInfo) -> Distance | None:
    """Return how far a branch is from its parent."""
    if info.ahead is None or info.missing is None:
        return None
    return Distance(info.ahead, info.missing)


def to_log_entry(row: wire.LogRow) -> LogEntry:
    """Return a commit in the log."""
    return LogEntry(*(getattr(row, name) for name in LogEntry.__struct_fields__))


def to_revision(entity: str, row: wire.RevisionRow) -> Revision:
    """Return a revision of an entity."""
    return Revision(row.branch, entity, row.seq, row.op_index, row.op, row.data)


def parse_search(response: Response) -> SearchPage:
    """Return a page of a search."""
    page = parse(response, wire.HitPage)
    hits = (
        SearchHit(
            row.id,
            row.document,
            row.seq,
            row.score,
            tuple(
                TextSnippet(part.path, part.text, tuple(part.highlights)) for part in row.snippets
            ),
        )
        for row in page.items
    )
    return SearchPage(Rows(hits, SearchHit), page.next_cursor, page.total, page.index, page.seq)


def to_point(point: Point) -> SpacePoint:
    """Return a point in history."""
    return SpacePoint(point.branch, point.seq)


def to_difference(page: wire.DiffPage, rows: Sequence[wire.ChangeRow]) -> Difference:
    """Return the differences of all pages."""
    changes = (
        Change(row.id, to_state(row.a), to_state(row.b), row.changed_on, row.patches)
        for row in rows
    )
    return Difference(to_point(page.a), to_point(page.b), to_point(page.base), tuple(changes))


def parse_merge(response: Response) -> MergeResult:
    """Return the result of a merge."""
    outcome = parse(response, wire.MergeOutcome)
    source, _, target = response.headers.get("etag", "").strip('"').partition("-")
    is_known = source.isdecimal() and target.isdecimal()
    operations: tuple[Operation, ...] = tuple(map(msgspec.to_builtins, outcome.operations))
    commit = outcome.commit
    return MergeResult(
        to_point(outcome.source),
        to_point(outcome.target),
        to_point(outcome.base),
        operations,
        tuple(
            MergeConflict(
                conflict.id,
                tuple(conflict.paths),
                to_state(conflict.base),
                to_state(conflict.source),
                to_state(conflict.target),
            )
            for conflict in outcome.conflicts
        ),
        None if commit is None else to_commit(commit, _revisions(commit, operations)),
        (int(source), int(target)) if is_known else (0, 0),
    )


def _revisions(commit: CommitInfo, operations: Sequence[Operation]) -> tuple[Revision, ...]:
    return tuple(
        Revision(
            commit.branch,
            operation["id"],
            commit.seq,
            index,
            operation["op"],
            operation.get("value", operation.get("patches")),
        )
        for index, operation in enumerate(operations)
    )


def parse_stat(response: Response, blob: str) -> BlobStat:
    """Return size and content type of a blob; HTTP has a type for blobs without one."""
    content_type = response.headers.get("content-type")
    size = int(response.headers.get("content-length", "0"))
    return BlobStat(blob, size, None if content_type == _OCTETS else content_type)


def to_stat(info: wire.BlobInfo) -> BlobStat:
    """Return size and content type of a blob in a list."""
    return BlobStat(info.hash, info.size_bytes, info.content_type)


def parse_blob(response: Response, blob: str) -> bytes:
    """Return the bytes of a blob, verified by their hash."""
    if content_id(response.body) != blob:
        raise CorruptData(f"blob {blob}: the bytes do not match the hash")
    return response.body


def _check_gap(name: str, data: bytes) -> None:
    if name == "gap":
        gap = parse(Response(200, {}, data), wire.GapEvent)
        raise HistoryTruncated(
            f"garbage collection removed the commits after {gap.after}, up to {gap.horizon}",
            details={"after": gap.after, "horizon": gap.horizon},
        )


def decode_match(name: str, data: bytes) -> MatchedCommit | None:
    """Return the commit of an event of a feed with a filter."""
    _check_gap(name, data)
    if name != "match":
        return None
    event = parse(Response(200, {}, data), wire.MatchEvent)
    changes = tuple(MatchChange(row.kind, row.id, row.op, row.document) for row in event.changes)
    return MatchedCommit(event.seq, event.branch, event.session, event.local_seq, changes)


def decode_event(name: str, data: bytes) -> Commit | None:
    """Return the commit of an event of a feed."""
    _check_gap(name, data)
    if name != "commit":
        return None
    event = parse(Response(200, {}, data), wire.CommitEvent)
    revisions = tuple(
        Revision(event.branch, row.id, event.seq, row.op_index, row.op, row.data)
        for row in event.revisions
    )
    return Commit(event.seq, event.branch, event.session, event.local_seq, revisions)


def _resolutions(request: MergeRequest) -> list[dict[str, Any]]:
    """Return the resolutions of a merge as the API has them."""
    decided = request.resolutions
    rows: list[dict[str, Any]] = []
    for entity, document in decided.documents.items():
        rows.append({"id": entity, **_decision(ABSENT if document is None else document)})
    for entity, side in decided.sides.items():
        rows.append({"id": entity, **_decision(side)})
    for entity, places in decided.places.items():
        rows += [{"id": entity, "path": path, **_decision(v)} for path, v in places.items()]
    return rows


def _decision(value: Any) -> dict[str, Any]:
    if value is ABSENT:
        return {"choice": "delete"}
    return {"choice": value.value} if isinstance(value, Choice) else {"value": value}
