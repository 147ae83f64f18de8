"""Steps that change the tables of an app: what they may do; a refused one leaves nothing."""

from __future__ import annotations

import pytest
from graph_nodes import APP, open_graphs, with_notes
from test_inserts import attr, parent

from fourfold.errors import MigrationFailed
from fourfold.kernel import Migration
from fourfold.models.graphs.verify import problems

OTHER = 2


@pytest.fixture
def two_apps(graphs):
    """The types of the app that is upgraded; another one has rows as well."""
    types = with_notes(graphs)
    assert graphs.register_app("other", "Other").app_id == OTHER
    kind = graphs.register_type(OTHER, "parent", "thing")
    graphs.insert_parent(OTHER, {"type_id": kind, "owner_identity": 1})
    note = graphs.insert_parent(APP, parent(types))
    graphs.insert_attr(APP, attr(types, note))
    return types


def test_a_dry_run_leaves_nothing(graphs, two_apps):
    steps = [Migration(2, "index", ALLOWED["index"])]
    rules = [("attr", "note attr", {"most": 1})]
    before = schema(graphs), content(graphs)
    app = graphs.upgrade_app(APP, steps, rules=rules, dry_run=True)
    assert app.version == 2
    assert (schema(graphs), content(graphs)) == before
    assert graphs.app(APP).version == 1
    with pytest.raises(MigrationFailed):
        graphs.upgrade_app(APP, [Migration(2, "bad", "DROP TABLE {app}_attr")], dry_run=True)
    assert graphs.upgrade_app(APP, steps, rules=rules).version == 2


def schema(graphs):
    with graphs.database.read() as snapshot:
        return snapshot.all("SELECT type, name, sql FROM sqlite_schema ORDER BY type, name")


def content(graphs):
    with graphs.database.read() as snapshot:
        names = [name for kind, name, _ in schema(graphs) if kind == "table"]
        return {name: snapshot.all(f'SELECT * FROM "{name}"') for name in names}


ALLOWED = {
    "index": "CREATE INDEX {app}_attr_text ON {app}_attr (value_text)",
    "own table": "CREATE TABLE {app}_own (a INTEGER PRIMARY KEY AUTOINCREMENT, b TEXT UNIQUE)",
    "rows of an own table": """
        CREATE TABLE {app}_own (a, b);
        INSERT INTO {app}_own SELECT id, value_text FROM {app}_attr;
        UPDATE {app}_own SET b = json_array(a) WHERE a IN (SELECT value FROM json_each('[1]'));
        DELETE FROM {app}_own WHERE a > 1;
    """,
    "own column": """
        CREATE TABLE {app}_own (a, b);
        ALTER TABLE {app}_own ADD COLUMN c TEXT DEFAULT 'c';
        ALTER TABLE {app}_own DROP COLUMN b;
        ALTER TABLE {app}_own RENAME COLUMN a TO d;
        ALTER TABLE {app}_own RENAME TO {app}_owned;
    """,
    "own things dropped": """
        CREATE TABLE {app}_own (a INTEGER PRIMARY KEY AUTOINCREMENT, b);
        INSERT INTO {app}_own (b) VALUES (1);
        CREATE INDEX {app}_own_b ON {app}_own (b);
        DROP INDEX {app}_own_b;
        DROP TABLE {app}_own;
    """,
    "comment": "-- nothing",
}


@pytest.mark.parametrize("sql", ALLOWED.values(), ids=ALLOWED)
def test_step_may_add_indexes_and_tables_of_its_own(path, graphs, two_apps, sql):
    steps = [Migration(2, "two", sql)]
    assert graphs.upgrade_app(APP, steps).version == 2
    assert graphs.upgrade_app(APP, steps).version == 2
    graphs.insert_parent(APP, parent(two_apps))
    graphs.database.close()
    again = open_graphs(path)
    assert again.app(APP).version == 2
    again.database.close()


