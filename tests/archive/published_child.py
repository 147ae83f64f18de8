"""A store that lives and publishes without a pause, or is rebuilt, until it is killed."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

from published_stores import Life, open_store, published, rebuilt

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


def build(root: Path) -> None:
    ready()
    rebuilt(root / "again", root / "objects")


if __name__ == "__main__":
    if sys.argv[2] == "build":
        build(Path(sys.argv[1]))
    else:
        live(Path(sys.argv[1]), int(sys.argv[2]))
