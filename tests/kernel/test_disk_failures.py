"""A full disk, a failing disk, damaged bytes: typed errors with hints, and nothing lost."""

from __future__ import annotations

import asyncio

import ledger
import pytest

from fourfold.errors import (
    CommitUncertain,
    CorruptData,
    DiskFull,
    ForeignFile,
    FourfoldError,
    InvalidInput,
    StorageError,
)
from fourfold.kernel import Options, profiles
from support.faulty_disk import FaultyDisk

FULL = profiles.PLAIN.with_(busy_timeout_ms=20)


@pytest.fixture
def disk():
    with FaultyDisk() as disk:
        yield disk


def fail_to_write(db, error, body="lost"):
    """Every way to write meets the same error."""

    def write():
        with db.write() as txn:
            ledger.put(body)(txn)

    for call in (
        lambda: db.transact(ledger.put(body)),
        write,
        lambda: ledger.transact_in_loop(db, ledger.put(body)),
    ):
        with pytest.raises(error) as caught:
            call()
        assert caught.value.hint
        assert str(db.path) in caught.value.message


@pytest.mark.parametrize("body", ["small", b"x" * 2_000_000], ids=["small", "large"])
@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_full_disk_loses_nothing_and_recovers_with_space(path, disk, body, after):
    with ledger.open_ledger(path, profile=FULL, vfs=disk.name) as db:
        db.transact(ledger.put("before"))
        disk.fail("write", "-wal", how="full", after=after)
        for _ in range(2):
            fail_to_write(db, DiskFull, body)
        assert ledger.bodies(db) == ["before"]
        assert db.health().ready
        disk.repair()
        assert db.transact(ledger.put("after")) == 2
        assert db.integrity_check() == []
    with ledger.open_ledger(path) as db:
        assert ledger.bodies(db) == ["before", "after"]
        ledger.assert_dense(db)


def test_full_disk_is_retryable(path, disk):
    with ledger.open_ledger(path, vfs=disk.name) as db:
        disk.fail("write", "-wal", how="full")
        with pytest.raises(DiskFull) as caught:
            db.transact(ledger.put("x"))
        assert caught.value.retryable
        assert "space" in caught.value.hint


def test_database_at_page_limit_is_full_and_recovers(db):
    db.transact(ledger.put("before"))
    with db.write() as txn:
        pages = txn.value("PRAGMA page_count")
        txn.all(f"PRAGMA max_page_count = {pages + 2}")
    fail_to_write(db, DiskFull, b"x" * 100_000)
    # What fits is still written.
    db.transact(ledger.put("fits"))
    with db.write() as txn:
        txn.all("PRAGMA max_page_count = 1000000")
    db.transact(ledger.put(b"x" * 100_000))
    assert ledger.bodies(db)[:2] == ["before", "fits"]
    ledger.assert_dense(db, 3)
    assert db.integrity_check() == []


def test_full_disk_inside_a_block_cannot_be_ignored(path, disk):
    """SQLite undoes the whole transaction; a caller that continues gets an error."""
    profile = FULL.with_(cache_kib=400)
    with ledger.open_ledger(path, profile=profile, vfs=disk.name) as db:
        db.transact(ledger.put("before"))
        disk.fail("write", "-wal", how="full")

        def write():
            with db.write() as txn:
                ledger.put("lost")(txn)
                with pytest.raises(DiskFull):
                    # Larger than the page cache, so that it reaches the log before the commit.
                    ledger.put(b"x" * 4_000_000)(txn)
                disk.repair()
                ledger.put("stray")(txn)

        with pytest.raises(FourfoldError):
            write()
        assert ledger.bodies(db) == ["before"]
        db.transact(ledger.put("after"))
        ledger.assert_dense(db, 2)


@pytest.mark.parametrize("operation", ["sync", "write"])
def test_commit_that_fails_to_sync_stops_the_writer(path, disk, operation):
    with ledger.open_ledger(path, profile=FULL, vfs=disk.name) as db:
        db.transact(ledger.put("before"))
        disk.fail(operation, "-wal", times=1)
        with pytest.raises(CommitUncertain, match="failed while it was written to disk") as caught:
            db.transact(ledger.put("uncertain"))
        assert not caught.value.retryable
        assert "reopen" in caught.value.hint
        # The disk works again, but what it dropped is unknown.
        fail_to_write(db, CommitUncertain)
        assert db.health().state == "failed"
        assert not db.health().ready
        assert isinstance(db.health().error, CommitUncertain)
        # What was committed before can still be read.
        assert ledger.bodies(db)[0] == "before"
    with ledger.open_ledger(path, profile=FULL) as db:
        assert ledger.bodies(db) in (["before"], ["before", "uncertain"])
        ledger.assert_dense(db)
        assert db.integrity_check() == []
        db.transact(ledger.put("after"))
        ledger.assert_dense(db)


