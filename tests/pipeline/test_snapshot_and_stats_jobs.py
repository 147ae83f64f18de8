"""The jobs `snapshots` and `stats`: chains get shorter, states stay, statistics are correct."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import fourfold
from fourfold.errors import InvalidInput, WriterLocked
from fourfold.pipeline import jobs
from support.documented_json import documented_json

pytestmark = pytest.mark.spark

INCREMENT = [{"op": "increment", "path": "/n", "by": 1}]


def patch_often(space, entity, times, branch=""):
    for _ in range(times):
        space.patch(entity, INCREMENT, branch=branch)


def depth_of(space, branch, entity):
    with space.view() as view:
        head = space.read(entity, branch)
        return view.value(view.sql.replay_depth, (branch, entity, head.seq))


@pytest.fixture(params=["revisions", "facts"])
def root(request, tmp_path):
    folder = tmp_path / "store"
    with fourfold.open(folder) as store:
        space = store.space("did:key:zLong", history=request.param)
        # Documents so large that writing creates no snapshots by itself.
        for entity in ("long", "short", "inherited"):
            space.set(entity, {"n": 0, "text": "x" * 5000})
        patch_often(space, "long", 30)
        patch_often(space, "short", 3)
        space.branches.create("draft")
        patch_often(space, "inherited", 30, branch="draft")
        store.space("did:key:zShort", history=request.param).set("a", {})
    return folder


def test_snapshots_shorten_chains_without_changing_states(root, spark):
    with fourfold.open(root) as store:
        space = store.space("did:key:zLong")
        before = {
            (branch, entity): space.read(entity, branch)
            for branch in ("", "draft")
            for entity in ("long", "short", "inherited")
        }
    done = jobs.run("snapshots", root, {"depth": 20}, spark=spark)
    assert done.report["snapshots"] == 2
    assert done.report.keys() == documented_json("pipeline run snapshots")["report"].keys()
    with fourfold.open(root) as store:
        space = store.space("did:key:zLong")
        assert depth_of(space, "", "long") == 0
        assert depth_of(space, "draft", "inherited") == 0
        assert depth_of(space, "", "short") == 3
        for (branch, entity), state in before.items():
            assert space.read(entity, branch) == state
        assert space.verify() == []
        patch_often(space, "short", 20)
    assert jobs.run("snapshots", root, {"depth": 20}, spark=spark).report["snapshots"] == 1
    assert jobs.run("snapshots", root, {"depth": 20}, spark=spark).outcome == "nothing"


@pytest.mark.parametrize("root", ["revisions"], indirect=True)
def test_snapshots_report_or_skip_locked_space(root, spark):
    child = (
        "import fourfold, sys\n"
        f"with fourfold.open({str(root)!r}) as store:\n"
        "    store.space('did:key:zLong'); print('open', flush=True); sys.stdin.read()\n"
    )
    writer = subprocess.Popen(
        [sys.executable, "-c", child], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert writer.stdout.readline() == b"open\n"
        with pytest.raises(WriterLocked):
            jobs.run("snapshots", root, {"depth": 20}, spark=spark)
        done = jobs.run("snapshots", root, {"depth": 20}, spark=spark, skip_bad=True)
        assert [each["source"] for each in done.skipped] == ["did:key:zLong"]
    finally:
        writer.communicate()
    # Its work was not counted as done.
    assert jobs.run("snapshots", root, {"depth": 20}, spark=spark).report["snapshots"] == 2


def test_stats_equal_written_data(root, spark, tmp_path):
    into = tmp_path / "figures" / "stats.json"
    done = jobs.run("stats", root, {"into": str(into), "top": 2}, spark=spark)
    figures = done.report
    assert json.loads(into.read_text()) == figures
    assert figures.keys() == documented_json("pipeline run stats")["report"].keys()
    assert figures["spaces"] == 2
    assert figures["commits"] == 3 + 30 + 3 + 1 + 30 + 1
    assert figures["revisions"]["count"] == 3 + 30 + 3 + 30 + 1
    assert figures["entities"] == 5
    assert figures["branches"] == 3
    assert figures["chains"]["longest"] == 30
    assert figures["dedup"]["ratio"] > 2
    assert [(each["branch"], each["id"], each["revisions"]) for each in figures["hot"]] == [
        ("", "long", 31),
        ("draft", "inherited", 30),
    ]


@pytest.mark.parametrize("root", ["revisions"], indirect=True)
def test_jobs_refuse_invalid_numbers(root, spark):
    with pytest.raises(InvalidInput, match="depth must be"):
        jobs.run("snapshots", root, {"depth": 0}, spark=spark)
    with pytest.raises(InvalidInput, match="top must be"):
        jobs.run("stats", root, {"top": -1}, spark=spark)
