"""Every table that is read from the archive has the rows of the live files."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
import random_graphs
import random_sessions
from archive_reads import archived, live_rows, options_of, publish, same
from hypothesis import HealthCheck, given, settings
from hypothesis import seed as seeded

import fourfold
from fourfold.models.documents import GcPolicy
from fourfold.pipeline import cut
from fourfold.pipeline.archive_plan import plan_archive
from fourfold.pipeline.models import get_model
from fourfold.pipeline.options import read_options
from fourfold.pipeline.sessions.derivation import derive_batches
from fourfold.query.sessions.tables import TABLES as SESSIONS
from fourfold.query.tables import Column, arrow_schema
from fourfold.store import retention

FACTS, REVISIONS = "did:web:facts.example", "did:web:revisions.example"
OF_FACTS = ("commits", "revisions", "facts", "state", "history")
OF_SESSIONS = ("events", "messages", "turns", "steps", "evals", "heads", "edges")
OF_GRAPHS = ("parents", "attrs", "edges", "ratings", "changes", "envelopes")


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FOURFOLD_PIPELINE_CACHE_FOLDER", str(tmp_path / "cache"))


def reads_of(root, model, names, **more):
    return [options_of(root, name, model, **more) for name in names]


def test_tables_of_the_archive_are_those_listed_here():
    assert set(get_model("documents").archived()) == {*OF_FACTS}
    assert set(get_model("sessions").archived()) == {*OF_SESSIONS}
    assert set(get_model("graphs").archived()) == {*OF_GRAPHS}


def test_derived_columns_of_events_are_those_of_sqlite(tmp_path):
    with fourfold.open(tmp_path) as store:
        random_sessions.lives_of(store.sessions, 60, seed=3)
        say(store, "talk", "Hello.")
        for role in (2**70, -(2**63), 1e-7, 1e21, 1.5e300, 0.1 + 0.2, True, "", "\u00e9\n", [2.0]):
            store.sessions.append_event(
                "talk", {"type": "message/appended", "message": {"role": role, "turn_id": role}}
            )
    events = live_rows(options_of(tmp_path, "events"))
    schema = arrow_schema([Column("started", "timestamp"), *SESSIONS.table("events").columns])
    conditions = {
        "messages": lambda row: row["entity"] == "message",
        "evals": lambda row: row["entity"] == "eval",
        "turns": lambda row: row["entity"] == "turn",
        "steps": lambda row: row["entity"] == "step",
        "heads": lambda row: row["type"] == "head/published",
        "edges": lambda row: row["type"] == "lineage/edge-added",
    }
    for name, condition in conditions.items():
        rows = [timeless(row) for row in events if condition(row)]
        if name in {"turns", "steps"}:
            newest = {(row["session"], row["entity_id"]): row for row in rows}
            rows = list(newest.values())
        batch = pa.RecordBatch.from_pylist(rows, schema=schema)
        output = SESSIONS.table(name).select_columns()
        derived = [
            timeless(row)
            for result in derive_batches([batch], name, output)
            for row in result.to_pylist()
        ]
        expected = [timeless(row) for row in live_rows(options_of(tmp_path, name, "sessions"))]
        assert sorted(map(repr, derived)) == sorted(map(repr, expected)) != []


def timeless(row):
    return row | {name: None for name in ("time", "started") if name in row}


def say(store, sid, text):
    agent = fourfold.Runtime(store.sessions, lambda turn: fourfold.Final("done"))
    agent.start({"id": sid, "model": "any"})
    agent.run_turn(sid, text)


class Lives:
    """A store with random spaces, sessions and graphs, and the reads that are compared."""

    def __init__(self, store, other, seed):
        self.store, self.seed = store, seed
        self.graphs = random_graphs.Life(store, other)
        self.facts = store.space(FACTS, history="facts")
        store.space(REVISIONS).set("one", {"n": 1})

    def live(self):
        """Write into all models."""
        self.seed += 1
        self.facts.transact([{"op": "set", "id": name, "value": {"n": 1}} for name in "ab"])
        name = f"branch-{self.seed}"
        self.facts.branches.create(name)
        # The same fact on two branches, and one value with two spellings.
        for branch in ("", name):
            self.facts.set("shared", {"n": self.seed}, branch=branch)
        self.facts.set("c", {"n": 1.0 * self.seed}, branch=name)
        self.facts.patch("a", [{"op": "add", "path": "/m", "value": [self.seed]}])
        self.seq = self.facts.delete("b").seq
        sessions_live(self.store.sessions, self.seed)
        say(self.store, f"talk-{self.seed}", "Hello.")
        random_graphs.lives_of(self.graphs, 8, seed=self.seed)

    def reads(self, **more):
        root = self.store.root
        return [
            *reads_of(root, "documents", OF_FACTS[:3], **more),
            *reads_of(root, "documents", OF_FACTS[3:], branch="*", **more),
            *reads_of(root, "sessions", OF_SESSIONS, **more),
            *reads_of(root, "graphs", OF_GRAPHS, **more),
        ]

    def past(self):
        """Return reads at past positions, of ranges, of selected rows and columns."""
        root, draw = self.store.root, random.Random(self.seed)
        seq = self.seq
        changes = {"columns": "kind,id,value_blob", "app": "mail"}
        return [
            *reads_of(root, "documents", ("facts", "revisions"), at=draw.randint(1, seq)),
            *reads_of(root, "documents", ("facts", "revisions"), since=draw.randint(1, seq)),
            options_of(root, "state", branch="*", where="branch = 'branch-2'"),
            options_of(root, "state", at=draw.randint(1, seq), where="id = 'shared'"),
            options_of(root, "revisions", columns="root,fact", where=f"space = '{FACTS}'"),
            *reads_of(root, "sessions", OF_SESSIONS, at=draw.randint(20, 60)),
            options_of(root, "turns", "sessions", since=30, columns="session,turn_id"),
            options_of(root, "messages", "sessions", where="role = 'user'", columns="content"),
            *reads_of(root, "graphs", OF_GRAPHS, at=draw.randint(5, 20)),
            options_of(root, "changes", "graphs", **changes),
            options_of(root, "attrs", "graphs", since=10, where="app = 'notes' and id < 9"),
        ]


def sessions_live(sessions, number, count=6):
    """Create random sessions with ids of their own for each number."""

    @seeded(number)
    @settings(max_examples=count, database=None, suppress_health_check=list(HealthCheck))
    @given(random_sessions.LIVES)
    def begin(steps):
        lives.append(random_sessions.Life(sessions, number * 100 + len(lives)))
        lives[-1].live(steps)

    lives = []
    begin()


def from_archive(reads):
    """Return how many of the reads take no database from its live file."""
    plans = []
    for texts in reads:
        options = read_options(texts)
        plans.append(plan_archive(cut.read_cut(options).bounds, options))
    return sum(plan is not None and not plan.live for plan in plans)


@pytest.mark.spark
def test_all_tables_equal_those_of_the_store(spark, tmp_path):
    root = tmp_path / "store"
    with fourfold.open(root) as store, fourfold.open(tmp_path / "other") as other:
        lives = Lives(store, other, seed=1)
        lives.live()
        publish(store)
        assert from_archive(lives.reads()) == len(lives.reads()), "published"
        same(spark, lives.reads())
        lives.live()
        publish(store)
        lives.live()
        same(spark, [*lives.reads(), *lives.past()])


@pytest.mark.spark
def test_all_tables_equal_those_of_the_store_after_maintenance(spark, tmp_path):
    root = tmp_path / "store"
    with fourfold.open(root) as store, fourfold.open(tmp_path / "other") as other:
        lives = Lives(store, other, seed=4)
        for _ in range(2):
            lives.live()
            publish(store)
        assert not retention.merge(store).failures, "compaction"
        store.graphs.update_sync_flags(1, "parent", [1, 2], 0)
        assert archived(root, "parents", model="graphs") is None, "changed rows are not published"
        assert archived(root, "edges", model="graphs") is not None
        same(spark, lives.reads())
        publish(store)
        assert archived(root, "parents", model="graphs") is not None
        store.sessions.delete_session("talk-6")
        lives.live()
        lives.facts.gc(GcPolicy(keep_seqs=3))
        assert archived(root, "facts") is None, "a collected space"
        same(spark, [*lives.reads(), *lives.past()[6:]])
