"""What must hold in every store of graphs, one claim after the other, and the tests that show it.

Some are shown by the tests of the kernel, which graphs are built on; those that had no test of
their own have it here, called `test_<number>_...`.
"""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest
from graph_nodes import APP, SHARED, everything, open_graphs, with_notes
from hypothesis import given, settings
from hypothesis import strategies as st
from test_inserts import attr, dump, parent

from fourfold.errors import FourfoldError, InvalidInput, NotFound, SequenceRegression
from fourfold.models.graphs import Query
from fourfold.models.graphs.records import KINDS
from support.properties import examples

TESTS = Path(__file__).parents[1]
INVARIANTS = {
    1: (
        "accepted envelopes have the numbers that come next, and all rows of one have one number",
        ["graphs/test_inserts.py::test_a_transaction_is_one_number_shared_by_its_rows"],
    ),
    2: (
        "a failure at any operation of an envelope leaves every table as it was",
        ["graphs/test_inserts.py::test_a_failure_at_any_operation_of_an_envelope_changes_nothing"],
    ),
    3: (
        "two writers never get the same number",
        [
            "graphs/test_inserts.py::test_eight_threads_get_numbers_without_gap_or_repetition",
            "kernel/test_sequences.py::test_numbers_are_dense_and_distinct_under_concurrency",
        ],
    ),
    4: (
        "a reader sees what was committed before it began, and never half an envelope",
        ["graphs/test_selects.py::test_a_snapshot_does_not_see_what_is_committed_later"],
    ),
    5: (
        "a killed process leaves whole envelopes, and the counter at the last of them",
        [
            "graphs/test_graph_crash.py::test_a_writer_killed_at_a_fault_point_leaves_whole_envelopes",
            "graphs/test_graph_crash.py::test_writers_killed_at_any_moment_lose_nothing_acknowledged",
        ],
    ),
    6: (
        "a second start changes nothing, and two that start at once make one file",
        [
            "graphs/test_apps.py::test_tables_of_specification_are_there_and_second_start_changes_nothing",
            "graphs/test_graph_upkeep.py::test_two_processes_that_start_on_empty_folder_make_one_schema",
        ],
    ),
    7: (
        "a start that fails leaves nothing half done",
        [
            "graphs/test_graph_upkeep.py::test_start_that_fails_at_any_statement_leaves_file_that_starts",
            "graphs/test_graph_upkeep.py::test_app_whose_tables_cannot_all_be_made_is_not_there",
            "kernel/test_migrations.py::test_migration_that_fails_on_a_new_path_leaves_no_database",
        ],
    ),
    8: (
        "a counter that is gone, no number, or below its rows is refused, and the file untouched",
        [
            "graphs/test_apps.py::test_a_damaged_file_is_refused_and_left_as_it_is",
            "graphs/test_graph_schema.py::test_counter_has_one_row_and_no_second_can_be_made",
        ],
    ),
    9: (
        "a missing table or column is refused",
        [
            "graphs/test_apps.py::test_a_damaged_file_is_refused_and_left_as_it_is",
            "graphs/test_graph_upkeep.py::test_a_global_table_that_is_gone_is_damage",
        ],
    ),
    10: (
        "migrations run in order, once, forward, or not at all",
        [
            "kernel/test_migrations.py::test_migrations_run_in_the_order_of_their_numbers",
            "kernel/test_migrations.py::test_missing_or_repeated_number_is_refused_before_file_exists",
            "kernel/test_migrations.py::test_migration_that_fails_half_way_leaves_old_version_and_data",
            "kernel/test_migrations.py::test_opening_again_changes_nothing",
            "kernel/test_migrations.py::test_newer_database_is_refused_unchanged",
        ],
    ),
    11: (
        "a step of an app that fails takes back its tables and its version",
        ["graphs/test_apps.py::test_failing_upgrade_step_of_an_app_changes_nothing"],
    ),
    12: (
        "a cursor never goes back, and falls with the rows of its transaction",
        ["graphs/test_apps.py::test_progress_never_goes_back"],
    ),
    13: (
        "a restore never lowers a number, nor replaces a file by something that is no backup",
        [
            "graphs/test_graph_upkeep.py::test_an_old_backup_does_not_take_numbers_back",
            "kernel/test_backups.py::test_backup_during_writes_is_one_consistent_state",
            "kernel/test_backups.py::test_verification_finds_a_wrong_size",
            "kernel/test_backups.py::test_foreign_database_with_a_sidecar_is_not_a_backup",
        ],
    ),
    14: ("pages of pending rows bring every row once, whatever their size", []),
    15: (
        "results are the same without any index",
        ["graphs/test_selects.py::test_results_are_the_same_without_any_index"],
    ),
    16: (
        "both or no destinations or targets, and references across apps, are refused",
        ["graphs/test_inserts.py::test_a_bad_row_is_named_and_nothing_is_written"],
    ),
    17: (
        "no call changes who owns a row, its type or its number, and results cannot be changed",
        [
            "graphs/test_inserts.py::test_an_update_cannot_give_an_object_away",
            "graphs/test_inserts.py::test_returned_rows_cannot_be_changed",
        ],
    ),
    18: (
        "a type has one id for ever",
        [
            "graphs/test_apps.py::test_a_type_has_one_id_for_ever",
            "graphs/test_inserts.py::test_a_type_of_another_kind_is_refused",
        ],
    ),
    19: (
        "text that looks like SQL is text",
        [
            "graphs/test_apps.py::test_what_is_no_slug_is_refused",
            "graphs/test_inserts.py::test_what_is_no_app_or_no_table_is_refused",
        ],
    ),
    20: (
        "the write that would cross a limit is refused whole, the one that reaches it is not",
        ["graphs/test_inserts.py::test_the_write_that_crosses_a_limit_is_refused_whole"],
    ),
    21: (
        "a step that fails and is caught leaves the rest; one that is not leaves nothing",
        [
            "graphs/test_inserts.py::test_a_step_that_fails_leaves_the_rest_of_its_transaction",
            "graphs/test_inserts.py::test_transaction_that_raises_leaves_nothing_and_gives_its_number_back",
        ],
    ),
    22: (
        "a caller that waits too long for the writer gets a retryable error",
        ["graphs/test_graph_upkeep.py::test_writer_that_times_out_gets_a_retryable_error"],
    ),
    23: (
        "upkeep does not disturb readers, a closed file has no log, and numbers show no rows",
        [
            "graphs/test_graph_upkeep.py::test_vacuum_does_not_wait_and_is_refused_during_a_read",
            "graphs/test_graph_upkeep.py::test_closed_file_leaves_no_wal_and_is_private",
            "graphs/test_graph_upkeep.py::test_metrics_have_every_name_of_specification_and_never_row",
        ],
    ),
    24: (
        "the accepted envelopes, replayed on an empty file, give the same numbers and objects",
        [],
    ),
    25: (
        "files are for their owner only, and have one writing process",
        [
            "graphs/test_graph_upkeep.py::test_closed_file_leaves_no_wal_and_is_private",
            "graphs/test_graph_upkeep.py::test_a_second_process_cannot_write_and_may_read",
        ],
    ),
}


