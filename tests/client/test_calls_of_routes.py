"""Every operation of the server has a call of the client, or a reason why it has none.

Pages of the explorer are for browsers, and not in the route table of the API.
"""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from urllib.parse import unquote, urlsplit

import pytest
from both_fronts import store_protocol
from msgspec import Raw

import fourfold
from fourfold import Ack, Subscribe
from fourfold.client import (
    EntityKey,
    RemoteGraph,
    RemoteMemory,
    RemoteSpace,
    RemoteStream,
    Stream,
    Template,
)
from fourfold.client.responses import StreamFacts
from fourfold.client.session_view import RemoteSessionView
from fourfold.client.sessions import SessionCalls
from fourfold.client.threads import connection
from fourfold.content import PayloadRef
from fourfold.errors import Refused
from fourfold.wire.sessions import EventCounters, ViewRecord
from fourfold.wire.subscriptions import ClaimedWake, WakeNotification

with fourfold.open(":memory:") as store:
    TABLE = store_protocol(store).routes

HEAD = f"sha256:{'0' * 64}"
OTHER = f"sha256:{'1' * 64}"
WAKE = ClaimedWake(wake_id="w", generation=1, token="t", streams=[], lease_ttl_ms=1)
NOTIFICATION = WakeNotification(
    subscription_id="s",
    wake_id="w",
    generation=1,
    streams=[],
    callback_url="",
    callback_token="t",
)
VIEW = ViewRecord(
    id="s/1",
    created_at="2030-01-01T00:00:00.000000Z",
    event_id=1,
    session=Raw(b"null"),
    counters=EventCounters(event=1, message=1, turn=1, step=1, eval=1),
    current_head=None,
    covered=0,
    vars_ref=Raw(b"null"),
    compact_from_event_id=None,
    kept_after=0,
    error=Raw(b"null"),
    digest="",
)
WHERE = {"status": "open"}
OPERATION = {"op": "parent_create", "type_key": "note"}

