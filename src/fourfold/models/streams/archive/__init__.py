"""The archive of the streams: sealed into segments, published to an object store, read back from
it, and rebuilt from it alone.
"""

from __future__ import annotations

from fourfold.models.streams.archive.archive import CACHE, LOCAL, Archive
from fourfold.models.streams.archive.bootstrapping import Bootstrapped, bootstrap
from fourfold.models.streams.archive.cold import Cold
from fourfold.models.streams.archive.records import Policy, Published, Round, Standing

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
