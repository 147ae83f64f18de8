"""Claims about a damaged log of facts, which is found and named, and about its backups."""

from __future__ import annotations

import apsw
import pytest
from lived_in_space import lived_in

import fourfold
from fourfold.content import refer
from fourfold.kernel.transaction import ReadTransaction
from fourfold.models.documents import HISTORIES
from fourfold.store.backup import restore
from support.properties import THOROUGH

DID = "did:key:z6MkTests"
FACTS = HISTORIES["facts"]


@pytest.fixture
def damageable(root, space_file):
    """A copy in memory of a space that was lived in, without the locks that guard it on disk."""
    with fourfold.open(root) as store:
        space = store.space(DID, history="facts")
        lived_in(space)
        assert space.verify() == []
    connection = apsw.Connection(":memory:")
    source = apsw.Connection(str(space_file()))
    with connection.backup("main", source, "main") as copying:
        copying.step()
    source.close()
    connection.execute("PRAGMA foreign_keys = OFF")
    yield connection
    connection.close()


def found(connection):
    return [*map(str, FACTS.problems(FACTS.view(ReadTransaction(connection, "a copy"))))]


def damaged(value):
    """What one wrong byte can make of a value."""
    if isinstance(value, int):
        return [value + 1]
    middle = len(value) // 2
    # One bit, somewhere; and a byte that is no text at all.
    flipped = value[:middle] + chr(ord(value[middle]) ^ 1) + value[middle + 1 :] if value else "x"
    return [flipped, value.encode()[:middle] + b"\xff" + value.encode()[middle + 1 :]]


def slot(value):
    return "CAST(? AS TEXT)" if isinstance(value, bytes) else "?"


@pytest.mark.parametrize("table", ["value", "fact", "occurrence", "commit", "head"])
def test_one_wrong_byte_is_found_and_named(damageable, table):
    columns = [row[1] for row in damageable.execute(f'PRAGMA table_info("{table}")')]
    keys = [row[1] for row in damageable.execute(f'PRAGMA table_info("{table}")') if row[5]]
    where = " AND ".join(f'"{key}" = ?' for key in keys)
    tried = 0
    rows = damageable.execute(f'SELECT * FROM "{table}"').fetchall()
    for row in rows[:: 1 if THOROUGH else 3]:
        named = dict(zip(columns, row, strict=True))
        for column in columns:
            if named[column] is None:
                continue
            for wrong in damaged(named[column]):
                damageable.execute("SAVEPOINT damage")
                try:
                    damageable.execute(
                        f'UPDATE "{table}" SET "{column}" = {slot(wrong)} WHERE {where}',
                        (wrong, *(named[key] for key in keys)),
                    )
                    names = [problem.split()[0] for problem in found(damageable)]
                    # An operation in the wrong place is missed by the commit that it belongs to.
                    moved = column in {"seq", "op_index"} and "commit" in names
                    assert table in names or moved, (column, named[column], wrong, names)
                    tried += 1
                except apsw.ConstraintError:
                    pass
                finally:
                    damageable.execute("ROLLBACK TO damage")
                    damageable.execute("RELEASE damage")
    assert tried > 20
    assert found(damageable) == []


@pytest.mark.parametrize(
    ("damage", "finding"),
    [
        ("UPDATE value SET data = replace(data, 'hello', 'hallo')", "value ba4jc"),
        ("UPDATE value SET data = replace(data, ':', ': ')", "does not match its hash"),
        ("UPDATE value SET data = 'x' WHERE hash = '__empty__'", "value __empty__"),
        ("DELETE FROM value WHERE data LIKE '%hello%'", "is missing"),
        ("UPDATE fact SET parent = NULL WHERE id = 'long'", "fact ba4jc"),
        ("UPDATE fact SET seq = 2 WHERE seq = 1", "its first occurrence is not"),
        ("DELETE FROM fact WHERE seq = 1", "is missing"),
        ("DELETE FROM occurrence WHERE id = 'a' AND seq = 1", "does not follow the one before"),
        ("UPDATE occurrence SET text = '{\"n\":2}' WHERE text IS NOT NULL", "its text is not"),
        ("DELETE FROM head WHERE id = 'a' AND branch = ''", "head of 'a' on ''"),
        ('DELETE FROM "commit" WHERE seq = 2', "commit 3: does not follow"),
        ("UPDATE \"commit\" SET created_at = 'noon' WHERE seq = 2", "commit 2: its hash"),
        ('UPDATE "commit" SET reads = NULL WHERE seq = 2', "commit 2: its hash"),
        ("UPDATE snapshot SET text = '{}'", "snapshot of 'long' on ''"),
        ("DROP TRIGGER value_empty_stays; DELETE FROM value WHERE data IS NULL", "__empty__"),
    ],
)
def test_damage_is_named(damageable, damage, finding):
    damageable.execute(damage)
    assert finding in "\n".join(found(damageable))


def test_fact_that_was_replaced_with_all_its_hashes_breaks_commits(damageable):
    """A value and its fact are rewritten in the right format; the commit differs."""
    connection = damageable
    [(old, parent)] = connection.execute("SELECT hash, parent FROM fact WHERE id = 'b' AND seq = 2")
    forged = {"n": 666}
    new_value = str(refer(forged))
    content = {"type": "set", "id": "b", "value": forged, "parent": refer({"id": "b"})}
    new = str(refer(content))
    assert parent is None
    connection.execute("INSERT INTO value VALUES (?, ?)", (new_value, '{"n":666}'))
    connection.execute(
        "UPDATE fact SET hash = ?, value_ref = ? WHERE hash = ?", (new, new_value, old)
    )
    connection.execute("UPDATE occurrence SET fact_hash = ? WHERE fact_hash = ?", (new, old))
    connection.execute("UPDATE fact SET parent = ? WHERE parent = ?", (new, old))
    assert any("commit 2: its hash" in problem for problem in found(connection))


# Backups


def test_backup_of_facts_restores_all_hashes(root, tmp_path):
    with fourfold.open(root) as store:
        space = store.space(DID, history="facts")
        lived_in(space)
        log = space.log()
        store.backup(tmp_path / "copy")
        newest = space.set("later", {"n": 1}).seq
    restore(tmp_path / "copy", tmp_path / "fresh")
    with fourfold.open(tmp_path / "fresh") as store:
        restored = store.space(DID)
        assert restored.history_kind.name == "facts"
        assert restored.log() == log
        assert restored.verify() == []
        assert store.verify().ok
    # Over the newer space: its seqs are never handed out again, and the chain of commits goes on.
    restore(tmp_path / "copy", root, advance=True)
    with fourfold.open(root) as store:
        space = store.space(DID)
        assert space.set("later", {"n": 2}).seq > newest
        assert space.verify() == []
