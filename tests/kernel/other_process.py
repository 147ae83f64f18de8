"""Another process that opens a ledger: run by tests with a verb and a path; not a test itself.

    hold PATH         be the writer, write one entry, say so, and wait to be killed
    watch PATH N      read until there are N entries, then say what was seen
    write PATH N      be the writer, add N entries, and close
    try MODE PATH     drop all privileges, open, and say the outcome

Answers go to stdout as one JSON value to a line.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

import ledger

from fourfold.errors import FourfoldError


def say(value):
    os.write(1, json.dumps(value).encode() + b"\n")


def hold(path):
    with ledger.open_ledger(path) as db:
        say(db.transact(ledger.put("held")))
        sys.stdin.read()


def write(path, count):
    with ledger.open_ledger(path) as db:
        for n in range(int(count)):
            db.transact(ledger.put(n))
    say("done")


def watch(path, count):
    seen = []
    with ledger.open_ledger(path, mode="r") as db:
        say("watching")
        while len(seen) < int(count):
            with db.read() as snapshot:
                seen = snapshot.all("SELECT seq, body FROM entry ORDER BY seq")
                # One state: the counter and the rows agree, however fast the writer is.
                assert snapshot.value(ledger.ENTRY.read) == len(seen)
            time.sleep(0.001)
    say(seen)


def attempt(mode, path):
    # Whatever is imported or read on first use must be so before the user changes.
    with tempfile.TemporaryDirectory() as folder:
        ledger.open_ledger(Path(folder) / "warm.db").close()
        ledger.open_ledger(Path(folder) / "warm.db", mode="r").close()
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    try:
        with ledger.open_ledger(path, mode=mode) as db:
            say({"bodies": ledger.bodies(db)})
    except FourfoldError as error:
        say(error.as_dict())


if __name__ == "__main__":
    verbs = {"hold": hold, "write": write, "watch": watch, "try": attempt}
    verbs[sys.argv[1]](*sys.argv[2:])
