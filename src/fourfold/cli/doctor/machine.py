"""Checks of the machine: Python, SQLite, Java, Spark, the volume and the cost of an fsync."""

from __future__ import annotations

import os
import platform
import re
import shutil
import statistics
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fourfold import kernel, limits
from fourfold.cli.doctor.findings import Finding
from fourfold.cli.output import size
from fourfold.errors import FourfoldError, MissingDependency
from fourfold.pipeline import java as pipeline_java
from fourfold.pipeline import self_test
from fourfold.server.uvicorn_check import unsupported_reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fourfold.cli.doctor.findings import DoctorTarget

DOCTOR_FSYNC_ROUNDS: Final = 25
"""Rounds of the fsync measurement."""

PYTHON_MIN: Final = (3, 11)
SPARK_MIN: Final = (4, 2)
SPARK_BELOW: Final = (4, 4)
_NETWORK_FILE_SYSTEMS: Final = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "afs", "ceph"}
_INSTALL_SPARK: Final = "pip install 'fourfold[spark]'"


def python(_target: DoctorTarget) -> Iterator[Finding]:
    """Check the version of Python."""
    version = platform.python_version()
    facts = {"version": version, "executable": sys.executable}
    if sys.version_info < PYTHON_MIN:
        required = ".".join(map(str, PYTHON_MIN))
        yield Finding(
            "python",
            "fail",
            f"Python {version} is older than {required}",
            f"uv venv --python {required}",
            facts,
        )
    else:
        yield Finding("python", "ok", f"Python {version}", facts=facts)


def sqlite(_target: DoctorTarget) -> Iterator[Finding]:
    """Check the version of SQLite."""
    version = kernel.sqlite_version()
    facts = {"version": version}
    required = ".".join(map(str, kernel.SQLITE_VERSION_MIN))
    if numbers(version) < kernel.SQLITE_VERSION_MIN:
        yield Finding(
            "sqlite",
            "fail",
            f"SQLite {version} may corrupt a write-ahead log when two connections write or "
            f"checkpoint at the same time; fixed in {required}",
            "pip install --upgrade apsw",
            facts,
        )
    else:
        yield Finding("sqlite", "ok", f"SQLite {version}, from the apsw wheel", facts=facts)


def java(target: DoctorTarget) -> Iterator[Finding]:
    """Check for a version of Java that Spark runs on."""
    try:
        runtime = pipeline_java.find(target.environ)
    except MissingDependency as error:
        has_spark = installed("pyspark") is not None
        yield Finding("java", "fail" if has_spark else "skip", error.message, _INSTALL_SPARK)
        return
    facts = {"home": str(runtime.home), "version": runtime.version, "origin": runtime.origin}
    yield Finding(
        "java", "ok", f"Java {runtime.version} from {runtime.origin}: {runtime.why}", "", facts
    )


def spark(target: DoctorTarget) -> Iterator[Finding]:
    """Check the version of pyspark."""
    version = installed("pyspark")
    if version is None:
        yield Finding(
            "spark", "skip", "Spark is not installed; only the pipeline needs it", _INSTALL_SPARK
        )
        return
    facts: dict[str, object] = {"version": version}
    if not SPARK_MIN <= numbers(version) < SPARK_BELOW:
        yield Finding(
            "spark",
            "fail",
            f"pyspark {version} is not a version that the pipeline works with (4.2 or 4.3)",
            "pip install --upgrade 'fourfold[spark]'",
            facts,
        )
        return
    for package in ("pyarrow", "pandas"):
        if installed(package) is None:
            yield Finding(
                "spark", "fail", f"pyspark {version} needs {package}", _INSTALL_SPARK, facts
            )
            return
    if numbers(installed("pandas") or "") >= (3,):
        yield Finding(
            "spark",
            "warn",
            f"pyspark {version} does not fully support pandas {installed('pandas')}",
            "pip install 'pandas<3'",
            facts,
        )
    if not target.start_spark:
        yield Finding(
            "spark", "ok", f"pyspark {version} is installed; `--spark` starts it", "", facts
        )
        return
    yield _spark_runs(target, facts)


