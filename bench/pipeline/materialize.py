"""`python -m bench.pipeline.materialize`: the job `materialize` beside a plain Python fold.

Stores of the same size are materialized on two cores, in random order, round after round:

    plain      one core reads the log of a space in the order of its keys and folds it, no Spark
    chains     every entity is a set and nine patches: nothing can be left out
    prunable   the tenth revision of every entity is a set: nine of ten rows make no difference
    shuffled   `chains`, folded by Spark's shuffle and sort instead of file by file

The clock runs from the start of the job until its tables can be read; the session stands already.
Apart from that, one entity with as many revisions as a store has rows shows how much memory a
worker needs for it.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import apsw
import click

import fourfold
from bench.place import BUILD, RESULTS, alone
from bench.tables import markdown
from fourfold.models.documents import fold
from fourfold.models.documents.encoding import decode, trusted
from fourfold.pipeline import jobs, session, shuffled

DID = "did:key:zBench"
REVISIONS_EACH = 10
COMMIT = 5_000
GOAL_REVISIONS_PER_S = 400_000
GOAL_RATIO = 1.2
GOAL_PRUNABLE = 5.0


def document(number: int) -> dict[str, Any]:
    author = {"name": "somebody", "mail": "somebody@example.com"}
    return {"value": {"title": f"entity {number}", "count": 0, "tags": ["a"], "author": author}}


def change(rng: random.Random) -> list[dict[str, Any]]:
    kind = rng.randrange(3)
    if kind == 0:
        return [{"op": "increment", "path": "/value/count", "by": 1}]
    if kind == 1:
        title = f"title {rng.randrange(10**6)}"
        return [{"op": "replace", "path": "/value/title", "value": title}]
    return [{"op": "append", "path": "/value/tags", "values": [f"t{rng.randrange(100)}"]}]


def operations(revisions: int, *, prunable: bool) -> Iterator[dict[str, Any]]:
    rng = random.Random(1)
    entities = revisions // REVISIONS_EACH
    for round_ in range(REVISIONS_EACH):
        whole = round_ == 0 or (prunable and round_ == REVISIONS_EACH - 1)
        for number in range(entities):
            entity = f"urn:entity:{number:08}"
            if whole:
                yield {"op": "set", "id": entity, "value": document(number)}
            else:
                yield {"op": "patch", "id": entity, "patches": change(rng)}


def hot(revisions: int) -> Iterator[dict[str, Any]]:
    """One entity that was patched and patched."""
    yield {"op": "set", "id": "hot", "value": {"value": {"count": 0, "text": "x" * 10**5}}}
    patch = {"op": "increment", "path": "/value/count", "by": 1}
    for _ in range(revisions - 1):
        yield {"op": "patch", "id": "hot", "patches": [patch]}


def make(root: Path, source: Iterator[dict[str, Any]]) -> None:
    """A store with these operations; one that is there already is taken as it is."""
    if (root / "complete").exists():
        return
    with fourfold.open(root) as store:
        space = store.space(DID)
        batch: list[dict[str, Any]] = []
        for operation in source:
            batch.append(operation)
            if len(batch) == COMMIT:
                space.transact(batch)
                batch = []
        if batch:
            space.transact(batch)
    (root / "complete").touch()


def forget_snapshots(root: Path) -> None:
    """They are derived; without them the whole chain has to be folded."""
    connection = apsw.Connection(str(root / "spaces" / f"{DID}.sqlite"))
    connection.execute((Path(__file__).parent / "forget.sql").read_text(encoding="utf-8"))
    connection.close()


def plain(root: Path) -> int:
    """The limit: one core, no Spark; the log in the order of its keys, through the same fold."""
    rows = apsw.Connection(str(root / "spaces" / f"{DID}.sqlite"), flags=apsw.SQLITE_OPEN_READONLY)
    sql = (Path(__file__).parent / "log.sql").read_text(encoding="utf-8")
    count = 0
    for _, group in groupby(rows.execute(sql), key=lambda row: row[0]):
        state = fold.fold(None, [(seq, op, data and decode(data)) for _, seq, op, data in group])
        assert state is not None
        trusted(state.document)
        count += 1
    rows.close()
    return count


def materialize(spark: Any, root: Path, into: Path) -> int:
    shutil.rmtree(into, ignore_errors=True)
    return jobs.run("materialize", root, {"into": str(into)}, spark=spark).rows_out


def shuffle(spark: Any, root: Path) -> int:
    shuffled.state(spark, root=str(root)).write.format("noop").mode("overwrite").save()
    return 0


def worker_memory() -> int:
    """The most that any of this session's Python workers has had in memory, in bytes."""
    parents: dict[int, int] = {}
    peaks: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
            daemon = b"pyspark.daemon" in (status.parent / "cmdline").read_bytes()
        except OSError:
            continue
        parents[int(fields["Pid"])] = int(fields["PPid"])
        if daemon:
            peaks[int(fields["Pid"])] = int(fields["VmHWM"].split()[0]) * 1024

    def is_ours(process: int) -> bool:
        while process in parents and process != os.getpid():
            process = parents[process]
        return process == os.getpid()

    return max((peak for process, peak in peaks.items() if is_ours(process)), default=0)


