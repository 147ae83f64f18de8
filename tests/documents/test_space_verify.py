"""Verification: one changed byte anywhere in the log, or in what is derived from it, is found and
named.
"""

from __future__ import annotations

import shutil

import apsw
import pytest
from space_machine import DID

import fourfold
from fourfold.errors import CorruptData, FourfoldError

COLUMNS = {
    "revision": ["branch", "id", "seq", "op_index", "op", "data", "commit_seq"],
    "commit": [
        "seq",
        "branch",
        "session_id",
        "local_seq",
        "invocation_ref",
        "authorization_ref",
        "original",
        "resolution",
        "created_at",
    ],
    "head": ["branch", "id", "seq", "op_index"],
    "snapshot": ["branch", "id", "seq", "value"],
    "branch": ["name", "parent_branch", "fork_seq", "created_seq", "head_seq", "status"],
}
CASES = [(table, column) for table, columns in COLUMNS.items() for column in columns]


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A space with something of everything, that verification finds nothing wrong with."""
    root = tmp_path_factory.mktemp("sound") / "store"
    with fourfold.open(root) as store:
        space = store.space(DID, history="revisions")
        space.transact([{"op": "set", "id": "a", "value": {"n": 1}}], session="s", local_seq=1)
        for number in range(12):
            space.patch("b", [{"op": "append", "path": "/list", "values": [number]}])
        space.branches.create("f")
        space.patch("b", [{"op": "add", "path": "/own", "value": "text"}], branch="f")
        space.branches.create("g", "f", at=15)
        space.delete("a", branch="g")
        space.transact(
            [{"op": "set", "id": "c", "value": {"k": "value"}}, {"op": "delete", "id": "b"}],
            session="s",
            local_seq=2,
            reads={"pending": [{"id": "a", "local_seqs": [1], "basis_seq": 0}]},
        )
        space.branches.delete("f")
        assert space.verify() == []
        with space.view() as view:
            assert view.value("SELECT count(*) FROM snapshot") >= 1
    return root


@pytest.fixture
def damaged(sound, root):
    """A copy of the sound space, and a way to change its file without its knowledge."""
    shutil.copytree(sound, root)
    [path] = (root / "spaces").glob("*.sqlite")

    def damage(sql, params=()):
        connection = apsw.Connection(str(path))
        connection.pragma("foreign_keys", "OFF")
        connection.execute(sql, params)
        changed = connection.changes()
        connection.close()
        return changed

    def rows(sql):
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        found = connection.execute(sql).fetchall()
        connection.close()
        return found

    return damage, rows


def verified(root):
    """What verification says; a space that does not open any more has been found out, too."""
    try:
        with fourfold.open(root) as store:
            return [*map(str, store.space(DID, history="revisions").verify())]
    except FourfoldError as error:
        return [error.message]


def flipped(value, bit):
    if value is None:
        return b"x"
    if isinstance(value, int):
        return value ^ bit
    raw = bytearray(value.encode() or b"x")
    raw[len(raw) // 2] ^= bit
    return bytes(raw)


@pytest.mark.parametrize(("table", "column"), CASES, ids=lambda name: name)
@pytest.mark.parametrize("bit", [1, 128], ids=["other text", "no text any more"])
@pytest.mark.parametrize("which", ["first", "last"])
def test_one_flipped_bit_in_any_column_is_found(damaged, root, table, column, bit, which):
    damage, rows = damaged
    order = "ASC" if which == "first" else "DESC"
    key = {"commit": "seq", "branch": "created_seq"}.get(table, "branch, id, seq")
    keys = ", ".join(f"{part.strip()} {order}" for part in key.split(","))
    names = COLUMNS[table]
    found = rows(f'SELECT {", ".join(names)} FROM "{table}" ORDER BY {keys} LIMIT 1')[0]
    where = " AND ".join(f'"{name}" IS ?' for name in names)
    # A bit that makes a row the double of another cannot flip: the key forbids it.
    for each in (bit, 4, 64):
        new = flipped(found[names.index(column)], each)
        written = "CAST(? AS TEXT)" if isinstance(new, bytes) else "?"
        sql = f'UPDATE OR IGNORE "{table}" SET "{column}" = {written} WHERE {where}'
        if damage(sql, (new, *found)):
            break
    else:
        pytest.fail("no bit could be flipped")
    assert verified(root)


@pytest.mark.parametrize("table", ["revision", "head", "branch"])
def test_a_missing_row_is_found(damaged, root, table):
    damage, rows = damaged
    column = "name" if table == "branch" else "id"
    for (value,) in rows(f"SELECT DISTINCT {column} FROM {table}")[-1:]:
        damage(f"DELETE FROM {table} WHERE {column} = ?", (value,))
    assert verified(root)


def test_a_row_too_many_is_found(damaged, root):
    damage, _ = damaged
    damage("INSERT INTO revision VALUES ('', 'c', 18, 7, 'delete', NULL, 18)")
    assert any("commit 18" in problem for problem in verified(root))


def test_what_is_damaged_is_named(damaged, root):
    damage, _ = damaged
    damage("UPDATE revision SET data = '{\"n\":2}' WHERE seq = 1")
    damage("UPDATE head SET seq = 1 WHERE id = 'c'")
    damage("UPDATE snapshot SET value = '{}'")
    problems = verified(root)
    assert any("commit 1:" in problem for problem in problems)
    assert any("head of 'c' on ''" in problem for problem in problems)
    assert any("snapshot of 'b' on ''" in problem for problem in problems)


@pytest.mark.parametrize(
    "text", ["{", "5", '[{"op":"remove","path":"/nothing"}]', '{"a":1'], ids=repr
)
def test_reading_damaged_state_is_error_and_never_another_state(damaged, root, text):
    damage, _ = damaged
    damage("DELETE FROM snapshot")
    damage("UPDATE revision SET data = ? WHERE id = 'b' AND op = 'patch' AND seq = 5", (text,))
    damage("UPDATE revision SET data = ? WHERE id = 'a' AND op = 'set'", (text,))
    with fourfold.open(root) as store:
        space = store.space(DID, history="revisions")
        for entity, at in (("a", 1), ("b", 5), ("b", 9)):
            with pytest.raises(CorruptData):
                space.read(entity, at=at)
            with pytest.raises(CorruptData):
                space.read_many([entity], at=at)
        assert space.read("b", at=4).document == {"list": [0, 1, 2]}
        assert space.read_many(["b"], at=4)["b"].document == {"list": [0, 1, 2]}
        with pytest.raises(CorruptData):
            space.patch("b", [{"op": "add", "path": "/x", "value": 1}], branch="g")
        assert space.verify()


def test_reading_text_that_is_no_text_any_more_is_error(damaged, root):
    damage, _ = damaged
    damage("UPDATE revision SET data = CAST(x'7b22ff227d' AS TEXT) WHERE id = 'a' AND seq = 1")
    with fourfold.open(root) as store:
        space = store.space(DID, history="revisions")
        for read in (
            lambda: space.read("a"),
            lambda: space.read("a", at=1),
            lambda: space.read_many(["a"]),
            lambda: space.history("a"),
        ):
            with pytest.raises(CorruptData):
                read()
        assert any("commit 1:" in problem.message for problem in space.verify())
