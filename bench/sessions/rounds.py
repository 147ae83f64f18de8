"""Rounds: the runs of every line, neighbours in time, in random order, each in a new process."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import fourfold
from bench.measurement import spread
from bench.rounds import Progress, in_child, watched
from bench.sessions.child import event
from bench.sessions.lines import Curve, Line
from bench.sessions.results import Flatness, Outcome, Record
from bench.sessions.task import Found, Run, Task

CHILD = "bench.sessions.child"
ONCE = "talk sqlite"
"""Takes gigabytes and minutes, so it runs once, and is compared with the rounds of the others."""


@dataclass(slots=True)
class Bench:
    """One execution of the benchmark, in a folder of its own on the disk that is measured."""

    folder: Path
    lines: list[Line]
    curves: list[Curve]
    records: list[Record] = field(default_factory=list)
    _order: random.Random = field(default_factory=random.Random)

    def prepare(self, progress: Progress) -> None:
        for size in sorted({size for curve in self.curves for size, _ in curve.runs}):
            progress(f"preparing a log of {size:,} events")
            with fourfold.open(self.folder / f"log-{size}") as store:
                store.sessions.create_session({"id": "s"})
                for at in range(0, size, 1_000):
                    part = [event(number, 200) for number in range(at, at + 1_000)]
                    store.sessions.append_events("s", part)
                # The same distance from the newest snapshot at every length.
                for number in range(100):
                    store.sessions.append_event("s", event(number, 200))

    def run(self, rounds: int, progress: Progress) -> None:
        groups = self._groups()
        for number in range(rounds + 1):
            self._order.shuffle(groups)
            for group in groups:
                runs = list(group)
                self._order.shuffle(runs)
                for run in runs:
                    talks = run.form.startswith("talk")
                    if (number == 0 and talks) or (number > 1 and run.form == ONCE):
                        continue
                    progress(f"round {number}: {run.label}")
                    self._execute(number, run)

    def _groups(self) -> list[list[Run]]:
        groups: dict[str, dict[Run, None]] = {}
        for line in self.lines:
            name = line.title
            if line.workload == "C":
                name = "talk"
            elif line.workload == "E":
                name = f"state {line.title.partition(',')[0]}"
            groups.setdefault(name, {}).update(dict.fromkeys((line.subject, line.reference)))
        for curve in self.curves:
            groups[curve.title] = dict.fromkeys(run for _, run in curve.runs)
        return [list(group) for group in groups.values()]

    def _execute(self, number: int, run: Run) -> None:
        work = self.folder / "run"
        work.mkdir()
        task = Task(run, str(self.folder / run.data if run.data else work))
        found, share, sync_us = watched(
            self.folder, lambda: in_child(CHILD, task, run.label, Found)
        )
        shutil.rmtree(work)
        self.records.append(Record(number, run, found, share, sync_us))

    # What came of it

    def outcomes(self) -> list[Outcome]:
        return [self._outcome(line) for line in self.lines]

    def flatness(self) -> list[Flatness]:
        found = []
        for curve in self.curves:
            us, clean = {}, True
            for size, run in curve.runs:
                used, quiet = self._used(run)
                us[size] = median(record.found.figures[curve.figure] for record in used)
                clean = clean and quiet
            ratio = max(us.values()) / min(us.values())
            found.append(Flatness(curve.title, us, ratio, curve.target, clean))
        return found

    def _outcome(self, line: Line) -> Outcome:
        ours, quiet = self._used(line.subject)
        theirs, their_quiet = self._used(line.reference)
        note = next((each.found.note for each in [*ours, *theirs] if each.found.note), "")
        common = (line.workload, line.title, line.figure, line.against)
        if note:
            return Outcome(
                *common, None, None, None, line.target, line.at_most, 0, clean=True, note=note
            )
        rounds = {record.round: record.found.figures[line.figure] for record in theirs}
        middle = median(rounds.values())
        found = [record.found.figures[line.figure] for record in ours]
        ratios = [
            record.found.figures[line.figure] / rounds.get(record.round, middle) for record in ours
        ]
        return Outcome(
            *common,
            spread(found),
            spread(list(rounds.values())),
            spread(ratios),
            line.target,
            line.at_most,
            len(ours),
            clean=quiet and their_quiet,
        )

    def _used(self, run: Run) -> tuple[list[Record], bool]:
        """The rounds of a run that count, and whether they were undisturbed: those that were, if
        there are any.
        """
        quiet_us = min(record.sync_us for record in self.records)
        mine = [record for record in self.records if record.run == run and record.round]
        good = [record for record in mine if not record.disturbed(quiet_us)]
        return (good, True) if good else (mine, False)
