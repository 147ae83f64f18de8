"""Processes killed while they append and change the schema: acknowledged records survive, in the
current version.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

import fourfold
from support.crash import random_kill_time, run
from support.properties import repeats

SCRIPT = Path(__file__).with_name("rules_child.py")
POINTS = (
    "kernel.statement.after",
    "kernel.commit.before",
    "kernel.commit.after",
    "kernel.acknowledge.before",
)


def check(root, acknowledged):
    with fourfold.open(root) as store:
        streams = store.streams
        assert streams.verify() == []
        versions = [line[1] for line in acknowledged if line[0] == "version"]
        numbers = [line[1] for line in acknowledged if line[0] == "append"]
        try:
            version = streams.schemas.get("s").current_version
        except fourfold.errors.NotFound:
            assert not acknowledged
            return
        assert version >= max(versions, default=0)
        found = [json.loads(each.payload) for each in streams.open("s").read().records]
        assert found == [{f"n{version}": n, "by": f"k{n % 3}"} for n in range(len(found))]
        assert set(numbers) <= set(range(len(found)))
        for key in range(3):
            kept = [
                json.loads(each.payload) for each in streams.open("s").read(key=f"k{key}").records
            ]
            assert kept == found[key::3]


@pytest.mark.parametrize("point", POINTS)
def test_kill_at_failpoint_loses_nothing_acknowledged(tmp_path, point):
    crash = run(SCRIPT, str(tmp_path / "store"), fault=f"{point}=kill@30")
    assert crash.killed, crash
    check(tmp_path / "store", [json.loads(line) for line in crash.lines])


def lives(root, seed, kills):
    random, acknowledged = Random(seed), []
    for _ in range(kills):
        crash = run(SCRIPT, str(root), kill=random_kill_time(random))
        assert crash.killed, crash
        acknowledged += [json.loads(line) for line in crash.lines]
        check(root, acknowledged)


def test_rules_survive_several_kills_at_random_times(tmp_path):
    lives(tmp_path / "store", 7, 2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(repeats(6)))
def test_rules_survive_many_kills_at_random_times(tmp_path, seed):
    lives(tmp_path / "store", seed, 10)
