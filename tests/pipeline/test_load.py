"""The job `load`: JSON lines, Parquet files and DataFrames into spaces, once."""

from __future__ import annotations

import json

import pytest

import fourfold
from fourfold.errors import InvalidInput, NotFound, ReplayMismatch
from fourfold.pipeline import jobs
from fourfold.pipeline.documents import load as documents_load
from fourfold.pipeline.jobs import load as loading

pytestmark = pytest.mark.spark

A, B = "did:web:a.example", "did:web:b.example"


@pytest.fixture
def root(tmp_path):
    fourfold.open(tmp_path / "store").close()
    return tmp_path / "store"


@pytest.fixture
def load(spark, root):
    def run(*files, **given):
        control = {name: given.pop(name) for name in ("dry_run", "skip_bad") if name in given}
        options = {"from": list(files), **given}
        return jobs.run("load", root, options, spark=spark, **control)

    return run


def documents(root, did=A):
    with fourfold.open(root, mode="r") as store:
        space = store.space(did)
        return {entity: space.read(entity).document for entity in space.ids()}


def seq(root, did=A):
    with fourfold.open(root, mode="r") as store:
        return store.space(did).seq() if did in store.spaces() else 0


def lines(path, *values):
    path.write_text(
        "".join(f"{value if isinstance(value, str) else json.dumps(value)}\n" for value in values)
    )
    return path


def test_json_lines_are_loaded_once(load, root, tmp_path):
    file = lines(
        tmp_path / "notes.ndjson",
        '{"id": "a", "big": 123456789012345678901234567890, "small": 0.1}',
        "",
        '{"id": 7, "text": "ä"}',
    )
    planned = load(file, space=A, dry_run=True)
    assert (planned.outcome, planned.input["positions"]) == ("planned", file.stat().st_size)
    assert seq(root) == 0
    done = load(file, space=A)
    assert (done.outcome, done.rows_in, done.rows_out) == ("done", 2, 2)
    assert documents(root) == {
        "a": {"id": "a", "big": 123456789012345678901234567890, "small": 0.1},
        "7": {"id": 7, "text": "ä"},
    }
    assert load(file, space=A).outcome == "nothing"
    assert seq(root) == 1
    lines(file, {"id": "a", "n": 2})
    assert load(file, space=A).rows_out == 1
    assert seq(root) == 2
    with pytest.raises(NotFound):
        load(tmp_path / "nowhere.ndjson", space=A)


def test_file_changed_during_load_is_loaded_by_the_next_run(load, root, tmp_path, monkeypatch):
    file = lines(tmp_path / "notes.ndjson", {"id": "a", "n": 1})
    commit = loading.Load.commit

    def change_and_commit(self, context, plan, result):
        lines(file, {"id": "a", "n": 2}, {"id": "b", "n": 2})
        return commit(self, context, plan, result)

    with monkeypatch.context() as patched:
        patched.setattr(loading.Load, "commit", change_and_commit)
        load(file, space=A)
    assert documents(root) == {"a": {"id": "a", "n": 1}}
    load(file, space=A)
    assert documents(root) == {"a": {"id": "a", "n": 2}, "b": {"id": "b", "n": 2}}


def test_named_load_with_changed_files_is_refused(load, root, tmp_path):
    file = lines(tmp_path / "notes.ndjson", {"id": "a"})
    load(file, space=A, job="first")
    assert load(file, space=A, job="first").outcome == "nothing"
    lines(file, {"id": "a"}, {"id": "b"})
    with pytest.raises(ReplayMismatch, match="first"):
        load(file, space=A, job="first")
    assert load(file, space=A, job="second").rows_out == 2


def test_operations_are_loaded_in_line_order(load, root, tmp_path):
    folder = tmp_path / "log"
    folder.mkdir()
    add = [{"op": "add", "path": "/m", "value": 2}]
    lines(
        folder / "1.jsonl",
        {"space": A, "id": "n", "op": "set", "value": {"n": 1}},
        {"space": A, "id": "n", "op": "patch", "patches": add},
        {"space": B, "id": "o", "data": {"n": 3}},
    )
    lines(
        folder / "2.jsonl",
        {"space": B, "id": "o", "op": "delete"},
        {"space": A, "id": "p", "op": "set", "data": json.dumps({"n": 4})},
        {"space": A, "id": "n", "op": "patch", "data": json.dumps(add)},
    )
    done = load(folder, **{"as": "operations"}, history="facts")
    assert done.report["spaces"] == 2
    assert documents(root) == {"n": {"n": 1, "m": 2}, "p": {"n": 4}}
    assert documents(root, B) == {}
    with fourfold.open(root, mode="r") as store:
        assert store.space(A).history_kind.name == "facts"
        assert [each.op for each in store.space(B).history("o")] == ["set", "delete"]


def test_bad_lines_are_reported_or_skipped(load, root, tmp_path):
    file = lines(tmp_path / "x.ndjson", {"id": "a"}, "{not json", {"no": "id"}, {"id": "b"}, "[]")
    with pytest.raises(InvalidInput) as caught:
        load(file, space=A)
    assert "row 1 of partition 0" in caught.value.message
    assert "x.ndjson" in caught.value.message
    assert caught.value.details["rows"] == 3
    assert seq(root) == 0
    assert jobs.history(root)[0].state == "failed"
    done = load(file, space=A, skip_bad=True)
    assert (done.rows_in, done.rows_out, len(done.skipped)) == (5, 2, 3)
    assert sorted(documents(root)) == ["a", "b"]