REFUSED = {
    "drop of a table of the model": ("DROP TABLE {app}_log", "app_1_log"),
    "drop of another app's table": ("DROP TABLE app_2_log", "app_2_log"),
    "drop of a global table": ("DROP TABLE identities", "identities"),
    "drop of an index of the model": ("DROP INDEX {app}_attr_seq", "app_1_attr_seq"),
    "commit": ("CREATE TABLE {app}_x (a); COMMIT; CREATE TABLE {app}_y (a)", "COMMIT"),
    "commit alone": ("COMMIT", "COMMIT"),
    "end": ("END", "COMMIT"),
    "rollback": ("ROLLBACK", "ROLLBACK"),
    "begin": ("COMMIT; BEGIN", "COMMIT"),
    "savepoint": ("SAVEPOINT x", "SAVEPOINT"),
    "release": ("RELEASE fourfold", "SAVEPOINT"),
    "attach": ("ATTACH ':memory:' AS other", "ATTACH"),
    "detach": ("DETACH main", "DETACH"),
    "pragma": ("PRAGMA user_version = 7", "PRAGMA"),
    "pragma as a table": ("CREATE TABLE {app}_x AS SELECT * FROM pragma_table_info('apps')", ""),
    "vacuum": ("VACUUM", ""),
    "analyze": ("ANALYZE", "ANALYZE"),
    "trigger": (
        "CREATE TRIGGER {app}_t AFTER INSERT ON {app}_attr BEGIN DELETE FROM apps; END",
        "TRIGGER",
    ),
    "view": ("CREATE VIEW {app}_v AS SELECT * FROM app_2_parent", "VIEW"),
    "temporary table": ("CREATE TEMP TABLE {app}_t (a)", "TEMP"),
    "virtual table": ("CREATE VIRTUAL TABLE {app}_t USING fts5(a)", "VTABLE"),
    "table of another app": ("CREATE TABLE app_2_x (a)", "app_2_x"),
    "table renamed to another app": (
        "CREATE TABLE {app}_x (a); ALTER TABLE {app}_x RENAME TO app_2_x",
        "app_2_x",
    ),
    "index named like another app's": ("CREATE INDEX app_2_i ON {app}_attr (id)", "app_2_i"),
    "index on another app's table": ("CREATE INDEX {app}_i ON app_2_attr (id)", "app_2_attr"),
    "rows of another app": ("DELETE FROM app_2_parent", "app_2_parent"),
    "read of another app": ("CREATE TABLE {app}_x AS SELECT * FROM app_2_parent", "app_2_parent"),
    "global counter": ("UPDATE global_seq SET seq = seq + 100", "global_seq"),
    "global table": ("DELETE FROM identities", "identities"),
    "counter of ids": ("UPDATE sqlite_sequence SET seq = 0", "sqlite_sequence"),
    "rows of the log": ("UPDATE {app}_attr SET value_text = 'x'", "app_1_attr"),
    "rows of the log, added": ("INSERT INTO {app}_type (kind, type_key) VALUES ('a', 'b')", "type"),
    "added column": ("ALTER TABLE {app}_parent ADD COLUMN z TEXT", "column"),
    "renamed column": ("ALTER TABLE {app}_parent RENAME COLUMN type_id TO t", "app_1_parent"),
    "renamed table": ("ALTER TABLE {app}_parent RENAME TO {app}_folk", "app_1_parent"),
    "text that is no SQL": ("nonsense", "nonsense"),
    "table that is not there": ("SELECT * FROM nowhere", "nowhere"),
}


@pytest.mark.parametrize(("sql", "names"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("place", ["text", "function", "transaction"])
def test_refused_step_leaves_everything_as_it_was(path, graphs, two_apps, sql, names, place):
    before = schema(graphs), content(graphs)
    good = Migration(2, "good", "CREATE TABLE {app}_good (a); INSERT INTO {app}_good VALUES (1)")
    bad = Migration(3, "bad", sql)
    if place == "function":
        filled = sql.replace("{app}", f"app_{APP}")
        bad = Migration(3, "bad", "", lambda txn: txn.execute(filled))

    def upgrade():
        with pytest.raises(MigrationFailed, match="app 1") as caught:
            graphs.upgrade_app(APP, [good, bad])
        assert names in f"{caught.value.message} {caught.value.hint}"

    if place == "transaction":
        with graphs.transaction():
            upgrade()
    else:
        upgrade()
    assert (schema(graphs), content(graphs)) == before
    graphs.insert_parent(APP, parent(two_apps))
    graphs.database.close()
    again = open_graphs(path)
    assert [app.version for app in again.list_apps()] == [1, 1, 1]
    # Other apps, and later steps of this one, work.
    kind = again.list_types(OTHER)[0].id
    assert again.insert_parent(OTHER, {"type_id": kind, "owner_identity": 1}) == 2
    assert again.upgrade_app(APP, [good]).version == 2
    with again.database.read() as snapshot:
        assert problems(snapshot, "graphs", again.node) == []
    again.database.close()


def test_statements_are_free_again_after_an_upgrade(graphs, two_apps):
    graphs.upgrade_app(APP, [Migration(2, "two", ALLOWED["index"])])
    with pytest.raises(MigrationFailed):
        graphs.upgrade_app(APP, [Migration(2, "two", ALLOWED["index"]), Migration(3, "x", "END")])
    with graphs.database.write() as txn:
        txn.execute("UPDATE settings SET value = value")
        with txn.savepoint():
            txn.execute("CREATE TABLE free (a)")


def test_column_that_earlier_version_added_does_not_stop_later_steps(graphs, two_apps):
    old = Migration(2, "colour", "ALTER TABLE {app}_parent ADD COLUMN colour TEXT")
    with graphs.database.write() as txn:
        txn.execute(old.sql.replace("{app}", f"app_{APP}"))
        row = (APP, 2, old.name, old.checksum, "2026-01-01T00:00:00+00:00")
        txn.execute("INSERT INTO app_migrations VALUES (?, ?, ?, ?, ?)", row)
        txn.execute("UPDATE apps SET version = 2 WHERE app_id = 1")
    more = Migration(3, "more", ALLOWED["index"])
    assert graphs.upgrade_app(APP, [old, more]).version == 3
    graphs.insert_parent(APP, parent(two_apps))
