"""`fourfold demo` to its end: Spark reads what the other steps wrote."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from fourfold.pipeline import jobs

pytestmark = pytest.mark.spark


def test_spark_reads_what_the_demo_wrote(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "fourfold", "demo", str(tmp_path / "mine"), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *_, spark = json.loads(done.stdout)["steps"]
    rows = {row["what"]: row["rows"] for row in spark["rows"]}
    assert rows == {
        "orders now": 20,
        "orders in all their versions": 86,
        "events of the tills": 240,
        "turns, and their tokens": 1,
        "edges between products and suppliers": 4,
    }
    assert spark["tables"]["version"] == 1
    assert list((tmp_path / "mine-tables" / "documents" / "current" / "state").glob("*.parquet"))
    [run] = jobs.history(tmp_path / "mine")
    assert (run.job, run.state) == ("materialize", "done")
