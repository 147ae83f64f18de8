"""Rounds of runs that are compared with each other: neighbours in time, in random order, until
enough rounds are undisturbed; each run in a process of its own.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from bench.machine import ForeignLoad, interpreter, sync_cost_us

Progress = Callable[[str], None]
SYNC_PROBES = 50


class Kept(Protocol):
    """A record of one run: round 0 is the warm-up, which nothing is computed from."""

    @property
    def round(self) -> int: ...

    @property
    def run(self) -> Hashable: ...

    @property
    def sync_us(self) -> float: ...

    def disturbed(self, quiet_sync_us: float) -> bool: ...


K = TypeVar("K", bound=Kept)
R = TypeVar("R", bound=Hashable)
T = TypeVar("T")


def repeat(
    groups: Sequence[Sequence[R]],
    records: Sequence[Kept],
    execute: Callable[[int, R], None],
    *,
    rounds: int,
    patience: int,
    is_limit: Callable[[R], bool],
) -> None:
    """At least `rounds` undisturbed rounds of every group, if they can be had in `patience`. What
    is executed adds to the records.
    """
    for number in range(patience + 1):
        wanting = [
            group
            for group in groups
            if not number or len(partition_rounds(records, group)[0]) < rounds
        ]
        random.shuffle(wanting)
        for group in wanting:
            runs = list(group)
            random.shuffle(runs)
            if number == 0:
                # A limit inserts what Fourfold has left.
                runs.sort(key=is_limit)
            for run in runs:
                execute(number, run)


def partition_rounds(
    records: Iterable[Kept], runs: Iterable[Hashable]
) -> tuple[list[int], list[int]]:
    """Return the rounds in which all of `runs` took part: the undisturbed, and the others."""
    found = list(records)
    wanted = set(runs)
    quiet = min((record.sync_us for record in found), default=0.0)
    mine = [record for record in found if record.run in wanted and record.round > 0]
    taken_part: dict[int, set[Hashable]] = {}
    for record in mine:
        taken_part.setdefault(record.round, set()).add(record.run)
    whole = {number for number, present in taken_part.items() if present == wanted}
    bad = {record.round for record in mine if record.disturbed(quiet)}
    return sorted(whole - bad), sorted(whole & bad)


def used(records: Iterable[Kept], runs: Iterable[Hashable], wanted: int) -> tuple[list[int], bool]:
    """Return the rounds that count, and whether they are undisturbed: only those that are, or all
    if these are too few.
    """
    good, bad = partition_rounds(records, runs)
    clean = len(good) >= wanted
    return (good if clean else sorted(good + bad)), clean


def of(records: Iterable[K], run: Hashable, rounds: Iterable[int]) -> list[K]:
    wanted = set(rounds)
    return [each for each in records if each.run == run and each.round in wanted]


def watched(folder: Path, work: Callable[[], T]) -> tuple[T, float | None, float]:
    """What came of it, the share of the machine that others had meanwhile, and what the disk of
    `folder` asked for a durable append just before.
    """
    sync_us, _ = sync_cost_us(folder, rounds=SYNC_PROBES)
    with ForeignLoad() as foreign:
        found = work()
    return found, None if foreign.share is None else round(foreign.share, 3), sync_us


def in_child(module: str, task: Any, label: str, kind: type[T]) -> T:
    """What `python -m module` says of a task, in the last line that it prints."""
    command = [interpreter(), "-m", module, msgspec.json.encode(task).decode()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{label}: {done.stderr.strip()[-2000:]}")
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=kind)
