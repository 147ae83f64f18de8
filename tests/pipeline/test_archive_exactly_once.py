"""A streaming copy of an archive that is killed repeatedly has every row once."""

from __future__ import annotations

import random
import time

import pytest
from archive_copy_child import copy
from archive_reads import publish
from copy_child import DyingBetweenSpaces
from dying_copies import dying_at, registered
from pyspark.errors import PySparkException
from test_exactly_once import BRANCH, batches, contents, drawn, kill, said_by, start, written

import fourfold
from fourfold.store import retention

pytestmark = pytest.mark.spark

DIDS = [f"did:web:{name}.example" for name in "abc"]
CHILD = "archive_copy_child.py"


def made(tmp_path, points, seed=1):
    """Create a store with a history of publications, and an empty one like it."""
    source, target, draw = tmp_path / "source", tmp_path / "target", random.Random(seed)
    with fourfold.open(source) as store, fourfold.open(target) as other:
        for did in DIDS:
            store.space(did).branches.create(BRANCH)
            other.space(did).branches.create(BRANCH)
        for step in range(points):
            for did in draw.sample(DIDS, 2):
                for _ in range(3):
                    branch = BRANCH if draw.random() < 0.2 else ""
                    store.space(did).set("e0", {"n": step}, branch=branch)
                    chosen = draw.sample(range(1, 6), draw.randint(1, 3))
                    operations = [drawn(draw, f"e{each}", step) for each in chosen]
                    own = [known_or_set(store, did, branch, item) for item in operations]
                    store.space(did).transact(own, branch=branch)
            publish(store)
        assert not retention.merge(store).failures, "some batches are in compacted files"
        store.space(DIDS[0]).set("e0", {"n": "last"})
        publish(store)
    return source, source / "objects", target, tmp_path / "checkpoint"


def known_or_set(store, did, branch, operation):
    """Return an operation, or a set if it is a patch of an entity without a document."""
    state = store.space(did).read(operation["id"], branch)
    if operation["op"] == "patch" and (state is None or state.document is None):
        return {"op": "set", "id": operation["id"], "value": {}}
    return operation


def test_copy_of_archive_whose_sink_dies_has_every_row_once(tmp_path, spark):
    source, *places = made(tmp_path, points=5)
    target, checkpoint = places[1:]
    with (
        registered(spark, dying_at(DyingBetweenSpaces, "spaces", 0)),
        pytest.raises(PySparkException),
    ):
        copy(spark, *places)
    assert batches(checkpoint) == []
    assert sum(numbers == [0] for numbers in written(target).values()) == 1
    copy(spark, *places)
    assert len(batches(checkpoint)) > 1
    assert contents(target) == contents(source)


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_copy_of_archive_killed_ten_times_has_every_row_once(tmp_path, spark):
    source, *places = made(tmp_path, points=40, seed=2)
    target, checkpoint = places[1:]
    draw = random.Random(3)
    for _ in range(10):
        before = len(batches(checkpoint))
        process = start(*places, child=CHILD)
        while process.poll() is None and len(batches(checkpoint)) < before + 1:
            time.sleep(0.02)
        assert process.poll() is None, said_by(checkpoint).read_text()[-4000:]
        time.sleep(draw.uniform(0, 1.5))
        kill(process)
    copy(spark, *places)
    assert contents(target) == contents(source)
    done = {did: len(numbers) for did, numbers in written(target).items()}
    copy(spark, *places)
    assert {did: len(numbers) for did, numbers in written(target).items()} == done
