"""The rows that a task reads are sufficient for the fold on every branch and seq, and minimal."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_spaces import LIVES, Life, same_states, same_versions

import fourfold
from fourfold.models.documents.gc.policy import GcPolicy
from fourfold.pipeline import cut as cuts
from fourfold.pipeline import plan
from fourfold.pipeline.cut import Cut
from fourfold.pipeline.options import read_options
from fourfold.pipeline.scan import read_batches
from support.properties import examples

DID = "did:key:zLife"


def rows_of(root, table, cut, **options):
    """Return the rows of the tasks of a scan, run in this process."""
    asked = read_options(
        {
            "root": str(root),
            "table": table,
            "cut": cut.token(),
            "partition_bytes": "64000",
            **options,
        }
    )
    works = plan.plan(cut.bounds, asked, asked.table.select_columns())
    return [row for work in works for batch in read_batches(work) for row in batch.to_pylist()]


lives = given(
    LIVES, st.sampled_from(["revisions", "facts"]), st.integers(0, 2**32).map(random.Random)
)


@settings(max_examples=examples(20))
@lives
def test_pruned_rows_fold_to_every_state(tmp_path_factory, steps, history, chance):
    check(tmp_path_factory, steps, history, chance)


@pytest.mark.slow
@settings(max_examples=400)
@lives
def test_pruned_rows_fold_to_every_state_of_many_lives(tmp_path_factory, steps, history, chance):
    check(tmp_path_factory, steps, history, chance)


def check(tmp_path_factory, steps, history, chance):
    root = tmp_path_factory.mktemp("life") / "store"
    with fourfold.open(root) as store:
        life = Life(store.space(DID, history=history))
        life.live(steps)
        [mark] = cuts.read_cut(read_options({"root": str(root), "table": "state"})).bounds
        points = []
        for _ in range(4):
            seq = chance.randint(life.space.horizon(), life.model.seq)
            point = replace(mark, seq=seq, since=chance.choice([0, chance.randint(0, seq)]))
            points.append((point, life.states(point), life.versions(point)))
    # The store is closed now: two copies of SQLite must not open one file in one process.
    for point, states, versions in points:
        same_states(rows_of(root, "state", Cut((point,)), branch="*"), states)
        same_versions(rows_of(root, "history", Cut((point,)), branch="*"), versions)


@pytest.fixture(params=["revisions", "facts"])
def long_lived(request, tmp_path):
    """An entity of 300 revisions with snapshots; one that ends with a set; a deleted one."""
    with fourfold.open(tmp_path / "store") as store:
        space = store.space(DID, history=request.param)
        space.set("long", {"n": 0})
        for _ in range(299):
            space.patch("long", [{"op": "increment", "path": "/n", "by": 1}])
        for number in range(20):
            space.set("set", {"n": number})
        space.delete("deleted")
        space.branches.create("draft")
        space.patch("long", [{"op": "increment", "path": "/n", "by": 1}], branch="draft")
    return tmp_path / "store"


def read_of(root, table, **options):
    """Return the rows that reach the fold."""
    asked = read_options({"root": str(root), "table": table, **options})
    cut = cuts.read_cut(asked)
    works = plan.plan(cut.bounds, asked, asked.table.select_columns())
    raw = [replace(work, fold=None, output=()) for work in works]
    return [row for work in raw for batch in read_batches(work) for row in batch.to_pylist()]


def test_superseded_rows_are_not_read(long_lived):
    rows = read_of(long_lived, "state")
    assert [row["op"] for row in rows if row["id"] == "set"] == ["set"]
    assert [row["op"] for row in rows if row["id"] == "deleted"] == ["delete"]
    long = [row["op"] for row in rows if row["id"] == "long"]
    assert long[0] == "snapshot"
    assert set(long[1:]) <= {"patch"}
    assert len(long) < 30
    assert len(read_of(long_lived, "history")) == 300 + 20 + 1


def test_since_reads_only_changed_entities(long_lived):
    assert {row["id"] for row in read_of(long_lived, "state", since="300")} == {"set", "deleted"}
    assert {row["id"] for row in read_of(long_lived, "history", since="319")} == {"set", "deleted"}
    rows = read_of(long_lived, "state", since="322", branch="draft")
    assert {row["id"] for row in rows} == {"long"}
    assert rows[0]["op"] == "snapshot"


def test_parts_of_a_file_partition_its_entities(tmp_path):
    names = [f"{number:04}" for number in range(200)]
    random.shuffle(names)
    with fourfold.open(tmp_path / "store") as store:
        space = store.space(DID)
        for name in names:
            space.set(name, {"text": "x" * 2000})
    [mark] = cuts.read_cut(read_options({"root": str(tmp_path / "store"), "table": "state"})).bounds
    rows = rows_of(tmp_path / "store", "state", Cut((mark,)))
    assert [row["id"] for row in rows] == sorted(names)


def seen(root, table, **options):
    asked = read_options({"root": str(root), "table": table, **options})
    cut = cuts.read_cut(asked)
    works = plan.plan(cut.bounds, asked, asked.table.select_columns())
    rows = [row for work in works for batch in read_batches(work) for row in batch.to_pylist()]
    return {(row["id"], row["seq"]): row["document"] for row in rows}


@pytest.mark.parametrize("history", ["revisions", "facts"])
def test_since_includes_changes_of_parent_branch(tmp_path, history):
    with fourfold.open(tmp_path / "store") as store:
        space = store.space(DID, history=history)
        space.set("old", {})
        space.set("patched", {"n": 1})
        space.set("new", {})
        space.branches.create("draft")
        space.set("unseen", {})
        space.patch("patched", [{"op": "increment", "path": "/n", "by": 1}], branch="draft")
    for table in ("state", "history"):
        assert seen(tmp_path / "store", table, since="2", branch="draft") == {
            ("new", 3): "{}",
            ("patched", 6): '{"n":2}',
        }


@pytest.mark.parametrize("history", ["revisions", "facts"])
def test_history_begins_with_first_version_after_gc(tmp_path, history):
    with fourfold.open(tmp_path / "store") as store:
        space = store.space(DID, history=history)
        space.set("a", {"n": 0})
        for _ in range(20):
            space.patch("a", [{"op": "increment", "path": "/n", "by": 1}])
        space.gc(GcPolicy(keep_seqs=5))
        horizon = space.horizon()
    assert horizon > 10
    assert seen(tmp_path / "store", "history") == {
        ("a", seq): f'{{"n":{seq - 1}}}' for seq in range(horizon, 22)
    }
    later = seen(tmp_path / "store", "history", since=str(horizon - 1))
    assert later == seen(tmp_path / "store", "history")
