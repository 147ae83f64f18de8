"""The body of an answer to a reader that catches up: read and sent piece by piece.

What the answer covers is decided first, by offsets, so its headers can be told before its records
are read. While one piece is on its way to the client the next one is being read; a client that
takes its time holds no more than these two.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from fourfold import limits
from fourfold.models.streams import Chunk, StreamInfo, Streams
from fourfold.models.streams.reader import NotInTheLog

_SMALL_BYTES = limits.STREAM_PIECE_BYTES // 8


def is_small(info: StreamInfo, page: Chunk) -> bool:
    """Whether a page is read at once, since handing it to a thread would take longer."""
    records = page.next_offset - page.start_offset
    return info.size_bytes * records <= _SMALL_BYTES * max(1, info.next_offset)


def whole(streams: Streams, info: StreamInfo, page: Chunk) -> bytes | None:
    """The body of a small page; None when some of it must be fetched from elsewhere."""
    parts: list[bytes] = []
    at = page.start_offset
    try:
        while at < page.next_offset:
            part, at = streams.piece_of_log(info, at, page.next_offset)
            parts.append(part)
    except NotInTheLog:
        return None
    if info.is_json:
        return b"[" + b",".join(parts) + b"]"
    return b"".join(parts)


async def pieces(streams: Streams, info: StreamInfo, page: Chunk) -> AsyncIterator[bytes]:
    """The body of any page. When a part of it is gone by the time it is read, the answer breaks off
    and the reader asks again.
    """
    before, between, behind = (b"[", b",", b"]") if info.is_json else (b"", b"", b"")
    end = page.next_offset
    reading = asyncio.ensure_future(asyncio.to_thread(streams.piece, info, page.start_offset, end))
    try:
        while True:
            part, at = await reading
            if at >= end:
                yield before + part + behind
                return
            reading = asyncio.ensure_future(asyncio.to_thread(streams.piece, info, at, end))
            yield before + part
            before = between
    finally:
        reading.cancel()