def test_every_claim_has_tests_and_they_exist():
    here = re.findall(r"^def (test_(\d+)_\w+)", Path(__file__).read_text("utf-8"), re.MULTILINE)
    assert list(INVARIANTS) == list(range(1, 26))
    for number, (_, tests) in INVARIANTS.items():
        own = [name for name, of in here if int(of) == number]
        assert tests or own, f"nothing shows {number}"
        for test in tests:
            file, _, name = test.partition("::")
            assert f"def {name}(" in (TESTS / file).read_text("utf-8"), test


def test_1_seqs_continue_after_refusals_and_a_reopen(path):
    graphs = open_graphs(path)
    types = with_notes(graphs)
    op = {"op": "parent_create", "app_id": APP, "owner_identity": 1, "payload": {}}
    good = {"trace_id": "t", "ops": [{**op, "type_id": types["parent"]}] * 3}
    bad = {"trace_id": "t", "ops": [*good["ops"], {**op, "type_id": 99}]}
    numbers = []
    for turn in range(12):
        numbers.append(graphs.apply(good).global_seq)
        before = dump(graphs)
        with pytest.raises(NotFound, match=r"ops\[3\]"):
            graphs.apply(bad)
        assert dump(graphs) == before
        if turn % 5 == 0:
            graphs.database.close()
            graphs = open_graphs(path)
    assert numbers == list(range(1, 13))
    graphs.database.close()


def test_4_readers_beside_writers_never_see_half_an_envelope(graphs, types):
    stop = threading.Event()

    def write():
        while not stop.is_set():
            with graphs.transaction() as txn:
                note = graphs.insert_parent(APP, parent(types), txn=txn)
                graphs.insert_many_attrs(APP, [attr(types, note)] * 3, txn=txn)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(100):
            with graphs.snapshot() as reader:
                newest = reader.newest_seq()
                parents = len(reader.rows(Query(APP, "parent")))
                assert parents == newest
                assert len(reader.rows(Query(APP, "attr"))) == 3 * newest
    finally:
        stop.set()
        writer.join()


def test_12_a_cursor_falls_with_the_rows_of_its_transaction(graphs, types):
    graphs.record_sync_progress(1, "notes", 5)
    before = dump(graphs)

    def work(txn):
        graphs.insert_parent(APP, parent(types), txn=txn)
        graphs.record_sync_progress(1, "notes", 9, txn=txn)
        graphs.record_sync_progress(1, "notes", 7, txn=txn)

    with pytest.raises(SequenceRegression):
        graphs.with_transaction(work)
    assert dump(graphs) == before


