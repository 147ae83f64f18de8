"""A program that appends to the journal of a store until it is killed.

It prints each number once it is on disk.
"""

from __future__ import annotations

import sys

import fourfold
from fourfold.cli.demo.journal import add, journal


def write_forever(root: str) -> None:
    """Write to a store until the process is killed, and print what was committed."""
    with fourfold.open(root) as store:
        log = journal(store)
        while True:
            number = log.transact(lambda txn: add(txn, "written by a process that gets killed"))
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    write_forever(sys.argv[1])
