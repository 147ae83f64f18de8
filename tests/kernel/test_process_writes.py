"""Background work pauses while other threads write, to whichever database of the process."""

from __future__ import annotations

import os
import threading
from contextlib import nullcontext

import pytest

from fourfold.kernel import Database, Migration
from fourfold.kernel.pauses import Pauses
from fourfold.kernel.process_writes import PROCESS_WRITES

TABLE = (Migration(1, "t", "CREATE TABLE t (id INTEGER PRIMARY KEY)"),)


@pytest.fixture
def databases(tmp_path):
    with (
        Database.open(tmp_path / "a.sqlite", migrations=TABLE) as one,
        Database.open(tmp_path / "b.sqlite", migrations=TABLE) as other,
    ):
        yield one, other


def insert(txn):
    txn.execute("INSERT INTO t DEFAULT VALUES")


def in_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


class Clock:
    """A clock in which every look takes 10 ms, and a list of what was slept."""

    def __init__(self, pauses, during=lambda: None):
        self.now, self.naps, self._during = 0.0, [], during
        pauses._clock, pauses._sleep = self.look, self.sleep

    def look(self):
        self.now += 0.01
        return self.now

    def sleep(self, seconds):
        self.naps.append(seconds)
        self._during()


def test_paced_block_pauses_while_another_database_is_written(databases, monkeypatch):
    one, other = databases
    pauses = []
    monkeypatch.setattr("fourfold.kernel.pauses.PACED_BLOCK_S", 0.0)
    monkeypatch.setattr(one.pauses, "pause_after", pauses.append)
    with one.paced():
        pass
    assert pauses == []
    with one.paced():
        in_thread(lambda: other.transact(insert))
    assert len(pauses) == 1


def test_background_work_pauses_while_another_database_is_written(databases):
    one, other = databases
    clock = Clock(one.pauses, lambda: in_thread(lambda: other.transact(insert)))
    with one.read_in_background() as snapshot:
        for _ in range(5):
            assert snapshot.value("SELECT count(*) FROM t") == 0
    # Each pause is longer than the look with which it begins.
    assert sum(clock.naps) > 0.1


def test_transactions_of_the_same_thread_do_not_count(databases, monkeypatch):
    one, other = databases
    pauses = []
    monkeypatch.setattr(one.pauses, "pause_after", pauses.append)
    monkeypatch.setattr("fourfold.kernel.pauses.PACED_BLOCK_S", 0.0)
    with one.paced():
        other.transact(insert)
    assert pauses == []
    before = PROCESS_WRITES.count_others()
    other.transact(insert)
    assert PROCESS_WRITES.count_others() == before
    in_thread(lambda: other.transact(insert))
    assert PROCESS_WRITES.count_others() == before + 1


def test_thread_in_a_transaction_never_pauses(databases):
    one, other = databases
    pauses = Pauses.for_process()
    clock = Clock(pauses)
    written = iter(range(1_000_000))
    pauses._written = lambda: next(written)
    assert pauses.pause_after(0.01)
    slept = len(clock.naps)
    assert slept
    with other.write():
        assert PROCESS_WRITES.in_transaction()
        assert not pauses.pause_after(0.01)
        with one.write():
            pass
        assert not pauses.pause_after(0.01)
    assert len(clock.naps) == slept
    assert not PROCESS_WRITES.in_transaction()


def test_open_transaction_of_another_thread_counts_as_writing(databases):
    _, other = databases
    assert not PROCESS_WRITES.is_other_writing()
    with other.write():
        seen = []
        in_thread(lambda: seen.append(PROCESS_WRITES.is_other_writing()))
        assert seen == [True]
        assert not PROCESS_WRITES.is_other_writing()
    in_thread(lambda: seen.append(PROCESS_WRITES.is_other_writing()))
    assert seen == [True, False]


def test_processor_time_is_that_of_other_thread_that_wrote_last(databases):
    one, other = databases
    one.transact(insert)
    assert PROCESS_WRITES.other_cpu_seconds() is None
    seen = []
    in_thread(lambda: seen.append(PROCESS_WRITES.other_cpu_seconds()))
    assert seen[0] is not None
    release, written = threading.Event(), threading.Event()

    def write_and_wait():
        other.transact(insert)
        written.set()
        release.wait()

    thread = threading.Thread(target=write_and_wait)
    thread.start()
    written.wait()
    assert PROCESS_WRITES.other_cpu_seconds() > 0
    release.set()
    thread.join()


def test_forked_child_has_no_transactions_of_its_parent(databases):
    _, other = databases
    with other.write():
        child = os.fork()
        if child == 0:
            os._exit(PROCESS_WRITES.in_transaction() or PROCESS_WRITES.is_other_writing())
        assert os.waitpid(child, 0)[1] == 0
        assert PROCESS_WRITES.in_transaction()


def test_threads_that_share_work_do_not_write_for_each_other(databases):
    one, other = databases

    def write_shared():
        with PROCESS_WRITES.sharing():
            other.transact(insert)

    with PROCESS_WRITES.sharing(), PROCESS_WRITES.sharing():
        before = PROCESS_WRITES.count_others()
        one.transact(insert)
        in_thread(write_shared)
        assert PROCESS_WRITES.count_others() == before
        in_thread(lambda: other.transact(insert))
        assert PROCESS_WRITES.count_others() == before + 1
    before = PROCESS_WRITES.count_others()
    in_thread(write_shared)
    assert PROCESS_WRITES.count_others() == before + 1


@pytest.mark.parametrize("shared", [True, False])
def test_thread_in_transaction_is_another_one_unless_it_shares_work(databases, shared):
    one, _ = databases
    begun, ended = threading.Event(), threading.Event()

    def write():
        with PROCESS_WRITES.sharing(), one.write():
            begun.set()
            assert ended.wait(30)

    thread = threading.Thread(target=write)
    thread.start()
    assert begun.wait(30)
    with PROCESS_WRITES.sharing() if shared else nullcontext():
        assert PROCESS_WRITES.is_other_writing() is not shared
        assert (PROCESS_WRITES.other_cpu_seconds() is None) is shared
    ended.set()
    thread.join()
