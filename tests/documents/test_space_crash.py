"""A real process is killed in the middle of commits: nothing acknowledged is lost, and what is left
is sound.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from space_child import DID

import fourfold
from support.crash import Moment, random_kill_time, run

SCRIPT = Path(__file__).with_name("space_child.py")
POINTS = ("kernel.statement.after", "kernel.commit.before", "kernel.commit.after")
OTHERS = (
    "kernel.begin.before",
    "kernel.begin.after",
    "kernel.statement.before",
    "kernel.acknowledge.before",
    "kernel.checkpoint.before",
    "kernel.checkpoint.after",
)


class AckResult:
    """What the children of one store have acknowledged."""

    def __init__(self):
        self.commits = {}
        self.branches = set()
        self.ended = set()
        self.counts = {}

    def hear(self, lines):
        for line in lines:
            kind, branch, seq, *rest = json.loads(line)
            if kind == "branch":
                self.branches.add(branch)
            elif kind == "end":
                self.ended.add(branch)
            else:
                assert seq not in self.commits
                self.commits[seq] = (branch, *rest)


def check(root, history, acknowledged):
    """Everything that was acknowledged is there, and the space contradicts itself nowhere."""
    with fourfold.open(root) as store:
        space = store.space(DID, history=history)
        assert space.verify() == []
        log = {entry.seq: entry for entry in space.log(limit=1_000_000)}
        assert sorted(log) == list(range(1, len(log) + 1))
        for seq, (branch, name, count) in acknowledged.commits.items():
            assert (log[seq].branch, log[seq].session, log[seq].local_seq) == (branch, name, count)
            assert space.read(name, branch, seq).document["n"] == count
            assert space.read("shared", branch, seq).document[name] == count
        known = {branch.name: branch for branch in space.branches.list(deleted=True)}
        assert acknowledged.branches <= known.keys()
        assert not any(known[name].active for name in acknowledged.ended)
        for branch in known:
            state = space.read("shared", branch)
            if state is not None:
                # Every commit counts once, on the branch where it was made and on what forked it.
                increments = space.history("shared", branch, limit=1_000_000)
                assert state.document["n"] == len(increments)
        # The space goes on from where it was.
        assert space.set("after", {}).seq == len(log) + 1


@pytest.mark.parametrize("point", POINTS)
def test_kill_at_chosen_point_of_commit_loses_nothing_acknowledged(root, history, point):
    acknowledged = AckResult()
    for life, at in enumerate((3, 40)):
        crash = run(
            SCRIPT, "write", str(root), history, f"{point}{life}", fault=f"{point}=kill@{at}"
        )
        assert crash.killed, crash
        acknowledged.hear(crash.lines)
        check(root, history, acknowledged)


@pytest.mark.slow
@pytest.mark.parametrize("point", OTHERS)
def test_kill_at_any_other_point_of_commit_loses_nothing_acknowledged(root, history, point):
    acknowledged = AckResult()
    for life, at in enumerate((1, 3, 9)):
        crash = run(
            SCRIPT, "write", str(root), history, f"{point}{life}", fault=f"{point}=kill@{at}"
        )
        assert crash.killed, crash
        acknowledged.hear(crash.lines)
        check(root, history, acknowledged)


def lives(root, history, seed, kills):
    random = Random(seed)
    acknowledged = AckResult()
    for life in range(kills):
        crash = run(
            SCRIPT, "write", str(root), history, f"{seed}.{life}", kill=random_kill_time(random)
        )
        assert crash.killed, crash
        acknowledged.hear(crash.lines)
        check(root, history, acknowledged)
    return acknowledged


def test_kills_at_random_moments_lose_nothing_acknowledged(root, history):
    assert lives(root, history, seed=7, kills=3).commits


@pytest.mark.slow
def test_many_kills_one_after_the_other_lose_nothing_acknowledged(root, history):
    assert lives(root, history, seed=11, kills=40).commits


def test_kill_long_after_start_leaves_space_with_snapshots_and_branches(root, history):
    crash = run(SCRIPT, "write", str(root), history, "long", kill=Moment(acknowledgements=300))
    acknowledged = AckResult()
    acknowledged.hear(crash.lines)
    assert len(acknowledged.commits) >= 200
    check(root, history, acknowledged)
