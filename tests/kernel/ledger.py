"""The small database that the kernel's tests write to: numbered entries, and nothing else.

It also has what tests of threads need: to wait for a state, and to hold the writer's turn while
others wait in the queue.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from contextlib import contextmanager

import apsw

from fourfold.kernel import Database, Migration, Sequence, profiles

ENTRY = Sequence.named("entry", used="SELECT max(seq) FROM entry")
SCHEMA = Migration(1, "entry", "CREATE TABLE entry (seq INTEGER PRIMARY KEY, body)")

QUICK = profiles.PLAIN.with_(synchronous="OFF", busy_timeout_ms=20)
"""For claims that do not depend on what reaches the disk."""

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
"""A statement that only a deadline ends."""


def open_ledger(path, **changes):
    settings = {"profile": QUICK, "migrations": [SCHEMA], "sequences": [ENTRY], **changes}
    return Database.open(path, **settings)


def put(body):
    """Work that claims a number and writes one entry under it; the number is its result."""

    def work(txn):
        seq = txn.claim(ENTRY)
        txn.execute("INSERT INTO entry VALUES (?, ?)", (seq, body))
        return seq

    return work


def write_then_fail(txn):
    put("spoilt")(txn)
    raise ZeroDivisionError


def entries(db):
    with db.read() as snapshot:
        return snapshot.all("SELECT seq, body FROM entry ORDER BY seq")


def bodies(db):
    return [body for _, body in entries(db)]


def assert_dense(db, count=None):
    """The numbers are 1, 2, 3 ... without a hole, and the counter stands at the last of them."""
    found = [seq for seq, _ in entries(db)]
    assert found == list(range(1, len(found) + 1))
    assert db.sequence(ENTRY) == len(found)
    if count is not None:
        assert len(found) == count


def wait_until(holds, *, seconds=60.0):
    """Return as soon as `holds()` is true. The limit is only there to end a test that hangs."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.001)


def queued(db, count):
    """Return as soon as `count` requests wait for a commit."""
    wait_until(lambda: db.metrics().queued_requests == count)


@contextmanager
def turn_held(db, body=None):
    """Another thread is in the middle of a write for as long as the block lasts."""
    entered, leave = threading.Event(), threading.Event()

    def hold():
        with db.write() as txn:
            if body is not None:
                put(body)(txn)
            entered.set()
            assert leave.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert entered.wait(60)
        yield
    finally:
        leave.set()
        thread.join()


class Caller(threading.Thread):
    """A thread that makes one call and keeps its result or its error."""

    def __init__(self, call, *arguments, **options):
        super().__init__(daemon=True)
        self._call = lambda: call(*arguments, **options)
        self.result = None
        self.error = None
        self.start()

    def run(self):
        try:
            self.result = self._call()
        except BaseException as error:  # noqa: BLE001  (whatever it is, the test wants it)
            self.error = error

    def outcome(self):
        self.join(60)
        assert not self.is_alive(), "the call hangs"
        if self.error is not None:
            raise self.error
        return self.result


def transact_in_loop(db, work, **options):
    """One `transact_async`, in an event loop that lives just for it."""

    async def call():
        return await db.transact_async(work, **options)

    return asyncio.run(call())


async def gathered(db, works, deadlines=()):
    """Let coroutines submit all `works` at once; the outcome of each. `deadlines` are pairs of a
    position and seconds.
    """
    given = dict(deadlines)
    calls = [
        db.transact_async(work, deadline_s=given.get(index)) for index, work in enumerate(works)
    ]
    return await asyncio.gather(*calls, return_exceptions=True)


def in_loop(coroutine_function, *arguments):
    """Run a coroutine in an event loop of its own thread; a Caller."""
    return Caller(lambda: asyncio.run(coroutine_function(*arguments)))


def content(path):
    """A hash over the schema and every row of every table of a closed database."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        digest = hashlib.sha256()
        schema = connection.execute("SELECT * FROM sqlite_schema ORDER BY type, name").fetchall()
        digest.update(repr(schema).encode())
        for kind, name, *_ in schema:
            if kind == "table":
                rows = connection.execute(f'SELECT * FROM "{name}"').fetchall()
                digest.update(repr((name, sorted(map(repr, rows)))).encode())
        return digest.hexdigest()
    finally:
        connection.close()


def edit(path, *statements):
    """Change a database without Fourfold."""
    connection = apsw.Connection(str(path))
    try:
        for sql in statements:
            connection.execute(sql)
    finally:
        connection.close()
