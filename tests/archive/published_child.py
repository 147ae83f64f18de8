"""A store that lives and publishes without a pause, or is rebuilt, until it is killed.

`published_child.py FOLDER SEED [URL]`, or `published_child.py FOLDER build`
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

from published_stores import Life, open_store, published, rebuilt

from fourfold.archive import catalog, table_publisher
from support.crash import acknowledge, ready


def live(root: Path, seed: int, url: str) -> None:
    with open_store(root / "store", url) as store:
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
    # So that some of its publications compact the catalog, and write checkpoints.
    catalog.CATALOG_FILES_MAX = 3
    table_publisher.CHECKPOINT_COMMITS = 2
    if sys.argv[2] == "build":
        build(Path(sys.argv[1]))
    else:
        root = Path(sys.argv[1])
        live(root, int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else str(root / "objects"))
