"""Apps, types, registers, and what a file must be like to be opened."""

from __future__ import annotations

import threading

import pytest
from graph_nodes import APP, open_graphs, with_notes
from test_inserts import dump

from fourfold.errors import (
    AlreadyExists,
    CorruptData,
    FormatError,
    FourfoldError,
    FutureFormat,
    InvalidInput,
    MigrationFailed,
    NotFound,
    SequenceCorrupt,
    SequenceRegression,
)
from fourfold.kernel import Database, Migration
from fourfold.models.graphs import MIGRATIONS, PROFILE

FAMILY = {"type", "parent", "attr", "edge", "rating", "log"}
GLOBALS = {
    "identities",
    "apps",
    "sync_state",
    "domain_seq",
    "settings",
    "peers",
    "global_seq",
    "schema_migrations",
}


def tables(graphs):
    with graphs.database.read() as snapshot:
        return {
            row[0] for row in snapshot.all("SELECT name FROM sqlite_schema WHERE type = 'table'")
        }


def edit(path, sql):
    """Change a closed file without its owner's knowledge."""
    with (
        Database.open(path, profile=PROFILE, migrations=MIGRATIONS) as database,
        database.write() as t,
    ):
        t.execute(sql)


def test_tables_of_specification_are_there_and_second_start_changes_nothing(path):
    graphs = open_graphs(path)
    with_notes(graphs)
    assert tables(graphs) >= GLOBALS
    assert {f"app_{APP}_{noun}" for noun in FAMILY} <= tables(graphs)
    assert graphs.get_global_seq() == 0
    graphs.database.close()
    before = path.read_bytes()
    again = open_graphs(path)
    assert again.list_apps()[1].slug == "notes"
    again.database.close()
    assert path.read_bytes() == before


def test_an_app_is_registered_once_and_keeps_its_number(graphs):
    one = graphs.register_app("notes", "Notes")
    assert graphs.register_app("notes", "Other title") == one
    assert graphs.register_app("market", "Market").app_id == 2
    assert graphs.register_app("far", "Far", app_id=9).app_id == 9
    assert graphs.register_app("next", "Next").app_id == 10
    with pytest.raises(AlreadyExists):
        graphs.register_app("other", "Other", app_id=9)
    with pytest.raises(AlreadyExists):
        graphs.register_app("far", "Far", app_id=3)
    assert graphs.app("notes") == graphs.app(1) == one
    for unknown in (77, "unknown"):
        with pytest.raises(NotFound):
            graphs.app(unknown)


@pytest.mark.parametrize(
    "slug", ["", "Notes", "a b", "x'; DROP TABLE apps; --", "é", "a" * 65, None, 1]
)
def test_what_is_no_slug_is_refused(graphs, slug):
    before = tables(graphs)
    with pytest.raises(InvalidInput, match="slug"):
        graphs.register_app(slug, "Title")
    assert tables(graphs) == before


def test_a_registration_that_fails_is_not_remembered(graphs):
    with pytest.raises(ZeroDivisionError), graphs.transaction() as txn:
        register_and_fail(graphs, txn)
    with pytest.raises(NotFound):
        graphs.insert_parent(APP, {"type_id": 1, "owner_identity": 1})
    types = with_notes(graphs)
    graphs.insert_parent(APP, {"type_id": types["parent"], "owner_identity": 1})


def register_and_fail(graphs, txn):
    graphs._apps.register(txn.txn, "notes", "Notes", txn.now)
    graphs.register_type(APP, "parent", "note", txn=txn)
    raise ZeroDivisionError


def test_a_type_has_one_id_for_ever(path):
    graphs = open_graphs(path)
    types = with_notes(graphs)
    assert graphs.register_type(APP, "parent", "note parent") == types["parent"]
    # The same key in another kind is another type.
    assert graphs.register_type(APP, "edge", "note parent") not in types.values()
    graphs.database.close()
    again = open_graphs(path)
    assert again.register_type(APP, "parent", "note parent") == types["parent"]
    strange = "'; DROP TABLE apps; --"
    number = again.register_type(APP, "attr", strange)
    assert (number, "attr", strange) in again.list_types(APP)
    again.database.close()


