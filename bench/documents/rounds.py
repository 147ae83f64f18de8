"""Rounds: the runs of every line, neighbours in time, in random order, until enough rounds are
undisturbed.

The first round only warms up, and leaves the rows that the limits are to insert: a limit starts
from the same file as Fourfold did, and must leave the same file behind. A figure is always taken
between two runs of the same round.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench.documents import preparing, spaces
from bench.documents.lines import Counts, Curve, Line, Policy
from bench.documents.results import Flatness, Outcome, PolicyOutcome, Record
from bench.documents.task import LIMITED, LIMITS, Run, Task
from bench.measurement import Measurement, spread
from bench.rounds import Progress, in_child, of, repeat, used, watched

CHILD = "bench.documents.subject"


@dataclass(slots=True)
class Bench:
    """One execution of the benchmark, in a folder of its own on the disk that is measured."""

    folder: Path
    counts: Counts
    lines: list[Line]
    curves: list[Curve]
    policies: list[Policy]
    records: list[Record] = field(default_factory=list)
    bytes_per_revision: dict[str, float] = field(default_factory=dict)

    def prepare(self, progress: Progress) -> None:
        runs = {run for group in self._groups() for run in group}
        preparing.prepare(self.folder, self.counts, runs, progress)
        for run in runs:
            if run.data == "past" or run.data.startswith("policy"):
                size = self._file(run).stat().st_size
                name = f"{run.history} {run.page_size} {run.data}"
                self.bytes_per_revision[name] = size / self.counts.past_commits

    def run(self, rounds: int, patience: int, progress: Progress) -> None:
        """At least `rounds` undisturbed rounds of every group, if they can be had in time."""
        repeat(
            self._groups(),
            self.records,
            lambda number, run: self._execute(number, run, progress),
            rounds=rounds,
            patience=patience,
            is_limit=lambda run: run.form in LIMITS,
        )

    def _groups(self) -> list[list[Run]]:
        """Runs that are compared with each other, and therefore are neighbours."""
        groups: dict[tuple[str, str, int], dict[Run, None]] = {}
        for line in self.lines:
            # Workloads A and B share a run, and so do D and E.
            workload = {"B": "A", "E": "D"}.get(line.workload, line.workload)
            group = groups.setdefault((workload, line.history, line.page_size), {})
            group.update(dict.fromkeys((line.reference, line.subject)))
        for curve in self.curves:
            group = groups.setdefault((curve.title, curve.history, curve.page_size), {})
            group.update(dict.fromkeys(run for _, run in curve.runs))
        for policy in self.policies:
            group = groups.setdefault((policy.title, policy.history, policy.page_size), {})
            group[policy.run] = None
        return [list(group) for group in groups.values()]

    # One round

    def _execute(self, number: int, run: Run, progress: Progress) -> None:
        progress(f"round {number}: {run.label}")
        source = path = self._file(run)
        if run.writes:
            path = self.folder / "run.sqlite"
            _copy(source, path)
        rows = self._rows(run)
        task = Task(run.form, run.history, run.page_size, str(path), run.count, str(rows))
        measured, share, sync_us = watched(
            self.folder, lambda: in_child(CHILD, task, task.form, Measurement)
        )
        if run.form in LIMITS:
            _prove(run, path, rows)
        elif number == 0 and run.form in LIMITED:
            _copy(path, rows)
        self.records.append(
            Record(
                round=number,
                run=run,
                operations=run.count,
                measured=measured,
                foreign_share=share,
                sync_us=sync_us,
            )
        )

    def _file(self, run: Run) -> Path:
        return preparing.file_of(self.folder, run.history, run.page_size, run.data)

    def _rows(self, run: Run) -> Path:
        form = run.form.split()[-1]
        return self.folder / f"rows-{form}-{run.history}-{run.page_size}.sqlite"

    # What came of it

    def outcomes(self, wanted: int) -> list[Outcome]:
        return [self._outcome(line, wanted) for line in self.lines]

    def flatness(self, wanted: int) -> list[Flatness]:
        found = []
        for curve in self.curves:
            runs = [run for _, run in curve.runs]
            counted, clean = used(self.records, runs, wanted)
            us = {
                size: median(record.us for record in of(self.records, run, counted))
                for size, run in curve.runs
            }
            found.append(
                Flatness(
                    title=curve.title,
                    history=curve.history,
                    page_size=curve.page_size,
                    us=us,
                    ratio=max(us.values()) / min(us.values()),
                    target=curve.target,
                    clean=clean,
                )
            )
        return found

    def policy_outcomes(self, wanted: int) -> list[PolicyOutcome]:
        found = []
        for policy in self.policies:
            counted, clean = used(self.records, [policy.run], wanted)
            name = f"{policy.history} {policy.page_size} {policy.run.data}"
            found.append(
                PolicyOutcome(
                    title=policy.title,
                    policy=policy.policy,
                    history=policy.history,
                    page_size=policy.page_size,
                    bytes_per_revision=self.bytes_per_revision[name],
                    past_us=median(record.us for record in of(self.records, policy.run, counted)),
                    clean=clean,
                )
            )
        return found

    def _outcome(self, line: Line, wanted: int) -> Outcome:
        counted, clean = used(self.records, [line.subject, line.reference], wanted)
        ours = of(self.records, line.subject, counted)
        theirs = {record.round: record for record in of(self.records, line.reference, counted)}
        ratios = [record.rate / theirs[record.round].rate for record in ours]
        if line.at_most:
            ratios = [1 / ratio for ratio in ratios]
        return Outcome(
            workload=line.workload,
            title=line.title,
            history=line.history,
            page_size=line.page_size,
            against=line.against,
            rate=spread([record.rate for record in ours]),
            reference_rate=spread([record.rate for record in theirs.values()]),
            cpu_us=median(record.cpu_us for record in ours),
            reference_cpu_us=median(record.cpu_us for record in theirs.values()),
            group=median(r.operations / r.measured.transactions for r in ours)
            if line.subject.writes
            else 0.0,
            ratio=spread(ratios),
            target=line.target,
            at_most=line.at_most,
            rounds=len(counted),
            clean=clean,
        )


def _copy(source: Path, path: Path) -> None:
    """A fresh copy, on disk before the clock starts, so that nobody pays for writing it."""
    for suffix in ("", "-wal", "-shm", ".lock"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    shutil.copyfile(source, path)
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _prove(run: Run, path: Path, rows: Path) -> None:
    found = spaces.fingerprint(path, run.history, run.page_size)
    if found != spaces.fingerprint(rows, run.history, run.page_size):
        raise spaces.WrongRows(f"{run.label}: other rows than Fourfold's")
