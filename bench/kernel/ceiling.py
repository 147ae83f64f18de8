"""The C program: found a SQLite to build it with, built, and run.

The newest SQLite that can be had, in this order: the amalgamation in the folder that
FOURFOLD_BENCH_SQLITE names; the one inside the npm package better-sqlite3, fetched with `npm pack`;
the library of the system. It is compiled with the options of the SQLite inside apsw, so that the
two differ in their caller and, if at all, in their version, which the results state.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

import apsw
import msgspec

from bench.measurement import Measurement

SOURCE = Path(__file__).with_name("ceiling.c")
ENVIRONMENT = "FOURFOLD_BENCH_SQLITE"
_PACKAGE = "better-sqlite3"
_NPM_TIMEOUT_S = 120
_MATTERS = ("ENABLE_", "OMIT_", "THREADSAFE", "TEMP_STORE", "LIKE_", "STRICT_", "MAX_ATTACHED")


class CompileError(Exception):
    """There is a C compiler, but it could not build the ceiling."""


class Version(msgspec.Struct, frozen=True):
    """What the C program says of the SQLite that it was built with."""

    sqlite: str
    options: list[str]

    @property
    def has_carray(self) -> bool:
        return "ENABLE_CARRAY" in self.options


@dataclass(frozen=True, slots=True)
class Ceiling:
    """A built C program."""

    program: Path
    origin: str
    compiler: str
    version: Version

    def run(self, mode: str, arguments: list[str]) -> Measurement:
        return msgspec.json.decode(_output([str(self.program), mode, *arguments]), type=Measurement)


def build(folder: Path) -> Ceiling | None:
    """The C program, built in `folder` if it is not there yet; None without a C compiler."""
    compiler = shutil.which(os.environ.get("CC") or "cc") or shutil.which("gcc")
    if compiler is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    amalgamation, origin = _find_amalgamation(folder)
    flags = ["-O2", *_options(amalgamation)]
    command = [compiler, *flags, str(SOURCE)]
    if amalgamation is None:
        command += ["-lsqlite3"]
    else:
        command += ["-I", str(amalgamation), str(amalgamation / "sqlite3.c"), "-lm"]
    command += ["-lpthread", "-ldl"]
    program = folder / f"ceiling-{_fingerprint(command, amalgamation)}"
    if not program.exists():
        _compile([*command, "-o", str(program)])
    version = msgspec.json.decode(_output([str(program), "version"]), type=Version)
    about = _output([compiler, "--version"]).splitlines()[0]
    return Ceiling(program, origin, f"{about} -O2", version)


def _find_amalgamation(folder: Path) -> tuple[Path | None, str]:
    given = os.environ.get(ENVIRONMENT)
    if given:
        if not (Path(given) / "sqlite3.c").is_file():
            raise CompileError(f"{ENVIRONMENT}={given} does not hold sqlite3.c and sqlite3.h")
        return Path(given), f"amalgamation given by {ENVIRONMENT}"
    fetched = _from_npm(folder / _PACKAGE)
    if fetched is not None:
        return fetched, f"amalgamation of the npm package {_PACKAGE}"
    return None, "library of the system"


def _from_npm(folder: Path) -> Path | None:
    """The amalgamation out of the package's archive; nothing of the package is installed or run."""
    amalgamation = folder / "package" / "deps" / "sqlite3"
    if (amalgamation / "sqlite3.c").is_file():
        return amalgamation
    npm = shutil.which("npm")
    if npm is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(
            [npm, "pack", "--silent", _PACKAGE],
            cwd=folder,
            check=True,
            capture_output=True,
            timeout=_NPM_TIMEOUT_S,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return None
    for archive in folder.glob("*.tgz"):
        with tarfile.open(archive) as tar:
            wanted = [m for m in tar.getmembers() if m.name.startswith("package/deps/sqlite3/")]
            tar.extractall(folder, members=wanted, filter="data")
    return amalgamation if (amalgamation / "sqlite3.c").is_file() else None


def _options(amalgamation: Path | None) -> list[str]:
    """apsw's own compile-time options, as far as they can change speed or features."""
    if amalgamation is None:
        return []
    text = (amalgamation / "sqlite3.c").read_text(encoding="utf-8", errors="replace")
    chosen = [option for option in apsw.compile_options if option.startswith(_MATTERS)]
    return [f"-DSQLITE_{o}" for o in chosen if f"SQLITE_{o.partition('=')[0]}" in text]


def _fingerprint(command: list[str], amalgamation: Path | None) -> str:
    digest = hashlib.sha256("\0".join(command).encode())
    digest.update(SOURCE.read_bytes())
    if amalgamation is not None:
        digest.update((amalgamation / "sqlite3.c").read_bytes())
    return digest.hexdigest()[:16]


def _compile(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompileError(f"{command[0]} failed:\n{done.stderr.strip()[-2000:]}")


def _output(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} {command[1]}: {done.stderr.strip()}")
    return done.stdout