def test_failing_upgrade_step_of_an_app_changes_nothing(graphs):
    types = with_notes(graphs)
    graphs.insert_parent(APP, {"type_id": types["parent"], "owner_identity": 1})
    two = Migration(2, "colour", "CREATE TABLE {app}_colour (parent_id INTEGER, colour TEXT)")
    assert graphs.upgrade_app(APP, [two]).version == 2
    assert graphs.upgrade_app(APP, [two]).version == 2
    three = Migration(3, "broken", "CREATE TABLE {app}_extra (a); SELECT * FROM nowhere")
    with pytest.raises(MigrationFailed, match="step 3"):
        graphs.upgrade_app(APP, [two, three])
    assert graphs.app(APP).version == 2
    assert f"app_{APP}_extra" not in tables(graphs)
    with pytest.raises(FutureFormat):
        graphs.upgrade_app(APP, [])
    with pytest.raises(FormatError, match="not the one"):
        graphs.upgrade_app(APP, [Migration(2, "colour", "CREATE TABLE {app}_colour (x)")])
    # Rows go on as before.
    assert len(graphs.select_parents(APP)) == 1


DAMAGE = {
    "counter gone": "DELETE FROM global_seq",
    "counter is text": "UPDATE global_seq SET seq = 'seven'",
    "counter below its rows": "UPDATE global_seq SET seq = 0",
    "table gone": "DROP TABLE app_1_edge",
    "column gone": "ALTER TABLE app_1_rating DROP COLUMN value_json",
    "envelope from the future": "INSERT INTO envelopes VALUES (99, 1, 1, 0, 'x', NULL)",
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_is_refused_and_left_as_it_is(path, damage):
    graphs = open_graphs(path)
    types = with_notes(graphs)
    graphs.insert_parent(APP, {"type_id": types["parent"], "owner_identity": 1})
    graphs.database.close()
    edit(path, damage)
    before = path.read_bytes()
    for _ in range(2):
        with pytest.raises(CorruptData) as caught:
            open_graphs(path)
        assert isinstance(caught.value, SequenceCorrupt) or "table" in damage.lower()
    assert path.read_bytes() == before


def test_progress_never_goes_back(graphs):
    graphs.record_sync_progress(1, "notes", 5)
    graphs.record_sync_progress(1, "notes", 5)
    with pytest.raises(SequenceRegression, match="must be at least 5, got 4"):
        graphs.record_sync_progress(1, "notes", 4)
    graphs.record_sync_progress(2, "notes", 1)
    assert [tuple(each) for each in graphs.sync_progress()] == [(1, "notes", 5), (2, "notes", 1)]


def test_registers_keep_what_they_are_given(graphs):
    assert graphs.load_domain_seq("app") == 0
    assert [graphs.increment_domain_seq("app") for _ in range(3)] == [1, 2, 3]
    graphs.upsert_setting("a", "1")
    graphs.upsert_setting("a", "2")
    assert dict(graphs.list_settings()) == {"a": "2"}
    assert (graphs.get_setting("a"), graphs.get_setting("b")) == ("2", None)
    alice = graphs.add_identity("ed25519:alice", "Alice")
    assert graphs.add_identity("ed25519:alice") == alice
    peer = graphs.add_peer(alice.id, "https://alice.example")
    assert graphs.list_peers() == (peer,)
    with pytest.raises(AlreadyExists):
        graphs.add_peer(alice.id, "https://alice.example")
    with pytest.raises(NotFound):
        graphs.add_peer(99, "https://unknown.example")
    graphs.put_cached("search", "k", "[1]", 3)
    assert graphs.get_cached("search", "k") == ("[1]", 3)
    graphs.drop_cached("search")
    assert graphs.get_cached("search", "k") is None
    graphs.define_domain("notes", 1)
    graphs.define_domain("notes", 1)
    with pytest.raises(AlreadyExists):
        graphs.define_domain("notes", 2)
    entry = graphs.insert_log(0, "info", "started", '{"a":1}')
    assert [log.id for log in graphs.select_logs(0)] == [entry]


BAD_CALLS = {
    "setting that is no text": lambda g: g.upsert_setting("a", 1),
    "setting without a key": lambda g: g.upsert_setting("", "x"),
    "domain too long": lambda g: g.define_domain("d" * 65, 1),
    "mask of nothing": lambda g: g.define_domain("d", 0),
    "progress of a bool": lambda g: g.record_sync_progress(1, "d", True),
    "peer that is no number": lambda g: g.record_sync_progress("1", "d", 1),
    "log that is no JSON": lambda g: g.insert_log(0, "info", "x", "{"),
    "limit below nothing": lambda g: g.set_limits(0, rows_max=-1),
    "page of nothing": lambda g: g.select_pending_rows(0, "parent", 1, 0, 0),
    "ids that are text": lambda g: g.select_attrs(0, parent_ids="12"),
    "question by two targets": lambda g: g.select_ratings(
        0, target_parent_ids=[1], target_attr_ids=[1]
    ),
    "feed from the future": lambda g: g.feed(after=99),
    "setting that is half a surrogate": lambda g: g.upsert_setting("a", "\ud800"),
    "identity without a key": lambda g: g.add_identity(""),
    "label that is no text": lambda g: g.add_identity("ed25519:x", 5),
    "peer with a bad note": lambda g: g.add_peer(1, "file:", "{"),
    "cached value that is no JSON": lambda g: g.put_cached("o", "k", "nan", 0),
    "cached before the beginning": lambda g: g.put_cached("o", "k", "1", -1),
    "flags that are a float": lambda g: g.update_sync_flags(0, "parent", [1], 1.0),
    "row ids of one number": lambda g: g.update_sync_flags(0, "parent", 1, 1),
    "number of a past that is text": lambda g: g.select_parents(0, at="1"),
    "past from the future": lambda g: g.select_parents(0, at=99),
    "limit that is a bool": lambda g: g.select_parents(0, limit=True),
    "row that is a list": lambda g: g.insert_parent(0, []),
    "row with its own number": lambda g: g.insert_parent(
        0, {"type_id": 1, "owner_identity": 1, "global_seq": 5}
    ),
    "title that is empty": lambda g: g.register_app("x", ""),
    "domain seq without a name": lambda g: g.increment_domain_seq(""),
    "trace that is empty": lambda g: g.transaction(trace_id="").__enter__(),
}


@pytest.mark.parametrize("call", BAD_CALLS.values(), ids=BAD_CALLS)
def test_bad_input_is_refused_and_nothing_is_written(graphs, call):
    before = dump(graphs)
    with pytest.raises(InvalidInput):
        call(graphs)
    assert dump(graphs) == before


@pytest.mark.parametrize(
    "envelope",
    [
        None,
        [],
        {},
        {"trace_id": "t", "ops": []},
        {"trace_id": "t", "ops": "x"},
        {"trace_id": "", "ops": [{}]},
        {"trace_id": "t", "ops": [{"op": "parent_delete"}]},
        {"trace_id": "t", "ops": [{"op": "parent_create", "app_id": 1}]},
        {"trace_id": "t", "ops": [None]},
        {"trace_id": "t", "ops": [{}], "extra": 1},
    ],
)
def test_an_envelope_of_the_wrong_shape_is_refused(graphs, envelope):
    before = dump(graphs)
    with pytest.raises(FourfoldError) as caught:
        graphs.apply(envelope)
    assert isinstance(caught.value, InvalidInput)
    assert dump(graphs) == before


def test_a_feed_wakes_when_something_is_committed(graphs, types):
    feed = graphs.feed(timeout=60)
    got = []
    thread = threading.Thread(target=lambda: got.append(next(feed)))
    thread.start()
    graphs.insert_parent(APP, {"type_id": types["parent"], "owner_identity": 1})
    thread.join(60)
    assert [change.row.id for change in got[0]] == [1]
    assert feed.position == 1
