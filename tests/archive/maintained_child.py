"""A store whose archive tables are maintained, until it is killed before one of the writes."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from published_stores import open_store
from table_maintenance import maintained

from fourfold.archive import catalog, table_publisher
from fourfold.objects import FaultyStore
from support.crash import acknowledge, ready


def run(root: Path, number: int) -> None:
    """Maintain the store, and die before the write or deletion with this number."""
    writes = 0

    def count(call):
        nonlocal writes
        if call.op in {"put", "upload", "delete", "delete_many"}:
            writes += 1
            if writes == number:
                os.kill(os.getpid(), signal.SIGKILL)

    with open_store(root / "store", root / "objects") as store:
        store._objects = FaultyStore(store.objects, count)
        ready()
        maintained(store)
        acknowledge(str(writes))


if __name__ == "__main__":
    # So that some of its publications compact the catalog, and write checkpoints.
    catalog.CATALOG_FILES_MAX = 3
    table_publisher.CHECKPOINT_COMMITS = 2
    run(Path(sys.argv[1]), int(sys.argv[2]))
