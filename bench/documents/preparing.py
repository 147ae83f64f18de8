"""The files that runs start from, made once. `python -m bench.documents.preparing` makes one chain
in a process of its own, because its policy of snapshots is for that process alone.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from bench.documents import spaces
from bench.documents.lines import Counts
from bench.documents.task import Run
from bench.machine import interpreter

Progress = Callable[[str], None]


def file_of(folder: Path, history: str, page_size: int, data: str) -> Path:
    return folder / f"{data}-{history}-{page_size}.sqlite"


def prepare(folder: Path, counts: Counts, runs: Iterable[Run], progress: Progress) -> None:
    """Every file that one of the runs asks for."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted: dict[tuple[str, int], set[str]] = {}
    for run in runs:
        wanted.setdefault((run.history, run.page_size), set()).add(run.data)
    for (history, page_size), names in sorted(wanted.items()):
        for name in sorted(names, key=_in_order):
            progress(f"preparing {name} {history} {page_size}")
            _make(folder, counts, history, page_size, name)


def _in_order(name: str) -> tuple[str, int]:
    """Chains grow, each from the one before; pairs come from the entities."""
    kind, _, size = name.partition("-")
    return kind, int(size) if size.isdigit() else 0


def _make(folder: Path, counts: Counts, history: str, page_size: int, name: str) -> None:
    path = file_of(folder, history, page_size, name)
    if name == "written":
        spaces.make_written(path, history, page_size)
    elif name == "many":
        spaces.make_many(path, history, page_size, counts.entities)
    elif name == "pairs":
        source = file_of(folder, history, page_size, "many")
        spaces.make_key_values(path, source, history, page_size, counts.entities)
    elif name.startswith("chain-"):
        size = int(name.partition("-")[2])
        shorter = [n for n in counts.sizes if n < size]
        if shorter:
            shutil.copyfile(file_of(folder, history, page_size, f"chain-{shorter[-1]}"), path)
        spaces.lengthen(path, history, page_size, size)
    else:
        _, filler, policy = name.split("-", 2) if name != "past" else ("", "200", "by-weight")
        words = [str(path), history, str(page_size), str(counts.past_commits), filler, policy]
        command = [interpreter(), "-m", "bench.documents.preparing", *words]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    target, kind, page, upto, filling, snapshots = sys.argv[1:]
    if snapshots == "every-ten":
        spaces.snapshot_every_ten()
    spaces.lengthen(Path(target), kind, int(page), int(upto), int(filling))
