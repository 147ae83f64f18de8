"""A writer of a Delta table that commits, checkpoints and truncates until it is killed."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from delta_tables import add_rows, created, txn

from fourfold.archive.delta_log import CommitConflict, DeltaLog
from fourfold.objects import FolderStore
from support.crash import acknowledge, ready


def write(root: Path, writer: str) -> None:
    with FolderStore(root) as objects:
        log = DeltaLog(objects, "t")
        snapshot = log.snapshot()
        ready()
        while True:
            done = snapshot.txns.get(writer)
            number = 0 if done is None else done.version + 1
            add = add_rows(log, objects, f"{writer}-{number}.parquet", [(writer, number)])
            actions = [add, txn(number, writer)]
            try:
                version = snapshot.version + 1
                log.commit(created(*actions) if version == 0 else actions, version)
                acknowledge(f"{writer} {number}")
            except CommitConflict:
                pass
            snapshot = log.update(snapshot)
            if snapshot.version % 5 == 4:
                log.checkpoint(snapshot)
                later = datetime.now(UTC) + timedelta(days=1)
                log.truncate(snapshot.version - 3, grace_s=0, now=later)


if __name__ == "__main__":
    write(Path(sys.argv[1]), sys.argv[2])
