"""What a child process that runs the kernel is to do."""

from __future__ import annotations

import msgspec


class Task(msgspec.Struct, frozen=True):
    """One run of one form."""

    form: str
    database: str
    data: str
    count: int
    batch: int
    callers: int
