"""Writing to a graph: numbers, ids, versions, limits, and what must leave no trace."""

from __future__ import annotations

import asyncio
import math
import threading

import pytest
from graph_nodes import APP, everything, open_graphs, with_notes

from fourfold.errors import (
    FourfoldError,
    InvalidInput,
    LimitExceeded,
    NotFound,
    Refused,
    StorageError,
)
from fourfold.kernel import failpoints
from fourfold.models.graphs.records import KINDS


def parent(types, **changes):
    return {"type_id": types["parent"], "owner_identity": 1, **changes}


def attr(types, parent_id, **changes):
    return {"parent_id": parent_id, "type_id": types["attr"], "owner_identity": 1, **changes}


def write_then_fail(graphs, types, txn):
    graphs.insert_parent(APP, parent(types), txn=txn)
    raise ZeroDivisionError


def dump(graphs):
    """Everything in the file that a failed write must not change."""
    with graphs.database.read() as snapshot:
        tables = [
            row[0]
            for row in snapshot.all(
                "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY 1"
            )
        ]
        return {table: snapshot.all(f'SELECT * FROM "{table}"') for table in tables}


def test_a_transaction_is_one_number_shared_by_its_rows(graphs, types):
    with graphs.transaction() as txn:
        note = graphs.insert_parent(APP, parent(types), txn=txn)
        graphs.insert_many_attrs(
            APP, [attr(types, note, value_text=str(n)) for n in range(3)], txn=txn
        )
        graphs.insert_edge(
            APP,
            {
                "src_parent_id": note,
                "dst_parent_id": note,
                "type_id": types["edge"],
                "owner_identity": 1,
            },
            txn=txn,
        )
        assert txn.seq == 1
    rows = everything(graphs)
    assert {row.global_seq for kind in KINDS for row in rows[kind]} == {1}
    positions = sorted(row.position for kind in KINDS for row in rows[kind])
    assert positions == list(range(5))
    assert graphs.get_global_seq() == 1


def test_next_global_seq_begins_new_number_in_same_transaction(graphs, types):
    with graphs.transaction() as txn:
        assert graphs.next_global_seq(txn) == 1
        graphs.insert_parent(APP, parent(types), txn=txn)
        assert graphs.next_global_seq(txn) == 2
        graphs.insert_parent(APP, parent(types), txn=txn)
    assert [row.global_seq for row in graphs.select_parents(APP)] == [1, 2]


def test_transaction_that_raises_leaves_nothing_and_gives_its_number_back(graphs, types):
    before = dump(graphs)
    with pytest.raises(ZeroDivisionError), graphs.transaction() as txn:
        write_then_fail(graphs, types, txn)
    assert dump(graphs) == before
    graphs.insert_parent(APP, parent(types))
    assert graphs.get_global_seq() == 1
    assert graphs.select_parents(APP)[0].id == 1


def test_a_step_that_fails_leaves_the_rest_of_its_transaction(graphs, types):
    with graphs.transaction() as outer:
        first = graphs.insert_parent(APP, parent(types), txn=outer)
        with pytest.raises(ZeroDivisionError), graphs.transaction() as inner:
            write_then_fail(graphs, types, inner)
        with graphs.transaction() as inner:
            second = graphs.insert_parent(APP, parent(types), txn=inner)
    rows = graphs.select_parents(APP)
    assert [row.id for row in rows] == [first, second]
    assert [row.position for row in rows] == [0, 1]
    assert graphs.usage(APP).rows == 2


def test_call_without_the_surrounding_transaction_is_a_step_of_it(graphs, types):
    with graphs.transaction() as txn:
        graphs.insert_parent(APP, parent(types), txn=txn)
        graphs.insert_parent(APP, parent(types))
        with pytest.raises(NotFound):
            graphs.insert(APP, "attr", [attr(types, 99)])
        graphs.with_transaction(lambda handle: handle.insert(APP, "parent", []))
        assert graphs.insert_parent(APP, parent(types), txn=txn) == 3
    assert [row.global_seq for row in graphs.select_parents(APP)] == [1, 1, 1]
    with pytest.raises(ZeroDivisionError), graphs.transaction():
        write_then_fail(graphs, types, None)
    assert graphs.get_global_seq() == 1


