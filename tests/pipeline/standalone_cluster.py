"""A Spark cluster on this machine from the pip package: a Master, two Workers, and the package as
the zip for executors.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import zipfile
from contextlib import contextmanager
from pathlib import Path

import pyspark

import fourfold
from fourfold.pipeline.spark import prepare

SPARK = Path(pyspark.__file__).parent
PATIENCE_S = 240
FLAGS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def environment(**more):
    environ = dict(os.environ)
    prepare(environ)
    environ |= {"SPARK_HOME": str(SPARK), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1"}
    environ["PYSPARK_PYTHON"] = sys.executable
    return {**environ, **more}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(log, *arguments, **environ):
    with log.open("wb") as out:
        return subprocess.Popen(
            list(map(str, arguments)),
            env=environment(**environ),
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def stop(processes):
    """Terminate the processes that were started here, each with its own group."""
    for process in reversed(processes):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
    for process in processes:
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def until(condition, what, processes):
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        assert all(process.poll() is None for process in processes), f"{what}: a process ended"
        if condition():
            return
        time.sleep(0.2)
    raise AssertionError(f"{what}: not within {PATIENCE_S} seconds")


HIDE = 'for each in $HIDDEN; do mount -t tmpfs none "$each" || exit 9; done; exec "$@"'


def can_hide():
    """Return True if a process can get its own view of the file system."""
    command = ["unshare", "-m", "true"]
    return (
        shutil.which("unshare") is not None and subprocess.run(command, check=False).returncode == 0
    )


@contextmanager
def standalone(folder, hidden=()):
    """Yield the address of a Master with two Workers of one core each, and with empty folders in
    the place of those that are hidden.
    """
    apart = ("unshare", "-m", "sh", "-c", HIDE, "sh") if hidden else ()
    port, page = free_port(), free_port()
    address = f"spark://127.0.0.1:{port}"
    launch = SPARK / "bin" / "spark-class"
    package = "org.apache.spark.deploy"
    processes = []

    def alive():
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{page}/json/", timeout=5) as answer:
                return json.load(answer)["aliveworkers"] == 2
        except OSError:
            return False

    try:
        master = ("-h", "127.0.0.1", "-p", port, "--webui-port", page)
        processes.append(start(folder / "master.log", launch, f"{package}.master.Master", *master))
        for number in range(2):
            worker = ("-h", "127.0.0.1", "-c", 1, "-m", "1g", "-d", folder / f"work-{number}")
            ports = ("--webui-port", free_port())
            log = folder / f"worker-{number}.log"
            processes.append(
                start(
                    log,
                    *(*apart, launch, f"{package}.worker.Worker", *worker, *ports, address),
                    HIDDEN=" ".join(map(str, hidden)),
                )
            )
        until(alive, "two workers", processes)
        yield address
    finally:
        stop(processes)


@contextmanager
def connect_server(folder, archive):
    """Yield the address of a Spark Connect server with two local cores."""
    port = free_port()
    processes = [
        start(
            folder / "connect.log",
            SPARK / "sbin" / "start-connect-server.sh",
            *("--master", "local[2]", "--py-files", archive),
            *("--conf", f"spark.connect.grpc.binding.port={port}"),
            *("--conf", "spark.connect.grpc.binding.address=127.0.0.1"),
            *("--conf", "spark.ui.enabled=false"),
            *("--conf", f"spark.driver.extraJavaOptions={FLAGS}"),
            SPARK_LOG_DIR=str(folder / "logs"),
            SPARK_PID_DIR=str(folder / "pids"),
        )
    ]

    def listens():
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        until(listens, "the Connect server", processes)
        yield f"sc://127.0.0.1:{port}"
    finally:
        stop(processes)


def shipped(folder):
    """Return the package as a zip for `--py-files`."""
    source = Path(fourfold.__file__).parent
    archive = folder / "fourfold.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(source.rglob("*")):
            if path.suffix in {".py", ".sql"}:
                file.write(path, path.relative_to(source.parent))
    return archive
