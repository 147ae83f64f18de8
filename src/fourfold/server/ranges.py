"""Immutable bytes over HTTP: ETag, ranges and pieces.

Content by its hash never changes, so caches may keep it, and its hash is its ETag.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from typing import Final, NamedTuple

from fourfold import limits
from fourfold.server import headers
from fourfold.server.request import Headers, Request, Response
from fourfold.server.workers import Workers

_RANGE: Final = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})", re.IGNORECASE)
PIECE_BYTES: Final = 8 * limits.MIB
"""Bytes that are read at once while they are sent."""
_IMMUTABLE: Final = "private, max-age=31536000, immutable"


class ByteRange(NamedTuple):
    """Bytes from `start` to below `end`."""

    start: int
    end: int


class ImmutableContent(NamedTuple):
    """Bytes that never change."""

    hash: str
    size: int
    content_type: str


def content_response(
    request: Request,
    content: ImmutableContent,
    pieces: Callable[[ByteRange], AsyncIterator[bytes]],
) -> Response:
    """Return the response to a read of immutable bytes, whole or a range of them.

    `pieces` yields the bytes of a range, as `iter_pieces` does.
    """
    response_headers: Headers = {
        **headers.content_type_headers(content.content_type),
        "etag": f'"{content.hash}"',
        "cache-control": _IMMUTABLE,
        "accept-ranges": "bytes",
    }
    if headers.matches_etag(request, response_headers["etag"]):
        return Response(304, response_headers)
    part = parse_range(request, content.size, response_headers["etag"])
    if part is None:
        return Response(416, {**response_headers, "content-range": f"bytes */{content.size}"})
    status = 200
    if part != ByteRange(0, content.size):
        status = 206
        response_headers["content-range"] = f"bytes {part.start}-{part.end - 1}/{content.size}"
    response_headers["content-length"] = str(part.end - part.start)
    return Response(status, response_headers, pieces=pieces(part))


async def iter_pieces(
    part: ByteRange, read: Callable[[int, int], bytes], workers: Workers
) -> AsyncIterator[bytes]:
    """Yield the bytes of a range in pieces; `read` returns bytes from a start, of a length."""
    for start in range(part.start, part.end, PIECE_BYTES):
        length = min(PIECE_BYTES, part.end - start)
        yield await workers.run(read, start, length)


def parse_range(request: Request, size: int, etag: str) -> ByteRange | None:
    """Return the requested bytes; None if there are none.

    Anything but one range of bytes is ignored, as RFC 9110 allows.
    """
    match = _RANGE.fullmatch(request.header("range") or "")
    if match is None or request.header("if-range") not in {None, etag} or not any(match.groups()):
        return ByteRange(0, size)
    first, last = match.groups()
    if not first:
        start, end = max(0, size - int(last)), size
    else:
        start, end = int(first), min(size, int(last) + 1 if last else size)
        if last and int(last) < start:
            return ByteRange(0, size)
    return ByteRange(start, end) if start < end else None
