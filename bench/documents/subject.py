"""The child process that does one run: `python -m bench.documents.subject TASK`.

A process of its own for every run: nothing is warm that would not be, and nothing is left over.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from bench.documents import dataset, limit, spaces
from bench.documents.dataset import Operation
from bench.documents.job import Job, in_blocks
from bench.documents.task import Task
from bench.loops import starter
from fourfold.models.documents import HISTORIES, Space

CALLERS = 64
OPERATIONS = 1_000
CHAIN_READS = 2_000


def opened(task: Task, mode: str = "rw") -> Space:
    path = Path(task.database)
    database = spaces.open_database(path, task.history, task.page_size, mode)
    return Space(spaces.DID, database, HISTORIES[task.history])


# Writing


def requests(form: str, count: int) -> list[list[Operation]]:
    """The operations of each commit."""
    picks = dataset.choices(count, dataset.WRITTEN)
    make = dataset.patch_operation if form == "patch" else dataset.set_operation
    return [[make(number, 1000 + version)] for version, number in enumerate(picks)]


def writing(space: Space, run: Callable[[], list[float]], commits: int) -> Job:
    """Commits, with a final checkpoint before the clock stops."""
    database = space.database
    expected = space.seq() + commits

    def to_the_end() -> list[float]:
        taken = run()
        spaces.fold_back(database)
        return taken

    def after() -> None:
        spaces.check(space, expected)
        database.close()

    return Job(
        to_the_end,
        after=after,
        transactions=lambda: int(database.metrics().counters["transactions"]),
    )


def one_caller(task: Task) -> Job:
    space = opened(task)
    work = requests(task.form, task.count)

    def run() -> list[float]:
        taken = []
        for operations in work:
            before = time.perf_counter()
            space.transact(operations)
            taken.append(time.perf_counter() - before)
        return taken

    return writing(space, run, task.count)


def confirmed(task: Task) -> Job:
    """Each commit says that its author had read the entity in its newest state."""
    space = opened(task)
    first = space.seq()
    newest: dict[str, int] = {}
    work = []
    for version, operations in enumerate(requests("set", task.count)):
        name = operations[0]["id"]
        seen = {"id": name, "seq": newest.get(name, first), "path": ["value", "count"]}
        work.append((operations, {"confirmed": [seen]}))
        newest[name] = first + 1 + version

    def run() -> list[float]:
        taken = []
        for operations, reads in work:
            before = time.perf_counter()
            space.transact(operations, reads)
            taken.append(time.perf_counter() - before)
        return taken

    return writing(space, run, task.count)


def coroutines(task: Task) -> Job:
    space = opened(task)
    work = requests("set", task.count)

    def run() -> list[float]:
        taken: list[float] = []
        waiting = iter(work)

        async def caller() -> None:
            for operations in waiting:
                before = time.perf_counter()
                await space.transact_async(operations)
                taken.append(time.perf_counter() - before)

        async def crowd() -> None:
            await asyncio.gather(*(caller() for _ in range(CALLERS)))

        starter(task.form)(crowd())
        return taken

    return writing(space, run, task.count)


def threads(task: Task) -> Job:
    space = opened(task)
    work = requests("set", task.count)

    def run() -> list[float]:
        taken: list[float] = []
        # `next` of a list's iterator is one step of the interpreter: threads may share it.
        waiting: Iterator[list[Operation]] = iter(work)

        def caller() -> None:
            for operations in waiting:
                before = time.perf_counter()
                space.transact(operations)
                taken.append(time.perf_counter() - before)

        with ThreadPoolExecutor(CALLERS) as crowd:
            for done in [crowd.submit(caller) for _ in range(CALLERS)]:
                done.result()
        return taken

    return writing(space, run, task.count)


def bulk(task: Task) -> Job:
    """Commits of 1,000 operations on entities in random order: new ones, or patches of known
    ones.
    """
    space = opened(task)
    numbers = [dataset.WRITTEN + number for number in dataset.shuffled(task.count)]
    work: list[list[Operation]] = []
    for at in range(0, len(numbers), OPERATIONS):
        part = numbers[at : at + OPERATIONS]
        if task.form == "bulk-set":
            work.append([dataset.set_operation(number, number) for number in part])
        else:
            work.append([dataset.patch_operation(number - dataset.WRITTEN, 7) for number in part])

    def run() -> list[float]:
        taken = []
        for operations in work:
            before = time.perf_counter()
            space.transact(operations)
            taken.append(time.perf_counter() - before)
        return taken

    return writing(space, run, len(work))


def chain_commits(task: Task) -> Job:
    """Patches of the one entity of a long chain, after a first that finds its state on disk."""
    space = opened(task)
    work = [[dataset.patch_operation(0, version)] for version in range(task.count)]

    def run() -> list[float]:
        taken = []
        for operations in work:
            before = time.perf_counter()
            space.transact(operations)
            taken.append(time.perf_counter() - before)
        return taken

    def after() -> None:
        spaces.fold_back(space.database)
        space.database.close()

    warm = [dataset.patch_operation(0, 1)]
    return Job(run, warm=lambda: space.transact(warm), after=after)


# Reading


def reads(task: Task) -> Job:
    """Current reads: from memory in the process that writes, from the file in any other."""
    space = opened(task, "rw" if task.form.endswith("memory") else "r")
    names = [dataset.entity(number) for number in dataset.shuffled(task.count)]
    return _asking(space, names, space.read)


def reads_of_many(task: Task) -> Job:
    """The same entities, 1,000 at a time."""
    space = opened(task, "rw" if task.form.endswith("memory") else "r")
    names = [dataset.entity(number) for number in dataset.shuffled(task.count)]
    parts = [names[at : at + OPERATIONS] for at in range(0, len(names), OPERATIONS)]
    single = {name: space.read(name) for name in names}

    def run() -> list[float]:
        taken = []
        for part in parts:
            before = time.perf_counter()
            space.read_many(part)
            taken.append((time.perf_counter() - before) / len(part))
        return taken

    def after() -> None:
        for part in parts:
            spaces.same(space.read_many(part), {name: single[name] for name in part}, "read_many")
        space.database.close()

    return Job(run, warm=run, after=after)


def chain_reads(task: Task) -> Job:
    """Current reads of the one entity of a chain."""
    space = opened(task, "rw" if task.form.endswith("memory") else "r")
    return _asking(space, [dataset.entity(0)] * task.count, space.read)


def points_in_time(task: Task) -> Job:
    """Reads of the one entity of a chain at random seqs."""
    space = opened(task, "r")
    newest = space.seq()
    chance = random.Random(dataset.SEED)
    seqs = [chance.randint(1, newest) for _ in range(task.count)]
    name = dataset.entity(0)

    def ask(seq: int) -> object:
        return space.read(name, at=seq)

    for seq in seqs[:100]:
        state = space.read(name, at=seq)
        assert state is not None
        spaces.same(state.seq, seq, "the state at a seq")
        if state.op == "patch":
            assert state.document is not None
            spaces.same(state.document["value"]["count"], seq - 1, f"the state at seq {seq}")
    return _asking(space, seqs, ask)


def _asking(space: Space, items: list[Any], ask: Callable[[Any], object]) -> Job:
    return Job(
        lambda: in_blocks(items, ask),
        warm=lambda: in_blocks(items, ask),
        after=space.database.close,
    )


FORMS: dict[str, Callable[[Task], Job]] = {
    "set": one_caller,
    "patch": one_caller,
    "confirmed": confirmed,
    "uvloop": coroutines,
    "asyncio": coroutines,
    "threads": threads,
    "bulk-set": bulk,
    "bulk-patch": bulk,
    "read memory": reads,
    "read file": reads,
    "many memory": reads_of_many,
    "many file": reads_of_many,
    "chain commit": chain_commits,
    "chain memory": chain_reads,
    "chain file": chain_reads,
    "chain past": points_in_time,
    "bare set": limit.bare,
    "bare patch": limit.bare,
    "bare confirmed": limit.bare,
    "kernel bulk-set": limit.kernel_bulk,
    "kernel bulk-patch": limit.kernel_bulk,
    "key-value": limit.key_value,
}


if __name__ == "__main__":
    asked = msgspec.json.decode(sys.argv[1], type=Task)
    measured = FORMS[asked.form](asked).measured()
    sys.stdout.write(msgspec.json.encode(measured).decode() + "\n")
