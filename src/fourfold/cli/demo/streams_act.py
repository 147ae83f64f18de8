"""The demo's act on streams: a producer that repeats itself, a fork, a reader that waits."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import fourfold
from fourfold.models.streams import Producer

if TYPE_CHECKING:
    from fourfold.cli.demo.acts import Shown, Stage

_NAME = "demo/orders"


def streams_are_written_once_and_followed(stage: Stage) -> Shown:
    """A stream takes each request once, is forked without a copy, and is followed to its end."""
    with fourfold.open(stage.root) as store:
        orders = store.streams.create(_NAME, "application/json")
        sent = [
            orders.append(b'{"id": %d, "total": 9.50}' % n, producer=Producer("till", 0, n))
            for n in (0, 1, 1, 1)
        ]
        repeated = sum(each.duplicate for each in sent)
        fork = orders.fork("demo/what-if", at=1)
        fork.append(b'{"id": 99}')
        seen: list[bytes] = []

        def follow() -> None:
            for chunk in orders.follow("now"):
                seen.extend(record.payload for record in chunk.records)

        reader = threading.Thread(target=follow)
        reader.start()
        orders.append(b'{"id": 2, "total": 1.00}')
        orders.close()
        reader.join()
        kept = [record.payload for record in orders.read().records]
        forked = [record.payload for record in fork.read().records]
        sound = not store.streams.verify()
    lines = [
        f"{len(sent)} requests, {repeated} of them repeated: {len(kept) - 1} messages",
        f"kept as the bytes that came: {kept[0].decode()}",
        f"the fork has {len(forked)} messages, one of them its own",
        f"a reader that waited saw {len(seen)} more and the end; sound: {sound}",
    ]
    return lines, {"repeated": repeated, "messages": len(kept), "seen": len(seen), "sound": sound}
