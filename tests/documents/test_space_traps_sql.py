"""Traps of the printed SQL: what fails, or silently does something else, when it is run as it
stands.
"""

from __future__ import annotations

import apsw
import pytest
from space_machine import DID

import fourfold
from fourfold.errors import FourfoldError, InvalidInput
from fourfold.models.documents.request import make_request


def pragma(space, name):
    with space.view() as view:
        return view.value(f"PRAGMA {name}")


def columns(space, table):
    with space.view() as view:
        return {row[1]: row[2] for row in view.all(f'PRAGMA table_info("{table}")')}


def test_a1_table_named_commit_is_written_and_read(space):
    space.set("a", {"n": 1})
    with space.view() as view:
        assert view.all('SELECT seq, branch FROM "commit"') == [(1, "")]


@pytest.mark.parametrize("page_size", [4096, 32_768])
def test_a2_page_size_takes_effect_because_it_comes_before_wal(root, history, page_size):
    with fourfold.open(root, settings={"documents.page_size": page_size}) as store:
        space = store.space(DID, history=history)
        assert pragma(space, "page_size") == page_size
        assert pragma(space, "journal_mode") == "wal"


def test_a2_page_size_is_that_of_specification_by_default(space):
    assert pragma(space, "page_size") == 32_768


def test_a3_foreign_keys_are_on_for_writer_and_readers(space):
    assert pragma(space, "foreign_keys") == 1
    with space.database.write() as txn:
        assert txn.value("PRAGMA foreign_keys") == 1


def test_a3_a_revision_without_its_commit_is_refused(revisions):
    def stray(txn):
        txn.execute("INSERT INTO revision VALUES ('', 'a', 9, 0, 'delete', NULL, 9)")

    with pytest.raises(FourfoldError, match="FOREIGN KEY"):
        revisions.database.transact(stray)


def test_a4_numbers_in_stored_text_keep_their_digits(space, store):
    document = {"a": 1.0, "b": 1e3, "c": 12345678901234567890, "d": -0.0, "e": "007"}
    space.set("a", document)
    space.patch("a", [{"op": "replace", "path": "/value", "value": 12345678901234567890}])
    found = space.read("a", at=2).document
    assert repr(found["a"]) == "1.0"
    assert repr(found["b"]) == "1000.0"
    assert repr(found["d"]) == "-0.0"
    assert (found["c"], found["e"], found["value"]) == (document["c"], "007", document["c"])


def test_a4_no_column_that_holds_json_has_numeric_affinity(revisions):
    for table, column in (
        ("revision", "data"),
        ("snapshot", "value"),
        ("commit", "original"),
        ("commit", "resolution"),
        ("invocation", "invocation"),
        ("authorization", "authorization"),
    ):
        assert columns(revisions, table)[column] == "TEXT"


def test_a5_the_default_branch_is_there_before_the_first_commit(space):
    [branch] = space.branches.list()
    assert (branch.name, branch.parent, branch.created_seq, branch.head_seq) == ("", None, 0, 0)
    space.set("a", {})
    assert space.branches.get("").head_seq == 1


def test_a6_seq_is_not_given_again_after_branch_was_deleted(space):
    space.set("a", {})
    space.branches.create("b")
    space.branches.delete("b")
    assert space.branches.get("").head_seq == 1
    assert space.set("a", {}).seq == 4
    assert [entry.seq for entry in space.log()] == [1, 2, 3, 4]


def test_a7_commit_succeeds_while_reader_holds_older_state(space):
    space.set("a", {"n": 1})
    with space.view() as view:
        before = view.value(view.sql.last_seq)
        space.set("a", {"n": 2})
        assert view.value(view.sql.last_seq) == before
    assert space.read("a").document == {"n": 2}


