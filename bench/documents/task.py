"""What a child process is to do, and how a run is told from others."""

from __future__ import annotations

import msgspec


class Task(msgspec.Struct, frozen=True):
    """One run in a process of its own."""

    form: str
    history: str
    page_size: int
    database: str
    count: int
    rows: str = ""
    """For those that insert ready rows: the file that has them."""


class Run(msgspec.Struct, frozen=True):
    """A run that rounds repeat. Two lines that need the same run share it."""

    form: str
    history: str
    page_size: int
    count: int
    data: str = ""
    """The prepared file that it starts from."""

    @property
    def label(self) -> str:
        return f"{self.form} {self.history} {self.page_size} {self.data}".strip()

    @property
    def writes(self) -> bool:
        """Whether it starts from a fresh copy of its file."""
        return self.form in WRITING


LIMITED = ("set", "patch", "confirmed", "bulk-set", "bulk-patch")
"""Forms whose rows a limit inserts again."""
LIMITS = ("bare set", "bare patch", "bare confirmed", "kernel bulk-set", "kernel bulk-patch")
WRITING = frozenset({*LIMITED, *LIMITS, "threads", "uvloop", "asyncio", "chain commit"})
