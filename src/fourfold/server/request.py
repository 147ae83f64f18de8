"""A request and a response, without any transport: what the protocol is written against."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote

from fourfold.errors import InvalidInput

Headers = dict[str, str]


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asks. Header names are in lower case; `path` is decoded, and begins where the
    server is mounted.
    """

    method: str
    path: str
    query: str = ""
    headers: Headers = field(default_factory=dict)
    body: bytes = b""
    scheme: str = "http"
    root: str = ""
    """Where an application has mounted the server, decoded; without a slash at its end."""

    def header(self, name: str) -> str | None:
        return self.headers.get(name)

    def parameters(self) -> dict[str, str]:
        """The query; a parameter that is given twice is refused."""
        found: dict[str, str] = {}
        try:
            given = parse_qsl(self.query, keep_blank_values=True, errors="strict")
        except UnicodeDecodeError:
            raise InvalidInput("the query is not UTF-8") from None
        for name, value in given:
            if name in found:
                raise InvalidInput(f"the parameter {name!r} is given twice")
            found[name] = value
        return found

    def address(self, path: str = "") -> str | None:
        """Where the client reaches a path of the server; None when it did not say which host."""
        host = self.header("host")
        return f"{self.scheme}://{host}{quote(self.root + path)}" if host else None


@dataclass(slots=True)
class Response:
    """What the client gets: a body, or pieces of one as they come."""

    status: int
    headers: Headers = field(default_factory=dict)
    body: bytes = b""
    pieces: AsyncIterator[bytes] | None = None
