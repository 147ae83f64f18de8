"""Marking what may be collected, as tasks of Spark's, each over some of the files.

A model's `marking` says what may go of one file. Marking reads, beside running writers too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from fourfold import limits
from fourfold.pipeline.cut import StoreFile
from fourfold.pipeline.tables import arrow, part_of

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: Final = "mark string"


class MarkResult(msgspec.Struct, frozen=True):
    """What was marked in a file: how many of each kind. Or why nothing could be."""

    root: str
    path: str
    space: str
    has_policy: bool = False
    horizon: int = 0
    counts: dict[str, int] = {}
    problem: str = ""

    @property
    def anything(self) -> bool:
        return any(self.counts.values())


class MarkTask:
    """What a worker does with the numbers of the tasks that it is given."""

    def __init__(self, work: Sequence[Sequence[StoreFile]], model: str, grace_s: float) -> None:
        self._work = work
        self._model = model
        self._grace_s = grace_s

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pa = arrow()
        marked = part_of(self._model, "gc").marked
        for batch in batches:
            for place in batch.column(0).to_pylist():
                for file in self._work[place]:
                    text = msgspec.json.encode(marked(file, self._grace_s)).decode()
                    yield pa.RecordBatch.from_pylist([{"mark": text}])


def tasks(files: Sequence[StoreFile]) -> list[list[StoreFile]]:
    """Files put together until a task has enough to do."""
    cost = [file.bytes + limits.SOURCE_FILE_COST_BYTES for file in files]
    most = max(sum(cost) // limits.VERIFY_TASKS, limits.VERIFY_TASK_BYTES_MIN)
    ready: list[list[StoreFile]] = []
    size = most
    for file, bytes_ in zip(files, cost, strict=True):
        if size + bytes_ > most:
            ready.append([])
            size = 0
        ready[-1].append(file)
        size += bytes_
    return ready


def decoded(text: str) -> MarkResult:
    return msgspec.json.decode(text, type=MarkResult)
