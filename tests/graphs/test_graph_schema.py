"""The tables, columns and indexes that the specification of the storage manager names are there,
under those names, in that order and of those types; what is added comes after them.
"""

from __future__ import annotations

import pytest
from graph_nodes import APP, with_notes

KEY = "INTEGER PRIMARY KEY"
ROW = ["type_id INTEGER!", "owner_identity INTEGER!", "global_seq INTEGER!", "sync_flags INTEGER!"]
GLOBAL = {
    "identities": ["id INTEGER*", "pubkey TEXT!", "label TEXT", "created_at TEXT!"],
    "apps": [
        "app_id INTEGER*",
        "slug TEXT!",
        "title TEXT!",
        "version INTEGER!",
        "created_at TEXT!",
    ],
    "sync_state": ["peer_id INTEGER*", "domain TEXT*", "last_seq INTEGER!"],
    "domain_seq": ["domain TEXT*", "last_seq INTEGER!"],
    "settings": ["key TEXT*", "value TEXT!"],
    "peers": [
        "id INTEGER*",
        "identity_id INTEGER!",
        "endpoint TEXT!",
        "meta_json TEXT!",
        "created_at TEXT!",
    ],
    "global_seq": ["id INTEGER*", "seq INTEGER!"],
    "schema_migrations": ["version INTEGER*"],
}
OF_APP = {
    "type": ["id INTEGER*", "kind TEXT!", "type_key TEXT!"],
    "parent": ["id INTEGER*", *ROW, "created_at TEXT!", "updated_at TEXT!"],
    "attr": [
        "id INTEGER*",
        "parent_id INTEGER!",
        *ROW,
        "value_text TEXT",
        "value_number REAL",
        "value_blob BLOB",
        "value_json TEXT",
    ],
    "edge": [
        "id INTEGER*",
        "src_parent_id INTEGER!",
        "dst_parent_id INTEGER",
        "dst_attr_id INTEGER",
        *ROW,
    ],
    "rating": [
        "id INTEGER*",
        "target_parent_id INTEGER",
        "target_attr_id INTEGER",
        *ROW,
        "value_text TEXT",
        "value_number REAL",
        "value_json TEXT",
    ],
    "log": [
        "id INTEGER*",
        "level TEXT!",
        "event_type TEXT!",
        "context_json TEXT!",
        "created_at TEXT!",
    ],
}
INDEXES = {
    "parent_type_owner": ("parent", ["type_id", "owner_identity"]),
    "parent_sync": ("parent", ["sync_flags", "global_seq"]),
    "attr_parent_type": ("attr", ["parent_id", "type_id"]),
}
AUTOINCREMENT = {"identities", "peers"}


@pytest.fixture
def schema(graphs):
    with_notes(graphs)
    with graphs.database.read() as snapshot:
        yield snapshot


def columns(snapshot, table):
    """Name and type; `!` where it may not be NULL, `*` where it is of the primary key."""
    rows = snapshot.all("SELECT name, type, [notnull], pk FROM pragma_table_info(?1)", (table,))
    return [f"{name} {kind}{'*' if key else '!' * full}" for name, kind, full, key in rows]


@pytest.mark.parametrize("table", GLOBAL)
def test_a_global_table_has_the_columns_of_the_specification(schema, table):
    named = GLOBAL[table]
    assert columns(schema, table)[: len(named)] == named


@pytest.mark.parametrize("app", [0, APP])
@pytest.mark.parametrize("noun", OF_APP)
def test_table_of_app_has_columns_of_specification_first(schema, app, noun):
    named = OF_APP[noun]
    assert columns(schema, f"app_{app}_{noun}")[: len(named)] == named


@pytest.mark.parametrize("app", [0, APP])
@pytest.mark.parametrize("name", INDEXES)
def test_an_index_of_the_specification_is_on_its_columns(schema, app, name):
    noun, named = INDEXES[name]
    found = schema.one(
        "SELECT tbl_name FROM sqlite_schema WHERE type = 'index' AND name = ?1",
        (f"app_{app}_{name}",),
    )
    assert found == (f"app_{app}_{noun}",)
    rows = schema.all(
        "SELECT name FROM pragma_index_info(?1) ORDER BY seqno", (f"app_{app}_{name}",)
    )
    assert [row[0] for row in rows] == named


@pytest.mark.parametrize("app", [0, APP])
def test_app_has_thirteen_schema_objects(schema, app):
    """Every connection parses all of them. The specification's indexes of edges are `edge_now`."""
    made = "SELECT count(*) FROM sqlite_schema WHERE tbl_name GLOB ?1 AND sql IS NOT NULL"
    assert schema.value(made, (f"app_{app}_*",)) == 13


def test_ids_are_never_given_twice(schema):
    """AUTOINCREMENT, wherever the specification says it."""
    tables = AUTOINCREMENT | {f"app_{APP}_{noun}" for noun in OF_APP}
    for table in tables:
        sql = schema.value("SELECT sql FROM sqlite_schema WHERE name = ?1", (table,))
        assert "PRIMARY KEY AUTOINCREMENT" in sql, table


def test_counter_has_one_row_and_no_second_can_be_made(schema):
    assert schema.all("SELECT id, seq FROM global_seq") == [(1, 0)]
    sql = schema.value("SELECT sql FROM sqlite_schema WHERE name = 'global_seq'")
    assert "CHECK (id = 1)" in sql


def test_a_slug_a_key_and_a_type_are_unique(schema):
    unique = {
        "apps": ["slug"],
        "identities": ["pubkey"],
        f"app_{APP}_type": ["kind", "type_key"],
    }
    for table, wanted in unique.items():
        indexes = schema.all("SELECT name FROM pragma_index_list(?1) WHERE [unique] = 1", (table,))
        found = [
            [row[0] for row in schema.all("SELECT name FROM pragma_index_info(?1)", index)]
            for index in indexes
        ]
        assert wanted in found, table
