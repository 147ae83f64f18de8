"""Spans of requests and their commits, and metrics, sent to a receiver of OTLP."""

from __future__ import annotations

import math
import threading
from contextlib import ExitStack

import both_fronts
import pytest
from prometheus_client.parser import text_string_to_metric_families

import fourfold
from fourfold.errors import InvalidInput
from fourfold.kernel import commit_traces
from fourfold.otlp.exposition import metrics_of
from fourfold.otlp.sender import endpoint_of, parse_headers
from fourfold.retry import Retries
from fourfold.server import request_traces
from fourfold.server.observer import Observer
from fourfold.server.request_traces import Tracer
from fourfold.server.telemetry import Telemetry
from fourfold.settings import ServerSettings
from support.otlp_receiver import Receiver

APPEND = "POST /v1/stream/{name:stream}"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


def attributes(item):
    """Return the attributes of a span or a data point as a dictionary."""
    kinds = (("string_value", str), ("int_value", int), ("double_value", float))
    return {
        entry.key: next(
            kind(getattr(entry.value, name)) for name, kind in kinds if entry.value.HasField(name)
        )
        for entry in item.attributes
    }


@pytest.fixture
def receiver():
    receiver = Receiver()
    yield receiver
    receiver.stop()


class Traced:
    """A server whose telemetry is sent when the block ends."""

    def __init__(self, root, receiver, *, fast, share=1.0, metrics_s=3600.0):
        self.telemetry = Telemetry(
            receiver.url, share=share, metrics_s=metrics_s, headers={"x-key": "k"}
        )
        self.receiver = receiver
        self.front = both_fronts.Front(root, fast=fast, observer=Observer(None, 1, self.telemetry))
        self._stack = ExitStack()
        metrics_text = self.front.protocol.diagnostics.metrics_text
        self._stack.enter_context(self.telemetry.running(metrics_text))
        self.front.streams.create("secret-name", "application/json")

    def close(self):
        """Stop the server, and send what is left."""
        self._stack.close()
        self.front.stop()

    def stop(self):
        """Stop the server; return the spans of requests and those of commits."""
        self.front.server.stop()
        self.front.thread.join(30)
        self._stack.close()
        spans = self.receiver.spans()
        by_id = {span.span_id: span for span in spans}
        assert len(by_id) == len(spans)
        return (
            [span for span in spans if span.name != "commit"],
            [span for span in spans if span.name == "commit"],
        )


@pytest.fixture(params=[True, False], ids=["fast", "asgi"])
def traced(tmp_path, receiver, request):
    traced = Traced(tmp_path / "store", receiver, fast=request.param)
    yield traced
    traced.close()


def test_an_append_is_a_span_with_its_commit(traced):
    append = both_fronts.append("secret-name")
    assert traced.front.ask(append, append, answers=2)[1][0] == 204
    requests, commits = traced.stop()
    assert [span.name for span in requests] == [APPEND, APPEND]
    span = requests[0]
    assert span.kind == span.SPAN_KIND_SERVER
    assert not span.parent_span_id
    assert attributes(span) == {
        "http.request.method": "POST",
        "http.route": "/v1/stream/{name:stream}",
        "http.response.status_code": 204,
        "fourfold.operation": "append",
        "fourfold.model": "streams",
    }
    assert requests[0].trace_id != requests[1].trace_id
    assert sorted((span.trace_id, span.span_id) for span in requests) == sorted(
        (span.trace_id, span.parent_span_id) for span in commits
    )
    for commit in commits:
        values = attributes(commit)
        assert values["db.system.name"] == "sqlite"
        assert values["fourfold.group.size"] >= 1
        seconds = (commit.end_time_unix_nano - commit.start_time_unix_nano) / 1e9
        assert 0 < values["fourfold.fsync.duration"] <= seconds + 1e-6
    assert "secret-name" not in str(traced.receiver.bodies)
    assert traced.receiver.headers[0]["X-Key"] == "k"


def test_pipelined_appends_share_a_commit(traced):
    traced.front.ask(both_fronts.append("secret-name") * 20, answers=20)
    requests, commits = traced.stop()
    assert len(requests) == len(commits) == 20
    assert {span.parent_span_id for span in commits} == {span.span_id for span in requests}
    sizes = [attributes(commit)["fourfold.group.size"] for commit in commits]
    # Each write counts its whole group.
    assert sum(1 / size for size in sizes) == pytest.approx(
        len({commit.end_time_unix_nano for commit in commits})
    )


def test_a_request_continues_the_trace_of_its_caller(traced):
    front = traced.front
    sent = {"traceparent": TRACEPARENT, "tracestate": "a=1"}
    front.ask(both_fronts.append("secret-name", **sent))
    front.ask(both_fronts.request("GET", "secret-name", **sent))
    (append, read), (commit,) = traced.stop()
    for span in (append, read, commit):
        assert span.trace_id.hex() == TRACE
        assert span.trace_state == "a=1"
    assert append.parent_span_id.hex() == read.parent_span_id.hex() == PARENT
    assert commit.parent_span_id == append.span_id


