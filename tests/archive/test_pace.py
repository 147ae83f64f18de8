"""The archive makes room for those who write: pieces, pauses, and who gets the processor."""

from __future__ import annotations

import os
import shutil
import sys
import threading

import pytest
from node import Node

from fourfold import limits
from fourfold.kernel.pauses import BACKGROUND_NICE, Pauses
from fourfold.models.streams.archive import Policy, sealer
from fourfold.models.streams.archive.throttle import NO_THROTTLE, Throttle
from fourfold.objects import MemoryStore


class Clock:
    """Time that passes while a thread sleeps or works."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def paced(written, clock, pauses=2.0):
    return Throttle(written, pauses, clock=clock, sleep=clock.sleep)


def counting():
    numbers = iter(range(10**6))
    return lambda: next(numbers)


def test_pause_is_in_proportion_to_piece_while_others_write():
    clock = Clock()
    pace = paced(counting(), clock)
    with pace.piece():
        clock.sleep(0.010)
    assert clock.now == pytest.approx(0.030)


def test_a_pause_has_a_longest():
    clock = Clock()
    with paced(counting(), clock).piece():
        clock.sleep(5.0)
    assert clock.now == pytest.approx(5.0 + limits.BACKGROUND_PAUSE_MAX_S)


def test_pause_does_not_wait_without_a_writer():
    clock = Clock()
    with paced(lambda: 7, clock).piece():
        clock.sleep(0.010)
    assert clock.now == pytest.approx(0.010 + limits.BACKGROUND_LOOK_S)


def test_pause_lasts_while_a_commit_is_running():
    clock = Clock()
    pace = Throttle(
        lambda: 7, 2.0, clock=clock, sleep=clock.sleep, writing=lambda: clock.now < 0.02
    )
    with pace.piece():
        clock.sleep(0.010)
    assert clock.now == pytest.approx(0.02, abs=2 * limits.BACKGROUND_LOOK_S)


def test_pieces_wait_for_clients_and_pause_in_proportion():
    clock = Clock()
    pace = Throttle(
        counting(), 2.0, clock=clock, sleep=clock.sleep, pressing=lambda: clock.now < 0.05
    )
    with pace.piece():
        assert clock.now == pytest.approx(0.05, abs=limits.BACKGROUND_LOOK_S)
        clock.sleep(0.010)
    assert clock.now == pytest.approx(0.08, abs=limits.BACKGROUND_LOOK_S)


def test_what_presses_for_ever_does_not_keep_backlog_for_ever():
    clock = Clock()
    pace = Throttle(counting(), 2.0, clock=clock, sleep=clock.sleep, pressing=lambda: True)
    with pace.piece():
        assert clock.now == pytest.approx(
            limits.BACKGROUND_PAUSE_MAX_S, abs=limits.BACKGROUND_LOOK_S
        )


def test_getting_an_item_and_working_on_it_are_one_piece():
    clock = Clock()

    def items():
        for item in range(3):
            clock.sleep(0.001)
            yield item

    seen = []
    for item in paced(counting(), clock, pauses=1.0).through(items()):
        seen.append(item)
        clock.sleep(0.009)
    assert seen == [0, 1, 2]
    assert clock.now == pytest.approx(3 * 0.020)


def test_what_object_store_does_with_chunk_keeps_no_piece_waiting():
    clock = Clock()
    pace = paced(counting(), clock, pauses=1.0)

    def chunks():
        for chunk in range(2):
            clock.sleep(0.001)
            yield chunk

    seen = []
    for chunk in pace.each(chunks()):
        with pace.piece():
            seen.append(chunk)
        clock.sleep(0.003)
    assert seen == [0, 1]
    assert clock.now == pytest.approx(2 * (0.002 + 0.006))


def test_interrupted_caller_releases_the_lane():
    pace = paced(lambda: 0, Clock())

    def run():
        for number in pace.through([1, 0]):
            assert 1 // number

    with pytest.raises(ZeroDivisionError):
        run()
    with pace.piece():
        pass


def test_one_piece_is_under_way_at_a_time():
    pace = Throttle(lambda: 0)
    inside = threading.Semaphore(1)
    overlaps = []

    def work():
        for _ in pace.through(range(50)):
            if not inside.acquire(blocking=False):
                overlaps.append(True)
                return
            os.sched_yield()
            inside.release()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not overlaps


def append(node):
    node.streams.open("a").append([b"x"])


def in_the_background(pace, node):
    """A thread with a transaction of the archive's, which only notes how many records there are."""
    results = []

    def count(txn):
        return txn.value("SELECT next_offset FROM streams")

    thread = threading.Thread(target=lambda: results.append(pace.transact(node.database, count)))
    thread.start()
    return thread, results


