"""The pages of the pipeline in a real browser, with a run of a process that is not the server."""

from __future__ import annotations

import threading

import pytest
from shop_store import WriteTables, run_job

from fourfold.pipeline import jobs

NARROW = {"width": 390, "height": 844}


class Slow(WriteTables):
    """Reports progress, and waits until it is released."""

    name = "slow"

    def __init__(self):
        self.reported, self.released = threading.Event(), threading.Event()

    def run(self, context, plan):
        context.advance("reading", 4, 4)
        context.advance("folding", 1, 4)
        self.reported.set()
        assert self.released.wait(60)
        return super().run(context, plan)


@pytest.fixture
def slow(own_shop):
    """A run that waits until it is released."""
    job, into = Slow(), own_shop.root.with_name("slow-tables")
    options = {"into": into, "model": "documents"}
    thread = threading.Thread(target=jobs.run, args=(job, own_shop.root, options))
    thread.start()
    assert job.reported.wait(60)
    yield job
    job.released.set()
    thread.join()


def test_a_run_of_another_process_is_followed_to_its_end(visit, own_shop, slow):
    visitor = visit(own_shop)
    page = visitor.page
    visitor.open("/pipeline")
    card = page.locator(".live-job")
    assert "started by a command" in card.inner_text()
    assert "25 % 1 of 4 · folding" in card.inner_text()
    assert card.get_by_role("button", name="Cancel").count() == 0
    assert card.get_by_role("row", name="reading 4 of 4").count() == 1
    slow.released.set()
    page.locator(".live-job").wait_for(state="detached")
    row = page.get_by_role("table", name="Runs of pipeline jobs").get_by_role("row", name="slow")
    assert "done" in row.inner_text()
    row.get_by_role("link", name="slow").click()
    assert page.get_by_role("heading", level=1).inner_text() == "Slow"
    assert page.get_by_role("table", name="Inputs of the run").get_by_text("21").count() == 1
    assert page.get_by_role("row", name="committing").count() == 1
    assert visitor.problems == []


def test_the_page_of_a_run_follows_it_on_a_phone(visit, own_shop, slow):
    visitor = visit(own_shop, viewport=NARROW, color_scheme="dark")
    page = visitor.page
    visitor.open("/jobs?kind=slow")
    page.get_by_role("link", name="slow").click()
    assert page.locator("#job-state").inner_text() == "running"
    assert not visitor.has_sideways_scroll()
    slow.released.set()
    page.locator("#job-state .ok").wait_for()
    assert page.get_by_role("row", name="Rows read 21").count() == 1
    assert not visitor.has_sideways_scroll()
    assert visitor.problems == []


def test_the_pipeline_shows_points_and_lag(visit, own_shop):
    assert run_job(own_shop, "publish")["status"] == "succeeded"
    visitor = visit(own_shop)
    visitor.open("/pipeline")
    points = visitor.page.get_by_role("table", name="Newest restore points")
    assert points.get_by_role("link").count() >= 1
    assert "all rows are published" in visitor.page.locator("main").inner_text()
    assert visitor.problems == []
