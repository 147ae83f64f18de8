"""Spark's folds equal the reads of random spaces, on every branch, at random seqs; and every
version equals a model that keeps full copies.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from random_spaces import LIVES, Life, same_states, same_versions

import fourfold
from fourfold.pipeline import cut as cuts
from fourfold.pipeline.cut import Cut
from fourfold.pipeline.documents import spark_fold
from fourfold.pipeline.options import read_options

pytestmark = pytest.mark.spark

SPACES_TOGETHER = 60


def lives_of(store, count, seed=None):
    """Create random spaces in a store; half of them store facts."""
    lives = {}

    @settings(max_examples=count, database=None, suppress_health_check=list(HealthCheck))
    @given(LIVES)
    def begin(steps):
        number = len(lives)
        did = f"did:key:z{number:04}"
        life = Life(store.space(did, history=("revisions", "facts")[number % 2]))
        lives[did] = life
        life.live(steps)

    if seed is not None:
        from hypothesis import seed as seeded  # noqa: PLC0415

        begin = seeded(seed)(begin)
    begin()
    return lives


def cut_of(root, lives):
    """Return a cut with its own seq for each space."""
    options = read_options({"root": str(root), "table": "state"})
    marks = []
    for mark in cuts.read_cut(options).bounds:
        life = lives[mark.space]
        seq = random.randint(life.space.horizon(), life.model.seq)
        marks.append(replace(mark, seq=seq))
    return Cut(tuple(marks))


def later_part_of(cut):
    """Return the cut with a lower bound for each space."""
    return Cut(tuple(replace(mark, since=random.randint(0, mark.seq)) for mark in cut.bounds))


def expected(lives, cut):
    states, versions = {}, {}
    for mark in cut.bounds:
        states.update(lives[mark.space].states(mark))
        versions.update(lives[mark.space].versions(mark))
    return states, versions


def rows_of(frame):
    return [row.asDict() for row in frame.collect()]


def same_for_every_query(read, root, table, asked, same, expected):
    """Assert that two queries on one frame, one of them filtered, return their own rows, and that
    `where` equals the filter.
    """
    _, branch, bound = random.choice(sorted(key[:3] for key in expected))
    condition = f"branch = {quoted(branch)} and id <= {quoted(bound)}"
    few = {key: row for key, row in expected.items() if key[1] == branch and key[2] <= bound}
    frame = read(root, table, **asked)
    same(rows_of(frame.where((frame.branch == branch) & (frame.id <= bound))), few)
    same(rows_of(frame), expected)
    same(rows_of(read(root, table, where=condition, **asked)), few)


def quoted(text):
    return "'" + text.replace("'", "''") + "'"


@pytest.fixture(autouse=True)
def _pushdown_on(spark):
    """Enable filter pushdown: a source that accepted filters would leak them into other queries."""
    setting = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(setting)
    spark.conf.set(setting, "true")
    yield
    spark.conf.set(setting, before)


def compare(spark, read, root, count, rounds, seed=None):
    with fourfold.open(root) as store:
        lives = lives_of(store, count, seed)
        for _ in range(rounds):
            cut = cut_of(root, lives)
            states, versions = expected(lives, cut)
            # Small parts, so that entities of one file are folded by several tasks.
            options = {"branch": "*", "cut": cut.token(), "partition_bytes": 64_000}
            same_for_every_query(read, root, "state", options, same_states, states)
            same_for_every_query(read, root, "history", options, same_versions, versions)
            same_states(rows_of(spark_fold.state(spark, root=root, **options)), states)
            same_versions(rows_of(spark_fold.history(spark, root=root, **options)), versions)
            later = later_part_of(cut)
            states, versions = expected(lives, later)
            options["cut"] = later.token()
            same_states(rows_of(read(root, "state", **options)), states)
            same_versions(rows_of(read(root, "history", **options)), versions)


def test_spark_fold_equals_space_read(spark, read, tmp_path):
    compare(spark, read, tmp_path / "store", count=12, rounds=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_spark_fold_equals_reads_of_360_spaces(spark, read, tmp_path, seed):
    compare(spark, read, tmp_path / "store", count=SPACES_TOGETHER, rounds=2, seed=seed)
