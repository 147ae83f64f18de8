"""Search and aggregates over the messages of a stream: the log, segments, and their companions.

A search reads the newest records first, within a budget of bytes and time. Of segments it reads
companions if there are any, and records otherwise; the results are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fourfold._lazy import exports

if TYPE_CHECKING:
    from fourfold.models.streams.search.engine import aggregate, search
    from fourfold.models.streams.search.tail import TailCache
else:
    # Few streams are searched.
    __getattr__, __dir__ = exports(
        __name__,
        {
            "TailCache": f"{__name__}.tail",
            "aggregate": f"{__name__}.engine",
            "search": f"{__name__}.engine",
        },
    )

__all__ = ["TailCache", "aggregate", "search"]
