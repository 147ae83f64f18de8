"""Exported files: reused while nothing changes, bounded, outside the store, read natively."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import sample_store

import fourfold
from fourfold import limits
from fourfold.errors import CorruptData, LimitExceeded
from fourfold.pipeline import cut, export_cache, exporter, plan, read, sql, table_files
from fourfold.pipeline.export_cache import ExportCache
from fourfold.pipeline.file_server import FileServer
from fourfold.pipeline.options import read_options

DID = "did:web:a.example"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("FOURFOLD_PIPELINE_CACHE_FOLDER", str(folder))
    return folder


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "store"
    with fourfold.open(folder) as store:
        space = store.space(DID)
        for number in range(50):
            space.set(f"e{number:02}", {"n": number})
    age(folder)
    return folder


def age(folder):
    """Date files back, so that their times are not too recent for a reuse."""
    for path in (folder / "spaces").iterdir():
        then = time.time() - 10
        os.utime(path, (then, then))


def files_of(root, table="revisions", **more):
    options = read_options({"root": str(root), "table": table, **more})
    return table_files.table_files(cut.read_cut(options), options)


def paths_of(files):
    return [part.path for part in files.parts]


def rows_of(files):
    return [
        row
        for part in files.parts
        for batch in table_files.read_part(part)
        for row in batch.to_pylist()
    ]


def test_unchanged_files_are_exported_once(root, cache, monkeypatch):
    first = files_of(root)
    monkeypatch.setattr(
        table_files, "run_exports", lambda exports: pytest.fail(str(exports)) if exports else None
    )
    assert paths_of(files_of(root)) == paths_of(first)
    assert Path(paths_of(first)[0]).parent == cache


def test_commit_changes_the_export(root, cache):
    first = files_of(root)
    with fourfold.open(root) as store:
        store.space(DID).set("new", {})
        second = files_of(root)
    assert (first.rows, second.rows) == (50, 51)
    assert not set(paths_of(first)) & set(paths_of(second))
    # The old one is as it was: a DataFrame may still read it.
    assert len(rows_of(first)) == 50


def test_change_without_a_new_seq_changes_the_export(root, cache):
    first = files_of(root, "branches")
    path = next((root / "spaces").glob("*.sqlite"))
    script = "import apsw, sys; apsw.Connection(sys.argv[1]).execute(sys.argv[2])"
    change = "UPDATE branch SET created_at = '2020-01-01T00:00:00.000000Z'"
    subprocess.run([sys.executable, "-c", script, path, change], check=True)
    age(root)
    [before], [after] = rows_of(first), rows_of(files_of(root, "branches"))
    assert before["time"] != after["time"]


def test_recent_change_is_never_reused(root, cache):
    os.utime(next((root / "spaces").glob("*.sqlite")))
    assert paths_of(files_of(root)) != paths_of(files_of(root))


def test_export_of_large_commits_reads_each_once(tmp_path, cache):
    options = read_options({"root": str(tmp_path / "large"), "table": "revisions"})
    for history in ("revisions", "facts"):
        with fourfold.open(tmp_path / "large") as store:
            space = store.space(f"did:web:{history}.example", history=history)
            space.transact([{"op": "set", "id": f"e{n}", "value": {"n": n}} for n in range(9)])
    [task] = plan.plan(cut.read_cut(options).bounds, options, options.table.select_columns())
    for piece in task.pieces:
        assert "MATERIALIZED" in piece.sql
    rows = rows_of(files_of(tmp_path / "large"))
    assert len(rows) == 18
    assert all(row["time"] is not None for row in rows)


def test_read_writes_nothing_into_the_store(root, cache):
    def listing():
        files = [path for path in root.rglob("*") if path.is_file()]
        return sorted((str(path), path.stat().st_mtime_ns) for path in files)

    before = listing()
    for table in ("revisions", "state", "files"):
        files_of(root, table)
    assert listing() == before


def test_least_recently_used_export_is_deleted(tmp_path, monkeypatch):
    monkeypatch.setattr(export_cache, "EXPORT_GRACE_S", 0.0)
    script = """
import sys
from pathlib import Path
from fourfold.pipeline.export_cache import ExportCache
cache = ExportCache(Path(sys.argv[1]), 1000)
for key in sys.argv[2:]:
    partial = cache.partial(key)
    partial.write_bytes(bytes(400))
    cache.add(key, partial)
