"""One wrong byte anywhere in a space is found: in every column of every table of both histories,
and in any byte of the file that changes what a reader would see.
"""

from __future__ import annotations

import shutil
from random import Random

import apsw
import pytest
from lived_in_space import lived_in
from space_machine import DID

import fourfold
from fourfold.models.documents import HISTORIES
from fourfold.store.verification import database_problems

REMARKS = {("blob_store", "content_type"), ("blob_store", "created_at")}
"""Nothing vouches for these, so only a byte that makes them no text at all is found."""
KERNEL = {"kernel_meta", "kernel_sequence", "schema_migrations"}


@pytest.fixture(scope="module", params=sorted(HISTORIES))
def sound(request, tmp_path_factory):
    """The file of a space with something of everything, and nothing wrong."""
    root = tmp_path_factory.mktemp("sound") / "store"
    settings = {"documents.page_size": 4096}
    with fourfold.open(root, settings=settings) as store:
        space = store.space(DID, history=request.param)
        lived_in(space)
        space.blobs.put(b"some bytes", "text/plain", metadata={"title": "t"})
        space.blobs.put(b"", None)
        space.branches.merge("f", resolutions={"b": None})
        assert space.verify() == []
    [path] = (root / "spaces").glob("*.sqlite")
    assert database_problems(path) == []
    return path


@pytest.fixture
def copy(sound, tmp_path):
    return shutil.copy(sound, tmp_path / sound.name)


def tables_of(path):
    """The names of the model's tables, each with its columns."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    names = [
        name
        for (name,) in connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        )
        if name not in KERNEL and not name.startswith("gc_")
    ]
    found = {
        name: [row[1] for row in connection.execute(f'PRAGMA table_info("{name}")')]
        for name in names
    }
    connection.close()
    return found


def rows_of(path, tables):
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return {name: connection.execute(f'SELECT * FROM "{name}"').fetchall() for name in tables}
    finally:
        connection.close()


def changed(value, random):
    """What a wrong byte can make of a value: another one of the same kind."""
    if value is None:
        return "x"
    if isinstance(value, int):
        return value ^ (1 << random.randrange(8))
    raw = bytearray(value if isinstance(value, bytes) else value.encode())
    if not raw:
        raw = bytearray(b"x")
    raw[random.randrange(len(raw))] ^= 1 << random.randrange(8)
    return bytes(raw)


def written(value, new):
    """Damaged text is text still for SQLite, whatever is in it."""
    return "CAST(? AS TEXT)" if isinstance(value, str) and isinstance(new, bytes) else "?"


def flip(path, table, columns, row, column, random):
    """Change one column of one row; whether that was possible, since keys cannot become doubles."""
    value = row[columns.index(column)]
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA foreign_keys = OFF")
    where = " AND ".join(f'"{name}" IS ?' for name in columns)
    for _ in range(20):
        new = changed(value, random)
        sql = f'UPDATE OR IGNORE "{table}" SET "{column}" = {written(value, new)} WHERE {where}'
        connection.execute(sql, (new, *row))
        if connection.changes():
            connection.close()
            return True
    connection.close()
    return False


def rounds(sound, tmp_path, seed, times):
    """Every column of every table, each in some of its rows."""
    random = Random(seed)
    columns = tables_of(sound)
    content = rows_of(sound, columns)
    tried = set()
    for table, rows in content.items():
        for column in columns[table]:
            for _ in range(min(times, len(rows))):
                path = shutil.copy(sound, tmp_path / "damaged.sqlite")
                row = random.choice(rows)
                if not flip(path, table, columns[table], row, column, random):
                    continue
                if (table, column) not in REMARKS:
                    assert database_problems(path), (table, column, row)
                tried.add((table, column))
    return tried, {
        (table, column) for table in content if content[table] for column in columns[table]
    }


def test_one_flipped_bit_in_any_column_is_found(sound, tmp_path):
    tried, all_of_them = rounds(sound, tmp_path, seed=1, times=1)
    assert tried == all_of_them
    assert {"commit", "branch", "head", "snapshot", "blob_store"} <= {table for table, _ in tried}


@pytest.mark.slow
def test_many_flipped_bits_in_every_column_are_found(sound, tmp_path):
    rounds(sound, tmp_path, seed=2, times=25)


def flips_in_the_file(sound, tmp_path, seed, times):
    """Flip single bits of the file; how many changed what a reader sees, and were found."""
    random = Random(seed)
    whole = sound.read_bytes()
    columns = tables_of(sound)
    before = rows_of(sound, columns)
    found = 0
    for _ in range(times):
        damaged = bytearray(whole)
        at = random.randrange(100, len(damaged))
        damaged[at] ^= 1 << random.randrange(8)
        path = tmp_path / "damaged.sqlite"
        path.write_bytes(damaged)
        if _same_but_for_remarks(path, before, columns):
            continue
        assert database_problems(path), f"byte {at} of {len(whole)} went unnoticed"
        found += 1
    return found


def _same_but_for_remarks(path, before, columns):
    try:
        after = rows_of(path, columns)
    except (apsw.Error, UnicodeDecodeError):
        return False

    def plain(content):
        return {
            table: [
                tuple(
                    None if (table, name) in REMARKS else value
                    for name, value in zip(columns[table], row, strict=True)
                )
                for row in content[table]
            ]
            for table in before
        }

    return plain(after) == plain(before)


def test_flipped_bit_of_file_that_changes_table_is_found(sound, tmp_path):
    assert flips_in_the_file(sound, tmp_path, seed=3, times=120) > 5


@pytest.mark.slow
def test_no_flipped_bit_of_file_that_changes_table_goes_unnoticed(sound, tmp_path):
    assert flips_in_the_file(sound, tmp_path, seed=4, times=4_000) > 200


def test_damaged_blobs_are_named(copy):
    def damage(sql):
        connection = apsw.Connection(str(copy))
        connection.execute(sql)
        connection.close()
        return [*map(str, database_problems(copy))]

    hashed = "some bytes"
    assert any("blob" in each for each in damage("UPDATE blob_store SET size = size + 1"))
    assert any(
        "bytes do not match its hash" in each
        for each in damage(f"UPDATE blob_store SET data = CAST('{hashed}' AS BLOB)")
    )


def test_rows_of_reserved_tables_are_named(revisions):
    def forge(txn):
        txn.execute("INSERT INTO authorization (ref, authorization) VALUES ('r', '{}')")

    revisions.database.transact(forge)
    [problem] = map(str, revisions.verify())
    assert "authorization 'r'" in problem
