"""`fourfold.pipeline.read` gives what the format gives, by whoever reads it best."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import sample_store
from native_probe import probe_of

import fourfold
from fourfold.errors import CorruptData, InvalidInput
from fourfold.pipeline import read, sql, views
from fourfold.pipeline.failures import typed

pytestmark = pytest.mark.spark

DIDS = ["did:web:a.example", "did:web:b.example"]
PLAIN = "space,branch,id,seq,op_index,op,data"
JAVA, PYTHON = "in Java", "(Python)"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("native") / "store"
    with fourfold.open(folder, settings={"documents.page_size": 4096}) as store:
        for did in DIDS:
            sample_store.fill(store.space(did))
    return folder


@pytest.fixture(scope="module")
def probe(spark):
    return probe_of(spark)


def plan(frame):
    return frame._jdf.queryExecution().executedPlan().toString()


def rows(frame):
    return sorted(map(tuple, frame.collect()), key=repr)


@pytest.mark.parametrize(
    ("table", "condition", "reader"),
    [
        ("revisions", "true", JAVA),
        ("revisions", "op = 'patch' and data is not null", JAVA),
        ("revisions", "branch in ('draft', '')", JAVA),
        ("revisions", f"space = '{DIDS[1]}'", JAVA),
        ("revisions", f"space in ('{DIDS[1]}', 'did:web:nobody')", JAVA),
        ("revisions", "space = 'did:web:nobody'", JAVA),
        ("revisions", "seq <= 20", JAVA),
        ("revisions", "time > '2020-01-01'", JAVA),
        ("revisions", "seq > 4 and seq < 20", JAVA),
        ("revisions", "seq >= 9000", PYTHON),
        ("revisions", "seq > 29", PYTHON),
        ("revisions", "id = 'note-1'", PYTHON),
        ("revisions", "id in ('note-1', 'note-2') and seq > 3", PYTHON),
        ("commits", "true", JAVA),
        ("commits", "seq between 3 and 5", JAVA),
        ("commits", "seq = 7 or seq = 8", JAVA),
        ("commits", "time > '2020-01-01'", JAVA),
        ("snapshots", "seq > 0", JAVA),
        ("branches", "true", PYTHON),
        ("state", "true", PYTHON),
    ],
)
def test_it_is_the_table_of_the_format(spark, read_format, root, table, condition, reader):
    found = read(spark, root=root, table=table).where(condition)
    expected = read_format(root, table).where(condition)
    assert reader in plan(found)
    assert found.schema == expected.schema
    assert rows(found) == rows(expected)


@pytest.fixture
def read_format(read):
    return read


@pytest.mark.parametrize("columns", ["id", "seq,id", "space", "data,root", "branch,fact"])
def test_only_what_a_query_uses_is_read(spark, read_format, root, columns):
    named = columns.split(",")
    whole = "space,branch,id,seq,op_index,op,data,time,fact,root"
    found = read(spark, root=str(root), table="revisions", columns=whole).select(*named)
    assert JAVA in plan(found)
    assert rows(found) == rows(read_format(root, "revisions", columns=columns))


def test_a_count_reads_no_column(spark, root):
    table = read(spark, root=root, table="revisions")
    counted = table.groupBy().count()
    assert "fourfold.revisions[]" in plan(counted)
    assert counted.collect()[0][0] == 56 == table.select("time").count()


def test_the_reader_in_python_gets_only_the_columns_that_are_wanted_too(spark, read_format, root):
    found = read(spark, root=root, table="revisions").where("id = 'note-2'").select("seq", "time")
    assert PYTHON in plan(found)
    assert "data" not in plan(found)
    expected = read_format(root, "revisions").where("id = 'note-2'").select("seq", "time")
    assert rows(found) == rows(expected)


def test_spaces_of_facts_are_read_by_the_format(spark, read_format, tmp_path):
    sample_store.build(tmp_path / "store")
    found = read(spark, root=tmp_path / "store", table="revisions")
    assert PYTHON in plan(found.select("id"))
    assert rows(found) == rows(read_format(tmp_path / "store", "revisions"))
    one = read(spark, root=tmp_path / "store", table="revisions", space="did:web:old.example")
    assert JAVA in plan(one.select("id", "seq"))
    assert one.select("id", "seq").count() == 28


def test_a_point_in_the_past_and_what_came_after_one(spark, read_format, root):
    for bounds in ({"at": 12}, {"since": 3}, {"since": 28}, {"at": 30, "since": 2}):
        texts = {name: str(value) for name, value in bounds.items()}
        found = read(spark, root=root, table="revisions", columns=["id", "seq"], **bounds)
        assert rows(found) == rows(read_format(root, "revisions", columns="id,seq", **texts))


def test_a_table_stays_at_its_cut(spark, tmp_path):
    with fourfold.open(tmp_path) as store:
        space = store.space(DIDS[0])
        space.set("a", {"n": 1})
        found = read(spark, root=tmp_path, table="revisions")
        space.set("a", {"n": 2})
        assert found.select("seq").count() == found.select("time").count() == 1
        assert found.join(found.where("id = 'a'"), "seq").count() == 1
        assert read(spark, root=tmp_path, table="revisions").select("seq").count() == 2


def test_views_and_queries_go_through_it(spark, root):
    made = views(spark, root, prefix="native_")
    assert "native_revisions" in made.names
    assert JAVA in plan(spark.sql("select id, max(seq) from native_revisions group by id"))
    found, _ = sql(spark, "select count(*) from revisions where op = 'delete'", root)
    assert JAVA in plan(found)
    assert found.collect()[0][0] == 4


def test_an_option_that_nobody_knows_is_refused(spark, root):
    with pytest.raises(InvalidInput, match="did_you"):
        read(spark, root=root, table="revisions", did_you=1)


def test_the_log_of_a_process_that_died_is_read_through_sqlite(spark, tmp_path):
    script = (
        "import fourfold, os, sys\n"
        "space = fourfold.open(sys.argv[1]).space('did:web:a.example')\n"
        "for number in range(9): space.set(f'e{number}', {})\n"
        "os._exit(9)\n"
    )
    subprocess.run([sys.executable, "-c", script, tmp_path], check=False)
    found = read(spark, root=tmp_path, table="revisions").select("id")
    assert PYTHON in plan(found)
    assert found.count() == 9


def test_damage_is_an_error_of_fourfold_that_names_the_file_and_locks_nothing(
    spark, probe, tmp_path
):
    with fourfold.open(tmp_path, settings={"documents.page_size": 4096}) as store:
        for number in range(300):
            store.space(DIDS[0]).set(f"e{number}", {"text": "x" * 100})
    path = tmp_path / "spaces" / f"{DIDS[0]}.sqlite"
    table = read(spark, root=tmp_path, table="revisions").select("id", "data")
    content = bytearray(path.read_bytes())
    for page in range(4, len(content) // 4096):
        content[page * 4096] ^= 0x40
    path.write_bytes(content)
    with pytest.raises(Exception, match="CorruptData") as caught:
        table.collect()
    error = typed(caught.value)
    assert isinstance(error, CorruptData)
    assert str(path) in error.message
    assert probe.open_files() == 0


def test_a_query_that_ends_early_or_is_cancelled_gives_back_its_locks(spark, probe, tmp_path):
    with fourfold.open(tmp_path) as store:
        for commit in range(50):
            store.space(DIDS[0]).transact(
                [{"op": "set", "id": f"e{commit}-{row}", "value": {"n": row}} for row in range(100)]
            )
        table = read(spark, root=tmp_path, table="revisions").select("id")
        assert len(table.take(1)) == 1
        assert probe.open_files() == 0
        slow = table.selectExpr("id", "reflect('java.lang.Thread', 'sleep', 60000L) as slept")
        context, failed = spark.sparkContext, []

        def work():
            context.setJobGroup("slow", "a query that is cancelled", interruptOnCancel=True)
            try:
                slow.write.format("noop").mode("overwrite").save()
            except Exception as error:  # noqa: BLE001 - whatever Spark says
                failed.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        until(lambda: probe.open_files() == 1 or not thread.is_alive())
        assert probe.open_files() == 1, failed
        until(lambda: context.cancelJobGroup("slow") or not thread.is_alive())
        thread.join()
        assert failed
        until(lambda: probe.open_files() == 0)


def until(condition):
    """Wait for what must happen some time; the limit of the test is the only one."""
    while not condition():
        time.sleep(0.05)


def test_the_classes_are_compiled_once_and_kept_whole(spark, root, monkeypatch, tmp_path):
    from fourfold.pipeline import driver  # noqa: PLC0415 - it is for drivers
    from fourfold.pipeline.native import classes  # noqa: PLC0415

    gateway = driver.gateway(spark)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    jar = classes._jar(gateway.jvm, spark.version)
    assert jar == classes._jar(gateway.jvm, spark.version)
    assert [jar] == list((tmp_path / "cache").rglob("*.jar*"))
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    elsewhere = classes._jar(gateway.jvm, spark.version)
    assert elsewhere.name == jar.name
    assert Path(elsewhere).stat().st_size == jar.stat().st_size
