"""Runs in turns: in every round all of them, in random order, the first round to warm up."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from bench.processes import foreign

Seconds = dict[str, list[float]]


class Taken(NamedTuple):
    """What a run gives back that also does what is not to be measured: its own clock."""

    seconds: float


def in_turns(
    runs: Mapping[str, Callable[[], object]], rounds: int, warm_up: int = 1
) -> tuple[Seconds, Seconds]:
    """The seconds of every run, and the share of the machine that others had meanwhile."""
    seconds: Seconds = {name: [] for name in runs}
    shares: Seconds = {name: [] for name in runs}
    for number in range(rounds + warm_up):
        for name in random.sample(list(runs), len(runs)):
            with foreign() as seen:
                began = time.perf_counter()
                found = runs[name]()
                taken = time.perf_counter() - began
            if number >= warm_up:
                seconds[name].append(found.seconds if isinstance(found, Taken) else taken)
                shares[name].append(seen.foreign_share)
    return seconds, shares
