"""Marking what may be collected in many spaces: tasks of Spark's, each over some of the files.

Only spaces that keep a policy are looked at. Marking reads, beside running writers too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from fourfold import limits
from fourfold.errors import FourfoldError
from fourfold.kernel import Database
from fourfold.models.documents.gc.marking import mark
from fourfold.models.documents.space import Space
from fourfold.pipeline.finding import Found
from fourfold.pipeline.tables import arrow
from fourfold.store.soundness import history_in

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: Final = "mark string"


class Marked(msgspec.Struct, frozen=True):
    """What was marked in a space: how many of each kind. Or why nothing could be."""

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


def marked(file: Found) -> Marked:
    """What may go of one space by its own policy."""
    path = Path(file.path)
    seen = Marked(file.root, file.path, file.space)
    try:
        history = history_in(path)
        with Database.open(
            path,
            profile=history.profile,
            migrations=history.migrations,
            sequences=(history.seq,),
            mode="r",
        ) as database:
            space = Space(file.space, database, history)
            policy = space.gc_policy()
            if policy is None:
                return seen
            horizon, tally = mark(space, policy)
    except FourfoldError as error:
        return msgspec.structs.replace(seen, problem=f"{error.kind}: {error.message}")
    counts = {kind: removed.count for kind, removed in tally.items()}
    return msgspec.structs.replace(seen, has_policy=True, horizon=horizon, counts=counts)


class Marking:
    """What a worker does with the numbers of the tasks that it is given."""

    def __init__(self, work: Sequence[Sequence[Found]]) -> None:
        self._work = work

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pa = arrow()
        for batch in batches:
            for place in batch.column(0).to_pylist():
                for file in self._work[place]:
                    text = msgspec.json.encode(marked(file)).decode()
                    yield pa.RecordBatch.from_pylist([{"mark": text}])


def tasks(files: Sequence[Found]) -> list[list[Found]]:
    """Files put together until a task has enough to do."""
    cost = [file.bytes + limits.SOURCE_FILE_COST_BYTES for file in files]
    most = max(sum(cost) // limits.VERIFY_TASKS, limits.VERIFY_TASK_BYTES_MIN)
    ready: list[list[Found]] = []
    size = most
    for file, bytes_ in zip(files, cost, strict=True):
        if size + bytes_ > most:
            ready.append([])
            size = 0
        ready[-1].append(file)
        size += bytes_
    return ready


def decoded(text: str) -> Marked:
    return msgspec.json.decode(text, type=Marked)
