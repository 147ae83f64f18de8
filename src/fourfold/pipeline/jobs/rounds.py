"""Work that goes in rounds, each written down before the next one begins.

So the plan of a round does not grow with the rounds before it, and a run that was killed goes on
with the round that it was at: its folder is the same, and a round that is whole is not done again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from fourfold.pipeline.jobs.shape import Context


class Rounds:
    """The rounds of one thing, as Parquet with one schema, in the folder of a run."""

    def __init__(self, context: Context, name: str, schema: str) -> None:
        self._spark = context.spark
        self._place = context.staging
        self._name = name
        self._schema = schema

    def folder(self, number: int) -> Path:
        return self._place / f"{self._name}-{number:05}"

    def kept(self, number: int, make: Callable[..., Any], *given: Any) -> Any:
        """A round that is there, or is made and written now."""
        folder = self.folder(number)
        if not (folder / "_SUCCESS").exists():
            make(*given).write.mode("overwrite").parquet(str(folder))
        return self.read([number])

    def read(self, numbers: Iterable[int]) -> Any:
        paths = [str(self.folder(number)) for number in numbers]
        return self._spark.read.schema(self._schema).parquet(*paths)
