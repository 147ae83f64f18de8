"""Commit a small batch, and die at the given failpoint of the kernel."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
from staged_rows import B, put, row

from fourfold.kernel import failpoints


def main(root, point):
    if point:
        failpoints.arm(point, "kill")
    done = put(Path(root), [row("n", {"n": 1}), row("m", {"n": 2}, space=B)])
    print(msgspec.json.encode(done).decode())


if __name__ == "__main__":
    main(*sys.argv[1:])
