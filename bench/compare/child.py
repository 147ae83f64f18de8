"""One run of one workload: `python -m bench.compare.child WORKLOAD FOLDER` prints its figures.

It runs with the package of either version on its path, and uses only calls that both have. Figures
are processor time of the process for one operation, in us: the least of several blocks, so that the
other work of the machine counts little.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import uvloop

import fourfold
from bench.documents import dataset
from fourfold.kernel import Database, Migration, Transaction, profiles

T = TypeVar("T")
Figures = dict[str, float]
BLOCKS = 8
CALLERS = 64
TURNS = 60
TURNS_AT_FIRST = 2
LOG = """
CREATE TABLE entry (key INTEGER, position INTEGER, ts INTEGER, payload BLOB, size INTEGER,
    PRIMARY KEY (key, position)) WITHOUT ROWID;
CREATE TABLE counter (key INTEGER PRIMARY KEY, next INTEGER NOT NULL);
INSERT INTO counter VALUES (1, 0);
"""
APPEND = "INSERT INTO entry SELECT key, next, 7, ?, 200 FROM counter WHERE key = 1"
ADVANCE = "UPDATE counter SET next = next + 1 WHERE key = 1"


def least(items: Sequence[T], work: Callable[[Sequence[T]], object], per: int = 1) -> float:
    """Return the processor time of one operation, in us, in the best of the blocks."""
    gc.collect()
    gc.freeze()
    size = len(items) // BLOCKS
    taken = []
    for at in range(0, size * BLOCKS, size):
        block = items[at : at + size]
        before = time.process_time_ns()
        work(block)
        taken.append((time.process_time_ns() - before) / 1000 / (len(block) * per))
    return min(taken)


def each(call: Callable[[T], object]) -> Callable[[Sequence[T]], None]:
    def work(block: Sequence[T]) -> None:
        for item in block:
            call(item)

    return work


def documents_commits(folder: Path) -> Figures:
    """Commits of one operation: a set, a patch, a set with a confirmed read."""
    found = {}
    with fourfold.open(folder) as store:
        space = store.space("did:key:bench")
        space.transact([dataset.set_operation(number, number) for number in range(100)])
        picks = dataset.choices(2_400, 100)
        sets = [[dataset.set_operation(number, 7 + at)] for at, number in enumerate(picks)]
        patches = [[dataset.patch_operation(number, 9 + at)] for at, number in enumerate(picks)]
        found["A set"] = least(sets, each(space.transact))
        found["A patch"] = least(patches, each(space.transact))
        before = space.seq()
        reads = [
            (operations, {"confirmed": [{"id": operations[0]["id"], "seq": before + at}]})
            for at, operations in enumerate(sets)
        ]
        found["A confirmed read"] = least(reads, each(lambda both: space.transact(*both)))
    return found


def documents_reads(folder: Path) -> Figures:
    """Current reads, from memory and from the file."""
    count = 2_000
    found = {}
    with fourfold.open(folder) as store:
        space = store.space("did:key:bench")
        for depth in range(dataset.DEPTHS):
            numbers = [n for n in range(count) if n % dataset.DEPTHS >= depth]
            make = dataset.patch_operation if depth else dataset.set_operation
            space.transact([make(number, depth + number) for number in numbers])
        names = [dataset.entity(number) for number in dataset.shuffled(count)]
        for name in names:
            space.read(name)
        found["D read, memory"] = least(names * 20, each(space.read))
    with fourfold.open(folder, mode="r") as store:
        space = store.space("did:key:bench")
        found["D read, file"] = least(names * 4, each(space.read))
    return found


def documents_chain(folder: Path) -> Figures:
    """One entity with many revisions: commits, current reads, reads in the past."""
    found = {}
    with fourfold.open(folder) as store:
        space = store.space("did:key:bench")
        space.transact([dataset.set_operation(0, 0)])
        patches = [[dataset.patch_operation(0, version)] for version in range(2_400)]
        found["F commit"] = least(patches, each(space.transact))
        names = [dataset.entity(0)] * 40_000
        found["F read, memory"] = least(names, each(space.read))
    with fourfold.open(folder, mode="r") as store:
        space = store.space("did:key:bench")
        found["F read, file"] = least(names[:4_000], each(space.read))
        seqs = dataset.choices(2_400, 2_000)
        name = names[0]
        found["F read at a seq"] = least(seqs, each(lambda seq: space.read(name, at=seq + 1)))
    return found


def sessions_appends(folder: Path) -> Figures:
    """Events of 200 bytes, durable: one by one, in batches of 100, from coroutines."""
    found = {}
    content = "x" * 150
    events: list[dict[str, Any]] = [
        {"type": "message/appended", "message": {"role": "user", "content": f"{n:08d}{content}"}}
        for n in range(24_000)
    ]
    batches = [events[at : at + 100] for at in range(0, len(events), 100)]
    with fourfold.open(folder, settings={"sessions.synchronous": "FULL"}) as store:
        sessions = store.sessions
        for name in ("one", "batch", "crowd"):
            sessions.create_session({"id": name})

        def single(block: Sequence[dict[str, Any]]) -> None:
            for event in block:
                sessions.append_event("one", event)

        def batched(block: Sequence[list[dict[str, Any]]]) -> None:
            for batch in block:
                sessions.append_events("batch", batch)

        def crowd(block: Sequence[dict[str, Any]]) -> None:
            run_callers(block, lambda event: sessions.append_event_async("crowd", event))

        found["A one by one"] = least(events[:2_400], single)
        found["A batches of 100"] = least(batches, batched, per=100)
        found["A 64 coroutines"] = least(events[:12_000], crowd)
    return found


def run_callers(block: Sequence[T], call: Callable[[T], Any]) -> None:
    """Give the items to coroutines that each wait for what they asked for."""
    waiting = iter(block)

    async def caller() -> None:
        for item in waiting:
            await call(item)

    async def all_callers() -> None:
        await asyncio.gather(*(caller() for _ in range(CALLERS)))

    uvloop.run(all_callers())


def sessions_talk(folder: Path) -> Figures:
    """A conversation through LangGraph: time of a turn, and the size of what is stored.

    A first, short conversation imports everything, and has the bytes of a new store, which are not
    those of a turn.
    """
    from bench.sessions import conversation
    from bench.sessions.task import Run

    short = conversation.talk(Run("talk fourfold", TURNS_AT_FIRST), folder / "short")
    taken = []
    for name in ("one", "two", "three"):
        before = time.process_time_ns()
        found = conversation.talk(Run("talk fourfold", TURNS), folder / name)
        taken.append((time.process_time_ns() - before) / 1000 / TURNS)
    return {
        "C turn": min(taken),
        "C bytes of a turn": (found["bytes"] - short["bytes"]) / (TURNS - TURNS_AT_FIRST),
        "C bytes of a store with two turns": short["bytes"],
    }


def kernel_inserts(folder: Path) -> Figures:
    """Rows of 200 bytes: in bulk, and from coroutines that share their commits."""
    found = {}
    payloads = [b"x" * 200] * 160_000
    migrations = (Migration(1, "log", LOG),)
    with Database.open(folder, profile=profiles.PLAIN, migrations=migrations) as database:
        positions = iter(range(0, 10**9, 20_000))

        def series(block: Sequence[bytes]) -> None:
            with database.write() as txn:
                txn.insert_series(
                    "entry",
                    fixed={"key": 2, "ts": 7},
                    counter=("position", next(positions)),
                    values=("payload", block),
                    lengths="size",
                )

        found["A bulk"] = least(payloads, series)

        def append(payload: bytes) -> Any:
            def work(txn: Transaction) -> None:
                txn.execute(APPEND, (payload,))
                txn.execute(ADVANCE)

            return database.transact_async(work, size=len(payload))

        found["C 64 coroutines"] = least(
            payloads[:32_000], lambda block: run_callers(block, append)
        )
    return found


WORKLOADS: dict[str, Callable[[Path], Figures]] = {
    "documents A": documents_commits,
    "documents D": documents_reads,
    "documents F": documents_chain,
    "sessions A": sessions_appends,
    "sessions C": sessions_talk,
    "kernel A C": kernel_inserts,
}

if __name__ == "__main__":
    figures = WORKLOADS[sys.argv[1]](Path(sys.argv[2]))
    sys.stdout.write(json.dumps(figures) + "\n")
