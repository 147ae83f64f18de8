"""A replica that takes one step, until it is killed."""

from __future__ import annotations

import sys

from fourfold.store import ArchiveFollower
from support.crash import acknowledge, ready

if __name__ == "__main__":
    with ArchiveFollower(sys.argv[1], sys.argv[2]) as follower:
        ready()
        acknowledge(follower.step().point)
