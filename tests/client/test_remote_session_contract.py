"""The contract of session stores, on a server."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from served_streams import Served

import fourfold
from fourfold.testing.session_contract import SessionContract

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "client.md"
LEFT_OUT = {
    "all_events_since": (
        *("test_deleted_session_id_cannot_be_reused", "test_readers_own_what_they_receive"),
        "test_all_sessions_share_one_order",
    ),
    "verify": (
        *("test_append_returns_what_the_log_holds", "test_threads_and_coroutines_get_dense_ids"),
        "test_head_and_its_events_are_one_transaction",
    ),
    "gc": (
        "test_gc_removes_only_unreachable_payloads",
        "test_gc_removes_payloads_of_deleted_sessions",
        "test_lineage_stops_at_a_deleted_session",
    ),
    "verify_no_dangling_refs": ("test_dangling_reference_is_refused",),
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
    @pytest.fixture
    def sessions(self, tmp_path):
        server = Served(tmp_path / "store")
        store = fourfold.connect(f"http://127.0.0.1:{server.port}")
        yield store.sessions
        store.close()
        server.kill()

    def again(self, sessions):
        return sessions


for names in LEFT_OUT.values():
    for name in names:
        setattr(TestRemoteSessions, name, None)


def test_calls_that_clients_lack_are_documented():
    rows = re.findall(r"(?m)^\| sessions \| (`[^|]*`) \|", PAGE.read_text("utf-8"))
    assert set(LEFT_OUT) <= {call for row in rows for call in re.findall(r"`(\w+)`", row)}
    tests = [name for names in LEFT_OUT.values() for name in names]
    assert all(callable(getattr(SessionContract, name)) for name in tests)
