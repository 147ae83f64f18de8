"""A process that changes keys of a state stream, compacts it, and prints what was acknowledged."""

from __future__ import annotations

import json
import sys
import threading

import fourfold
from fourfold.models.streams import key_compaction
from support.crash import acknowledge, ready

ROOT = sys.argv[1]
KEYS = 40
key_compaction.SCAN_RECORDS, key_compaction.COPY_RECORDS = 16, 3


def main():
    with fourfold.open(ROOT) as store:
        stream = store.streams.create("s", "application/json")
        stream.set_profile("state-protocol")
        number = max(store.streams.state("s").values(), default=0)
        ready()

        def compact():
            while True:
                stream.compact("now")
                store.archive.round(everything=True)

        threading.Thread(target=compact, daemon=True).start()
        while True:
            number += 1
            headers = {"operation": "upsert"}
            key = str(number % 7 if number % 3 else number % KEYS)
            stream.append({"type": "u", "key": key, "value": number, "headers": headers})
            acknowledge(json.dumps([key, number]))


main()
