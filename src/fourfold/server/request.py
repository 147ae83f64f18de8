"""Requests and responses without a transport; the protocol is written against them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote

import msgspec
from msgspec import Struct

from fourfold.errors import InvalidInput
from fourfold.server.key_store import Grant

Headers = dict[str, str]


class Request(Struct, frozen=True):
    """A request. Header names are in lower case; `path` is decoded, and relative to the mount
    point.
    """

    method: str
    path: str
    query: str = ""
    headers: Headers = msgspec.field(default_factory=dict)
    body: bytes = b""
    scheme: str = "http"
    root: str = ""
    """Path where an application has mounted the server, decoded, without a trailing slash."""
    client: str = ""
    """Address of the client; empty if it is unknown."""
    key_id: str = ""
    """Id of the key that allowed the request; empty if no key is required."""
    grant: Grant | None = None
    """Grant of the key for the model of the route; None if it has none, or no key is required."""
    grants: tuple[Grant, ...] | None = None
    """Grants of the key for all models; None if no key is required."""

    def header(self, name: str) -> str | None:
        """Return a header by its lower-case name, or None."""
        return self.headers.get(name)

    def covers(self, name: str) -> bool:
        """Return True if the key of the request is for a name in the model of the route.

        Handlers of routes with the resource `any` decide with it.
        """
        return not self.key_id if self.grant is None else self.grant.covers(name)

    def pairs(self) -> list[tuple[str, str]]:
        """Return the query parameters in their order, with duplicates."""
        try:
            return _parse_query(self.query)
        except UnicodeDecodeError:
            raise InvalidInput("query: must be UTF-8") from None

    def parameters(self) -> dict[str, str]:
        """Return the query parameters; raise InvalidInput for a duplicate."""
        parameters: dict[str, str] = {}
        for name, value in self.pairs():
            if name in parameters:
                raise InvalidInput(f"duplicate parameter {name!r}")
            parameters[name] = value
        return parameters

    def address(self, path: str = "") -> str | None:
        """Return the URL of a path as the client reaches it, or None without a Host header."""
        host = self.header("host")
        return f"{self.scheme}://{host}{quote(self.root + path)}" if host else None


@dataclass(slots=True)
class Response:
    """A response with a body, or with `pieces` of it that are sent as they come."""

    status: int
    headers: Headers = field(default_factory=dict)
    body: bytes = b""
    pieces: AsyncIterator[bytes] | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """Result of a handler: a value, and the status and headers of its response.

    The route table encodes it (`replies.encode_reply`). So the pages of the explorer can call a
    handler in process and render its `value`.
    """

    value: Struct | None = None
    """Body; None for a response without one."""
    status: int = 200
    headers: Headers = field(default_factory=dict)
    etag: str | None = None
    """Version of the value, without quotes."""
    location: str | None = None
    """Path of what was created, relative to the mount point."""
    is_large: bool = False
    """True if the value may be large, so that it is encoded by a worker."""


def _parse_query(query: str) -> list[tuple[str, str]]:
    """Return the names and values of a query; raise UnicodeDecodeError if one is not UTF-8."""
    if "%" in query or "+" in query or not query.isascii():
        return parse_qsl(query, keep_blank_values=True, errors="strict")
    # Nothing is escaped, as in most queries: this takes a quarter of the time.
    pairs = []
    for part in query.split("&"):
        name, _, value = part.partition("=")
        if part:
            pairs.append((name, value))
    return pairs


def json_response(document: object, status: int = 200) -> Response:
    """Return a response with a Struct, or with a plain value, as JSON."""
    headers = {"content-type": "application/json", "cache-control": "no-store"}
    return Response(status, headers, msgspec.json.encode(document))
