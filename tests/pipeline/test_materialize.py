"""Materialized tables equal the spaces, are replaced atomically, and rewritten only where they
changed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import fourfold
from fourfold.errors import CorruptData, InvalidInput, Refused
from fourfold.pipeline import jobs
from fourfold.pipeline.documents import delta_log, key_ranges
from fourfold.pipeline.documents.fold import folded_schema
from fourfold.pipeline.jobs.table_folder import TableFolder
from fourfold.store.table_manifest import MaterializedFile

pytestmark = pytest.mark.spark


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "store"
    with fourfold.open(folder) as store:
        for name in ("did:key:zA", "did:key:zB", "did:key:zB-1", "did:key:zC"):
            space = store.space(name, history="facts" if name.endswith("C") else "revisions")
            fill(space, 0)
    return folder


def fill(space, number):
    """Write three entities that are set, patched and deleted, different for each number."""
    space.set("set", {"n": number})
    space.set("patched", {"n": number})
    space.patch("patched", [{"op": "increment", "path": "/n", "by": 1}])
    space.set("deleted", {})
    space.delete("deleted")


def run(root, into, spark, **options):
    return jobs.run("materialize", root, {"into": str(into), **options}, spark=spark)


def table(into, name="state"):
    """Read the table with a Parquet reader, by space, branch and entity."""
    rows = pq.read_table(into / "current" / name).to_pylist()
    result = {(row["space"], row["branch"], row["id"]): row for row in rows}
    assert len(result) == len(rows)
    return result


def expected(root, branches=("",)):
    result = {}
    with fourfold.open(root, mode="r") as store:
        for did in store.spaces():
            space = store.space(did)
            for branch in branches:
                if branch in {each.name for each in space.branches.list(deleted=True)}:
                    ids = {each["id"] for each in _operations(space)}
                    for entity, state in space.read_many(sorted(ids), branch).items():
                        if state is not None:
                            result[did, branch, entity] = state
    return result


def _operations(space):
    return [each for entry in space.log() for each in entry.original.get("operations", ())]


def check(root, into, branches=("",)):
    rows, states = table(into), expected(root, branches)
    assert rows.keys() == states.keys()
    for key, row in rows.items():
        state = states[key]
        document = None if row["document"] is None else json.loads(row["document"])
        assert (document, row["op"], row["seq"]) == (state.document, state.op, state.seq)


def test_materialized_table_equals_reads_now_and_at_a_seq(root, tmp_path, spark):
    into = tmp_path / "out"
    done = run(root, into, spark)
    assert done.rows_out == 12
    check(root, into)
    before = (into / "current").readlink()
    assert run(root, into, spark).outcome == "nothing"
    assert (into / "current").readlink() == before
    run(root, into, spark, at="2")
    assert {row["seq"] for row in table(into).values()} == {1, 2}


def test_materialize_rewrites_only_changed_files(root, tmp_path, spark, monkeypatch):
    # Two rows per file, so that one change leaves most files unchanged.
    monkeypatch.setattr("fourfold.limits.MATERIALIZED_FILE_ROWS", 2)
    into = tmp_path / "out"
    run(root, into, spark)
    before = {path.name: path.stat().st_ino for path in (into / "current" / "state").iterdir()}
    assert len(before) >= 6
    with fourfold.open(root) as store:
        store.space("did:key:zB").patch("set", [{"op": "add", "path": "/new", "value": [1]}])
    done = run(root, into, spark)
    assert done.report["entities_folded"] == 1
    after = {path.name: path.stat().st_ino for path in (into / "current" / "state").iterdir()}
    assert len(before.items() - after.items()) == 1
    assert done.report["files_kept"] == len(before) - 1
    check(root, into)


def test_materialize_tracks_added_removed_and_recreated_spaces(root, tmp_path, spark):
    into = tmp_path / "out"
    run(root, into, spark)
    with fourfold.open(root) as store:
        fill(store.space("did:key:zAA"), 7)
        store.space("did:key:zC").set("zz", {"last": True})
        store.space("did:key:zA").delete("set")
        store.space("did:key:zA").set("deleted", {"again": 1})
    for did in ("did:key:zB", "did:key:zB-1"):
        for path in (root / "spaces").glob(f"{did}.sqlite*"):
            path.unlink()
    with fourfold.open(root) as store:
        # A space of the same name with a lower seq is another one.
        store.space("did:key:zB-1").set("set", {"another": "life"})
    run(root, into, spark)
    check(root, into)
    assert ("did:key:zB", "", "set") not in table(into)
    assert table(into)["did:key:zB-1", "", "set"]["seq"] == 1


def test_new_branch_shows_inherited_entities(root, tmp_path, spark):
    into = tmp_path / "out"
    run(root, into, spark, branch="*")
    with fourfold.open(root) as store:
        space = store.space("did:key:zA")
        space.branches.create("draft", at=2)
        space.set("own", {"draft": True}, branch="draft")
    run(root, into, spark, branch="*")
    check(root, into, branches=("", "draft"))
    assert table(into)["did:key:zA", "draft", "set"]["seq"] == 1


def test_reader_of_previous_version_is_not_disturbed(root, tmp_path, spark):
    into = tmp_path / "out"
    run(root, into, spark)
    files = list(TableFolder(into).table().iterdir())
    with fourfold.open(root) as store:
        store.space("did:key:zA").set("set", {"n": 2})
    run(root, into, spark)
    assert sum(pq.read_metadata(path).num_rows for path in files) == 12
    with fourfold.open(root) as store:
        store.space("did:key:zA").set("set", {"n": 3})
    run(root, into, spark)
    assert len(list((into / "versions").iterdir())) == 2
    assert not [path for path in into.iterdir() if path.name.startswith(".staging")]


@pytest.mark.usefixtures("compiled")  # Spark reads variants with compiled code only
def test_variant_table_can_be_queried(root, tmp_path, spark):
    into = tmp_path / "out"
    run(root, into, spark, variant=True)
    rows = spark.read.parquet(str(into / "current" / "variant"))
    actual = rows.selectExpr("space", "id", "variant_get(document, '$.n', 'int') as n").collect()
    assert {(row.space, row.n) for row in actual if row.id == "patched"} == {
        (did, 1) for did, _, entity in table(into) if entity == "patched"
    }
    # The text stays authoritative; the derived table can be added later.
    check(root, into)
    assert run(root, into, spark).outcome == "done"
    assert not (into / "current" / "variant").exists()


def test_materialize_of_empty_store_writes_empty_table(tmp_path, spark):
    with fourfold.open(tmp_path / "store"):
        pass
    run(tmp_path / "store", tmp_path / "out", spark)
    assert table(tmp_path / "out") == {}
    with fourfold.open(tmp_path / "store") as store:
        fill(store.space("did:key:zA"), 1)
    run(tmp_path / "store", tmp_path / "out", spark)
    check(tmp_path / "store", tmp_path / "out")


def test_materialize_refuses_folder_of_other_origin(root, tmp_path, spark):
    into = tmp_path / "out"
    run(root, into, spark)
    with pytest.raises(Refused, match="branch"):
        run(root, into, spark, branch="*")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").touch()
    with pytest.raises(InvalidInput, match="other files than tables"):
        run(root, tmp_path / "photos", spark)
    (into / "current" / "manifest.json").write_text("{}")
    with pytest.raises(CorruptData, match=r"manifest\.json"):
        run(root, into, spark)


def test_delta_log_shows_same_rows(root, tmp_path, spark):
    delta = pytest.importorskip("deltalake")
    into = tmp_path / "out"
    run(root, into, spark, delta=True)
    assert delta.DeltaTable(str(into)).to_pyarrow_table().num_rows == 12
    with fourfold.open(root) as store:
        store.space("did:key:zA").set("more", {"n": 3})
    run(root, into, spark, delta=True)
    actual = delta.DeltaTable(str(into))
    assert actual.to_pyarrow_table().num_rows == 13
    assert actual.transaction_version("fourfold") == 2
    # The log is derived: a missing one is created without folding again.
    assert run(root, into, spark, delta=True).outcome == "nothing"


def test_delta_log_is_checkpointed_and_needs_no_package(root, tmp_path, spark, monkeypatch):
    monkeypatch.setattr(delta_log, "CHECKPOINT_COMMITS", 2)
    into = tmp_path / "out"
    with monkeypatch.context() as hidden:
        hidden.setitem(sys.modules, "deltalake", None)
        for number in range(3):
            with fourfold.open(root) as store:
                store.space("did:key:zA").set("more", {"n": number})
            run(root, into, spark, delta=True)
    assert (into / "_delta_log" / f"{2:020}.checkpoint.parquet").exists()
    delta = pytest.importorskip("deltalake")
    table = delta.DeltaTable(str(into))
    assert table.transaction_version("fourfold") == 3
    assert table.to_pyarrow_table(filters=[("id", "=", "more")]).column("document").to_pylist() == [
        '{"n":2}'
    ]


def test_delta_log_of_deltalake_is_continued(root, tmp_path, spark):
    """Earlier versions wrote the log with that package."""
    delta = pytest.importorskip("deltalake")
    into = tmp_path / "out"
    run(root, into, spark)
    state = into / "current" / "state"
    file = next(state.glob("*.parquet"))
    path = file.resolve().relative_to(into.resolve())
    action = delta.transaction.AddAction(
        path=str(path),
        size=file.stat().st_size,
        partition_values={},
        modification_time=1,
        data_change=True,
        stats='{"numRecords":12}',
    )
    delta.transaction.create_table_with_add_actions(
        str(into),
        delta.Schema.from_arrow(folded_schema()),
        [action],
        mode="error",
        name="state",
        commit_properties=delta.CommitProperties(
            app_transactions=[delta.Transaction("fourfold", 1)]
        ),
    )
    assert run(root, into, spark, delta=True).outcome == "nothing"
    with fourfold.open(root) as store:
        store.space("did:key:zA").set("more", {"n": 3})
    run(root, into, spark, delta=True)
    table = delta.DeltaTable(str(into))
    assert (table.version(), table.to_pyarrow_table().num_rows) == (1, 13)


def test_tables_inside_the_spaces_are_refused(root, spark):
    with pytest.raises(InvalidInput, match="outside the folder of the model"):
        run(root, root / "spaces" / "tables", spark)
    assert run(root, root.parent / "store" / "spaces-tables", spark).outcome == "done"


def test_overlapping_ranges_are_not_disjoint():
    def file(first, last):
        return MaterializedFile("f", 1, 1, first, last)

    assert key_ranges.are_disjoint([file(("b",), ("c",)), file(("a",), ("a",))])
    assert not key_ranges.are_disjoint([file(("a",), ("c",)), file(("b",), ("d",))])
    assert not key_ranges.are_disjoint([file(("b",), ("a",))])


CHILD = """
import sys
from fourfold.pipeline import jobs
from fourfold.pipeline.documents import materialize as documents
from fourfold.pipeline.jobs import materialize, table_folder
point = sys.argv[3]
def die(*_, **__): import os, signal; os.kill(os.getpid(), signal.SIGKILL)
if point == "folded":
    materialize.Materialize.commit = die
