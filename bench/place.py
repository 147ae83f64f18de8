"""Where benchmarks work, where their results go, and that only one runs at a time."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "bench" / ".build"
RESULTS = ROOT / "bench" / "results"
DOCUMENT = ROOT / "docs" / "performance.md"


@contextmanager
def alone() -> Iterator[None]:
    """Two benchmarks at once would measure each other."""
    BUILD.mkdir(exist_ok=True)
    with (BUILD / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise click.ClickException("another benchmark is running here; wait for it") from None
        yield


def newest_result(name: str) -> Path:
    """The newest result of the benchmark `name`: its file carries the date."""
    # Not those of a part, such as `streams-rules`.
    found = max(RESULTS.glob(f"{name}-[0-9]*.json"), default=None)
    if found is None:
        raise click.ClickException(f"bench/results holds no result of {name} yet: run it first")
    return found
