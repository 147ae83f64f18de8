"""The fold by Spark's shuffle: one space in two stores stays separate, truncated history is
refused.
"""

from __future__ import annotations

import json

import pytest

import fourfold
from fourfold.errors import HistoryTruncated
from fourfold.models.documents.gc.policy import GcPolicy
from fourfold.pipeline.documents import spark_fold

pytestmark = pytest.mark.spark

DID = "did:web:s"


@pytest.fixture
def stores(tmp_path):
    """Two stores with the same space and entity, whose histories differ."""
    for name, count in (("one", 3), ("two", 5)):
        with fourfold.open(tmp_path / name) as store:
            space = store.space(DID)
            space.set("e", {"n": 0, "store": name})
            for _ in range(count):
                space.patch("e", [{"op": "increment", "path": "/n", "by": 1}])
    return tmp_path


def documents(frame):
    return sorted(json.loads(row["document"])["n"] for row in frame.collect())


def test_same_space_in_two_stores_stays_separate(stores, spark):
    roots = str(stores / "*")
    assert documents(spark_fold.state(spark, roots=roots)) == [3, 5]
    assert documents(spark_fold.history(spark, roots=roots)) == sorted([*range(4), *range(6)])


def test_shuffled_fold_refuses_truncated_history(stores, spark):
    root = stores / "two"
    with fourfold.open(root) as store:
        space = store.space(DID)
        space.gc(GcPolicy(keep_seqs=2))
        horizon = space.horizon()
        assert horizon > 1
        with pytest.raises(HistoryTruncated):
            space.read("e", at=horizon - 1)
    with pytest.raises(HistoryTruncated, match="history begins"):
        spark_fold.state(spark, root=str(root), at=horizon - 1)
    assert documents(spark_fold.state(spark, root=str(root))) == [5]
