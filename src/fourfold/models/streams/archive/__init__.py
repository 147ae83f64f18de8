"""Archive of streams: seal into segments, publish to an object store, read back, restore.

Names are imported lazily: the streams need some of the smaller modules here, and the archive needs
the streams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fourfold._lazy import exports

if TYPE_CHECKING:
    from fourfold.models.streams.archive.archiver import Archive
    from fourfold.models.streams.archive.bootstrapper import BootstrapReport, bootstrap
    from fourfold.models.streams.archive.cold_reader import ColdReader
    from fourfold.models.streams.archive.records import (
        CACHE,
        LOCAL,
        ArchiveRound,
        Policy,
        PublishResult,
        PublishStatus,
    )
else:
    _HERE = "fourfold.models.streams.archive"
    __getattr__, __dir__ = exports(
        __name__,
        {
            "CACHE": f"{_HERE}.records",
            "LOCAL": f"{_HERE}.records",
            "Archive": f"{_HERE}.archiver",
            "BootstrapReport": f"{_HERE}.bootstrapper",
            "ColdReader": f"{_HERE}.cold_reader",
            "Policy": f"{_HERE}.records",
            "PublishResult": f"{_HERE}.records",
            "ArchiveRound": f"{_HERE}.records",
            "PublishStatus": f"{_HERE}.records",
            "bootstrap": f"{_HERE}.bootstrapper",
        },
    )

__all__ = [
    "CACHE",
    "LOCAL",
    "Archive",
    "ArchiveRound",
    "BootstrapReport",
    "ColdReader",
    "Policy",
    "PublishResult",
    "PublishStatus",
    "bootstrap",
]
