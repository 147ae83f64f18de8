"""Cursors and ETags: what lets caches between a server and its readers collapse equal requests.

A cursor is the number of the 20-second interval in which an answer was made. A reader hands the
last one back; when it is the current one already, a later one is given, so that no two requests of
a reader are the same to a cache.
"""

from __future__ import annotations

import random

from fourfold.models.streams import Chunk, StreamInfo

_EPOCH_MS = 1_728_432_000_000
"""2024-10-09, which the protocol counts from."""
_INTERVAL_MS = 20_000
_JITTER_INTERVALS = 180


def cursor(now_ms: int, given: str | None) -> str:
    current = (now_ms - _EPOCH_MS) // _INTERVAL_MS
    if given is not None and given.isdecimal() and len(given) < 19 and int(given) >= current:
        return str(int(given) + random.randint(1, _JITTER_INTERVALS))  # noqa: S311 - no secret
    return str(current)


def etag(info: StreamInfo, chunk: Chunk) -> str:
    """Names a range of a stream; it changes when the stream is closed at its end, and when its
    messages are read in another version.
    """
    mark = ":c" if chunk.closed else ""
    if info.schema_version:
        mark += f":v{info.schema_version}"
    return f'"{info.incarnation}:{chunk.start_offset}:{chunk.next_offset}{mark}"'