def server(_target: DoctorTarget) -> Iterator[Finding]:
    """Check the packages of the server."""
    version = installed("uvicorn")
    if version is None:
        yield Finding(
            "server",
            "skip",
            "uvicorn is not installed; only `fourfold serve` needs it",
            "pip install 'fourfold[server]'",
        )
        return
    reason = unsupported_reason()
    facts: dict[str, object] = {"uvicorn": version, "fast_front": reason is None}
    if reason is None:
        yield Finding("server", "ok", f"uvicorn {version}, with the fast front end", "", facts)
    else:
        yield Finding(
            "server",
            "warn",
            f"uvicorn {version} carries appends at half the speed: {reason}",
            "pip install --upgrade 'fourfold[server]'",
            facts,
        )


def _spark_runs(target: DoctorTarget, facts: dict[str, object]) -> Finding:
    try:
        report = self_test.run(target.environ)
    except FourfoldError as error:
        return Finding("spark", "fail", error.message, error.hint, facts)
    facts |= report
    if report["sql_ok"] and report["arrow_ok"]:
        message = f"Spark {report['spark']} on Java {report['java']} ran a SQL job and a Python job"
        return Finding("spark", "ok", message, "", facts)
    return Finding("spark", "fail", "Spark ran, and its jobs computed wrong sums", "", facts)


def disk(target: DoctorTarget) -> Iterator[Finding]:
    """Check the free space of the disk."""
    place = existing(target.root)
    free = shutil.disk_usage(place).free
    facts = {"path": str(place), "free_bytes": free}
    message = f"{size(free)} free at {place}"
    if free < limits.DISK_FAILED_BYTES:
        needed = size(limits.DISK_FAILED_BYTES)
        yield Finding("disk", "fail", f"{message}, less than {needed}", f"df -h {place}", facts)
    elif free < limits.DISK_DEGRADED_BYTES:
        needed = size(limits.DISK_DEGRADED_BYTES)
        yield Finding("disk", "warn", f"{message}, less than {needed}", f"df -h {place}", facts)
    else:
        yield Finding("disk", "ok", message, "", facts)


def file_system(target: DoctorTarget) -> Iterator[Finding]:
    """Check that the store is not on a network file system."""
    place = existing(target.root)
    kind = _mount_kind(place)
    facts = {"path": str(place), "type": kind}
    if kind in _NETWORK_FILE_SYSTEMS:
        yield Finding(
            "file system",
            "warn",
            f"{place} is on {kind}: SQLite's write-ahead log needs a disk of this machine",
            f"cp -a {place} /var/lib/",
            facts,
        )
    elif kind is None:
        yield Finding("file system", "skip", "the type of the file system is not known", "", facts)
    else:
        yield Finding("file system", "ok", f"{place} is on {kind}", "", facts)


def fsync(target: DoctorTarget) -> Iterator[Finding]:
    """Measure the cost of a durable commit on this volume; never fails."""
    place = existing(target.root)
    if not os.access(place, os.W_OK):
        place = Path(tempfile.gettempdir())
    times_ms = []
    # The file has no name on Linux, so nothing remains however this ends.
    with tempfile.TemporaryFile(dir=place, buffering=0) as file:
        for _ in range(DOCTOR_FSYNC_ROUNDS):
            file.write(b"\0" * 4096)
            started = time.perf_counter()
            os.fsync(file.fileno())
            times_ms.append((time.perf_counter() - started) * 1000)
    p50 = statistics.median(times_ms)
    facts = {"path": str(place), "p50_ms": round(p50, 3), "rounds": len(times_ms)}
    yield Finding("fsync", "ok", f"{p50:.2f} ms at the median, at {place}", "", facts)


def existing(root: Path | None) -> Path:
    """Return the root, or the nearest folder above it that exists."""
    place = Path.cwd() if root is None else root.absolute()
    while not place.is_dir():
        place = place.parent
    return place


def installed(package: str) -> str | None:
    """Return the version of a package, without importing it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def numbers(version: str) -> tuple[int, ...]:
    """Parse "3.54.1" as (3, 54, 1); a suffix like "rc1" ends the tuple."""
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in match.group().split(".")) if match else ()


def _mount_kind(place: Path) -> str | None:
    """Return the type of the file system of `place`, from the mounts that Linux lists."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    best: tuple[int, str | None] = (-1, None)
    for line in lines:
        left, _, right = line.partition(" - ")
        point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), left.split()[4])
        # A later mount on the same point hides the earlier one.
        if place.resolve().is_relative_to(point) and len(point) >= best[0]:
            best = (len(point), right.split()[0])
    return best[1]
