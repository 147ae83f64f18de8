"""Responses made of replies: JSON or NDJSON, ETag and 304, Link and Location.

A page (`wire.pages.Page`) is sent as NDJSON, one item per line, to a client that accepts
`application/x-ndjson`; the next page is then in the Link header only.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, urlencode

import msgspec

from fourfold.server.headers import matches_etag
from fourfold.server.request import Headers, Reply, Request, Response
from fourfold.wire.pages import Page

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
_lines: Final = msgspec.json.Encoder().encode_lines
_encode: Final = msgspec.json.Encoder().encode


def encode_reply(reply: Reply, request: Request) -> Response:
    """Return the response of a reply."""
    headers: Headers = {"cache-control": "no-store" if reply.etag is None else "private, no-cache"}
    value = reply.value
    if reply.etag is not None:
        headers["etag"] = f'"{reply.etag}"'
    if reply.location is not None:
        headers["location"] = quote(request.root + reply.location, safe="/:")
    if isinstance(value, Page):
        headers["vary"] = "Accept"
        if value.next_cursor is not None:
            headers["link"] = f'<{_next_page(request, value.next_cursor)}>; rel="next"'
    headers |= reply.headers
    is_read = request.method in {"GET", "HEAD"}
    if is_read and reply.etag is not None and matches_etag(request, headers["etag"]):
        return Response(304, headers)
    if value is None:
        return Response(reply.status, headers)
    if isinstance(value, Page) and NDJSON in (request.header("accept") or ""):
        return Response(reply.status, {"content-type": NDJSON, **headers}, _lines(value.items))
    return Response(reply.status, {"content-type": JSON, **headers}, _encode(value))


def _next_page(request: Request, cursor: str) -> str:
    pairs = [(name, value) for name, value in request.pairs() if name != "cursor"]
    path = quote(request.root + request.path, safe="/:")
    return f"{path}?{urlencode([*pairs, ('cursor', cursor)])}"
