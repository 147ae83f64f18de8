"""A real process is killed in the middle of collections: nothing is lost but what was to go, what
is left is sound, and the next collection ends where that one would have.
"""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from itertools import count
from pathlib import Path
from random import Random

import pytest
from gc_life import check, lived, remembered

import fourfold
from fourfold.errors import HistoryTruncated
from fourfold.models.documents.gc.policy import GcPolicy
from support.crash import random_kill_time, run

DID = "did:key:z6MkMachine"
SCRIPT = Path(__file__).with_name("gc_child.py")
KEEP = 9
FIRST_HIT = 2
"""The first hit of a point that is not the opening's."""
POLICY = GcPolicy(keep_seqs=KEEP, snapshots=1, blobs=True, blob_age_s=0)


def prepared(root, history):
    """A store with a space that was lived in; what is known of it, and what it is when collected
    without a hitch.
    """
    with fourfold.open(root) as store:
        space = store.space(DID, history=history)
        points = lived(space)
        space.maintain(2)
        space.blobs.put(b"nothing mentions this")
        known = remembered(space)
    twin = root.with_name("twin")
    shutil.copytree(root, twin)
    with fourfold.open(twin) as store:
        store.space(DID).gc(POLICY)
        return points, known, content(store.space(DID))


def content(space):
    """Every row of every table that is the space's own."""
    with space.view() as view:
        tables = [
            name
            for (name,) in view.all("SELECT name FROM sqlite_schema WHERE type = 'table'")
            if not name.startswith(("kernel_", "sqlite_"))
        ]
        return {name: sorted(map(repr, view.all(f'SELECT * FROM "{name}"'))) for name in tables}


def killed_at(root, point, hit):
    """Whether the child was killed; if not, its collection came to its end."""
    crash = run(SCRIPT, "collect", str(root), str(KEEP), fault=f"{point}=kill@{hit}")
    assert crash.killed != ("done" in crash.lines), crash
    # Opening the space is not what is tested here.
    assert crash.ready, f"{point} was reached {hit} times before the collection began"
    return crash.killed


def ends_alike(root, points, known, expected):
    with fourfold.open(root) as store:
        space = store.space(DID)
        check(space, known, points)
        space.gc(POLICY)
        check(space, known, points)
        assert content(space) == expected


@pytest.mark.parametrize(
    ("point", "hits"),
    [
        ("kernel.statement.before", (30,)),
        ("kernel.statement.after", (75,)),
        ("kernel.commit.before", (3, 8)),
        ("kernel.commit.after", (5,)),
    ],
)
def test_collection_killed_ends_as_if_it_had_not_been(root, history, point, hits):
    points, known, expected = prepared(root, history)
    for hit in hits:
        assert killed_at(root, point, hit), f"{point} was not reached {hit} times"
        with fourfold.open(root) as store:
            check(store.space(DID), known, points)
    ends_alike(root, points, known, expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    "point",
    [
        "kernel.begin.after",
        "kernel.statement.before",
        "kernel.statement.after",
        "kernel.commit.before",
        "kernel.commit.after",
        "kernel.acknowledge.before",
    ],
)
def test_collections_killed_at_every_point_in_turn_end_alike(root, history, point):
    points, known, expected = prepared(root, history)
    fresh = root.with_name("fresh")
    shutil.copytree(root, fresh)
    step = 37 if ".statement." in point else 3
    for hit in count(FIRST_HIT, step):
        shutil.rmtree(root)
        shutil.copytree(fresh, root)
        if not killed_at(root, point, hit):
            break
        ends_alike(root, points, known, expected)
    assert hit > 10


class AckResult:
    """What the children of one store have acknowledged."""

    def __init__(self):
        self.commits = {}
        self.branches = {}
        self.horizon = 0

    def hear(self, lines):
        for line in lines:
            kind, *rest = json.loads(line)
            if kind == "commit":
                seq, name, number = rest
                self.commits[seq] = (name, number)
            elif kind == "branch":
                self.branches[rest[0]] = rest[1]
            else:
                self.horizon = max(self.horizon, rest[0])


def check_acknowledged(root, history, acknowledged):
    with fourfold.open(root) as store:
        space = store.space(DID, history=history)
        assert space.verify() == []
        horizon = space.horizon()
        assert horizon >= acknowledged.horizon
        log = {entry.seq: entry for entry in space.log(limit=1_000_000)}
        assert sorted(log) == list(range(1, len(log) + 1))
        for seq, (name, number) in acknowledged.commits.items():
            assert (log[seq].session, log[seq].local_seq) == (name, number)
            if seq >= horizon:
                assert space.read(name, at=seq).document["n"] == number
                assert space.read("shared", at=seq).document[name] == number
            else:
                # Forks may protect it; then it is what it was.
                with suppress(HistoryTruncated):
                    assert space.read(name, at=seq).document["n"] == number
        for branch, shown in acknowledged.branches.items():
            assert space.read("shared", branch).document["n"] == shown


def lives(root, history, seed, kills):
    random = Random(seed)
    acknowledged = AckResult()
    for life in range(kills):
        crash = run(
            SCRIPT, "live", str(root), history, f"{seed}.{life}", kill=random_kill_time(random)
        )
        assert crash.killed, crash
        acknowledged.hear(crash.lines)
        check_acknowledged(root, history, acknowledged)
    return acknowledged


def test_kills_while_others_write_lose_nothing_that_was_acknowledged(root, history):
    acknowledged = lives(root, history, seed=5, kills=3)
    assert acknowledged.commits


@pytest.mark.slow
def test_many_kills_while_others_write_lose_nothing_that_was_acknowledged(root, history):
    acknowledged = lives(root, history, seed=6, kills=40)
    assert acknowledged.branches
    with fourfold.open(root) as store:
        # A collection beside a busy writer takes longer than most of these lives.
        assert store.space(DID, history=history).horizon() > 0
