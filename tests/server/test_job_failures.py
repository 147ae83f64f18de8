"""Records of jobs: failures that nothing foresaw, and what is shown while a job ends."""

from __future__ import annotations

import asyncio
import time

import fourfold
from fourfold.server.job_store import JobStore
from fourfold.server.jobs import Jobs
from fourfold.server.open_spaces import OpenSpaces
from fourfold.server.workers import Workers
from fourfold.wire.store import GcJob


async def run_job(store, backups, watch):
    """Run a job to its end, and call `watch(jobs)` as soon as its end is shown."""
    jobs = Jobs(store, OpenSpaces(store, Workers()), backups)
    job = jobs.start(GcJob(), None, asyncio.get_running_loop())
    with jobs.notifier.listen(job.id) as listener:
        while jobs.get(job.id).status in {"queued", "running"}:
            listener.drain()
            await listener.wait(0.05)
    shown = jobs.get(job.id)
    watch(jobs)
    jobs.stop()
    return shown, jobs.get(job.id)


def test_record_of_job_is_what_was_shown_while_it_ran(tmp_path, monkeypatch):
    def delayed(function):
        def call(self, *arguments):
            time.sleep(0.02)
            result = function(self, *arguments)
            time.sleep(0.02)
            return result

        return call

    monkeypatch.setattr(JobStore, "start", delayed(JobStore.start))
    with fourfold.open(tmp_path / "store") as store:
        shown, recorded = asyncio.run(run_job(store, tmp_path / "backups", lambda _: None))
    assert shown.status == "succeeded"
    assert recorded == shown


def test_list_shows_end_of_job_while_it_is_recorded(tmp_path, monkeypatch):
    seen = []
    list_jobs = JobStore.list_jobs

    def list_late(self, *arguments):
        """Read the records, and return them after the job is recorded."""
        found = list_jobs(self, *arguments)
        time.sleep(0.1)
        return found

    end = JobStore.end

    def end_late(self, job):
        time.sleep(0.05)
        end(self, job)

    monkeypatch.setattr(JobStore, "list_jobs", list_late)
    monkeypatch.setattr(JobStore, "end", end_late)
    with fourfold.open(tmp_path / "store") as store:
        asyncio.run(
            run_job(
                *(store, tmp_path / "backups"),
                lambda jobs: seen.extend(jobs.list_jobs(None, None, None, 10)),
            )
        )
    assert [job.status for job in seen] == ["succeeded"]


def test_unexpected_failure_is_recorded_and_logged(tmp_path, monkeypatch, caplog):
    def fail():
        raise ZeroDivisionError("in the middle of it")

    with fourfold.open(tmp_path / "store") as store:
        monkeypatch.setattr(store, "spaces", fail)
        _, job = asyncio.run(run_job(store, tmp_path / "backups", lambda _: None))
    assert job.status == "failed"
    assert job.error.message == f"job {job.id} failed: ZeroDivisionError"
    [record] = caplog.records
    assert record.getMessage() == f"Job {job.id} failed"
    assert str(record.exc_info[1]) == "in the middle of it"
