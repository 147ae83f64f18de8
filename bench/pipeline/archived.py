"""Figures of the archive as the pipeline uses it: planning, restore, and streams with a tail.

planning    a read of ten thousand published spaces, planned again: no file has changed
restore     one space of a million revisions from its archive, as a whole
records     records of a stream, of which the newest are only in the log, beside native Parquet
sql         `fourfold sql --engine spark`, a new process each: `select 1`, and a count
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import fourfold
from bench.archive import messages
from bench.measurement import spread
from bench.parts import Figure, Part, ratio, undisturbed
from bench.pipeline import published, stores
from bench.pipeline.scan import WARM_UP, noop
from bench.place import BUILD
from bench.turns import in_turns
from fourfold.pipeline import read, session
from fourfold.pipeline.archive_plan import plan_archive
from fourfold.pipeline.cut import read_cut
from fourfold.pipeline.options import read_options
from fourfold.store.restoration import rebuild

SPACES = 10_000
_OPENED = 1_000
PLANNING_MS = 100
RESTORED_ROWS_S = 200_000
SELECT_S, COUNT_S = 4, 5
COLUMNS = ("stream", "offset", "time", "payload", "routing_key")


def _figure(title: str, values: list[float], unit: str, goal: float, share: list[float]) -> Figure:
    at_most = unit != "/s"
    clean = undisturbed(share)
    return Figure(title, spread(values), unit, goal, at_most=at_most, clean=clean)


# Planning


def published_spaces(count: int) -> Path:
    """Return a store with so many small spaces, all published; one that exists is used again."""
    root = BUILD / "pipeline" / f"spaces-{count}-published"
    if (root / "complete").exists():
        return root
    shutil.rmtree(root, ignore_errors=True)
    for first in range(0, count, _OPENED):
        # Each space that is open has files of its own.
        with fourfold.open(root, settings={"documents.page_size": 4096}) as opened:
            for number in range(first, min(first + _OPENED, count)):
                opened.space(f"did:web:shop{number:05}.example").set("order", {"total": number})
    with fourfold.open(root) as opened:
        opened.publish().raise_if_failed()
    (root / "complete").touch()
    return root


def prepare_planning(rows: int) -> None:
    published_spaces(min(SPACES, rows // 100))


def measure_planning(rows: int, rounds: int) -> Part:
    count = min(SPACES, rows // 100)
    root = published_spaces(count)
    os.environ["FOURFOLD_PIPELINE_CACHE_FOLDER"] = str(BUILD / "pipeline" / "planning-cache")
    options = read_options({"root": str(root), "table": "revisions"})

    def plan() -> None:
        planned = plan_archive(read_cut(options).bounds, options)
        assert planned is not None
        assert len(planned.archived) == count

    seconds, shares = in_turns({"plan": plan}, rounds, 2)
    values = [second * 1e3 for second in seconds["plan"]]
    return Part(
        title=f"Planning a read of {count:,} published spaces",
        rows=count,
        figures=[_figure("planning", values, "ms", PLANNING_MS, shares["plan"])],
        seconds=seconds,
        foreign_share=shares,
    )


# Restore


def prepare_restore(rows: int) -> None:
    published.store(rows, 1)


def measure_restore(rows: int, rounds: int) -> Part:
    source = published.store(rows, 1) / "objects"
    restored = 0

    def restore() -> None:
        nonlocal restored
        with TemporaryDirectory(dir=BUILD, prefix="work-") as folder:
            with fourfold.open(folder, settings={"objects.url": str(source)}) as store:
                report = rebuild(store)
            restored = sum(each.rows for each in report.restored)

    seconds, shares = in_turns({"restore": restore}, rounds, 0)
    values = [restored / second for second in seconds["restore"]]
    return Part(
        title=f"Restore of a space with {rows:,} revisions",
        rows=rows,
        figures=[_figure("restore, rows", values, "/s", RESTORED_ROWS_S, shares["restore"])],
        seconds=seconds,
        foreign_share=shares,
        facts={"rows": restored},
    )


# Records of streams


def stream_store(rows: int, percent: int) -> Path:
    """Return a store with a stream whose newest records are not published."""
    root = BUILD / "pipeline" / f"records-{rows}-{percent}"
    if (root / "complete").exists():
        return root
    shutil.rmtree(root, ignore_errors=True)
    source = messages.notes(rows)
    messages.append_all(root, messages.NAME, islice(source, rows - rows * percent // 100))
    with fourfold.open(root) as opened:
        assert not opened.archive.publish_all().failures
    messages.append_all(root, messages.NAME, source)
    (root / "complete").touch()
    return root


def prepare_records(rows: int) -> None:
    for percent in published.TAILS:
        stream_store(rows, percent)


def measure_records(rows: int, rounds: int) -> Part:
    spark = session("local[2]", quiet=True, spark__driver__memory="3g")
    os.environ["FOURFOLD_PIPELINE_CACHE_FOLDER"] = str(BUILD / "pipeline" / "records-cache")
    runs: dict[str, Callable[[], object]] = {}
    for percent in published.TAILS:
        root = stream_store(rows, percent)
        path = BUILD / "pipeline" / f"records-{rows}-{percent}.parquet"
        if not (path / "_SUCCESS").exists():
            shutil.rmtree(path, ignore_errors=True)
            _records(spark, root).write.option("compression", "zstd").parquet(str(path))
        assert _records(spark, root).count() == rows
        runs |= _record_runs(spark, root, path, f"{percent} %")
    seconds, shares = in_turns(runs, rounds, WARM_UP)
    spark.stop()
    figures = [
        ratio(
            f"{kind}, tail {percent} %",
            seconds,
            shares,
            f"{kind} {percent} %: read",
            f"{kind} {percent} %: parquet",
            goal,
        )
        for percent, goal in published.TAILS.items()
        for kind in ("noop", "aggregate")
    ]
    return Part(
        title=f"Scan of {rows:,} records of a stream, published but for a tail",
        rows=rows,
        figures=figures,
        seconds=seconds,
        foreign_share=shares,
    )


def _records(spark: Any, root: Path) -> Any:
    return read(spark, root=root, model="streams", table="records", columns=COLUMNS)


def _record_runs(spark: Any, root: Path, path: Path, label: str) -> dict[str, Callable[[], object]]:
    def native() -> Any:
        return spark.read.parquet(str(path)).select(*COLUMNS)

    return {
        f"noop {label}: parquet": lambda: noop(native()),
        f"noop {label}: read": lambda: noop(_records(spark, root)),
        f"aggregate {label}: parquet": lambda: _aggregate(native()),
        f"aggregate {label}: read": lambda: _aggregate(_records(spark, root)),
    }


def _aggregate(frame: Any) -> None:
    frame.selectExpr(
        "max(stream)", "sum(offset)", "max(time)", "sum(octet_length(payload))", "max(routing_key)"
    ).collect()


# SQL in a new process


def prepare_sql(rows: int) -> None:
    """The small space is created when it is measured."""
    del rows


def measure_sql(rows: int, rounds: int) -> Part:
    del rows
    with TemporaryDirectory(dir=BUILD, prefix="work-") as folder:
        root = Path(folder) / "one"
        stores.small_space(root)

        def ask(query: str) -> None:
            command = [sys.executable, "-m", "fourfold", "sql", str(root), query]
            subprocess.run(
                [*command, "--engine", "spark"], check=True, capture_output=True, text=True
            )

        runs: dict[str, Callable[[], object]] = {
            "select 1": lambda: ask("select 1"),
            "count": lambda: ask("select count(*) from revisions"),
        }
        seconds, shares = in_turns(runs, rounds)
    return Part(
        title="`fourfold sql --engine spark`, a new process each",
        rows=0,
        figures=[
            _figure(name, seconds[name], "s", goal, shares[name])
            for name, goal in (("select 1", SELECT_S), ("count", COUNT_S))
        ],
        seconds=seconds,
        foreign_share=shares,
    )
