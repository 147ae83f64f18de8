"""Spark's workers are forked from a daemon that has imported what their tasks need."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pyarrow as pa
import pytest

from fourfold.pipeline.spark import DAEMON, daemon_options

PLANNER = "pyspark.sql.worker.plan_data_source_read"
LOOKUP = "pyspark.sql.worker.lookup_data_sources"
LOADED = {
    "pyspark.worker": {"pandas", "pyarrow", "fourfold.pipeline.documents.fold"},
    PLANNER: {"fourfold.pipeline.source", "fourfold.kernel"},
    LOOKUP: set(),
}
ABSENT = {"pyspark.worker": "fourfold.kernel", PLANNER: "pandas", LOOKUP: "pandas"}

PRELOADED = """
import gc, json, os, sys, threading
before = dict(os.environ)
from fourfold.pipeline.daemon import preload
preload(sys.argv[1])
tasks = "/proc/self/task"
threads = len(os.listdir(tasks)) if os.path.isdir(tasks) else threading.active_count()
print(json.dumps([
    threads, gc.get_freeze_count(), os.environ == before, sorted(sys.modules)]))
"""


def preloaded(worker):
    # Spark sets the variable for its daemons.
    done = subprocess.run(
        [sys.executable, "-c", PRELOADED, worker],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("worker", LOADED)
def test_daemon_has_imports_and_no_thread_when_it_forks(worker):
    threads, frozen, same_environment, modules = preloaded(worker)
    assert threads == 1
    assert frozen > 10_000
    assert same_environment
    assert {worker} | LOADED[worker] <= set(modules)
    assert ABSENT[worker] not in modules


def test_missing_module_does_not_stop_the_daemon():
    assert preloaded("pyspark.no_such_worker")[0] == 1


def test_option_is_set_only_where_workers_have_the_package(monkeypatch, tmp_path):
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert daemon_options("local[2]") == [f"-Dspark.python.daemon.module={DAEMON}"]
    assert daemon_options("spark://host:7077") == []
    (tmp_path / "fourfold").mkdir()
    (tmp_path / "fourfold" / "__init__.py").touch()
    with monkeypatch.context() as other_package:
        other_package.setenv("PYTHONPATH", str(tmp_path))
        assert daemon_options("local[2]") == []
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/python3-of-another-environment")
    assert daemon_options("local[2]") == []


@pytest.mark.spark
def test_tasks_run_in_workers_of_the_daemon(spark):
    if sys.executable != os.environ["PYSPARK_PYTHON"]:
        pytest.skip("workers use another interpreter")

    def program(batches):
        import sys  # noqa: PLC0415 - in the worker

        for _ in batches:
            name = sys.modules["__main__"].__spec__.name
            yield pa.RecordBatch.from_pydict({"name": [name]})

    [row] = spark.range(0, 1, 1, 1).mapInArrow(program, "name string").collect()
    assert row.name == DAEMON
