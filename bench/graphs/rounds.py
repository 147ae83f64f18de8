"""Rounds: the runs of every line, neighbours in time, in random order, until enough rounds are
undisturbed.

The first round only warms up, and leaves the rows that the limits are to insert: a limit starts
from the same file as Fourfold did, and must leave the same rows behind. A figure is always taken
between two runs of the same round.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import msgspec

from bench.graphs import peer, store
from bench.graphs.lines import Counts, Curve, Line
from bench.graphs.results import Flatness, Outcome, Record
from bench.graphs.task import Run, Task
from bench.machine import ForeignLoad, interpreter, sync_cost_us
from bench.measurement import Measurement, spread

Progress = Callable[[str], None]
SYNC_PROBES = 50


@dataclass(slots=True)
class Bench:
    """One execution of the benchmark, in a folder of its own on the disk that is measured."""

    folder: Path
    counts: Counts
    lines: list[Line]
    curves: list[Curve]
    records: list[Record] = field(default_factory=list)
    prepared_s: dict[str, float] = field(default_factory=dict)
    file_mib: dict[str, float] = field(default_factory=dict)
    _order: random.Random = field(default_factory=random.Random)

    def prepare(self, progress: Progress) -> None:
        """Every file that one of the runs starts from."""
        for name in sorted({run.data for group in self._groups() for run in group}):
            progress(f"preparing {name}")
            path, before = self.folder / f"{name}.db", time.perf_counter()
            if name.startswith("size-"):
                store.make_size(path, int(name.partition("-")[2]))
            elif name.endswith("log"):
                make = peer.make_log if name.startswith("peer") else store.make_log
                make(path, self.counts.log_numbers)
            else:
                (peer.make_base if name.startswith("peer") else store.make_base)(path)
            self.prepared_s[name] = round(time.perf_counter() - before, 1)
            self.file_mib[name] = round(path.stat().st_size / 2**20, 1)

    def run(self, rounds: int, patience: int, progress: Progress) -> None:
        """At least `rounds` undisturbed rounds of every group, if they can be had in time."""
        groups = self._groups()
        self._round(0, groups, progress)
        for number in range(1, patience + 1):
            wanting = [group for group in groups if len(self._rounds(group)[0]) < rounds]
            if not wanting:
                return
            self._round(number, wanting, progress)

    def _groups(self) -> list[list[Run]]:
        """Runs that are compared with each other, and therefore are neighbours."""
        groups: dict[Run, list[Run]] = {}
        for line in self.lines:
            group = groups.setdefault(line.subject, [line.subject])
            if line.reference not in group:
                group.append(line.reference)
        found = list(groups.values())
        found += [[run for _, run in curve.runs] for curve in self.curves]
        return found

    # One round

    def _round(self, number: int, groups: list[list[Run]], progress: Progress) -> None:
        order = list(groups)
        self._order.shuffle(order)
        for group in order:
            runs = list(group)
            self._order.shuffle(runs)
            if number == 0:
                # A limit inserts what Fourfold has left.
                runs.sort(key=lambda run: run.is_limit)
            for run in runs:
                self._execute(number, run, progress)

    def _execute(self, number: int, run: Run, progress: Progress) -> None:
        progress(f"round {number}: {run.label}")
        path = self.folder / f"{run.data}.db"
        rows = self.folder / f"rows-{run.what.replace(' ', '-')}.db"
        if run.writes:
            path = self.folder / "run.db"
            store.copy(self.folder / f"{run.data}.db", path)
            with path.open("rb") as file:
                os.fsync(file.fileno())
        sync_us, _ = sync_cost_us(self.folder, rounds=SYNC_PROBES)
        with ForeignLoad() as foreign:
            measured = _in_child(Task(run.form, str(path), run.count, str(rows)))
        if run.is_limit:
            ordered = not run.form.endswith("threads")
            if store.fingerprint(path, ordered=ordered) != store.fingerprint(rows, ordered=ordered):
                raise store.WrongRows(f"{run.label}: other rows than Fourfold's")
        elif number == 0 and run.writes and run.side == "fourfold":
            store.copy(path, rows)
        share = None if foreign.share is None else round(foreign.share, 3)
        self.records.append(Record(number, run, measured, share, sync_us))

    # What came of it

    def outcomes(self, wanted: int) -> list[Outcome]:
        return [self._outcome(line, wanted) for line in self.lines]

    def flatness(self, wanted: int) -> list[Flatness]:
        found = []
        for curve in self.curves:
            used, clean = self._used([run for _, run in curve.runs], wanted)
            us = {n: median(each.us for each in self._of(run, used)) for n, run in curve.runs}
            ratio = max(us.values()) / min(us.values())
            found.append(Flatness(curve.title, us, ratio, curve.target, clean))
        return found

    def _outcome(self, line: Line, wanted: int) -> Outcome:
        used, clean = self._used([line.subject, line.reference], wanted)
        ours = {record.round: record for record in self._of(line.subject, used)}
        theirs = {record.round: record for record in self._of(line.reference, used)}
        return Outcome(
            workload=line.workload,
            title=line.title,
            against=line.against,
            rate=spread([record.rate for record in ours.values()]),
            reference_rate=spread([record.rate for record in theirs.values()]),
            cpu_us=median(record.cpu_us for record in ours.values()),
            reference_cpu_us=median(record.cpu_us for record in theirs.values()),
            ratio=spread([ours[number].rate / theirs[number].rate for number in used]),
            target=line.target,
            rounds=len(used),
            clean=clean,
        )

    def _of(self, run: Run, rounds: Iterable[int]) -> list[Record]:
        wanted = set(rounds)
        return [each for each in self.records if each.run == run and each.round in wanted]

    def _used(self, runs: list[Run], wanted: int) -> tuple[list[int], bool]:
        """The rounds that count: those that nobody disturbed, or all if these are too few."""
        good, bad = self._rounds(runs)
        clean = len(good) >= wanted
        return (good if clean else sorted(good + bad)), clean

    def _rounds(self, runs: list[Run]) -> tuple[list[int], list[int]]:
        """The rounds in which all of `runs` took part: those that nobody disturbed, and others."""
        rounds = {n for n in {each.round for each in self.records} if n > 0}
        for run in set(runs):
            rounds &= {each.round for each in self.records if each.run == run}
        quiet = min((record.sync_us for record in self.records), default=0.0)
        mine = [each for each in self.records if each.run in set(runs)]
        bad = {record.round for record in mine if record.disturbed(quiet)}
        return sorted(rounds - bad), sorted(rounds & bad)


def _in_child(task: Task) -> Measurement:
    command = [interpreter(), "-m", "bench.graphs.subject", msgspec.json.encode(task).decode()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{task.form}: {done.stderr.strip()[-2000:]}")
    return msgspec.json.decode(done.stdout, type=Measurement)
