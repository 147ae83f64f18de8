"""A node that appends, seals, publishes, indexes, compacts and collects without a pause, until it
is killed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from node import Node

from fourfold.models.streams.archive import Policy
from fourfold.objects import FolderStore
from support.crash import acknowledge, ready

NAMES = ("a", "b", "c")


def main(root: Path) -> None:
    objects = FolderStore(root / "objects")
    policy = Policy(
        seal_bytes=400,
        seal_rows=20,
        seal_age_s=0.05,
        concurrency=2,
        trim_rows=8,
        index_span=2,
        index_fanout=3,
        compact_bytes=4_000,
        compact_segments=3,
    )
    node = Node(root / "node", objects, policy, synchronous="FULL")
    node.now = 0
    streams = [node.streams.create(name, "text/plain") for name in NAMES]
    ended = node.streams.create("ended", "text/plain")
    ended.append([b"x"] * 30)
    starts = [node.streams.info(name).next_offset for name in NAMES]
    with node.archive.running(every_s=0.001):
        ready()
        number = 0
        while True:
            node.now += 1
            for at, stream in enumerate(streams):
                record = f"{stream.name}-{starts[at] + number}"
                stream.append([record.encode()], key=f"key-{(starts[at] + number) % 3}")
                acknowledge(f"{stream.name} {starts[at] + number}")
            number += 1
            if number % 50 == 0:
                node.streams.delete("ended")
                node.streams.create("ended", "text/plain").append([b"x"] * 30)
                node.archive.index()
                node.archive.compact()
                node.archive.collect(grace_s=0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
