"""A store that lives and publishes without a pause, keeps that in order, or is rebuilt, until it is
killed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

from published_stores import Life, open_store, published, rebuilt

from fourfold import limits
from fourfold.archive import compaction
from fourfold.store import retention
from support.crash import acknowledge, ready


def live(root: Path, seed: int) -> None:
    with open_store(root / "store", root / "objects") as store:
        life = Life(store, Random(seed))
        ready()
        while True:
            for _ in range(6):
                life.step()
            point = published(store).point
            if point is not None:
                acknowledge(point.id)


def keep(root: Path, seed: int) -> None:
    """Live, and merge, give up and delete all the time; pages are small."""
    limits.PUBLISH_ENTRIES, compaction.PUBLISH_FANOUT = 3, 2  # type: ignore[misc]
    with open_store(root / "store", root / "objects") as store:
        life = Life(store, Random(seed))
        ready()
        while True:
            for _ in range(3):
                for _ in range(6):
                    life.step()
                point = published(store).point
                if point is not None:
                    acknowledge(point.id)
            retention.merge(store)
            for grace in (1e9, 0.0):
                retention.collect(store, keep=retention.Keep(points=4), grace_s=grace)


def build(root: Path) -> None:
    ready()
    rebuilt(root / "again", root / "objects")


if __name__ == "__main__":
    if sys.argv[2] == "build":
        build(Path(sys.argv[1]))
    elif len(sys.argv) > 3:
        keep(Path(sys.argv[1]), int(sys.argv[2]))
    else:
        live(Path(sys.argv[1]), int(sys.argv[2]))