def prepare(revisions: int, folder: Path) -> None:
    make(folder / "chains", operations(revisions, prunable=False))
    make(folder / "prunable", operations(revisions, prunable=True))
    make(folder / "hot", hot(revisions))
    forget_snapshots(folder / "hot")


def measure(revisions: int, rounds: int, folder: Path) -> dict[str, Any]:
    chains, prunable, one = folder / "chains", folder / "prunable", folder / "hot"
    spark = session("local[2]", spark__driver__memory="3g", spark__log__level="ERROR")
    tasks: dict[str, Callable[[], int]] = {
        "plain": lambda: plain(chains),
        "chains": lambda: materialize(spark, chains, folder / "out-chains"),
        "prunable": lambda: materialize(spark, prunable, folder / "out-prunable"),
        "shuffled": lambda: shuffle(spark, chains),
    }
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for number in range(rounds + 1):
        for name in random.sample(list(tasks), len(tasks)):
            began = time.perf_counter()
            tasks[name]()
            if number:
                seconds[name].append(time.perf_counter() - began)
    before = worker_memory()
    materialize(spark, one, folder / "out-hot")
    shuffle(spark, one)
    after = worker_memory()
    spark.stop()
    rates = {name: revisions / median(times) for name, times in seconds.items()}
    return {
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "revisions": revisions,
        "seconds": seconds,
        "revisions_per_s": rates,
        "ratio_to_plain": rates["chains"] / rates["plain"],
        "prunable_ratio": rates["prunable"] / rates["chains"],
        "worker_bytes": before,
        "worker_bytes_with_hot_entity": after,
    }


def show(result: dict[str, Any]) -> str:
    rows = [
        [name, f"{median(times):.2f}", f"{min(times):.2f}", f"{max(times):.2f}", f"{rate:,.0f}"]
        for (name, times), rate in zip(
            result["seconds"].items(), result["revisions_per_s"].values(), strict=True
        )
    ]
    table = markdown(["run", "median s", "min", "max", "revisions/s"], rows)
    small, large = (
        f"{result[name] / 2**20:.0f} MiB"
        for name in ("worker_bytes", "worker_bytes_with_hot_entity")
    )
    goal = f"goal {GOAL_RATIO} or {GOAL_REVISIONS_PER_S:,} revisions/s"
    return f"""{table}

materialize to plain fold: {result["ratio_to_plain"]:.2f} ({goal})
prunable to chains: {result["prunable_ratio"]:.2f} (goal {GOAL_PRUNABLE})
a worker's memory: {small}; with an entity of {result["revisions"]:,} revisions {large}
"""


@click.command()
@click.option("--revisions", default=1_000_000, help="Rows of the log of each store.")
@click.option("--rounds", default=5, help="Rounds that count.")
@click.option("--keep", is_flag=True, help="Keep the result in bench/results.")
@click.option("--stores", type=click.Path(path_type=Path), help="Where stores are kept for later.")
@click.option("--only-prepare", is_flag=True, help="Make the stores, and measure nothing.")
def main(
    *, revisions: int, rounds: int, keep: bool, stores: Path | None, only_prepare: bool
) -> None:
    """Measure the job materialize."""
    with TemporaryDirectory(dir=BUILD, prefix="work-") as temporary:
        folder = stores or Path(temporary)
        prepare(revisions, folder)
        if only_prepare:
            return
        with alone():
            result = measure(revisions, rounds, folder)
    click.echo(show(result))
    name = f"pipeline-materialize-{datetime.now(UTC):%Y-%m-%d}.json"
    path = RESULTS / name if keep else BUILD / "newest-pipeline-materialize.json"
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