def test_every_caller_of_a_group_gets_commit_uncertain(path, disk):
    async def call(db):
        calls = [db.transact_async(ledger.put(n)) for n in range(5)]
        return await asyncio.gather(*calls, return_exceptions=True)

    with ledger.open_ledger(path, profile=FULL, vfs=disk.name) as db:
        disk.fail("sync", "-wal", times=1)
        outcomes = asyncio.run(call(db))
        assert all(isinstance(outcome, CommitUncertain) for outcome in outcomes)
        # Each has an error of its own: one that is raised twice would mix its tracebacks.
        assert len({id(outcome) for outcome in outcomes}) == 5
    with ledger.open_ledger(path) as db:
        assert len(ledger.entries(db)) in {0, 5}
        ledger.assert_dense(db)


def test_with_normal_syncs_commit_does_not_wait_for_disk(path, disk):
    profile = profiles.PLAIN.with_(synchronous="NORMAL")
    with ledger.open_ledger(path, profile=profile, vfs=disk.name) as db:
        db.transact(ledger.put("x"))
        before = disk.count("sync")
        for _ in range(10):
            db.transact(ledger.put("x"))
        assert disk.count("sync") == before


def test_with_full_syncs_commit_is_on_disk_when_call_returns(path, disk):
    with ledger.open_ledger(path, profile=FULL, vfs=disk.name) as db:
        for _ in range(10):
            before = disk.count("sync", "-wal")
            db.transact(ledger.put("x"))
            assert disk.count("sync", "-wal") > before


def test_callers_that_share_a_commit_share_its_sync(path, disk):
    async def call(db):
        await asyncio.gather(*(db.transact_async(ledger.put(n)) for n in range(200)))

    with ledger.open_ledger(path, profile=FULL, vfs=disk.name) as db:
        before = disk.count("sync", "-wal")
        asyncio.run(call(db))
        assert disk.count("sync", "-wal") - before <= 3
        ledger.assert_dense(db, 200)


@pytest.mark.parametrize("operation", ["write", "sync"])
@pytest.mark.parametrize("how", ["io", "full"])
def test_checkpoint_that_fails_loses_nothing_and_can_be_repeated(path, disk, operation, how):
    with ledger.open_ledger(path, profile=FULL, vfs=disk.name) as db:
        for n in range(20):
            db.transact(ledger.put(n))
        disk.fail(operation, "ledger.db", how=how)
        with pytest.raises(StorageError):
            db.checkpoint("TRUNCATE")
        assert ledger.bodies(db) == list(range(20))
        db.transact(ledger.put("meanwhile"))
        disk.repair()
        assert not db.checkpoint("TRUNCATE").busy
        assert db.integrity_check() == []
        ledger.assert_dense(db, 21)


def test_close_on_failing_disk_leaves_log_for_next_open(path, disk):
    db = ledger.open_ledger(path, profile=FULL, vfs=disk.name)
    db.transact(ledger.put("x"))
    disk.fail("write", "ledger.db", how="full")
    disk.fail("sync", "ledger.db")
    db.close()
    disk.repair()
    with ledger.open_ledger(path) as again:
        assert ledger.bodies(again) == ["x"]


@pytest.mark.parametrize("how", ["io", "full"])
@pytest.mark.parametrize("after", range(0, 12, 2))
def test_failing_disk_during_creation_leaves_no_database(path, disk, how, after):
    disk.fail("write", how=how, after=after)
    with pytest.raises(StorageError):
        ledger.open_ledger(path, vfs=disk.name)
    disk.repair()
    assert [each.name for each in path.parent.iterdir() if each.suffix != ".lock"] == []
    with ledger.open_ledger(path, vfs=disk.name) as db:
        db.transact(ledger.put("x"))
        ledger.assert_dense(db, 1)


def filled(path, count=300):
    """A closed ledger of many pages; the body of entry n starts with its number."""
    with ledger.open_ledger(path) as db, db.write() as txn:
        for n in range(count):
            ledger.put(f"{n:06d}" + "x" * 400)(txn)


def damage(path, number, change):
    """Change the page that holds one entry."""
    data = bytearray(path.read_bytes())
    at = data.index(f"{number:06d}xxxx".encode()) // 4096 * 4096
    data[at : at + 4096] = change(bytes(data[at : at + 4096]))
    path.write_bytes(data)


PAGE_DAMAGE = {
    "zeroed": lambda page: bytes(4096),
    "header": lambda page: bytes(b ^ 0xFF for b in page[:12]) + page[12:],
    "cell pointers": lambda page: page[:8] + b"\xff" * 40 + page[48:],
}


@pytest.mark.parametrize("change", PAGE_DAMAGE.values(), ids=PAGE_DAMAGE)
def test_corrupt_page_is_reported_and_the_rest_can_be_read(path, change):
    filled(path)
    damage(path, 150, change)
    with ledger.open_ledger(path) as db:
        assert db.health().ready
        with pytest.raises(CorruptData) as caught:
            ledger.entries(db)
        assert "backup" in caught.value.hint
        assert not caught.value.retryable
        problems = db.integrity_check()
        assert problems
        health = db.health()
        assert (health.state, health.ready) == ("failed", False)
        finding = next(each for each in health.findings if each.name == "integrity_errors")
        assert finding.value == len(problems)
        assert "restore" in finding.hint
        # What lies on other pages is still there to be saved.
        with db.read() as snapshot:
            assert snapshot.value("SELECT body FROM entry WHERE seq = 1").startswith("000000")


