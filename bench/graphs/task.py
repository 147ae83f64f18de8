"""What a child process is to do, and how a run is told from others."""

from __future__ import annotations

import msgspec


class Task(msgspec.Struct, frozen=True):
    """One run in a process of its own."""

    form: str
    database: str
    count: int
    rows: str = ""
    """For those that insert ready rows: the file that has them."""


class Run(msgspec.Struct, frozen=True):
    """A run that rounds repeat. Two lines that need the same run share it."""

    form: str
    count: int
    data: str
    """The prepared file that it starts from."""
    in_place: bool = False
    """Whether it adds to that file itself, because a copy would take longer than the run."""

    @property
    def label(self) -> str:
        return f"{self.form} {self.data}"

    @property
    def side(self) -> str:
        """Who does it: Fourfold, the kernel alone, a bare loop, or the peer."""
        first = self.form.split()[0]
        return first if first in {"kernel", "bare", "peer"} else "fourfold"

    @property
    def is_limit(self) -> bool:
        """Whether it inserts rows that Fourfold has left."""
        return self.side == "kernel"

    @property
    def what(self) -> str:
        """The work, whoever does it."""
        return self.form.removeprefix("kernel ")

    @property
    def writes(self) -> bool:
        words = self.form.split()
        return bool({"insert", "envelope"} & set(words)) and not self.in_place
