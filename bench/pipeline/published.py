"""Scans of a published log with a live tail, beside native Parquet of the same rows.

The last hundredth, or tenth, of the log is not published yet: it is exported before the first
round, and as long as the store does not change, not again. The clock runs from the call that makes
the DataFrame. `first` has the export of the tail in it: before each run the cache is emptied.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import fourfold
from bench.parts import Part, ratio
from bench.pipeline import stores
from bench.pipeline.scan import COLUMNS, WARM_UP, aggregate, noop, parquet, source
from bench.place import BUILD
from bench.turns import in_turns
from fourfold.pipeline import session

TAILS = {1: 0.9, 10: 0.8}
"""Goals by the percentage of the rows that is not published."""


def store(rows: int, percent: int) -> Path:
    """The store whose newest rows are not published; one that is there is taken as it is."""
    root = BUILD / "pipeline" / f"published-{rows}-{percent}"
    if (root / "complete").exists():
        return root
    shutil.rmtree(root, ignore_errors=True)
    root.parent.mkdir(parents=True, exist_ok=True)
    source_ = stores.log(rows)
    stores.make(root, islice(source_, rows - rows * percent // 100))
    with fourfold.open(root) as opened:
        opened.publish().raise_if_failed()
    stores.make(root, source_)
    (root / "complete").touch()
    return root


def prepare(rows: int) -> None:
    for percent in TAILS:
        store(rows, percent)


def measure(rows: int, rounds: int) -> Part:
    spark = session("local[2]", quiet=True, spark__driver__memory="3g")
    cache = BUILD / "pipeline" / "published-cache"
    os.environ["FOURFOLD_PIPELINE_CACHE_FOLDER"] = str(cache)
    runs: dict[str, Callable[[], object]] = {}
    for percent in TAILS:
        root = store(rows, percent)
        path = BUILD / "pipeline" / f"published-{rows}-{percent}.parquet"
        if not (path / "_SUCCESS").exists():
            shutil.rmtree(path, ignore_errors=True)
            everything = source(spark, root, f"{COLUMNS},time")
            everything.write.option("compression", "zstd").parquet(str(path))
        assert source(spark, root).count() == rows
        runs |= _runs(spark, root, path, f"{percent} %", cache)
    seconds, shares = in_turns(runs, rounds, WARM_UP)
    spark.stop()
    figures = [
        ratio(
            f"{kind}, tail {percent} %",
            seconds,
            shares,
            f"{kind} {percent} %: read",
            f"{kind} {percent} %: parquet",
            goal if kind in {"noop", "aggregate"} else None,
        )
        for percent, goal in TAILS.items()
        for kind in ("noop", "aggregate", "first", "time")
    ]
    return Part(
        title=f"Scan of {rows:,} rows, published but for a tail, ratio to native Parquet",
        rows=rows,
        figures=figures,
        seconds=seconds,
        foreign_share=shares,
        facts={},
    )


def _runs(
    spark: Any, root: Path, path: Path, label: str, cache: Path
) -> dict[str, Callable[[], object]]:
    def first() -> None:
        for export in cache.glob("*.parquet"):
            export.unlink()
        aggregate(source(spark, root))

    def times(frame: Any) -> None:
        frame.selectExpr("sum(seq)", "max(time)").collect()

    def native() -> None:
        aggregate(parquet(spark, path))

    return {
        f"noop {label}: parquet": lambda: noop(parquet(spark, path)),
        f"noop {label}: read": lambda: noop(source(spark, root)),
        f"aggregate {label}: parquet": native,
        f"aggregate {label}: read": lambda: aggregate(source(spark, root)),
        f"first {label}: parquet": native,
        f"first {label}: read": first,
        f"time {label}: parquet": lambda: times(parquet(spark, path, "seq,time")),
        f"time {label}: read": lambda: times(source(spark, root, "seq,time")),
    }
