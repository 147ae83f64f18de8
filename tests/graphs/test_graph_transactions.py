"""Calls inside an open transaction: they join it or are refused, and the log stays in order."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import contextmanager, suppress

import pytest
from graph_nodes import APP, Node, with_notes
from test_inserts import attr, parent

from fourfold.errors import FourfoldError, NotFound, Refused
from fourfold.kernel import Migration
from fourfold.models.graphs import Graph, Graphs, Query
from fourfold.models.graphs.feed import FeedFilter
from fourfold.models.graphs.verify import problems


def envelope(types, value, *, app=APP, trace_id="t"):
    def op(name, payload):
        kind = name.partition("_")[0]
        return {
            "op": name,
            "app_id": app,
            "type_id": types[kind],
            "owner_identity": 1,
            "payload": payload,
        }

    ops = [op("parent_create", {}), op("attr_create", {"parent_id": {"$op": 0}, "value": value})]
    return {"trace_id": trace_id, "ops": ops}


def check_log(graphs):
    """The log verifies, and every past state is what was written up to it."""
    with graphs.database.read() as snapshot:
        assert problems(snapshot, "graphs", graphs.node) == []
    rows = graphs.select(Query(APP, "attr"))
    for at in range(graphs.get_global_seq() + 1):
        expected = tuple(row for row in rows if row.global_seq <= at)
        assert graphs.select(Query(APP, "attr", at=at)) == expected


@contextmanager
def rolled_back(graphs):
    """A transaction that fails at the end of the block."""
    with suppress(ZeroDivisionError), graphs.transaction() as txn:
        yield txn
        raise ZeroDivisionError


def traces(graphs):
    with graphs.database.read() as snapshot:
        return dict(snapshot.all("SELECT global_seq, trace_id FROM envelopes WHERE app_id = 1"))


def test_apply_joins_the_open_transaction(graphs, types):
    graphs.apply(envelope(types, "before"))
    with graphs.transaction() as txn:
        first = graphs.insert_parent(APP, parent(types), txn=txn)
        applied = graphs.apply(envelope(types, "joined", trace_id="joined"))
        graphs.insert_attr(APP, attr(types, first), txn=txn)
        second = graphs.insert_parent(APP, parent(types), txn=txn)
    assert applied == (2, (3, 2))
    assert (first, second, graphs.get_global_seq()) == (2, 4, 2)
    assert [(row.id, row.global_seq) for row in graphs.select_attrs(APP)] == [
        (1, 1),
        (2, 2),
        (3, 2),
    ]
    assert traces(graphs) == {1: "t", 2: "joined"}
    check_log(graphs)


def test_apply_many_gives_each_envelope_number_of_open_transaction(graphs, types):
    with graphs.transaction() as txn:
        first = graphs.insert_parent(APP, parent(types), txn=txn)
        several = [envelope(types, n, trace_id=f"many {n}") for n in range(3)]
        applied = graphs.apply_many(several, note=("load", "3"))
        graphs.insert_attr(APP, attr(types, first), txn=txn)
    assert [each.global_seq for each in applied] == [2, 3, 4]
    assert [row.global_seq for row in graphs.select_attrs(APP)] == [2, 3, 4, 4]
    assert traces(graphs) == {1: None, 2: "many 0", 3: "many 1", 4: "many 2"}
    assert graphs.get_setting("load") == "3"
    check_log(graphs)


def test_apply_many_in_a_new_transaction_leaves_no_number_unused(graphs, types):
    with graphs.transaction():
        applied = graphs.apply_many([envelope(types, n) for n in range(2)])
    assert [each.global_seq for each in applied] == [1, 2]
    check_log(graphs)


def test_joined_envelope_rolls_back_with_its_transaction(graphs, types):
    with rolled_back(graphs):
        graphs.apply(envelope(types, "lost"))
    assert (graphs.get_global_seq(), graphs.select_attrs(APP)) == (0, ())
    graphs.apply(envelope(types, "kept"))
    check_log(graphs)


def test_refused_envelope_leaves_the_open_transaction_as_it_was(graphs, types):
    bad = envelope(types, "bad")
    bad["ops"][1]["payload"]["parent_id"] = 99
    with graphs.transaction() as txn:
        first = graphs.insert_parent(APP, parent(types), txn=txn)
        for refused in (graphs.apply, lambda each: graphs.apply_many([envelope(types, 1), each])):
            with pytest.raises(NotFound, match="parent 99"):
                refused(bad)
        graphs.insert_attr(APP, attr(types, first), txn=txn)
    assert [(row.id, row.global_seq) for row in graphs.select_parents(APP)] == [(1, 1)]
    check_log(graphs)


@pytest.mark.parametrize("nested", ["apply", "insert", "transaction"])
def test_work_of_with_transaction_is_joined_too(graphs, types, nested):
    def work(handle):
        first = graphs.insert_parent(APP, parent(types), txn=handle)
        if nested == "transaction":
            with graphs.transaction() as inner:
                assert inner is handle
        elif nested == "apply":
            graphs.apply(envelope(types, "x"))
        else:
            graphs.insert_parent(APP, parent(types))
        graphs.insert_attr(APP, attr(types, first), txn=handle)
        return handle.seq

    assert graphs.with_transaction(work) == graphs.get_global_seq() == 1
    check_log(graphs)


@pytest.mark.timeout(20)
def test_apply_async_joins_the_transaction_of_its_own_task(graphs, types):
    async def write():
        with graphs.transaction() as txn:
            first = graphs.insert_parent(APP, parent(types), txn=txn)
            one = await graphs.apply_async(envelope(types, "one"))
            # Tasks that are started inside the transaction belong to it.
            several = await asyncio.gather(
                *(graphs.apply_async(envelope(types, n)) for n in range(3)),
                graphs.with_transaction_async(lambda handle: handle.seq),
            )
            graphs.insert_attr(APP, attr(types, first), txn=txn)
        return one, several

    one, several = asyncio.run(write())
    assert [one.global_seq, *(each.global_seq for each in several[:3]), several[3]] == [1] * 5
    check_log(graphs)


@pytest.mark.timeout(20)
def test_another_task_does_not_join_an_open_transaction(graphs, types):
    async def other(opened, refused):
        await opened.wait()
        with pytest.raises(Refused, match="another task"):
            graphs.apply(envelope(types, "sync"))
        with pytest.raises(Refused, match="another task"), graphs.transaction():
            pass
        applied = graphs.apply_async(envelope(types, "async"))
        refused.set()
        return await applied

    async def run():
        opened, refused = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(other(opened, refused))
        with rolled_back(graphs):
            graphs.apply(envelope(types, "lost"))
            opened.set()
            await refused.wait()
        return await task

    assert asyncio.run(run()).global_seq == 1
    assert [row.value_text for row in graphs.select_attrs(APP)] == ["async"]
    check_log(graphs)


@pytest.mark.timeout(20)
def test_feed_without_a_timeout_is_refused_inside_a_transaction(graphs, types):
    graphs.apply(envelope(types, "x"))
    with graphs.transaction():
        feed = graphs.feed()
        assert len(feed.next()) == 2
        with pytest.raises(Refused, match="transaction"):
            feed.next()
        with pytest.raises(Refused, match="transaction"):
            asyncio.run(feed.next_async())
        assert feed.next(0) == ()


def test_set_limits_returns_what_the_open_transaction_set(graphs, types):
    with graphs.transaction():
        app = graphs.register_app("market", "Market").app_id
        assert graphs.set_limits(app, rows_max=7).rows_max == 7
    assert graphs.usage(app).rows_max == 7


# Every public call. Each gets the graphs, the open transaction and a package of a peer.

ROW = {"type_id": 1, "owner_identity": 1}
CALLS = {
    "add_identity": lambda g, t, _: g.add_identity("ed25519:new"),
    "add_peer": lambda g, t, _: g.add_peer(1, "file:new"),
    "analyze": lambda g, t, _: g.analyze(),
    "app": lambda g, t, _: g.app(APP),
    "apply": lambda g, t, _: g.apply(envelope(TYPES, "x")),
    "apply_async": lambda g, t, _: asyncio.run(g.apply_async(envelope(TYPES, "x"))),
    "apply_many": lambda g, t, _: g.apply_many([envelope(TYPES, n) for n in range(3)]),
    "backup": lambda g, t, _: g.backup(g.database.path.parent / "copy.db"),
    "checkpoint": lambda g, t, _: g.checkpoint(),
    "allow_peer": lambda g, t, _: g.allow_peer(1, "notes", may_write=False),
    "confirm_tips": lambda g, t, _: g.confirm_tips(1, g.sync_tips("notes")),
    "count_logs": lambda g, t, _: g.count_logs("notes"),
    "domain_apps": lambda g, t, _: g.domain_apps("notes"),
    "export_entries": lambda g, t, _: g.export_entries("notes", []),
    "find_peer": lambda g, t, _: g.find_peer("unknown"),
    "list_peer_rights": lambda g, t, _: g.list_peer_rights(),
    "newest_arrival": lambda g, t, _: g.newest_arrival(),
    "peer_right": lambda g, t, _: g.peer_right(1, "notes"),
    "reconcile": lambda g, t, _: g.reconcile("notes"),
    "sign_shared": lambda g, t, _: g.sign_shared("notes", SIGNER),
    "sync_heads": lambda g, t, _: g.sync_heads("notes"),
    "migrate_sync": lambda g, t, _: g.migrate_sync(g.database.path.parent / "copy.db"),
    "parked_rows": lambda g, t, _: g.parked_rows(),
    "restrict_domain": lambda g, t, _: g.restrict_domain("notes", [APP]),
    "sync_refusals": lambda g, t, _: g.sync_refusals(),
    "sync_forks": lambda g, t, _: g.sync_forks(),
    "sync_tips": lambda g, t, _: g.sync_tips("notes"),
    "count": lambda g, t, _: g.with_read_only(lambda r: g.count(t.txn, APP, "parent")),
    "create": lambda g, t, _: g.create("market", "Market"),
    "current": lambda g, t, _: g.current(Query(APP, "parent")),
    "current_attrs": lambda g, t, _: g.current_attrs(APP),
    "current_parents": lambda g, t, _: g.current_parents(APP),
    "define_domain": lambda g, t, _: g.define_domain("new", 4),
    "domains": lambda g, t, _: g.domains(),
    "domains_in": lambda g, t, _: g.domains_in(t.txn),
    "drop_cached": lambda g, t, _: g.drop_cached("owner"),
    "durable_seq": lambda g, t, _: g.durable_seq(),
    "ensure_app_schema": lambda g, t, _: g.ensure_app_schema(APP),
    "export_package": lambda g, t, _: g.export_package("notes", SIGNER),
    "feed": lambda g, t, _: list(g.feed(timeout=0)),
    "follow": lambda g, t, _: list(g.follow(timeout=0)),
    "get_cached": lambda g, t, _: g.get_cached("owner", "key"),
    "get_global_seq": lambda g, t, _: g.get_global_seq(),
    "get_setting": lambda g, t, _: g.get_setting("key"),
    "grant": lambda g, t, _: g.grant(["diagnostics"]),
    "health": lambda g, t, _: g.health(),
    "in_transaction": lambda g, t, _: g.in_transaction(),
    "increment_domain_seq": lambda g, t, _: g.increment_domain_seq("notes"),
    "ingest_package": lambda g, t, sent: g.ingest_package(1, sent),
    "insert": lambda g, t, _: g.insert(APP, "parent", [ROW] * 40),
    "insert_attr": lambda g, t, _: g.insert_attr(APP, attr(TYPES, 1)),
    "insert_edge": lambda g, t, _: g.insert_edge(APP, edge(1)),
    "insert_log": lambda g, t, _: g.insert_log(APP, "info", "x", "{}"),
    "insert_many_attrs": lambda g, t, _: g.insert_many_attrs(APP, [attr(TYPES, 1)] * 20),
    "insert_many_edges": lambda g, t, _: g.insert_many_edges(APP, [edge(1)] * 20),
    "insert_many_parents": lambda g, t, _: g.insert_many_parents(APP, [ROW] * 20),
    "insert_many_ratings": lambda g, t, _: g.insert_many_ratings(APP, [rating(1)] * 20),
    "insert_parent": lambda g, t, _: g.insert_parent(APP, ROW),
    "insert_rating": lambda g, t, _: g.insert_rating(APP, rating(1)),
    "integrity_check": lambda g, t, _: g.integrity_check(g.grant(["diagnostics"])),
    "describe": lambda g, t, _: g.describe(APP),
    "list": lambda g, t, _: g.list(),
    "list_apps": lambda g, t, _: g.list_apps(),
    "list_identities": lambda g, t, _: g.list_identities(),
    "list_peers": lambda g, t, _: g.list_peers(),
    "list_settings": lambda g, t, _: g.list_settings(),
    "gc": lambda g, t, _: g.gc(),
    "list_types": lambda g, t, _: g.list_types(APP),
    "load_domain_seq": lambda g, t, _: g.load_domain_seq("notes"),
    "metrics": lambda g, t, _: g.metrics(),
    "neighbours": lambda g, t, _: g.neighbours(APP, 1),
    "newest": lambda g, t, _: g.newest(APP, "parent", 1),
    "next_global_seq": lambda g, t, _: g.next_global_seq(t),
    "open": lambda g, t, _: g.open(APP),
    "page": lambda g, t, _: g.page(FeedFilter(), 0, 10, durable=False),
    "position": lambda g, t, _: g.position(),
    "put_cached": lambda g, t, _: g.put_cached("owner", "key", "1", 0),
    "read_many": lambda g, t, _: g.read_many(APP, [1]),
    "read_only": lambda g, t, _: g.read_only(lambda reader: reader.newest_seq()),
    "rebuild_identities": lambda g, t, _: g.rebuild_identities(),
    "record_sync_progress": lambda g, t, _: g.record_sync_progress(1, "notes", 10**6),
    "register_app": lambda g, t, _: g.register_app("market", "Market"),
    "register_type": lambda g, t, _: g.register_type(APP, "parent", "another"),
    "revoke": lambda g, t, _: g.revoke(g.grant(["diagnostics"])),
    "select": lambda g, t, _: g.select(Query(APP, "parent")),
    "select_attrs": lambda g, t, _: g.select_attrs(APP),
    "select_edges": lambda g, t, _: g.select_edges(APP),
    "select_logs": lambda g, t, _: g.select_logs(APP),
    "select_parents": lambda g, t, _: g.select_parents(APP),
    "select_pending_rows": lambda g, t, _: g.select_pending_rows(APP, "parent", 1, 10, 0),
    "select_ratings": lambda g, t, _: g.select_ratings(APP),
    "seq_at": lambda g, t, _: g.seq_at(1),
    "set_rule": lambda g, t, _: g.set_rule(APP, "attr", "note attr", {"most": 10**6}),
    "set_limits": lambda g, t, _: g.set_limits(APP, rows_max=10**6),
    "snapshot": lambda g, t, _: g.snapshot().__enter__(),
    "sync_progress": lambda g, t, _: g.sync_progress(),
    "transaction": lambda g, t, _: nested(g),
    "update": lambda g, t, _: g.update(APP, "attr", 1, {"value_text": "new"}),
    "update_sync_flags": lambda g, t, _: g.update_sync_flags(APP, "parent", [1, 2], 1),
    "upgrade_app": lambda g, t, _: g.upgrade_app(APP, [INDEX]),
    "upsert_setting": lambda g, t, _: g.upsert_setting("key", "value"),
    "usage": lambda g, t, _: g.usage(APP),
    "vacuum": lambda g, t, _: g.vacuum(),
    "verify": lambda g, t, _: g.verify(),
    "versions": lambda g, t, _: g.versions(APP, "parent", 1),
    "with_read_only": lambda g, t, _: g.with_read_only(lambda reader: reader.newest_seq()),
    "with_transaction": lambda g, t, _: g.with_transaction(lambda h: g.insert_parent(APP, ROW)),
    "with_transaction_async": lambda g, t, _: asyncio.run(
        g.with_transaction_async(lambda h: g.insert_parent(APP, ROW, txn=h))
    ),
    "with_txn": lambda g, t, _: g.with_txn(lambda h: h.seq),
    "write_batch": lambda g, t, _: g.write_batch(lambda h: g.apply(envelope(TYPES, "x"))),
}
HANDLE_CALLS = {
    "aggregate": lambda app, t: app.aggregate("note rating"),
    "apply": lambda app, t: app.apply(OPERATIONS, owner=1, trace_id="applied"),
    "apply_async": lambda app, t: asyncio.run(
        app.apply_async(OPERATIONS, owner=1, trace_id="applied")
    ),
    "count": lambda app, t: app.count(1),
    "envelopes": lambda app, t: app.envelopes("t"),
    "exists": lambda app, t: app.exists(1, 1),
    "find": lambda app, t: app.find("note attr"),
    "follow": lambda app, t: list(app.follow(timeout=0)),
    "history": lambda app, t: app.history("parent", 1),
    "insert": lambda app, t: (app.insert("parent", [ROW]), app.insert("parent", [ROW], txn=t)),
    "log": lambda app, t: app.log(),
    "describe": lambda app, t: app.describe(),
    "match": lambda app, t: app.match({"nodes": {"a": {}}}),
    "set_limits": lambda app, t: app.set_limits(rows_max=10**6),
    "set_rule": lambda app, t: app.set_rule("attr", "note attr", {"most": 10**6}),
    "neighbours": lambda app, t: app.neighbours(1),
    "objects": lambda app, t: app.objects("parent"),
    "path": lambda app, t: app.path(1, 1),
    "position": lambda app, t: app.position(),
    "read": lambda app, t: app.read("parent", 1),
    "read_many": lambda app, t: app.read_many([1]),
    "register_type": lambda app, t: app.register_type("parent", "another"),
    "top": lambda app, t: app.top("note rating"),
    "traverse": lambda app, t: app.traverse(1),
    "types": lambda app, t: app.types(),
    "update": lambda app, t: app.update("attr", 1, {"value_text": "new"}),
}
"""Calls of the handle of one app."""
ALL = {
    **CALLS,
    **{
        f"graph.{name}": lambda g, t, _, call=call: call(g.open(APP), t)
        for name, call in HANDLE_CALLS.items()
    },
}
OPERATIONS = [{"op": "parent_create", "type_id": 1, "payload": {}}]
REFUSED = {"analyze", "checkpoint", "vacuum"}
"""Calls that need the writer for themselves."""
TYPES = {"parent": 1, "attr": 2, "edge": 3, "rating": 4, "suppress": 5}
INDEX = Migration(2, "values", "CREATE INDEX {app}_attr_values ON {app}_attr (value_text)")
SIGNER = None


def edge(src):
    return {"type_id": 3, "owner_identity": 1, "src_parent_id": src, "dst_parent_id": src}


def rating(target):
    return {"type_id": 4, "owner_identity": 1, "target_parent_id": target}


def nested(graphs):
    with graphs.transaction() as txn:
        return graphs.insert_parent(APP, ROW, txn=txn)


@pytest.mark.parametrize(("handle", "calls"), [(Graphs, CALLS), (Graph, HANDLE_CALLS)])
def test_every_public_call_is_tried_inside_a_transaction(handle, calls):
    public = {
        name
        for name, member in inspect.getmembers(handle)
        if not name.startswith("_") and callable(member)
    }
    assert public == calls.keys()


@pytest.fixture
def node(tmp_path, monkeypatch):
    """A node with a peer, and a package of that peer which it does not have yet."""
    here, there = (Node(tmp_path / f"{n}.db", n + 1) for n in range(2))
    here.meet(there)
    there.graphs.insert_parent(APP, {**ROW, "owner_identity": there.me, "sync_flags": 1})
    sent = there.graphs.export_package("notes", there.signer)
    there.graphs.database.close()
    here.graphs.apply(envelope(here.types, "before"))
    monkeypatch.setattr(__import__(__name__), "SIGNER", here.signer)
    assert here.types == TYPES
    yield here.graphs, sent.data
    here.graphs.database.close()


@pytest.mark.timeout(30)
@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("fails", [False, True], ids=["committed", "rolled back"])
def test_public_call_keeps_the_log_in_order_inside_a_transaction(node, name, fails):
    graphs, package = node
    before = graphs.get_global_seq(), len(graphs.select_parents(APP))
    with rolled_back(graphs) if fails else graphs.transaction() as txn:
        first = graphs.insert_parent(APP, ROW, txn=txn)
        if name in REFUSED:
            with pytest.raises(FourfoldError):
                ALL[name](graphs, txn, package)
        else:
            ALL[name](graphs, txn, package)
        graphs.insert_attr(APP, attr(TYPES, first), txn=txn)
        graphs.insert_parent(APP, ROW, txn=txn)
    if fails:
        assert (graphs.get_global_seq(), len(graphs.select_parents(APP))) == before
    graphs.apply(envelope(TYPES, "after"))
    check_log(graphs)


def test_transactions_of_two_stores_can_be_open_at_once(graphs, types, tmp_path):
    other = Node(tmp_path / "other.db", 5).graphs
    with graphs.transaction(), other.transaction():
        graphs.apply(envelope(types, "here"))
        other.apply(envelope(types, "there"))
        graphs.insert_parent(APP, parent(types))
    other.database.close()
    assert graphs.get_global_seq() == 1
    check_log(graphs)
    assert with_notes(graphs) == types