def test_writer_that_reads_corrupt_page_writes_nothing(path):
    filled(path)
    damage(path, 299, PAGE_DAMAGE["zeroed"])
    before = path.read_bytes()
    with ledger.open_ledger(path, sequences=()) as db:
        with pytest.raises(CorruptData):
            db.transact(lambda txn: txn.execute("UPDATE entry SET body = 'x'"))
        with pytest.raises(CorruptData), db.write() as txn:
            txn.execute("DELETE FROM entry WHERE seq > 290")
    assert path.read_bytes() == before


def test_integrity_check_finds_index_that_differs_from_table(path):
    with ledger.open_ledger(path) as db:
        db.transact(ledger.put("indexed body"))
        with db.write() as txn:
            txn.execute("CREATE INDEX by_body ON entry (body)")
    data = path.read_bytes()
    at = data.rindex(b"indexed body")
    path.write_bytes(data[:at] + b"INDEXED" + data[at + 7 :])
    with ledger.open_ledger(path) as db:
        assert any("index" in problem for problem in db.integrity_check())
        assert db.health().state == "failed"


def test_failed_health_recovers_after_clean_check(db):
    db._integrity_errors = 3
    assert db.health().state == "failed"
    assert db.integrity_check() == []
    assert db.health().state != "failed"


@pytest.mark.parametrize("keep", [100, 4096, 8192, -4096])
def test_truncated_file_is_detected(path, keep):
    filled(path)
    cut = path.read_bytes()[:keep]
    path.write_bytes(cut)
    error, problems = opened_and_checked(path)
    if error is None:
        assert problems
    else:
        assert isinstance(error, CorruptData | ForeignFile | InvalidInput)
        assert error.hint
        assert path.read_bytes() == cut


def opened_and_checked(path):
    try:
        with ledger.open_ledger(path) as db:
            problems = db.integrity_check()
            assert db.health().ready == (not problems)
            return None, problems
    except FourfoldError as error:
        return error, []


def crashed(path, bodies):
    """A ledger as a crash leaves it, with its first entry in the file and the others in the log;
    the bytes of that log.
    """
    live = path.with_name("live.db")
    db = ledger.open_ledger(live)
    for n, body in enumerate(bodies):
        db.transact(ledger.put(body))
        if n == 0:
            db.checkpoint("TRUNCATE")
    log = live.with_name("live.db-wal").read_bytes()
    path.write_bytes(live.read_bytes())
    db.close()
    return log


@pytest.mark.parametrize("cut", [1, 100, 4096, 4120, 8300])
@pytest.mark.parametrize("tail", [b"", b"\x00" * 5000, b"noise" * 2000])
def test_torn_log_end_loses_only_the_torn_part(path, cut, tail):
    bodies = list(range(30))
    log = crashed(path, bodies)
    path.with_name("ledger.db-wal").write_bytes(log[:-cut] + tail)
    with ledger.open_ledger(path) as db:
        found = ledger.bodies(db)
        # The commits before the tear, in order and whole; each takes two to three frames.
        assert found == bodies[: len(found)]
        assert 26 <= len(found) < 30
        ledger.assert_dense(db)
        assert db.integrity_check() == []
        db.transact(ledger.put("next"))
        ledger.assert_dense(db, len(found) + 1)


def test_flipped_bit_in_the_log_ends_it_there(path):
    bodies = list(range(30))
    log = bytearray(crashed(path, bodies))
    log[len(log) // 2] ^= 1
    path.with_name("ledger.db-wal").write_bytes(log)
    with ledger.open_ledger(path) as db:
        found = ledger.bodies(db)
        assert found == bodies[: len(found)]
        assert 5 < len(found) < 25
        ledger.assert_dense(db)
        assert db.integrity_check() == []


def test_invalid_log_is_ignored(path):
    crashed(path, range(3))
    path.with_name("ledger.db-wal").write_bytes(b"not a log" * 1000)
    with ledger.open_ledger(path) as db:
        assert ledger.bodies(db) == [0]
        ledger.assert_dense(db)
        assert db.integrity_check() == []


def test_failed_background_checkpoint_is_postponed(path, disk, caplog):
    options = Options(checkpoint_bytes=4096 * 5)
    with ledger.open_ledger(path, vfs=disk.name, options=options) as db:
        disk.fail("write", "ledger.db")
        for n in range(30):
            db.transact(ledger.put(n))
        ledger.wait_until(lambda: "checkpoint postponed" in caplog.text)
        disk.repair()
        for n in range(30, 200):
            db.transact(ledger.put(n))
        ledger.wait_until(lambda: db.metrics().counters["checkpoints"] > 0)
        ledger.assert_dense(db, 200)
