"""A process that fills, deletes and recreates one stream under the same name, over and over."""

from __future__ import annotations

import sys

import fourfold
from fourfold.models.streams import Append, tombstones
from support.crash import acknowledge, ready

tombstones.STREAM_TRIM_ROWS = 16
ROWS = 100


def main():
    with fourfold.open(sys.argv[1]) as store:
        streams = store.streams
        kept = streams.create("kept", "text/plain")
        ready()
        while True:
            done = kept.info.next_offset
            streams.create("large", "text/plain")
            streams.append("large", Append([b"%d" % done] * ROWS, None))
            streams.delete("large")
            kept.append(b"round")
            acknowledge(str(done + 1))


main()
