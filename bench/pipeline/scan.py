"""`python -m bench.pipeline.scan`: the source beside native Parquet of the same rows.

One space holds the log; the same rows, in the same order, lie beside it as Parquet (zstd). Both are
read on two cores, in random order, round after round:

    noop         every column of every row, into nothing
    aggregate    one figure of each column: the lengths of texts, the sum of numbers
    filtered     the rows of one entity, which an index finds
    columns      two columns alone
    recent       the last hundredth of the commits

The clock runs from the call that makes the DataFrame, so that planning, with its cut, is in it; for
Parquet too.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import click

from bench.pipeline.materialize import DID, make
from bench.place import BUILD, RESULTS, alone
from bench.tables import markdown
from fourfold.pipeline import session

COLUMNS = "space,branch,id,seq,op_index,op,data"
GOALS = {"noop": 0.65, "aggregate": 0.85}
ENTITY = "urn:entity:00000042"
PROSE = (
    "a log is only ever added to and what you read is a fold of it so every past state stays "
    "readable snapshots caches and tables are derived from it and can be thrown away at any time"
)


def operations(rows: int) -> Iterator[dict[str, Any]]:
    """Documents of some 190 bytes, ten versions of each: words, numbers and a part that no codec
    can shorten.
    """
    rng = random.Random(1)
    words = PROSE.split()
    for number in range(rows):
        text = " ".join(rng.choices(words, k=12))
        value = {
            "title": f"{rng.choice(words)} {number}",
            "text": text,
            "price": rng.randrange(10**6) / 100,
            "tag": rng.randbytes(8).hex(),
        }
        yield {"op": "set", "id": f"urn:entity:{number % (rows // 10):08}", "value": value}


def source(spark: Any, root: Path, columns: str = COLUMNS) -> Any:
    reader = spark.read.format("fourfold").option("root", str(root)).option("table", "revisions")
    return reader.option("columns", columns).load()


def parquet(spark: Any, path: Path, columns: str = COLUMNS) -> Any:
    return spark.read.parquet(str(path)).select(*columns.split(","))


def noop(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def aggregate(frame: Any) -> None:
    frame.selectExpr(
        *(f"sum(length({name}))" for name in ("space", "branch", "id", "op", "data")),
        "sum(seq)",
        "sum(op_index)",
    ).collect()


def tasks(spark: Any, root: Path, path: Path, newest: int) -> dict[str, Callable[[], None]]:
    def one(frame: Any) -> None:
        assert frame.where(f"id = '{ENTITY}'").count() == 10

    def recent(frame: Any) -> None:
        noop(frame.where(f"seq > {newest - newest // 100}"))

    few = "id,seq"
    return {
        "noop: parquet": lambda: noop(parquet(spark, path)),
        "noop: source": lambda: noop(source(spark, root)),
        "aggregate: parquet": lambda: aggregate(parquet(spark, path)),
        "aggregate: source": lambda: aggregate(source(spark, root)),
        "filtered: parquet": lambda: one(parquet(spark, path)),
        "filtered: source": lambda: one(source(spark, root)),
        "columns: parquet": lambda: noop(parquet(spark, path, few)),
        "columns: source": lambda: noop(source(spark, root, few)),
        "recent: parquet": lambda: recent(parquet(spark, path)),
        "recent: source": lambda: recent(source(spark, root)),
    }


def measure(rows: int, rounds: int, folder: Path) -> dict[str, Any]:
    root, path = folder / "store", folder / "rows.parquet"
    make(root, operations(rows))
    spark = session("local[2]", quiet=True, spark__driver__memory="3g")
    source(spark, root).write.option("compression", "zstd").parquet(str(path))
    [(newest, found)] = spark.read.parquet(str(path)).selectExpr("max(seq)", "count(*)").collect()
    assert found == rows
    runs = tasks(spark, root, path, newest)
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        for name in random.sample(list(runs), len(runs)):
            began = time.perf_counter()
            runs[name]()
            if number:
                seconds[name].append(time.perf_counter() - began)
    spark.stop()
    middle = {name: median(times) for name, times in seconds.items()}
    kinds = dict.fromkeys(name.partition(":")[0] for name in runs)
    return {
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "rows": rows,
        "file_bytes": (root / "spaces" / f"{DID}.sqlite").stat().st_size,
        "parquet_bytes": sum(each.stat().st_size for each in path.glob("*.parquet")),
        "seconds": seconds,
        "ratios": {kind: middle[f"{kind}: parquet"] / middle[f"{kind}: source"] for kind in kinds},
    }


def show(result: dict[str, Any]) -> str:
    rows = [
        [
            name,
            f"{median(times):.2f}",
            f"{min(times):.2f}",
            f"{max(times):.2f}",
            f"{result['rows'] / median(times):,.0f}",
        ]
        for name, times in result["seconds"].items()
    ]
    lines = [
        f"{kind}: the source at {ratio:.2f} of Parquet"
        + (f" (goal {GOALS[kind]})" if kind in GOALS else "")
        for kind, ratio in result["ratios"].items()
    ]
    table = markdown(["run", "median s", "min", "max", "rows of the log/s"], rows)
    sizes = f"{result['file_bytes'] / 2**20:.0f} MiB, {result['parquet_bytes'] / 2**20:.0f} MiB"
    return "\n".join(
        [table, "", *lines, f"{result['rows']:,} rows; the space and the Parquet: {sizes}"]
    )


@click.command()
@click.option("--rows", default=1_000_000, help="Rows of the log.")
@click.option("--rounds", default=5, help="Rounds that count.")
@click.option("--keep", is_flag=True, help="Keep the result in bench/results.")
def main(rows: int, rounds: int, keep: bool) -> None:
    """Measure the source."""
    with alone(), TemporaryDirectory(dir=BUILD, prefix="work-") as folder:
        result = measure(rows, rounds, Path(folder))
    click.echo(show(result))
    name = f"pipeline-scan-{datetime.now(UTC):%Y-%m-%d}.json"
    path = RESULTS / name if keep else BUILD / "newest-pipeline-scan.json"
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
