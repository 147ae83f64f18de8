"""The mark phase of gc as Spark tasks, each over some of the files.

A model's `Collector` marks what may be removed from one file. Marking only reads, so writers may
run at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from fourfold import limits
from fourfold.pipeline.models import get_collector
from fourfold.pipeline.store_files import StoreFile
from fourfold.pipeline.task_groups import pack
from fourfold.query.tables import arrow

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: Final = "mark string"


class MarkResult(msgspec.Struct, frozen=True):
    """Counts of marked objects in one file, by kind, or the error that prevented marking."""

    root: str
    path: str
    space: str
    has_policy: bool = False
    horizon: int = 0
    counts: dict[str, int] = {}
    problem: str = ""

    @property
    def anything(self) -> bool:
        """True if anything was marked."""
        return any(self.counts.values())


@dataclass(frozen=True, slots=True)
class Collector:
    """Gc of a model: what it removes, how a file is marked, and how it is collected."""

    kinds: tuple[str, ...]
    """The kinds of items that are counted."""
    noun: str
    """What a file contains, for messages."""
    describe: Callable[[int, int], str]
    """Returns a summary from the number of files, and of those with a policy."""
    mark_file: Callable[[StoreFile, float], MarkResult]
    """Marks what may be removed, older than a grace period in seconds."""
    collect: Callable[[MarkResult, float], tuple[dict[str, int], int]]
    """Collects a marked file; returns the number of removed items by kind, and the bytes."""


class MarkTask:
    """Worker function: marks the files of the tasks whose numbers it receives."""

    def __init__(self, work: Sequence[Sequence[StoreFile]], model: str, grace_s: float) -> None:
        self._work = work
        self._model = model
        self._grace_s = grace_s

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pa = arrow()
        mark_file = get_collector(self._model).mark_file
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for file in self._work[number]:
                    text = msgspec.json.encode(mark_file(file, self._grace_s)).decode()
                    yield pa.RecordBatch.from_pylist([{"mark": text}])


def group_files(files: Sequence[StoreFile]) -> list[list[StoreFile]]:
    """Group files into tasks of about equal size."""
    costs = [file.bytes + limits.SOURCE_FILE_COST_BYTES for file in files]
    limit = max(sum(costs) // limits.VERIFY_TASKS, limits.VERIFY_TASK_BYTES_MIN)
    return list(pack(zip(costs, files, strict=True), limit))


def decode(text: str) -> MarkResult:
    """Decode a result that a task returned."""
    return msgspec.json.decode(text, type=MarkResult)
