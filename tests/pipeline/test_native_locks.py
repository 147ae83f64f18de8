"""While other processes write a file, a scan in Java sees one state of it, and is in nobody's way
for longer than it reads.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest
from native_probe import options, probe_of
from native_writer import ROWS

import fourfold
from fourfold.pipeline import cut

pytestmark = pytest.mark.spark

DID = "did:web:live.example"


@pytest.fixture(scope="module")
def probe(spark):
    return probe_of(spark)


class Writer:
    """The process `native_writer.py`."""

    def __init__(self, root):
        script = Path(__file__).with_name("native_writer.py")
        self._process = subprocess.Popen(
            [sys.executable, script, root, DID],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout.readline() == "ready\n"

    def __call__(self, order):
        self._process.stdin.write(f"{order}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def end(self):
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


@contextmanager
def writing(root):
    writer = Writer(root)
    try:
        yield writer
    finally:
        writer.end()


@pytest.fixture
def root(tmp_path):
    fourfold.open(tmp_path / "store", settings={"documents.page_size": 4096}).close()
    return tmp_path / "store"


def path_of(root):
    return Path(root) / "spaces" / f"{DID}.sqlite"


def read(root):
    return options(root, columns="id,seq,op_index,data")


def check(rows, newest):
    """Every commit up to the newest is there, and whole: a row is in it once, and says which."""
    assert Counter(seq for _, seq, _, _ in rows) == dict.fromkeys(range(1, newest + 1), ROWS)
    for entity, seq, index, data in rows:
        assert f'"{seq}-{index} '.encode() in data, (entity, seq, index)


BEGUN = {
    "in the log": ["commit 120"],
    "half copied": ["commit 100", "checkpoint PASSIVE", "commit 20"],
    "copied": ["commit 120", "checkpoint FULL"],
    "begun anew": ["commit 100", "checkpoint RESTART", "commit 20"],
    "truncated": ["commit 120", "checkpoint TRUNCATE"],
    "reopened": ["commit 120", "reopen"],
}


@pytest.mark.parametrize("begun", BEGUN)
def test_a_scan_that_has_begun_sees_nothing_of_what_comes_after(probe, root, begun):
    with writing(root) as writer:
        for order in BEGUN[begun]:
            writer(order)
        table = probe.table(read(root))
        # The first pages are read now, all others when the file has changed under way.
        seen = table.next(1)
        assert 0 < len(seen) < 120 * ROWS
        for mode in ("PASSIVE", "RESTART", "TRUNCATE"):
            writer("commit 15")
            writer(f"checkpoint {mode}")
        writer("commit 5")
        seen += table.next(10**6)
        check(seen, 120)
        table.close()
        assert probe.open_files() == 0
        assert writer("checkpoint TRUNCATE") == "0"


@pytest.mark.parametrize("begun", [[], ["hold", "insert 900"]], ids=["alone", "with another"])
def test_the_last_connection_that_closes_changes_nothing_for_a_scan(probe, root, begun):
    """It copies the log into the file whoever holds a lock of readers, if it finds itself alone."""
    with writing(root) as writer:
        for order in ["commit 120", "close"]:
            writer(order)
        taken = cut.take(read(root))
        for order in begun:
            writer(order)
        table = probe.table(read(root), taken)
        seen = table.next(1)
        assert 0 < len(seen) < 120 * ROWS
        for order in ["hold", "insert 900", "release"]:
            writer(order)
        check(seen + table.next(10**6), 120)
        table.close()
        for order in ["hold", "insert 1", "release"]:
            writer(order)
        assert not Path(f"{path_of(root)}-wal").exists()


def test_a_scan_keeps_the_log_for_as_long_as_it_reads(probe, root):
    with writing(root) as writer:
        writer("commit 120")
        for prepared in ("commit 1", "checkpoint TRUNCATE"):
            writer(prepared)
            table = probe.table(read(root))
            table.next(1)
            writer("commit 1")
            assert writer("checkpoint TRUNCATE") == "1", "the scan reads"
            table.close()
            assert writer("checkpoint TRUNCATE") == "0", "it has ended"


def test_two_scans_of_one_file_give_back_their_own_locks_only(probe, root):
    with writing(root) as writer:
        writer("commit 120")
        old = probe.table(read(root))
        seen = old.next(1)
        writer("commit 2")
        later = probe.table(read(root))
        later.next(1)
        assert probe.open_files() == 1
        check(probe.rows(read(root)), 122)
        later.close()
        assert writer("checkpoint TRUNCATE") == "1", "the older one still reads"
        writer("commit 3")
        check(seen + old.next(10**6), 120)
        old.close()
        assert writer("checkpoint TRUNCATE") == "0"


def test_every_scan_beside_writers_sees_whole_commits(probe, root):
    """One process commits, comes and goes; another one copies the log and cuts it off. It stays, as
    one who opens a store while the last connection closes is told that the file is locked.
    """
    with writing(root) as writer, checkpoints(root):
        for turn in range(24):
            writer("reopen" if turn % 4 == 3 else "commit 3")
            taken = cut.take(read(root))
            check(probe.rows(read(root), taken), taken.marks[0].seq)
    assert probe.open_files() == 0


@contextmanager
def checkpoints(root):
    """Checkpoints in all modes by another process, one after the other, while this lasts."""
    script = (
        "import apsw, sys, itertools\n"
        "connection = apsw.Connection(sys.argv[1])\n"
        "connection.set_busy_timeout(50)\n"
        "for mode in itertools.cycle(['PASSIVE', 'FULL', 'RESTART', 'TRUNCATE']):\n"
        "    try: connection.execute(f'PRAGMA wal_checkpoint({mode})').fetchall()\n"
        "    except apsw.Error: pass\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script, path_of(root)])
    try:
        yield
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()
