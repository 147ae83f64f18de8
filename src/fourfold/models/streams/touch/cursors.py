"""Cursors of those who wait for changes: a stream, and up to where all of it was seen. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from fourfold.errors import InvalidInput

_CURSOR = re.compile(r"([0-9A-Za-z_-]{1,64}):(0|[1-9][0-9]{0,17})")


class Cursor(NamedTuple):
    """A place in a stream, which its incarnation tells from an earlier one of the same name."""

    incarnation: str
    offset: int

    def __str__(self) -> str:
        return f"{self.incarnation}:{self.offset}"


def read_cursor(text: object) -> Cursor:
    """A cursor that a caller has kept."""
    found = _CURSOR.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise InvalidInput(
            f"{text!r:.80} is not a cursor",
            hint="Use one that a wait gave you, or none to wait from now on.",
        )
    return Cursor(found[1], int(found[2]))
