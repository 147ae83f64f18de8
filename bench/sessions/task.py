"""What a child process is to do, and what it reports."""

from __future__ import annotations

import msgspec


class Run(msgspec.Struct, frozen=True):
    """A run that rounds repeat: its form, how much of it, and how large an event is."""

    form: str
    count: int
    size: int = 200
    data: str = ""
    """The prepared store that it reads."""

    @property
    def label(self) -> str:
        return f"{self.form} {self.count:,} of {self.size} B"


class Task(msgspec.Struct, frozen=True):
    """One run in a process of its own."""

    run: Run
    folder: str


class Found(msgspec.Struct, frozen=True):
    """What a run found: figures by name. `rate` is operations a second, `us` one operation."""

    figures: dict[str, float]
    cpu_seconds: float
    note: str = ""
    """Why nothing was measured, if nothing was."""
