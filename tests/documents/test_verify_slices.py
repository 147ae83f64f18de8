"""Verification in slices: short read transactions, pauses between them, and no false problem."""

from __future__ import annotations

import itertools
import shutil
import threading

import apsw
import pytest
from lived_in_space import lived_in
from space_machine import DID

import fourfold
from fourfold.kernel.pauses import Pauses
from fourfold.models.documents import HISTORIES, GcPolicy, column_types, verify
from fourfold.models.documents.file_verify import opened, verify_file
from fourfold.models.documents.history import HistoryReader
from fourfold.models.documents.revisions import verify as revision_rules

REVISIONS = 600
INCREMENT = [{"op": "increment", "path": "/n", "by": 1}]


@pytest.fixture(autouse=True)
def small_slices(monkeypatch):
    monkeypatch.setattr("fourfold.models.documents.verify.VERIFY_SLICE_BYTES", 8_192)


@pytest.fixture(scope="module", params=sorted(HISTORIES))
def filled(request, tmp_path_factory):
    """The folder of a closed store with the space of the tests."""
    root = tmp_path_factory.mktemp("filled") / "store"
    with fourfold.open(root) as store:
        space = store.space(DID, history=request.param)
        lived_in(space)
        space.transact([{"op": "set", "id": f"e{n}", "value": {"n": n}} for n in range(9)])
        for _ in range(REVISIONS):
            space.patch("e5", INCREMENT)
        space.maintain()
    return root


@pytest.fixture
def space(filled, root):
    """A space with an entity of many revisions, and others around it."""
    shutil.copytree(filled, root, dirs_exist_ok=True)
    with fourfold.open(root) as store:
        yield store.space(DID)


def change(path, *statements):
    connection = apsw.Connection(str(path))
    connection.pragma("foreign_keys", 0)
    for sql in statements:
        connection.execute(sql)
    connection.close()


def test_verify_never_pauses_in_a_read_transaction(space):
    database, readers, ticks = space.database, [], itertools.count()
    database.pauses = Pauses(
        lambda: next(ticks),
        lambda: True,
        # Every step is long enough for a pause.
        clock=lambda: next(ticks) * 0.01,
        sleep=lambda _: readers.append(database._readers.in_use),
    )
    assert space.verify() == []
    assert len(readers) > 20
    assert set(readers) == {0}


def test_verify_reads_few_rows_in_one_transaction(space, monkeypatch):
    counts = []

    class Counting(HistoryReader):
        def all(self, sql, params=()):
            rows = super().all(sql, params)
            counts[-1] += len(rows)
            return rows

        def rows(self, sql, params=()):
            for row in super().rows(sql, params):
                counts[-1] += 1
                yield row

    def view(_, snapshot):
        counts.append(0)
        return Counting(snapshot, space.history_kind.sql)

    monkeypatch.setattr(type(space.history_kind), "view", view)
    assert space.verify() == []
    # At most 41 rows of the log fit into a slice, and some rules read two more rows for each.
    assert max(counts) < 200, counts
    assert sum(counts) > 3 * REVISIONS


def test_log_check_ends_despite_a_faster_writer(space):
    steps = itertools.count()
    patch = {"op": "patch", "id": "e5", "patches": INCREMENT}

    def open_view():
        assert next(steps) < 100
        # More rows than one slice holds.
        space.transact([patch] * 50)
        return space.step_view()

    for rule in verify.rules(space.history_kind):
        if rule.in_order is not None:
            steps, until = itertools.count(), space.position()
            assert list(verify._in_order(open_view, rule.in_order(), until)) == []
            assert next(steps) > REVISIONS // 50


def test_verify_finds_no_problem_while_others_commit_and_collect(space):
    failures, runs = [], 0

    def write():
        try:
            for number in range(60):
                space.patch("e5", INCREMENT)
                space.transact([{"op": "set", "id": f"e{n}", "value": {"m": n}} for n in range(9)])
                space.branches.create(f"b{number}")
                space.patch("e5", INCREMENT, branch=f"b{number}")
                space.branches.delete(f"b{number}")
                if number % 5 == 0:
                    space.gc(GcPolicy(keep_seqs=REVISIONS - 10 * number))
        except Exception as error:  # noqa: BLE001 - shown by the assertion
            failures.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    while writer.is_alive():
        assert space.verify() == []
        runs += 1
    writer.join()
    assert failures == []
    assert space.verify() == []
    assert space.horizon() > 0
    assert runs


@pytest.mark.parametrize(
    "damage",
    [
        'UPDATE "commit" SET original = CAST(original AS BLOB) WHERE seq IN (9, 200)',
        "UPDATE head SET id = CAST(id AS BLOB) WHERE id = 'e4'",
        "UPDATE head SET id = CAST(x'ff' AS TEXT), op_index = 'x' WHERE id = 'e4'",
        "UPDATE head SET seq = 'x' WHERE id > 'e4'",
    ],
)
def test_types_of_columns_are_checked_in_slices_as_at_once(space, damage):
    path, history = space.database.path, space.history_kind
    space.database.close()
    change(path, damage)
    with opened(path, history) as view:
        at_once = list(map(str, column_types.check(view, None)))
    in_slices = column_types.check_in_slices(lambda: opened(path, history), 40)
    assert sorted(map(str, in_slices)) == sorted(at_once)
    assert at_once


def test_table_that_is_dropped_meanwhile_is_no_problem(space):
    space.indexes.create("words", ["/text"], kind="text")
    steps = itertools.count()

    def open_view():
        if next(steps) == 1:
            space.indexes.drop("words")
        return space.step_view()

    assert list(column_types.check_in_slices(open_view, 1_000)) == []


def test_occurrence_before_the_first_one_is_found(root):
    with fourfold.open(root) as store:
        space = store.space(DID, history="facts")
        space.set("a", {"n": 1})
        for branch in ("f", "g"):
            space.branches.create(branch)
        for branch in ("f", "g"):
            space.patch("a", INCREMENT, branch=branch)
        path, newest = space.database.path, space.position()
    change(
        path,
        f"UPDATE fact SET branch = 'g', seq = {newest}, commit_ref = (SELECT hash FROM"
        f' "commit" WHERE seq = {newest}) WHERE seq = {newest - 1}',
    )
    [problem] = verify_file(path)
    assert "occurs before its first occurrence" in problem.message


def test_only_check_of_indexes_reads_all_rows_of_one_state(space, monkeypatch):
    long_views = []
    read = space.database.read_in_background

    def read_in_background():
        long_views.append("read")
        return read()

    monkeypatch.setattr(space.database, "read_in_background", read_in_background)
    assert space.verify() == []
    assert long_views == []
    space.indexes.create("numbers", "/n")
    long_views.clear()
    assert space.verify() == []
    assert long_views == ["read"]


def test_verify_of_large_commit_makes_no_call_for_each_column(root, monkeypatch):
    with fourfold.open(root) as store:
        space = store.space(DID)
        space.transact([{"op": "set", "id": f"e{n}", "value": {"n": n}} for n in range(1_000)])
        calls, read = [], revision_rules.as_written
        monkeypatch.setattr(
            revision_rules, "as_written", lambda value: calls.append(1) or read(value)
        )
        with space.view() as view:
            assert revision_rules.sound(view, 1)
        # The columns of the commit itself.
        assert len(calls) < 20