def test_an_operation_of_another_kind_cannot_be_pointed_at(graphs, types):
    of = {"app_id": APP, "owner_identity": 1}
    note = {"op": "parent_create", "type_id": types["parent"], "payload": {}, **of}
    body = {"op": "attr_create", "type_id": types["attr"], **of}
    first = {**body, "payload": {"parent_id": {"$op": 0}, "value": 1}}
    wrong = {**body, "payload": {"parent_id": {"$op": 1}, "value": 2}}
    before = dump(graphs)
    for ops in ([note, first, wrong], [note, wrong], [wrong]):
        at = len(ops) - 1
        with pytest.raises(InvalidInput, match=rf"ops\[{at}\]: parent_id"):
            graphs.apply({"trace_id": "t", "ops": ops})
    assert dump(graphs) == before


def test_what_points_at_something_new_is_refused_if_not_shared(graphs, types):
    """Also when both are made in one transaction, and when flags change in between."""
    of = {"app_id": APP, "owner_identity": 1}
    note = {"op": "parent_create", "type_id": types["parent"], "payload": {}, **of}
    body = {"op": "attr_create", "type_id": types["attr"], **of}
    body["payload"] = {"parent_id": {"$op": 0}, "value": 1, "sync_flags": 1}
    with pytest.raises(Refused, match=r"ops\[1\]"):
        graphs.apply({"trace_id": "t", "ops": [note, body]})
    with pytest.raises(Refused, match="flags"), graphs.transaction() as txn:
        unshare_then_share(graphs, types, txn)
    assert graphs.get_global_seq() == 0


def unshare_then_share(graphs, types, txn):
    made = graphs.insert_parent(APP, parent(types, sync_flags=1), txn=txn)
    graphs.update_sync_flags(APP, "parent", [made], 0, txn=txn)
    graphs.insert_attr(APP, attr(types, made, sync_flags=1), txn=txn)


def test_seqs_and_ids_continue_after_a_rolled_back_step(graphs, types):
    """What transactions leave to each other must not survive the step that left it."""
    with graphs.database.write() as outer:
        graphs.insert_many_parents(APP, [parent(types)] * 2)
        with pytest.raises(ZeroDivisionError), outer.savepoint():
            write_then_fail(graphs, types, None)
        graphs.insert_parent(APP, parent(types))
    rows = graphs.select_parents(APP)
    assert [(row.id, row.global_seq) for row in rows] == [(1, 1), (2, 1), (3, 2)]
    assert graphs.get_global_seq() == 2


def test_a_failure_at_any_operation_of_an_envelope_changes_nothing(graphs, types):
    of = {"app_id": APP, "owner_identity": 1}
    note = {"op": "parent_create", "type_key": "note parent", "payload": {}, **of}
    payload = {"parent_id": {"$op": 0}, "value": "text"}
    body = {"op": "attr_create", "type_key": "note attr", "payload": payload, **of}
    changed = {"op": "attr_update", "type_key": "note attr", **of}
    changed["payload"] = {"attr_id": {"$op": 1}, "value": "other"}
    ends = {"src_parent_id": {"$op": 0}, "dst_attr_id": {"$op": 1}}
    link = {"op": "edge_create", "type_key": "note edge", "payload": ends, **of}
    ops = [note, body, changed, link, note]
    before = dump(graphs)
    statements = 0
    while True:
        failpoints.arm("kernel.statement.before", "raise", at=statements + 1)
        try:
            graphs.apply({"trace_id": "t", "ops": ops})
        except StorageError:
            assert dump(graphs) == before
            statements += 1
        else:
            break
        finally:
            failpoints.disarm()
    assert statements >= len(ops)
    assert graphs.get_global_seq() == 1


