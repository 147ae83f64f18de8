"""Marking and collecting the sessions of one store, as the job `gc` does."""

from __future__ import annotations

import fourfold
from fourfold.pipeline.sessions.gc import collect, mark_file
from fourfold.pipeline.sessions.tables import SESSIONS
from fourfold.pipeline.store_files import find_files, find_stores


def test_job_removes_what_its_dry_run_counts(tmp_path):
    root = tmp_path / "store"
    with fourfold.open(root) as store:
        for sid in ("kept", "deleted"):
            store.sessions.create_session({"id": sid})
        store.sessions.delete_session("deleted")
        # Without a newest session to keep, this policy would delete the other one.
        store.sessions.set_retention("", max_age_s=0)
    [file] = find_files(find_stores(str(root), None), SESSIONS)
    marked = mark_file(file, 0.0)
    assert marked.counts["sessions"] == 1
    counts, _ = collect(marked, 0.0)
    assert counts == marked.counts
    with fourfold.open(root, mode="r") as store:
        assert [info.id for info in store.sessions.list()] == ["kept"]
