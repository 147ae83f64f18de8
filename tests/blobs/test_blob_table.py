"""Blobs in a table: the schema that the specification names, content types, shared transactions."""

from __future__ import annotations

import pytest

from fourfold import limits
from fourfold.blobs import MIGRATION, BlobUsage, TableBlobs, insert
from fourfold.blobs.table import BLOB_LIST_PAGE
from fourfold.content import content_id
from fourfold.errors import CorruptData, InvalidInput, NotFound, ReadOnly
from fourfold.kernel import Database

COLUMNS = "SELECT name, type, \"notnull\", pk FROM pragma_table_info('blob_store')"
ROW = "SELECT hash, data, content_type, size, created_at FROM blob_store"
TEXT = "UPDATE blob_store SET data = 'not a blob'"


@pytest.fixture
def database(tmp_path):
    with Database.open(tmp_path / "blobs.sqlite", migrations=[MIGRATION]) as opened:
        yield opened


@pytest.fixture
def store(database):
    return TableBlobs(database)


def test_the_table_has_the_columns_of_the_specification(database):
    with database.read() as snapshot:
        assert snapshot.all(COLUMNS) == [
            ("hash", "TEXT", 1, 1),
            ("data", "BLOB", 1, 0),
            ("content_type", "TEXT", 0, 0),
            ("size", "INTEGER", 1, 0),
            ("created_at", "TEXT", 1, 0),
        ]


def test_row_holds_digits_bytes_type_and_size(store):
    blob_id = store.put(b"abc", content_type="text/plain")
    with store.database.read() as snapshot:
        ((digits, data, content_type, size, created_at),) = snapshot.all(ROW)
    assert f"sha256:{digits}" == blob_id
    assert (data, content_type, size) == (b"abc", "text/plain", 3)
    assert len(created_at) == len("2026-01-02 03:04:05")


def test_the_first_content_type_stays(store):
    plain = store.put(b"abc", content_type="text/plain")
    assert store.put(b"abc", content_type="image/png") == plain
    assert store.put_stream([b"abc"], content_type="image/png") == plain
    assert store.content_type(plain) == "text/plain"
    assert store.content_type(store.put(b"untyped")) is None
    assert store.content_type(store.put_stream([b"typed"], content_type="a/b")) == "a/b"
    with pytest.raises(NotFound):
        store.content_type(content_id(b"absent"))


def test_blob_is_committed_with_its_referring_rows_or_not(store):
    def fail(txn):
        insert(txn, b"lost")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.database.transact(fail)
    assert not store.has(content_id(b"lost"))
    with store.database.write() as txn:
        kept = insert(txn, b"kept", content_type="text/plain")
        with pytest.raises(InvalidInput):
            insert(txn, b"too large", max_bytes=3)
    assert store.get(kept) == b"kept"
    assert store.usage() == BlobUsage(1, 4)


def test_blobs_larger_than_a_shared_commit_are_stored_too(store):
    data = bytes(limits.GROUP_BYTES_MAX + 1)
    blob_id = store.put(data)
    assert store.size(blob_id) == len(data)
    assert store.get_range(blob_id, len(data) - 3, 10) == bytes(3)
    assert store.get(blob_id) == data


def test_a_row_that_holds_text_is_corrupt(store):
    blob_id = store.put(b"0123456789")
    store.database.transact(lambda txn: txn.execute(TEXT))
    for read in (store.get, lambda name: store.get_range(name, 0, 3)):
        with pytest.raises(CorruptData, match=blob_id.removeprefix("sha256:")):
            read(blob_id)


def test_more_blobs_than_fit_one_page_are_listed(store):
    count = BLOB_LIST_PAGE + 5
    with store.database.write() as txn:
        expected = sorted(insert(txn, b"%d" % number) for number in range(count))
    assert list(store.ids()) == expected
    assert store.usage().count == count


def test_database_open_for_reading_gives_blobs_and_takes_none(store):
    blob_id = store.put(b"abc")
    with Database.open(store.database.path, migrations=[MIGRATION], mode="r") as readable:
        reader = TableBlobs(readable)
        assert reader.get(blob_id) == b"abc"
        assert reader.put(b"abc") == blob_id
        with pytest.raises(ReadOnly):
            reader.put(b"new")
        with pytest.raises(ReadOnly):
            reader.delete(blob_id)
