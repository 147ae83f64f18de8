"""Another process that changes a store, for the tests of scans: one order on a line, one answer.

commit N      N commits of three rows each, the rows long enough that pages split
checkpoint M  copy the log into the file, in one of SQLite's modes; tells whether it was busy
reopen        close the store, as the last that has it open, and open it again
close         close it
die           end at once, with everything in the log
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import apsw

import fourfold

ROWS = 40
INSERT = "INSERT INTO revision VALUES ('', ?1, ?2, 0, 'set', ?3, ?2)"


def main(root, did):
    store = fourfold.open(root)
    space = store.space(did)
    [path] = (Path(root) / "spaces").glob(f"{did}*.sqlite")
    number, held = 0, None
    print("ready", flush=True)
    for line in sys.stdin:
        order, *rest = line.split()
        answer = "done"
        if order == "commit":
            for _ in range(int(rest[0])):
                number += 1
                texts = [f"{number}-{row} " * 30 for row in range(ROWS)]
                space.transact(
                    [
                        {"op": "set", "id": f"e{(number * 7 + row) % 500:03}", "value": {"t": text}}
                        for row, text in enumerate(texts)
                    ]
                )
            answer = space.seq()
        elif order == "checkpoint":
            # A connection for itself, as any tool may have one.
            connection = apsw.Connection(str(path))
            busy, _, _ = connection.execute(f"PRAGMA wal_checkpoint({rest[0]})").fetchone()
            connection.close()
            answer = busy
        elif order in {"reopen", "close"}:
            store.close()
            if order == "reopen":
                store = fourfold.open(root)
                space = store.space(did)
        elif order == "hold":
            held = held or apsw.Connection(str(path))
            held.wal_autocheckpoint(0)
        elif order == "insert":
            held.execute("BEGIN IMMEDIATE")
            for row in range(int(rest[0])):
                number += 1
                values = (f"e{row % 500:03}", 1_000_000 + number, f"later {number} " * 30)
                held.execute(INSERT, values)
            held.execute("COMMIT")
        elif order == "release":
            held.close()
            held = None
        elif order == "die":
            print("dying", flush=True)
            os._exit(9)
        print(answer, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
