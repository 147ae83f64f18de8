"""The benchmark of isolation: how it times writes, and what it concludes."""

from __future__ import annotations

import socket
import threading

import pytest
from bench import machine
from bench.isolation import http_cases, steadiness
from bench.isolation.__main__ import Line, Result, markdown, median_line
from bench.isolation.probe import Latency, ThreadProbe, summarize


def test_summary_has_the_quantiles_in_milliseconds():
    latency = summarize([n / 1000 for n in range(1, 101)], seconds=2.0)
    assert (latency.writes, latency.rate) == (100, 50.0)
    assert 49 <= latency.p50_ms <= 52
    assert 98 <= latency.p99_ms <= 100
    assert latency.max_ms == 100


def test_stall_counts_for_every_write_that_was_due_meanwhile():
    release = threading.Event()
    writes = []

    def write():
        writes.append(1)
        if len(writes) == 1:
            release.wait(5)

    probe = ThreadProbe(write, rate=1000)
    probe.start()
    threading.Timer(0.3, release.set).start()
    release.wait()
    while len(writes) < 200:
        threading.Event().wait(0.01)
    latency = probe.stop()
    # About 300 writes were due during the stall: more than one in a hundred waited long for it.
    assert latency.p99_ms > 100


def test_failed_writes_are_counted():
    def write():
        raise OSError

    probe = ThreadProbe(write, rate=100)
    probe.start()
    threading.Event().wait(0.05)
    assert probe.stop().failed > 0


def line(p99_ms, failed=0):
    return Line("case", 1.0, Latency(10, 5.0, 1.0, p99_ms, 60.0, failed), 0.0)


def test_case_holds_below_the_goal_and_without_failures():
    assert line(49.9).holds
    assert not line(50.1).holds
    assert not line(1.0, failed=1).holds


def test_figures_name_the_machine_and_the_verdict(tmp_path):
    facts = machine.describe(tmp_path)
    result = Result(
        "2026-01-01T00:00:00+00:00",
        facts,
        10,
        {"streams": 5.0},
        [median_line([line(60.0), line(70.0)])],
    )
    figures = markdown(result, "somewhere")
    assert "| case | 1.0 | 5 | 1.0 | 60.0 | 60 70 | 60 | 0 | FAIL |" in figures
    assert "somewhere" in figures


def test_a_line_is_the_median_of_its_rounds():
    lines = [
        Line("a", number, Latency(1, 1.0, 0.1, p99, 300.0), None)
        for number, p99 in enumerate((80.0, 10.0, 30.0))
    ]
    line = median_line(lines)
    assert (line.task_s, line.latency.p99_ms) == (2, 30.0)
    assert line.rounds_p99_ms == (80.0, 10.0, 30.0)
    assert line.holds


def test_steadiness_compares_slow_windows_with_the_median():
    counts = [50, 80, *[100] * 8]
    assert steadiness.summarize(counts) == steadiness.Steadiness(10, 0.5, 0.8)


def test_loops_are_counted_for_each_window():
    times = iter([*(n / 100 for n in range(15)), *(n / 50 for n in range(8, 40))])
    counts = steadiness.count_loops(0.3, lambda: next(times))
    assert len(counts) == 3
    assert counts[0] > counts[-1]


@pytest.fixture
def sse_server(monkeypatch):
    """A listening socket, and the number of readers that were sent their first event."""
    monkeypatch.setattr(http_cases, "SSE_READERS", 3)
    monkeypatch.setattr(http_cases.time, "sleep", lambda _: None)
    sent = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            readers = [listener.accept()[0] for _ in range(3)]
            for reader in readers:
                threading.Event().wait(0.05)
                sent.append(reader)
                reader.sendall(b"event: control\ndata:{")
                reader.sendall(b'"upToDate": true}\n\n')

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1], sent
        thread.join()
        for reader in sent:
            reader.close()


def test_sse_readers_have_their_first_event_before_the_case_begins(sse_server, tmp_path):
    port, sent = sse_server
    target = http_cases.Target(port, tmp_path)
    with http_cases.sse_readers(target):
        assert len(sent) == len(target.readers) == 3
    assert target.readers == []


def test_fan_out_ends_when_every_reader_has_the_last_record(monkeypatch, tmp_path):
    monkeypatch.setattr(http_cases.time, "sleep", lambda _: None)
    pairs = [socket.socketpair() for _ in range(3)]
    target = http_cases.Target(0, tmp_path)
    target.readers = [reader for reader, _ in pairs]
    bodies = []

    def append(method, path, body, **headers):
        bodies.append(body)
        for _, server in pairs:
            server.sendall(b"data:[" + body + b"]\n\n")
        return 204, {}, b""

    monkeypatch.setattr(target, "request", append)
    http_cases.fan_out(target)
    assert len(bodies) == http_cases.FAN_OUT_RECORDS == len({*bodies})
    for reader, server in pairs:
        reader.setblocking(False)
        with pytest.raises(BlockingIOError):
            reader.recv(1)
        reader.close()
        server.close()