def test_eight_threads_get_numbers_without_gap_or_repetition(graphs, types):
    numbers = []

    def write():
        numbers.extend(graphs.with_transaction(one) for _ in range(50))

    def one(txn):
        graphs.insert_parent(APP, parent(types), txn=txn)
        return txn.seq

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == list(range(1, 401))


def test_coroutines_share_commits_and_each_has_its_own_number(graphs, types):
    envelope = {
        "trace_id": "t",
        "ops": [
            {
                "op": "parent_create",
                "app_id": APP,
                "type_id": types["parent"],
                "owner_identity": 1,
                "payload": {},
            }
        ],
    }

    async def many():
        return await asyncio.gather(*(graphs.apply_async(envelope) for _ in range(64)))

    before = graphs.database.metrics().counters["transactions"]
    done = asyncio.run(many())
    assert sorted(each.global_seq for each in done) == list(range(1, 65))
    assert graphs.database.metrics().counters["transactions"] - before < 10


def test_an_update_keeps_the_versions_before_it(graphs, types):
    note = graphs.insert_parent(APP, parent(types))
    body = graphs.insert_attr(APP, attr(types, note, value_text="one"))
    graphs.update(APP, "attr", body, {"value_number": 2})
    graphs.update(APP, "attr", body, {"value_json": "[3]"})
    versions = graphs.versions(APP, "attr", body)
    assert [row.version for row in versions] == [1, 2, 3]
    assert [(row.value_text, row.value_number, row.value_json) for row in versions] == [
        ("one", None, None),
        (None, 2.0, None),
        (None, None, "[3]"),
    ]
    assert {row.parent_id for row in versions} == {note}
    assert graphs.newest(APP, "attr", body, at=3).value_number == 2.0


@pytest.mark.parametrize("changes", [{"owner_identity": 2}, {"parent_id": 9}, {"type_id": 99}])
def test_an_update_cannot_give_an_object_away(graphs, types, changes):
    note = graphs.insert_parent(APP, parent(types))
    body = graphs.insert_attr(APP, attr(types, note, value_text="one"))
    with pytest.raises(Refused, match="cannot change"):
        graphs.update(APP, "attr", body, changes)
    assert len(graphs.versions(APP, "attr", body)) == 1


def test_update_of_an_object_of_another_owner_is_refused(graphs, types):
    note = graphs.insert_parent(APP, parent(types))
    op = {
        "op": "parent_update",
        "app_id": APP,
        "type_id": types["parent"],
        "owner_identity": 2,
        "payload": {"parent_id": note, "sync_flags": 0},
    }
    with pytest.raises(Refused, match="belongs to 1"):
        graphs.apply({"trace_id": "t", "ops": [op]})


BAD_ROWS = {
    "unknown field": ("parent", {"colour": "red"}),
    "number given": ("parent", {"global_seq": 7}),
    "id given": ("parent", {"id": 7}),
    "type missing": ("parent", {"type_id": None}),
    "type is a bool": ("parent", {"type_id": True}),
    "owner missing": ("parent", {"owner_identity": None}),
    "flags negative": ("parent", {"sync_flags": -1}),
    "time without zone": ("parent", {"created_at": "2026-01-01T00:00:00"}),
    "no time at all": ("parent", {"created_at": "yesterday"}),
    "two values": ("attr", {"value_text": "a", "value_number": 1}),
    "not a number": ("attr", {"value_number": math.nan}),
    "infinite": ("attr", {"value_number": math.inf}),
    "too large": ("attr", {"value_number": 10**400}),
    "half a surrogate": ("attr", {"value_text": "\ud800"}),
    "text that is bytes": ("attr", {"value_text": b"a"}),
    "no JSON": ("attr", {"value_json": "{"}),
    "NaN in JSON": ("attr", {"value_json": "NaN"}),
    "no bytes": ("attr", {"value_blob": "a"}),
    "edge to nowhere": ("edge", {"dst_parent_id": None}),
    "edge to two": ("edge", {"dst_attr_id": 1}),
    "rating of nothing": ("rating", {"target_parent_id": None}),
    "rating of two": ("rating", {"target_attr_id": 1}),
}


