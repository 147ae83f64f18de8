"""The progress of a job on its page: per cent, estimate, and a chart of its speed."""

from __future__ import annotations

from fourfold.explorer import drawings
from fourfold.explorer.explorer import Explorer
from fourfold.explorer.jobs import job_row
from fourfold.wire.store import JobInfo, JobProgress, JobRate

PROGRESS = '{% import "components.html" as ui with context %}{{ ui.progress(job) }}'


def running_job(progress, **fields):
    return JobInfo(
        id="7",
        kind="materialize",
        options={"model": "documents", "full": False},
        status="running",
        created_at_ms=0,
        started_at_ms=1_000,
        progress=progress,
        **fields,
    )


def render(job):
    environment = Explorer(None, "shop")._templates
    return environment.from_string(PROGRESS).render(job=job)


def test_a_running_job_has_an_estimate_and_a_chart_of_its_speed():
    progress = JobProgress("state", 3, 12, JobRate(500, [1, 0, 2]))
    job = job_row(running_job(progress), now_ms=4_000)
    assert (job["percent"], job["elapsed_ms"], job["left_ms"]) == (25, 3_000, 9_000)
    assert job["rates"] == [2.0, 0.0, 4.0]
    assert job["options"] == {"model": "documents"}
    shown = render(job)
    assert "3 of 12 · state · 3.0 s · about 9.0 s left" in shown
    assert '<progress max="12" value="3"' in shown
    assert "At most 4.0 steps a second, 4.0 now" in shown


def test_a_job_without_a_total_has_no_bar_and_no_estimate():
    job = job_row(running_job(JobProgress("", 0, 0)), now_ms=4_000)
    assert (job["percent"], job["left_ms"], job["rates"]) == (None, None, [])
    shown = render(job)
    assert "<progress" not in shown
    assert "<svg" not in shown
    assert "Working" in shown


def test_the_highest_value_is_the_top_of_an_area():
    drawing = drawings.area([0.0, 8.0, 4.0], "speed")
    assert 'points="0,63.0 10,1.0 20,32.0"' in drawing
    assert 'aria-label="speed"' in drawing
