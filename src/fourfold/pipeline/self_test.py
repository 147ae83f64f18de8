"""Start a local Spark session and run one SQL job and one Python job in it.

`fourfold doctor --spark` runs this module in a child process, because a JVM writes to stderr and a
hung session must not hang the caller. The process prints one JSON document. A Java before 19 writes
an archive of the loaded classes as it exits, so that later sessions start faster.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fourfold.errors import MissingDependency, StorageError
from fourfold.pipeline import java
from fourfold.pipeline.spark import train_archive

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

SPARK_TRIAL_TIMEOUT_S: Final = 240.0
"""Timeout of `fourfold doctor --spark`, which starts a session and runs two small jobs."""

ROWS = 1_000


def run(environ: Mapping[str, str]) -> dict[str, Any]:
    """Test Spark in a child process; return the versions, or raise an error with a fix."""
    chosen = java.find(environ)
    env = {
        **environ,
        "JAVA_HOME": str(chosen.home),
        # Workers would otherwise use the first `python3` on the PATH.
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": os.pathsep.join(
            filter(None, [str(Path(__file__).parents[2]), environ.get("PYTHONPATH")])
        ),
    }
    try:
        with train_archive(chosen, java.cache_folder(environ)) as options:
            submit = environ.get("SPARK_SUBMIT_OPTS")
            process = subprocess.run(
                [sys.executable, "-m", "fourfold.pipeline.self_test"],
                env={**env, "SPARK_SUBMIT_OPTS": " ".join(filter(None, [*options, submit]))},
                stdin=subprocess.DEVNULL,
                # The JVM has them open, too: the call returns after it has exited.
                capture_output=True,
                timeout=SPARK_TRIAL_TIMEOUT_S,
                check=False,
            )
    except subprocess.TimeoutExpired:
        raise StorageError(
            f"Spark timed out after {SPARK_TRIAL_TIMEOUT_S:g} seconds",
            hint="Check for a proxy or firewall on 127.0.0.1, and for low memory.",
        ) from None
    if process.returncode != 0:
        lines = process.stderr.decode("utf-8", "replace").strip().splitlines() or ["no output"]
        raise StorageError(
            f"Spark does not run on Java {chosen.version}: {lines[-1]}",
            hint=f"See the full output: `JAVA_HOME={chosen.home} {sys.executable} "
            "-m fourfold.pipeline.self_test`.",
        )
    report: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return report


def try_jobs() -> dict[str, Any]:
    """Run one SQL job and one Python job in a session; return what they computed."""
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - Spark is an optional dependency
    except ImportError as error:
        raise MissingDependency(
            "pyspark is not installed", hint="Install it: `pip install 'fourfold[spark]'`."
        ) from error
    session = (
        SparkSession.builder.master("local[1]")
        .appName("fourfold-trial")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
    try:
        numbers = session.range(ROWS)
        [(version, total)] = numbers.selectExpr(
            "java_method('java.lang.System', 'getProperty', 'java.version')", "sum(id)"
        ).collect()
        with tempfile.TemporaryDirectory() as folder:
            # Its classes are in the archive, too: tables are Parquet.
            numbers.write.parquet(f"{folder}/numbers")
            read = session.read.schema("id bigint").parquet(f"{folder}/numbers")
            read.createOrReplaceTempView("numbers")
            [(rows,)] = session.sql("select count(*) from numbers where id >= 0").collect()
        [(doubled,)] = numbers.mapInArrow(_double, "id bigint").selectExpr("sum(id)").collect()
        return {
            "spark": session.version,
            "java": version,
            "sql_ok": total == ROWS * (ROWS - 1) // 2 and rows == ROWS,
            "arrow_ok": doubled == ROWS * (ROWS - 1),
        }
    finally:
        session.stop()


def _double(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        doubled = [2 * number for number in batch.column(0).to_pylist()]
        yield type(batch).from_pydict({"id": doubled})


def main(arguments: Sequence[str]) -> None:
    """Run the jobs and print the report; with `--train`, only write the class archive."""
    if "--train" in arguments:
        os.nice(19)
        run(os.environ)
    else:
        sys.stdout.write(json.dumps(try_jobs()) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