def test_a_caller_that_does_not_trace_is_not_traced(traced):
    not_sampled = f"00-{TRACE}-{PARENT}-00"
    traced.front.ask(both_fronts.append("secret-name", traceparent=not_sampled))
    traced.front.ask(both_fronts.request("GET", "secret-name", traceparent=not_sampled))
    assert traced.stop() == ([], [])


@pytest.mark.parametrize(
    "damaged",
    [
        *("", "garbage", "00-0-0-01", TRACEPARENT.upper(), f"ff-{TRACE}-{PARENT}-01"),
        *(f"00-{'0' * 32}-{PARENT}-01", f"00-{TRACE}-{'0' * 16}-01"),
    ],
)
def test_damaged_traceparent_begins_a_new_trace(damaged):
    trace = Tracer().begin({"traceparent": damaged})
    assert trace.trace_id.hex() not in {TRACE, "0" * 32}
    assert trace.parent_id == b""


def test_failed_requests_have_the_kind_of_their_error(traced):
    front = traced.front
    assert front.ask(both_fronts.append("missing"))[0][0] == 404
    assert front.ask(both_fronts.append("secret-name", b"{"))[0][0] == 400
    assert front.ask(both_fronts.request("GET", "missing"))[0][0] == 404
    requests, _ = traced.stop()
    found = [
        (attributes(span)["http.response.status_code"], attributes(span)["error.type"])
        for span in requests
    ]
    assert found[0] == (404, "not_found")
    assert found[1][0] == 400
    assert found[2] == (404, "not_found")
    # Errors of clients are not errors of the server.
    assert not any(span.status.code for span in requests)


def test_requests_without_a_valid_key_have_no_span(tmp_path, receiver):
    tracer = Telemetry(receiver.url).tracer
    observer = Observer(None, 1)
    observer.tracer = tracer
    front = both_fronts.Front(tmp_path / "store", fast=True, access=True, observer=observer)
    try:
        front.access.add(("read",))
        assert front.ask(both_fronts.append("s"))[0][0] == 401
        assert front.ask(both_fronts.request("GET", "s"))[0][0] == 401
    finally:
        front.stop()
    assert tracer.waiting == 0


def test_writes_of_all_models_have_their_commits(traced):
    def send(method, path, body):
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        data = f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()
        status = traced.front.ask(data)[0][0]
        assert status < 300, (path, status)

    assert traced.front.store.space("did:web:a").read("note") is None
    send("PUT", "/v1/spaces/did:web:a/documents/note", '{"n": 1}')
    send("POST", "/v1/sessions", '{"id": "talk"}')
    send("PUT", "/v1/apps/notes", '{"name": "Notes"}')
    requests, commits = traced.stop()
    models = {attributes(span)["fourfold.model"] for span in requests}
    assert models == {"documents", "sessions", "graphs"}
    parents = {commit.parent_span_id for commit in commits}
    for span in requests:
        assert span.span_id in parents, span.name


def test_concurrent_writers_have_their_own_commits(tmp_path):
    tracer = Tracer()
    tracer.start()
    try:
        with fourfold.open(tmp_path / "store") as store:
            space = store.space("did:web:a")
            collected = [[] for _ in range(8)]
            barrier = threading.Barrier(8)

            def write(number):
                barrier.wait(30)
                for count in range(10):
                    with commit_traces.collecting(collected[number]):
                        space.set(f"note-{number}", {"n": count})

            threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            space.set("untraced", {})
    finally:
        tracer.stop()
    assert [len(commits) for commits in collected] == [10] * 8
    every = {commit for commits in collected for commit in commits}
    assert sum(commit.group_size for commit in every) == 80
    assert not commit_traces.armed


def test_commits_of_one_request_are_bounded(tmp_path):
    tracer, commits = Tracer(), []
    tracer.start()
    try:
        with fourfold.open(tmp_path / "store") as store, commit_traces.collecting(commits):
            space = store.space("did:web:a")
            for count in range(commit_traces.COMMITS_MAX + 5):
                space.set("note", {"n": count})
    finally:
        tracer.stop()
    assert len(commits) == commit_traces.COMMITS_MAX


def test_nothing_is_collected_without_a_tracer(tmp_path):
    with fourfold.open(tmp_path / "store") as store, commit_traces.collecting(commits := []):
        store.space("did:web:a").set("note", {})
    assert commits == []


def test_spans_are_dropped_when_too_many_wait(monkeypatch, traced):
    monkeypatch.setattr(request_traces, "SPANS_WAITING_MAX", 0)
    traced.front.ask(both_fronts.append("secret-name"))
    assert traced.stop() == ([], [])
    assert traced.telemetry.tracer.dropped == 2
    text = traced.front.protocol.diagnostics.metrics_text()
    assert 'fourfold_otlp_total{outcome="spans_dropped"} 2' in text


