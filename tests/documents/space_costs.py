"""What SQLite had to do: counted in steps of its virtual machine, never in time."""

from __future__ import annotations

import time
from contextlib import contextmanager

import apsw

from fourfold.kernel.transaction import ReadTransaction

_STEPS = "SQLITE_STMTSTATUS_VM_STEP"


class Cost:
    """Steps and statements, until now."""

    def __init__(self):
        self.steps = 0
        self.statements = []

    def note(self, event):
        self.steps += event["stmt_status"][_STEPS]
        self.statements.append(event["sql"])


@contextmanager
def counted():
    """The cost of everything that any snapshot or transaction runs meanwhile."""
    cost = Cost()
    original = ReadTransaction.__init__
    watched = {}

    def begin(self, connection, subject):
        original(self, connection, subject)
        watched[id(connection)] = connection
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, cost.note, id=cost)

    ReadTransaction.__init__ = begin
    try:
        yield cost
    finally:
        ReadTransaction.__init__ = original
        for connection in watched.values():
            _unwatch(connection, cost)


def _unwatch(connection, cost):
    while True:
        try:
            connection.trace_v2(0, None, id=cost)
        except apsw.ThreadingViolationError:
            # A checkpoint in the background has the connection for a moment.
            time.sleep(0.001)
        else:
            return
