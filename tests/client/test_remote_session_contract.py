"""The contract of session stores, on a server."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path

import pytest
from served_streams import Served

import fourfold
from fourfold.testing.session_contract import WAIT_S, SessionContract

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "client.md"
LEFT_OUT = {
    "subscribe": (
        "test_unknown_session_raises_not_found",
        "test_listeners_own_the_transient_items_they_receive",
        "test_subscriber_receives_every_event_once_in_order",
        "test_late_or_slow_subscriber_misses_nothing",
        "test_transient_items_arrive_in_order_and_are_not_stored",
        "test_dropped_transients_leave_a_gap_but_lose_no_event",
        "test_subscriber_cannot_append_and_fails_alone",
    ),
}
"""Tests of calls that clients do not have, by the call; the page of the client has the reasons."""


class TestRemoteSessions(SessionContract):
    """The contract, with what a server does by itself done in its folder."""

    @pytest.fixture
    def sessions(self, tmp_path):
        self.server = Served(tmp_path / "store")
        store = fourfold.connect(f"http://127.0.0.1:{self.server.port}")
        yield store.sessions
        store.close()
        self.server.kill()

    def again(self, sessions):
        self.server.stop()
        self.server.start()
        return sessions

    def read(self, work):
        with fourfold.open(self.server.root, mode="r") as store:
            return work(store.sessions)

    def verify(self, sessions):
        return self.read(lambda local: local.verify())

    def dangling(self, sessions, sid=None):
        return self.read(lambda local: local.verify_no_dangling_refs(sid))

    def gc(self, sessions, grace_s=None):
        reports = []
        self.server.stop_and(
            lambda store: reports.append(
                super(TestRemoteSessions, self).gc(store.sessions, grace_s)
            )
        )
        return reports[0]

    def all_events(self, sessions, after=0, limit=None):
        count = self.read(lambda local: len(local.all_events_since(after, limit=limit)))
        with sessions.follow_all(after=after, timeout=WAIT_S) as feed:
            return [*islice(feed, count)]

    def position(self, sessions):
        return self.read(lambda local: local.position())


for names in LEFT_OUT.values():
    for name in names:
        setattr(TestRemoteSessions, name, None)


def test_calls_that_clients_lack_are_documented():
    rows = re.findall(r"(?m)^\| sessions \| (`[^|]*`) \|", PAGE.read_text("utf-8"))
    assert set(LEFT_OUT) <= {call for row in rows for call in re.findall(r"`(\w+)`", row)}
    tests = [name for names in LEFT_OUT.values() for name in names]
    assert all(callable(getattr(SessionContract, name)) for name in tests)
