"""`fourfold.pipeline.read` equals the format, at its cut, with Fourfold's errors."""

from __future__ import annotations

import subprocess
import sys

import apsw
import pytest
import sample_store

import fourfold
from fourfold.errors import InvalidInput, NotFound
from fourfold.pipeline import read

pytestmark = pytest.mark.spark

DID = "did:web:a.example"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("read") / "store"
    sample_store.build(folder)
    return folder


def read_format(spark, **options):
    """Return a table as the Python source of the format reads it."""
    texts = {name: str(value) for name, value in options.items()}
    return spark.read.format("fourfold").options(**texts).load()


def rows(frame):
    return sorted(map(tuple, frame.collect()), key=repr)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("table", ["revisions", "commits", "snapshots", "branches", "state"])
def test_read_equals_format(spark, root, table):
    actual = read(spark, root=root, table=table)
    expected = read_format(spark, root=root, table=table)
    assert actual.schema.simpleString() == expected.schema.simpleString()
    assert rows(actual) == rows(expected)


def test_read_accepts_lists_and_numbers(spark, root):
    options = {"root": root, "table": "revisions"}
    for bounds in ({"at": 12}, {"since": 3}, {"at": 30, "since": 2}):
        actual = read(spark, columns=["id", "seq"], **options, **bounds)
        expected = read_format(spark, columns="id,seq", **options, **bounds)
        assert rows(actual) == rows(expected)


def test_read_stays_at_its_cut(spark, tmp_path):
    with fourfold.open(tmp_path) as store:
        space = store.space(DID)
        space.set("a", {"n": 1})
        actual = read(spark, root=tmp_path, table="revisions")
        space.set("a", {"n": 2})
        assert actual.select("seq").count() == actual.select("time").count() == 1
        assert actual.join(actual.where("id = 'a'"), "seq").count() == 1
        assert read(spark, root=tmp_path, table="revisions").select("seq").count() == 2


def test_read_refuses_an_unknown_option(spark, root):
    with pytest.raises(InvalidInput, match="did_you"):
        read(spark, root=root, table="revisions", did_you=1)


def test_read_includes_wal_of_dead_process(spark, tmp_path):
    script = (
        "import fourfold, os, sys\n"
        "space = fourfold.open(sys.argv[1]).space('did:web:a.example')\n"
        "for number in range(9): space.set(f'e{number}', {})\n"
        "os._exit(9)\n"
    )
    subprocess.run([sys.executable, "-c", script, tmp_path], check=False)
    assert read(spark, root=tmp_path, table="revisions").select("id").count() == 9


def test_read_works_after_rolled_back_first_transaction(spark, tmp_path):
    with fourfold.open(tmp_path) as store:
        for number in range(50):
            store.space(DID).set(f"e{number}", {"n": number})
    writer = apsw.Connection(str(tmp_path / "spaces" / f"{DID}.sqlite"))
    try:
        # The WAL has frames, but its index has no commit yet.
        writer.execute("pragma cache_size = 5; begin immediate; create table spilled (x)")
        for _ in range(2000):
            writer.execute("insert into spilled values (randomblob(900))")
        assert read(spark, root=tmp_path, table="revisions").count() == 50
        writer.execute("rollback")
        assert read(spark, root=tmp_path, table="revisions").count() == 50
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"table": "state", "at": 99999999}, InvalidInput, "at must be between"),
        ({"table": "revisions", "at": 99999999}, InvalidInput, "at must be between"),
        ({"table": "state", "branch": "nowhere"}, NotFound, "unknown branch 'nowhere'"),
        ({"table": "history", "branch": "draft", "at": 1}, NotFound, "unknown branch 'draft'"),
        ({"table": "state", "root": "/nowhere"}, NotFound, "not a Fourfold store"),
    ],
)
def test_read_raises_fourfold_errors_immediately(spark, root, options, error, message):
    with pytest.raises(error, match=message):
        read(spark, **({"root": root} | options))
