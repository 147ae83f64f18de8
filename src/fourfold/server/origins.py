"""Web origins whose pages may use the server: by default none but its own.

A browser lets every page send requests to a server that it can reach, with or without the right to
read the responses. So a request that may change something is refused if a page of a foreign origin
sent it, and no page may read responses (CORS), unless its origin was allowed with `--cors`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from fourfold.errors import Forbidden, InvalidInput
from fourfold.server.request import Headers, Request

_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_SHARED: Final[Headers] = {
    "cross-origin-resource-policy": "cross-origin",
    "access-control-expose-headers": "Stream-Next-Offset, Stream-First-Offset, Stream-Cursor, "
    "Stream-Up-To-Date, Stream-Closed, Stream-TTL, Stream-Expires-At, "
    "Stream-Retention-Seconds, Stream-Retention-Bytes, Producer-Epoch, "
    "Producer-Seq, Producer-Expected-Seq, Producer-Received-Seq, ETag, Content-Type, Location, "
    "Retry-After, stream-sse-data-encoding",
}
_PREFLIGHT: Final[Headers] = {
    "access-control-allow-methods": "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS",
    "access-control-allow-headers": "Content-Type, Authorization, If-None-Match, Stream-Seq, "
    "Stream-TTL, Stream-Expires-At, Stream-Closed, Producer-Id, Producer-Epoch, Producer-Seq, "
    "Stream-Forked-From, Stream-Fork-Offset, Stream-Fork-Sub-Offset, Stream-Retention-Seconds, "
    "Stream-Retention-Bytes, Stream-Key, Stream-Expected-Offset, Stream-Record-Headers",
    "access-control-max-age": "86400",
}


class Origins:
    """Allowed origins of one server: names such as `https://app.example`, or `*` for all."""

    def __init__(self, origins: Iterable[str] = ()) -> None:
        self._names = frozenset(origin.lower() for origin in origins)
        self.allows_all = "*" in self._names
        self.has_names = bool(self._names - {"*"})
        for name in self._names - {"*"}:
            if not _ORIGIN.fullmatch(name):
                raise InvalidInput(
                    f"origin: must be * or a scheme and a host, got {name!r}",
                    hint="Write an origin as browsers do, such as https://app.example.",
                )

    def allows(self, method: str, headers: Mapping[str, str]) -> bool:
        """Return True unless a page of a foreign origin sent a request that may change something.

        Clients other than browsers send neither `Sec-Fetch-Site` nor `Origin`.
        """
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if (origin is None and site is None) or method in _SAFE_METHODS or self.allows_all:
            return True
        if origin is not None and origin.lower() in self._names:
            return True
        if site is not None:
            return site in {"same-origin", "none"}
        # A proxy may end TLS, so the scheme is not compared.
        return (
            origin is None or origin.partition("://")[2].lower() == headers.get("host", "").lower()
        )

    def check(self, request: Request) -> None:
        """Raise Forbidden if a page of a foreign origin must not send a request."""
        if not self.allows(request.method, request.headers):
            raise Forbidden(
                f"origin {request.header('origin')!r:.200}: not allowed to {request.method}",
                hint="Start the server with `--cors ORIGIN` to allow the pages of an origin.",
            )

    def response_headers(self, origin: str | None) -> Headers:
        """Return the headers of a response to a request with this `Origin`."""
        if self.allows_all:
            return {"access-control-allow-origin": "*", **_SHARED}
        if not self._names:
            return {}
        if origin is None or origin.lower() not in self._names:
            return {"vary": "Origin"}
        return {"access-control-allow-origin": origin, "vary": "Origin", **_SHARED}

    def preflight_headers(self, origin: str | None) -> Headers:
        """Return the headers of a response to OPTIONS, besides those of every response."""
        allowed = "access-control-allow-origin" in self.response_headers(origin)
        return dict(_PREFLIGHT) if allowed else {}
