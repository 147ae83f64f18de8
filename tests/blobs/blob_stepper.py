"""A process that puts one blob and stops for ever at the given step of its work with the disk.

    python blob_stepper.py ROOT put|stream STEP

Steps are: each write (which takes half of what it is given), and the moments before and after each
sync and each renaming. It says "stuck" when it stops, and "done" when it came to the end instead.
"""

from __future__ import annotations

import os
import signal
import sys
from itertools import count
from pathlib import Path

from fourfold.blobs import FolderBlobs

DATA = b"blob"


def stop_at(last: int) -> None:
    steps = count(1)

    def step():
        if next(steps) == last:
            print("stuck", flush=True)
            signal.pause()

    def around(call):
        def stepping(*arguments):
            step()
            result = call(*arguments)
            step()
            return result

        return stepping

    write = os.write

    def half(fd, data):
        written = write(fd, data[: max(1, len(data) // 2)])
        step()
        return written

    os.write = half
    os.fsync = around(os.fsync)
    Path.replace = around(Path.replace)


def main(root: str, how: str, step: str) -> None:
    store = FolderBlobs(root)
    stop_at(int(step))
    blob_id = store.put(DATA) if how == "put" else store.put_stream([DATA[:2], DATA[2:]])
    print("done", blob_id, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
