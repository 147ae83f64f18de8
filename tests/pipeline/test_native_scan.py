"""The scan in Java gives the rows that SQLite gives, or says why not."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from native_probe import by_sqlite, options, probe_of
from native_writer import ROWS
from random_spaces import LIVES, Life

import fourfold
from fourfold.errors import CorruptData, FormatError, FourfoldError, StorageError
from fourfold.pipeline import cut

pytestmark = pytest.mark.spark

DID = "did:web:rows.example"
SMALL = {"documents.page_size": 4096}
TABLES = ("revisions", "commits", "snapshots")
COLUMNS = {
    "revisions": "space,branch,id,seq,op_index,op,data,time,fact,root",
    "commits": "space,seq,branch,session,local_seq,time,original,resolution,hash,previous",
    "snapshots": "space,branch,id,seq,document",
}


@pytest.fixture(scope="module")
def probe(spark):
    return probe_of(spark)


def path_of(root, did=DID):
    return Path(root) / "spaces" / f"{did}.sqlite"


def reads(root, **more):
    """A read of every table, whole and cut into parts."""
    for table in TABLES:
        for part in ("8192", "1000000000"):
            columns = COLUMNS[table]
            yield options(root, table, columns=columns, partition_bytes=part, **more)


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=LIVES)
def test_a_random_space_has_the_same_rows_for_both_readers(probe, tmp_path_factory, steps):
    root = tmp_path_factory.mktemp("random")
    with fourfold.open(root, settings=SMALL) as store:
        Life(store.space(DID)).live(steps)
        assert Path(f"{path_of(root)}-wal").stat().st_size > 0
        in_log = [probe.sorted(read) for read in reads(root)]
    in_file = [probe.sorted(read) for read in reads(root)]
    assert in_file == in_log == [by_sqlite(read) for read in reads(root)]
    assert probe.open_files() == 0


@pytest.fixture(scope="module")
def long_rows(tmp_path_factory):
    """Documents and names longer than a page, on two branches."""
    root = tmp_path_factory.mktemp("long") / "store"
    draw = random.Random(7)
    with fourfold.open(root, settings=SMALL) as store:
        space = store.space(DID)
        for number in range(150):
            name = f"e{number:03}" + "n" * draw.choice([0, 5, 900])
            text = "ä" * draw.choice([0, 50, 1_900, 2_050, 30_000])
            space.set(name, {"n": number, "text": text})
        space.branches.create("draft")
        for number in range(40):
            space.set(f"e{number}", {"n": number, "text": "x" * number * 300}, branch="draft")
        space.set("huge", {"text": "y" * 1_800_000})
    return root


@pytest.mark.parametrize("columns", [COLUMNS["revisions"], "id,seq", "data", "op_index,space"])
@pytest.mark.parametrize("part", [10_000, 100_000, 10**9])
def test_rows_that_go_on_elsewhere_are_whole(probe, long_rows, columns, part):
    read = options(long_rows, columns=columns, partition_bytes=str(part))
    found = probe.sorted(read)
    assert found == by_sqlite(read)
    assert len(found) == 191


@pytest.mark.parametrize("bounds", [{"at": "7"}, {"since": "3"}, {"at": "150", "since": "10"}])
def test_no_row_beyond_the_bounds_is_read(probe, long_rows, bounds):
    for read in reads(long_rows, **bounds):
        assert probe.sorted(read) == by_sqlite(read)


def test_a_cut_that_was_taken_before_shows_what_was_there_then(probe, tmp_path):
    with fourfold.open(tmp_path, settings=SMALL) as store:
        space = store.space(DID)
        space.set("a", {"n": 1})
        read = options(tmp_path, columns="id,seq")
        taken = cut.take(read)
        for number in range(300):
            space.set(f"b{number}", {"n": number})
        assert probe.rows(read, taken) == [(b"a", 1)]


def test_a_file_that_nobody_has_open_is_read_and_left_as_it_is(probe, tmp_path):
    with fourfold.open(tmp_path, settings=SMALL) as store:
        for number in range(100):
            store.space(DID).set(f"e{number}", {"n": number})
    path, read = path_of(tmp_path), options(tmp_path, columns="id,seq,data")
    table = probe.table(read)
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    before = path.read_bytes()
    assert len(table.next(1000)) == 100
    assert path.read_bytes() == before
    assert Path(f"{path}-shm").stat().st_mode == path.stat().st_mode
    with fourfold.open(tmp_path) as store:
        store.space(DID).set("more", {})
        assert len(probe.rows(read)) == 101


def test_a_folder_where_nothing_can_be_written_is_read_without_a_trace(probe, tmp_path):
    with fourfold.open(tmp_path / "store", settings=SMALL) as store:
        store.space(DID).set("a", {"n": 1})
    path = path_of(tmp_path / "store")
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    path.parent.chmod(0o555)
    try:
        assert probe.rows(options(tmp_path / "store", columns="id,seq")) == [(b"a", 1)]
        assert not Path(f"{path}-shm").exists()
    finally:
        path.parent.chmod(0o755)


def test_the_log_of_a_process_that_died_is_left_to_sqlite(probe, tmp_path):
    writer = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("native_writer.py"), tmp_path, DID],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    writer.communicate("commit 5\ndie\n")
    path, read = path_of(tmp_path), options(tmp_path, columns="id,seq")
    assert Path(f"{path}-wal").stat().st_size > 0
    assert not probe.possible(path)
    with pytest.raises(StorageError, match=r"left a log behind") as caught:
        probe.rows(read)
    assert str(path) in caught.value.message
    with fourfold.open(tmp_path, mode="r") as store:
        store.space(DID).seq()
        assert probe.possible(path)
        assert len(probe.rows(read)) == 5 * ROWS
    assert probe.open_files() == 0


def changed(root, statement, *values):
    connection = apsw.Connection(str(path_of(root)))
    connection.pragma("foreign_keys", 0)
    connection.execute(statement, values)
    connection.close()


@pytest.fixture
def root(tmp_path):
    with fourfold.open(tmp_path / "store", settings=SMALL) as store:
        for number in range(5):
            store.space(DID).set(f"e{number}", {"n": number})
    return tmp_path / "store"


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE revision SET data = x'ff00fe' WHERE seq = 2",
        "UPDATE revision SET data = NULL, op = 12 WHERE seq = 2",
        "UPDATE revision SET data = '' WHERE seq = 2",
        "UPDATE revision SET op_index = -5 WHERE seq = 2",
        "UPDATE revision SET op_index = 2147483647 WHERE seq = 2",
    ],
)
def test_odd_values_are_the_same_for_both_readers(probe, root, statement):
    changed(root, statement)
    read = options(root, columns=COLUMNS["revisions"])
    assert probe.sorted(read) == by_sqlite(read)


@pytest.mark.parametrize(
    ("table", "statement"),
    [
        ("revisions", "UPDATE revision SET op_index = 'three' WHERE seq = 2"),
        ("revisions", "UPDATE revision SET op_index = 2.5 WHERE seq = 2"),
        ("revisions", "UPDATE revision SET op_index = 2147483648 WHERE seq = 2"),
        ("commits", "UPDATE \"commit\" SET local_seq = x'01' WHERE seq = 2"),
        ("commits", "UPDATE \"commit\" SET created_at = 'yesterday' WHERE seq = 2"),
    ],
)
def test_a_value_of_another_type_than_its_column_is_damage_that_is_named(
    probe, root, table, statement
):
    changed(root, statement)
    with pytest.raises(CorruptData) as caught:
        probe.rows(options(root, table, columns=COLUMNS[table]))
    assert str(path_of(root)) in caught.value.message
    assert probe.open_files() == 0


@pytest.mark.parametrize(
    "time",
    [
        "2024-02-29T23:59:59.999Z",
        "1969-12-31T23:59:59.5Z",
        "2000-01-01 00:00:00Z",
        "0001-03-01T00:00:00.123456Z",
    ],
)
def test_times_are_the_same_for_both_readers(probe, root, time):
    changed(root, 'UPDATE "commit" SET created_at = ?1 WHERE seq = 2', time)
    for table in ("commits", "revisions"):
        read = options(root, table, columns="seq,time")
        assert probe.sorted(read) == by_sqlite(read)


def test_a_row_whose_commit_is_gone_has_no_time(probe, root):
    changed(root, 'DELETE FROM "commit" WHERE seq = 2')
    read = options(root, columns="seq,time,id")
    assert probe.sorted(read) == by_sqlite(read)
    assert [time is None for _, time, _ in probe.sorted(read)] == [False, True, False, False, False]


def test_a_table_that_is_not_what_the_others_are_is_refused(probe, root):
    read = options(root, columns="id,seq")
    table = probe.table(read)
    changed(root, "ALTER TABLE revision ADD COLUMN more TEXT")
    with pytest.raises(FormatError, match="not like those of the others"):
        table.next(1)


def test_pages_that_move_are_found(probe, root):
    read = options(root, columns="id,seq")
    table = probe.table(read)
    changed(root, "VACUUM")
    assert sorted(table.next(1), key=repr) == by_sqlite(read)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    root = tmp_path_factory.mktemp("sound") / "store"
    draw = random.Random(11)
    with fourfold.open(root, settings=SMALL) as store:
        space = store.space(DID)
        for number in range(120):
            space.set(f"e{number % 50:02}", {"n": number, "t": "x" * draw.choice([10, 90, 3000])})
    return root


def answer(reader, read):
    """The rows, or the error, which names the file."""
    try:
        return reader(read)
    except FourfoldError as error:
        return error if str(path_of(read.root)) in error.message else "an error without the file"


@pytest.mark.parametrize("seed", range(60))
def test_damage_is_an_error_or_what_sqlite_reads_too(probe, sound, tmp_path, seed):
    draw = random.Random(seed)
    shutil.copytree(sound, tmp_path / "store")
    path = path_of(tmp_path / "store")
    read = options(tmp_path / "store", columns=COLUMNS["revisions"])
    content = bytearray(path.read_bytes())
    for _ in range(draw.choice([1, 1, 3])):
        # The beginning of a page says the most about it.
        page = draw.randrange(1, len(content) // 4096)
        at = page * 4096 + draw.choice([draw.randrange(16), draw.randrange(4096)])
        content[at] = draw.choice([content[at] ^ (1 << draw.randrange(8)), draw.randrange(256)])
    path.write_bytes(content)
    try:
        taken = cut.take(read)
    except FourfoldError:
        return
    found = answer(lambda each: probe.sorted(each, taken), read)
    assert probe.open_files() == 0
    if not isinstance(found, FourfoldError):
        assert found == answer(lambda each: by_sqlite(each, taken), read)


def test_any_byte_that_says_where_something_is_may_be_wrong(probe, sound, tmp_path):
    """The head of a page, and the heads of records in it, which random damage seldom hits."""
    shutil.copytree(sound, tmp_path / "store")
    path = path_of(tmp_path / "store")
    connection = apsw.Connection(str(path))
    pages = (
        "SELECT pageno FROM dbstat WHERE name = 'revision' AND pagetype = 'leaf' LIMIT 1 OFFSET 2"
    )
    [(page,)] = connection.execute(pages)
    connection.close()
    read = options(tmp_path / "store", columns=COLUMNS["revisions"])
    whole, taken = path.read_bytes(), cut.take(read)
    start = (page - 1) * 4096
    cells = [start + int.from_bytes(whole[at : at + 2]) for at in (start + 8, start + 12)]
    found = 0
    for at in [*range(start, start + 14), *(cell + byte for cell in cells for byte in range(9))]:
        for value in {
            whole[at] ^ 1,
            whole[at] ^ 0x40,
            whole[at] ^ 0x80,
            0,
            0xFF,
            whole[at] + 2 & 0xFF,
        }:
            path.write_bytes(whole[:at] + bytes([value]) + whole[at + 1 :])
            rows = answer(lambda each: probe.sorted(each, taken), read)
            if isinstance(rows, FourfoldError):
                found += 1
            else:
                assert rows == answer(lambda each: by_sqlite(each, taken), read), (
                    at - start,
                    value,
                )
    assert found > 30
    assert probe.open_files() == 0


def test_rows_in_another_order_than_that_of_their_numbers_are_damage(probe, sound, tmp_path):
    """Whoever looks for a number among them may miss it."""
    shutil.copytree(sound, tmp_path / "store")
    path = path_of(tmp_path / "store")
    connection = apsw.Connection(str(path))
    pages = "SELECT pageno FROM dbstat WHERE name = 'commit' AND pagetype = 'leaf' AND ncell > 1"
    page, *_ = connection.execute(pages).fetchone()
    connection.close()
    whole, at = path.read_bytes(), (page - 1) * 4096 + 8
    path.write_bytes(whole[:at] + whole[at + 2 : at + 4] + whole[at : at + 2] + whole[at + 4 :])
    for table in ("commits", "revisions"):
        with pytest.raises(CorruptData, match="not in the order"):
            probe.rows(options(tmp_path / "store", table, columns="seq,time"))


def test_a_file_that_is_cut_short_is_named(probe, sound, tmp_path):
    shutil.copytree(sound, tmp_path / "store")
    read = options(tmp_path / "store", columns="data")
    table = probe.table(read)
    path = path_of(tmp_path / "store")
    os.truncate(path, path.stat().st_size // 4096 // 2 * 4096)
    with pytest.raises(CorruptData) as caught:
        table.next(1000)
    assert str(path) in caught.value.message
