"""What a model measures with: the tables of one cut, and a few sums."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fourfold.pipeline.cut import Cut
from fourfold.pipeline.reading import frame


@dataclass(frozen=True, slots=True)
class Measure:
    """One cut of the data of one model in a store."""

    spark: Any
    root: Path
    model: str
    cut: Cut

    @property
    def functions(self) -> Any:
        """Spark's functions on columns."""
        from pyspark.sql import functions  # noqa: PLC0415 - an optional dependency

        return functions

    @property
    def file_bytes(self) -> int:
        return sum(mark.bytes for mark in self.cut.marks)

    def table(self, name: str, columns: str) -> Any:
        """Some columns of a table, at the cut."""
        asked = {"root": str(self.root), "model": self.model, "table": name, "columns": columns}
        return frame(self.spark, asked, self.cut)

    def summed(self, table: str, column: str, size: Any) -> dict[str, int]:
        """How many rows a table has, and the sum of their sizes."""
        f = self.functions
        total = f.coalesce(f.sum(size), f.lit(0))
        row = self.table(table, column).agg(f.count("*"), total).first()
        return {"count": row[0], "bytes": row[1]}
