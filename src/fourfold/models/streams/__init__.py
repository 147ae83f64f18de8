"""Durable streams: append-only logs under names, with idempotent producers, forks and live
readers.

Names are imported on first use: the fold and the admission rules need no database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fourfold._lazy import exports

if TYPE_CHECKING:
    from fourfold.models.streams.append import Append
    from fourfold.models.streams.database import MIGRATIONS, PROFILE
    from fourfold.models.streams.feed_records import StreamRecord
    from fourfold.models.streams.records import AppendResult, Chunk, Producer, Record, StreamInfo
    from fourfold.models.streams.stream import Stream
    from fourfold.models.streams.streams import Streams
    from fourfold.models.streams.validation import Offset
    from fourfold.models.streams.writer import Fork, StreamOptions
else:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "Append": "fourfold.models.streams.append",
            "AppendResult": "fourfold.models.streams.records",
            "Chunk": "fourfold.models.streams.records",
            "Fork": "fourfold.models.streams.writer",
            "MIGRATIONS": "fourfold.models.streams.database",
            "Offset": "fourfold.models.streams.validation",
            "PROFILE": "fourfold.models.streams.database",
            "Producer": "fourfold.models.streams.records",
            "Record": "fourfold.models.streams.records",
            "Stream": "fourfold.models.streams.stream",
            "StreamInfo": "fourfold.models.streams.records",
            "StreamRecord": "fourfold.models.streams.feed_records",
            "Streams": "fourfold.models.streams.streams",
            "StreamOptions": "fourfold.models.streams.writer",
        },
    )

__all__ = [
    "MIGRATIONS",
    "PROFILE",
    "Append",
    "AppendResult",
    "Chunk",
    "Fork",
    "Offset",
    "Producer",
    "Record",
    "Stream",
    "StreamInfo",
    "StreamOptions",
    "StreamRecord",
    "Streams",
]
