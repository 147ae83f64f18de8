"""Tables in an object store are Delta tables with the rows of the same tables in a folder."""

from __future__ import annotations

from datetime import UTC, datetime

import deltalake
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fourfold
from fourfold.archive.delta_log import DeltaLog
from fourfold.errors import InvalidInput, Refused, StorageError
from fourfold.objects import open_objects
from fourfold.pipeline import jobs
from fourfold.pipeline.jobs import table_objects
from fourfold.pipeline.jobs.table_folder import TableFolder
from fourfold.pipeline.jobs.table_objects import TableObjects
from fourfold.store.table_manifest import FolderManifest, MaterializedFile
from support.s3_server import serve_s3

TIME = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def bucket(monkeypatch):
    with serve_s3() as server:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.access_key_id)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret_access_key)
        yield server


@pytest.fixture
def root(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        for number in range(6):
            store.space(f"did:key:z{number}").set("a", {"n": number})
        agent = fourfold.Runtime(store.sessions, lambda turn: fourfold.Final("done"))
        agent.start({"id": "worker", "model": "any"})
        agent.run_turn("worker", "Count.")
    return tmp_path / "store"


def run(root, into, spark, **options):
    return jobs.run("materialize", root, {"into": str(into), **options}, spark=spark)


def tables_at(bucket, name="tables"):
    return bucket.url(name) + "&allow_http=true"


def foreign_rows(bucket, name, version=None):
    """Return the rows of a table, which deltalake and Polars read alike."""
    options = {
        "AWS_ENDPOINT_URL": bucket.endpoint,
        "AWS_ACCESS_KEY_ID": bucket.access_key_id,
        "AWS_SECRET_ACCESS_KEY": bucket.secret_access_key,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
    uri = f"s3://{bucket.bucket}/tables/{name}"
    table = deltalake.DeltaTable(uri, version=version, storage_options=options)
    rows = table.to_pyarrow_table().to_pylist()
    frame = pl.scan_delta(uri, version=version, storage_options=options).collect()
    assert sorted(map(repr, frame.rows())) == sorted(repr(tuple(row.values())) for row in rows)
    return sorted(rows, key=repr)


def folder_rows(into, name):
    return sorted(pq.read_table(into / "current" / name).to_pylist(), key=repr)


def objects_of(url, name):
    with open_objects(url) as objects:
        return {entry.key for entry in objects.list(f"{name}/") if entry.key.endswith(".parquet")}


@pytest.mark.spark
def test_tables_at_a_url_equal_those_of_a_folder(root, tmp_path, spark, bucket, monkeypatch):
    monkeypatch.setattr("fourfold.limits.MATERIALIZED_FILE_ROWS", 2)
    url = tables_at(bucket)
    run(root, url, spark)
    run(root, tmp_path / "out", spark)
    first = foreign_rows(bucket, "state")
    assert first == folder_rows(tmp_path / "out", "state")
    before = objects_of(url, "state")
    assert run(root, url, spark).outcome == "nothing"
    with fourfold.open(root) as store:
        store.space("did:key:z0").patch("a", [{"op": "add", "path": "/m", "value": 1}])
    done = run(root, url, spark)
    assert done.outcome == "done"
    run(root, tmp_path / "out", spark)
    assert foreign_rows(bucket, "state") == folder_rows(tmp_path / "out", "state") != first
    assert foreign_rows(bucket, "state", version=0) == first
    assert len(objects_of(url, "state") - before) < len(before), "unchanged files stay"


def version(folder, number, files, tables=("state",)):
    """Put a version into the folder: texts by the names of files."""
    work = f"{number:024}"
    staging = folder.staging(work)
    for name, texts in files.items():
        path = staging / name
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"text": texts, "time": [TIME] * len(texts)}), path)
    described = tuple(MaterializedFile(name, len(texts), 1) for name, texts in files.items())
    manifest = FolderManifest(number, work, {"root": "here"}, {}, described, tables)
    folder.replace(staging, manifest)
    return manifest


