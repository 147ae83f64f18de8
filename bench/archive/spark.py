"""F: Spark over what is published; G: `seal` of very many streams in one job.

    parquet     Spark's own reader over the files of the segments, columns under the same names
    published   `published(spark, objects)`: the files that the manifests name, as a table
    source      `format("fourfold")` with `objects`: Fourfold's reader, in the workers

    noop        offset, time, payload and routing key of every record, into nothing
    aggregate   one figure of each of these

The clock runs from the call that makes the DataFrame, so with the manifests; for `seal`, over the
whole job, which takes minutes and has nothing to be compared with.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import fourfold
from bench.archive import messages
from bench.measurement import spread
from bench.parts import Figure, Part, ratio, undisturbed
from bench.place import BUILD
from bench.processes import foreign
from bench.streams import million
from bench.turns import in_turns
from fourfold.pipeline import jobs, session
from fourfold.pipeline.streams.published import published

MESSAGES = 2_000_000
QUICK = 50_000
STREAMS = 100_000
QUICK_STREAMS = 1_000
COLUMNS = ("offset", "time", "payload", "routing_key")
TARGET = 0.9
_KINDS = ("noop", "aggregate")


def measure(rounds: int, *, quick: bool) -> Part:
    count = QUICK if quick else MESSAGES
    root = messages.store("notes", count, published=True)
    spark = session("local[2]", quiet=True, spark__driver__memory="3g")
    try:
        seconds, shares = in_turns(_runs(spark, root, count), rounds)
    finally:
        spark.stop()
    return Part(
        title=f"F. Spark over {count:,} published records",
        rows=count,
        figures=[
            ratio(
                f"{kind}, {form} to native Parquet",
                seconds,
                shares,
                f"{kind}: {form}",
                f"{kind}: parquet",
                TARGET if form == "published" else None,
            )
            for kind in _KINDS
            for form in ("published", "source")
        ],
        seconds=seconds,
        foreign_share=shares,
        facts={"segments": len(messages.segment_files(root))},
    )


def measure_seal(rounds: int, *, quick: bool) -> Part:
    streams = QUICK_STREAMS if quick else STREAMS
    pending = _pending(streams)
    spark = session("local[2]", quiet=True, spark__driver__memory="3g")
    try:
        runs = [_seal(spark, pending, streams) for _ in range(1 if quick else min(rounds, 3))]
    finally:
        spark.stop()
    seconds, shares = [taken for taken, _ in runs], [share for _, share in runs]
    figure = Figure(
        f"seal of {streams:,} streams",
        spread([streams / taken for taken in seconds]),
        "streams/s",
        clean=undisturbed(shares),
    )
    return Part(
        title=f"G. Sealing {streams:,} streams in one job",
        rows=0,
        figures=[figure],
        seconds={"seal": seconds},
        foreign_share={"seal": shares},
        facts={"streams": streams},
    )


def _runs(spark: Any, root: Path, count: int) -> dict[str, Callable[[], object]]:
    objects = root / "objects"
    files = [str(file) for file in messages.segment_files(root)]

    def native() -> Any:
        return spark.read.parquet(*files).withColumnRenamed("append_time", "time").select(*COLUMNS)

    def ours() -> Any:
        return published(spark, objects, streams=messages.NAME, columns=COLUMNS)

    def source() -> Any:
        reader = spark.read.format("fourfold").option("objects", str(objects))
        reader = reader.option("table", "records").option("stream", messages.NAME)
        return reader.option("columns", ",".join(COLUMNS)).load()

    frames = {"parquet": native, "published": ours, "source": source}
    for frame in frames.values():
        assert frame().count() == count
    actions = {"noop": _noop, "aggregate": _aggregate}
    return {
        f"{kind}: {form}": lambda act=actions[kind], frame=frame: act(frame())  # type: ignore[misc]
        for kind in _KINDS
        for form, frame in frames.items()
    }


def _noop(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _aggregate(frame: Any) -> None:
    frame.selectExpr(
        "sum(offset)", "max(time)", "sum(octet_length(payload))", "count(routing_key)"
    ).collect()


def _pending(streams: int) -> Path:
    """A store with so many streams, each with one record that is not sealed."""
    root = BUILD / "archive" / f"streams-{streams}"
    if (root / "complete").exists():
        return root
    shutil.rmtree(root, ignore_errors=True)
    names = [million.name_of(number) for number in range(streams)]
    with fourfold.open(root) as store:
        asyncio.run(million.create(store.streams, streams))
        asyncio.run(million.appends(store.streams, names, million.CONCURRENT))
    (root / "complete").touch()
    return root


def _seal(spark: Any, root: Path, streams: int) -> tuple[float, float]:
    with TemporaryDirectory(dir=BUILD, prefix="work-") as folder:
        copy = Path(folder) / "store"
        shutil.copytree(root, copy)
        with foreign() as seen:
            began = time.perf_counter()
            jobs.run("seal", copy, {"everything": True}, spark=spark)
            taken = time.perf_counter() - began
        with fourfold.open(copy, mode="r") as store:
            files = sum(1 for _ in copy.glob("streams/.segments/local/**/*.parquet"))
            assert files == streams, f"{files} of {streams} are sealed"
            assert store.mode == "r"
    return taken, seen.foreign_share
