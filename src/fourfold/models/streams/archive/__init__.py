"""The archive of the streams: sealed into segments, published to an object store, read back from
it, and rebuilt from it alone.

A name is imported when it is first used: the streams themselves need some of the smaller modules
here, and the archive needs the streams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fourfold.lazy import exports

if TYPE_CHECKING:
    from fourfold.models.streams.archive.archive import CACHE, LOCAL, Archive
    from fourfold.models.streams.archive.bootstrapping import Bootstrapped, bootstrap
    from fourfold.models.streams.archive.cold import Cold
    from fourfold.models.streams.archive.records import Policy, Published, Round, Standing
else:
    _HERE = "fourfold.models.streams.archive"
    __getattr__, __dir__ = exports(
        __name__,
        {
            "CACHE": f"{_HERE}.archive",
            "LOCAL": f"{_HERE}.archive",
            "Archive": f"{_HERE}.archive",
            "Bootstrapped": f"{_HERE}.bootstrapping",
            "Cold": f"{_HERE}.cold",
            "Policy": f"{_HERE}.records",
            "Published": f"{_HERE}.records",
            "Round": f"{_HERE}.records",
            "Standing": f"{_HERE}.records",
            "bootstrap": f"{_HERE}.bootstrapping",
        },
    )

__all__ = [
    "CACHE",
    "LOCAL",
    "Archive",
    "Bootstrapped",
    "Cold",
    "Policy",
    "Published",
    "Round",
    "Standing",
    "bootstrap",
]