def upload(url, folder, manifest):
    with TableObjects(url) as objects:
        objects.check(manifest.tables, manifest.origin)
        objects.upload(folder, manifest)
        assert objects.is_current(manifest)


def texts_of(rows):
    return sorted(row["text"] for row in rows)


def test_versions_upload_new_files_and_delete_old_ones(tmp_path, bucket):
    url, folder, seen = tables_at(bucket), TableFolder(tmp_path / "folder"), []
    for number in range(1, 5):
        files = {"state/kept.parquet": ["kept"], f"state/{number}.parquet": [str(number)]}
        upload(url, folder, version(folder, number, files))
        assert texts_of(foreign_rows(bucket, "state")) == [str(number), "kept"]
        seen.append(objects_of(url, "state"))
    assert seen[-1] == {"state/kept.parquet", "state/3.parquet", "state/4.parquet"}
    assert texts_of(foreign_rows(bucket, "state", version=2)) == ["3", "kept"]


def test_uploaded_version_is_not_uploaded_again(tmp_path, bucket, monkeypatch):
    url, folder = tables_at(bucket), TableFolder(tmp_path / "folder")
    first = version(folder, 1, {"state/1.parquet": ["1"]})
    upload(url, folder, first)
    monkeypatch.setattr(table_objects, "put_once", None)
    upload(url, folder, first)
    with open_objects(url) as objects:
        assert DeltaLog(objects, "state").snapshot().version == 0


def test_interrupted_upload_is_completed(tmp_path, bucket, monkeypatch):
    url, folder = tables_at(bucket), TableFolder(tmp_path / "folder")
    first = version(folder, 1, {"a/1.parquet": ["1"], "b/1.parquet": ["2"]}, ("a", "b"))
    commit = DeltaLog.commit

    def fail(log, *args, **options):
        if log.key("") == "b/":
            raise StorageError("the object store is not there")
        return commit(log, *args, **options)

    monkeypatch.setattr(DeltaLog, "commit", fail)
    with pytest.raises(StorageError):
        upload(url, folder, first)
    monkeypatch.setattr(DeltaLog, "commit", commit)
    with TableObjects(url) as objects:
        assert not objects.is_current(first)
    upload(url, folder, first)
    assert texts_of(foreign_rows(bucket, "a") + foreign_rows(bucket, "b")) == ["1", "2"]


def test_log_of_many_versions_has_checkpoints(tmp_path, bucket, monkeypatch):
    monkeypatch.setattr(table_objects, "CHECKPOINT_COMMITS", 2)
    url, folder = tables_at(bucket), TableFolder(tmp_path / "folder")
    for number in range(1, 6):
        upload(url, folder, version(folder, number, {f"state/{number}.parquet": [str(number)]}))
    assert texts_of(foreign_rows(bucket, "state")) == ["5"]
    with open_objects(url) as objects:
        assert DeltaLog(objects, "state").checkpoint_version() == 3


@pytest.mark.spark
def test_tables_of_sessions_are_delta_tables(root, tmp_path, spark, bucket):
    run(root, tables_at(bucket), spark, model="sessions")
    run(root, tmp_path / "out", spark, model="sessions")
    for name in ("view", "turns", "messages"):
        assert len(foreign_rows(bucket, name)) == len(folder_rows(tmp_path / "out", name)) > 0


@pytest.mark.spark
def test_tables_of_another_origin_are_refused(root, tmp_path, spark, bucket):
    url = tables_at(bucket)
    run(root, url, spark)
    with fourfold.open(tmp_path / "other") as store:
        store.space("did:key:z0").set("a", {})
    with pytest.raises(Refused, match="another origin"):
        run(tmp_path / "other", url, spark)
    for option in ("delta", "variant"):
        with pytest.raises(InvalidInput, match=f"--{option} requires a folder"):
            run(root, url, spark, **{option: True})
