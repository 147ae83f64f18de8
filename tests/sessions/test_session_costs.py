"""Cost does not grow with history: appends, views and opening a session are the same for a short
log and a long one.
"""

from __future__ import annotations

import pytest
from session_costs import steps

import fourfold
from fourfold import limits
from fourfold.kernel import Options
from fourfold.kernel.database import Database
from fourfold.models import sessions as model
from fourfold.models.sessions import Sessions, SqliteLog
from fourfold.models.sessions.reader import Slots
from fourfold.testing.session_log_contract import message, turn

SHORT, LONG = 3_000, 30_000
STEPS_OF_AN_APPEND = 80


def fill(sessions, count):
    sessions.create_session({"id": "s", "model": "m"})
    for start in range(0, count, 1000):
        sessions.append_events("s", [message(start), turn()] * 500)
        if start % 2000 == 0:
            sessions.publish_head("s")


@pytest.fixture(scope="module")
def roots(tmp_path_factory):
    """Two stores, one with ten times the history of the other."""
    found = {}
    for count in (SHORT, LONG):
        root = found[count] = tmp_path_factory.mktemp(f"events-{count}") / "store"
        with fourfold.open(root) as store:
            fill(store.sessions, count)
    return found


CALLS = {
    "open": lambda sessions: sessions.open_session("s"),
    "view": lambda sessions: sessions.current_view("s"),
    "append": lambda sessions: sessions.append_event("s", turn()),
    "append with a key": lambda sessions: sessions.append_event("s", turn(), key="new"),
    "append several with a key": lambda s: s.append_events("s", [turn(), turn()], key="two"),
    "the events of a key": lambda sessions: sessions.events_of_key("s", "none"),
    "newest turn": lambda sessions: sessions.current_view("s").turns[-1],
    "oldest message": lambda sessions: sessions.current_view("s").messages[0],
    "a past view": lambda sessions: sessions.view_at("s", 1500),
    "what is new": lambda sessions: sessions.events_since("s", sessions.peek_next_id("s") - 2),
    "the feed of all": lambda sessions: sessions.all_events_since(sessions.position() - 1),
    "a payload": lambda sessions: sessions.read_payload(sessions.intern_payload("x" * 600)),
    "a head": lambda sessions: sessions.publish_head("s"),
    "the list": lambda sessions: sessions.list_sessions(),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_costs_the_same_on_ten_times_the_history(roots, name):
    costs = {}
    for count, root in roots.items():
        with fourfold.open(root) as store, steps() as counted:
            CALLS[name](store.sessions)
            costs[count] = counted.total
    assert costs[LONG] <= costs[SHORT] + 50 * limits.SESSION_SNAPSHOT_EVENTS_MAX
    assert costs[LONG] < 30_000


def test_a_view_in_the_writing_process_asks_the_database_nothing(roots):
    with fourfold.open(roots[SHORT]) as store:
        store.sessions.current_view("s")
        with steps() as counted:
            for _ in range(10):
                store.sessions.current_view("s")
                store.sessions.peek_next_id("s", "turn")
        assert counted.statements == 0


def test_appending_a_turn_is_one_short_statement(roots):
    """The least of some appends: one in a new second also changes the index of sessions."""
    costs = []
    with fourfold.open(roots[SHORT]) as store:
        store.sessions.append_event("s", turn())
        for _ in range(5):
            with steps() as counted:
                store.sessions.append_event("s", turn())
            costs.append((counted.statements, counted.total))
    statements, total = min(costs)
    # INSERT, COMMIT: the count begins after BEGIN.
    assert statements == 2
    # The list of types in the index of statuses would be 13 more.
    assert total <= STEPS_OF_AN_APPEND


def test_what_was_replaced_thousand_times_costs_no_more_to_read(tmp_path):
    costs = []
    with fourfold.open(tmp_path / "store") as store:
        store.sessions.create_session({"id": "s"})
        store.sessions.append_events("s", [turn(), turn()])
        for _ in range(2):
            store.sessions.append_events(
                "s", [{"type": "turn/put", "turn": {"id": 1, "n": n}} for n in range(1000)]
            )
            view = store.sessions.current_view("s")
            with steps() as counted:
                assert view.turns[0] == {"id": 1, "n": 999}
                assert len(view.turns[:]) == 2
            costs.append(counted.total)
    assert costs[0] == costs[1] < 500


def test_opening_folds_only_what_came_after_a_snapshot(roots):
    with fourfold.open(roots[LONG]) as store, store.sessions.log.database.read() as snapshot:
        points = [row[0] for row in snapshot.all("SELECT event_id FROM snapshots")]
        last = snapshot.value("SELECT max(event_id) FROM events")
        # Each batch of a thousand ends with a snapshot; single events would make one every 256.
        gaps = [b - a for a, b in zip([0, *points], [*points, last], strict=True)]
        assert max(gaps) <= 1001
        assert last - points[-1] <= limits.SESSION_SNAPSHOT_EVENTS_MAX


def test_single_events_make_a_snapshot_now_and_then(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        store.sessions.create_session({"id": "s"})
        for _ in range(2 * limits.SESSION_SNAPSHOT_EVENTS_MAX + 5):
            store.sessions.append_event("s", turn())
        with store.sessions.log.database.read() as snapshot:
            points = [row[0] for row in snapshot.all("SELECT event_id FROM snapshots")]
        most = limits.SESSION_SNAPSHOT_EVENTS_MAX
        assert points == [most, 2 * most]


def test_snapshots_are_derived_and_may_be_dropped(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        fill(store.sessions, 2000)
        before = store.sessions.current_view("s").state
        store.sessions.log.database.transact(lambda txn: txn.execute("DELETE FROM snapshots"))
    with fourfold.open(tmp_path / "store") as store:
        assert store.sessions.current_view("s").state == before
        assert store.sessions.append_event("s", turn()).id == before.counters.event + 1
        assert store.sessions.verify() == []


def test_memory_is_bounded_whatever_the_number_of_sessions(tmp_path):
    with Database.open(
        tmp_path / "events.db",
        profile=model.PROFILE,
        migrations=model.MIGRATIONS,
        sequences=(model.POSITION,),
        options=Options(),
    ) as database:
        sessions = Sessions(SqliteLog(database))
        sessions._slots = Slots(most=3)
        for number in range(10):
            sessions.create_session({"id": f"s{number}", "model": "m"})
        for _ in range(2):
            for number in range(10):
                sessions.append_event(f"s{number}", turn())
        assert len(sessions._slots._slots) == 3
        assert [sessions.current_view(f"s{n}").counters.event for n in range(10)] == [3] * 10
        assert sessions.verify() == []
