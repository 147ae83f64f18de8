"""A space with truncated history is never read as if it were complete."""

from __future__ import annotations

import json

import pytest

import fourfold
from fourfold.errors import HistoryTruncated
from fourfold.models.documents.gc.policy import GcPolicy
from fourfold.pipeline import cut, plan, scan
from fourfold.pipeline.options import read_options
from fourfold.pipeline.stream_source import FileFollower

DID = "did:web:collected.example"


@pytest.fixture(params=["revisions", "facts"])
def root(request, tmp_path):
    folder = tmp_path / "store"
    with fourfold.open(folder, settings={"documents.page_size": 4096}) as store:
        space = store.space(DID, request.param)
        for number in range(40):
            space.patch("counter", [{"op": "add", "path": "/n", "value": number}])
            space.set(f"other-{number % 3}", {"n": number})
    return folder


def collect(root):
    """Remove history older than the newest twenty seqs; return the states from the horizon."""
    with fourfold.open(root) as store:
        space = store.space(DID)
        space.gc(GcPolicy(keep_seqs=20))
        horizon = space.horizon()
        assert horizon > 1
        return horizon, {
            (entity, seq): space.read(entity, at=seq).document
            for seq in range(horizon, space.seq() + 1)
            for entity in ("counter", "other-0", "other-1", "other-2")
        }


def rows(root, table, **more):
    options = read_options({"root": str(root), "table": table, **more})
    works = plan.plan(cut.read_cut(options).bounds, options, options.table.select_columns())
    return [row for work in works for batch in scan.read_batches(work) for row in batch.to_pylist()]


def test_states_below_horizon_are_refused(root):
    horizon, expected = collect(root)
    for at in (horizon, horizon + 7):
        actual = {row["id"]: json.loads(row["document"]) for row in rows(root, "state", at=str(at))}
        assert actual == {entity: state for (entity, seq), state in expected.items() if seq == at}
    with pytest.raises(HistoryTruncated, match=r"gc removed|history begins"):
        rows(root, "state", at=str(horizon - 1))


def test_versions_begin_at_horizon(root):
    horizon, expected = collect(root)
    actual = rows(root, "history")
    assert min(row["seq"] for row in actual) >= horizon
    assert {row["seq"] for row in actual} == set(range(horizon, 81))
    for row in actual:
        assert json.loads(row["document"]) == expected[row["id"], row["seq"]]
    with pytest.raises(HistoryTruncated, match=r"gc removed|history begins"):
        rows(root, "history", since="3")


def test_scan_detects_gc_after_cut(root):
    options = read_options({"root": str(root), "table": "state", "at": "30"})
    taken = cut.read_cut(options)
    collect(root)
    [work] = plan.plan(taken.bounds, options, options.table.select_columns())
    with pytest.raises(HistoryTruncated, match="seq 30"):
        list(scan.read_batches(work))


def test_stream_with_unread_truncated_rows_is_refused(root):
    options = read_options({"root": str(root), "table": "revisions"})
    columns = options.table.select_columns()
    following = FileFollower(options)
    end = following.end_offset({}, None)
    assert (
        sum(
            batch.num_rows
            for work in following.plan_tasks({}, end, columns)
            for batch in scan.read_batches(work)
        )
        == 80
    )
    horizon, _ = collect(root)
    works = following.plan_tasks({DID: horizon}, end, columns)
    assert (
        sum(batch.num_rows for work in works for batch in scan.read_batches(work)) == 80 - horizon
    )
    [work] = following.plan_tasks({DID: 10}, end, columns)
    with pytest.raises(HistoryTruncated, match="after seq 10"):
        list(scan.read_batches(work))
