"""Scans of the log beside native Parquet of the same rows.

The rows of the log lie beside it as Parquet (zstd), in the same order. Two readers take them on two
cores: Spark's of Parquet, and `fourfold.pipeline.read`, which exports them once.

    noop         every column of every row, into nothing
    aggregate    one figure of each column: the lengths of texts, the sum of numbers
    count        how many rows there are, of one column
    filtered     the rows of one entity, which an index finds for the option `where`
    columns      two columns alone
    recent       the last hundredth of the commits, by the option `where`
    unnarrowed   the rows of one entity by a filter of Spark's: every row is read for it

The clock runs from the call that makes the DataFrame, so that planning, with its cut, is in it; for
Parquet too. Java goes on compiling for several rounds, so the first rounds do not count.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.parts import Part, ratio
from bench.pipeline import stores
from bench.place import BUILD
from bench.turns import in_turns
from fourfold.pipeline import read, session

COLUMNS = "space,branch,id,seq,op_index,op,data"
GOALS = {"noop": 0.65, "aggregate": 0.85}
KINDS = ("noop", "aggregate", "count", "filtered", "columns", "recent", "unnarrowed")
ENTITY = "urn:entity:00000042"
WARM_UP = 4
"""Rounds until both sides take about as long as in the next one. After a single one Parquet still
looks a fifth slower than it is.
"""


def source(spark: Any, root: Path, columns: str = COLUMNS, where: str | None = None) -> Any:
    return read(spark, root=root, table="revisions", columns=columns, where=where)


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


def runs(
    spark: Any, root: Path, path: Path, rows: int, newest: int, kinds: tuple[str, ...]
) -> dict[str, Callable[[], object]]:
    def counted(frame: Any) -> None:
        assert frame.count() == rows

    def of_one(frame: Any) -> None:
        assert frame.where(one).count() == rows // min(rows // 10, 100_000)

    def recent(frame: Any) -> None:
        noop(frame.where(late))

    one, late = f"id = '{ENTITY}'", f"seq > {newest - newest // 100}"
    forms: dict[str, tuple[Callable[[Any], None], str, str | None]] = {
        "noop": (noop, COLUMNS, None),
        "aggregate": (aggregate, COLUMNS, None),
        "count": (counted, "space", None),
        "filtered": (of_one, COLUMNS, one),
        "columns": (noop, "id,seq", None),
        "recent": (recent, COLUMNS, late),
        "unnarrowed": (of_one, COLUMNS, None),
    }

    def readers(kind: str) -> dict[str, Callable[[], object]]:
        form, columns, where = forms[kind]
        return {
            f"{kind}: parquet": lambda: form(parquet(spark, path, columns)),
            f"{kind}: read": lambda: form(source(spark, root, columns, where)),
        }

    return {name: run for kind in kinds for name, run in readers(kind).items()}


def prepare(rows: int) -> None:
    stores.store("log", rows)


def measure(rows: int, rounds: int) -> Part:
    root = stores.store("log", rows)
    spark = session("local[2]", quiet=True, spark__driver__memory="3g")
    path = BUILD / "pipeline" / f"log-{rows}.parquet"
    if not (path / "_SUCCESS").exists():
        shutil.rmtree(path, ignore_errors=True)
        source(spark, root).write.option("compression", "zstd").parquet(str(path))
    [(newest, found)] = spark.read.parquet(str(path)).selectExpr("max(seq)", "count(*)").collect()
    assert found == rows
    kinds = KINDS if rows <= stores.SPACE_ROWS else KINDS[:2]
    both = runs(spark, root, path, rows, newest, kinds)
    # A round of ten million rows is long enough to warm up in.
    seconds, shares = in_turns(both, rounds, WARM_UP if rows <= stores.SPACE_ROWS else 1)
    spark.stop()
    spaces = list((root / "spaces").glob("*.sqlite"))
    return Part(
        title=f"Scan of {rows:,} rows, ratio to native Parquet",
        rows=rows,
        figures=[
            ratio(kind, seconds, shares, f"{kind}: read", f"{kind}: parquet", GOALS.get(kind))
            for kind in kinds
        ],
        seconds=seconds,
        foreign_share=shares,
        facts={
            "spaces": len(spaces),
            "bytes": sum(each.stat().st_size for each in spaces),
            "parquet_bytes": sum(each.stat().st_size for each in path.glob("*.parquet")),
        },
    )
