"""What the processes of test_object_folder_processes do: python folder_process.py JOB ROOT ..."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from fourfold.errors import AlreadyExists, PreconditionFailed
from fourfold.objects import FolderStore

if TYPE_CHECKING:
    from collections.abc import Iterator


def slowly(call):
    """The call, late: so that a check and the move that follows it lie well apart."""

    def late(*arguments):
        time.sleep(0.002)
        return call(*arguments)

    return late


def say(text: object) -> None:
    print(text, flush=True)


def create(store: FolderStore, me: str, keys: str) -> None:
    for number in range(int(keys)):
        try:
            store.put(f"dir/{number}", me.encode(), if_absent=True)
        except AlreadyExists:
            continue
        say(number)


def count(store: FolderStore, _: str, steps: str) -> None:
    for _ in range(int(steps)):
        while True:
            current = store.get("counter")
            try:
                store.put(
                    "counter",
                    str(int(current.data) + 1).encode(),
                    if_version=current.info.version,
                )
            except PreconditionFailed:
                continue
            break


def upload(store: FolderStore, letter: str, blocks: str) -> None:
    def chunks() -> Iterator[bytes]:
        for number in range(int(blocks)):
            say(number)
            yield letter.encode() * 65_536

    while True:
        store.upload("k", chunks())
        say("done")


if __name__ == "__main__":
    job, root, *arguments = sys.argv[1:]
    opened = FolderStore(root)
    os.link = slowly(os.link)
    Path.rename = slowly(Path.rename)
    say("ready")
    sys.stdin.readline()
    {"create": create, "count": count, "upload": upload}[job](opened, *arguments)
