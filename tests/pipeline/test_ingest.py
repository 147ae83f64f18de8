"""Staged rows become commits: complete, in order, once, without bad rows. No Spark is needed."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from staged_rows import A, B, patched, put, row, staged

import fourfold
from fourfold.errors import (
    InvalidInput,
    NotFound,
    Refused,
    ReplayMismatch,
    StorageError,
    WriterLocked,
)
from fourfold.pipeline.documents import ingest as ingesting
from fourfold.pipeline.documents import staging
from fourfold.pipeline.documents.ingest import ingest
from fourfold.pipeline.documents.sink import Batch
from fourfold.pipeline.documents.staging import SINK_STAGING_AGE_S
from support.properties import examples


@pytest.fixture
def root(tmp_path):
    fourfold.open(tmp_path / "store").close()
    return tmp_path / "store"


def documents(root, did=A, branch=""):
    with fourfold.open(root, mode="r") as store:
        space = store.space(did)
        return {each: space.read(each, branch=branch).document for each in space.ids(branch)}


def seq(root, did=A):
    with fourfold.open(root, mode="r") as store:
        return store.space(did).seq() if did in store.spaces() else 0


def operations(root, entity, did=A):
    with fourfold.open(root, mode="r") as store:
        return [(each.op, each.data) for each in store.space(did).history(entity)]


@pytest.mark.parametrize("history", ["revisions", "facts"])
def test_batch_becomes_one_commit_per_space(root, history):
    done = put(
        root,
        [row("n", {"n": 1}), row("m", {"n": 2}, space=B)],
        [row("o", {"n": 3})],
        history=history,
    )
    assert (done.rows, done.commits, done.spaces, done.replayed) == (3, 2, 2, 0)
    assert documents(root) == {"n": {"n": 1}, "o": {"n": 3}}
    assert documents(root, B) == {"m": {"n": 2}}
    assert (seq(root), seq(root, B)) == (1, 1)
    with fourfold.open(root, mode="r") as store:
        assert store.space(A).history_kind.name == history
        assert store.space(A).verify() == []


@pytest.mark.parametrize("history", ["revisions", "facts"])
def test_repeated_batch_changes_nothing(root, history):
    rows = [row("n", {"n": 1}, seq=1), patched("n", "m", 2, seq=2)]
    put(root, rows, history=history)
    done = put(root, rows)
    assert (done.rows, done.commits, done.replayed) == (0, 0, 1)
    assert seq(root) == 1
    # The name identifies a batch: a task may compute different rows when it is repeated.
    put(root, [row("n", {"n": "other"})])
    assert documents(root) == {"n": {"n": 1, "m": 2}}


def test_next_batch_of_query_is_committed(root):
    put(root, [row("n", {"n": 1})], number=0)
    put(root, [row("n", {"n": 2})], number=1)
    put(root, [row("n", {"n": 3})], number=7)
    assert documents(root) == {"n": {"n": 3}}
    put(root, [row("n", {"n": 4})], session="query:another")
    assert documents(root) == {"n": {"n": 4}}


def test_batch_older_than_the_last_is_refused(root):
    put(root, [row("n", {"n": 1})], number=5)
    for number in (0, 4):
        with pytest.raises(ReplayMismatch, match="batch 5"):
            put(root, [row("n", {"n": 2})], number=number)
    assert seq(root) == 1


def test_batch_is_completed_after_crash_between_spaces(root, monkeypatch):
    rows = [row("n", {"n": 1}), row("m", {"n": 2}, space=B)]
    write = ingesting._write

    def stop_at_b(space, *given, **more):
        if space.did == B:
            raise KeyboardInterrupt
        return write(space, *given, **more)

    monkeypatch.setattr(ingesting, "_write", stop_at_b)
    with pytest.raises(KeyboardInterrupt):
        put(root, rows)
    monkeypatch.undo()
    assert (seq(root), seq(root, B)) == (1, 0)
    done = put(root, rows)
    assert (done.rows, done.replayed) == (1, 1)
    assert (seq(root), seq(root, B)) == (1, 1)


def test_rows_are_committed_by_order_column(root):
    rows = [row("n", {"n": 0}, seq=0)]
    rows += [patched("n", f"k{number}", number, seq=number) for number in range(1, 40)]
    rows += [row("n", op="delete", seq=40), row("n", {"again": True}, seq=41)]
    random.Random(7).shuffle(rows)
    put(root, rows[:15], rows[15:16], rows[16:], [])
    expected = ["set", *["patch"] * 39, "delete", "set"]
    assert [op for op, _ in operations(root, "n")] == expected
    paths = [data[0]["path"] for op, data in operations(root, "n") if op == "patch"]
    assert paths == [f"/k{number}" for number in range(1, 40)]


def test_duplicate_entity_without_order_is_refused(root):
    once = [row("n", {"n": 1}), row("m", {"n": 2})]
    put(root, once, [row("o", {})], order=())
    for tasks in ([[row("p", {}), row("p", {})]], [[row("p", {})], [row("p", {})]]):
        with pytest.raises(InvalidInput, match="duplicate row for 'p'"):
            put(root, *tasks, number=1, order=())
    assert sorted(documents(root)) == ["m", "n", "o"]


def test_branches_are_separate_commits_in_one_transaction(root):
    with fourfold.open(root) as store:
        space = store.space(A)
        space.set("n", {"n": 1})
        space.branches.create("draft")
    done = put(root, [row("n", {"n": 2}), patched("n", "m", 3, branch="draft"), row("o", {})])
    assert done.commits == 2
    assert documents(root) == {"n": {"n": 2}, "o": {}}
    assert documents(root, branch="draft") == {"n": {"n": 1, "m": 3}}


def test_large_batch_is_several_commits_in_one_transaction(root, monkeypatch):
    monkeypatch.setattr("fourfold.pipeline.documents.ingest.SINK_COMMIT_OPERATIONS", 10)
    monkeypatch.setattr("fourfold.pipeline.documents.ingest.SINK_REMEMBERED_OPERATIONS", 25)
    rows = [row(f"e{number % 7}", {"n": 0}, seq=number) for number in range(7)]
    rows += [patched(f"e{number % 7}", f"k{number}", number, seq=number) for number in range(7, 95)]
    bad = [row("z", [{"op": "remove", "path": "/none"}], op="patch", seq=99)]
    with pytest.raises(InvalidInput):
        put(root, rows, bad)
    assert seq(root) == 0
    done = put(root, rows)
    assert done.commits == 10
    assert seq(root) == 10
    actual = documents(root)
    assert actual["e3"] == {"n": 0, **{f"k{n}": n for n in range(7, 95) if n % 7 == 3}}
    assert put(root, rows).replayed == 1


def test_sorted_runs_of_a_file_are_merged_in_order(root, monkeypatch):
    monkeypatch.setattr("fourfold.pipeline.documents.staging.SINK_RUN_ROWS", 4)
    monkeypatch.setattr("fourfold.pipeline.documents.staging.SINK_BATCH_ROWS", 30)
    monkeypatch.setattr("fourfold.pipeline.documents.staging.SINK_FILES_OPEN", 2)
    monkeypatch.setattr("fourfold.pipeline.documents.staging.SINK_MERGE_ROWS", 1)
    rows = [row("n", {"n": number}, seq=number) for number in range(200)]
    random.Random(3).shuffle(rows)
    put(root, *(rows[start::5] for start in range(5)))
    assert [data["n"] for _, data in operations(root, "n")] == list(range(200))


def test_long_run_is_read_in_steps(root, monkeypatch):
    monkeypatch.setattr("fourfold.pipeline.documents.staging.SINK_MERGE_ROWS", 1)
    put(root, [row("n", {"n": number}, seq=number) for number in range(50)])
    assert [data["n"] for _, data in operations(root, "n")] == list(range(50))


def test_invalid_session_name_is_refused(root):
    for name in ("job:" + "x" * 2000, "job:a\x00b"):
        with pytest.raises(InvalidInput):
            put(root, [row("n", {})], session=name)


BAD_ROWS = [
    (row("n", "[1]"), "must be a JSON object"),
    (row("n", "{"), "not valid JSON"),
    (row("n", None), "requires data"),
    (row("n", {"n": 1}, op="delete"), "must not have data"),
    (row("n", {"n": 1}, op="replace"), "unknown operation 'replace'"),
    (row("n", {"n": 1}, op=None), "unknown operation None"),
    (row("", {"n": 1}), "is not the id of an entity"),
    (row(None, {"n": 1}), "is not the id of an entity"),
    (row("n", {"n": 1}, space="nowhere"), "is not the DID of a space"),
    (row("n", {"n": 1}, space=None), "is not the DID of a space"),
    (row("n", {"n": 1}, branch="a b"), "unknown branch 'a b'"),
    (row("n", {"n": 1}, branch=None), "is not the name of a branch"),
    (row("n", {"n": 1}, seq=None), "order column 'seq' is null"),
    (row("n", '[{"op": "jump", "path": "/a"}]', op="patch"), "jump"),
    (row("n", '{"op": "add"}', op="patch"), ""),
]


@pytest.mark.parametrize(("bad", "cause"), BAD_ROWS, ids=[cause for _, cause in BAD_ROWS])
def test_bad_row_is_refused_before_anything_is_written(root, bad, cause):
    good = [row("a", {"n": 1}), row("b", {"n": 1}, space=B)]
    with pytest.raises(InvalidInput) as caught:
        put(root, good, [*good, bad])
    message = caught.value.message
    assert "row 2 of partition 1" in message
    assert cause in message
    assert repr(str(bad["space"])) in message
    assert caught.value.details["rows"] == 1
    assert (seq(root), seq(root, B)) == (0, 0)


def test_skip_bad_skips_and_reports_rows(root):
    done = put(root, [row("n", "["), row("m", {"n": 1}), row("o", "]")], skip_bad=True)
    assert (done.rows, done.refused_rows) == (1, 2)
    assert [each.id for each in done.refused] == ["n", "o"]
    assert documents(root) == {"m": {"n": 1}}


@pytest.mark.parametrize(
    ("bad", "error", "cause"),
    [
        (row("n", [{"op": "remove", "path": "/x"}], op="patch", space=B), InvalidInput, "/x"),
        (row("n", {}, branch="none", space=B), NotFound, "'none'"),
    ],
)
@pytest.mark.parametrize("exists", [True, False])
def test_invalid_row_stops_batch_in_every_space(root, bad, error, cause, exists):
    if exists:
        with fourfold.open(root) as store:
            store.space(B)
    with pytest.raises(error) as caught:
        put(root, [row("a", {"n": 1}), bad])
    assert B in caught.value.message
    assert cause in caught.value.message
    assert (seq(root), seq(root, B)) == (0, 0)
    with fourfold.open(root, mode="r") as store:
        assert store.spaces() == ([B] if exists else [])


def test_patch_error_names_its_row(root):
    rows = [
        row("a", {"n": 1}),
        row("b", {}),
        row("c", [{"op": "remove", "path": "/x"}], op="patch"),
    ]
    with pytest.raises(InvalidInput, match=r"did:web:a\.example: row 2 of partition 0"):
        put(root, rows)
    assert seq(root) == 0


def test_locked_space_error_names_holder(root):
    with fourfold.open(root) as store:
        store.space(A).set("n", {"n": 0})
        with pytest.raises(WriterLocked) as caught:
            put(root, [row("n", {"n": 1})])
        assert "this process" in caught.value.message
        assert "mode='r'" in caught.value.hint
    put(root, [row("n", {"n": 1})])
    assert documents(root) == {"n": {"n": 1}}


def test_existing_space_keeps_its_history_kind(root):
    with fourfold.open(root) as store:
        store.space(A, history="facts")
    put(root, [row("n", {"n": 1})], history="revisions")
    assert documents(root) == {"n": {"n": 1}}
    with pytest.raises(Refused), fourfold.open(root, mode="r") as store:
        store.space(A, history="revisions")


def test_empty_batch_does_nothing(root):
    assert put(root, [], []).spaces == 0
    assert ingest(root, [], Batch("query:test")).rows == 0


def test_staged_files_are_private_and_removed(root):
    folder = root / ".pipeline" / "staging" / "query-1"
    [left] = staged(folder, [row("n", {"n": 1})])
    files = sorted(folder.iterdir())
    assert [file.suffix for file in files] == [".arrow", ".index"]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    staging.remove([left, left, None])
    assert list(folder.iterdir()) == []


def test_sweep_removes_only_leftover_files(root):
    place = root / ".pipeline" / "staging"
    old = staged(place / "query-1", [row("n", {"n": 1})])
    staged(place / "query-2", [row("n", {"n": 1})])
    staged(place / "write-1", [row("n", {"n": 1})])
    staging.sweep(place, place / "query-1", until=staging.newest_mtime(old))
    assert sorted(path.name for path in place.iterdir()) == ["query-2", "write-1"]
    later = (place / "write-1").stat().st_mtime + SINK_STAGING_AGE_S + 60
    staging.sweep(place, place / "query-1", until=0, now=later)
    assert sorted(path.name for path in place.iterdir()) == ["query-2"]


def test_late_sweep_keeps_files_of_next_attempt(root):
    folder = root / ".pipeline" / "staging" / "query-1"
    old = staged(folder, [row("n", {"n": 1})])
    new = staged(folder, [row("n", {"n": 1})])
    for path in folder.glob(Path(new[0].path).stem + ".*"):
        os.utime(path, (staging.newest_mtime(old) + 1,) * 2)
    staging.sweep(folder.parent, folder, until=staging.newest_mtime(old))
    assert sorted(path.stem for path in folder.iterdir()) == [Path(new[0].path).stem] * 2


def test_missing_staged_file_is_named_before_writing(root):
    folder = root / ".pipeline" / "staging" / "query-1"
    left = staged(folder, [row("n", {"n": 1})], [row("m", {"n": 1}, space=B)])
    staging.remove(left[1:])
    with pytest.raises(StorageError, match="00001-"):
        ingest(root, left, Batch("query:test"))
    assert seq(root) == 0


def test_invalid_columns_are_refused():
    good = [("id", "string"), ("data", "string")]
    for fields, options, word in [
        (good, {}, "space"),
        ([("space", "string"), *good], {"space": A}, "pass either"),
        ([*good, ("colour", "string")], {"space": A}, "colour"),
        ([("id", "string")], {"space": A}, "'id' and 'data'"),
        ([("id", "bigint"), ("data", "string")], {"space": A}, "bigint"),
        ([*good, ("seq", "double")], {"space": A}, "double"),
        (good, {"space": A, "order": ["at"]}, "unknown column at"),
        (good, {"space": "nowhere"}, "DID"),
        ([*good, *good], {"space": A}, "duplicate column"),
    ]:
        with pytest.raises(InvalidInput, match=word):
            staging.shape_of(fields, **{"space": None, "order": None, **options})
    shape = staging.shape_of([*good, ("at", "timestamp")], space=A, order=["at"])
    assert shape.order == ("at",)


def test_tasks_stage_without_sqlite(tmp_path):
    code = (
        "import sys\n"
        "sys.modules['apsw'] = sys.modules['sqlite3'] = None\n"
        "import pyarrow as pa\n"
        "import fourfold.pipeline.documents.sink\n"
        "from fourfold.pipeline.documents import json_lines, staging\n"
        f"shape = staging.ColumnRoles({A!r}, ())\n"
        "rows = pa.RecordBatch.from_pydict({'id': ['n'], 'data': ['{}']})\n"
        f"print(staging.stage([rows], shape, {str(tmp_path)!r}, 0).rows)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("1\n", 0), done.stderr


KILLED_AT = {"kernel.commit.before": (0, 0), "kernel.commit.after": (1, 0)}


@pytest.mark.parametrize("point", list(KILLED_AT))
def test_killed_commit_is_completed_once(root, point):
    with fourfold.open(root) as store:
        for did in (A, B):
            store.space(did)
    child = Path(__file__).with_name("ingest_child.py")
    killed = subprocess.run(
        [sys.executable, child, root, point], capture_output=True, text=True, check=False
    )
    assert killed.returncode == -9, killed.stderr
    assert (seq(root), seq(root, B)) == KILLED_AT[point]
    again = put(root, [row("n", {"n": 1}), row("m", {"n": 2}, space=B)])
    assert again.replayed == KILLED_AT[point][0]
    assert (seq(root), seq(root, B)) == (1, 1)


ROWS = st.lists(
    st.tuples(
        st.sampled_from([A, B]),
        st.sampled_from(["n", "m", "o"]),
        st.sampled_from(["set", "patch", "delete"]),
        st.integers(0, 9),
    ),
    max_size=30,
)


@settings(max_examples=examples(15))
@given(rows=ROWS, tasks=st.integers(1, 4), cuts=st.integers(1, 4), data=st.data())
def test_ingest_equals_row_by_row_writes(tmp_path_factory, rows, tasks, cuts, data):
    root = tmp_path_factory.mktemp("store")
    fourfold.open(root / "x").close()
    made = []
    for number, (space, entity, op, value) in enumerate(rows):
        if op == "patch":
            made.append(patched(entity, f"k{value}", number, space=space, seq=number))
        else:
            document = {"n": value} if op == "set" else None
            made.append(row(entity, document, space=space, op=op, seq=number))
    expected: dict[tuple[str, str], dict | None] = {}
    for each, (space, entity, op, value) in zip(made, rows, strict=True):
        known = expected.get((space, entity))
        if op == "patch":
            expected[space, entity] = {**(known or {}), f"k{value}": each["seq"]}
        else:
            expected[space, entity] = {"n": value} if op == "set" else None
    size = len(made) // cuts + 1
    for number, start in enumerate(range(0, len(made), size)):
        batch = made[start : start + size]
        spread = [[] for _ in range(tasks)]
        for each in batch:
            spread[data.draw(st.integers(0, tasks - 1))].append(each)
        for _ in range(data.draw(st.integers(1, 2))):
            put(root / "x", *spread, number=number)
    actual = {}
    with fourfold.open(root / "x", mode="r") as store:
        for did in store.spaces():
            space = store.space(did)
            for entity in {entity for found_in, entity in expected if found_in == did}:
                actual[did, entity] = space.read(entity).document
            assert sum(len(space.history(entity)) for entity in ("n", "m", "o")) == sum(
                each["space"] == did for each in made
            )
    assert actual == expected
