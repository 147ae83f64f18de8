"""Random lives of three nodes, compared with a naive model that keeps every row.

The machine writes envelopes to two apps, alone and from several threads at once, some of which must
fail, updates objects, reads any past number, pages through the feed with and without filters,
exchanges packages in any order, and reopens files.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import product
from pathlib import Path
from unittest import mock

import pytest
from graph_nodes import APP, SHARED, Node, everything
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fourfold import limits
from fourfold.errors import FourfoldError, Refused, RuleBroken
from fourfold.kernel.backup import restore
from fourfold.models.graphs import GLOBAL_SEQ, Query, fold
from fourfold.models.graphs.verify import problems
from support.properties import examples, repeats

MARKET = 2
ANY_APP = st.sampled_from([APP, MARKET])
NODE = st.integers(0, 2)
TEXT = st.text("abé😀", max_size=4)
VALUE = st.one_of(
    TEXT, st.integers(-5, 5), st.booleans(), st.none(), st.lists(st.integers(), max_size=2)
)
BITS = [0, SHARED, 2, SHARED | 2]
FLAGS = st.sampled_from(BITS)
MIXED = st.lists(FLAGS, min_size=5, max_size=5)
"""The flags of each operation of an envelope."""
PICK = st.integers(0, 10**6)


class Model:
    """What one node received, in order: (seq, (app, kind), object, version, owner, value)."""

    def __init__(self):
        self.rows = []
        self.seq = 0

    def current(self, kind, at):
        newest = {}
        for seq, each, object_id, version, _, value in self.rows:
            if each == kind and seq <= at:
                known = newest.get(object_id)
                if known is None or version > known[0]:
                    newest[object_id] = (version, value)
        return {object_id: value for object_id, (_, value) in newest.items()}


class ThreeNodes(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="fourfold-graphs-"))
        self.nodes = [Node(self.root / f"{n}.db", n + 1) for n in range(3)]
        for node in self.nodes:
            for other in self.nodes:
                if other is not node:
                    node.meet(other)
                    node.graphs.register_app("market", "Market")
        for node in self.nodes:
            for kind, number in node.types.items():
                key = (kind, f"note {kind}") if kind != "suppress" else ("rating", kind)
                assert node.graphs.register_type(MARKET, *key) == number
        self.models = [Model() for _ in self.nodes]
        for node, model in zip(self.nodes, self.models, strict=True):
            # The nodes themselves are objects of the system's app.
            model.seq = node.graphs.get_global_seq()

    def teardown(self):
        try:
            for n in range(len(self.nodes)):
                self.check_feeds(n, 1, None, 0)
        finally:
            self.close()

    def close(self):
        for node in self.nodes:
            node.graphs.database.close()
        shutil.rmtree(self.root)

    def operation(self, node, op, payload, flags, app=APP):
        kind = op.partition("_")[0]
        return {
            "op": op,
            "app_id": app,
            "type_id": node.types[kind],
            "owner_identity": node.me,
            "payload": {**payload, "sync_flags": flags},
        }

    def envelope(self, node, values, flags, app):
        """A parent, attributes and an edge; `flags` of each, of which it keeps those that what it
        points at has as well.
        """

        def op(name, payload, bits):
            return self.operation(node, name, payload, bits, app)

        own = flags[0]
        ops = [op("parent_create", {}, own)]
        for value, bits in zip(values, flags[1:], strict=False):
            ops.append(op("attr_create", {"parent_id": {"$op": 0}, "value": value}, bits & own))
        ends = {"src_parent_id": {"$op": 0}, "dst_attr_id": {"$op": 1}}
        ops.append(op("edge_create", ends, flags[-1] & flags[1] & own))
        return {"trace_id": "t", "ops": ops}

    def was_applied(self, n, values, app, done):
        model, kinds = self.models[n], ["parent", *["attr"] * len(values), "edge"]
        payloads = [None, *values, None]
        for kind, object_id, value in zip(kinds, done.object_ids, payloads, strict=True):
            row = (done.global_seq, (app, kind), object_id, 1, self.nodes[n].me, value)
            model.rows.append(row)

    @rule(n=NODE, values=st.lists(VALUE, min_size=1, max_size=3), flags=MIXED, app=ANY_APP)
    def write(self, n, values, flags, app):
        given = self.envelope(self.nodes[n], values, flags, app)
        done = self.nodes[n].graphs.apply(given)
        # What was handed in is the caller's again.
        given["ops"].clear()
        self.models[n].seq += 1
        assert done.global_seq == self.models[n].seq
        self.was_applied(n, values, app, done)

    @rule(n=NODE, several=st.lists(st.tuples(VALUE, MIXED, ANY_APP), min_size=2, max_size=6))
    def write_at_once(self, n, several):
        """Several threads, each with an envelope of its own: who comes first is chance."""
        node, model = self.nodes[n], self.models[n]
        work = [(self.envelope(node, [v], flags, app), v, app) for v, flags, app in several]
        with ThreadPoolExecutor(len(work)) as pool:
            done = list(pool.map(lambda each: node.graphs.apply(each[0]), work))
        numbers = sorted(each.global_seq for each in done)
        assert numbers == list(range(model.seq + 1, model.seq + len(work) + 1))
        model.seq = numbers[-1]
        for each, (_, value, app) in zip(done, work, strict=True):
            self.was_applied(n, [value], app, each)
        model.rows.sort(key=lambda row: row[0])

    @rule(
        n=NODE, several=st.lists(st.tuples(VALUE, MIXED, ANY_APP), max_size=3), fails=st.booleans()
    )
    def write_in_one_transaction(self, n, several, fails):
        """Inserts, envelopes that join, more numbers, and flags of rows that it wrote itself."""
        node, model = self.nodes[n], self.models[n]
        before = model.seq, list(model.rows)
        with suppress(ZeroDivisionError), node.graphs.transaction() as txn:
            self.insert_and_flag(n, txn)
            for value, flags, app in several[:1]:
                done = node.graphs.apply(self.envelope(node, [value], flags, app))
                assert done.global_seq == txn.seq == model.seq
                self.was_applied(n, [value], app, done)
            given = [self.envelope(node, [v], flags, app) for v, flags, app in several[1:]]
            for done, (value, _, app) in zip(
                node.graphs.apply_many(given), several[1:], strict=True
            ):
                model.seq += 1
                assert done.global_seq == model.seq
                self.was_applied(n, [value], app, done)
            self.insert_and_flag(n, txn)
            if fails:
                model.seq, model.rows = before
                raise ZeroDivisionError

    def insert_and_flag(self, n, txn):
        """A parent with an attribute, private at first and shared before the transaction ends."""
        node, model = self.nodes[n], self.models[n]
        row = {"owner_identity": node.me}
        ids = node.graphs.insert(APP, "parent", [{**row, "type_id": node.types["parent"]}], txn=txn)
        [parent] = ids
        ids.clear()
        attr = {**row, "type_id": node.types["attr"], "parent_id": parent, "value_text": "flagged"}
        made = node.graphs.insert_attr(APP, attr)
        node.graphs.update_sync_flags(APP, "parent", [parent], SHARED, txn=txn)
        node.graphs.update_sync_flags(APP, "attr", [made], SHARED)
        model.seq = max(model.seq, txn.seq)
        for kind, object_id, value in (("parent", parent, None), ("attr", made, "flagged")):
            model.rows.append((txn.seq, (APP, kind), object_id, 1, node.me, value))

    @rule(n=NODE, app=ANY_APP, kind=st.sampled_from(["parent", "attr", "edge"]), pick=PICK)
    def toggle_a_flag(self, n, app, kind, pick):
        """A bit that no domain has, so that nothing but the feed is about it."""
        graphs = self.nodes[n].graphs
        if rows := graphs.select(Query(app, kind)):
            row = rows[pick % len(rows)]
            assert graphs.update_sync_flags(app, kind, [row.id], row.sync_flags ^ 2) == 1

    @rule(n=NODE)
    def change_what_was_handed_out(self, n):
        graphs = self.nodes[n].graphs
        graphs.domains().clear()
        assert graphs.domains() == {"notes": SHARED}
        with pytest.raises(TypeError):
            graphs.list_settings()["key"] = "value"

    @rule(n=NODE)
    def register_an_app_again(self, n):
        """A name that was rolled back is free, and one that is taken keeps its number."""
        graphs = self.nodes[n].graphs
        with suppress(ZeroDivisionError), graphs.transaction():
            assert graphs.register_app("gone", "Gone").app_id == MARKET + 1
            raise ZeroDivisionError
        assert graphs.register_app("market", "Another title").app_id == MARKET
        assert [app.app_id for app in graphs.list_apps()] == [0, APP, MARKET]

    @rule(n=NODE)
    def restore_and_go_on(self, n):
        node = self.nodes[n]
        copy = self.root / "copy.db"
        node.graphs.backup(copy)
        node.graphs.database.close()
        restore(copy, node.path, (GLOBAL_SEQ,))
        for left in self.root.glob("copy.db*"):
            left.unlink()
        node.open()

    @rule(n=NODE, at=st.integers(0, 3), what=st.sampled_from(["type", "parent", "value", "field"]))
    def write_what_must_fail(self, n, at, what):
        node = self.nodes[n]
        before = everything(node.graphs), node.graphs.get_global_seq(), node.graphs.usage(APP)
        ops = [self.operation(node, "parent_create", {}, 0) for _ in range(4)]
        bad = {
            "type": {**ops[at], "type_id": 10**6},
            "parent": self.operation(node, "attr_create", {"parent_id": 10**6}, 0),
            "value": self.operation(
                node, "attr_create", {"parent_id": {"$op": 0}, "value": float("nan")}, 0
            ),
            "field": self.operation(node, "parent_create", {"colour": "red"}, 0),
        }
        ops[at] = bad[what]
        with pytest.raises(FourfoldError, match=rf"ops\[{at}\]"):
            node.graphs.apply({"trace_id": "t", "ops": ops})
        after = everything(node.graphs), node.graphs.get_global_seq(), node.graphs.usage(APP)
        assert after == before

    @rule(n=NODE, pick=PICK, value=VALUE, flags=FLAGS)
    def update(self, n, pick, value, flags):
        node, model = self.nodes[n], self.models[n]
        own = [row for row in model.rows if row[1] == (APP, "attr") and row[4] == node.me]
        if not own:
            return
        _, _, object_id, _, _, _ = own[pick % len(own)]
        version = max(row[3] for row in model.rows if row[1:3] == ((APP, "attr"), object_id))
        op = self.operation(node, "attr_update", {"attr_id": object_id, "value": value}, flags)
        first = node.graphs.versions(APP, "attr", object_id)[0]
        if flags & ~first.sync_flags:
            with pytest.raises(Refused, match="flags"):
                node.graphs.apply({"trace_id": "t", "ops": [op]})
            return
        node.graphs.apply({"trace_id": "t", "ops": [op]})
        model.seq += 1
        model.rows.append((model.seq, (APP, "attr"), object_id, version + 1, node.me, value))

    @rule(n=NODE, app=ANY_APP, flags=MIXED, one=VALUE, other=VALUE)
    def write_the_same_again_after_another(self, n, app, flags, one, other):
        """A, B, A: three versions, of which each is current in its turn."""
        node, model = self.nodes[n], self.models[n]
        self.write(n, [one], flags, app)
        object_id = next(row[2] for row in reversed(model.rows) if row[1] == (app, "attr"))
        for version, value in enumerate((other, one), start=2):
            payload = {"attr_id": object_id, "value": value}
            op = self.operation(node, "attr_update", payload, flags[1] & flags[0], app)
            node.graphs.apply({"trace_id": "t", "ops": [op]})
            model.seq += 1
            model.rows.append((model.seq, (app, "attr"), object_id, version, node.me, value))
            row = node.graphs.newest(app, "attr", object_id)
            assert (value_of(row), row.version) == (value, version)

    @rule(n=NODE, other=NODE, limit=st.integers(1, 6))
    def pull(self, n, other, limit):
        node, source = self.nodes[n], self.nodes[other]
        if node is source:
            return
        before = {kind: len(rows) for kind, rows in all_rows(node.graphs).items()}
        sent, done = node.pull(source, max_bytes=limit * 400)
        assert not done.refused
        self.learn(n, before)
        again = node.graphs.ingest_package(node.peers[source.path], sent.data)
        assert (again.accepted, again.added) == (0, 0)

    @rule(n=NODE, other=NODE, limit=st.integers(1, 6))
    def pull_while_a_rule_holds(self, n, other, limit):
        """Rows of peers that break it wait until it is removed; writes are refused."""
        node, source = self.nodes[n], self.nodes[other]
        if node is source:
            return
        before = {kind: len(rows) for kind, rows in all_rows(node.graphs).items()}
        ruled = APP, "attr", "note attr"
        try:
            node.graphs.set_rule(*ruled, {"value": "text"})
        except RuleBroken:
            assert any(row.value_text is None for row in everything(node.graphs)["attr"])
            return
        _, done = node.pull(source, max_bytes=limit * 400)
        assert not done.refused
        assert all(row.value_text is not None for row in everything(node.graphs)["attr"])
        written = everything(node.graphs), node.graphs.get_global_seq()
        ops = [self.operation(node, "parent_create", {}, 0)]
        wrong = {"parent_id": {"$op": 0}, "value": 1.5}
        ops.append(self.operation(node, "attr_create", wrong, 0))
        with pytest.raises(RuleBroken):
            node.graphs.apply({"trace_id": "t", "ops": ops})
        assert (everything(node.graphs), node.graphs.get_global_seq()) == written
        node.graphs.set_rule(*ruled, None)
        self.learn(n, before)

    def learn(self, n, before):
        """The model hears of rows that came from elsewhere, by what the tables say is new."""
        node, model = self.nodes[n], self.models[n]
        for kind, rows in all_rows(node.graphs).items():
            for row in rows[before[kind] :]:
                value = value_of(row) if kind[1] == "attr" else None
                model.rows.append(
                    (row.global_seq, kind, row.object_id, row.version, row.owner_identity, value)
                )
        model.rows.sort(key=lambda row: row[0])
        model.seq = node.graphs.get_global_seq()

    @rule(n=NODE)
    def reopen(self, n):
        self.nodes[n].reopen()

    @rule(n=NODE, pick=PICK)
    def look_back(self, n, pick):
        node, model = self.nodes[n], self.models[n]
        at = pick % (model.seq + 1)
        for app, kind in product((APP, MARKET), ("parent", "attr", "edge")):
            question = Query(app, kind, at=at)
            found = {
                row.object_id: value_of(row) if kind == "attr" else None
                for row in node.graphs.current(question, suppressed=True)
            }
            assert found == model.current((app, kind), at)
            # The same by the pure fold over the rows as they were written.
            folded = fold.current(node.graphs.select(question), node.graphs.node)
            assert set(folded) == set(found)

    @rule(
        n=NODE,
        limit=st.sampled_from([1, 1, 2, 7, 40]),
        apps=st.sampled_from([None, [APP], [MARKET, 0]]),
        after=st.one_of(st.just(0), PICK),
    )
    def page_through_the_feed(self, n, limit, apps, after):
        self.check_feeds(n, limit, apps, after)

    def check_feeds(self, n, limit, apps, after):
        for mask, kinds in product((None, SHARED, 2), (None, ["attr"], ["parent", "edge"])):
            self.check_feed(n, limit, mask, apps, kinds, after)

    def check_feed(self, n, limit, mask, apps, kinds, after):
        """A feed with filters shows what a filter of all rows leaves."""
        graphs = self.nodes[n].graphs
        start = after % (self.models[n].seq + 1)
        feed = graphs.feed(
            after=start, apps=apps, kinds=kinds, limit=limit, flag_mask=mask, timeout=0
        )
        seen, last = [], start
        # A look goes through few numbers, so that some find nothing before the end.
        with mock.patch.object(limits, "FEED_PAGE_ROWS", 1):
            found = list(feed)
        for page in found:
            numbers = [change.global_seq for change in page]
            assert numbers == sorted(numbers)
            assert numbers[0] > last
            last = numbers[-1]
            places = [(change.global_seq, change.row.position) for change in page]
            assert places == sorted(places)
            assert len(page) <= limit or len(set(numbers)) == 1
            seen += [(change.app_id, change.kind, change.row.id) for change in page]
        wanted = [
            (app, kind, row.id)
            for (app, kind), rows in all_rows(graphs, (0, APP, MARKET)).items()
            for row in rows
            if row.global_seq > start
            and (mask is None or row.sync_flags & mask)
            and (apps is None or app in apps)
            and (kinds is None or kind in kinds)
        ]
        assert sorted(seen) == sorted(wanted)
        assert feed.position == self.models[n].seq

    @rule(n=NODE, limit=st.integers(1, 5))
    def page_through_pending_rows(self, n, limit):
        graphs = self.nodes[n].graphs
        for kind, rows in everything(graphs).items():
            seen, after = [], 0
            while page := graphs.select_pending_rows(APP, kind, SHARED, limit, after):
                seen += page
                after = page[-1].global_seq
            assert seen == [row for row in rows if row.sync_flags & SHARED]

    @rule()
    def everybody_pulls_until_nothing_is_new(self):
        for _ in range(2):
            for n, node in enumerate(self.nodes):
                for other in self.nodes:
                    if other is not node:
                        before = {k: len(rows) for k, rows in all_rows(node.graphs).items()}
                        node.pull_all(other)
                        self.learn(n, before)
        shared = [shared_content(node.graphs) for node in self.nodes]
        assert shared[0] == shared[1] == shared[2]

    @invariant()
    def numbers_are_dense_and_nothing_is_wrong(self):
        for node, model in zip(self.nodes, self.models, strict=True):
            assert node.graphs.get_global_seq() == model.seq
            with node.graphs.database.read() as snapshot:
                assert problems(snapshot, "graphs", node.graphs.node) == []


def all_rows(graphs, apps=(APP, MARKET)):
    """The rows of several apps, by app and kind."""
    return {(app, kind): rows for app in apps for kind, rows in everything(graphs, app).items()}


def value_of(row):
    """The value that a row was made from."""
    if row.value_text is not None:
        return row.value_text
    if row.value_number is not None:
        return row.value_number
    return json.loads(row.value_json)


def shared_content(graphs):
    """What every node must agree on: objects whose first row was shared, and their newest version
    among those that were shared.
    """
    with graphs.database.read() as snapshot:
        sql = "SELECT app_id, kind, local_id, hex(row_id) FROM sync_row WHERE local_id IS NOT NULL"
        ids = {(row[0], row[1], row[2]): row[3] for row in snapshot.all(sql)}
    found = {}
    for (app, kind), rows in all_rows(graphs).items():
        shared = {row.id for row in rows if row.id == row.object_id and row.sync_flags & SHARED}
        for row in rows:
            if row.object_id in shared and row.sync_flags & SHARED:
                key = (app, kind, ids[app, kind, row.object_id])
                rank = (row.version, ids[app, kind, row.id])
                value = getattr(row, "value_text", None), getattr(row, "value_json", None)
                found[key] = max(found.get(key, (rank, value)), (rank, value))
    return found


ThreeNodes.TestCase.settings = settings(max_examples=examples(15), stateful_step_count=25)
TestThreeNodes = ThreeNodes.TestCase


class LongLives(ThreeNodes):
    """The same, for longer and more often."""


LongLives.TestCase.settings = settings(max_examples=repeats(200), stateful_step_count=40)
TestLongLives = pytest.mark.slow(pytest.mark.timeout(1800)(LongLives.TestCase))