"""
    subprocess.run([sys.executable, "-c", script, tmp_path, "aa", "bb"], check=True)
    for key, age_s in (("aa", 20), ("bb", 30)):
        then = time.time() - age_s
        os.utime(tmp_path / f"{key}.parquet", (then, then))
    cache = ExportCache(tmp_path, 1000)
    add(cache, "cc", 400)
    assert {path.name for path in tmp_path.glob("*.parquet")} == {"aa.parquet", "cc.parquet"}
    assert len(list((tmp_path / "users").iterdir())) == 1, "that of the ended process is removed"


def add(cache, key, size):
    partial = cache.partial(key)
    partial.write_bytes(bytes(size))
    return cache.add(key, partial)


def test_exports_in_use_are_kept_and_the_limit_holds(tmp_path, monkeypatch):
    monkeypatch.setattr(export_cache, "EXPORT_GRACE_S", 0.0)
    cache = ExportCache(tmp_path, 1000)
    first = add(cache, "aa", 600)
    os.utime(first, (1, 1))
    with pytest.raises(LimitExceeded, match="exceed 1000 bytes"):
        add(cache, "bb", 600)
    assert [path.name for path in tmp_path.glob("*.parquet")] == ["aa.parquet"]
    assert cache.find("bb") is None


def test_added_export_never_replaces_one_of_the_same_key(tmp_path):
    cache = ExportCache(tmp_path, 1000)
    first = add(cache, "aa", 10)
    inode = first.stat().st_ino
    assert add(cache, "aa", 10) == first
    assert first.stat().st_ino == inode


def test_export_error_names_the_file_and_the_child_lives_on(root, cache):
    path = next((root / "spaces").glob("*.sqlite"))
    options = read_options({"root": str(root), "table": "revisions"})
    taken = cut.read_cut(options)
    data = bytearray(path.read_bytes())
    at = data.index(b'{"n":25}')
    page = at - at % 32_768
    data[page : page + 64] = b"\xff" * 64
    path.write_bytes(data)
    with pytest.raises(CorruptData, match=r"a\.example"):
        table_files.table_files(taken, options)
    assert not list((cache / "users").rglob("*.partial"))
    assert files_of(sample(root.parent / "other")).rows > 0


def sample(folder):
    sample_store.build(folder)
    return folder


def killed_child():
    child = exporter._ChildProcess()
    child._process.kill()
    child._process.wait()
    return child


def test_ended_child_is_replaced(root, cache, monkeypatch):
    monkeypatch.setattr(exporter, "_idle", queue.SimpleQueue())
    exporter._idle.put(killed_child())
    assert files_of(root, "commits").rows == 50
    child = exporter._idle.get_nowait()
    assert not child.ended
    assert exporter._idle.empty()
    child.close()


def test_child_exports_without_pandas(root, cache, monkeypatch, tmp_path):
    report = tmp_path / "report"
    program = (
        "import atexit, pathlib, sys\n"
        f"report = pathlib.Path({str(report)!r})\n"
        "atexit.register(lambda: report.write_text(str('pandas' in sys.modules)))\n"
    )
    monkeypatch.setattr(exporter, "_CHILD", program + exporter._CHILD)
    monkeypatch.setattr(exporter, "_idle", queue.SimpleQueue())
    assert files_of(root, "state").rows == 50
    exporter._idle.get_nowait().close()
    assert report.read_text() == "False"


def test_child_that_ends_during_an_export_is_reported(root, cache):
    with pytest.raises(fourfold.errors.StorageError, match="export process ended"):
        killed_child().run(exporter.TableExport(None, "unused"))


def test_each_file_of_a_fold_has_one_row_group(tmp_path, cache):
    files = files_of(sample(tmp_path / "sample"), "history", partition_bytes="40000")
    assert files.whole
    assert len(files.parts) > 1
    assert all(pq.read_metadata(path).num_row_groups <= 1 for path in paths_of(files))


@pytest.mark.spark
def test_fold_of_split_input_equals_online_reads(spark, root, cache, monkeypatch):
    from fourfold.pipeline.reader import file_frame  # noqa: PLC0415 - it needs pyspark

    options = read_options({"root": str(root), "table": "history"})
    files = table_files.table_files(cut.read_cut(options), options)
    expected = sorted(map(tuple, file_frame(spark, files).collect()))
    part = files.parts[0]
    table = pq.read_table(part.path)
    split = root.parent / "split.parquet"
    pq.write_table(table, split, row_group_size=7)
    from dataclasses import replace  # noqa: PLC0415

    divided = replace(files, parts=(replace(part, path=str(split)),), whole=False)
    assert sorted(map(tuple, file_frame(spark, divided).collect())) == expected
    assert len(expected) == 50


@pytest.mark.spark
@pytest.mark.usefixtures("compiled")
def test_plan_shows_pushed_filters_pruned_columns_and_size(spark, root, cache):
    frame = read(spark, root=root, table="revisions")
    query = frame.where("id = 'e03' and seq > 1").select("seq")
    plan = query._jdf.queryExecution().toString()
    assert (
        "PushedFilters: [IsNotNull(id), IsNotNull(seq), EqualTo(id,e03), GreaterThan(seq,1)]"
        in plan
    )
    assert "ReadSchema: struct<id:string,seq:bigint>" in plan
    assert "Python" not in plan
    size = frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()
    assert 0 < int(str(size)) < limits.MIB
    joined = frame.join(read(spark, root=root, table="commits"), "seq")
    assert "BroadcastHashJoin" in joined._jdf.queryExecution().executedPlan().toString()


@pytest.mark.spark
def test_query_without_tables_exports_nothing(spark, root, cache):
    frame, views = sql(spark, "select 1 as one", root)
    assert [row.one for row in frame.collect()] == [1]
    assert views.names == ()
    assert not cache.exists()


def test_server_serves_only_with_its_token(tmp_path):
    path = tmp_path / "x.parquet"
    path.write_bytes(b"0123456789")
    server = FileServer("127.0.0.1")
    try:
        url = server.add(str(path), "127.0.0.1")
        scheme, _, rest = url.partition("://")
        host, _, name = rest.partition("/")
        assert scheme == "webhdfs"
        base = f"http://{host}/webhdfs/v1"
        with urllib.request.urlopen(f"{base}/{name}?op=OPEN&offset=4") as response:
            assert response.read() == b"456789"
        for wrong in (f"{base}/x.parquet?op=OPEN", f"{base}/other/x.parquet?op=OPEN"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(wrong)
        with pytest.raises(urllib.error.HTTPError, match="400"):
            urllib.request.urlopen(f"{base}/{name}?op=DELETE")
    finally:
        server.close()
