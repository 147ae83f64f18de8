"""`fourfold demo` to its end: Spark reads what the other steps wrote."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from fourfold.cli import main
from fourfold.pipeline import jobs

pytestmark = pytest.mark.spark


def test_spark_reads_what_the_demo_wrote(spark, tmp_path, monkeypatch, capfd):
    # The demo uses the session of the tests, which goes on after it.
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    code = main.run(["demo", str(tmp_path / "mine"), "--json"])
    printed = capfd.readouterr()
    assert code == 0, printed.err
    check_spark_step(json.loads(printed.out), tmp_path)


@pytest.mark.slow
def test_demo_starts_and_stops_its_own_spark(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "fourfold", "demo", str(tmp_path / "mine"), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    check_spark_step(json.loads(done.stdout), tmp_path)


def check_spark_step(document, folder):
    *_, spark = document["steps"]
    rows = {row["what"]: row["rows"] for row in spark["rows"]}
    assert rows == {
        "orders now": 20,
        "orders in all their versions": 86,
        "events of the tills": 240,
        "turns, and their tokens": 1,
        "edges between products and suppliers": 4,
    }
    assert spark["tables"]["version"] == 1
    assert list((folder / "mine-tables" / "documents" / "current" / "state").glob("*.parquet"))
    [run] = jobs.history(folder / "mine")
    assert (run.job, run.state) == ("materialize", "done")
