"""The child process that runs Fourfold's kernel once: `python -m bench.kernel.subject TASK`.

A process of its own for every run, as the C program is one: nothing is warm that would not be, and
nothing is left over. All data is in memory before the clock starts, and is taken out of the garbage
collector's sight, because it belongs to the benchmark; the collector itself stays on.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from bench.kernel import dataset
from bench.kernel.database import SQL, open_database
from bench.kernel.dataset import Dataset
from bench.kernel.task import Task
from bench.loops import Start, starter
from bench.measurement import Measurement, cpu_seconds, quantile
from fourfold.kernel import Database, Transaction

APPEND = SQL.append
ADVANCE_ONE = SQL.advance_one
CLAIM = SQL.claim
APPEND_AT = SQL.append_at
ADVANCE = SQL.advance
COLUMNS = ("key", "ts", "position", "payload", "size")

Runner = Callable[[], list[float]]
"""Does the work, and returns how many seconds each request (or batch) took."""


Request = Callable[[int, bytes], Callable[[Transaction], object]]
"""Makes the work of one request, as an application would write it."""


def append(key: int, payload: bytes) -> Callable[[Transaction], None]:
    """A row of the log, and its counter."""

    def work(txn: Transaction) -> None:
        txn.execute(APPEND, (key, dataset.TS, payload, len(payload)))
        txn.execute(ADVANCE_ONE, (key,))

    return work


def claim(key: int, payload: bytes) -> Callable[[Transaction], int]:
    """The same, and the caller is told the position of its row."""

    def work(txn: Transaction) -> int:
        position: int = txn.value(CLAIM, (key,))
        txn.execute(APPEND_AT, (key, dataset.TS, position, payload, len(payload)))
        return position

    return work


def series(db: Database, data: Dataset, batch: int) -> Runner:
    starts = range(0, len(data.keys), batch)
    batches = [(start, data.payloads[start : start + batch]) for start in starts]

    def run() -> list[float]:
        taken = []
        for start, payloads in batches:
            before = time.perf_counter()
            with db.write() as txn:
                txn.insert_series(
                    "entry",
                    fixed={"key": 1, "ts": dataset.TS},
                    counter=("position", start),
                    values=("payload", payloads),
                    lengths="size",
                )
                txn.execute(ADVANCE, (1, len(payloads)))
            taken.append(time.perf_counter() - before)
        return taken

    return run


def rows(db: Database, data: Dataset, batch: int) -> Runner:
    positions: Counter[int] = Counter()
    batches = []
    for start in range(0, len(data.keys), batch):
        part: list[tuple[int, int, int, bytes, int]] = []
        touched: Counter[int] = Counter()
        for i in range(start, min(start + batch, len(data.keys))):
            key, payload = data.keys[i], data.payloads[i]
            part.append((key, dataset.TS, positions[key], payload, len(payload)))
            positions[key] += 1
            touched[key] += 1
        batches.append((part, sorted(touched.items())))

    def run() -> list[float]:
        taken = []
        for part, counters in batches:
            before = time.perf_counter()
            with db.write() as txn:
                txn.insert_many("entry", COLUMNS, part)
                txn.execute_many(ADVANCE, counters)
            taken.append(time.perf_counter() - before)
        return taken

    return run


def coroutines(
    db: Database, data: Dataset, callers: int, start: Start, request: Request = append
) -> Runner:
    def run() -> list[float]:
        taken: list[float] = []
        waiting = zip(data.keys, data.payloads, strict=True)

        async def caller() -> None:
            for key, payload in waiting:
                before = time.perf_counter()
                await db.transact_async(request(key, payload), size=len(payload))
                taken.append(time.perf_counter() - before)

        async def crowd() -> None:
            await asyncio.gather(*(caller() for _ in range(callers)))

        start(crowd())
        return taken

    return run


def threads(db: Database, data: Dataset, callers: int) -> Runner:
    def run() -> list[float]:
        taken: list[float] = []
        # `next` of a list's iterator is one step of the interpreter: threads may share it.
        waiting: Iterator[tuple[int, bytes]] = iter(
            list(zip(data.keys, data.payloads, strict=True))
        )

        def caller() -> None:
            for key, payload in waiting:
                before = time.perf_counter()
                db.transact(append(key, payload), size=len(payload))
                taken.append(time.perf_counter() - before)

        if callers == 1:
            caller()
            return taken
        with ThreadPoolExecutor(callers) as crowd:
            for done in [crowd.submit(caller) for _ in range(callers)]:
                done.result()
        return taken

    return run


def prepare(task: Task, db: Database) -> Runner:
    data = dataset.load(Path(task.data), task.count)
    if task.form == "insert_series":
        return series(db, data, task.batch)
    if task.form == "insert_many":
        return rows(db, data, task.batch)
    if task.form == "threads":
        return threads(db, data, task.callers)
    loop, _, kind = task.form.partition(" ")
    return coroutines(db, data, task.callers, starter(loop), claim if kind else append)


def run(task: Task) -> Measurement:
    with open_database(Path(task.database)) as db:
        runner = prepare(task, db)
        before = db.metrics().counters["transactions"]
        gc.collect()
        gc.freeze()
        cpu = cpu_seconds()
        started = time.perf_counter()
        taken = runner()
        while db.checkpoint("TRUNCATE").busy:
            # The background checkpointer is still at it.
            time.sleep(0)
        seconds = time.perf_counter() - started
        cpu = cpu_seconds() - cpu
        transactions = db.metrics().counters["transactions"] - before
    taken.sort()
    return Measurement(
        seconds=seconds,
        cpu_seconds=cpu,
        transactions=transactions,
        p50_us=quantile(taken, 0.50) * 1e6,
        p99_us=quantile(taken, 0.99) * 1e6,
    )


if __name__ == "__main__":
    measured = run(msgspec.json.decode(sys.argv[1], type=Task))
    sys.stdout.write(msgspec.json.encode(measured).decode() + "\n")
