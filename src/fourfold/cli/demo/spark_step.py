"""The last step of the demo: Spark reads the history of every model, and writes tables.

The session starts in a thread of its own when the demo starts; the step waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import fourfold
from fourfold.cli.demo.check import expect
from fourfold.cli.demo.shop import DID, EVENTS
from fourfold.errors import MissingDependency
from fourfold.kernel import load_queries
from fourfold.pipeline import jobs, session, views
from fourfold.pipeline.jobs import RunReport
from fourfold.server.jobs import tables_folder

_SQL: Final = load_queries("fourfold.cli.demo", "spark.sql")
_TABLES: Final = {
    "documents": ("state", "history"),
    "streams": ("messages",),
    "sessions": ("turns",),
    "graphs": ("edges",),
}


class SparkStep:
    """A Spark session that starts in the background, and what the demo does with it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._spark: Any = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._start, daemon=True)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start the session, and stop it at the end."""
        self._thread.start()
        try:
            yield
        finally:
            self._thread.join()
            if self._spark is not None:
                self._spark.stop()

    def _start(self) -> None:
        try:
            self._spark = session(quiet=True)
            self._spark.range(1).collect()
        except Exception as error:  # noqa: BLE001 - the step raises it
            self._error = error

    def run(self) -> tuple[list[str], dict[str, object]]:
        """Query all four models in one SQL query, and check the result against the store."""
        self._thread.join()
        if isinstance(self._error, MissingDependency):
            return [f"left out: {self._error.message}", self._error.hint], {"skipped": True}
        if self._error is not None:
            raise self._error
        for model, tables in _TABLES.items():
            views(self._spark, self._root, model=model, tables=tables, prefix=f"{model}_")
        rows = {row["what"]: row.asDict() for row in self._spark.sql(_SQL.totals).collect()}
        now = rows["orders now"]
        expect("sum of the orders in Spark", round(now["amount"], 2), self._total())
        expect("events in Spark", rows["events of the tills"]["rows"], EVENTS)
        lines = ["MODEL      ROWS     AMOUNT"]
        lines += [
            f"{row['model']:<10} {row['rows']:>4} {_amount(row['amount']):>10}  {row['what']}"
            for row in rows.values()
        ]
        lines.append("one query over four models; the sum of the orders is that of the store")
        report = self._materialize()
        lines.append(f"tables in {tables_folder(self._root)}: {report.sentence}")
        return lines, {"rows": list(rows.values()), "tables": report.report}

    def _materialize(self) -> RunReport:
        """Write the state of all documents as Parquet; the page of the pipeline shows the run."""
        into = tables_folder(self._root) / "documents"
        return jobs.run("materialize", self._root, {"into": into}, spark=self._spark)

    def _total(self) -> float:
        """Return the sum of all orders, read from the store."""
        with fourfold.open(self._root, mode="r") as store:
            space = store.space(DID)
            states = space.read_many(space.ids(prefix="order:"))
            documents = [state.document for state in states.values() if state is not None]
        totals = (float(document["total"]) for document in documents if document)
        return round(sum(totals), 2)


def _amount(value: float | None) -> str:
    return "" if value is None else f"{value:,.2f}"
