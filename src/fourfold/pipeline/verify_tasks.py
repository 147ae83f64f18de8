"""The check of many files as tasks of Spark's: units of work, and the worker that does them.

A model's `verifying` says which units a file is, and what is wrong in one of them; here they are
put together until a task has enough to do, and what the tasks find is written down. Workers read
through the kernel, each file in read-only mode, one unit at a time, and write what they find to a
file of their task.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fourfold import limits
from fourfold.errors import FourfoldError
from fourfold.pipeline.tables import arrow, part_of

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: Final = "task bigint, units bigint, faults bigint, seconds double, peak_bytes bigint"


class VerifyProblem(msgspec.Struct, frozen=True, omit_defaults=True):
    """A fault as a report gives it: where, what, and what was expected and found there."""

    file: str
    space: str
    table: str
    problem: str
    key: dict[str, Any] = {}
    expected: str | None = None
    found: str | None = None


@dataclass(frozen=True, slots=True)
class Unit:
    """Some rules (all, if none is named) on some keys (all, if no part is given) of a file. What
    the names and the part are, the model knows.
    """

    path: str
    space: str
    bytes: int
    only: tuple[str, ...] = ()
    part: Any = None
    model: str = "documents"


def tasks(work: Sequence[Unit]) -> list[list[Unit]]:
    """Units put together until a task has enough to do."""
    cost = [unit.bytes + limits.SOURCE_FILE_COST_BYTES for unit in work]
    most = min(
        max(sum(cost) // limits.VERIFY_TASKS, limits.VERIFY_TASK_BYTES_MIN),
        limits.VERIFY_PART_BYTES,
    )
    ready: list[list[Unit]] = []
    size = most
    for unit, bytes_ in zip(work, cost, strict=True):
        if size + bytes_ > most:
            ready.append([])
            size = 0
        ready[-1].append(unit)
        size += bytes_
    return ready


class VerifyTask:
    """What a worker does with the numbers of the tasks that it is given."""

    def __init__(
        self, work: Sequence[Sequence[Unit]], folder: Path, numbers: Sequence[int]
    ) -> None:
        self._work = work
        self._folder = folder
        self._numbers = numbers

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pa = arrow()
        for batch in batches:
            for place in batch.column(0).to_pylist():
                row = self._task(self._numbers[place], self._work[place])
                yield pa.RecordBatch.from_pylist([row])

    def _task(self, number: int, work: Sequence[Unit]) -> dict[str, Any]:
        started = time.monotonic()
        target = result_of(self._folder, number)
        faults = 0
        if not target.exists():
            partial = target.with_suffix(f".{os.getpid()}")
            with partial.open("wb") as file:
                for unit in work:
                    for found in findings(unit):
                        file.write(msgspec.json.encode(found) + b"\n")
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


def result_of(folder: Path, number: int) -> Path:
    """Where a task leaves its faults. A file that is there is whole."""
    return folder / f"task-{number:06}.ndjson"


def findings(unit: Unit) -> Iterator[VerifyProblem]:
    """What is wrong in a unit. A file that stays busy is named like one that is damaged."""
    model = part_of(unit.model, "verify")
    for attempt in range(limits.VERIFY_ATTEMPTS):
        found: list[VerifyProblem] = []
        try:
            for each in model.faults(unit):
                found.append(each)
                if len(found) >= limits.VERIFY_FAULTS_SHOWN:
                    yield from found
                    found.clear()
        except FourfoldError as error:
            if attempt + 1 < limits.VERIFY_ATTEMPTS:
                time.sleep(limits.VERIFY_PAUSE_S)
                continue
            problem = f"could not be checked: {error.message}"
            found.append(VerifyProblem(unit.path, unit.space, "file", problem, found=error.kind))
        yield from found
        return


def read(folder: Path, count: int) -> Iterator[VerifyProblem]:
    """Everything that the tasks found, in the order of the tasks."""
    decoder = msgspec.json.Decoder(VerifyProblem)
    for number in range(count):
        with result_of(folder, number).open("rb") as file:
            yield from map(decoder.decode, file)


def sweep_partial(folder: Path) -> None:
    """Remove what killed tasks left half written."""
    for left in folder.glob("task-*"):
        if left.suffix != ".ndjson":
            with suppress(FileNotFoundError):
                left.unlink()
