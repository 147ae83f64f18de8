"""A real process is killed in the middle of maintenance, merges, blobs, imports and carry-overs:
nothing acknowledged is lost, what is left is sound, and what was begun can be finished.
"""

from __future__ import annotations

import json
from random import Random

import pytest
from lived_in_space import lived_in
from space_jobs import (
    DID,
    EXPORTED,
    OTHER,
    SCRIPT,
    SETTINGS,
    SOURCE,
    TARGET,
    add,
    blob_of,
)

import fourfold
from fourfold.kernel import failpoints
from fourfold.models.documents import bundle
from support.crash import Moment, run

IN_ONE_SPACE = ("maintain", "merge", "blobs", "index")
INTO_NEW_SPACES = ("replay", "carry")
POINTS = tuple(
    point
    for point in failpoints.POINTS
    if not any(part in point for part in (".backup.", ".restore.", ".migration.", ".savepoint."))
)
"""A space uses no savepoints of its own, and the others are for tools with tests of their own."""
OPENING_STATEMENTS = 45
"""More than a store and a space need to open: a kill at a later hit is one in the job."""


class AckResult:
    """What the children of one store have acknowledged."""

    def __init__(self):
        self.commits = set()
        self.branches = set()
        self.merges = {}
        self.ended = set()
        self.blobs = {}
        self.targets = set()

    def hear(self, lines):
        for line in lines:
            kind, *rest = json.loads(line)
            if kind == "commit":
                self.commits.add(rest[0])
            elif kind == "branch":
                self.branches.add(rest[0])
            elif kind == "merge":
                self.merges[rest[0]] = rest[1:]
            elif kind == "end":
                self.ended.add(rest[0])
            elif kind == "blob":
                self.blobs[rest[0]] = rest[1]
            elif kind == "target":
                self.targets.add(rest[0])
        return self


def prepare(root, history, job):
    """What a job finds: a space with a past, or one to bring somewhere else."""
    with fourfold.open(root, settings=SETTINGS) as store:
        if job in IN_ONE_SPACE:
            space = store.space(DID, history=history)
            for number in range(60):
                space.patch("n", add("/n", [number + 1, "x" * (number % 50)]))
            return
        source = store.space(SOURCE, history=OTHER[history] if job == "carry" else history)
        lived_in(source)
        source.blobs.put(b"bytes", metadata={"of": "a test"})
        (root / EXPORTED).write_bytes(b"".join(bundle.export(source)))


def check(root, history, job, acknowledged):
    with fourfold.open(root, settings=SETTINGS) as store:
        if job in IN_ONE_SPACE:
            check_one_space(store.space(DID, history=history), acknowledged)
        else:
            check_new_spaces(store, root, history, job, acknowledged)


def check_one_space(space, acknowledged):
    assert space.verify() == []
    log = {entry.seq: entry for entry in space.log(limit=1_000_000)}
    assert sorted(log) == list(range(1, len(log) + 1))
    for seq in acknowledged.commits:
        assert space.read("n", at=seq).document["n"][0] == seq
    known = {branch.name: branch for branch in space.branches.list(deleted=True)}
    assert acknowledged.branches <= known.keys()
    assert not any(known[name].active for name in acknowledged.ended)
    for branch, (seq, key) in acknowledged.merges.items():
        assert log[seq].original["merge"]["source"] == branch
        assert space.read("n", at=seq).document[key] == {"branch": branch}
        assert space.read("both", at=seq).document == {"n": key}
    for blob, number in acknowledged.blobs.items():
        assert space.blobs.get(blob) == blob_of(number)
    for blob in space.blobs.ids():
        # Bytes and metadata are stored together, also those that were not acknowledged.
        meta = space.blobs.meta(blob)
        assert meta is None or blob_of(meta.document["value"]["number"]) == space.blobs.get(blob)
    for entity in space.ids():
        if entity.startswith("urn:blob-meta:"):
            assert space.blobs.has(space.read(entity).document["value"]["blob"])
    check_indexes(space, acknowledged)
    assert space.read("refused") is None
    assert space.set("after", {}).seq == len(log) + 1


def check_indexes(space, acknowledged):
    """Builds that were interrupted go on, and what was acknowledged is found."""
    for info in space.indexes:
        assert space.indexes.wait(info.name).state == "ready"
        for seq in acknowledged.commits:
            if info.kind == "text":
                page = space.search(f"seq{seq}", index=info.name, at=seq)
            else:
                page = space.find({"/n/1": f"seq{seq}"}, at=seq)
                assert page.plan.index == info.name
            assert [match.id for match in page] == ["n"]
    assert space.verify() == []


def check_new_spaces(store, root, history, job, acknowledged):
    source = store.space(SOURCE)
    assert source.verify() == []
    whole = source.seq()
    assert acknowledged.targets <= set(store.spaces())
    for did in store.spaces():
        if not did.startswith(TARGET):
            continue
        target = store.space(did, history=history)
        assert target.verify() == []
        reached = target.seq()
        assert did not in acknowledged.targets or reached == whole
        assert bundle.difference(source, target, reached) is None
        if reached < whole:
            # What was begun goes on where it stopped.
            if job == "carry":
                bundle.carry_over(source, target)
            else:
                bundle.replay(target, (root / EXPORTED).read_bytes().splitlines(keepends=True))
        assert bundle.difference(source, target, whole) is None
        assert list(target.blobs.ids()) == list(source.blobs.ids())


def killed(root, history, job, **how):
    crash = run(SCRIPT, job, str(root), history, **how)
    assert crash.killed, crash
    return crash.lines


def hit_of(point, hit):
    return hit + OPENING_STATEMENTS if ".statement." in point else hit


@pytest.mark.parametrize(
    ("job", "point", "hit"),
    [
        ("maintain", "kernel.statement.after", 130),
        ("merge", "kernel.statement.before", 110),
        ("blobs", "kernel.statement.after", 31),
        ("index", "kernel.statement.after", 400),
        ("replay", "kernel.commit.before", 5),
        ("carry", "kernel.statement.after", 150),
    ],
)
def test_kill_in_middle_of_job_loses_nothing_acknowledged(root, history, job, point, hit):
    prepare(root, history, job)
    lines = killed(root, history, job, fault=f"{point}=kill@{hit_of(point, hit)}")
    check(root, history, job, AckResult().hear(lines))


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("job", [*IN_ONE_SPACE, *INTO_NEW_SPACES])
def test_kills_at_every_point_of_every_job_lose_nothing_acknowledged(root, history, job, point):
    prepare(root, history, job)
    acknowledged = AckResult()
    for hit in (1, 4, 13):
        lines = killed(root, history, job, fault=f"{point}=kill@{hit_of(point, hit)}")
        check(root, history, job, acknowledged.hear(lines))


@pytest.mark.slow
@pytest.mark.parametrize("job", [*IN_ONE_SPACE, *INTO_NEW_SPACES])
def test_kills_at_random_moments_of_every_job_lose_nothing_acknowledged(root, history, job):
    random = Random(f"{history} {job}")
    prepare(root, history, job)
    acknowledged = AckResult()
    for _ in range(12):
        moment = Moment(random.randint(0, 30), random.uniform(0, 0.05))
        check(root, history, job, acknowledged.hear(killed(root, history, job, kill=moment)))
