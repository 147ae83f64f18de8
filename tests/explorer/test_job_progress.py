"""The progress of a job on its page: per cent, estimate, and a chart of its speed."""

from __future__ import annotations

from fourfold.explorer import drawings
from fourfold.explorer.explorer import Explorer
from fourfold.explorer.jobs import job_row
from fourfold.store.job_progress import STAGES_MAX, StageLog
from fourfold.wire.store import JobInfo, JobProgress, JobRate, JobStage

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


def test_running_job_has_estimate_and_chart_of_its_speed():
    progress = JobProgress("state", 3, 12, JobRate(500, [1, 0, 2]))
    job = job_row(running_job(progress), now_ms=4_000)
    assert (job["percent"], job["elapsed_ms"], job["left_ms"]) == (25, 3_000, 9_000)
    assert job["rates"] == [2.0, 0.0, 4.0]
    assert job["options"] == {"model": "documents"}
    shown = render(job)
    assert "3 of 12 · state · 3.0 s · about 9.0 s left" in shown
    assert '<progress max="12" value="3"' in shown
    assert "At most 4.0 steps a second, 4.0 now" in shown


def test_job_without_total_has_no_bar_and_no_estimate():
    job = job_row(running_job(JobProgress("", 0, 0)), now_ms=4_000)
    assert (job["percent"], job["left_ms"], job["rates"]) == (None, None, [])
    shown = render(job)
    assert "<progress" not in shown
    assert "<svg" not in shown
    assert "Working" in shown


def test_chart_of_throughput_has_axis_and_marks_current_value():
    drawing = drawings.throughput([0.0, 8.0, 4.0], "speed", is_live=True)
    assert 'points="0.0,122.0 308.0,8.0 616.0,65.0"' in drawing
    assert [number for number in ("0", "2", "4", "6", "8") if f">{number}</text>" in drawing] == [
        *("0", "2", "4", "6", "8")
    ]
    assert '<circle cx="616" cy="65.0"' in drawing
    assert 'aria-label="speed"' in drawing
    assert "<circle" not in drawings.throughput([0.0, 8.0], "speed", is_live=False)


def test_stages_have_their_times_and_the_last_is_current():
    stages = [JobStage("read", 4, 4, 1_000, 2_500), JobStage("fold", 1, 3, 2_500)]
    job = job_row(running_job(JobProgress("fold", 1, 3), stages=stages), now_ms=4_000)
    assert [(row["name"], row["state"], row["took_ms"]) for row in job["stages"]] == [
        ("read", "ok", 1_500),
        ("fold", "run", 1_500),
    ]
    shown = render(job)
    assert "1 of 3" in shown
    assert 'aria-selected="true"' in shown


def test_items_of_one_total_are_one_stage():
    log = StageLog()
    for number, name in enumerate(("a", "b", "c")):
        log.add(name, number, 3, number)
    assert log.to_wire() == []
    log.add("write", 0, 2, 5)
    log.add("write", 2, 4, 6)
    log.end(9)
    assert log.to_wire() == [JobStage("a", 2, 3, 0, 5), JobStage("write", 2, 4, 5, 9)]
    for number in range(STAGES_MAX):
        log.add(f"stage {number}", 0, 0, 10)
    assert len(log.to_wire()) == STAGES_MAX
