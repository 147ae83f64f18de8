"""What the commands of the benchmarks share: what was asked for, where to print it, and the way of
figures into files and into docs/performance.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from rich.console import Console

from bench import tables
from bench.place import DOCUMENT, ROOT

T = TypeVar("T")


def console() -> Console:
    """A terminal as it is; anything else gets lines that are long enough."""
    found = Console()
    return found if found.is_terminal else Console(width=170)


def select_columns(only: str, known: Iterable[str]) -> set[str]:
    """The workloads that were asked for, as in `A,C`; all of them when none was."""
    names = {part.strip().upper() for part in only.split(",") if part.strip()}
    if unknown := names - set(known):
        raise click.BadParameter(f"no workload {', '.join(sorted(unknown))}", param_hint="--only")
    return names or set(known)


def save(result: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")


def load(path: Path, kind: type[T]) -> T:
    return msgspec.json.decode(path.read_bytes(), type=kind)


def document(name: str, path: Path, figures: str) -> str:
    """Put the figures of a result into the page; what to say of it."""
    try:
        tables.put_between_marks(DOCUMENT, name, figures)
    except tables.MarksMissing as error:
        raise click.ClickException(str(error)) from error
    return f"{DOCUMENT.relative_to(ROOT)} now shows {path.name}"