@settings(max_examples=examples(30), deadline=None)
@given(groups=st.lists(st.integers(1, 5), min_size=1, max_size=8), shared=st.integers(1, 3))
def test_14_pages_of_every_size_bring_each_pending_row_once(tmp_path_factory, groups, shared):
    graphs = open_graphs(tmp_path_factory.mktemp("pages") / "backend.db")
    types = with_notes(graphs)
    for size in groups:
        rows = [parent(types, sync_flags=SHARED if n % shared == 0 else 2) for n in range(size)]
        graphs.insert_many_parents(APP, rows)
    wanted = [row for row in everything(graphs)["parent"] if row.sync_flags & SHARED]
    for limit in range(1, len(wanted) + 2):
        seen, after = [], 0
        while page := graphs.select_pending_rows(APP, "parent", SHARED, limit, after):
            numbers = {row.global_seq for row in page}
            assert [row for row in wanted if row.global_seq in numbers] == list(page)
            seen += page
            after = page[-1].global_seq
        assert seen == wanted
    graphs.database.close()


def test_16_an_object_of_another_app_is_not_found(graphs, types):
    graphs.register_app("market", "Market")
    kind = graphs.register_type(2, "parent", "stall")
    for _ in range(3):
        there = graphs.insert_parent(2, {"type_id": kind, "owner_identity": 1})
    before = dump(graphs)
    row = attr(types, there)
    with pytest.raises(NotFound, match=f"app {APP} has no parent {there}"):
        graphs.insert(APP, "attr", [row])
    with pytest.raises(NotFound):
        graphs.insert(APP, "attr", [row] * 30)
    ops = [
        {
            "op": "edge_create",
            "app_id": APP,
            "type_id": types["edge"],
            "owner_identity": 1,
            "payload": {"src_parent_id": there, "dst_parent_id": there},
        }
    ]
    with pytest.raises(NotFound):
        graphs.apply({"trace_id": "t", "ops": ops})
    assert dump(graphs) == before


INJECTIONS = [
    "'; DROP TABLE apps; --",
    'x" OR "1"="1',
    "parent; DELETE FROM global_seq",
    "{n}",
    "?1",
]


@pytest.mark.parametrize("text", INJECTIONS)
def test_19_text_like_sql_is_stored_verbatim_or_refused(graphs, types, text):
    graphs.upsert_setting(text, text)
    assert graphs.get_setting(text) == text
    number = graphs.register_type(APP, "attr", text)
    graphs.insert_parent(APP, parent(types))
    graphs.insert_attr(APP, {**attr(types, 1), "type_id": number, "value_text": text})
    graphs.put_cached(text, text, "1", 0)
    graphs.define_domain(text, 1)
    assert graphs.select_attrs(APP)[0].value_text == text
    before = dump(graphs)
    for call in (
        lambda: graphs.select_pending_rows(APP, text, 1, 1, 0),
        lambda: graphs.update_sync_flags(APP, text, [1], 1),
        lambda: graphs.insert(APP, text, [parent(types)]),
        lambda: graphs.insert_parent(text, parent(types)),
        lambda: graphs.insert_parent(True, parent(types)),
        lambda: graphs.insert_parent(APP, {**parent(types), text: 1}),
        lambda: graphs.select_parents(APP, type_ids=[text]),
        lambda: graphs.newest(APP, text, 1),
        lambda: graphs.register_type(APP, text, "x"),
        lambda: graphs.feed(kinds=[text]),
        lambda: graphs.ensure_app_schema(text),
        lambda: graphs.set_limits(text, rows_max=1),
    ):
        with pytest.raises(InvalidInput):
            call()
    assert dump(graphs) == before


@settings(max_examples=examples(15), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["new", "change", "bad"]), st.integers(0, 9)), max_size=12)
)
def test_24_accepted_envelopes_replayed_give_the_same_numbers_and_objects(tmp_path_factory, story):
    folder = tmp_path_factory.mktemp("replay")
    first, second = open_graphs(folder / "first.db"), open_graphs(folder / "second.db")
    types = with_notes(first)
    assert with_notes(second) == types
    of = {"app_id": APP, "owner_identity": 1}
    accepted = []
    for what, value in story:
        note = {"op": "parent_create", "type_id": types["parent"], "payload": {}, **of}
        body = {"op": "attr_create", "type_key": "note attr", **of}
        body["payload"] = {"parent_id": {"$op": 0}, "value": value}
        ops = [note, body, {**body, "payload": {"parent_id": {"$op": 0}, "value": [value]}}]
        if what == "change":
            change = {"attr_id": value + 1, "value": f"changed to {value}"}
            ops = [{"op": "attr_update", "type_key": "note attr", "payload": change, **of}]
        if what == "bad":
            ops.append({**body, "payload": {"parent_id": 10**6, "value": 1}})
        try:
            done = first.apply({"trace_id": "t", "ops": ops})
        except FourfoldError:
            continue
        accepted.append(({"trace_id": "t", "ops": ops}, done))
    for envelope, done in accepted:
        assert second.apply(envelope) == done
    for kind in KINDS:
        one, other = everything(first)[kind], everything(second)[kind]
        assert [untimed(row) for row in one] == [untimed(row) for row in other]
    assert first.get_global_seq() == second.get_global_seq() == len(accepted)
    first.database.close()
    second.database.close()


def untimed(row):
    """A row without the times, which are those of its writer."""
    return {name: value for name, value in row._asdict().items() if not name.endswith("_at")}