CALLS = {
    # The server
    "health": lambda c: c.store.server.health(),
    "livez": lambda c: c.store.server.live(),
    "readyz": lambda c: c.store.server.ready(),
    "openapi": lambda c: c.store.server.openapi(),
    "problem": lambda c: c.store.server.error_kind("not_found"),
    "jwks": lambda c: c.store.server.webhook_keys(),
    "metrics": lambda c: c.store.metrics_text(),
    # The store
    "get_store": lambda c: c.store.overview(),
    "get_activity": lambda c: c.store.activity(),
    "list_points": lambda c: c.store.points(),
    "list_archive_tables": lambda c: c.store.archive_tables(),
    "get_point": lambda c: c.store.point("20300101T000000.000Z-0000"),
    "list_databases": lambda c: c.store.published(),
    "list_backups": lambda c: c.store.backups(),
    "run_sql": lambda c: c.store.sql("select 1"),
    "list_sql_tables": lambda c: c.store.sql_tables(),
    "start_job": lambda c: c.store.jobs.start("gc"),
    "list_jobs": lambda c: c.store.jobs.list(),
    "get_job": lambda c: c.store.jobs.get("1"),
    "cancel_job": lambda c: c.store.jobs.cancel("1"),
    "follow_job": lambda c: c.store.jobs.wait("1"),
    "list_runs": lambda c: c.store.jobs.runs(),
    "list_tables": lambda c: c.store.jobs.tables(),
    "put_upload": lambda c: c.store.jobs.upload(c.file, "lines"),
    "list_uploads": lambda c: c.store.jobs.uploads(),
    "delete_upload": lambda c: c.store.jobs.delete_upload("lines"),
    "create_key": lambda c: c.store.keys.create(["read"]),
    "list_keys": lambda c: c.store.keys.list(),
    "list_audit": lambda c: c.store.audit(),
    "rotate_key": lambda c: c.store.keys.rotate("1"),
    "expire_key": lambda c: c.store.keys.expire("1"),
    "delete_key": lambda c: c.store.keys.delete("1"),
    "get_key": lambda c: c.store.keys.current(),
    # Documents
    "list_spaces": lambda c: c.store.spaces(),
    "create_space": lambda c: c.store.documents.create("did:web:a", "facts"),
    "get_space": lambda c: c.space.info(),
    "transact": lambda c: c.space.set("a", {}),
    "read_documents": lambda c: c.space.read_many(["a"]),
    "list_ids": lambda c: c.space.ids(),
    "history": lambda c: c.space.history("a/b"),
    "log": lambda c: c.space.log(),
    "diff": lambda c: c.space.diff(at1=1, at2=2),
    "search_documents": lambda c: c.space.search("word"),
    "search_vectors": lambda c: c.space.search(vector=[1.0]),
    "find_documents": lambda c: c.space.find(WHERE),
    "count_documents": lambda c: c.space.count(WHERE),
    "list_facets": lambda c: c.space.facets("/status"),
    "explain_find": lambda c: c.space.explain(WHERE),
    "list_indexes": lambda c: c.space.indexes.list(),
    "create_index": lambda c: c.space.indexes.create("status", "/status"),
    "get_index": lambda c: c.space.indexes.get("status"),
    "drop_index": lambda c: c.space.indexes.drop("status"),
    "rebuild_index": lambda c: c.space.indexes.rebuild("status"),
    "get_memory": lambda c: c.memory.position(),
    "create_memory": lambda c: c.connection.send(c.memory._calls.create()),
    "get_memory_item": lambda c: c.memory.get(("a",), "k"),
    "forget_memory_item": lambda c: c.memory.forget(("a",), "k"),
    "change_memory": lambda c: c.memory.put(("a",), "k", {}),
    "search_memory": lambda c: c.memory.search("word"),
    "list_memory_namespaces": lambda c: c.memory.namespaces(),
    "list_memory_versions": lambda c: c.memory.history(("a",), "k"),
    "diff_memory": lambda c: c.memory.diff(1, 2),
    "sweep_memory": lambda c: c.memory.sweep(),
    "purge_memory": lambda c: c.memory.purge(),
    "list_branches": lambda c: c.space.branches.list(),
    "create_branch": lambda c: c.space.branches.create("b/1"),
    "get_branch": lambda c: c.space.branches.get("b/1"),
    "delete_branch": lambda c: c.space.branches.delete("b/1"),
    "merge": lambda c: c.space.branches.merge("b/1"),
    "watch": lambda c: list(c.space.follow()),
    "list_blobs": lambda c: c.space.blobs.list(),
    "put_blob": lambda c: c.space.blobs.put(b"x"),
    "get_blob": lambda c: c.space.blobs.get(HEAD),
    # Graphs
    "list_apps": lambda c: c.store.graphs.list(),
    "register_app": lambda c: c.store.graphs.create("notes"),
    "get_app": lambda c: c.store.graphs.open("notes"),
    "set_app_limits": lambda c: c.graph.set_limits(rows_max=10),
    "list_types": lambda c: c.graph.types(),
    "register_type": lambda c: c.graph.register_type("parent", "note"),
    "set_rule": lambda c: c.graph.set_rule("attr", "age", {"most": 1}),
    "describe_app": lambda c: c.graph.describe(),
    "apply_envelope": lambda c: c.graph.apply([OPERATION], owner=1, trace_id="t"),
    "list_objects": lambda c: c.graph.objects("parent"),
    "get_object": lambda c: c.graph.read("parent", 1),
    "object_history": lambda c: c.graph.history("parent", 1),
    "neighbours": lambda c: c.graph.neighbours(1),
    "read_objects": lambda c: c.graph.read_many([1]),
    "traverse": lambda c: c.graph.traverse(1),
    "find_path": lambda c: c.graph.path(1, 2),
    "edge_exists": lambda c: c.graph.exists(1, 2),
    "list_envelopes": lambda c: c.graph.envelopes("t"),
    "find_values": lambda c: c.graph.find("age", {"$gte": 1}),
    "match_pattern": lambda c: c.graph.match({"nodes": {"a": {}}}),
    "aggregate_values": lambda c: c.graph.aggregate("stars"),
    "top_objects": lambda c: c.graph.top("stars"),
    "count_edges": lambda c: c.graph.count(1),
    "graph_feed": lambda c: list(c.store.graphs.follow()),
    "app_feed": lambda c: list(c.graph.follow()),
    "sync_heads": lambda c: c.store.graphs.sync.heads("a/b"),
    "sync_pull": lambda c: c.store.graphs.sync.pull("a/b", b'{"format":1,"domain":"a","logs":[]}'),
    "sync_push": lambda c: c.store.graphs.sync.push("a/b", b"x"),
    "sync_reconcile": lambda c: c.store.graphs.sync.reconcile("a/b", b"x"),
    "sync_refusals": lambda c: c.store.graphs.sync.refusals(),
    "sync_status": lambda c: c.store.graphs.sync.status(),
    "sync_events": lambda c: list(c.store.graphs.sync.events()),
    # Sessions
    "list_sessions": lambda c: c.store.sessions.list(),
    "create_session": lambda c: c.store.sessions.create({"id": "s/1"}),
    "get_session": lambda c: c.store.sessions.info("s/1"),
    "delete_session": lambda c: c.store.sessions.delete_session("s/1"),
    "fork_session": lambda c: c.store.sessions.fork("s/1"),
    "append_events": lambda c: c.store.sessions.append_event("s/1", {"type": "session/stopped"}),
    "publish_head": lambda c: c.store.sessions.publish_head("s/1"),
    "claim_session": lambda c: c.store.sessions.claim("s/1", "worker"),
    "renew_session_lease": lambda c: c.store.sessions.renew("s/1", 1),
    "release_session_lease": lambda c: c.store.sessions.release("s/1", 1),
    "get_session_lease": lambda c: c.store.sessions.find_lease("s/1"),
    "list_session_leases": lambda c: c.store.sessions.list_leases(),
    "list_session_retentions": lambda c: c.store.sessions.list_retentions(),
    "put_session_retention": lambda c: c.store.sessions.set_retention("s/", keep_latest=1),
    "delete_session_retention": lambda c: c.store.sessions.delete_retention("s/"),
    "apply_session_retention": lambda c: c.store.sessions.apply_retention("s/", keep_latest=1),
    "append_lineage_edge": lambda c: c.store.sessions.append_lineage_edge(
        "s/1", {"type": "derivation", "to_session": "s/2", "to_head": HEAD}
    ),
    "list_events": lambda c: c.store.sessions.events("s/1", until=1),
    "get_view": lambda c: c.store.sessions.view_at("s/1", 1),
    "list_messages": lambda c: list(c.view.messages),
    "list_turns": lambda c: list(c.view.turns),
    "list_steps": lambda c: list(c.view.steps),
    "list_evals": lambda c: list(c.view.evals),
    "list_heads": lambda c: list(c.view.heads),
    "get_head": lambda c: c.store.sessions.head(HEAD),
    "get_lineage": lambda c: c.store.sessions.lineage_graph("s/1"),
    "list_ancestors": lambda c: c.store.sessions.ancestors(HEAD),
    "list_descendants": lambda c: c.store.sessions.descendants(HEAD),
    "compare_heads": lambda c: c.store.sessions.compare_heads(HEAD, OTHER),
    "put_payload": lambda c: c.store.sessions.intern_payload({"text": "x"}),
    "get_payload": lambda c: c.store.sessions.read_payload(PayloadRef(HEAD, "x", 1)),
    "follow_session": lambda c: list(c.store.sessions.follow("s/1")),
    "follow_sessions": lambda c: list(c.store.sessions.follow_all()),
    "send_transients": lambda c: c.store.sessions.notify_transient("s/1", "token"),
    "search_sessions": lambda c: c.store.sessions.search("word"),
    "search_session": lambda c: c.store.sessions.search("word", sid="s/1"),
    "get_transcript": lambda c: c.store.sessions.transcript("s/1"),
    "export_bundle": lambda c: list(c.store.sessions.export_bundle("s/1")),
    "import_bundle": lambda c: c.store.sessions.import_bundle(c.file),
    # Streams
    "list": lambda c: c.store.streams.list(),
    "totals": lambda c: c.store.streams.totals(),
    "details": lambda c: c.store.streams.info("a"),
    "create": lambda c: c.store.streams.create("a", "text/plain"),
    "append": lambda c: c.protocol_stream.append(b"x"),
    "head": lambda c: c.protocol_stream.head(),
    "read": lambda c: list(c.protocol_stream.read_bytes()),
    "configure": lambda c: c.stream.configure(ttl=1),
    "delete": lambda c: c.stream.delete(),
    "schema": lambda c: c.stream.schema(),
    "set_schema": lambda c: c.stream.set_schema({}),
    "profile": lambda c: c.stream.profile(),
    "set_profile": lambda c: c.stream.set_profile("generic"),
    "touch": lambda c: c.store.streams.touches.meta("a"),
    "touch_wait": lambda c: c.store.streams.touches.wait("a", None, [EntityKey("order")], 1.0),
    "touch_templates": lambda c: c.store.streams.touches.activate(
        "a", [Template("order", {"status": "string"})]
    ),
    "post_search": lambda c: c.stream.search("word"),
    "post_aggregate": lambda c: c.stream.aggregate(by=["status"]),
    "compact": lambda c: c.stream.compact("now"),
    "list_producers": lambda c: c.stream.producers(),
    "list_routing_keys": lambda c: c.stream.keys(),
    "list_segments": lambda c: c.stream.segments(),
    "list_stream_subscriptions": lambda c: c.stream.subscriptions(),
    "follow_streams": lambda c: list(c.store.streams.follow()),
    "subscribe": lambda c: c.subscriptions.create(
        Subscribe("s", "pull-wake", streams=["a"], wake_stream="wakes")
    ),
    "subscription": lambda c: c.subscriptions.get("s"),
    "unsubscribe": lambda c: c.subscriptions.delete("s"),
    "follow": lambda c: c.subscriptions.add_streams("s", ["a"]),
    "unfollow": lambda c: c.subscriptions.remove_stream("s", "a"),
    "claim": lambda c: c.subscriptions.claim("s", "worker"),
    "ack": lambda c: c.subscriptions.acknowledge("s", WAKE, [Ack("a", "-1")]),
    "callback": lambda c: c.subscriptions.acknowledge_webhook(NOTIFICATION, done=True),
    "release": lambda c: c.subscriptions.release("s", WAKE),
}
WITHOUT_CALL = {
    "get_document": "`read` and `read_many` read one document or many by one operation",
    "put_document": "`set` is a transaction of one operation, with an identity to retry it safely",
    "patch_document": "`patch` is a transaction of one operation",
    "delete_document": "`delete` is a transaction of one operation",
    "put_session": "`create` sends the id in the body, and also works without one",
    "create_payload": "`intern_payload` knows the hash, and sends the bytes under it",
    "search": "`search` sends its parameters as a body, which is not limited like a URL",
    "aggregate": "`aggregate` sends its parameters as a body",
}


