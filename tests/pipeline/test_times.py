"""Spark compares commit times with three and with six fractional digits correctly."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import fourfold
from fourfold.models.documents import HISTORIES, timestamps, writer
from fourfold.pipeline import cut
from fourfold.pipeline.options import read_options

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
COMMITS = (122_900, 123_400, 123_500, 123_501, 124_000)
"""Microseconds; the first two are stored with three digits, as earlier versions did."""
STORED = (122_000, 123_000, 123_500, 123_501, 124_000)
EDGES = (122_999, 123_000, 123_001, 123_499, 123_500, 123_501, 123_999, 124_000)


def at(us):
    return START + timedelta(microseconds=us)


@pytest.fixture(scope="module", params=sorted(HISTORIES))
def mixed(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("mixed") / "store"
    with pytest.MonkeyPatch.context() as patcher, fourfold.open(root) as store:
        space = store.space("did:web:mixed.example", history=request.param)
        for number, us in enumerate(COMMITS):
            text = timestamps.stored_time(at(us))
            short = f"{text[:23]}Z"
            patcher.setattr(writer, "next_moment", lambda _, t=short if number < 2 else text: t)
            space.set("e", {"us": us})
    return root


@pytest.mark.parametrize("us", EDGES)
def test_cut_at_time_includes_commits_at_that_time(mixed, us):
    options = {"root": str(mixed), "table": "state", "at": at(us).isoformat()}
    [bound] = cut.read_cut(read_options(options)).bounds
    assert bound.seq == sum(stored <= us for stored in STORED)


@pytest.mark.spark
def test_read_at_time_includes_commits_at_that_time(mixed, read):
    [row] = read(mixed, "state", at=at(123_500).isoformat(), columns="seq").collect()
    assert row.seq == 3


def judge(us):
    """Return conditions on the time of a commit, each with how many commits satisfy it."""
    text = f"timestamp '{at(us).isoformat()}'"
    for sign, compare in (
        ("<", us.__gt__),
        ("<=", us.__ge__),
        (">", us.__lt__),
        (">=", us.__le__),
        ("=", us.__eq__),
    ):
        yield f"time {sign} {text}", sum(map(compare, STORED))
    yield f"time in ({text}, now())", STORED.count(us)


@pytest.mark.spark
def test_filter_on_time_handles_both_precisions(mixed, read):
    commits = read(mixed, "commits", columns="seq,time")
    conditions = [pair for us in EDGES for pair in judge(us)]
    counts = [f"count_if({condition})" for condition, _ in conditions]
    [row] = commits.selectExpr(*counts).collect()
    assert dict(zip(counts, row, strict=True)) == {
        f"count_if({condition})": count for condition, count in conditions
    }
    # A filter reaches the files, which a condition in the result does not.
    for condition, count in judge(123_500):
        assert commits.where(condition).count() == count, condition
