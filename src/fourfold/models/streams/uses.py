"""Uses of streams with a time to live, until they are written down.

A read moves the end of its stream on. Writing that down with every read would make a commit of it;
so it is kept in memory, counts from then on for everybody in this process, and is written down now
and then. What is not written down yet is never forgotten, also when writing fails: a stream that is
in use never looks as if its time were over.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from fourfold.kernel import Database
from fourfold.models.streams.writer import SQL


class Uses:
    """When the streams end that were used lately, by sid."""

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}
        self._change = threading.Lock()

    @property
    def ends(self) -> Mapping[int, int]:
        return self._ends

    def note(self, sid: int, end_ms: int) -> None:
        with self._change:
            self._ends[sid] = end_ms

    def write_down(self, database: Database) -> None:
        with self._change:
            noted = list(self._ends.items())
        if not noted:
            return
        database.transact(lambda txn: txn.execute_many(SQL.touch, noted))
        with self._change:
            for sid, end in noted:
                # One that was used again meanwhile is written down the next time.
                if self._ends.get(sid) == end:
                    del self._ends[sid]
