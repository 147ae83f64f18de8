"""Pages of the jobs that maintain an archive."""

from __future__ import annotations

import json

from test_pages_over_http import get, post, text_of


def test_jobs_of_an_archive_are_previewed_and_started(own_shop):
    preview = json.loads(get(own_shop, "/run.json?kind=compact").text)["preview"]
    assert preview == [["Archive", "nothing is published yet"]]
    for number, kind in enumerate(("publish", "compact", "index", "companions"), 1):
        assert f"Start {kind}" in text_of(get(own_shop, f"/run?kind={kind}"))
        done = post(own_shop, "/run", {"kind": kind, "token": kind})
        assert done.headers["location"] == f"/job?id={number}"
        own_shop.ask("GET", f"/v1/jobs/{number}/events")
        job = json.loads(get(own_shop, f"/job.json?id={number}").text)["job"]
        assert (job["kind"], job["status"]) == (kind, "succeeded")
        assert "Companions" in text_of(get(own_shop, f"/job?id={number}")) or kind != "companions"
    rows = dict(json.loads(get(own_shop, "/run.json?kind=compact").text)["preview"])
    assert "segments" in rows["Streams"]
    assert "files" in rows["Tables"]
    assert "Start stats of sessions" in text_of(get(own_shop, "/run?kind=stats&model=sessions"))
    body = text_of(get(own_shop, "/run?kind=stats&model=sessions"))
    assert "fourfold pipeline run stats" in body
