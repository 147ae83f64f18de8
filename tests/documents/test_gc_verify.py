"""After a collection, verification still means something: one wrong byte in what is left is found,
and so is a gap that no collection made.
"""

from __future__ import annotations

import apsw
import pytest
from gc_life import NEWEST, lived

import fourfold
from fourfold.errors import CorruptData
from fourfold.kernel.transaction import ReadTransaction
from fourfold.models.documents import HISTORIES, verify
from fourfold.models.documents.gc.policy import GcPolicy

DID = "did:key:z6MkMachine"
LOGS = {
    "revisions": ["revision", "commit", "head", "snapshot", "branch"],
    "facts": ["occurrence", "fact", "value", "commit", "head", "snapshot", "branch"],
}
RECORDS = {"gc_seal": ["seq", "seal"], "gc_base": ["branch", "id", "seq", "digest"]}
CASES = [(history, table) for history, tables in LOGS.items() for table in (*tables, *RECORDS)]


@pytest.fixture(scope="module", params=sorted(HISTORIES))
def collected(request, tmp_path_factory):
    """A space that was lived in and collected, as bytes of its file."""
    root = tmp_path_factory.mktemp("collected") / "store"
    with fourfold.open(root) as store:
        space = store.space(DID, history=request.param)
        lived(space)
        space.gc(GcPolicy(keep_seqs=7))
        assert space.verify() == []
    [path] = (root / "spaces").glob("*.sqlite")
    return request.param, path


@pytest.fixture
def copy(collected):
    """The same in memory, without anything that guards it."""
    history, path = collected
    connection = apsw.Connection(":memory:")
    source = apsw.Connection(str(path))
    with connection.backup("main", source, "main") as copying:
        copying.step()
    source.close()
    connection.execute("PRAGMA foreign_keys = OFF")
    assert found(history, connection) == []
    yield history, connection
    connection.close()


def found(history, connection):
    kind = HISTORIES[history]
    return [*map(str, verify.iter_problems(kind.view(ReadTransaction(connection, "a copy")), kind))]


def wrong(value):
    if isinstance(value, int):
        return value + 1
    middle = len(value) // 2
    return value[:middle] + chr(ord(value[middle]) ^ 1) + value[middle + 1 :] if value else "x"


@pytest.mark.parametrize("table", sorted({table for _, table in CASES}))
def test_one_wrong_byte_in_what_is_left_is_found(copy, table):
    history, connection = copy
    if table not in (*LOGS[history], *RECORDS):
        return
    info = connection.execute(f'PRAGMA table_info("{table}")').fetchall()
    columns = RECORDS.get(table) or [row[1] for row in info if row[1] != "created_at"]
    if table == "commit":
        columns.append("created_at")
    keys = [row[1] for row in info if row[5]]
    where = " AND ".join(f'"{key}" = ?' for key in keys)
    names = [row[1] for row in info]
    rows = connection.execute(f'SELECT * FROM "{table}"').fetchall()
    assert rows
    # A few rows of each are enough: those below the horizon come first, the others last.
    for row in rows[:3] + rows[-3:]:
        named = dict(zip(names, row, strict=True))
        for column in columns:
            if named[column] is None or named[column] == "__empty__":
                continue
            connection.execute("SAVEPOINT damage")
            try:
                connection.execute(
                    f'UPDATE "{table}" SET "{column}" = ? WHERE {where}',
                    (wrong(named[column]), *(named[key] for key in keys)),
                )
            except apsw.ConstraintError:
                pass
            else:
                assert found(history, connection), (table, column, named)
            finally:
                connection.execute("ROLLBACK TO damage")


def test_a_row_that_no_collection_took_is_missed(copy):
    history, connection = copy
    log = LOGS[history][0]
    key = "branch, id, seq, op_index"
    rows = connection.execute(f"SELECT {key} FROM {log}").fetchall()
    for row in rows:
        connection.execute("SAVEPOINT damage")
        connection.execute(f"DELETE FROM {log} WHERE ({key}) = (?, ?, ?, ?)", row)
        assert any("commit" in each for each in found(history, connection)), row
        connection.execute("ROLLBACK TO damage")


def test_a_gap_that_is_not_on_record_is_missed(copy):
    """The chain of facts breaks where no collection says that it broke it."""
    history, connection = copy
    gaps = connection.execute("SELECT branch, id, seq, op_index FROM gc_gap").fetchall()
    assert gaps
    if history == "facts":
        connection.execute("DELETE FROM gc_gap")
        follow = [each for each in found(history, connection) if "does not follow" in each]
        assert len(follow) == len(gaps)


def test_what_a_surviving_patch_builds_on_is_missed(copy):
    history, connection = copy
    bases = connection.execute("SELECT branch, id, seq FROM gc_base").fetchall()
    assert bases
    for base in bases:
        connection.execute("SAVEPOINT damage")
        connection.execute("DELETE FROM snapshot WHERE (branch, id, seq) = (?, ?, ?)", base)
        assert any("missing" in each for each in found(history, connection))
        connection.execute("DELETE FROM gc_base WHERE (branch, id, seq) = (?, ?, ?)", base)
        assert any("lost what it builds on" in each for each in found(history, connection))
        connection.execute("ROLLBACK TO damage")


def test_a_seal_above_the_horizon_is_no_excuse(copy):
    history, connection = copy
    newest = connection.execute('SELECT max(seq) FROM "commit"').fetchone()
    connection.execute("INSERT INTO gc_seal SELECT ?, seal FROM gc_seal LIMIT 1", newest)
    assert any("sealed" in each for each in found(history, connection))


def test_gc_does_not_sign_rows_damaged_before(root, history, space_file):
    with fourfold.open(root) as store:
        space = store.space(DID, history=history)
        for number in range(6):
            space.set("a", {"n": number, "text": "x" * 400})
    connection = apsw.Connection(str(space_file()))
    connection.execute("UPDATE \"commit\" SET session_id = session_id || 'x' WHERE seq = 3")
    connection.close()
    with fourfold.open(root) as store:
        space = store.space(DID)
        for _ in range(2):
            with pytest.raises(CorruptData, match="commit 3"):
                space.gc(NEWEST)
            # Nothing of it was taken, so that the damage can still be seen.
            assert any("commit 3" in each.message for each in space.verify())
        assert space.read("a").document["n"] == 5


def test_value_that_snapshot_shares_with_collected_fact_stays(store):
    """The document that takes the place of the patches may be one that was set before."""
    space = store.space(DID, history="facts")
    document = {"n": 0, "text": "x" * 50}
    space.set("a", document)
    for number in (1, 2, 3, 0):
        space.patch("a", [{"op": "replace", "path": "/n", "value": number}])
    done = space.gc(NEWEST)
    assert (done.revisions.count, done.values.count) == (4, 3)
    assert space.read("a").document == document
    assert space.verify() == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("INSERT INTO gc_point VALUES ('', 1000)", "is a kept point"),
        ("INSERT INTO gc_point VALUES ('nowhere', 3)", "is a kept point"),
        ("DELETE FROM gc_point", "is a fork"),
        ("UPDATE gc_gap SET lost_seq = 0", "cannot have been there"),
    ],
)
def test_wrong_records_of_a_collection_are_found(copy, change, said):
    history, connection = copy
    connection.execute(change)
    assert any(said in problem for problem in found(history, connection))
