"""The tables, columns and views that the specification of revisions names are there, under those
names.
"""

from __future__ import annotations

import pytest

from fourfold.settings import DOCUMENTS_PAGE_SIZE

TABLES = {
    "revision": ["branch", "id", "seq", "op_index", "op", "data", "commit_seq"],
    "head": ["branch", "id", "seq", "op_index"],
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
    "snapshot": ["branch", "id", "seq", "value"],
    "branch": [
        "name",
        "parent_branch",
        "fork_seq",
        "created_seq",
        "head_seq",
        "created_at",
        "status",
    ],
    "invocation": ["ref", "iss", "aud", "cmd", "sub", "invocation", "created_at"],
    "authorization": ["ref", "authorization", "created_at"],
    "blob_store": ["hash", "data", "content_type", "size", "created_at"],
}
KEYS = {
    "revision": ["branch", "id", "seq", "op_index"],
    "head": ["branch", "id"],
    "commit": ["seq"],
    "snapshot": ["branch", "id", "seq"],
    "branch": ["name"],
    "invocation": ["ref"],
    "authorization": ["ref"],
    "blob_store": ["hash"],
}
NULLABLE = {
    "revision": {"data"},
    "commit": {"invocation_ref", "authorization_ref"},
    "branch": {"parent_branch", "fork_seq"},
    "invocation": {"aud"},
    "blob_store": {"content_type"},
}
INDEXES = {
    "idx_revision_branch_seq",
    "idx_revision_commit",
    "idx_commit_branch",
    "idx_commit_session_local_seq",
    "idx_commit_invocation_ref",
    "idx_branch_status",
    "idx_branch_parent",
    "idx_invocation_sub",
    "idx_invocation_cmd",
    "idx_invocation_iss",
}


def rows(space, sql, params=()):
    with space.view() as view:
        return view.all(sql, params)


@pytest.mark.parametrize("table", TABLES)
def test_a_table_has_the_columns_that_the_specification_names(revisions, table):
    info = rows(revisions, 'SELECT name, pk, "notnull" FROM pragma_table_info(?)', (table,))
    assert {name for name, _, _ in info} == set(TABLES[table])
    keys = sorted((pk, name) for name, pk, _ in info if pk)
    assert [name for _, name in keys] == KEYS[table]
    assert {name for name, _, notnull in info if not notnull} == NULLABLE.get(table, set())


def test_the_view_state_has_the_columns_of_the_heads(revisions):
    found = rows(revisions, "SELECT name FROM pragma_table_info('state')")
    assert [name for (name,) in found] == ["branch", "id", "seq", "op_index"]
    assert rows(revisions, "SELECT type FROM sqlite_schema WHERE name = 'state'") == [("view",)]


def test_indexes_that_specification_names_are_there_or_repeat_key(revisions):
    found = {name for (name,) in rows(revisions, "SELECT name FROM pragma_index_list('branch')")}
    for table in TABLES:
        found |= {
            name for (name,) in rows(revisions, "SELECT name FROM pragma_index_list(?)", (table,))
        }
    assert found >= INDEXES


def test_a_session_uses_each_local_seq_once(revisions):
    [unique] = rows(
        revisions,
        "SELECT \"unique\" FROM pragma_index_list('commit') WHERE name = ?",
        ("idx_commit_session_local_seq",),
    )
    assert unique == (1,)


def test_the_references_between_the_tables_are_those_of_the_specification(revisions):
    found = {
        (table, *row)
        for table in TABLES
        for row in rows(
            revisions, 'SELECT "from", "table", "to" FROM pragma_foreign_key_list(?)', (table,)
        )
    }
    assert found == {
        ("revision", "commit_seq", "commit", "seq"),
        ("commit", "invocation_ref", "invocation", "ref"),
        ("commit", "authorization_ref", "authorization", "ref"),
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("journal_mode", "wal"),
        ("synchronous", 1),
        ("busy_timeout", 5000),
        ("cache_size", -64000),
        ("temp_store", 2),
        ("mmap_size", 268435456),
        ("foreign_keys", 1),
        ("page_size", DOCUMENTS_PAGE_SIZE),
    ],
)
def test_every_pragma_of_the_specification_is_in_force(space, name, value):
    if name != "synchronous":
        # It says when a writer waits for the disk, and a reader never writes.
        with space.view() as view:
            assert view.value(f"PRAGMA {name}") == value
    with space.database.write() as txn:
        assert txn.value(f"PRAGMA {name}") == value


def test_nothing_happens_by_triggers(revisions):
    assert rows(revisions, "SELECT name FROM sqlite_schema WHERE type = 'trigger'") == []


def test_a_commit_writes_the_rows_that_the_specification_lists(revisions):
    revisions.set("b", {"value": {"name": "y"}})
    seq = revisions.transact(
        [
            {"op": "set", "id": "a", "value": {"value": {"count": 1}}},
            {
                "op": "patch",
                "id": "b",
                "patches": [{"op": "replace", "path": "/value/name", "value": "x"}],
            },
            {"op": "delete", "id": "c"},
        ],
        session="s",
        local_seq=4,
    ).seq
    assert rows(revisions, "SELECT * FROM revision WHERE seq = ? ORDER BY op_index", (seq,)) == [
        ("", "a", seq, 0, "set", '{"value":{"count":1}}', seq),
        (
            "",
            "b",
            seq,
            1,
            "patch",
            '[{"op":"replace","path":"/value/name","value":"x"}]',
            seq,
        ),
        ("", "c", seq, 2, "delete", None, seq),
    ]
    assert rows(revisions, "SELECT * FROM head ORDER BY id") == [
        ("", "a", seq, 0),
        ("", "b", seq, 1),
        ("", "c", seq, 2),
    ]
    [commit] = rows(
        revisions,
        'SELECT branch, session_id, local_seq, invocation_ref FROM "commit" WHERE seq = ?',
        (seq,),
    )
    assert commit == ("", "s", 4, None)
    assert rows(revisions, "SELECT head_seq, status FROM branch") == [(seq, "active")]