def test_a7_commit_takes_the_write_lock_before_reading(space):
    space.set("a", {"n": 1})
    seen = []

    def look(view):
        connection = view.snapshot._connection
        seen.append((connection.txn_state("main"), connection.changes()))

    request = make_request(
        [{"op": "set", "id": "a", "value": {}}],
        branch="",
        session="s",
        local_seq=1,
        replayable=True,
    )
    space.submit(request, look)
    [(state, _)] = seen
    assert state == apsw.SQLITE_TXN_WRITE


def test_a8_indexes_that_repeat_a_primary_key_are_left_out(revisions):
    with revisions.view() as view:
        found = {row[0] for row in view.all("SELECT name FROM sqlite_schema WHERE type = 'index'")}
    assert not found & {"idx_revision_entity_seq", "idx_snapshot_lookup", "idx_head_branch"}


def test_a9_new_space_is_writable_in_any_table_order(space):
    space.set("a", {})
    with space.view() as view:
        assert view.all("PRAGMA foreign_key_check") == []


def test_a10_power_cut_loss_is_bounded_and_sync_makes_durable(space):
    space.set("a", {})
    counter = space.history_kind.seq
    assert space.database.durable(counter) <= space.seq()
    space.database.make_durable()
    assert space.database.durable(counter) == 1


def test_a10_a_client_with_a_lost_seq_gets_an_error(space):
    space.set("a", {})
    with pytest.raises(InvalidInput, match="seq 5"):
        space.transact([{"op": "delete", "id": "a"}], reads={"confirmed": [{"id": "a", "seq": 5}]})
    assert space.seq() == 1


def test_a11_order_is_that_of_seqs_and_not_of_clock(space):
    for number in range(3):
        space.set("a", {"n": number})

    def clock_went_back(txn):
        txn.execute("UPDATE \"commit\" SET created_at = '2001-01-01T00:00:00.000Z' WHERE seq = 3")

    space.database.transact(clock_went_back)
    assert [entry.seq for entry in space.log()] == [1, 2, 3]
    assert space.read("a", at=3).document == {"n": 2}


def test_a12_blob_has_optional_content_type_and_time(space):
    with space.view() as view:
        table = {row[1]: row[3] for row in view.all("PRAGMA table_info(blob_store)")}
    assert table["content_type"] == 0
    assert "created_at" in table


def test_a13_view_state_shows_newest_revision_of_every_entity(revisions):
    revisions.set("a", {})
    revisions.transact([{"op": "set", "id": "b", "value": {}}, {"op": "delete", "id": "b"}])
    with revisions.view() as view:
        found = view.all("SELECT branch, id, seq, op_index FROM state ORDER BY id")
    assert found == [("", "a", 1, 0), ("", "b", 2, 1)]


def test_a13_view_state_shows_patches_as_patches(store):
    facts = store.space(DID, history="facts")
    facts.set("a", {"n": 1})
    facts.patch("a", [{"op": "add", "path": "/n", "value": 2}])
    with facts.view() as view:
        [found] = view.all("SELECT id, fact_type, seq, value FROM state")
    assert found == ("a", "patch", 2, '[{"op":"add","path":"/n","value":2}]')


@pytest.mark.parametrize("retention", [1, 2, "log"])
def test_a14_snapshots_are_dropped_by_key_except_the_newest(space, retention):
    space.branches.create("f")
    for branch, entity in (("", "a"), ("", "b"), ("f", "a")):
        for number in range(60):
            space.patch(entity, [{"op": "add", "path": "/n", "value": number}], branch=branch)

    def kept():
        with space.view() as view:
            return set(view.all("SELECT branch, id, seq FROM snapshot"))

    before = kept()
    newest = {max(row for row in before if row[:2] == key[:2]) for key in before}
    states = [space.read_many(["a", "b"], "f", at) for at in range(1, space.seq() + 1)]
    space.maintain(retention)
    assert newest <= kept() < before
    assert [space.read_many(["a", "b"], "f", at) for at in range(1, space.seq() + 1)] == states
    assert space.verify() == []
