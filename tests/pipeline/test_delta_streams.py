"""A Delta log over published segments: the same objects for readers of Delta tables."""

from __future__ import annotations

import pytest

import fourfold
from fourfold.models.streams.archive import bootstrap
from fourfold.pipeline import jobs
from fourfold.store.store import remember
from support.s3_server import serve_s3

delta = pytest.importorskip("deltalake")
pa = pytest.importorskip("pyarrow")


def rows_of(uri, options=None):
    table = delta.DeltaTable(str(uri), storage_options=options)
    asked = 'select stream, "offset", payload from t'
    result = delta.QueryBuilder().register("t", table).execute(asked).read_all()
    return sorted(
        (row["stream"], row["offset"], bytes(row["payload"]))
        for row in pa.table(result).to_pylist()
    )


def read(store):
    return sorted(
        (info.name, each.offset, each.payload)
        for info in store.streams.list()
        for each in store.streams.read(info.name)[1].records
    )


def test_delta_table_equals_streams(tmp_path):
    root = tmp_path / "a store"
    with fourfold.open(root) as store:
        for name in ("a b/é", "c"):
            store.streams.create(name, "text/plain").append([b"%d" % n for n in range(5)])
        store.archive.publish_all()
        done = jobs.run("delta-log", root)
        assert (done.report["added"], done.report["removed"]) == (2, 0)
        assert rows_of(root / "objects") == read(store)
        assert jobs.run("delta-log", root).outcome == "nothing"
        store.streams.open("c").append([b"more"])
        store.archive.publish_all()
        assert jobs.run("delta-log", root).report["added"] == 1
        assert rows_of(root / "objects") == read(store)
        store.streams.delete("a b/é")
        store.archive.publish_all()
        done = jobs.run("delta-log", root)
        assert (done.report["added"], done.report["removed"]) == (0, 1)
        assert rows_of(root / "objects") == read(store)
        table = delta.DeltaTable(str(root / "objects"))
        assert table.version() == 2
        named = table.to_pyarrow_table(filters=[("stream", "=", "c"), ("offset", ">", 3)])
        # A table has no order.
        assert named.sort_by("offset").column("payload").to_pylist() == [b"4", b"more"]
    with fourfold.open(tmp_path / "again") as other, fourfold.open(root) as store:
        made = bootstrap(other.streams.database, store.objects, now_ms=1)
        assert made.restored == ("c",)
        assert not made.unclaimed or all("segments" in each.key for each in made.unclaimed)


def test_delta_table_works_in_bucket(tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    root = tmp_path / "store"
    with serve_s3() as server:
        with fourfold.open(root):
            remember(root, server.url("shop"))
        with fourfold.open(root) as store:
            store.streams.create("a/b", "text/plain").append([b"1", b"2"])
            store.archive.publish_all()
            jobs.run("delta-log", root)
            options = {"AWS_ENDPOINT_URL": server.endpoint, "AWS_ALLOW_HTTP": "true"}
            options["AWS_REGION"] = "us-east-1"
            assert rows_of(f"s3://{server.bucket}/shop", options) == read(store)