class Sent(Refused):
    """Raised instead of sending a request."""


@pytest.fixture
def sent(monkeypatch):
    """Return the operations of the requests that the client would have sent."""
    operations = []

    @contextmanager
    def open_recorded(_self, call):
        path = unquote(urlsplit(call.url).path)
        operations.append(TABLE.find(call.method, path).route.operation)
        raise Sent("recorded")
        yield

    monkeypatch.setattr(connection.Transport, "open", open_recorded)
    return operations


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """Return handles of a client; creating them sends nothing."""
    file = tmp_path_factory.mktemp("files") / "lines"
    file.write_text("{}\n")
    with fourfold.connect("http://127.0.0.1:9") as remote:
        connected = remote.documents._connection
        calls = SessionCalls(connected.settings.address)
        graph = RemoteGraph(remote.graphs, 2, "notes", "node")
        remote.graphs._slugs[2] = "notes"
        yield SimpleNamespace(
            store=remote,
            space=RemoteSpace(connected, "did:web:a"),
            graph=graph,
            memory=RemoteMemory(connected, "a"),
            connection=connected,
            view=RemoteSessionView(connected, calls, VIEW),
            stream=RemoteStream(remote.streams, connected, "a"),
            protocol_stream=Stream(connected, StreamFacts("a", "text/plain", "", closed=False)),
            subscriptions=remote.streams.subscriptions,
            file=file,
        )


def test_every_operation_has_a_call_or_a_reason():
    operations = [route.operation for route in TABLE.routes]
    assert len(set(operations)) == len(operations)
    assert not CALLS.keys() & WITHOUT_CALL.keys()
    assert {*CALLS, *WITHOUT_CALL} == set(operations)


@pytest.mark.parametrize("operation", CALLS)
def test_calls_reach_their_operation(sent, client, operation):
    with pytest.raises(Sent):
        CALLS[operation](client)
    assert sent[0] == operation
