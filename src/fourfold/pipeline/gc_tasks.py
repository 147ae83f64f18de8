"""The mark phase of gc as Spark tasks, each over some of the files.

A model's `gc` module marks what may be removed from one file. Marking only reads, so writers may
run at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from fourfold import limits
from fourfold.pipeline.store_files import StoreFile
from fourfold.pipeline.tables import arrow, load_part

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: Final = "mark string"


class MarkResult(msgspec.Struct, frozen=True):
    """What was marked in one file, counted by kind, or why it could not be marked."""

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


class MarkTask:
    """Worker function: marks the files of the tasks whose numbers it receives."""

    def __init__(self, work: Sequence[Sequence[StoreFile]], model: str, grace_s: float) -> None:
        self._work = work
        self._model = model
        self._grace_s = grace_s

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pa = arrow()
        mark_file = load_part(self._model, "gc").mark_file
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for file in self._work[number]:
                    text = msgspec.json.encode(mark_file(file, self._grace_s)).decode()
                    yield pa.RecordBatch.from_pylist([{"mark": text}])


def tasks(files: Sequence[StoreFile]) -> list[list[StoreFile]]:
    """Group files into tasks of about equal size."""
    cost = [file.bytes + limits.SOURCE_FILE_COST_BYTES for file in files]
    limit = max(sum(cost) // limits.VERIFY_TASKS, limits.VERIFY_TASK_BYTES_MIN)
    groups: list[list[StoreFile]] = []
    size = limit
    for file, bytes_ in zip(files, cost, strict=True):
        if size + bytes_ > limit:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += bytes_
    return groups


def decoded(text: str) -> MarkResult:
    """Decode a result that a task returned."""
    return msgspec.json.decode(text, type=MarkResult)
