"""Public calls inside an open transaction: they join it, and are undone with it."""

from __future__ import annotations

from contextlib import suppress

import pytest

import fourfold
from fourfold.models.sessions import Payload
from fourfold.testing.session_log_contract import turn

LARGE = "x" * 100_000
CALLS = {
    "all_events_since": lambda s, one, other: s.all_events_since(),
    "ancestors": lambda s, one, other: s.ancestors(s.current_view(other).current_head),
    "append_event": lambda s, one, other: s.append_event(one, {"type": "a/b", "x": Payload(LARGE)}),
    "append_events": lambda s, one, other: [
        s.append_events(one, [turn(), turn()], key="k") for _ in "12"
    ],
    "append_lineage_edge": lambda s, one, other: s.append_lineage_edge(one, edge(s, other)),
    "create": lambda s, one, other: s.create({"id": f"{one}/created"}),
    "create_session": lambda s, one, other: s.create_session({"id": f"{one}/new", "model": "m"}),
    "current_view": lambda s, one, other: list(s.current_view(one).turns),
    "delete_session": lambda s, one, other: s.delete_session(other),
    "descendants": lambda s, one, other: s.descendants(s.current_view(other).current_head),
    "events": lambda s, one, other: list(s.events(one)),
    "events_of_key": lambda s, one, other: s.events_of_key(one, "first"),
    "events_since": lambda s, one, other: s.events_since(one),
    "export_bundle": lambda s, one, other: list(s.export_bundle(one)),
    "follow": lambda s, one, other: s.follow(one, after=0).next(0.0),
    "follow_all": lambda s, one, other: s.follow_all(after=0).next(0.0),
    "gc": lambda s, one, other: (s.delete_session(other), s.gc(0)),
    "head": lambda s, one, other: s.head(s.current_view(other).current_head),
    "intern_payload": lambda s, one, other: s.intern_payload(LARGE),
    "lineage": lambda s, one, other: s.lineage(one),
    "lineage_graph": lambda s, one, other: s.lineage_graph(one),
    "list": lambda s, one, other: list(s.list()),
    "list_sessions": lambda s, one, other: s.list_sessions(),
    "maybe_intern": lambda s, one, other: s.maybe_intern("y" * 1000),
    "notify_transient": lambda s, one, other: s.notify_transient(one, {"type": "delta/token"}),
    "open": lambda s, one, other: s.open(one).append_event(turn()),
    "open_session": lambda s, one, other: s.open_session(one).append_event(turn()),
    "peek_next_id": lambda s, one, other: s.peek_next_id(one),
    "position": lambda s, one, other: s.position(),
    "publish_head": lambda s, one, other: s.publish_head(one, events=[turn()]),
    "read_payload": lambda s, one, other: s.read_payload("x"),
    "read_state": lambda s, one, other: s.read_state(one).session,
    "subscribe": lambda s, one, other: s.subscribe(one, lambda _: None).close(),
    "subscribe_all": lambda s, one, other: s.subscribe_all(lambda _: None).close(),
    "verify": lambda s, one, other: s.verify(),
    "verify_no_dangling_refs": lambda s, one, other: s.verify_no_dangling_refs(),
    "view_at": lambda s, one, other: s.view_at(one, 1).session,
}
"""Each gets the sessions, one to write to, and another that has a head."""


def edge(sessions, other):
    head = sessions.current_view(other).current_head
    return {"type": "derivation", "to_session": other, "to_head": head}


def views(sessions, prefix=""):
    """Every session as it is remembered, which must be what the log says."""
    found = {}
    for info in sessions.list_sessions(prefix=prefix):
        view = sessions.current_view(info.id)
        found[info.id] = view.materialize()
        assert view == found[info.id]
        ids = [event.id for event in sessions.events_since(info.id)]
        assert ids == list(range(1, view.counters.event + 1))
    return found


@pytest.mark.parametrize("fails", [False, True], ids=["committed", "rolled back"])
def test_public_calls_keep_the_log_in_order_inside_a_transaction(tmp_path, fails):
    """Each call has sessions of its own."""
    with fourfold.open(tmp_path / "store") as store:
        sessions = store.sessions
        for name, call in CALLS.items():
            one, other = f"{name}/one", f"{name}/other"
            for sid in (one, other):
                sessions.create_session({"id": sid, "model": "m"})
                sessions.append_event(sid, turn(), key="first")
            sessions.publish_head(other)
            before = sessions.position(), views(sessions, name)
            with suppress(ZeroDivisionError), sessions.log.database.write():
                first = sessions.append_event(one, turn())
                call(sessions, one, other)
                last = sessions.append_event(one, turn())
                assert last.id > first.id, name
                if fails:
                    raise ZeroDivisionError
            if fails:
                assert (sessions.position(), views(sessions, name)) == before, name
            else:
                assert sessions.events_since(one, last.id - 1) == [last], name
            sessions.append_event(one, turn())
            views(sessions, name)
        positions = [event.position for event in sessions.all_events_since(0)]
        assert positions == sorted(set(positions))
        found = sessions.position(), views(sessions)
        assert sessions.verify() == []
    with fourfold.open(tmp_path / "store") as store:
        assert (store.sessions.position(), views(store.sessions)) == found
