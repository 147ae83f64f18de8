"""The background export of traces: every ended turn arrives, also after failures and restarts."""

from __future__ import annotations

import json
import threading

import pytest
from served_streams import Served

import fourfold
from fourfold.adapters import otlp, otlp_exporter
from fourfold.adapters.otlp_exporter import TraceExporter
from fourfold.errors import ServerUnreachable
from fourfold.models.sessions.runtime import Final, Runtime
from fourfold.retry import Retries
from support.otlp_receiver import Receiver

QUICK = Retries(most=None, pause_s=0.001, pause_max_s=0.002)


@pytest.fixture
def receiver():
    started = Receiver()
    yield started
    started.stop()


@pytest.fixture
def store(tmp_path):
    with fourfold.open(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def runtime(store):
    def step(turn):
        turn.call("model", lambda: "a secret")
        if turn.task == "wait":
            turn.wait_signal("go")
        return Final(turn.task)

    runtime = Runtime(store.sessions, step)
    for sid in ("a", "b"):
        runtime.start({"id": sid, "model": "large"})
    return runtime


@pytest.fixture
def exporter(store, receiver):
    def make(**options):
        file = store.root / "sessions" / "traces.json"
        options = {"every_s": 0.001, "retries": QUICK, **options}
        return TraceExporter(store.sessions, receiver.url, file, **options)

    return make


def roots(receiver):
    """Return session and turn of each received trace, in order."""
    found = []
    for span in receiver.spans():
        if not span.parent_span_id:
            values = {item.key: item.value for item in span.attributes}
            sid = values["gen_ai.conversation.id"].string_value
            found.append((sid, values["fourfold.turn.id"].int_value))
    return found


def drain(exporter):
    while exporter.export_page():
        pass


def test_ended_turns_are_sent_once_also_after_a_restart(runtime, exporter, receiver, store):
    runtime.run_turn("a", "before the first start")
    first = exporter()
    runtime.run_turn("a", "one")
    runtime.run_turn("b", "two")
    drain(first)
    assert roots(receiver) == [("a", 2), ("b", 1)]
    drain(first)
    runtime.run_turn("a", "three")
    drain(first)
    # Another process continues at the recorded position.
    runtime.run_turn("b", "four")
    drain(exporter())
    assert roots(receiver) == [("a", 2), ("b", 1), ("a", 3), ("b", 2)]
    ids = {(span.trace_id, span.span_id) for span in receiver.spans()}
    assert len(ids) == len(receiver.spans()) == 8
    assert b"a secret" not in b"".join(receiver.bodies)
    receiver.bodies.clear()
    otlp.export_traces(store.sessions, "b", receiver.url)
    assert {(span.trace_id, span.span_id) for span in receiver.spans()} <= ids


def test_suspended_turn_is_sent_when_it_has_ended(runtime, exporter, receiver):
    made = exporter()
    runtime.run_turn("a", "wait")
    drain(made)
    assert roots(receiver) == []
    runtime.signal("a", "go")
    runtime.run_due()
    drain(made)
    assert roots(receiver) == [("a", 1)]


def test_pages_and_batches_are_bounded(runtime, exporter, receiver, monkeypatch):
    monkeypatch.setattr(otlp_exporter, "TRACE_PAGE_EVENTS", 7)
    monkeypatch.setattr(otlp_exporter, "SPANS_MAX", 2)
    made = exporter()
    for number in range(6):
        runtime.run_turn("ab"[number % 2], str(number))
    drain(made)
    assert roots(receiver) == [("ab"[number % 2], number // 2 + 1) for number in range(6)]
    assert made.state.spans == 12
    for body in receiver.bodies:
        request = type(receiver).decode(body)
        assert sum(len(s.spans) for r in request.resource_spans for s in r.scope_spans) <= 2


def test_failed_request_is_repeated_and_nothing_is_lost(runtime, exporter, receiver):
    made = exporter()
    runtime.run_turn("a", "one")
    position = made.state.position
    receiver.statuses = [503]
    with pytest.raises(fourfold.Busy):
        made.export_page()
    assert made.state.position == position
    drain(made)
    assert roots(receiver) == [("a", 1)]


def test_refused_spans_do_not_hold_up_others(runtime, exporter, receiver):
    made = exporter()
    runtime.run_turn("a", "one")
    receiver.statuses = [400]
    drain(made)
    runtime.run_turn("a", "two")
    drain(made)
    assert (made.state.refused, made.state.spans) == (1, 2)
    assert roots(receiver) == [("a", 2)]


def test_thread_backs_off_while_there_is_no_receiver(runtime, store, tmp_path):
    file = tmp_path / "traces.json"
    failed = threading.Event()

    made = TraceExporter(store.sessions, "http://127.0.0.1:1", file, every_s=0.001, retries=QUICK)
    export = made.export_page

    def export_page():
        try:
            return export()
        except ServerUnreachable:
            failed.set()
            raise

    made.export_page = export_page
    runtime.run_turn("a", "one")
    with made:
        assert failed.wait(30)
    assert made.state.spans == 0
    assert not file.exists()


def test_another_receiver_starts_with_new_turns(runtime, exporter, store):
    file = store.root / "sessions" / "traces.json"
    runtime.run_turn("a", "one")
    newest = store.sessions.position()
    for text in ("{", "[]", json.dumps({"url": "http://other/v1/traces", "position": 1})):
        file.write_text(text)
        assert exporter().state.position == newest
    url = exporter()._url
    file.write_text(json.dumps({"url": url, "position": 3}))
    assert exporter().state.position == 3
    file.write_text(json.dumps({"url": url, "position": 1_000}))
    assert exporter().state.position == newest


def test_server_sends_traces_with_content_on_request(tmp_path, receiver, monkeypatch):
    monkeypatch.setenv("FOURFOLD_SESSIONS_OTLP_URL", receiver.url)
    monkeypatch.setenv("FOURFOLD_SESSIONS_OTLP_CONTENT", "on")
    monkeypatch.setenv("FOURFOLD_SESSIONS_OTLP_HEADERS", "x-key=k, x-other=o=p")
    received = threading.Event()
    receiver.on_request = received.set
    server = Served(tmp_path / "store")
    try:
        store = fourfold.connect(f"http://127.0.0.1:{server.port}")
        runtime = Runtime(store.sessions, lambda turn: Final("a secret"))
        runtime.start({"id": "s"})
        runtime.run_turn("s", "task")
        assert received.wait(30)
        store.close()
    finally:
        server.kill()
    assert roots(receiver) == [("s", 1)]
    assert b"a secret" in receiver.bodies[0]
    assert (receiver.headers[0]["X-Key"], receiver.headers[0]["X-Other"]) == ("k", "o=p")
