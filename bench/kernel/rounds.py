"""Rounds: both sides of every line, neighbours in time, in random order, until enough rounds are
undisturbed.

The first round only warms up: it fills caches, and tells how large the kernel's groups are, so that
C can commit groups of the same size. After that every round shuffles the workloads, and inside each
workload the runs. A ratio is always taken between two runs of the same round.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

from bench.kernel import database, dataset
from bench.kernel.ceiling import Ceiling
from bench.kernel.dataset import Dataset
from bench.kernel.results import Outcome, Record, Side, summarise
from bench.kernel.subject import COLUMNS
from bench.kernel.task import Task
from bench.kernel.workloads import Line, Run
from bench.machine import ForeignLoad, sync_cost_us
from bench.measurement import Measurement, spread
from bench.rounds import in_child
from fourfold.kernel import bulk_insert
from fourfold.limits import CHECKPOINT_BYTES

Progress = Callable[[str], None]
SYNC_PROBES = 50


@dataclass(slots=True)
class Bench:
    """One execution of the benchmark, in a folder of its own on the disk that is measured."""

    folder: Path
    lines: list[Line]
    ceiling: Ceiling | None
    quick: bool
    records: list[Record] = field(default_factory=list)
    _order: random.Random = field(default_factory=random.Random)
    _expected: dict[tuple[bool, int], Dataset] = field(default_factory=dict)

    def prepare(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        rows = max(line.subject(quick=self.quick).rows for line in self.lines)
        for one_key in (True, False):
            dataset.write(self._data(one_key=one_key), rows, one_key=one_key)
        self._template.unlink(missing_ok=True)
        database.make_template(self._template)

    def run(self, rounds: int, patience: int, progress: Progress) -> None:
        """At least `rounds` undisturbed rounds of every line, if they can be had in `patience`."""
        self._round(0, self.lines, progress)
        for number in range(1, patience + 1):
            wanting = [line for line in self.lines if len(self._pairs(line)[0]) < rounds]
            if not wanting:
                return
            self._round(number, wanting, progress)

    def outcomes(self, rounds: int) -> list[Outcome]:
        return [self._outcome(line, rounds) for line in self.lines]

    # One round

    def _round(self, number: int, lines: list[Line], progress: Progress) -> None:
        workloads = sorted({line.workload for line in lines})
        self._order.shuffle(workloads)
        for workload in workloads:
            members = [line for line in lines if line.workload == workload]
            runs = self._runs(members)
            if number == 0:
                # C cannot know the size of the groups before the kernel has shown it.
                for run in [run for run in runs if run.side == "fourfold"]:
                    self._execute(number, run, runs[run], progress)
                runs = {run: names for run, names in self._runs(members).items() if run.side == "C"}
            order = list(runs)
            self._order.shuffle(order)
            for run in order:
                self._execute(number, run, runs[run], progress)

    def _runs(self, lines: list[Line]) -> dict[Run, list[str]]:
        """The runs that `lines` need, each with the names of the lines that it serves."""
        runs: dict[Run, list[str]] = {}
        for line in lines:
            runs.setdefault(line.subject(quick=self.quick), []).append(line.name)
            if self.ceiling is None:
                continue
            group = round(self._group_size(line))
            carray = self.ceiling.version.has_carray
            for run in line.limits(quick=self.quick, group=group, carray=carray):
                runs.setdefault(run, []).append(line.name)
        return runs

    def _group_size(self, line: Line) -> float:
        sizes = [
            record.rows / record.measured.transactions
            for record in self.records
            if record.side == "fourfold" and line.name in record.lines
        ]
        return mean(sizes) if sizes else 1.0

    def _execute(self, number: int, run: Run, names: list[str], progress: Progress) -> None:
        progress(f"round {number}: {run.label}")
        path = self.folder / "run.db"
        database.copy_template(self._template, path)
        sync_us, _ = sync_cost_us(self.folder, rounds=SYNC_PROBES)
        with ForeignLoad() as foreign:
            measured = self._measure(run, path)
        database.verify(path, self._rows(run))
        self.records.append(
            Record(
                round=number,
                lines=names,
                side=run.side,
                form=run.form,
                rows=run.rows,
                batch=run.batch,
                callers=run.callers,
                measured=measured,
                foreign_share=None if foreign.share is None else round(foreign.share, 3),
                sync_us=sync_us,
            )
        )

    def _measure(self, run: Run, path: Path) -> Measurement:
        data = self._data(one_key=run.one_key)
        if run.side == "fourfold":
            task = Task(run.form, str(path), str(data), run.rows, run.batch, run.callers)
            return in_child("bench.kernel.subject", task, task.form, Measurement)
        assert self.ceiling is not None
        mode, *size = run.form.split()
        advance = {"requests": database.SQL.advance_one, "claims": database.SQL.claim}.get(
            mode, database.SQL.advance
        )
        setup = database.setup_for_c(CHECKPOINT_BYTES // database.PROFILE.page_size)
        common = [str(path), str(data), str(run.rows), str(run.batch), setup, advance]
        return self.ceiling.run(mode, [*common, *_statements(mode, size, run.batch)])

    # What came of it

    def _pairs(self, line: Line) -> tuple[list[int], list[int]]:
        """The rounds of `line` that nobody disturbed, and those that somebody did."""
        mine = [r for r in self.records if line.name in r.lines and r.round > 0]
        rounds = sorted({record.round for record in mine})
        quiet = min((record.sync_us for record in self.records), default=0.0)
        bad = {record.round for record in mine if record.disturbed(quiet)}
        return [n for n in rounds if n not in bad], [n for n in rounds if n in bad]

    def _outcome(self, line: Line, wanted: int) -> Outcome:
        good, bad = self._pairs(line)
        clean = len(good) >= wanted
        used = good if clean else sorted(good + bad)
        mine = [r for r in self.records if line.name in r.lines and r.round in used]
        ours = [record for record in mine if record.side == "fourfold"]
        theirs: dict[str, list[Record]] = {}
        for record in mine:
            if record.side == "C":
                theirs.setdefault(record.form, []).append(record)
        limits = sorted(map(summarise, theirs.values()), key=_median_rate, reverse=True)
        ratio = None
        if limits:
            rates = {record.round: record.rate for record in theirs[limits[0].form]}
            ratio = spread([record.rate / rates[record.round] for record in ours])
        return Outcome(
            name=line.name,
            workload=line.workload,
            title=line.title,
            bulk=line.bulk,
            rounds=len(used),
            disturbed_rounds=len(bad),
            clean=clean,
            fourfold=summarise(ours),
            limits=limits,
            ratio=ratio,
            target=line.target,
        )

    def _rows(self, run: Run) -> Dataset:
        which = (run.one_key, run.rows)
        if which not in self._expected:
            self._expected[which] = dataset.load(self._data(one_key=run.one_key), run.rows)
        return self._expected[which]

    @property
    def _template(self) -> Path:
        return self.folder / "template.db"

    def _data(self, *, one_key: bool) -> Path:
        return self.folder / ("one-key.bin" if one_key else "mixed-keys.bin")


def _median_rate(side: Side) -> float:
    return side.rate.median


def _statements(mode: str, size: list[str], batch: int) -> list[str]:
    """The very texts that the kernel would run, for the C program's command line."""
    if mode == "carray":
        return [bulk_insert.series_statement("entry", ("key", "ts"), "position", "payload", "size")]
    if mode == "requests":
        return [database.SQL.append]
    if mode in {"claims", "loop"}:
        return [database.SQL.append_at]
    rows = int(size[0])
    # Without the promise to undo the rows of a statement that fails, SQLite keeps no copies of the
    # pages that it changes: the fastest way for many keys.
    verb = " OR FAIL" if size[1:] else ""
    sizes = [rows]
    while rest := batch - batch // rows * rows - sum(sizes[1:]):
        sizes.append(1 << (rest.bit_length() - 1))
    words = []
    for count in sizes:
        text = bulk_insert.values_statement("entry", COLUMNS, count)
        words += [str(count), text.replace("INSERT INTO", f"INSERT{verb} INTO", 1)]
    return words
