"""What the golden stores hold, and how a test reads all of it back.

`write_*` fills a store with a little of everything that a model writes. `read_*` returns every
folded state, past ones included, as plain JSON. `make_golden.py` records what the release that made
the files read; every later release must read the same.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from langgraph.checkpoint.base import empty_checkpoint

from fourfold.adapters.langgraph import FourfoldSaver
from fourfold.adapters.openai_agents import AgentsSession
from fourfold.content import PayloadRef
from fourfold.errors import FourfoldError, NotFound
from fourfold.models.documents import GcPolicy
from fourfold.models.sessions import Payload
from fourfold.models.streams import Producer
from fourfold.models.streams.subscriptions import Subscribe
from fourfold.store import Store

DID = "did:web:golden.example"
COLLECTED = "did:web:collected.example"
LONG = "All that is known about folds. " * 40
"""Larger than an inline value, smaller than a blob file."""
LARGE = "0123456789abcdef" * 5000
"""Larger than a payload row: stored as a file."""


def write_documents(store: Store, history: str) -> None:
    space = store.space(DID, history)
    space.set("note", {"title": "Hello", "likes": 0, "tags": ["a"]})
    space.patch("note", [{"op": "increment", "path": "/likes", "by": 1}])
    space.set("other", {"n": 1.5, "text": "ä€😀", "nested": {"list": [1, None, True]}})
    space.branches.create("draft")
    space.patch("note", [{"op": "replace", "path": "/title", "value": "Hi"}], branch="draft")
    space.patch("note", [{"op": "append", "path": "/tags", "values": ["b"]}])
    space.branches.merge("draft")
    space.branches.create("ended", at=2)
    space.set("only-there", {"x": 1}, branch="ended")
    space.branches.delete("ended")
    space.delete("other")
    for number in range(40):
        space.patch("note", [{"op": "replace", "path": "/count", "value": number}])
    collected = store.space(COLLECTED, history)
    for number in range(20):
        collected.set("entity", {"n": number})
    collected.gc(GcPolicy(keep_seqs=5))


def read_documents(store: Store) -> dict[str, Any]:
    return {did: _read_space(store, did) for did in store.spaces()}


def _read_space(store: Store, did: str) -> dict[str, Any]:
    space = store.space(did)
    states: dict[str, Any] = {}
    for branch in space.branches.list(deleted=True):
        for seq in range(1, space.seq() + 1):
            key = f"{branch.name}@{seq}"
            try:
                states[key] = {
                    entity: state.document
                    for entity in space.ids(branch.name, at=seq)
                    if (state := space.read(entity, branch.name, at=seq)) is not None
                }
            except FourfoldError as error:
                states[key] = error.kind
    commits = [[commit.seq, commit.created_at] for commit in space.log()]
    return {"seq": space.seq(), "horizon": space.horizon(), "states": states, "commits": commits}


def write_streams(store: Store) -> None:
    streams = store.streams
    orders = streams.create("orders", "application/json")
    orders.append(b'[{"id": 1, "total": 9.50}, {"id": 2, "total": 12.00}]', key="till")
    orders.append(b'{"id": 3}', producer=Producer("till-1", epoch=0, seq=0))
    fork = orders.fork("what-if", "0000000000000000_0000000000000001")
    fork.append(b'{"id": 99}')
    text = streams.create("log", "text/plain")
    text.append([b"one", b"two"])
    text.append(b"three", close=True)
    state = streams.create("state", "application/json")
    state.set_profile("state-protocol")
    for value in (b"1", b"2"):
        change = b'{"type": "item", "key": "a", "value": ' + value
        state.append(change + b', "headers": {"operation": "upsert"}}')
    bookings = streams.create("bookings", "application/json")
    schema = {"type": "object", "properties": {"room": {"type": "integer"}}, "required": ["room"]}
    bookings.set_schema(schema)
    bookings.append(b'{"room": 12}')
    trimmed = streams.create("trimmed", "text/plain", retention_bytes=64)
    for number in range(20):
        trimmed.append(b"record %02d of a stream" % number)
    streams.sweep()
    gone = streams.create("gone", "text/plain")
    gone.append(b"x")
    streams.delete("gone")
    streams.create("wakes", "application/json")
    streams.subscriptions.create(
        Subscribe("mail", "pull-wake", pattern="mail/*", wake_stream="wakes")
    )
    streams.create("mail/anna", "application/json", body=b'{"subject": "hello"}')


def read_streams(store: Store) -> dict[str, Any]:
    streams = store.streams
    content: dict[str, Any] = {}
    for info in streams.list():
        stream = streams.open(info.name)
        start = "now" if not info.next_offset else f"{0:016}_{info.first_offset:016}"
        payloads = [record.payload.decode() for record in stream.read(start).records]
        content[info.name] = {
            "first": info.first_offset,
            "next": info.next_offset,
            "closed": info.closed,
            "content_type": info.content_type,
            "records": payloads,
        }
    content["state"]["fold"] = [[*key, value] for key, value in streams.state("state").items()]
    try:
        content["subscription"] = streams.subscriptions.get("mail").pattern
    except NotFound:
        content["subscription"] = None
    return content


def write_graphs(store: Store) -> None:
    graphs = store.graphs
    app = graphs.register_app("contacts", "Contacts").app_id
    person = graphs.register_type(app, "parent", "person")
    name = graphs.register_type(app, "attr", "name")
    knows = graphs.register_type(app, "edge", "knows")
    suppress = graphs.register_type(app, "rating", "suppress")
    graphs.define_domain("talk", 1)
    owner = {"owner_identity": 1}
    first = graphs.insert_parent(app, {"type_id": person, "sync_flags": 1, **owner})
    second = graphs.insert_parent(app, {"type_id": person, **owner})
    row = {"parent_id": first, "type_id": name, **owner}
    attr = graphs.insert_attr(app, {**row, "value_text": "Ada", "sync_flags": 1})
    graphs.insert_edge(
        app, {"type_id": knows, "src_parent_id": first, "dst_parent_id": second, **owner}
    )
    graphs.update(app, "attr", attr, {**row, "value_text": "Ada Lovelace"})
    with graphs.transaction(trace_id="batch-1") as txn:
        third = graphs.insert_parent(app, {"type_id": person, **owner}, txn=txn)
        row = {"parent_id": third, "type_id": name, "value_number": 1.5, **owner}
        graphs.insert_attr(app, row, txn=txn)
    graphs.insert_rating(
        app, {"type_id": suppress, "target_parent_id": second, "value_number": 1, **owner}
    )


def read_graphs(store: Store) -> dict[str, Any]:
    graphs = store.graphs
    content: dict[str, Any] = {"seq": graphs.get_global_seq()}
    for app in graphs.list_apps():
        number = app.app_id
        content[app.slug] = {
            str(at): {
                "parents": [row.object_id for row in graphs.current_parents(number, at=at)],
                "attrs": [
                    [row.object_id, row.parent_id, row.value_text, row.value_number]
                    for row in graphs.current_attrs(number, at=at)
                ],
            }
            for at in range(graphs.get_global_seq() + 1)
        }
    content["feed"] = [
        [change.global_seq, change.kind, change.row.object_id]
        for page in graphs.feed(after=0, timeout=0)
        for change in page
    ]
    return content


def write_sessions(store: Store) -> None:
    sessions = store.sessions
    sessions.create_session({"id": "research", "model": "any"})
    sessions.append_events(
        "research",
        [
            {"type": "turn/started", "turn": {"status": "running"}},
            {"type": "message/appended", "message": {"role": "user", "content": Payload(LONG)}},
            {"type": "message/appended", "message": {"role": "user", "content": Payload(LARGE)}},
            {"type": "session/vars-snapshotted", "vars_ref": {"topic": "folds", "n": [1, 2]}},
            {"type": "turn/put", "turn": {"id": 1, "status": "final", "final": "done"}},
        ],
    )
    sessions.publish_head("research", {"kind": "turn-final", "turn_id": 1}, expected_basis=None)
    for number in range(300):
        sessions.append_event("research", {"type": "app/note", "number": number})
    sessions.create_session({"id": "deleted"})
    sessions.append_event("deleted", {"type": "app/note", "text": "to be purged"})
    sessions.delete_session("deleted")
    _write_thread(FourfoldSaver(sessions))
    asyncio.run(_write_conversation(AgentsSession("user-42", sessions)))


def _write_thread(saver: FourfoldSaver) -> None:
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    for step in range(3):
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"messages": [f"m{n}" for n in range(step + 1)]}
        checkpoint["channel_versions"] = {"messages": step + 1}
        metadata: Any = {"source": "loop", "step": step, "run_id": "r"}
        config = saver.put(config, checkpoint, metadata, {"messages": step + 1})
        saver.put_writes(config, [("__resume__", "no")], "task")
        saver.put_writes(config, [("__resume__", "yes")], "task")


async def _write_conversation(session: AgentsSession) -> None:
    await session.add_items([{"role": "user", "content": "hi"}])
    await session.add_items([{"role": "assistant", "content": LONG}, {"role": "user"}])
    await session.pop_item()


def read_sessions(store: Store) -> dict[str, Any]:
    sessions = store.sessions
    content: dict[str, Any] = {"position": sessions.position()}
    for session in sessions.list_sessions():
        events = sessions.events_since(session.id)
        content[session.id] = {
            "events": len(events),
            "digest": _digest([[event.id, event.type, event.data] for event in events]),
            "views": _digest([_view(sessions, session.id, event.id) for event in events[::7]]),
            "head": sessions.current_view(session.id).current_head,
        }
    for place in (1, 2):
        message = sessions.current_view("research").messages[place - 1]["content"]
        content[f"payload {place}"] = _digest(sessions.read_payload(message))
    thread: Any = {"configurable": {"thread_id": "t"}}
    content["thread"] = [
        [
            row.checkpoint["channel_values"],
            row.metadata,
            [list(w) for w in row.pending_writes or ()],
        ]
        for row in FourfoldSaver(sessions).list(thread)
    ]
    content["items"] = asyncio.run(AgentsSession("user-42", sessions).get_items())
    return content


def _view(sessions: Any, session: str, at: int) -> list[Any]:
    view = sessions.view_at(session, at)
    return [view.session, view.vars_ref, list(view.turns), list(view.messages)]


def _digest(value: Any) -> str:
    """Hash a value by its content, whatever classes hold it."""
    return hashlib.sha256(json.dumps(_plain(value), sort_keys=True).encode()).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, PayloadRef):
        return ["payload", value.id, value.kind, value.size]
    if isinstance(value, bytes):
        return ["bytes", value.hex()]
    return value


def write_everything(store: Store) -> None:
    write_documents(store, "revisions")
    write_streams(store)
    write_graphs(store)
    write_sessions(store)


def read_everything(store: Store) -> dict[str, Any]:
    return {
        "documents": read_documents(store),
        "streams": read_streams(store),
        "graphs": read_graphs(store),
        "sessions": read_sessions(store),
    }


STORES: dict[str, tuple[Callable[[Store], None], Callable[[Store], dict[str, Any]]]] = {
    "revisions": (lambda store: write_documents(store, "revisions"), read_documents),
    "facts": (lambda store: write_documents(store, "facts"), read_documents),
    "streams": (write_streams, read_streams),
    "graphs": (write_graphs, read_graphs),
    "sessions": (write_sessions, read_sessions),
}
"""A store of its own for each model, and each history of documents."""
