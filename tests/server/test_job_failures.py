"""A job that fails in a way that nothing foresaw: recorded, and logged with its traceback."""

from __future__ import annotations

import asyncio

import fourfold
from fourfold.server.jobs import Jobs
from fourfold.server.open_spaces import OpenSpaces
from fourfold.server.workers import Workers
from fourfold.wire.store import GcJob


def test_unexpected_failure_is_recorded_and_logged(tmp_path, monkeypatch, caplog):
    async def main(store):
        jobs = Jobs(store, OpenSpaces(store, Workers()), tmp_path / "backups")
        job = jobs.start(GcJob(), None, asyncio.get_running_loop())
        with jobs.notifier.listen(job.id) as listener:
            while jobs.get(job.id).status in {"queued", "running"}:
                listener.drain()
                await listener.wait(0.05)
        return jobs.get(job.id)

    def fail():
        raise ZeroDivisionError("in the middle of it")

    with fourfold.open(tmp_path / "store") as store:
        monkeypatch.setattr(store, "spaces", fail)
        job = asyncio.run(main(store))
    assert job.status == "failed"
    assert job.error.message == f"job {job.id} failed: ZeroDivisionError"
    [record] = caplog.records
    assert record.getMessage() == f"Job {job.id} failed"
    assert str(record.exc_info[1]) == "in the middle of it"
