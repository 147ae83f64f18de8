"""A bad file is named in the error, or skipped while the others are read."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
import threading
from itertools import chain

import pytest

import fourfold
from fourfold import limits
from fourfold.errors import CorruptData, FourfoldError
from fourfold.pipeline import cut, plan, scan
from fourfold.pipeline.options import read_options
from fourfold.pipeline.spark import unwrap_error

GOOD = ["did:web:a.example", "did:web:m.example", "did:web:z.example"]
BAD = "did:web:bad.example"
CHANGE = """
import apsw, sys
connection = apsw.Connection(sys.argv[1])
connection.execute(sys.argv[2])
connection.close()
"""


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    root = tmp_path_factory.mktemp("clean") / "store"
    with fourfold.open(root, settings={"documents.page_size": 4096}) as store:
        for did in [*GOOD, BAD]:
            space = store.space(did)
            for number in range(200):
                space.set(f"e{number}", {"n": number, "text": "x" * 200})
    return root


@pytest.fixture
def root(clean, tmp_path):
    copy = tmp_path / "store"
    shutil.copytree(clean, copy)
    for lock in copy.rglob("*.lock"):
        lock.unlink()
    return copy


def changed(path, statement):
    subprocess.run([sys.executable, "-c", CHANGE, path, statement], check=True)


def text(path):
    path.write_text("This is a letter, not a database. " * 500)


def empty(path):
    path.write_bytes(b"")
    os.utime(path, (1, 1))


def foreign(path):
    path.unlink()
    changed(path, "CREATE TABLE t (a); INSERT INTO t VALUES (1)")


def other_model(path):
    changed(path, "UPDATE kernel_meta SET value = 'recipes' WHERE key = 'model'")


def future(path):
    newest = "SELECT max(version) + 1, 'later', 'abc', '2099' FROM schema_migrations"
    changed(path, f"INSERT INTO schema_migrations {newest}")


def counterless(path):
    changed(path, "DELETE FROM kernel_sequence")


def beheaded(path):
    data = bytearray(path.read_bytes())
    data[:64] = bytes(64)
    path.write_bytes(data)


def cut_short(path):
    path.write_bytes(path.read_bytes()[: 10 * 4096 + 100])


KINDS = {
    text: "foreign_file",
    empty: "format",
    foreign: "foreign_file",
    other_model: "foreign_file",
    future: "future_format",
    beheaded: "foreign_file",
    cut_short: "corrupt_data",
    counterless: "sequence_corrupt",
}


def options(root, **more):
    return read_options({"root": str(root), "table": "revisions", **more})


def path_of(root, did=BAD):
    return root / "spaces" / f"{did}.sqlite"


@pytest.mark.parametrize("damage", KINDS, ids=lambda damage: damage.__name__)
def test_skip_bad_reports_bad_file_and_reads_others(root, damage):
    damage(path_of(root))
    with pytest.raises(FourfoldError) as caught:
        cut.read_cut(options(root))
    assert str(path_of(root)) in caught.value.message
    assert caught.value.kind == KINDS[damage]
    taken = cut.read_cut(options(root, skip_bad="true"))
    assert [mark.space for mark in taken.bounds] == GOOD
    assert [(bad.space, bad.kind) for bad in taken.bad] == [(BAD, KINDS[damage])]
    # Also when only the good ones are selected.
    assert cut.read_cut(options(root, space=GOOD[0])).bad == ()


def test_locked_file_is_named_in_error(root, monkeypatch):
    monkeypatch.setattr(limits, "SOURCE_BUSY_TIMEOUT_MS", 20)
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            textwrap.dedent(
                """
                import apsw, sys
                connection = apsw.Connection(sys.argv[1])
                connection.pragma("locking_mode", "EXCLUSIVE")
                connection.execute("CREATE TABLE mine (a)")
                print("locked", flush=True)
                sys.stdin.read()
                """
            ),
            path_of(root),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(fourfold.Busy, match=r"bad\.example"):
            cut.read_cut(options(root))
        taken = cut.read_cut(options(root, skip_bad="true"))
        assert [bad.kind for bad in taken.bad] == ["lock_timeout"]
        assert len(taken.bounds) == len(GOOD)
    finally:
        holder.communicate()


def damaged_page(path):
    """Damage the first page of the log's rows, which no header shows."""
    data = bytearray(path.read_bytes())
    pages = [at for at in range(0, len(data), 4096) if b'"text":"xxxx' in data[at : at + 4096]]
    at = pages[len(pages) // 2]
    data[at : at + 64] = b"\xff" * 64
    path.write_bytes(data)


def test_scan_error_names_damaged_file(root):
    damaged_page(path_of(root))
    taken = cut.read_cut(options(root))
    works = plan.plan(taken.bounds, options(root), options(root).table.select_columns())
    with pytest.raises(CorruptData, match=r"bad\.example"):
        list(chain.from_iterable(map(scan.read_batches, works)))


def test_skip_bad_detects_damaged_pages_before_reading(root):
    damaged_page(path_of(root))
    taken = cut.read_cut(options(root, skip_bad="true"))
    assert [bad.space for bad in taken.bad] == [BAD]


@pytest.mark.spark
def test_spark_read_names_or_skips_bad_file(root, read):
    future(path_of(root))
    text(path_of(root, GOOD[1]))
    with pytest.raises(Exception, match=r"bad\.example") as caught:
        read(root, "revisions").collect()
    assert unwrap_error(caught.value).kind == "future_format"
    frame = read(root, "revisions", skip_bad="true", columns="space")
    actual = {row.space: row["count"] for row in frame.groupBy("space").count().collect()}
    assert actual == {GOOD[0]: 200, GOOD[2]: 200}
    report = read(root, "files").where("problem is not null").collect()
    assert {(row.space, row.error) for row in report} == {
        (BAD, "future_format"),
        (GOOD[1], "foreign_file"),
    }


def test_read_refuses_folder_that_is_not_a_store(tmp_path):
    with pytest.raises(fourfold.NotFound, match="not a Fourfold store"):
        cut.read_cut(options(tmp_path))
    with pytest.raises(fourfold.NotFound, match="no Fourfold store matches"):
        cut.read_cut(read_options({"roots": f"{tmp_path}/*", "table": "revisions"}))
    with pytest.raises(fourfold.InvalidInput, match=r"option 'root' .* or option 'roots'"):
        cut.read_cut(read_options({"table": "revisions"}))


def test_cut_waits_for_space_being_created(root):
    did = "did:web:new.example"
    path_of(root, did).write_bytes(b"")
    looked = threading.Event()

    def finish():
        looked.wait(1)
        with fourfold.open(root) as store:
            store.space(did).set("e", {})

    creator = threading.Thread(target=finish)
    creator.start()
    looked.set()
    taken = cut.read_cut(options(root, space=did))
    creator.join()
    assert [(mark.space, mark.seq >= 0) for mark in taken.bounds] == [(did, True)]