def test_share_is_for_requests_without_a_trace():
    tracer = Tracer(share=0.0)
    assert tracer.begin({}) is None
    assert tracer.begin({"traceparent": TRACEPARENT}) is not None
    recorded = sum(Tracer(share=0.5).begin({}) is not None for _ in range(1000))
    assert 300 < recorded < 700


def test_metrics_are_those_of_the_endpoint(traced):
    traced.front.ask(both_fronts.append("secret-name"))
    status, _, body = traced.front.ask(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")[0]
    assert status == 200
    traced.stop()
    metrics = traced.receiver.metrics()
    families = {f.name: f for f in text_string_to_metric_families(body.decode()) if f.samples}
    names = {f"{name}_total" if f.type == "counter" else name for name, f in families.items()}
    assert set(metrics) >= names > {"fourfold_http_requests_total", "fourfold_commit_seconds"}
    (count,) = [
        point.as_double
        for point in metrics["fourfold_http_requests_total"].sum.data_points
        if attributes(point)["status"] == "204"
    ]
    assert count == 1
    assert metrics["fourfold_http_requests_total"].sum.is_monotonic
    for point in metrics["fourfold_commit_seconds"].histogram.data_points:
        assert sum(point.bucket_counts) == point.count
        assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
        assert point.start_time_unix_nano < point.time_unix_nano


def test_cumulative_buckets_become_counts():
    text = (
        "# TYPE t histogram\n"
        't_bucket{le="1",m="a"} 2\nt_bucket{le="5",m="a"} 5\nt_bucket{le="+Inf",m="a"} 6\n'
        't_sum{m="a"} 20.5\nt_count{m="a"} 6\n'
    )
    (metric,) = metrics_of(text, 1, 2)
    (point,) = metric.histogram.data_points
    assert list(point.bucket_counts) == [2, 3, 1]
    assert list(point.explicit_bounds) == [1, 5]
    assert (point.sum, point.count, attributes(point)) == (20.5, 6, {"m": "a"})
    assert not any(map(math.isinf, point.explicit_bounds))


def test_spans_wait_for_a_busy_receiver(tmp_path, receiver):
    receiver.statuses = [503, 503]
    telemetry = Telemetry(receiver.url, metrics_s=0, every_s=0.001, retries=Retries.every(0.001))
    accepted = threading.Event()
    receiver.on_request = lambda: receiver.bodies and accepted.set()
    front = both_fronts.Front(tmp_path / "store", fast=True, observer=Observer(None, 1, telemetry))
    try:
        front.streams.create("s", "application/json")
        with telemetry.running(front.protocol.diagnostics.metrics_text):
            front.ask(both_fronts.append("s"))
            assert accepted.wait(30)
    finally:
        front.stop()
    assert sorted(span.name for span in receiver.spans()) == [APPEND, "commit"]
    assert telemetry.outcomes["spans_sent"] == 2


def test_refused_spans_do_not_hold_up_later_ones(tmp_path, receiver):
    receiver.statuses = [400]
    telemetry = Telemetry(receiver.url, metrics_s=0, every_s=0.001)
    refused, accepted = threading.Event(), threading.Event()

    def on_request():
        (accepted if receiver.bodies else refused).set()

    receiver.on_request = on_request
    front = both_fronts.Front(tmp_path / "store", fast=True, observer=Observer(None, 1, telemetry))
    try:
        front.streams.create("s", "application/json")
        with telemetry.running(front.protocol.diagnostics.metrics_text):
            front.ask(both_fronts.append("s"))
            assert refused.wait(30)
            front.ask(both_fronts.request("GET", "s"))
            assert accepted.wait(30)
    finally:
        front.stop()
    assert telemetry.outcomes["spans_refused"] >= 1
    assert receiver.spans()[-1].name == "GET /v1/stream/{name:stream}"


def test_telemetry_of_settings(receiver):
    assert Telemetry.from_settings(ServerSettings()) is None
    settings = ServerSettings(otlp_url=receiver.url, otlp_headers="x-a=1,x-b=2", otlp_share=0.25)
    assert Telemetry.from_settings(settings) is not None
    assert Telemetry.from_settings(ServerSettings(), receiver.url) is not None
    for wrong in (ServerSettings(otlp_url="ftp://x"), ServerSettings(otlp_headers="x")):
        with pytest.raises(InvalidInput):
            Telemetry.from_settings(wrong, None if wrong.otlp_url != "none" else receiver.url)


def test_endpoints_of_both_signals():
    for url in ("http://h:4318", "http://h:4318/", "http://h:4318/v1/traces"):
        assert endpoint_of(url) == "http://h:4318/v1/traces"
        assert endpoint_of(url, "metrics") == "http://h:4318/v1/metrics"


@pytest.mark.parametrize("text", ["x", "=v", "a=b\nc", "é=1"])
def test_invalid_headers_are_refused(text):
    with pytest.raises(InvalidInput, match=r"server\.otlp_headers must be name=value"):
        parse_headers(text, "server.otlp_headers")
