"""Processes killed while they compact a state stream by key: no acknowledged change is lost."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

import fourfold
from fourfold.kernel import failpoints
from support.crash import random_kill_time, run
from support.properties import repeats, with_slow

SCRIPT = Path(__file__).with_name("compaction_child.py")
POINTS = (
    *(point for point in failpoints.STREAM_POINTS if ".compact." in point),
    "kernel.commit.before",
    "kernel.commit.after",
)


def check(root, acknowledged):
    """Each key has its last acknowledged value, or one that was written after it."""
    with fourfold.open(root) as store:
        assert store.streams.verify() == []
        state = store.streams.state("s")
        for key, number in acknowledged.items():
            assert state["u", key] >= number
        stream = store.streams.open("s")
        if stream.profile().kind == "generic":
            # Killed between the creation of the stream and that of its profile.
            assert not acknowledged
            return
        stream.compact("now")
        assert store.streams.state("s") == state
        assert len(stream) == len(state)


def life(root, acknowledged, **options):
    crash = run(SCRIPT, str(root), **options)
    assert crash.killed, crash
    acknowledged.update(json.loads(line) for line in crash.lines)
    check(root, acknowledged)


@pytest.mark.parametrize("hits", with_slow([(2,)], [(2, 9)]))
@pytest.mark.parametrize("point", POINTS)
def test_kill_at_failpoint_loses_no_change(tmp_path, point, hits):
    acknowledged = {}
    for at in hits:
        life(tmp_path / "store", acknowledged, fault=f"{point}=kill@{at}")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(repeats(4)))
def test_many_kills_at_random_times_lose_no_change(tmp_path, seed):
    random, acknowledged = Random(seed), {}
    for _ in range(8):
        life(tmp_path / "store", acknowledged, kill=random_kill_time(random))
