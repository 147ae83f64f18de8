"""Faults of a server process: a clock that is off, a disk that is full or fails."""

from __future__ import annotations

import mmap
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import Literal

SOURCE = Path(__file__).with_name("faults.c")
_LAYOUT = struct.Struct("=q4i")
_FIELDS = ("clock_ns", "store_full", "store_failing", "objects_failing", "hits")

Fault = Literal["store_full", "store_failing", "objects_failing"]


def build(folder: Path) -> Path:
    """Compile the library of the faults; return its file."""
    library = folder / "faults.so"
    command = ["cc", "-O2", "-Wall", "-Wno-nonnull-compare", "-shared", "-fPIC"]
    subprocess.run([*command, "-o", library, SOURCE, "-ldl"], check=True)
    return library


class Faults:
    """Faults of the processes that start with `environment`; all of them are off at first."""

    def __init__(self, library: Path, store: Path, objects: Path) -> None:
        with tempfile.NamedTemporaryFile(
            dir=library.parent, prefix="faults-", delete=False
        ) as file:
            file.write(bytes(_LAYOUT.size))
            file.flush()
            self._memory = mmap.mmap(file.fileno(), _LAYOUT.size)
            self._path = Path(file.name)
        self.environment = {
            "LD_PRELOAD": str(library),
            "PROCESS_FAULTS_FILE": str(self._path),
            "PROCESS_FAULTS_STORE": str(store.resolve()),
            "PROCESS_FAULTS_OBJECTS": str(objects.resolve()),
        }

    @property
    def hits(self) -> int:
        """Number of calls that failed."""
        return self._get()[-1]

    def start(self, fault: Fault) -> None:
        """Let calls fail from now on."""
        self._set(fault, 1)

    def stop(self, fault: Fault) -> None:
        """Let calls succeed again."""
        self._set(fault, 0)

    def step_clock(self, seconds: float) -> None:
        """Set the clock of the processes this far from the right time."""
        self._set("clock_ns", int(seconds * 1e9))

    def close(self) -> None:
        """Remove the file of the faults."""
        self._memory.close()
        self._path.unlink()

    def _get(self) -> tuple[int, ...]:
        values: tuple[int, ...] = _LAYOUT.unpack(self._memory[:])
        return values

    def _set(self, field: str, value: int) -> None:
        offset = 0 if field == "clock_ns" else 8 + 4 * (_FIELDS.index(field) - 1)
        code = "=q" if field == "clock_ns" else "=i"
        struct.pack_into(code, self._memory, offset, value)
