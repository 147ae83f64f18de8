"""Both stores under the one contract, and equal to each other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import fourfold
from fourfold.models.sessions import Payload, Sessions
from fourfold.testing.session_contract import SessionContract
from fourfold.testing.session_log_contract import SCRIPT, edge, message


class TestMemorySessions(SessionContract):
    @pytest.fixture
    def sessions(self):
        made = Sessions()
        yield made
        made.close()


class TestStoreSessions(SessionContract):
    @pytest.fixture
    def sessions(self, tmp_path):
        self.store = fourfold.open(tmp_path / "store")
        yield self.store.sessions
        self.store.close()

    def again(self, sessions):
        self.store.close()
        self.store = fourfold.open(self.store.root)
        return self.store.sessions


def test_the_same_script_gives_the_same_heads_in_every_store(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        found = []
        for log in (None, store.sessions.log):
            moments = iter(
                datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=n) for n in range(99)
            )
            sessions = Sessions(log, clock=lambda moments=moments: next(moments))
            sessions.create_session({"id": "s"})
            sessions.append_events("s", SCRIPT)
            sessions.append_event("s", message(Payload("x" * 1000)))
            head = sessions.publish_head("s", {"turn_id": 1})
            sessions.append_lineage_edge("s", edge("s", "t"))
            last = sessions.publish_head("s", expected_basis=head.id)
            found.append((head, last, sessions.events_since("s", 0), sessions.position()))
        assert found[0] == found[1]
