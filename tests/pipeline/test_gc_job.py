"""The job `gc`: by policy only, through each space's own writer, within the rules."""

from __future__ import annotations

import pytest

import fourfold
from fourfold.errors import HistoryTruncated, WriterLocked
from fourfold.models.documents import GcPolicy
from fourfold.pipeline import jobs

pytestmark = pytest.mark.spark

KEEPS, COLLECTS, BUSY = "did:key:z6MkKeeps", "did:key:z6MkCollects", "did:key:z6MkBusy"


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "store"
    with fourfold.open(folder) as store:
        for did, history in ((KEEPS, "revisions"), (COLLECTS, "facts"), (BUSY, "revisions")):
            space = store.space(did, history)
            fill(space)
            if did != KEEPS:
                space.set_gc_policy(GcPolicy(keep_seqs=5, blobs=True, blob_age_s=0))
    return folder


def fill(space):
    for number in range(30):
        space.set("a", {"n": number, "text": "x" * 300})
    space.branches.create("old", at=10)
    space.blobs.put(b"nothing mentions this")
    space.blobs.put(b"a record does", metadata={"title": "t"})


def states(root, did):
    with fourfold.open(root, mode="r") as store:
        space = store.space(did)
        return {
            (branch.name, entity): space.read(entity, branch.name)
            for branch in space.branches.list()
            for entity in space.ids(branch.name)
        }


def test_gc_only_collects_spaces_with_policy(spark, root):
    before = {did: states(root, did) for did in (KEEPS, COLLECTS)}
    size = (root / "spaces" / f"{KEEPS}.sqlite").read_bytes()
    done = jobs.run("gc", root, spark=spark)
    assert done.report["with_policy"] == 2
    assert done.report["collected"] == 2
    assert done.report["taken"]["blobs"] == 2
    assert done.report["taken"]["revisions"] > 40
    assert (root / "spaces" / f"{KEEPS}.sqlite").read_bytes() == size
    assert {did: states(root, did) for did in (KEEPS, COLLECTS)} == before
    with fourfold.open(root) as store:
        assert store.space(COLLECTS).verify() == []
        assert store.space(COLLECTS).read("a", "old").document["n"] == 9
        with pytest.raises(HistoryTruncated):
            store.space(COLLECTS).read("a", at=3)
        assert len(list(store.space(COLLECTS).blobs.ids())) == 1
        assert len(list(store.space(KEEPS).blobs.ids())) == 2
    # A second run finds nothing.
    again = jobs.run("gc", root, spark=spark)
    assert sum(again.report["marked"].values()) == 0
    assert again.report["collected"] == 0


def test_gc_dry_run_reports_without_changes(spark, root):
    files = {path: path.read_bytes() for path in (root / "spaces").glob("*.sqlite")}
    done = jobs.run("gc", root, {"space": COLLECTS}, spark=spark, dry_run=True)
    assert done.outcome == "planned"
    assert done.report["marked"]["blobs"] == 1
    [space] = done.report["spaces"]
    assert space["space"] == COLLECTS
    assert {path: path.read_bytes() for path in (root / "spaces").glob("*.sqlite")} == files
    real = jobs.run("gc", root, {"space": COLLECTS}, spark=spark).report["taken"]
    assert real["revisions"] == space["revisions"]
    assert real["requests"] == space["requests"]


def test_gc_reports_locked_space_and_collects_others(spark, root, tmp_path):
    with fourfold.open(root) as elsewhere:
        elsewhere.space(BUSY).set("b", {})
        with pytest.raises(WriterLocked, match=BUSY):
            jobs.run("gc", root, spark=spark)
        done = jobs.run("gc", root, spark=spark, skip_bad=True)
    [skipped] = done.skipped
    assert BUSY in skipped["source"]
    with fourfold.open(root) as store:
        assert store.space(COLLECTS).horizon() > 0
        assert store.space(BUSY).horizon() == 0
