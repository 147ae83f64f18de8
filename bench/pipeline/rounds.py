"""Runs in turns: in every round all of them, in random order, the first round to warm up."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping

from bench.pipeline.load import foreign

Seconds = dict[str, list[float]]


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
                runs[name]()
                taken = time.perf_counter() - began
            if number >= warm_up:
                seconds[name].append(taken)
                shares[name].append(seen.foreign_share)
    return seconds, shares
