"""Requests that find documents, requests of declared indexes, and their responses, without I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from fourfold.client.documents import format_at
from fourfold.client.requests import Address, Call
from fourfold.content.filters import parse_filter
from fourfold.models.documents.ancestry import At
from fourfold.models.documents.encoding import trusted
from fourfold.models.documents.indexes.declaration import HistoryScope, IndexInfo, IndexKindName
from fourfold.models.documents.indexes.finder import Facet, FindPage, FindPlan, Match
from fourfold.models.documents.indexes.planner import parse_facet, parse_order
from fourfold.models.documents.validation import check_known_branch
from fourfold.tabular import Rows
from fourfold.wire import find as wire

_JSON = {"content-type": "application/json"}
Where = Mapping[str, Any] | None


def _body(where: Where, branch: str, at: At, **fields: Any) -> dict[str, Any]:
    """Return the body of a query; what is None is left out."""
    members = {
        "where": parse_filter(where).where,
        "branch": check_known_branch(branch),
        "at": format_at(at),
        **fields,
    }
    return {name: value for name, value in members.items() if value is not None}


class FindCalls:
    """The queries and indexes of one space."""

    def __init__(self, address: Address, did: str) -> None:
        self._did = did
        self._root = f"{address.root}/v1/spaces/{quote(did, safe=':')}"

    def _post(self, path: str, operation: str, body: dict[str, Any] | None = None) -> Call:
        data = b"" if body is None else trusted(body).encode()
        return Call("POST", self._root + path, operation, _JSON if body else {}, {}, data)

    def find(
        self,
        where: Where,
        *,
        order_by: str | None,
        limit: int,
        after: str | None,
        at: At,
        branch: str,
        scan: bool,
    ) -> Call:
        """Build the request for a page of documents."""
        parse_order(order_by)
        body = _body(
            where, branch, at, order_by=order_by, limit=limit, cursor=after, scan=scan or False
        )
        return self._post("/find", f"find documents of {self._did}", body)

    def count(self, where: Where, branch: str, at: At) -> Call:
        """Build the request for the number of documents."""
        return self._post("/count", f"count documents of {self._did}", _body(where, branch, at))

    def facets(self, path: str, where: Where, limit: int, branch: str, at: At) -> Call:
        """Build the request for the values at a path."""
        parse_facet(path)
        body = _body(where, branch, at, path=path, limit=limit)
        return self._post("/facets", f"count values of {self._did}", body)

    def explain(self, where: Where, order_by: str | None, branch: str, at: At) -> Call:
        """Build the request for the plan of a query."""
        parse_order(order_by)
        body = _body(where, branch, at, order_by=order_by)
        return self._post("/explain", f"explain a query of {self._did}", body)

    def indexes(self) -> Call:
        """Build the request for all indexes."""
        return Call("GET", f"{self._root}/indexes", f"list the indexes of {self._did}", {}, {})

    def index(self, name: str, method: str = "GET") -> Call:
        """Build the request for one index, or with DELETE the one that drops it."""
        url = f"{self._root}/indexes/{quote(name, safe='')}"
        verb = "drop" if method == "DELETE" else "get"
        return Call(method, url, f"{verb} the index {name!r}", {}, {})

    def create_index(
        self,
        name: str,
        paths: Sequence[str],
        *,
        unique: bool,
        history: HistoryScope,
        kind: IndexKindName,
    ) -> Call:
        """Build the request that declares an index."""
        body = {"name": name, "paths": list(paths), "unique": unique, "history": history}
        body["kind"] = kind
        return self._post("/indexes", f"create the index {name!r}", body)

    def rebuild_index(self, name: str) -> Call:
        """Build the request that builds an index again."""
        return self._post(f"/indexes/{quote(name, safe='')}/rebuild", f"rebuild the index {name!r}")


def to_page(page: wire.FoundDocuments) -> FindPage:
    """Return the page of a response."""
    matches = (Match(row.id, row.document, row.seq) for row in page.items)
    return FindPage(Rows(matches, Match), page.next_cursor, to_plan(page.plan), page.seq)


def to_plan(info: wire.PlanInfo) -> FindPlan:
    """Return the plan of a response."""
    return FindPlan(
        info.access,
        info.index,
        info.ranges,
        info.exact,
        info.sorts,
        tuple(info.building),
        info.scanned,
        info.complete,
    )


def to_facets(page: wire.FacetPage) -> Rows[Facet]:
    """Return the facets of a response."""
    return Rows((Facet(row.value, row.count) for row in page.items), Facet)


def to_index(row: wire.IndexRow) -> IndexInfo:
    """Return the index of a response."""
    return IndexInfo(
        row.name, row.kind, tuple(row.paths), row.unique, row.history, row.state, row.error
    )
