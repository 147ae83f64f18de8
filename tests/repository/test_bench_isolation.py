"""The benchmark of isolation: how it times writes, and what it concludes."""

from __future__ import annotations

import shutil
import socket
import threading

import bench.isolation.__main__ as isolation
import msgspec
import pytest
from bench import machine
from bench.isolation import http_cases, route_cases, steadiness, store_cases
from bench.isolation.__main__ import (
    CASES,
    Line,
    Repetition,
    Result,
    markdown,
    median_line,
    merged,
    run_in_store,
    started_from,
)
from bench.isolation.probe import Latency, ThreadProbe, summarize
from bench.streams.servers import Server

import fourfold


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
    assert "| case | 1.0 | 1 | 5 | 1.0 | 70.0 | 60 70 | 60 | 0 | FAIL |" in figures
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


def test_of_two_rounds_the_slower_one_counts():
    assert median_line([line(10.0), line(60.0)]).latency.p99_ms == 60.0


def result_of(facts, day, *lines):
    return Result(f"{day}T00:00:00+00:00", facts, 10, {}, list(lines))


def test_merged_lines_keep_the_run_that_measured_them(tmp_path):
    first, second = CASES[:2]
    old = msgspec.structs.replace(machine.describe(tmp_path), commit="a" * 40)
    new = msgspec.structs.replace(old, commit="b" * 40, cpu="another")
    before = result_of(
        old,
        "2026-01-01",
        *(msgspec.structs.replace(line(1.0), case=case) for case in (second, first)),
    )
    later = msgspec.structs.replace(
        line(2.0), case=second, finished_at="2026-01-02T00:00:00+00:00", machine=new
    )
    whole = merged(before, result_of(new, "2026-01-02", later))
    assert [(part.case, part.machine.commit[0], part.finished_at[:10]) for part in whole.lines] == [
        (first, "a", "2026-01-01"),
        (second, "b", "2026-01-02"),
    ]
    figures = markdown(whole, "somewhere")
    assert f"| {first} | 1.0 | 1 | 5 | 1.0 | 1.0 |  | 60 | 0 | pass | a |" in figures
    assert f"| {second} | 1.0 | 1 | 5 | 1.0 | 2.0 |  | 60 | 0 | pass | b |" in figures
    assert "Run a, 2026-01-01:" in figures
    assert "Run b, 2026-01-02:" in figures
    again = merged(whole, result_of(new, "2026-01-03"))
    assert again.lines == whole.lines


def test_run_of_some_cases_continues_the_newest_result(tmp_path):
    assert started_from(tmp_path / "isolation-2026-01-03.json", "DELETE") is None
    facts = machine.describe(tmp_path)
    for day in ("2026-01-01", "2026-01-02"):
        path = tmp_path / f"isolation-{day}.json"
        path.write_bytes(msgspec.json.encode(result_of(facts, day)))
    newest = started_from(tmp_path / "isolation-2026-01-03.json", "DELETE")
    assert newest.finished_at[:10] == "2026-01-02"
    assert started_from(tmp_path / "isolation-2026-01-03.json", "") is None


class Clock:
    """A time that a task and its rests move on."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def move(self, seconds):
        self.now += seconds


@pytest.mark.parametrize(("once", "count"), [(False, 5), (True, 1)])
def test_short_task_is_repeated_until_the_window_is_full(once, count):
    clock, rests = Clock(), []
    repetition = Repetition(
        once=once, clock=clock, sleep=lambda s: (rests.append(s), clock.move(s))
    )
    length = isolation.WINDOW_S / (4.5 * (1 + isolation.RESTS))
    repetition.run(lambda: clock.move(length))
    assert repetition.count == count
    assert clock.now == pytest.approx(isolation.WINDOW_S)
    if not once:
        assert rests[0] == pytest.approx(isolation.RESTS * length)


def test_long_task_is_run_once():
    clock = Clock()
    repetition = Repetition(once=False, clock=clock, sleep=pytest.fail)
    repetition.run(lambda: clock.move(2 * isolation.WINDOW_S))
    assert repetition.count == 1


MODELS = ("documents", "facts", "sessions", "graphs")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    root = tmp_path_factory.mktemp("isolation") / "store"
    http_cases.prepare(root, 2_000, ("big", "forked"))
    store_cases.prepare(root, 2_000, MODELS)
    return root


def test_every_case_in_process_runs(prepared, tmp_path, monkeypatch):
    monkeypatch.setattr(isolation, "WINDOW_S", 0.0)
    monkeypatch.setattr(store_cases.time, "sleep", lambda _: None)
    root = tmp_path / "store"
    shutil.copytree(prepared, root)
    shutil.copy(prepared.with_name("store-bundle.jsonl"), tmp_path)
    with fourfold.open(root) as store:
        for case in store_cases.CASES.values():
            task = run_in_store(store, case, store_cases.StopWatch(60))
            case.write(store)
            assert (task.times, task.stopped) == (1, False)


@pytest.mark.parametrize(
    "name",
    ["documents: verify", "sessions: verify", "sessions: read all events", "graphs: verify"],
)
def test_long_task_in_process_is_stopped(prepared, monkeypatch, name):
    monkeypatch.setattr(isolation, "WINDOW_S", 0.0)
    case = store_cases.CASES[name]
    with fourfold.open(prepared, mode="r") as store:
        pause = store_cases.database_of(store, case.model).pauses.pause
        task = run_in_store(store, case, store_cases.StopWatch(0))
        assert task.stopped
        assert store_cases.database_of(store, case.model).pauses.pause == pause


def test_every_case_over_http_runs(prepared, tmp_path, monkeypatch):
    for name, value in {"READ_S": 0.1, "FAN_OUT_RECORDS": 2, "SSE_READERS": 3}.items():
        monkeypatch.setattr(http_cases, name, value)
    monkeypatch.setattr(route_cases, "READ_S", 0.1)
    monkeypatch.setattr(http_cases, "_wait_for_cpu", lambda *_: None)
    root = tmp_path / "store"
    shutil.copytree(prepared, root)
    with fourfold.open(root) as store:
        for name in ("trimmed", "expiring", "deleted"):
            store.streams.create(name, http_cases.JSON)
    skipped = {"nothing else", "fourfold backup", "fourfold verify"}
    with Server("fourfold", lambda port, _: isolation.serve(port, root), tmp_path) as server:
        target = http_cases.Target(server.port, root)
        for name, case in {**http_cases.CASES, **route_cases.CASES}.items():
            if name not in skipped:
                with case.surroundings(target):
                    assert not case.task(target)


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
