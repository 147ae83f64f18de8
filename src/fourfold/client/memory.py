"""Requests and responses of memories: each operation as a `Call`, and its result, without I/O.

Arguments are validated here, by the code of the local memory.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Struct

from fourfold.client import responses
from fourfold.client.documents import WriteIdentity, format_at, prepare
from fourfold.client.requests import Address, Call, stringify
from fourfold.client.responses import Response
from fourfold.content.filters import parse_filter
from fourfold.content.namespaces import Namespace, check_namespace, encode_id
from fourfold.content.text import parse_text_query
from fourfold.models.documents.ancestry import At
from fourfold.models.documents.encoding import trusted
from fourfold.models.documents.indexes.vector import check_vector
from fourfold.models.documents.memory import check_limit, check_offset, did_of_memory
from fourfold.models.documents.memory_items import (
    MemoryChange,
    MemoryHit,
    MemoryItem,
    MemoryPut,
    MemoryVersion,
    make_document,
)
from fourfold.wire import memory as wire

S = TypeVar("S", bound=Struct)
_JSON = {"content-type": "application/json"}


class MemoryCalls:
    """The requests about one memory."""

    def __init__(self, address: Address, name: str) -> None:
        self.name = name
        self.did = did_of_memory(name)
        self._root = f"{address.root}/v1/spaces/{quote(self.did, safe=':')}/memory"

    def get(self) -> Call:
        """Build the request for the memory itself."""
        return self._get("", f"get the memory {self.name!r}")

    def create(self) -> Call:
        """Build the request that creates the memory, if there is none."""
        return Call("PUT", self._root, f"create the memory {self.name!r}", {}, {})

    def put(self, changes: Iterable[MemoryPut], session: str | None) -> Call:
        """Build the request that stores and forgets items. Repeated, it changes nothing more."""
        records = [_checked(change) for change in changes]
        call = self._post("/changes", f"write to the memory {self.name!r}", {"changes": records})
        key = uuid.uuid4().hex if session is None else WriteIdentity(session, 1).key
        return call._replace(headers={**call.headers, "idempotency-key": key})

    def forget(self, namespace: str | Sequence[str], key: str) -> Call:
        """Build the request that forgets an item."""
        params = _item_params(namespace, key)
        return Call("DELETE", f"{self._root}/item", f"forget {key!r}", {}, params)

    def item(self, namespace: str | Sequence[str], key: str, at: At, *, refresh: bool) -> Call:
        """Build the request for an item."""
        point = stringify(("at", format_at(at)), ("refresh", "true" if refresh else None))
        call = self._get("/item", f"get {key!r} of the memory {self.name!r}")
        return call._replace(params=_item_params(namespace, key) | point)

    def search(
        self,
        query: str | None,
        vector: Sequence[float] | None,
        namespace: str | Sequence[str],
        where: Mapping[str, Any] | None,
        options: Mapping[str, Any],
    ) -> Call:
        """Build the request for a page of a search; `options` are those of the page."""
        if vector is not None:
            check_vector(vector)
        if query is not None:
            parse_text_query(query)
        check_limit(options["limit"])
        check_offset(options["offset"])
        body = {
            **options,
            "query": query,
            "vector": None if vector is None else [float(number) for number in vector],
            "namespace": check_namespace(namespace, is_prefix=True),
            "where": parse_filter(where).where or None,
            "at": format_at(options["at"]),
        }
        members = {name: value for name, value in body.items() if value is not None}
        return self._post("/search", f"search in the memory {self.name!r}", members)

    def namespaces(self, prefix: str | Sequence[str], max_depth: int | None, at: At) -> Call:
        """Build the request for the namespaces."""
        params = stringify(("max_depth", max_depth), ("at", format_at(at)))
        call = self._get("/namespaces", f"list the namespaces of {self.name!r}")
        return call._replace(params=_prefix_params(prefix) | params)

    def history(self, namespace: str | Sequence[str], key: str, after: int, at: At) -> Call:
        """Build the request for the values of an item."""
        params = stringify(("after", after), ("at", format_at(at)))
        call = self._get("/history", f"read the history of {key!r}")
        return call._replace(params=_item_params(namespace, key) | params)

    def diff(self, at1: At, at2: At, namespace: str | Sequence[str]) -> Call:
        """Build the request for the items that differ between two points."""
        params = stringify(("a", format_at(at1)), ("b", format_at(at2)))
        call = self._get("/diff", f"compare states of the memory {self.name!r}")
        return call._replace(params=_prefix_params(namespace) | params)

    def sweep(self, limit: int) -> Call:
        """Build the request that deletes expired items."""
        body = {"limit": check_limit(limit)}
        return self._post("/sweep", f"sweep the memory {self.name!r}", body)

    def purge(self, namespace: str | Sequence[str], key: str | None) -> Call:
        """Build the request that erases the history."""
        prefix = check_namespace(namespace, is_prefix=True)
        if key is not None:
            encode_id(check_namespace(prefix), key)
        body = {"namespace": prefix, "key": key}
        return self._post("/purge", f"purge the memory {self.name!r}", body)

    def _get(self, path: str, operation: str) -> Call:
        return Call("GET", self._root + path, operation, {}, {})

    def _post(self, path: str, operation: str, body: Mapping[str, Any]) -> Call:
        return Call("POST", self._root + path, operation, _JSON, {}, trusted(body).encode())


def _item_params(namespace: str | Sequence[str], key: str) -> dict[str, Any]:
    labels = check_namespace(namespace)
    encode_id(labels, key)
    return {"namespace": list(labels), "key": key}


def _prefix_params(prefix: str | Sequence[str]) -> dict[str, Any]:
    labels = check_namespace(prefix, is_prefix=True)
    return {"namespace": list(labels)} if labels else {}


def _checked(change: MemoryPut) -> dict[str, Any]:
    """Return a change as the API has it, checked as a local memory does."""
    namespace = check_namespace(change.namespace)
    entity = encode_id(namespace, change.key)
    if change.value is not None:
        document = make_document(change, namespace, datetime.now(UTC), None)
        operation = {"op": "set", "id": entity, "value": document}
        prepare([operation], None, WriteIdentity(None, None), "", ())
    vector = None if change.vector is None else [float(number) for number in change.vector]
    return {**msgspec.structs.asdict(change), "namespace": namespace, "vector": vector}


def parse(response: Response, kind: type[S]) -> S:
    """Return the body of a response."""
    return responses.decode(response, kind, "a request about a memory")


def to_item(record: wire.MemoryItemRecord) -> MemoryItem:
    """Return an item."""
    expires_at = record.expires_at
    return MemoryItem(
        tuple(record.namespace),
        record.key,
        record.value,
        datetime.fromisoformat(record.created_at),
        datetime.fromisoformat(record.updated_at),
        None if expires_at is None else datetime.fromisoformat(expires_at),
        record.seq,
    )


def to_hit(record: wire.MemoryHitRecord) -> MemoryHit:
    """Return an item that a search found."""
    return MemoryHit(to_item(record.item), record.score, tuple(record.snippets))


def to_version(record: wire.MemoryVersionRecord) -> MemoryVersion:
    """Return a value of an item."""
    return MemoryVersion(record.seq, record.time, record.value)


def to_change(record: wire.MemoryChangeRecord) -> MemoryChange:
    """Return an item that differs."""
    return MemoryChange(tuple(record.namespace), record.key, record.before, record.after)


def sort_namespaces(names: Iterable[Sequence[str]]) -> Sequence[Namespace]:
    """Return namespaces in the order of a local memory."""
    return sorted(tuple(name) for name in names)
