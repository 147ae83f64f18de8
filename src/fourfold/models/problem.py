"""Problems that `verify()` reports, for every model and for a whole store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """A violated rule: what is wrong, and where. `str(problem)` is the message."""

    message: str
    table: str = ""
    """Table of the wrong row, or the part of the file: "pages", "schema"; "" if it is unknown."""
    key: dict[str, Any] = {}
    """Primary key of the wrong row."""
    expected: str | None = None
    found: str | None = None
    file: str = ""
    """Path in the store, where several files are checked."""

    def __str__(self) -> str:
        return self.message


def to_problems(messages: Iterable[str]) -> list[Problem]:
    """Return a problem for each message."""
    return [Problem(message) for message in messages]
