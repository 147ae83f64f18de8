"""`python -m bench.pipeline.many_files`: what ten thousand small spaces cost, and a cold start.

    start      a new process until the first row of one small space is there, session included
    find       walk through the folders: names and sizes, nothing opened
    plan       until Spark has its DataFrame: every file opened once, its kind and newest seq seen
    scan       read the log of all files, count the rows
    state      fold all files, count the entities
    verify     the job `verify` over all of them

`plan` is also measured over a tenth of the files, so that the cost of one file can be told from the
cost of any query. While scans run, the databases that each worker has open are counted. The files
are copies of one space; they are read by path, so that no cache of SQLite's is shared.

Apart from that, `verify` checks one entity with many revisions, and the memory of its worker is
reported beside that of one that checked small files.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import click

import fourfold
from bench.pipeline.materialize import hot, make
from bench.place import BUILD, RESULTS, alone
from bench.tables import markdown
from fourfold.pipeline import finding, jobs, session
from fourfold.pipeline.tables import model_tables

STARTS = 3
_START = """
import sys
from fourfold.pipeline import session
spark = session("local[2]", spark__log__level="OFF")
rows = spark.read.format("fourfold").option("root", sys.argv[1]).option("table", "state").load()
assert rows.first() is not None
"""


def small_space(root: Path) -> Path:
    """The file of a space with a few orders, as an application would have thousands of."""
    with fourfold.open(root, settings={"documents.page_size": 4096}) as store:
        space = store.space("did:web:shop.example")
        for order in range(3):
            space.set(f"urn:order:{order}", {"state": "placed", "total": order})
            for state in ("paid", "sent"):
                change = {"op": "replace", "path": "/state", "value": state}
                space.patch(f"urn:order:{order}", [change])
    [path] = (root / "spaces").glob("*.sqlite")
    return path


def copies(path: Path, root: Path, count: int) -> None:
    (root / "spaces").mkdir(parents=True)
    shutil.copy(path.parents[1] / "fourfold.toml", root)
    for number in range(count):
        shutil.copyfile(path, root / "spaces" / f"did:web:shop{number:05}.example.sqlite")


@contextmanager
def open_databases() -> Iterator[list[int]]:
    """The most databases that any of Spark's Python workers had open, while the block runs."""
    most, over = [0], threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    if b"pyspark" not in (process / "cmdline").read_bytes():
                        continue
                    names = {str(fd.readlink()) for fd in (process / "fd").iterdir()}
                except OSError:
                    continue
                most[0] = max(most[0], sum(name.endswith(".sqlite") for name in names))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield most
    finally:
        over.set()
        watcher.join()


def clock(call: Any) -> tuple[float, Any]:
    began = time.perf_counter()
    result = call()
    return time.perf_counter() - began, result


def table(spark: Any, root: Path, name: str) -> Any:
    source = spark.read.format("fourfold").option("root", str(root)).option("table", name)
    return source.load()


def starts(root: Path) -> list[float]:
    """A process each; the first one of all makes the archive of classes, and is not counted."""
    command = [sys.executable, "-c", _START, str(root)]
    times = []
    for number in range(STARTS + 1):
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        if number:
            times.append(time.perf_counter() - began)
    return times


def measure(files: int, revisions: int, folder: Path) -> dict[str, Any]:
    path = small_space(folder / "one")
    copies(path, folder / "few", files // 10)
    copies(path, folder / "many", files)
    make(folder / "hot", hot(revisions))
    start = starts(folder / "one")
    spark = session("local[2]", spark__driver__memory="3g", spark__log__level="OFF")
    table(spark, folder / "few", "state").count()
    seconds: dict[str, float] = {}
    seconds["find"], found = clock(
        lambda: finding.files([folder / "many"], model_tables("documents"))
    )
    assert len(found) == files
    seconds["plan of a tenth"], _ = clock(lambda: table(spark, folder / "few", "revisions"))
    seconds["plan"], log = clock(lambda: table(spark, folder / "many", "revisions"))
    with open_databases() as most:
        seconds["scan"], rows = clock(log.count)
        state = table(spark, folder / "many", "state")
        seconds["state"], entities = clock(state.count)
    tasks = log.rdd.getNumPartitions()
    seconds["verify"], done = clock(lambda: jobs.run("verify", folder / "many", spark=spark))
    assert done.report["faults"] == 0
    seconds["verify of one entity"], other = clock(
        lambda: jobs.run("verify", folder / "hot", spark=spark)
    )
    assert other.report["faults"] == 0
    spark.stop()
    return {
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "files": files,
        "file_bytes": path.stat().st_size,
        "rows": rows,
        "entities": entities,
        "tasks": tasks,
        "start_seconds": start,
        "seconds": seconds,
        "open_databases_of_a_worker": most[0],
        "revisions_of_one_entity": revisions,
        "worker_bytes": done.report["worker_bytes"],
        "worker_bytes_with_one_entity": other.report["worker_bytes"],
    }


def show(result: dict[str, Any]) -> str:
    files, seconds = result["files"], result["seconds"]
    rows = [
        [name, f"{taken:.2f}", f"{taken / files * 1e3:.3f}"]
        for name, taken in seconds.items()
        if name in {"find", "plan", "scan", "state", "verify"}
    ]
    each = (seconds["plan"] - seconds["plan of a tenth"]) / (files - files // 10) * 1e3
    mib = 2**20
    return f"""{markdown(["step", "s", "ms per file"], rows)}

{files:,} files of {result["file_bytes"]:,} bytes, {result["rows"]:,} rows, {result["tasks"]} tasks
planning, each further file: {each:.3f} ms
databases that a worker had open at once, at most: {result["open_databases_of_a_worker"]}
a new process until the first row: {median(result["start_seconds"]):.1f} s
memory of a worker of verify: {result["worker_bytes"] / mib:.0f} MiB; with an entity of \
{result["revisions_of_one_entity"]:,} revisions {result["worker_bytes_with_one_entity"] / mib:.0f} \
MiB, {seconds["verify of one entity"]:.1f} s
"""


@click.command()
@click.option("--files", default=10_000, help="Small spaces.")
@click.option("--revisions", default=1_000_000, help="Revisions of the one large entity.")
@click.option("--keep", is_flag=True, help="Keep the result in bench/results.")
def main(files: int, revisions: int, keep: bool) -> None:
    """Measure what many small files cost."""
    with alone(), TemporaryDirectory(dir=BUILD, prefix="work-") as folder:
        result = measure(files, revisions, Path(folder))
    click.echo(show(result))
    name = f"pipeline-many-files-{datetime.now(UTC):%Y-%m-%d}.json"
    path = RESULTS / name if keep else BUILD / "newest-pipeline-many-files.json"
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
