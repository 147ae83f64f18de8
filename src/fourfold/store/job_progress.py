"""Progress of jobs: stages, steps by interval, and the file that a run writes for other processes.

A run writes its progress to a file of the pipeline's scratch folder, at most once per interval, so
that every process sees it: the database of runs is only open at the begin and the end of a run.
"""

from __future__ import annotations

import time
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Final

import msgspec

from fourfold.store.layout import pipeline_folder
from fourfold.wire.store import JobProgress, JobRate, JobStage

STARTED_BY: Final = "FOURFOLD_STARTED_BY"
"""Environment variable with what starts a run, for its record."""
RATE_INTERVALS_MAX: Final = 60
RATE_INTERVAL_MS: Final = 500
"""Intervals of which steps are counted, and the first length of one; it doubles if needed."""
STAGES_MAX: Final = 32
"""Stages that are recorded; later ones are part of the last."""
WRITE_INTERVAL_S: Final = 0.5
"""Minimum time between two writes of a progress file."""
KILLED_KEPT_S: Final = 7 * 24 * 3600
"""Time for which the progress of a killed run is kept."""


class StepRate:
    """Counts the steps of one job by interval. Time without steps counts as zero steps."""

    def __init__(self) -> None:
        self._interval_ms = RATE_INTERVAL_MS
        self._steps = [0]
        self._done = 0

    def add(self, elapsed_ms: int, done: int) -> None:
        """Count the steps since the last call; fewer than then start a new count."""
        new = done - self._done if done >= self._done else done
        self._done = done
        index = max(0, elapsed_ms) // self._interval_ms
        while index >= RATE_INTERVALS_MAX:
            pairs = zip_longest(self._steps[::2], self._steps[1::2], fillvalue=0)
            self._steps = [first + second for first, second in pairs]
            self._interval_ms *= 2
            index = max(0, elapsed_ms) // self._interval_ms
        # The clock may be set back: those steps count in the newest interval.
        self._steps += [0] * (index + 1 - len(self._steps))
        self._steps[-1] += new

    def to_wire(self) -> JobRate:
        """Return the counts so far."""
        return JobRate(self._interval_ms, list(self._steps))


class StageLog:
    """The stages of one job, in their order.

    A label is a stage, unless it is only the current item of work: then the steps continue towards
    the same total.
    """

    def __init__(self) -> None:
        self._stages: list[JobStage] = []

    def add(self, label: str, done: int, total: int, now_ms: int) -> bool:
        """Record the progress of the current stage, or the begin of the next and return True."""
        last = self._stages[-1] if self._stages else None
        if last is None or (label != last.name and not self._is_item(last, done, total)):
            if len(self._stages) >= STAGES_MAX:
                return False
            self.end(now_ms)
            self._stages.append(JobStage(label, done, total, now_ms))
            return True
        if (done, total) != (last.done, last.total):
            self._stages[-1] = msgspec.structs.replace(last, done=done, total=total)
        return False

    @staticmethod
    def _is_item(last: JobStage, done: int, total: int) -> bool:
        return 0 < total == last.total and done >= last.done

    def end(self, now_ms: int) -> None:
        """Record the end of the current stage."""
        if self._stages and self._stages[-1].ended_at_ms is None:
            self._stages[-1] = msgspec.structs.replace(self._stages[-1], ended_at_ms=now_ms)

    def to_wire(self) -> list[JobStage]:
        """Return the stages so far; none if there is only one."""
        return list(self._stages) if len(self._stages) > 1 else []


class RunProgress(msgspec.Struct, frozen=True):
    """The progress of a run, with its stages."""

    progress: JobProgress
    stages: list[JobStage]


class ProgressFile:
    """Records the progress of one run in a file while it runs."""

    def __init__(self, root: Path, run_id: str) -> None:
        self._path = progress_path(root, run_id)
        self._started_ms = _now_ms()
        self._progress = JobProgress()
        self._rate = StepRate()
        self._stages = StageLog()
        self._written_s = 0.0
        remove_old(root)

    def advance(self, label: str, done: int, total: int) -> None:
        """Record progress; a file that cannot be written is not an error of the run."""
        now_ms = _now_ms()
        self._rate.add(now_ms - self._started_ms, done)
        is_stage = self._stages.add(label, done, total, now_ms)
        self._progress = JobProgress(label, done, total, self._rate.to_wire())
        if is_stage or time.monotonic() - self._written_s >= WRITE_INTERVAL_S:
            self._written_s = time.monotonic()
            with suppress(OSError):
                self._write()

    def end(self) -> RunProgress:
        """Remove the file and return the progress of the whole run."""
        self._stages.end(_now_ms())
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
        return RunProgress(self._progress, self._stages.to_wire())

    def _write(self) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = msgspec.json.encode(RunProgress(self._progress, self._stages.to_wire()))
        partial = self._path.with_suffix(".partial")
        partial.write_bytes(content)
        partial.replace(self._path)


def progress_path(root: str | Path, run_id: str) -> Path:
    """Return the file with the progress of a run."""
    return pipeline_folder(Path(root)) / "progress" / f"{run_id}.json"


def read_progress(root: str | Path, run_id: str) -> RunProgress | None:
    """Return the progress of a run that runs, or None if there is none."""
    try:
        return msgspec.json.decode(progress_path(root, run_id).read_bytes(), type=RunProgress)
    except (OSError, msgspec.MsgspecError):
        return None


def remove_old(root: Path) -> None:
    """Remove the progress of runs that were killed long ago."""
    oldest_s = time.time() - KILLED_KEPT_S
    with suppress(OSError):
        for path in (pipeline_folder(root) / "progress").iterdir():
            if path.stat().st_mtime < oldest_s:
                path.unlink(missing_ok=True)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
