"""What ten thousand small spaces cost, and a cold start.

    start      a new process until the first row of one small space is there, session included
    find       walk through the folders: names and sizes, nothing opened
    plan       until Spark has its DataFrame: every file opened once, its kind and newest seq seen
    scan       read the log of all files, count the rows
    state      fold all files, count the entities

`plan` is also measured over a tenth of the files, so that the cost of one file can be told from the
cost of any query. Databases that a worker has open are counted in runs of their own. The files
are copies of one space; they are read by path, so that no cache of SQLite's is shared.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from bench.measurement import spread
from bench.parts import Figure, Part, one, undisturbed
from bench.pipeline import stores
from bench.place import BUILD
from bench.processes import workers
from bench.turns import Taken, in_turns
from fourfold.pipeline import session, store_files
from fourfold.pipeline.models import model_tables

FILES = 10_000
_START = """
import sys
from fourfold.pipeline import session
spark = session("local[2]", quiet=True, spark__log__level="OFF")
rows = spark.read.format("fourfold").option("root", sys.argv[1]).option("table", "state").load()
assert rows.first() is not None
print(sys.argv[2], flush=True)
"""
_SEEN = "the first row is here"


def table(spark: Any, root: Path, name: str) -> Any:
    source = spark.read.format("fourfold").option("root", str(root)).option("table", name)
    return source.load()


def prepare(rows: int) -> None:
    """Ten thousand small files are made when they are measured; that takes seconds."""
    del rows


def measure(rows: int, rounds: int) -> Part:
    files = min(FILES, rows // 100)
    with TemporaryDirectory(dir=BUILD, prefix="work-") as temporary:
        folder = Path(temporary)
        path = stores.small_space(folder / "one")
        stores.many(path, folder / "few", files // 10)
        stores.many(path, folder / "many", files)
        size = path.stat().st_size
        spark = session("local[2]", quiet=True, spark__driver__memory="3g")
        log, state = (table(spark, folder / "many", name) for name in ("revisions", "state"))
        runs: dict[str, Callable[[], object]] = {
            "find": lambda: store_files.find_files([folder / "many"], model_tables("documents")),
            "plan of a tenth": lambda: table(spark, folder / "few", "revisions"),
            "plan": lambda: table(spark, folder / "many", "revisions"),
            "scan": log.count,
            "state": state.count,
        }
        seconds, shares = in_turns(runs, rounds)
        # Taking a cut opens several files at a time; it is the tasks that are watched here.
        with workers() as seen:
            log.count()
            state.count()
        tasks = log.rdd.getNumPartitions()
        spark.stop()
    more = files - files // 10
    each = [
        (whole - tenth) / more * 1e3
        for whole, tenth in zip(seconds["plan"], seconds["plan of a tenth"], strict=True)
    ]
    return Part(
        title=f"{files:,} small spaces",
        rows=files,
        figures=[
            Figure(
                "planning, each further file", spread(each), "ms", clean=undisturbed(shares["plan"])
            ),
            *(
                Figure(
                    f"{name}, each file",
                    spread([s / files * 1e3 for s in seconds[name]]),
                    "ms",
                    clean=undisturbed(shares[name]),
                )
                for name in ("find", "plan", "scan", "state")
            ),
            one(
                "databases that a worker has open at once",
                seen.databases_of_a_worker,
                "",
                1,
                at_most=True,
            ),
        ],
        seconds=seconds,
        foreign_share=shares,
        facts={"tasks": tasks, "file_bytes": size},
    )


def measure_start(rows: int, rounds: int) -> Part:
    """A process each; the first one of all makes the archive of classes, and is not counted."""
    del rows
    with TemporaryDirectory(dir=BUILD, prefix="work-") as temporary:
        root = Path(temporary) / "one"
        stores.small_space(root)
        command = [sys.executable, "-c", _START, str(root), _SEEN]

        def start() -> Taken:
            """How long it takes to end is not measured."""
            began = time.perf_counter()
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
                assert child.stdout is not None
                found = any(line.strip() == _SEEN for line in iter(child.stdout.readline, ""))
                taken = time.perf_counter() - began
                child.stdout.read()
            assert found
            assert child.returncode == 0
            return Taken(taken)

        seconds, shares = in_turns({"start": start}, rounds)
    return Part(
        title="A new process until its first row",
        rows=0,
        figures=[
            Figure(
                "start, with the session",
                spread(seconds["start"]),
                "s",
                clean=undisturbed(shares["start"]),
            )
        ],
        seconds=seconds,
        foreign_share=shares,
        facts={"median": median(seconds["start"])},
    )
