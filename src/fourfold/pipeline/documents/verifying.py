"""The check of many spaces as tasks: which rules on which part of which file, and the worker that
applies them.

A small file is one unit of work. A large one is divided: its pages, the rules that look at it as a
whole, and for each kind of key several stretches. Workers read through the kernel, each file in
read-only mode, one unit at a time, and write what they find to a file of their task.
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
from fourfold.kernel import load_queries
from fourfold.models.documents.faults import WHOLE, Fault, Kind, Part
from fourfold.pipeline.finding import Found
from fourfold.pipeline.tables import arrow
from fourfold.store.soundness import faults_of, history_in, opened, rules_of

if TYPE_CHECKING:
    import pyarrow as pa

    from fourfold.models.documents.history import History, View

COLUMNS: Final = "task bigint, units bigint, faults bigint, seconds double, peak_bytes bigint"
_SQL: Final = load_queries("fourfold.pipeline.documents", "verifying.sql")
_CUT_BY_FACTS: Final = ("values", "facts")
"""The rules of a log of facts whose keys are spread like the hashes of the facts."""


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
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
    """Some rules (all, if none is named) on some keys (all, if no part is given) of a file."""

    path: str
    space: str
    bytes: int
    only: tuple[str, ...] = ()
    part: Part | None = None


def units(file: Found) -> list[Unit]:
    """The work that a file is."""
    count = -(-file.bytes // limits.VERIFY_PART_BYTES)
    if count <= 1:
        return [Unit(file.path, file.space, file.bytes)]
    path = Path(file.path)
    try:
        history = history_in(path)
        with opened(path, history) as view:
            parts = list(_parts(view, history, count))
    except FourfoldError:
        # Whoever checks it will meet the same error, and report it.
        return [Unit(file.path, file.space, file.bytes)]
    share = file.bytes // len(parts)
    return [Unit(file.path, file.space, share, only, part) for only, part in parts]


def _parts(
    view: View, history: History, count: int
) -> Iterator[tuple[tuple[str, ...], Part | None]]:
    by: dict[Kind, list[str]] = {}
    for rule in rules_of(history):
        by.setdefault(rule.by, []).append(rule.name)
    for name in by.pop("", []):
        yield (name,), None
    by_facts = tuple(name for name in by.get("hash", ()) if name in _CUT_BY_FACTS)
    others = tuple(name for name in by.pop("hash", ()) if name not in _CUT_BY_FACTS)
    if others:
        yield others, WHOLE["hash"]
    if by_facts:
        for part in _between("hash", _cuts(view, _SQL.hash_count, _SQL.hashes, count)):
            yield by_facts, part
    for part in _between("seq", view.all(_SQL.seqs, (count,))):
        yield tuple(by["seq"]), part
    for part in _between("entity", _cuts(view, _SQL.entity_count, _SQL.entities, count)):
        yield tuple(by["entity"]), part


def _cuts(view: View, counting: str, keys: str, parts: int) -> list[tuple[Any, ...]]:
    """Keys that leave about as many rows between them: one fewer than parts, or none."""
    width = -(-int(view.value(counting)) // parts)
    return view.all(keys, (width,))[: parts - 1] if width else []


def _between(kind: Kind, cuts: Iterable[tuple[Any, ...]]) -> Iterator[Part]:
    """The parts between keys, from the least to the greatest that there can be."""
    low, highest = WHOLE[kind]
    for cut in cuts:
        if cut > low:
            yield Part(low, cut)
            low = cut
    yield Part(low, highest)


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


class Checking:
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


def findings(unit: Unit) -> Iterator[Finding]:
    """What is wrong in a unit. A file that stays busy is named like one that is damaged."""
    for attempt in range(limits.VERIFY_ATTEMPTS):
        found: list[Finding] = []
        try:
            for fault in faults_of(Path(unit.path), unit.only, unit.part):
                found.append(_finding(unit, fault))
                if len(found) >= limits.VERIFY_FAULTS_SHOWN:
                    yield from found
                    found.clear()
        except FourfoldError as error:
            if attempt + 1 < limits.VERIFY_ATTEMPTS:
                time.sleep(limits.VERIFY_PAUSE_S)
                continue
            problem = f"could not be checked: {error.message}"
            found.append(Finding(unit.path, unit.space, "file", problem, found=error.kind))
        yield from found
        return


def _finding(unit: Unit, fault: Fault) -> Finding:
    key = {name: value for name, value in fault.key.items() if value is not None}
    return Finding(unit.path, unit.space, fault.table, str(fault), key, fault.expected, fault.found)


def read(folder: Path, count: int) -> Iterator[Finding]:
    """Everything that the tasks found, in the order of the tasks."""
    decoder = msgspec.json.Decoder(Finding)
    for number in range(count):
        with result_of(folder, number).open("rb") as file:
            yield from map(decoder.decode, file)


def sweep_partial(folder: Path) -> None:
    """Remove what killed tasks left half written."""
    for left in folder.glob("task-*"):
        if left.suffix != ".ndjson":
            with suppress(FileNotFoundError):
                left.unlink()
