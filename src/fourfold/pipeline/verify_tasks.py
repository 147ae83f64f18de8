"""Verification of many files as Spark tasks: units of work, and the worker function.

A model's `Verifier` splits a file into units and yields the problems of a unit; here units are
grouped into tasks, and the problems are stored. Workers read through the kernel, each file in
read-only mode, one unit at a time, and write the problems to a file of their task.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fourfold import limits
from fourfold.errors import FourfoldError
from fourfold.pipeline.models import get_verifier
from fourfold.pipeline.store_files import StoreFile
from fourfold.pipeline.task_groups import pack
from fourfold.query.tables import arrow
from fourfold.retry import Attempts, Retries

if TYPE_CHECKING:
    import pyarrow as pa

VERIFY_ATTEMPTS: Final = 5
"""Attempts to open a file that is busy."""
VERIFY_PAUSE_S: Final = 0.5
"""Pause between two attempts to open a busy file."""

COLUMNS: Final = "task bigint, units bigint, faults bigint, seconds double, peak_bytes bigint"


class VerifyProblem(msgspec.Struct, frozen=True, omit_defaults=True):
    """A problem as reported: where it is, what was expected there, and what was found."""

    file: str
    space: str
    table: str
    problem: str
    key: dict[str, Any] = {}
    expected: str | None = None
    found: str | None = None


@dataclass(frozen=True, slots=True)
class Unit:
    """Some rules (all if `only` is empty) on a part of a file (all if `part` is None). The model
    defines the rules and the parts.
    """

    path: str
    space: str
    bytes: int
    only: tuple[str, ...] = ()
    part: Any = None
    model: str = "documents"


@dataclass(frozen=True, slots=True)
class Verifier:
    """The rules of a model: how a file is split into units, and the problems of a unit."""

    units: Callable[[StoreFile], list[Unit]]
    iter_problems: Callable[[Unit], Iterator[VerifyProblem]]


def group_units(work: Sequence[Unit]) -> list[list[Unit]]:
    """Group units into tasks of about equal size."""
    costs = [unit.bytes + limits.SOURCE_FILE_COST_BYTES for unit in work]
    limit = min(
        max(sum(costs) // limits.VERIFY_TASKS, limits.VERIFY_TASK_BYTES_MIN),
        limits.VERIFY_PART_BYTES,
    )
    return list(pack(zip(costs, work, strict=True), limit))


class VerifyTask:
    """Worker function: verifies the units of the tasks whose numbers it receives."""

    def __init__(
        self, work: Sequence[Sequence[Unit]], folder: Path, numbers: Sequence[int]
    ) -> None:
        self._work = work
        self._folder = folder
        self._numbers = numbers

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pa = arrow()
        for batch in batches:
            for index in batch.column(0).to_pylist():
                row = self._task(self._numbers[index], self._work[index])
                yield pa.RecordBatch.from_pylist([row])

    def _task(self, number: int, work: Sequence[Unit]) -> dict[str, Any]:
        started = time.monotonic()
        target = result_path(self._folder, number)
        faults = 0
        if not target.exists():
            partial = target.with_suffix(f".{os.getpid()}")
            with partial.open("wb") as file:
                for unit in work:
                    for problem in iter_problems(unit):
                        file.write(msgspec.json.encode(problem) + b"\n")
                        faults += 1
            partial.replace(target)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return {
            "task": number,
            "units": len(work),
            "faults": faults,
            "seconds": time.monotonic() - started,
            "peak_bytes": peak,
        }


def result_path(folder: Path, number: int) -> Path:
    """Return the file of a task's problems. It is complete if it exists."""
    return folder / f"task-{number:06}.ndjson"


def iter_problems(unit: Unit) -> Iterator[VerifyProblem]:
    """Yield the problems of a unit. A file that stays busy is reported like a damaged one."""
    verifier = get_verifier(unit.model)
    attempts = Attempts(Retries.every(VERIFY_PAUSE_S, most=VERIFY_ATTEMPTS - 1))
    while True:
        problems: list[VerifyProblem] = []
        try:
            for problem in verifier.iter_problems(unit):
                problems.append(problem)
                if len(problems) >= limits.VERIFY_FAULTS_SHOWN:
                    yield from problems
                    problems.clear()
        except FourfoldError as error:
            if (pause := attempts.next_pause()) is not None:
                time.sleep(pause)
                continue
            message = f"could not be checked: {error.message}"
            problems.append(VerifyProblem(unit.path, unit.space, "file", message, found=error.kind))
        yield from problems
        return


def iter_results(folder: Path, count: int) -> Iterator[VerifyProblem]:
    """Yield the problems of all tasks, in the order of the tasks."""
    decoder = msgspec.json.Decoder(VerifyProblem)
    for number in range(count):
        with result_path(folder, number).open("rb") as file:
            yield from map(decoder.decode, file)


def sweep_partial(folder: Path) -> None:
    """Remove the partial files of killed tasks."""
    for left in folder.glob("task-*"):
        if left.suffix != ".ndjson":
            with suppress(FileNotFoundError):
                left.unlink()
