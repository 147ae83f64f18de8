"""One who waits: for which keys, from where on, for how long, and what became of it."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import NamedTuple

from fourfold import limits
from fourfold.errors import InvalidInput
from fourfold.models.streams import names
from fourfold.models.streams.touch import keys as waited_keys
from fourfold.models.streams.touch.changes import Mark
from fourfold.models.streams.touch.cursors import Cursor, read_cursor
from fourfold.models.streams.touch.records import Key, Touched


class Looked(NamedTuple):
    """What a look at a stream has shown."""

    keys: tuple[int, ...]
    stale: bool
    cursor: Cursor
    """Up to where it has seen everything."""
    end: int
    """Where the stream ended."""
    sid: int
    marks: tuple[tuple[Mark, ...], ...]


class Wait:
    """One wait. It goes on from where the last look ended."""

    def __init__(
        self, name: str, cursor: str | None, keys: Sequence[Key], timeout_s: float
    ) -> None:
        self.name = names.check_name(name)
        self.keys = waited_keys.check(keys)
        self.template_ids = waited_keys.template_ids(self.keys)
        self.at = None if cursor is None else read_cursor(cursor)
        """None is the end of the stream, wherever that is when it is first looked at."""
        if not isinstance(timeout_s, int | float) or math.isnan(timeout_s) or timeout_s < 0:
            raise InvalidInput(f"a wait takes a number of seconds from 0 on, not {timeout_s!r:.80}")
        self._until = time.monotonic() + timeout_s
        self._first_end: int | None = None
        self.last: Looked | None = None

    def after(self, looked: Looked, *, stopping: bool = False) -> Touched | None:
        """What to answer after a look; None when the wait goes on. Also a wait whose time is over
        has seen all that was there when it began.
        """
        self.last, self.at = looked, looked.cursor
        if self._first_end is None:
            self._first_end = looked.end
        over = self._left_s() <= 0 and looked.cursor.offset >= self._first_end
        if not (looked.keys or looked.stale or over or stopping):
            return None
        touched = bool(looked.keys) or looked.stale
        return Touched(touched, looked.stale, str(looked.cursor), looked.keys)

    def untouched_below(self, offset: int) -> None:
        """Nothing below an offset has touched it: it need not be looked at again."""
        if self.last is not None and self.at is not None and offset > self.at.offset:
            self.at = self.at._replace(offset=offset)
            self.last = self.last._replace(cursor=self.at)

    @property
    def pause_s(self) -> float:
        """How long there is nothing to do until somebody rings."""
        if self.last is not None and self.last.cursor.offset < self.last.end:
            return 0.0
        return max(0.0, min(self._left_s(), limits.WATCH_HEARTBEAT_S))

    def _left_s(self) -> float:
        return self._until - time.monotonic()
