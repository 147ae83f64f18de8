"""One executor against two: the same fold on a standalone cluster of this machine.

A Master and two Workers of one core each are started from the pip package. A driver, in a process
of its own, folds the store `chains` into Parquet, with one core of the cluster and with two, in
turns. The two cores of a small machine carry the Master, the driver and both executors.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyspark

from bench.parts import Part, ratio
from bench.pipeline import stores
from bench.place import BUILD
from bench.processes import foreign
from fourfold.pipeline.spark import prepare as prepare_environment

GOAL = 1.4
SPARK = Path(pyspark.__file__).parent
PATIENCE_S = 60.0
_DRIVER = """
import json, sys, time
from pathlib import Path
from bench.pipeline.materialize import materialize
from fourfold.pipeline import session
address, cores, root, out, runs = sys.argv[1:]
spark = session(address, quiet=True, **{
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "1g", "spark.executor.cores": "1", "spark.cores.max": cores,
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s", "spark.log.level": "OFF",
})
seconds = []
for _ in range(int(runs) + 1):
    began = time.perf_counter()
    materialize(spark, Path(root), Path(out))
    seconds.append(time.perf_counter() - began)
spark.stop()
print(json.dumps(seconds[1:]))
"""


def prepare(rows: int) -> None:
    stores.store("chains", rows)


def measure(rows: int, rounds: int) -> Part:
    root = stores.store("chains", rows)
    seconds: dict[str, list[float]] = {"one executor": [], "two executors": []}
    shares: dict[str, list[float]] = {"one executor": [], "two executors": []}
    with TemporaryDirectory(dir=BUILD, prefix="work-") as temporary:
        folder = Path(temporary)
        with _standalone(folder) as address:
            for _ in range(rounds):
                for cores, name in enumerate(seconds, 1):
                    with foreign() as seen:
                        taken = _drive(address, cores, root, folder / "out")
                    seconds[name].append(min(taken))
                    shares[name].append(seen.foreign_share)
    return Part(
        title=f"Standalone cluster, `materialize` of {rows:,} revisions",
        rows=rows,
        figures=[
            ratio("two executors to one", seconds, shares, "two executors", "one executor", GOAL)
        ],
        seconds=seconds,
        foreign_share=shares,
    )


def _drive(address: str, cores: int, root: Path, out: Path) -> list[float]:
    command = [sys.executable, "-c", _DRIVER, address, str(cores), str(root), str(out), "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the driver failed: {done.stderr.strip()[-2000:]}")
    found: list[float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


@contextmanager
def _standalone(folder: Path) -> Iterator[str]:
    """The address of a Master with two Workers of one core each."""
    environ = dict(os.environ)
    prepare_environment(environ)
    environ |= {"SPARK_HOME": str(SPARK), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1"}
    port, page = _free_port(), _free_port()
    address = f"spark://127.0.0.1:{port}"
    processes: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: object) -> None:
        command = [str(SPARK / "bin" / "spark-class"), *map(str, arguments)]
        with (folder / f"{name}.log").open("wb") as out:
            processes.append(
                subprocess.Popen(
                    command,
                    env=environ,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )

    package = "org.apache.spark.deploy"
    try:
        start(
            "master",
            f"{package}.master.Master",
            "-h",
            "127.0.0.1",
            "-p",
            port,
            "--webui-port",
            page,
        )
        for number in range(2):
            start(
                f"worker-{number}",
                f"{package}.worker.Worker",
                "-h",
                "127.0.0.1",
                "-c",
                1,
                "-m",
                "2g",
                "-d",
                folder / f"work-{number}",
                "--webui-port",
                _free_port(),
                address,
            )
        _await_workers(page)
        yield address
    finally:
        _stop(processes)


def _await_workers(page: int) -> None:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{page}/json/", timeout=5) as answer:
                found: Any = json.load(answer)
                if found["aliveworkers"] == 2:
                    return
        except OSError:
            pass
        time.sleep(0.2)
    raise RuntimeError(f"the workers did not come within {PATIENCE_S:.0f} seconds")


def _stop(processes: list[subprocess.Popen[bytes]]) -> None:
    """End what was started here, each with its own group."""
    for process in reversed(processes):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
    for process in processes:
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