@pytest.mark.parametrize(("kind", "changes"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_a_bad_row_is_named_and_nothing_is_written(graphs, types, kind, changes):
    graphs.insert_parent(APP, parent(types))
    good = {
        "parent": parent(types),
        "attr": attr(types, 1),
        "edge": {
            "src_parent_id": 1,
            "dst_parent_id": 1,
            "type_id": types["edge"],
            "owner_identity": 1,
        },
        "rating": {"target_parent_id": 1, "type_id": types["rating"], "owner_identity": 1},
    }[kind]
    before = dump(graphs)
    with pytest.raises(InvalidInput) as caught:
        graphs.insert(APP, kind, [good, {**good, **changes}])
    assert kind in caught.value.message
    assert dump(graphs) == before


@pytest.mark.parametrize(
    ("app_id", "kind"),
    [
        (99, "parent"),
        (APP, "parents"),
        (True, "parent"),
        ("1; DROP TABLE apps", "parent"),
        (-1, "attr"),
    ],
)
def test_what_is_no_app_or_no_table_is_refused(graphs, types, app_id, kind):
    with pytest.raises(FourfoldError) as caught:
        graphs.insert(app_id, kind, [parent(types)])
    assert isinstance(caught.value, InvalidInput | NotFound)


def test_a_type_of_another_kind_is_refused(graphs, types):
    with pytest.raises(NotFound, match="no type"):
        graphs.insert_parent(APP, parent(types, type_id=types["edge"]))


def test_what_is_shared_cannot_belong_to_something_private(graphs, types):
    note = graphs.insert_parent(APP, parent(types))
    with pytest.raises(Refused, match="flags"):
        graphs.insert_attr(APP, attr(types, note, sync_flags=1))


def test_the_write_that_crosses_a_limit_is_refused_whole(graphs, types):
    graphs.set_limits(APP, rows_max=3, bytes_max=10)
    graphs.insert_many_parents(APP, [parent(types)] * 2)
    before = dump(graphs)
    with pytest.raises(LimitExceeded, match="4 rows"):
        graphs.insert_many_parents(APP, [parent(types)] * 2)
    with pytest.raises(LimitExceeded, match="11 bytes"):
        graphs.insert_attr(APP, attr(types, 1, value_text="é" * 5 + "x"))
    assert dump(graphs) == before
    graphs.insert_attr(APP, attr(types, 1, value_text="é" * 5))
    assert graphs.usage(APP)[1:3] == (3, 10)


def test_a_strict_store_forbids_changing_flags(path):
    graphs = open_graphs(path, strict=True)
    types = with_notes(graphs)
    note = graphs.insert_parent(APP, parent(types))
    with pytest.raises(Refused, match="cannot change sync flags"):
        graphs.update_sync_flags(APP, "parent", [note], 1)
    graphs.database.close()


def test_flags_that_change_are_seen_by_the_feed(graphs, types):
    note = graphs.insert_parent(APP, parent(types))
    assert graphs.feed(flag_mask=2, timeout=0).next(0) == ()
    assert graphs.update_sync_flags(APP, "parent", [note, 99], 2) == 1
    assert [change.row.id for change in graphs.feed(flag_mask=2, timeout=0).next(0)] == [note]


def test_returned_rows_cannot_be_changed(graphs, types):
    graphs.insert_parent(APP, parent(types))
    row = graphs.select_parents(APP)[0]
    with pytest.raises(AttributeError):
        row.type_id = 7
    with pytest.raises(TypeError):
        graphs.list_settings()["a"] = "b"
