"""Verification in steps: short read transactions, and no false problem beside writers."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

import fourfold
from fourfold.models.sessions import Payload, sqlite_log, verify
from fourfold.models.sessions.log import OWNED
from fourfold.testing.session_log_contract import edge, message

EVENTS = 600
NOTES = [{"type": "app/note", "n": number} for number in range(EVENTS)]


@pytest.fixture
def sessions(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        store.sessions.create_session({"id": "long"})
        store.sessions.append_events("long", NOTES)
        yield store.sessions


class Steps:
    """The read transactions of verification, and what happens between them."""

    def __init__(self, sessions, monkeypatch):
        self.rows = []
        """Rows of each transaction."""
        self.between = lambda: None
        self._open = sessions.log.database.read_step
        monkeypatch.setattr(sessions.log.database, "read_step", self._step)

    @contextmanager
    def _step(self):
        self.between()
        with self._open() as snapshot:
            self.rows.append(0)
            read = snapshot.rows

            def rows(sql, params=()):
                for row in read(sql, params):
                    self.rows[-1] += 1
                    yield row

            yield Snapshot(snapshot, rows)


class Snapshot:
    def __init__(self, snapshot, rows):
        self._snapshot = snapshot
        self.rows = rows

    def __getattr__(self, name):
        return getattr(self._snapshot, name)


@pytest.fixture
def steps(sessions, monkeypatch):
    return Steps(sessions, monkeypatch)


def test_verify_reads_few_rows_in_one_transaction(sessions, steps):
    assert sessions.verify() == []
    rows_max = verify.VERIFY_STEP_BYTES // verify.VERIFY_ROW_BYTES + 1
    # Besides events, the next snapshot and the row of the session.
    assert max(steps.rows) <= rows_max + 3
    assert len(steps.rows) >= EVENTS // rows_max


def test_verify_of_twice_the_events_reads_twice_the_rows(sessions, steps):
    sessions.verify()
    once, steps.rows = sum(steps.rows), []
    sessions.append_events("long", NOTES)
    assert sessions.verify() == []
    assert sum(steps.rows) <= 2.1 * once


def test_verify_opens_no_long_read_transaction(sessions, monkeypatch):
    monkeypatch.setattr(sessions.log.database, "read_in_background", None)
    assert sessions.verify() == []


def test_verify_shares_a_transaction_among_small_sessions(sessions, steps):
    for number in range(60):
        sessions.create_session({"id": f"small-{number}"})
    assert sessions.verify() == []
    assert len(steps.rows) < 60


def test_verify_ends_and_finds_nothing_while_others_write(sessions, steps, monkeypatch):
    monkeypatch.setattr(verify, "VERIFY_STEP_BYTES", 4_096)
    written = []

    def write():
        number = len(written)
        written.append(number)
        inner = sessions.intern_payload(f"{number} " * 400)
        sessions.append_event("long", message(Payload([inner, "x" * 600])))
        head = sessions.publish_head("long", {"vars_ref": Payload([f"{number}" * 600], "vars")})
        sessions.append_lineage_edge("long", edge("long", "far", from_head=head.id))
        sessions.create_session({"id": f"new-{number}"})

    steps.between = write
    assert sessions.verify() == []
    assert len(written) > 50
    steps.between = lambda: None
    assert sessions.verify() == []


@pytest.mark.parametrize("at_step", [0, 5, 40, 90])
def test_verify_finds_nothing_when_a_session_is_purged_meanwhile(
    sessions, steps, monkeypatch, at_step
):
    monkeypatch.setattr(verify, "VERIFY_STEP_BYTES", 4_096)
    sessions.append_events("long", [message(Payload("x" * 600))])
    for _ in range(3):
        sessions.publish_head("long", {})
    sessions.delete_session("long")
    counted = []

    def purge():
        counted.append(1)
        if len(counted) == at_step + 1:
            sessions.gc(0)

    steps.between = purge
    assert sessions.verify() == []
    assert len(counted) > at_step


@pytest.mark.parametrize("what", OWNED)
def test_owners_of_rows_are_searched_in_an_index(sessions, what):
    with sessions.log.database.read() as snapshot:
        plan = snapshot.all(f"EXPLAIN QUERY PLAN {sqlite_log._OWNERS[what][0]}", (0, 9))
    scans = [row[-1] for row in plan if "SCAN" in row[-1]]
    assert all("owners" in line or "CONSTANT ROW" in line for line in scans), plan