elif point == "written":
    documents._place = die
elif point == "placed":
    table_folder.Path.symlink_to = die
elif point == "shown":
    before = table_folder.TableFolder.replace
    table_folder.TableFolder.replace = lambda *a: (before(*a), die())
jobs.run("materialize", sys.argv[1], {"into": sys.argv[2]}, master="local[1]")
"""


@pytest.mark.slow
@pytest.mark.parametrize("point", ["written", "folded", "placed", "shown"])
def test_killed_materialize_keeps_old_table_until_completed(root, tmp_path, spark, point):
    into = tmp_path / "out"
    run(root, into, spark)
    old = table(into)
    with fourfold.open(root) as store:
        store.space("did:key:zA").set("set", {"n": 9})
    killed = subprocess.run(
        [sys.executable, "-c", CHILD, str(root), str(into), point],
        env={**os.environ, "PYTHONPATH": str(Path(fourfold.__file__).parents[1])},
        capture_output=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-2000:]
    if point == "shown":
        check(root, into)
    else:
        assert table(into) == old
    run(root, into, spark)
    check(root, into)
    assert not [path for path in into.iterdir() if path.name.startswith(".staging")]
    assert len(list((into / "versions").iterdir())) <= 2


# Many stores


def tenants(tmp_path):
    for name in ("one", "two", "three"):
        with fourfold.open(tmp_path / "tenants" / name) as store:
            fill(store.space(f"did:key:{name}"), len(name))
    fourfold.open(tmp_path / "home").close()
    return str(tmp_path / "tenants" / "*")


def expected_of(roots):
    result = {}
    for root in sorted(Path(roots).parent.iterdir()):
        result |= expected(root)
    return result


def shown(rows):
    return {
        key: (None if row["document"] is None else json.loads(row["document"]), row["seq"])
        for key, row in rows.items()
    }


def online(states):
    return {key: (state.document, state.seq) for key, state in states.items()}


def test_many_stores_are_materialized_together(spark, tmp_path):
    roots, into = tenants(tmp_path), tmp_path / "tables"
    first = run(tmp_path / "home", into, spark, roots=roots)
    assert (first.report["spaces"], first.rows_out) == (3, 9)
    assert shown(table(into)) == online(expected_of(roots))
    assert run(tmp_path / "home", into, spark, roots=roots).outcome == "nothing"
    with fourfold.open(tmp_path / "tenants" / "two") as store:
        store.space("did:key:two").set("later", {"n": 1})
    with fourfold.open(tmp_path / "tenants" / "four") as store:
        fill(store.space("did:key:four"), 4)
    later = run(tmp_path / "home", into, spark, roots=roots)
    assert later.report["entities_folded"] == 1 + 3
    assert shown(table(into)) == online(expected_of(roots))
    with pytest.raises(Refused, match="contains tables of"):
        run(tmp_path / "tenants" / "one", into, spark)


def test_spaces_of_two_stores_are_refused(spark, tmp_path):
    roots, into = tenants(tmp_path), tmp_path / "tables"
    with pytest.raises(InvalidInput, match="option --roots requires model 'documents'"):
        run(tmp_path / "home", into, spark, roots=roots, model="sessions")
    with fourfold.open(tmp_path / "tenants" / "two") as store:
        store.space("did:key:one").set("x", {})
    with pytest.raises(InvalidInput, match="is in two stores"):
        run(tmp_path / "home", into, spark, roots=roots)
    assert not into.exists()
