"""Facts about the machine that a figure means nothing without, and who else was using it."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Self

import apsw
import msgspec

from bench.measurement import quantile
from fourfold._version import __version__

_TICKS = os.sysconf("SC_CLK_TCK")
_IDLE_FIELDS = (3, 4)
"""Idle and waiting for input or output, in the first line of /proc/stat."""
_GUEST_FIELDS = 8
"""Fields from here on are counted in `user` and `nice` already."""


class Machine(msgspec.Struct, frozen=True):
    cpu: str
    cores: int
    memory_gib: float
    governor: str
    kernel: str
    system: str
    filesystem: str
    sync_p50_us: float
    """A 4 KiB append to a growing file, and fdatasync."""
    sync_p99_us: float
    python: str
    fourfold: str
    commit: str
    apsw: str
    apsw_sqlite: str
    uvloop: str


def describe(folder: Path) -> Machine:
    """The machine, with the disk of `folder`."""
    p50, p99 = sync_cost_us(folder)
    return Machine(
        cpu=_field("/proc/cpuinfo", "model name") or platform.processor() or "unknown",
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else _cpus(),
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        governor=_text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or "not visible",
        kernel=f"{platform.system()} {platform.release()}",
        system=_field("/etc/os-release", "PRETTY_NAME") or platform.platform(),
        filesystem=_filesystem(folder),
        sync_p50_us=p50,
        sync_p99_us=p99,
        python=f"{platform.python_implementation()} {platform.python_version()}",
        fourfold=__version__,
        commit=_commit(),
        apsw=apsw.apsw_version(),
        apsw_sqlite=apsw.sqlite_lib_version(),
        uvloop=uvloop_version() or "not installed",
    )


def uvloop_version() -> str | None:
    try:
        return metadata.version("uvloop")
    except metadata.PackageNotFoundError:
        return None


def sync_cost_us(folder: Path, rounds: int = 400) -> tuple[float, float]:
    """What the disk asks for one durable append: median and 99th percentile."""
    path = folder / "sync-cost"
    block = os.urandom(4096)
    taken = []
    flush = getattr(os, "fdatasync", os.fsync)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    try:
        for _ in range(rounds):
            before = time.perf_counter()
            os.write(fd, block)
            flush(fd)
            taken.append(time.perf_counter() - before)
    finally:
        os.close(fd)
        path.unlink()
    taken.sort()
    return round(quantile(taken, 0.5) * 1e6, 1), round(quantile(taken, 0.99) * 1e6, 1)


class ForeignLoad:
    """The share of the machine's processor time that others used while the block ran.

    Others are all but this process and the children that it has waited for. Kernel threads that
    write our pages back count as others too, and so does time that a host took away.
    """

    def __init__(self) -> None:
        self.share: float | None = None
        """From 0 to 1; None where the system does not say."""

    def __enter__(self) -> Self:
        self._busy, self._all = _processor_seconds()
        self._ours = _own_seconds()
        return self

    def __exit__(self, *_: object) -> None:
        busy, total = _processor_seconds()
        passed = total - self._all
        if passed <= 0:
            return
        foreign = (busy - self._busy) - (_own_seconds() - self._ours)
        self.share = max(0.0, foreign / passed)


def _processor_seconds() -> tuple[float, float]:
    """Busy and total seconds of all processors together since the machine started."""
    line = _text("/proc/stat").partition("\n")[0]
    ticks = [int(part) for part in line.split()[1:]][:_GUEST_FIELDS]
    idle = sum(ticks[i] for i in _IDLE_FIELDS if i < len(ticks))
    return (sum(ticks) - idle) / _TICKS, sum(ticks) / _TICKS


def _own_seconds() -> float:
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        total += usage.ru_utime + usage.ru_stime
    return total


def _cpus() -> int:
    return os.cpu_count() or 1


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _field(path: str, name: str) -> str:
    for line in _text(path).splitlines():
        key, _, value = line.replace("=", ":", 1).partition(":")
        if key.strip() == name:
            return value.strip().strip('"')
    return ""


def _filesystem(folder: Path) -> str:
    best, kind = "", "unknown"
    for line in _text("/proc/mounts").splitlines():
        _, mount, found, *_ = line.split()
        if folder.resolve().is_relative_to(mount) and len(mount) >= len(best):
            best, kind = mount, found
    return kind


def _commit() -> str:
    """The commit that was measured, marked when files differ from it; empty without git."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ":/src", ":/bench")
        return git("rev-parse", "HEAD") + (" with changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return ""


def interpreter() -> str:
    return sys.executable
