"""The child process that does one run: `python -m bench.graphs.subject TASK`.

A process of its own for every run: nothing is warm that would not be, and nothing is left over.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec

from bench.documents.job import Job, in_blocks
from bench.graphs import callers, dataset, limit, peer, store
from bench.graphs.dataset import APP
from bench.graphs.task import Task
from fourfold.models.graphs import Graphs, Kind

SMALL_BATCH = 1_000


def writing(graphs: Graphs, run: Callable[[], list[float]], numbers: int, *, prove: bool) -> Job:
    """Numbers, with a final checkpoint before the clock stops."""
    database = graphs.database
    expected = graphs.get_global_seq() + numbers

    def to_the_end() -> list[float]:
        taken = run()
        store.fold_back(database)
        return taken

    def after() -> None:
        if prove:
            store.check(graphs, expected)
        store.same(graphs.get_global_seq(), expected, "the newest number")
        database.close()

    return Job(
        to_the_end,
        after=after,
        transactions=lambda: int(database.metrics().counters["transactions"]),
    )


def insert(task: Task) -> Job:
    """`insert_many_*`, 10,000 rows to a transaction."""
    graphs = store.open_graphs(Path(task.database))
    words = task.form.split()
    kind = cast("Kind", words[1])
    rows = dataset.rows(kind, task.count, dataset.SHARED if "shared" in words else 0)
    parts = [rows[at : at + dataset.BATCH] for at in range(0, len(rows), dataset.BATCH)]
    call = getattr(graphs, f"insert_many_{kind}s")

    def run() -> list[float]:
        taken = []
        for part in parts:
            before = time.perf_counter()
            call(APP, part)
            taken.append(time.perf_counter() - before)
        return taken

    return writing(graphs, run, len(parts), prove=True)


def envelopes(task: Task) -> Job:
    """Envelopes by 64 callers."""
    graphs = store.open_graphs(Path(task.database))
    work = dataset.envelopes(task.count, task.form.split()[1])
    crowd = callers.crowd(task.form, work, graphs.apply, graphs.apply_async)
    return writing(graphs, crowd, task.count, prove=True)


def envelopes_alone(task: Task) -> Job:
    """Envelopes by one caller."""
    graphs = store.open_graphs(Path(task.database))
    work = dataset.envelopes(task.count, "five")

    def run() -> list[float]:
        taken = []
        for each in work:
            before = time.perf_counter()
            graphs.apply(each)
            taken.append(time.perf_counter() - before)
        return taken

    return writing(graphs, run, task.count, prove="size" not in task.database)


def attributes_of_old(task: Task) -> Job:
    """`insert_many` of attributes of parents all over a large database, 1,000 to a transaction."""
    graphs = store.open_graphs(Path(task.database))
    picks = dataset.choices(task.count, _parents(graphs))
    of = {"type_id": dataset.TYPES["attr"], "owner_identity": dataset.OWNER}
    rows: list[dict[str, Any]] = [
        {"parent_id": pick, "value_text": dataset.text(number), **of}
        for number, pick in enumerate(picks)
    ]
    parts = [rows[at : at + SMALL_BATCH] for at in range(0, len(rows), SMALL_BATCH)]

    def run() -> list[float]:
        taken = []
        for part in parts:
            before = time.perf_counter()
            graphs.insert_many_attrs(APP, part)
            taken.append(time.perf_counter() - before)
        return taken

    return writing(graphs, run, len(parts), prove=False)


def _parents(graphs: Graphs) -> int:
    with graphs.database.read() as snapshot:
        return graphs.count(snapshot, APP, "parent")


def feed(task: Task) -> Job:
    """The whole log in pages of about 1,000 rows."""
    graphs = store.open_graphs(Path(task.database), "r")

    def run() -> list[float]:
        before = time.perf_counter()
        count = 0
        for page in graphs.feed(limit=dataset.PAGE, timeout=0):
            count += len(page)
        store.same(count, task.count, "rows read")
        return [(time.perf_counter() - before) / task.count]

    return Job(run, warm=run, after=graphs.database.close)


def pages(task: Task) -> Job:
    """Pages of the feed from random numbers on."""
    graphs = store.open_graphs(Path(task.database), "r")
    numbers = random.Random(dataset.SEED).choices(range(1, _built(task) - 300), k=task.count)

    def ask(after: int) -> None:
        with graphs.snapshot():
            found = graphs.feed(after=after, limit=dataset.PAGE).next(0)
        if not dataset.PAGE // 2 <= len(found) <= 2 * dataset.PAGE:
            raise store.WrongRows(f"a page of {len(found)} rows")

    return _asking(graphs, numbers, ask)


def attributes_read(task: Task) -> Job:
    """The current attributes of random parents."""
    graphs = store.open_graphs(Path(task.database), "r")
    picks = dataset.choices(task.count, _parents(graphs))
    return _asking(graphs, picks, lambda pick: graphs.current_attrs(APP, parent_ids=[pick]))


def past_read(task: Task) -> Job:
    """The newest version of random parents as of the number under which they were written."""
    graphs = store.open_graphs(Path(task.database), "r")
    picks = random.Random(dataset.SEED).choices(range(1, _built(task)), k=task.count)

    def ask(place: int) -> None:
        graphs.newest(APP, "parent", dataset.TARGETS + place, at=1 + place)

    return _asking(graphs, picks, ask)


def _built(task: Task) -> int:
    """The numbers that a large file was built with; those that runs added come behind them."""
    return store.numbers_of(int(Path(task.database).stem.partition("-")[2]))


def _asking(graphs: Graphs, items: list[int], ask: Callable[[int], object]) -> Job:
    def run() -> list[float]:
        return in_blocks(items, ask)

    return Job(run, warm=run, after=graphs.database.close)


FORMS: dict[str, Callable[[Task], Job]] = {
    "kernel insert": limit.bulk,
    "kernel envelope": limit.group,
    "bare select": limit.select,
    "peer insert": peer.insert,
    "peer envelope": peer.envelope,
    "peer feed": peer.feed,
    "insert": insert,
    "envelope": envelopes,
    "one envelope": envelopes_alone,
    "old insert": attributes_of_old,
    "feed": feed,
    "pages": pages,
    "attributes": attributes_read,
    "past": past_read,
}


def job(task: Task) -> Job:
    for name, make in FORMS.items():
        if task.form == name or task.form.startswith(name + " "):
            return make(task)
    raise ValueError(f"no form {task.form!r}")


if __name__ == "__main__":
    measured = job(msgspec.json.decode(sys.argv[1], type=Task)).measured()
    sys.stdout.write(msgspec.json.encode(measured).decode() + "\n")
