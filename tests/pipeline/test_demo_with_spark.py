"""`fourfold demo` to its end: Spark reads what the other steps wrote."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fourfold.cli import main
from fourfold.pipeline import jobs

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[2]


def test_spark_reads_what_the_demo_wrote(spark, tmp_path, monkeypatch, capfd):
    # The demo uses the session of the tests, which goes on after it.
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    code = main.run(["demo", str(tmp_path / "mine"), "--json"])
    printed = capfd.readouterr()
    assert code == 0, printed.err
    check_spark_step(json.loads(printed.out), tmp_path)


def test_make_demo_tells_the_whole_story_without_a_terminal(tmp_path):
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    # The environment of the tests is the one to run in: nothing is installed.
    command = ["make", "--assume-old=.venv/.ready", "demo", f"BIN={Path(sys.executable).parent}"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line and not line.startswith("make")]
    assert re.fullmatch(r"\S+/fourfold demo", lines[0])
    assert re.fullmatch(r"Explorer  http://127\.0\.0\.1:\d+/", lines[1])
    steps = re.findall(r"^(\d)\. .+? +[\d.]+ s$", done.stdout, re.MULTILINE)
    assert steps == ["1", "2", "3", "4"]
    assert "All as expected" in done.stdout
    [folder] = tmp_path.glob("fourfold-demo-*")
    assert f"`fourfold open {folder / 'shop'}`" in done.stdout
    [run] = jobs.history(folder / "shop")
    assert (run.job, run.state) == ("materialize", "done")


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
