"""A streaming copy of a store that is killed repeatedly has every row once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from copy_child import DyingBetweenSpaces, copy
from dying_copies import dying_at, registered
from pyspark.errors import PySparkException

import fourfold

pytestmark = pytest.mark.spark

DIDS = [f"did:web:{name}.example" for name in "abc"]
BRANCH = "draft"


def lived_in(root, commits, seed=1):
    """A store whose spaces have sets, patches, deletes, a branch, and several operations per
    commit.
    """
    draw = random.Random(seed)
    with fourfold.open(root) as store:
        for number, did in enumerate(DIDS):
            space = store.space(did, history="facts" if number == 1 else "revisions")
            space.set("e0", {"n": 0})
            space.branches.create(BRANCH)
            for step in range(commits):
                branch = BRANCH if draw.random() < 0.2 else ""
                chosen = draw.sample(range(6), draw.randint(1, 3))
                space.transact([drawn(draw, f"e{each}", step) for each in chosen], branch=branch)


def drawn(draw, entity, step):
    kind = draw.choice(["set", "patch", "patch", "patch", "delete"])
    if kind == "set":
        return {"op": "set", "id": entity, "value": {"n": step, "text": "x" * draw.randint(0, 50)}}
    if kind == "patch":
        patch = {"op": "add", "path": f"/k{step % 9}", "value": step}
        return {"op": "patch", "id": entity, "patches": [patch]}
    return {"op": "delete", "id": entity}


def empty_like(root, source):
    """Create a store for the copy, with the branches of the source."""
    with fourfold.open(root) as store, fourfold.open(source, mode="r") as other:
        for did in other.spaces():
            store.space(did, history=other.space(did).history_kind.name).branches.create(BRANCH)


def contents(root):
    """Return every operation on every entity of every branch, in order, and the final states."""
    result = {}
    with fourfold.open(root, mode="r") as store:
        for did in store.spaces():
            space = store.space(did)
            assert space.verify() == []
            for number in range(6):
                entity = f"e{number}"
                for branch in ("", BRANCH):
                    rows = space.history(entity, branch=branch, limit=100_000)
                    own = [(row.op, row.data) for row in rows if row.branch == branch]
                    state = space.read(entity) if not branch else None
                    result[did, entity, branch] = (own, state and (state.op, state.document))
    return result


def batches(checkpoint):
    """Return the batches that Spark has recorded as complete."""
    folder = checkpoint / "commits"
    if not folder.is_dir():
        return []
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal())


def written(root):
    """Return the batches that some space has."""
    result = {}
    with fourfold.open(root, mode="r") as store:
        for did in store.spaces():
            names = [(each.session, each.local_seq >> 20) for each in store.space(did).log()]
            result[did] = sorted({batch for name, batch in names if name.startswith("query:")})
    return result


def start(source, target, checkpoint, *arguments, child="copy_child.py"):
    """Start a copy in a child process; its output is in a file beside its checkpoint."""
    program = Path(__file__).with_name(child)
    with said_by(checkpoint).open("wb") as output:
        return subprocess.Popen(
            [sys.executable, program, *map(str, (source, target, checkpoint, *arguments))],
            start_new_session=True,
            stdout=output,
            stderr=output,
        )


def said_by(checkpoint):
    return checkpoint.with_suffix(".log")


def dies(process, checkpoint):
    """Wait for the child and assert that it killed itself; show its output otherwise."""
    assert process.wait() == -signal.SIGKILL, said_by(checkpoint).read_text()[-4000:]


def kill(process):
    """Kill the driver and its JVM; other Spark processes may live slightly longer."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def made(tmp_path, commits, seed=1):
    source, target = tmp_path / "source", tmp_path / "target"
    lived_in(source, commits, seed)
    empty_like(target, source)
    return source, target, tmp_path / "checkpoint"


# A batch that is repeated after its commit is also in test_ingest, without Spark.
@pytest.mark.parametrize(
    ("window", "spaces"), [pytest.param("commit", 3, marks=pytest.mark.slow), ("spaces", 1)]
)
def test_copy_whose_sink_dies_has_every_row_once(tmp_path, spark, window, spaces):
    source, target, checkpoint = stores = made(tmp_path, commits=6)
    with (
        registered(spark, dying_at(DyingBetweenSpaces, window, 0)),
        pytest.raises(PySparkException),
    ):
        copy(spark, *stores)
    assert batches(checkpoint) == []
    assert sum(numbers == [0] for numbers in written(target).values()) == spaces

    copy(spark, *stores)
    assert contents(target) == contents(source)
    assert not any((target / ".pipeline" / "staging").iterdir())


@pytest.mark.slow
def test_copy_killed_after_commit_has_every_row_once(tmp_path, spark):
    source, target, checkpoint = stores = made(tmp_path, commits=6)
    before_spark_heard = start(*stores, "commit", 0)
    dies(before_spark_heard, checkpoint)
    assert batches(checkpoint) == []
    assert all(numbers == [0] for numbers in written(target).values())

    copy(spark, *stores)
    assert contents(target) == contents(source)
    assert not any((target / ".pipeline" / "staging").iterdir())


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_copy_killed_between_spaces_has_every_row_once(tmp_path, spark):
    source, target, checkpoint = stores = made(tmp_path, commits=12)
    between_spaces = start(*stores, "spaces", 1)
    dies(between_spaces, checkpoint)
    assert batches(checkpoint) == [0]
    assert sorted(1 in numbers for numbers in written(target).values()) == [False, False, True]

    copy(spark, *stores)
    assert contents(target) == contents(source)
    assert not any((target / ".pipeline" / "staging").iterdir())


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_copy_killed_ten_times_has_every_row_once(tmp_path, spark):
    source, target, checkpoint = stores = made(tmp_path, commits=200, seed=2)
    draw = random.Random(3)
    kills = 0
    while kills < 9:
        before = len(batches(checkpoint))
        process = start(*stores)
        while process.poll() is None and len(batches(checkpoint)) < before + 1:
            time.sleep(0.02)
        assert process.poll() is None, said_by(checkpoint).read_text()[-4000:]
        time.sleep(draw.uniform(0, 1.5))
        kill(process)
        kills += 1
    heard = len(batches(checkpoint))
    forced = start(*stores, "commit", heard + 1)
    dies(forced, checkpoint)
    assert heard + 1 not in batches(checkpoint)
    assert any(heard + 1 in numbers for numbers in written(target).values())
    copy(spark, *stores)
    assert contents(target) == contents(source)
    # Nothing is left to do, and nothing is repeated.
    done = {did: len(numbers) for did, numbers in written(target).items()}
    copy(spark, *stores)
    assert {did: len(numbers) for did, numbers in written(target).items()} == done
