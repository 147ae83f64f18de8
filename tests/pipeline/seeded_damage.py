"""Seeded damage in copies of an intact space: one byte or one row at a time.

What counts as damage is decided without the code under test. A byte counts if it changes what a
plain reader of the tables sees, or if SQLite's own check fails; bytes of free space do neither. A
row counts if data that is not derived is missing, duplicated or changed.

REMARKS are columns that nothing verifies: there is no second copy of their values, nor anything
that they follow from. NOTES are such tables: records of the kernel and of gc about themselves.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

import apsw

import fourfold
from fourfold.models.documents import GcPolicy

DID = "did:key:z6MkDamage"
REMARKS = {
    ("blob_store", "content_type"),
    ("blob_store", "created_at"),
    ("schema_migrations", "name"),
    ("schema_migrations", "applied_at"),
    ("kernel_sequence", "value"),
    ("kernel_meta", "value"),
}
DERIVED = {"snapshot", "value"}
"""Nothing claims which snapshots there are, and a value may be left over from one."""
NOTES = {"gc_policy", "gc_horizon", "gc_point", "gc_gap"}
KERNEL = {"kernel_meta", "kernel_sequence", "schema_migrations"}


class Damage(NamedTuple):
    """The damage of a copy: the affected tables, and values of the row's key."""

    what: str
    tables: frozenset[str]
    values: frozenset[object]


def add(path, value):
    return [{"op": "add", "path": path, "value": value}]


def lived_in(root, history, *, collected):
    """Create a store with one space that has an example of everything; return its path."""
    settings = {"documents.page_size": 4096}
    with fourfold.open(root, settings=settings) as store:
        space = store.space(DID, history=history)
        space.set("a", {"n": 1, "text": "hello"})
        space.transact(
            [
                {"op": "patch", "id": "a", "patches": add("/m", 2.5)},
                {"op": "set", "id": "b", "value": {"n": 1.0}},
                {"op": "delete", "id": "c"},
            ],
            reads={"confirmed": [{"id": "a", "seq": 1}]},
            session="phone",
            local_seq=7,
        )
        space.set("b", {"n": 1, "ünïcode": "ß" * 40})
        space.branches.create("f")
        space.patch("a", add("/f", True), branch="f")
        space.branches.create("g", "f")
        space.delete("a", branch="g")
        space.patch("b", add("/n", 2), branch="g")
        space.patch("b", add("/n", 2), branch="f")
        for number in range(60):
            space.patch("long", add(f"/n{number % 7}", number))
            if number % 9 == 0:
                space.set(f"many{number}", {"text": "x" * number * 40, "n": number})
        space.blobs.put(b"some bytes" * 900, "text/plain", metadata={"title": "t"})
        space.blobs.put(b"others", None, metadata={"title": "u"}, branch="f")
        space.branches.merge("f", resolutions={"b": None})
        space.branches.delete("g")
        if collected:
            space.gc(GcPolicy(keep_seqs=20))
        space.maintain()
        # The newest commit changes a value, or its loss could not be detected.
        space.set("a", {"n": 2})
        assert space.verify() == []
    [path] = (Path(root) / "spaces").glob("*.sqlite")
    return path


