"""Metrics of requests on both fronts, their exposition, and the dashboard over them."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import both_fronts
import pytest
from prometheus_client.parser import text_string_to_metric_families

import fourfold
from fourfold.server import health
from fourfold.server.request import Request
from fourfold.server.request_metrics import (
    LATENCY_BUCKETS_S,
    Family,
    Histogram,
    Sample,
    format_families,
)
from fourfold.server.telemetry import Telemetry
from fourfold.store.background_publisher import Continuous

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana.json"
APPEND = {"method": "POST", "route": "/v1/stream/{name:stream}"}


@pytest.fixture(params=[True, False], ids=["fast", "asgi"])
def front(tmp_path, request):
    front = both_fronts.Front(tmp_path / "store", fast=request.param)
    yield front
    front.stop()


def scrape(front):
    """Return the families of `/metrics` by name."""
    status, _, body = front.ask(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")[0]
    assert status == 200
    return {family.name: family for family in text_string_to_metric_families(body.decode())}


def value(families, name, suffix="", **labels):
    """Return the sum of the samples with these labels."""
    family = families[name.removesuffix("_total")]
    return sum(
        sample.value
        for sample in family.samples
        if sample.name == name + suffix and labels.items() <= sample.labels.items()
    )


def test_requests_are_counted_by_route_and_status(front):
    front.streams.create("secret-name", "application/json")
    for name, expected in (("secret-name", 204), ("secret-name", 204), ("missing-name", 404)):
        assert front.ask(both_fronts.append(name))[0][0] == expected
    front.ask(both_fronts.request("GET", "secret-name"))
    families = scrape(front)
    total = "fourfold_http_requests_total"
    assert value(families, total, status="204", **APPEND) == 2
    assert value(families, total, status="404", **APPEND) == 1
    assert value(families, total, method="GET", route=APPEND["route"], status="200") == 1
    duration = "fourfold_http_request_duration_seconds"
    assert value(families, duration, "_count", **APPEND) == 3
    assert value(families, duration, "_bucket", le="+Inf", **APPEND) == 3
    assert value(families, duration, "_sum", **APPEND) > 0
    assert "-name" not in str(families)


def test_pipelined_appends_are_all_counted(front):
    front.streams.create("s", "application/json")
    front.ask(both_fronts.append("s") * 20, answers=20)
    families = scrape(front)
    assert value(families, "fourfold_http_requests_total", status="204", **APPEND) == 20
    counts = value(families, "fourfold_group_items", "_sum")
    assert counts == value(families, "fourfold_requests_total") or counts >= 20


def test_live_readers_are_counted_while_they_wait_and_not_timed(front):
    front.streams.create("s", "application/json")
    path = "/v1/stream/s"
    poll = f"GET {path}?offset=now&live=long-poll HTTP/1.1\r\nHost: localhost\r\n\r\n"
    feed = f"GET {path}?offset=now&live=sse HTTP/1.1\r\nHost: localhost\r\n\r\n"
    in_flight = front.protocol.observer.metrics.in_flight
    with front.connect() as reader, front.connect() as other:
        other.send(feed.encode())
        assert b"200" in other._until(b"\r\n\r\n")
        reader.send(poll.encode())
        assert reader.answer()[0] == 204
        assert value(scrape(front), "fourfold_http_requests_in_flight", kind="feed") == 1
        assert value(scrape(front), "fourfold_http_connections") >= 3
    assert in_flight["long-poll"] == 0
    duration = "fourfold_http_request_duration_seconds"
    assert value(scrape(front), duration, "_count", method="GET", route=APPEND["route"]) == 0
    front.ask(both_fronts.request("GET", "s"))
    assert value(scrape(front), duration, "_count", method="GET", route=APPEND["route"]) == 1


def test_commits_and_their_sync_are_timed(front):
    front.streams.create("s", "application/json")
    front.ask(both_fronts.append("s"))
    families = scrape(front)
    commits = value(families, "fourfold_commit_seconds", "_count")
    assert commits == value(families, "fourfold_txn_latency_seconds", "_count") > 0
    assert value(families, "fourfold_commit_seconds", "_sum") > 0
    assert value(families, "fourfold_commit_seconds", "_sum") <= value(
        families, "fourfold_txn_latency_seconds", "_sum"
    )


def write_to_all_models(front, dids):
    for did in dids:
        front.store.space(did).set("note", {"n": 1})
    front.store.sessions.create({"id": "talk"})
    front.store.graphs.create("notes")
    front.streams.create("s", "application/json")
    front.store.database("mine").transact(lambda _: None)


def test_databases_are_added_up_by_model_and_never_named(front):
    write_to_all_models(front, ("did:a:1", "did:a:2", "did:a:3"))
    families = scrape(front)
    total = "fourfold_transactions_total"
    models = {sample.labels["model"] for sample in families["fourfold_transactions"].samples}
    assert models == {"documents", "graphs", "sessions", "streams", "other"}
    spaces = [front.store.space(f"did:a:{number}").database for number in (1, 2, 3)]
    readings = [space.metrics() for space in spaces]
    counted = sum(reading.counters["transactions"] for reading in readings)
    assert value(families, total, model="documents") == counted >= 3
    for name in ("txn_latency_seconds", "commit_seconds"):
        assert value(families, f"fourfold_{name}", "_count", model="documents") == counted
    assert value(families, "fourfold_group_items", "_sum", model="documents") == sum(
        reading.group_sum for reading in readings
    )
    assert value(families, "fourfold_open_connections", model="documents") == 3
    assert value(families, "fourfold_db_size_bytes", model="documents") == sum(
        reading.db_size_bytes for reading in readings
    )
    numbered = {sample.labels["model"] for sample in families["fourfold_sequence"].samples}
    assert numbered == {"graphs", "sessions"}
    assert "did" not in str(families)
    assert "sqlite" not in str(families)


def test_counters_of_a_model_stay_when_a_space_is_closed(front):
    dids = ("did:a:1", "did:a:2", "did:a:3")
    write_to_all_models(front, dids)
    totals = ("fourfold_transactions_total", "fourfold_requests_total")
    before = [value(scrape(front), name, model="documents") for name in totals]
    for did in dids:
        front.store.release(did)
        families = scrape(front)
        assert [value(families, name, model="documents") for name in totals] == before
    assert value(families, "fourfold_open_connections", model="documents") == 0
    assert value(families, "fourfold_db_size_bytes", model="documents") == 0
    front.store.space(dids[0]).set("note", {"n": 2})
    after = [value(scrape(front), name, model="documents") for name in totals]
    assert all(new > old for new, old in zip(after, before, strict=True))


def test_model_whose_database_fails_is_scraped_too(front, monkeypatch):
    write_to_all_models(front, ("did:a:1",))

    def fail(*_arguments, **_options):
        raise fourfold.errors.StorageError("disk I/O error")

    for database in (front.streams.database, front.store.graphs.database):
        monkeypatch.setattr(database, "metrics", fail)
    families = scrape(front)
    assert value(families, "fourfold_transactions_total", model="streams") > 0
    assert value(families, "fourfold_transactions_total", model="graphs") > 0


def test_error_of_the_server_is_counted_as_500(tmp_path, monkeypatch):
    with fourfold.open(tmp_path / "store") as store:
        protocol = both_fronts.store_protocol(store)
        monkeypatch.setattr(type(store.streams), "info", lambda *_: 1 / 0)
        request = Request("HEAD", "/v1/stream/s", "", {"host": "localhost"})
        with pytest.raises(ZeroDivisionError):
            asyncio.run(protocol.handle(request))
    responses = protocol.observer.metrics.responses
    assert list(responses) == [("HEAD", "/v1/stream/{name:stream}", 500)]


def test_buckets_are_upper_bounds():
    histogram = Histogram()
    for seconds in (0.0, LATENCY_BUCKETS_S[0], LATENCY_BUCKETS_S[1], 1e9):
        histogram.record(seconds)
    assert histogram.buckets[:2] == [2, 1]
    assert histogram.buckets[-1] == 1
    assert sum(histogram.buckets) == 4


def test_labels_are_escaped():
    sample = Sample("", (("path", 'a"b\\c\nd'),), 1)
    text = format_families(iter([Family("m", "gauge", "A metric.", [sample])]))
    (family,) = text_string_to_metric_families(text)
    assert family.samples[0].labels == {"path": 'a"b\\c\nd'}


def test_dashboard_uses_only_metrics_that_exist(front):
    dashboard = json.loads(DASHBOARD.read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    used = {name for text in expressions for name in re.findall(r"fourfold_\w+", text)}
    assert len(used) >= 15
    front.streams.create("s", "application/json")
    front.ask(both_fronts.append("s"))
    status, _, body = front.ask(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")[0]
    assert status == 200
    text = body.decode() + health.metrics_text(Continuous(front.store))
    declared = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    existing = set()
    for name, kind in declared.items():
        existing.add(name)
        if kind == "histogram":
            existing |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"}
    assert used <= existing
    # Only a server with a receiver has those of the export.
    existing |= {family.name for family in Telemetry("http://127.0.0.1:1").families()}
    documented = (DASHBOARD.parents[1] / "docs" / "operating" / "server.md").read_text()
    for name in re.findall(r"`(fourfold_\w+)`", documented):
        assert name in existing, name
