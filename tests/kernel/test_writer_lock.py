"""The single-writer lock: one writing process, named to the second; readers are welcome."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import ledger
import pytest

from fourfold.errors import WriterLocked
from fourfold.kernel import holder

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"


@pytest.fixture
def other():
    """Starts other processes; they are gone when the test is over."""
    started = []

    def start(*arguments):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), str(HERE)])}
        process = subprocess.Popen(
            [sys.executable, HERE / "other_process.py", *map(str, arguments)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def answer(process):
    line = process.stdout.readline()
    assert line, "the other process ended without a word"
    return json.loads(line)


def test_second_writer_in_this_process_is_refused(db, path):
    with pytest.raises(WriterLocked, match="this process") as caught:
        ledger.open_ledger(path)
    assert "mode='r'" in caught.value.hint
    db.transact(ledger.put("x"))
    ledger.assert_dense(db, 1)


def test_second_writer_in_another_process_is_refused_with_owner(path, other):
    first = other("hold", path)
    assert answer(first) == 1
    assert holder(path)["pid"] == first.pid
    with pytest.raises(WriterLocked, match=f"process {first.pid} on ") as caught:
        ledger.open_ledger(path)
    assert not caught.value.retryable
    with ledger.open_ledger(path, mode="r") as db:
        assert ledger.bodies(db) == ["held"]


def test_lock_is_free_after_its_holder_was_killed(path, other):
    first = other("hold", path)
    assert answer(first) == 1
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert holder(path) is None
    with ledger.open_ledger(path) as db:
        assert ledger.bodies(db) == ["held"]
        assert db.transact(ledger.put("next")) == 2
        assert holder(path)["pid"] == os.getpid()


def test_lock_is_free_after_close_and_has_no_owner(path, other):
    ledger.open_ledger(path).close()
    assert holder(path) is None
    assert path.with_name("ledger.db.lock").read_text() == ""
    done = other("write", path, 3)
    assert answer(done) == "done"
    done.wait()
    with ledger.open_ledger(path) as db:
        ledger.assert_dense(db, 3)


def test_readers_of_another_process_see_each_commit(db, path, other):
    readers = [other("watch", path, 200) for _ in range(2)]
    for reader in readers:
        assert answer(reader) == "watching"
    for n in range(200):
        db.transact(ledger.put(n))
        if n % 50 == 0:
            db.checkpoint("PASSIVE")
    for reader in readers:
        assert answer(reader) == [[n + 1, n] for n in range(200)]


def test_reader_in_this_process_sees_what_another_process_writes(path, other):
    ledger.open_ledger(path).close()
    with ledger.open_ledger(path, mode="r") as reader:
        writer = other("write", path, 50)
        assert answer(writer) == "done"
        writer.wait()
        ledger.assert_dense(reader, 50)


def test_reader_outlives_the_writer_and_the_next_one(path):
    with ledger.open_ledger(path) as first:
        first.transact(ledger.put("first"))
        reader = ledger.open_ledger(path, mode="r")
    with ledger.open_ledger(path) as second:
        second.transact(ledger.put("second"))
        assert ledger.bodies(reader) == ["first", "second"]
    assert ledger.bodies(reader) == ["first", "second"]
    reader.close()


def test_missing_database_has_no_lock_holder(path):
    assert holder(path) is None


@pytest.mark.parametrize("text", ["", "not json", "[1, 2]", '{"pid": "x"}'])
def test_text_of_lock_file_does_not_decide(path, text):
    ledger.open_ledger(path).close()
    path.with_name("ledger.db.lock").write_text(text)
    assert holder(path) is None
    with ledger.open_ledger(path) as db:
        path.with_name("ledger.db.lock").write_text(text)
        with pytest.raises(WriterLocked, match="has the database open for writing"):
            ledger.open_ledger(path)
        db.transact(ledger.put("x"))


def test_writer_retries_while_another_process_calls_holder(path, monkeypatch):
    monkeypatch.setattr("fourfold.kernel.lock.LOCK_TRIES", 100_000)
    ledger.open_ledger(path).close()
    looking = os.open(path.with_name("ledger.db.lock"), os.O_RDONLY)
    try:
        fcntl.flock(looking, fcntl.LOCK_SH)
        opening = ledger.Caller(ledger.open_ledger, path)
        opening.join(0.02)
        fcntl.flock(looking, fcntl.LOCK_UN)
        opening.outcome().close()
        # A caller that waits long enough stops it all the same.
        monkeypatch.setattr("fourfold.kernel.lock.LOCK_TRIES", 3)
        fcntl.flock(looking, fcntl.LOCK_SH)
        with pytest.raises(WriterLocked, match="another process"):
            ledger.open_ledger(path)
    finally:
        os.close(looking)
