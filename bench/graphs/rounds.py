"""Rounds: the runs of every line, neighbours in time, in random order, until enough rounds are
undisturbed.

The first round only warms up, and leaves the rows that the limits are to insert: a limit starts
from the same file as Fourfold did, and must leave the same rows behind. A figure is always taken
between two runs of the same round.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench.graphs import peer, store
from bench.graphs.lines import Counts, Curve, Line
from bench.graphs.results import Flatness, Outcome, Record
from bench.graphs.task import Run, Task
from bench.measurement import Measurement, spread
from bench.rounds import Progress, in_child, of, repeat, used, watched

CHILD = "bench.graphs.subject"


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
        repeat(
            self._groups(),
            self.records,
            lambda number, run: self._execute(number, run, progress),
            rounds=rounds,
            patience=patience,
            is_limit=lambda run: run.is_limit,
        )

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

    def _execute(self, number: int, run: Run, progress: Progress) -> None:
        progress(f"round {number}: {run.label}")
        path = self.folder / f"{run.data}.db"
        rows = self.folder / f"rows-{run.what.replace(' ', '-')}.db"
        if run.writes:
            path = self.folder / "run.db"
            store.copy(self.folder / f"{run.data}.db", path)
            with path.open("rb") as file:
                os.fsync(file.fileno())
        task = Task(run.form, str(path), run.count, str(rows))
        measured, share, sync_us = watched(
            self.folder, lambda: in_child(CHILD, task, task.form, Measurement)
        )
        if run.is_limit:
            ordered = not run.form.endswith("threads")
            if store.fingerprint(path, ordered=ordered) != store.fingerprint(rows, ordered=ordered):
                raise store.WrongRows(f"{run.label}: other rows than Fourfold's")
        elif number == 0 and run.writes and run.side == "fourfold":
            store.copy(path, rows)
        self.records.append(Record(number, run, measured, share, sync_us))

    # What came of it

    def outcomes(self, wanted: int) -> list[Outcome]:
        return [self._outcome(line, wanted) for line in self.lines]

    def flatness(self, wanted: int) -> list[Flatness]:
        found = []
        for curve in self.curves:
            counted, clean = used(self.records, [run for _, run in curve.runs], wanted)
            us = {
                n: median(each.us for each in of(self.records, run, counted))
                for n, run in curve.runs
            }
            ratio = max(us.values()) / min(us.values())
            found.append(Flatness(curve.title, us, ratio, curve.target, clean))
        return found

    def _outcome(self, line: Line, wanted: int) -> Outcome:
        counted, clean = used(self.records, [line.subject, line.reference], wanted)
        ours = {record.round: record for record in of(self.records, line.subject, counted)}
        theirs = {record.round: record for record in of(self.records, line.reference, counted)}
        return Outcome(
            workload=line.workload,
            title=line.title,
            against=line.against,
            rate=spread([record.rate for record in ours.values()]),
            reference_rate=spread([record.rate for record in theirs.values()]),
            cpu_us=median(record.cpu_us for record in ours.values()),
            reference_cpu_us=median(record.cpu_us for record in theirs.values()),
            ratio=spread([ours[number].rate / theirs[number].rate for number in counted]),
            target=line.target,
            rounds=len(counted),
            clean=clean,
        )
