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
    """When streams with a time to live were used last, by sid. Their ends follow from that and from
    the time to live that they have by then.
    """

    def __init__(self) -> None:
        self._times: dict[int, int] = {}
        self._change = threading.Lock()

    @property
    def times(self) -> Mapping[int, int]:
        return self._times

    def note(self, sid: int, now_ms: int) -> None:
        with self._change:
            self._times[sid] = now_ms

    def write_down(self, database: Database) -> None:
        with self._change:
            noted = list(self._times.items())
        if not noted:
            return
        database.transact(lambda txn: txn.execute_many(SQL.touch, noted))
        with self._change:
            for sid, used_ms in noted:
                # One that was used again meanwhile is written down the next time.
                if self._times.get(sid) == used_ms:
                    del self._times[sid]