def test_parquet_files_and_dataframes_are_loaded(spark, load, root, tmp_path):
    frame = spark.range(0, 6, 1, 2).selectExpr(
        f"if(id < 3, '{A}', '{B}') as tenant",
        "id as key",
        "id * 2 as line",
        "7 - id as seq",
        "null as nothing",
    )
    frame.write.parquet(str(tmp_path / "files"))
    done = load(tmp_path / "files", id="key", space_from="tenant")
    assert done.rows_out == 6
    assert documents(root)["2"] == {"tenant": A, "key": 2, "line": 4, "seq": 5, "nothing": None}
    options = {"job": "frame", "as_": "documents", "space": A, "id": "key"}
    done = loading.load(frame, root, **options)
    assert done.rows_out == 6
    assert loading.load(frame, root, **options).rows_out == 0
    assert seq(root) == 2


def test_parquet_operations_are_loaded_by_order_columns(spark, load, root, tmp_path):
    frame = spark.range(0, 6, 1, 3).selectExpr(
        "'n' as id", "to_json(struct(id as n)) as data", "10 - id as seq"
    )
    frame.write.parquet(str(tmp_path / "files"))
    load(tmp_path / "files", **{"as": "operations"}, space=A)
    load(tmp_path / "files", **{"as": "operations"}, space=B, order="data,seq")
    with fourfold.open(root, mode="r") as store:
        output = [[each.data["n"] for each in store.space(did).history("n")] for did in (A, B)]
    assert output == [[5, 4, 3, 2, 1, 0], [0, 1, 2, 3, 4, 5]]


def test_load_killed_before_commit_stages_once(load, root, tmp_path, monkeypatch):
    file = lines(tmp_path / "notes.ndjson", {"id": "a"}, {"id": "b"})

    def stop(*_given):
        raise KeyboardInterrupt

    monkeypatch.setattr(documents_load, "ingest", stop)
    with pytest.raises(KeyboardInterrupt):
        load(file, space=A)
    monkeypatch.undo()
    monkeypatch.setattr(loading, "_read_files", stop)
    done = load(file, space=A)
    assert done.resumed
    assert done.rows_out == 2
    assert documents(root) == {"a": {"id": "a"}, "b": {"id": "b"}}


def test_dataframe_for_graphs_is_refused(spark, root):
    frame = spark.range(1)
    with pytest.raises(InvalidInput, match="loaded from files, got a DataFrame"):
        loading.load(frame, root, job="j", model="graphs")


def test_conflicting_load_options_are_refused(load, tmp_path, root):
    file = lines(tmp_path / "notes.txt", {"id": "a"})
    for options, word in [
        ({}, "--space"),
        ({"space": A, "space_from": "x"}, "--space"),
        ({"space": A}, "format"),
        ({"space": "nowhere", "format": "ndjson"}, "DID"),
    ]:
        with pytest.raises(InvalidInput, match=word):
            load(file, **options)
    assert seq(root) == 0


def test_csv_files_are_loaded_with_their_header(load, root, tmp_path):
    file = tmp_path / "orders.csv"
    file.write_text('id,name,total\na,"Smith, ""J""\nLtd.",9.5\nb,é,\n', encoding="utf-8")
    assert load(file, space=A).rows_out == 2
    assert documents(root) == {
        "a": {"id": "a", "name": 'Smith, "J"\nLtd.', "total": "9.5"},
        "b": {"id": "b", "name": "é", "total": None},
    }
    assert load(file, space=A).outcome == "nothing"
    load(file, space=B, schema="id string, name string, total double")
    assert documents(root, B)["a"]["total"] == 9.5


def test_csv_files_that_do_not_fit_are_refused(load, root, tmp_path):
    one, other = tmp_path / "1.csv", tmp_path / "2.csv"
    one.write_text("id,n\na,1\n")
    other.write_text("n,id\n2,b\n")
    with pytest.raises(InvalidInput, match="expected the columns id, n, got n, id"):
        load(one, other, space=A)
    with pytest.raises(InvalidInput, match="does not have the columns and types"):
        load(one, space=A, schema="id string, n boolean")
    other.write_text("id,id\n1,2\n")
    with pytest.raises(InvalidInput, match="distinct names"):
        load(other, space=A)
    with pytest.raises(InvalidInput, match="schema is for CSV"):
        load(lines(tmp_path / "a.ndjson", {"id": "a"}), space=A, schema="id string")
    assert seq(root) == 0


def test_documents_of_an_archive_are_loaded_at_a_point(load, root, tmp_path):
    with fourfold.open(tmp_path / "other") as other:
        other.space(A).set("a", {"n": 1})
        other.space(A).patch("a", [{"op": "add", "path": "/m", "value": 2}])
        other.space(A).set("gone", {})
        other.space(A).delete("gone")
        other.space(B, history="facts").set("b", {"n": 3})
        first = other.publish().point
        other.space(A).set("a", {"n": 4})
        other.publish()
    archive = str(tmp_path / "other" / "objects")
    for outcome in ("done", "nothing"):
        done = load(archive=archive, at=first.id, space=A)
        assert done.outcome == outcome
        assert documents(root) == {"a": {"n": 1, "m": 2}}
    with fourfold.open(root, mode="r") as store:
        assert store.spaces() == [A]
    load(archive=archive)
    assert documents(root) == {"a": {"n": 4}}
    assert documents(root, B) == {"b": {"n": 3}}
    assert seq(root) == 2


def test_options_of_files_are_refused_for_an_archive(load, tmp_path):
    with pytest.raises(InvalidInput, match="--from is for files"):
        load(tmp_path, archive="x")
    with pytest.raises(InvalidInput, match="requires model 'documents'"):
        load(archive="x", model="graphs")
    with pytest.raises(InvalidInput, match="--at requires --archive"):
        load(tmp_path, at="2026-01-01", space=A)
    with pytest.raises(NotFound, match="folder does not exist"):
        load(archive=str(tmp_path / "none"))
