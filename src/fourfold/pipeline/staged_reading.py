"""Staged files, read where they are committed: the rows of one space, in order, out of many files.

Memory is bounded, and so is the number of open files, however many tasks have staged how much.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from fourfold import limits
from fourfold.errors import StorageError
from fourfold.pipeline.staging import Part, Staged, index_path
from fourfold.pipeline.tables import arrow

Located = tuple[str, Part]
"""A staged file, and a part of it."""


def index_of(staged: Iterable[Staged]) -> dict[str, list[Located]]:
    """Where the rows of each space are, in the order of the spaces' names."""
    found: dict[str, list[Located]] = {}
    for each in staged:
        if each.path:
            for part in _parts(Path(each.path)):
                found.setdefault(part.space, []).append((each.path, part))
    return dict(sorted(found.items()))


def _parts(path: Path) -> list[Part]:
    try:
        return msgspec.json.decode(index_path(path).read_bytes(), type=list[Part])
    except FileNotFoundError:
        raise StorageError(
            f"{path}: a task has staged this file, and it is not here",
            hint="Tasks and the driver must see one folder: mount the store everywhere, or give "
            "the option `staging`. If it was swept meanwhile, run again; nothing was written.",
        ) from None


class Row(msgspec.Struct, frozen=True, gc=False):
    """An operation as it was staged."""

    branch: str
    id: str
    op: str
    text: str | None
    partition: int
    row: int

    @property
    def where(self) -> str:
        return f"row {self.row} of partition {self.partition}"


class Reading:
    """Staged files, read by parts; few are open at a time, however many there are."""

    def __init__(self) -> None:
        self._files: OrderedDict[str, Any] = OrderedDict()

    def rows(self, parts: Sequence[Located]) -> Iterator[Row]:
        """The rows of one space: by branch, and then in their order."""
        step = max(16, limits.SINK_MERGE_ROWS // len(parts))
        runs = [self._run(number, path, part, step) for number, (path, part) in enumerate(parts)]
        merged = runs[0] if len(runs) == 1 else heapq.merge(*runs, key=_by_key)
        for _, row in merged:
            yield row

    def twice(self, parts: Sequence[Located]) -> tuple[str, str] | None:
        """A branch and an entity of it that come more than once, if any does."""
        pa = arrow()
        batches = [
            self._batch(path, number).select(["branch", "id"])
            for path, part in parts
            for number in range(part.first, part.first + part.batches)
        ]
        names = pa.Table.from_batches(batches).group_by(["branch", "id"])
        counted = names.aggregate([([], "count_all")])
        if counted.num_rows == sum(part.rows for _, part in parts):
            return None
        often = counted.filter(pa.compute.field("count_all") > 1).slice(0, 1).to_pylist()[0]
        return str(often["branch"]), str(often["id"])

    def _run(
        self, number: int, path: str, part: Part, step: int
    ) -> Iterator[tuple[tuple[Any, ...], Row]]:
        partition = int(Path(path).name.partition("-")[0])
        for index in range(part.first, part.first + part.batches):
            start, size = 0, 1
            while start < size:
                batch = self._batch(path, index)
                size = batch.num_rows
                columns = [column.to_pylist() for column in batch.slice(start, step).columns]
                del batch
                _, branches, *order, rows, ids, ops, texts = columns
                for at, branch in enumerate(branches):
                    key = (branch, *(column[at] for column in order), number, rows[at])
                    yield key, Row(branch, ids[at], ops[at], texts[at], partition, rows[at])
                start += step

    def _batch(self, path: str, number: int) -> Any:
        file = self._files.pop(path, None)
        if file is None:
            pa = arrow()
            file = pa.ipc.open_file(pa.memory_map(path))
            if len(self._files) >= limits.SINK_FILES_OPEN:
                self._files.popitem(last=False)
        self._files[path] = file
        return file.get_batch(number)


def _by_key(item: tuple[tuple[Any, ...], Row]) -> tuple[Any, ...]:
    return item[0]