def dump(path):
    """Return every row of every table with the types of its values, without the remarks."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        shown = {
            "sqlite_schema": connection.execute(
                "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY 1, 2"
            ).fetchall(),
            "application_id": [connection.pragma("application_id")],
        }
        for table, columns in _tables(connection).items():
            if table in NOTES:
                continue
            expected = [name for name, _ in columns if (table, name) not in REMARKS]
            parts = ", ".join(f'typeof("{name}"), hex("{name}")' for name in expected) or "1"
            rows = connection.execute(f'SELECT {parts} FROM "{table}"').fetchall()
            shown[table] = sorted(rows)
        sound = connection.execute("PRAGMA integrity_check(1)").fetchall() == [("ok",)]
    finally:
        connection.close()
    return shown, sound


def _tables(connection):
    names = [
        name
        for (name,) in connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        )
    ]
    return {
        name: [(row[1], row[5]) for row in connection.execute(f'PRAGMA table_info("{name}")')]
        for name in names
    }


def damage(path, draw: random.Random) -> Damage:
    """Damage the file at `path` in one place that counts; redraw until it does."""
    whole, before = path.read_bytes(), dump(path)[0]
    while True:
        kind = draw.choice([_byte, _byte, _deleted, _doubled, _changed])
        try:
            done = kind(path, draw)
        except apsw.Error:
            done = None
        if done is not None:
            if kind is not _byte:
                return done
            try:
                after, sound = dump(path)
            except (apsw.Error, UnicodeDecodeError):
                return done
            changed = frozenset(name for name in before if after.get(name) != before[name])
            if changed or not sound:
                return done._replace(tables=changed)
        path.write_bytes(whole)


def _byte(path, draw):
    content = bytearray(path.read_bytes())
    at = draw.randrange(len(content))
    old = content[at]
    content[at] = draw.choice([old ^ (1 << draw.randrange(8)), draw.randrange(256)])
    if content[at] == old:
        return None
    path.write_bytes(content)
    what = f"byte {at} of {len(content)}: {old:#04x} became {content[at]:#04x}"
    return Damage(what, frozenset(), frozenset())


def _row(connection, draw):
    tables = _tables(connection)
    counts = {
        name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in tables
    }
    table = draw.choice([name for name in tables if counts[name] and name not in NOTES | KERNEL])
    columns = tables[table]
    offset = draw.randrange(counts[table])
    row = connection.execute(f'SELECT * FROM "{table}" LIMIT 1 OFFSET {offset}').fetchone()
    key = [(name, row[at]) for at, (name, place) in enumerate(columns) if place]
    where = " AND ".join(f'"{name}" IS ?' for name, _ in key)
    return table, [name for name, _ in columns], row, key, where


def _opened(path):
    connection = apsw.Connection(str(path))
    connection.pragma("foreign_keys", 0)
    return connection


def _deleted(path, draw):
    connection = _opened(path)
    try:
        table, _, _, key, where = _row(connection, draw)
        if table in DERIVED:
            return None
        connection.execute(f'DELETE FROM "{table}" WHERE {where}', [value for _, value in key])
    finally:
        connection.close()
    return Damage(f"deleted from {table}: {key}", frozenset([table]), _values(key))


def _doubled(path, draw):
    connection = _opened(path)
    try:
        table, names, row, key, _ = _row(connection, draw)
        name, old = draw.choice(key)
        new = old + 1 if isinstance(old, int) else f"{old}x"
        copy = [new if each == name else value for each, value in zip(names, row, strict=True)]
        slots = ", ".join("?" for _ in copy)
        connection.execute(f'INSERT INTO "{table}" VALUES ({slots})', copy)
    finally:
        connection.close()
    values = _values(key) | {new}
    return Damage(f"doubled in {table}: {key}, {name} now {new!r}", frozenset([table]), values)


def _changed(path, draw):
    connection = _opened(path)
    try:
        table, names, row, key, where = _row(connection, draw)
        at = draw.randrange(len(names))
        if (table, names[at]) in REMARKS:
            return None
        new = _other(row[at], draw)
        connection.execute(
            f'UPDATE "{table}" SET "{names[at]}" = ? WHERE {where}',
            [new, *(value for _, value in key)],
        )
    finally:
        connection.close()
    what = f"changed in {table}: {key}, {names[at]} {row[at]!r:.60} became {new!r:.60}"
    return Damage(what, frozenset([table]), _values(key) | {new})


def _other(value, draw):
    if value is None:
        return draw.choice([1, "x", b"x"])
    if isinstance(value, int):
        return draw.choice([value + 1, -value - 1, str(value) + "x"])
    if isinstance(value, bytes):
        return value[:-1] + bytes([(value[-1] if value else 0) ^ 1])
    middle = draw.randrange(len(value)) if value else 0
    return value[:middle] + chr(ord(value[middle]) ^ 1 if value else 120) + value[middle + 1 :]


def _values(key):
    return frozenset(value for _, value in key)