def test_one_who_appends_takes_a_transaction_of_the_archive_along(tmp_path, monkeypatch):
    monkeypatch.setattr("fourfold.models.streams.archive.throttle.ARCHIVE_JOIN_WAIT_S", 3_000.0)
    node = Node(tmp_path, MemoryStore())
    node.write("a", 1)
    pace = paced(counting(), Clock(), pauses=1.0)
    with pace.piece():
        pace._clock.sleep(0.010)
    thread, results = in_the_background(pace, node)
    while not node.database.metrics().queued_requests:
        os.sched_yield()
    before = node.database.transactions
    append(node)
    thread.join(60)
    assert results in ([1], [2])
    assert node.database.transactions == before + 1
    node.close()


@pytest.mark.parametrize("pace", [NO_THROTTLE, Throttle(lambda: 0)])
def test_transaction_does_not_wait_for_a_group_without_a_writer(tmp_path, monkeypatch, pace):
    monkeypatch.setattr("fourfold.models.streams.archive.throttle.ARCHIVE_JOIN_WAIT_S", 3_000.0)
    node = Node(tmp_path, MemoryStore())
    node.write("a", 1)
    with pace.piece():
        pass
    thread, results = in_the_background(pace, node)
    thread.join(60)
    assert results == [1]
    node.close()


def test_a_backlog_is_published_while_others_append_all_the_time(tmp_path):
    """Waiting to be taken along has an end, and so has every pause."""
    node = Node(tmp_path, MemoryStore())
    node.write("a", 40)
    pace = Throttle(counting())
    stop = threading.Event()

    def run():
        while not stop.is_set():
            append(node)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        while node.row("a")["uploaded_through"] < 39:
            assert not node.archive.round(pace=pace).failures
    finally:
        stop.set()
        thread.join()
    assert node.streams.verify() == []
    node.close()


def test_a_segment_is_the_same_at_any_pace(tmp_path):
    """To the byte: its digest is a part of its name."""
    policy = Policy()
    node = Node(tmp_path / "node", MemoryStore(), policy)
    stream = node.streams.create("a", "text/plain")
    for number in range(9):
        stream.append([b"%d" % number * 40_000] * 10)
    node.close()
    sealed = []
    for name, pace in (("at once", NO_THROTTLE), ("slowly", Throttle(lambda: 0))):
        shutil.copytree(tmp_path / "node", tmp_path / name)
        node = Node(tmp_path / name, MemoryStore(), policy)
        folder = node.root / "made"
        done = sealer.seal(node.database, "a", policy=policy, folder=folder, now_ms=0, pace=pace)
        node.close()
        sealed.append(done)
    assert sealed[0] == sealed[1]
    assert sealed[0].groups > 2


class Watched(MemoryStore):
    """Remembers at what priority its objects came."""

    def __init__(self):
        super().__init__()
        self.priorities = set()
        self.came = threading.Event()

    def put(self, *args, **options):
        own = threading.get_native_id()
        self.priorities.add(os.getpriority(os.PRIO_PROCESS, own))
        found = super().put(*args, **options)
        self.came.set()
        return found


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority of their own")
def test_the_background_comes_last_and_a_caller_does_not(tmp_path):
    usual = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    objects = Watched()
    node = Node(tmp_path, objects)
    node.write("a", 8)
    with node.archive.running(every_s=0.001):
        assert objects.came.wait(60)
    assert objects.priorities == {max(usual, BACKGROUND_NICE)}
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == usual
    node.close()


def test_threads_that_publish_give_way_to_no_other_of_them(tmp_path, monkeypatch):
    contended = []
    pause_after = Pauses.pause_after

    def observed(pauses, took):
        contended.append(pause_after(pauses, took))
        return contended[-1]

    monkeypatch.setattr(Pauses, "pause_after", observed)
    node = Node(tmp_path, MemoryStore())
    for name in map(str, range(12)):
        node.write(name, 1)
    done = node.archive.publish_all(background=True)
    assert (done.sealed, done.failures) == (12, {})
    node.close()
    assert len(contended) > 12
    assert not any(contended)
