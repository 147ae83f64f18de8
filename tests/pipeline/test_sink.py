"""`df.write` and `df.writeStream` into spaces, with a real Spark session."""

from __future__ import annotations

import json

import pytest

import fourfold
from fourfold.errors import InvalidInput, WriterLocked
from fourfold.pipeline.spark import unwrap_error

pytestmark = pytest.mark.spark

A, B = "did:web:a.example", "did:web:b.example"


@pytest.fixture
def root(tmp_path):
    fourfold.open(tmp_path / "store").close()
    return tmp_path / "store"


@pytest.fixture
def rows(spark):
    """Return twenty documents for two spaces, in four tasks."""
    return spark.range(0, 20, 1, 4).selectExpr(
        f"if(id % 2 = 0, '{A}', '{B}') as space",
        "concat('e', id) as id",
        "to_json(struct(id as n)) as data",
    )


def write(frame, root, **options):
    frame.write.format("fourfold").mode("append").options(root=str(root), **options).save()


def refused(call, *arguments, **given):
    with pytest.raises(Exception) as caught:
        call(*arguments, **given)
    return unwrap_error(caught.value)


def log(root, did=A):
    with fourfold.open(root, mode="r") as store:
        if did not in store.spaces():
            return []
        return [(each.session, each.local_seq) for each in store.space(did).log()]


def documents(root, did=A):
    with fourfold.open(root, mode="r") as store:
        space = store.space(did)
        return {entity: space.read(entity).document for entity in space.ids()}


def test_write_is_one_commit_per_space_once(rows, root):
    write(rows, root, job="first")
    assert log(root) == log(root, B) == [("job:first", 0)]
    assert documents(root) == {f"e{n}": {"n": n} for n in range(0, 20, 2)}
    assert documents(root, B) == {f"e{n}": {"n": n} for n in range(1, 20, 2)}
    write(rows, root, job="first")
    assert log(root) == [("job:first", 0)]
    write(rows.where(f"space = '{A}'").drop("space"), root, space=A)
    assert len(log(root)) == 2
    assert len(log(root, B)) == 1
    assert list((root / ".pipeline" / "staging").iterdir()) == []


def test_sink_refuses_bad_row_with_typed_error(rows, root):
    bad = rows.selectExpr("space", "id", "if(id = 'e13', '[]', data) as data")
    error = refused(write, bad, root)
    assert isinstance(error, InvalidInput)
    assert f"space {B!r}, id 'e13'" in error.message
    assert "skip_bad" in error.hint
    assert log(root) == log(root, B) == []
    assert list((root / ".pipeline" / "staging").iterdir()) == []
    write(bad, root, skip_bad="true")
    assert len(documents(root, B)) == 9


def test_sink_error_for_locked_space_has_hint(rows, root):
    with fourfold.open(root) as store:
        store.space(A).set("mine", {"n": 0})
        error = refused(write, rows, root, wait_s="0")
    assert isinstance(error, WriterLocked)
    assert "mode='r'" in error.hint
    assert log(root, B) == []
    write(rows, root)
    assert documents(root)["mine"] == {"n": 0}


def test_stream_sink_resumes_after_restart(spark, root, tmp_path):
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    folder.mkdir()

    def arrive(number):
        lines = [{"id": f"e{number}", "data": json.dumps({"n": number}), "seq": number}]
        (folder / f"{number}.json").write_text("\n".join(map(json.dumps, lines)))

    def run():
        stream = spark.readStream.schema("id string, data string, seq bigint")
        stream = stream.option("maxFilesPerTrigger", 1).json(str(folder))
        options = {"root": str(root), "space": A, "checkpointLocation": checkpoint.as_uri()}
        query = stream.writeStream.format("fourfold").options(**options)
        query.trigger(availableNow=True).start().awaitTermination()

    arrive(0)
    arrive(1)
    run()
    [(name, first), (same, second)] = log(root)
    assert name == same
    assert name == f"query:{json.loads((checkpoint / 'metadata').read_text())['id']}"
    assert (first >> 20, second >> 20) == (0, 1)
    arrive(2)
    run()
    assert len(log(root)) == 3
    assert documents(root) == {f"e{n}": {"n": n} for n in range(3)}


def test_query_option_replaces_missing_checkpoint(spark, root, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"id": "n", "data": "{}"}')
    stream = spark.readStream.schema("id string, data string").json(str(tmp_path / "in"))
    sink = stream.writeStream.format("fourfold").options(root=str(root), space=A)
    sink = sink.trigger(availableNow=True)
    # The sink does not receive a checkpoint that is set on the session.
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "checkpoints"))
    try:
        error = refused(lambda: sink.queryName("q").start().awaitTermination())
        assert isinstance(error, InvalidInput)
        assert "checkpoint" in error.message
        sink.queryName("q").option("query", "mine").start().awaitTermination()
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert log(root) == [("query:mine", 0)]
