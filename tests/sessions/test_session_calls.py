"""Public calls inside an open transaction: they join it, and are undone with it."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import suppress

import pytest

import fourfold
from fourfold.errors import Refused
from fourfold.models.sessions import Payload, Session, Sessions
from fourfold.testing.session_log_contract import turn

LARGE = "x" * 100_000
CALLS = {
    "all_events_since": lambda s, one, other: s.all_events_since(),
    "ancestors": lambda s, one, other: s.ancestors(s.current_view(other).current_head),
    "append_event": lambda s, one, other: s.append_event(one, {"type": "a/b", "x": Payload(LARGE)}),
    "append_event_async": lambda s, one, other: asyncio.run(s.append_event_async(one, turn())),
    "append_events": lambda s, one, other: [
        s.append_events(one, [turn(), turn()], key="k") for _ in "12"
    ],
    "append_events_async": lambda s, one, other: asyncio.run(s.append_events_async(one, [turn()])),
    "append_lineage_edge": lambda s, one, other: s.append_lineage_edge(one, edge(s, other)),
    "append_lineage_edge_async": lambda s, one, other: asyncio.run(
        s.append_lineage_edge_async(one, edge(s, other))
    ),
    "apply_stored_retentions": lambda s, one, other: (
        s.set_retention(other, keep_latest=0),
        s.apply_stored_retentions(),
    ),
    "set_retention": lambda s, one, other: s.set_retention(one, max_age_s=60),
    "delete_retention": lambda s, one, other: (
        s.set_retention(one, max_age_s=60),
        s.delete_retention(one),
    ),
    "list_retentions": lambda s, one, other: s.list_retentions(),
    "index_texts": lambda s, one, other: s.index_texts(),
    "search": lambda s, one, other: s.search("word"),
    "apply_retention": lambda s, one, other: s.apply_retention(other, keep_latest=0),
    "claim": lambda s, one, other: s.claim(one, "worker"),
    "claim_async": lambda s, one, other: asyncio.run(s.claim_async(one, "worker")),
    "compare_heads": lambda s, one, other: s.compare_heads(
        *[s.current_view(other).current_head] * 2
    ),
    "create": lambda s, one, other: s.create({"id": f"{one}/created"}),
    "create_async": lambda s, one, other: asyncio.run(s.create_async({"id": f"{one}/new"})),
    "create_session": lambda s, one, other: s.create_session({"id": f"{one}/new", "model": "m"}),
    "create_session_async": lambda s, one, other: asyncio.run(
        s.create_session_async({"id": f"{one}/new"})
    ),
    "current_view": lambda s, one, other: list(s.current_view(one).turns),
    "delete_session": lambda s, one, other: s.delete_session(other),
    "descendants": lambda s, one, other: s.descendants(s.current_view(other).current_head),
    "events": lambda s, one, other: list(s.events(one)),
    "events_of_key": lambda s, one, other: s.events_of_key(one, "first"),
    "events_since": lambda s, one, other: s.events_since(one),
    "export_bundle": lambda s, one, other: list(s.export_bundle(one)),
    "resumptions": lambda s, one, other: (s.claim(one, "worker"), s.resumptions(one)),
    "find_lease": lambda s, one, other: (s.claim(one, "worker"), s.find_lease(one)),
    "follow": lambda s, one, other: s.follow(one, after=0).next(0.0),
    "follow_all": lambda s, one, other: s.follow_all(after=0).next(0.0),
    "fork": lambda s, one, other: s.fork(one, {"id": f"{one}/fork"}).append_event(turn()),
    "fork_async": lambda s, one, other: asyncio.run(s.fork_async(one, {"id": f"{one}/fork"})),
    "gc": lambda s, one, other: (s.delete_session(other), s.gc(0)),
    "head": lambda s, one, other: s.head(s.current_view(other).current_head),
    "import_bundle": lambda s, one, other: s.import_bundle(
        s.log.database.path.parents[2] / "bundle"
    ),
    "info": lambda s, one, other: s.info(one),
    "intern_payload": lambda s, one, other: s.intern_payload(LARGE),
    "intern_payload_async": lambda s, one, other: asyncio.run(s.intern_payload_async(LARGE)),
    "lineage": lambda s, one, other: s.lineage(one),
    "lineage_graph": lambda s, one, other: s.lineage_graph(one),
    "list": lambda s, one, other: list(s.list()),
    "list_leases": lambda s, one, other: s.list_leases(),
    "list_sessions": lambda s, one, other: s.list_sessions(),
    "maybe_intern": lambda s, one, other: s.maybe_intern("y" * 1000),
    "notify_transient": lambda s, one, other: s.notify_transient(one, {"type": "delta/token"}),
    "open": lambda s, one, other: s.open(one).append_event(turn()),
    "open_session": lambda s, one, other: s.open_session(one).append_event(turn()),
    "payload_bytes": lambda s, one, other: s.payload_bytes(s.intern_payload(LARGE).id),
    "payload_size": lambda s, one, other: s.payload_size(s.intern_payload(LARGE).id),
    "peek_next_id": lambda s, one, other: s.peek_next_id(one),
    "position": lambda s, one, other: s.position(),
    "publish_head": lambda s, one, other: s.publish_head(one, events=[turn()]),
    "publish_head_async": lambda s, one, other: asyncio.run(s.publish_head_async(one)),
    "read_payload": lambda s, one, other: s.read_payload("x"),
    "read_state": lambda s, one, other: s.read_state(one).session,
    "release": lambda s, one, other: s.release(one, s.claim(one, "worker").epoch),
    "release_async": lambda s, one, other: asyncio.run(s.release_async(one, 1)),
    "renew": lambda s, one, other: s.renew(one, s.claim(one, "worker").epoch),
    "renew_async": lambda s, one, other: asyncio.run(s.renew_async(one, 1)),
    "subscribe": lambda s, one, other: s.subscribe(one, lambda _: None).close(),
    "subscribe_all": lambda s, one, other: s.subscribe_all(lambda _: None).close(),
    "transcript": lambda s, one, other: s.transcript(one),
    "verify": lambda s, one, other: s.verify(),
    "verify_no_dangling_refs": lambda s, one, other: s.verify_no_dangling_refs(),
    "view_at": lambda s, one, other: s.view_at(one, 1).session,
}
"""Each gets the sessions, one to write to, and another that has a head."""
HANDLE_CALLS = {
    "append": lambda one, other: (one.append(turn()), one.append([turn()] * 2, key="k")),
    "append_async": lambda one, other: asyncio.run(one.append_async(turn())),
    "append_event": lambda one, other: one.append_event({"type": "a/b", "x": Payload(LARGE)}),
    "append_events": lambda one, other: one.append_events([turn(), turn()]),
    "claim": lambda one, other: one.claim("worker"),
    "delete": lambda one, other: other.delete(),
    "events_since": lambda one, other: one.events_since(),
    "follow": lambda one, other: one.follow(after=0).next(0.0),
    "fork": lambda one, other: one.fork({"id": f"{one.id}/fork"}).append(turn()),
    "history": lambda one, other: one.history(),
    "log": lambda one, other: one.log(),
    "position": lambda one, other: one.position(),
    "publish_head": lambda one, other: one.publish_head(events=[turn()]),
    "read": lambda one, other: (one.read(), one.read(1).session),
    "release": lambda one, other: one.release(one.claim("worker").epoch),
    "renew": lambda one, other: one.renew(one.claim("worker").epoch),
    "search": lambda one, other: one.search("word"),
    "subscribe": lambda one, other: one.subscribe(lambda _: None).close(),
    "transcript": lambda one, other: one.transcript(),
    "view": lambda one, other: list(one.view().turns),
}
"""Each gets the handle of one to write to, and of another."""
ALL = {
    **CALLS,
    **{
        f"session.{name}": lambda s, one, other, call=call: call(s.open(one), s.open(other))
        for name, call in HANDLE_CALLS.items()
    },
}
REFUSED = {name for name in ALL if name.endswith("_async")}
"""Calls that would wait for the end of the transaction."""


@pytest.mark.parametrize(("handle", "calls"), [(Sessions, CALLS), (Session, HANDLE_CALLS)])
def test_every_public_call_is_tried_inside_a_transaction(handle, calls):
    public = {
        name
        for name, member in inspect.getmembers(handle)
        if not name.startswith("_") and callable(member)
    }
    assert public - {"close"} == calls.keys()


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
    elsewhere = Sessions()
    elsewhere.create_session({"id": "import_bundle/imported", "model": "m"})
    elsewhere.append_event("import_bundle/imported", {"type": "a/b", "x": Payload(LARGE)})
    (tmp_path / "bundle").write_bytes(b"".join(elsewhere.export_bundle("import_bundle/imported")))
    with fourfold.open(tmp_path / "store") as store:
        sessions = store.sessions
        for name, call in ALL.items():
            one, other = f"{name}/one", f"{name}/other"
            for sid in (one, other):
                sessions.create_session({"id": sid, "model": "m"})
                sessions.append_event(sid, turn(), key="first")
            sessions.publish_head(other)
            sessions.intern_payload(LARGE)
            before = sessions.position(), views(sessions, name)
            with suppress(ZeroDivisionError), sessions.log.database.write():
                first = sessions.append_event(one, turn())
                if name in REFUSED:
                    with pytest.raises(Refused, match="inside a transaction"):
                        call(sessions, one, other)
                else:
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
