"""What a call made SQLite do, counted in steps of its virtual machine: never in time."""

from __future__ import annotations

from contextlib import contextmanager

import apsw

from fourfold.kernel.transaction import ReadTransaction


class Steps:
    """The steps of every statement so far."""

    def __init__(self):
        self.total = 0
        self.statements = 0

    def __call__(self, event):
        self.total += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]
        self.statements += 1


@contextmanager
def steps():
    """Count what all snapshots and transactions run that begin meanwhile."""
    counted, connections, begin = Steps(), {}, ReadTransaction.__init__

    def begin_counted(self, connection, subject):
        begin(self, connection, subject)
        connections[id(connection)] = connection
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, counted, id=counted)

    ReadTransaction.__init__ = begin_counted
    try:
        yield counted
    finally:
        ReadTransaction.__init__ = begin
        for connection in connections.values():
            connection.trace_v2(0, None, id=counted)
