"""Other programs read the rows of every version of a table: deltalake, Polars, DuckDB, pandas."""

from __future__ import annotations

import pyarrow as pa
import pytest
from delta_tables import SCHEMA, add_rows, created, rows_in, txn

from fourfold.archive.delta_actions import EMPTY
from fourfold.archive.delta_log import DeltaLog
from fourfold.objects import FolderStore
from support.s3_server import serve_s3

delta = pytest.importorskip("deltalake")
pl = pytest.importorskip("polars")
duckdb = pytest.importorskip("duckdb")

WIDE = SCHEMA.append(pa.field("extra", pa.float64()))
PATHS = ("plain.parquet", "second.parquet", "third-file.parquet", "4=5,6@7.parquet", "5.parquet")
ODD_PATHS = ("plain.parquet", "a b é.parquet", "a%20b.parquet", "x+y=z,@#?&:.parquet", "deep/er")


def sorted_rows(table):
    rows = zip(*(table.column(name).to_pylist() for name in ("name", "n")), strict=True)
    return sorted(rows, key=repr)


def check_readers(log, objects, uri, options, versions, *, polars=True):
    for version in versions:
        expected = rows_in(log, objects, log.snapshot(version))
        above = [row for row in expected if row[1] is not None and row[1] >= 3]
        table = delta.DeltaTable(uri, version=version, storage_options=options)
        assert sorted_rows(table.to_pyarrow_table()) == expected, version
        assert sorted_rows(table.to_pyarrow_table(filters=[("n", ">=", 3)])) == above
        if polars:
            frame = pl.scan_delta(uri, version=version, storage_options=options).select("name", "n")
            assert sorted(frame.collect().rows(), key=repr) == expected, version
            filtered = frame.filter(pl.col("n") >= 3).collect()
            assert sorted(filtered.rows(), key=repr) == above


def build(log, objects, paths=PATHS):
    """Six versions: adds, a removal, a checkpoint, a new column, and rows that have it."""
    snapshot = EMPTY
    for version, path in enumerate(paths):
        rows = [(f"é{version}", version), ("z" * 300, version + 10)]
        actions = [add_rows(log, objects, path, rows), txn(version)]
        if version == 2:
            actions.append(snapshot.files[paths[0]].removed(5))
        if version == 4:
            actions.append(snapshot.metadata_with(WIDE))
        log.commit(created(*actions) if version == 0 else actions, version)
        snapshot = log.update(snapshot)
        if version == 3:
            log.checkpoint(snapshot)
    data = [("w", 40, 1.5), ("w", None, float("nan"))]
    log.commit([add_rows(log, objects, "wide.parquet", data, WIDE), txn(5)], 5)
    return log.snapshot()


def test_readers_agree_on_a_folder(tmp_path):
    with FolderStore(tmp_path / "objects") as objects:
        log = DeltaLog(objects, "tables/documents.revisions")
        snapshot = build(log, objects)
        uri = str(tmp_path / "objects" / "tables+" / "documents.revisions+")
        check_readers(log, objects, uri, None, range(6))
        expected = rows_in(log, objects, snapshot)
        files = [str(objects.path(log.key(path))) for path in snapshot.files]
        query = "select name, n from read_parquet($files, union_by_name=true)"
        assert sorted(duckdb.execute(query, {"files": files}).fetchall(), key=repr) == expected
        frame = delta.DeltaTable(uri).to_pandas()
        assert frame["n"].sum() == sum(n for _, n in expected if n is not None)
        assert frame["extra"].count() == 1


def test_readers_agree_on_s3(monkeypatch):
    """With paths that must be encoded too; Polars does not decode them."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    with serve_s3() as server, server.store("shop") as objects:
        options = {"AWS_ENDPOINT_URL": server.endpoint, "AWS_ALLOW_HTTP": "true"}
        options["AWS_REGION"] = "us-east-1"
        for name, paths in (("plain", PATHS), ("odd", ODD_PATHS)):
            log = DeltaLog(objects, f"tables/{name}")
            build(log, objects, paths)
            uri = f"s3://{server.bucket}/shop/tables/{name}"
            check_readers(log, objects, uri, options, range(6), polars=paths is PATHS)


def test_readers_agree_after_truncation(tmp_path):
    with FolderStore(tmp_path / "objects") as objects:
        log = DeltaLog(objects, "t")
        build(log, objects)
        assert log.truncate(5, grace_s=-1) == 3
        check_readers(log, objects, str(tmp_path / "objects" / "t+"), None, range(3, 6))


def test_table_of_another_writer_is_readable(tmp_path):
    """A log that deltalake wrote, with its checkpoint, replays to what deltalake reads."""
    uri = tmp_path / "objects" / "t+"
    for number in range(4):
        rows = pa.table({"name": [f"a{number}"], "n": [number]}, schema=SCHEMA)
        delta.write_deltalake(str(uri), rows, mode="overwrite" if number == 2 else "append")
        if number == 2:
            delta.DeltaTable(str(uri)).create_checkpoint()
    with FolderStore(tmp_path / "objects") as objects:
        log = DeltaLog(objects, "t")
        for version in range(4):
            snapshot = log.snapshot(version)
            table = delta.DeltaTable(str(uri), version=version)
            actions = pa.table(table.get_add_actions())
            assert sorted(snapshot.files) == sorted(actions.column("path").to_pylist())
            assert snapshot.schema == SCHEMA
        log.commit([snapshot.files[path].removed(1) for path in list(snapshot.files)[:1]], 4)
        assert delta.DeltaTable(str(uri)).to_pyarrow_table().num_rows == 1
