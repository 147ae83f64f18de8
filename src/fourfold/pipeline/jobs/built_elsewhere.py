"""Files of a stream's archive that Spark's workers build and the driver takes in.

    workers     read published segments, and write files into the store's folder: each file whole,
                on disk, and spoken of by nothing
    driver      uploads them, takes them in through the node's writer, and publishes

It goes in waves, so that a killed run has done what it has done. What a worker wrote and nobody
took in is removed when the archive is opened again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from fourfold import config
from fourfold.archive import DiskCache, open_segments
from fourfold.archive.reading import StoredSegments, Wanted
from fourfold.errors import FourfoldError
from fourfold.models.streams.archive import CACHE
from fourfold.models.streams.archive.upkeep import MADE
from fourfold.pipeline.jobs.shape import Context
from fourfold.pipeline.tables import arrow
from fourfold.store.layout import stream_segments
from fourfold.store.store import objects_of

_COLUMNS: Final = "place bigint, made string, problem string"
Build = Callable[[StoredSegments, Any, Path], str]
"""Builds what a task asks for; what the driver must know of it, as text."""


class Outcome(NamedTuple):
    """What became of a task: text for the driver, or what went wrong."""

    made: str | None
    problem: str | None


class Worker:
    """What a worker does with the numbers of the tasks that it is given."""

    def __init__(self, root: Path, build: Build, tasks: Sequence[Any]) -> None:
        self._root = root
        self._build = build
        self._tasks = tasks

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        pa = arrow()
        folder = stream_segments(self._root)
        with objects_of(self._root, config.load(self._root, environ=os.environ)) as objects:
            segments = open_segments(objects, DiskCache(folder / f".{CACHE}-of-readers", 0))
            for batch in batches:
                for place in batch.column(0).to_pylist():
                    row = self._outcome(segments, place, folder / MADE)
                    yield pa.RecordBatch.from_pylist([row], schema=_schema())

    def _outcome(self, segments: StoredSegments, place: int, folder: Path) -> dict[str, Any]:
        try:
            made = self._build(segments, self._tasks[place], folder)
        except (FourfoldError, OSError, ValueError) as error:
            # Whatever it is, it is of this stream alone.
            return {"place": place, "made": None, "problem": str(error)}
        return {"place": place, "made": made, "problem": None}


def cached(root: Path, wanted: Wanted) -> Wanted:
    """The same, read from the node's cache while it is there."""
    path = stream_segments(root) / CACHE / f"{wanted.segment}.parquet"
    return wanted._replace(local=path) if path.exists() else wanted


def build_all(context: Context, build: Build, tasks: Sequence[Any]) -> list[Outcome]:
    """Build a wave; the outcomes in the order of the tasks."""
    worker = Worker(context.root, build, tasks)

    def work(batches: Iterable[Any]) -> Iterator[Any]:
        return worker(batches)

    numbers = context.spark.range(0, len(tasks), 1, len(tasks))
    rows = numbers.mapInArrow(work, _COLUMNS).collect()
    found = {row["place"]: Outcome(row["made"], row["problem"]) for row in rows}
    return [found[place] for place in range(len(tasks))]


def waves(tasks: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for at in range(0, len(tasks), size):
        yield tasks[at : at + size]


def _schema() -> Any:
    pa = arrow()
    return pa.schema([("place", pa.int64()), ("made", pa.string()), ("problem", pa.string())])
