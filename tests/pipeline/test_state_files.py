"""Files written by the workers: the state sorted by key, without files of failed attempts."""

from __future__ import annotations

import threading

import pyarrow.parquet as pq
import pytest
import sample_store

from fourfold import limits
from fourfold.pipeline import jobs
from fourfold.pipeline.documents import key_ranges, state_files

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    place = tmp_path_factory.mktemp("files") / "store"
    sample_store.build(place)
    return place


def options_of(root, **more):
    return {"root": str(root), "table": "state", **more}


def state_of(spark, root, **more):
    rows = spark.read.format("fourfold").options(**options_of(root, **more)).load().collect()
    return sorted((row.asDict() for row in rows), key=lambda row: [row[n] for n in key_ranges.KEY])


def rows_in(folder, files):
    return [row for file in files for row in pq.read_table(folder / file.name).to_pylist()]


@pytest.mark.parametrize("more", [{}, {"branch": "*"}, {"branch": "*", "partition_bytes": "20000"}])
def test_state_files_are_sorted_by_key(root, tmp_path, spark, more):
    target = tmp_path / "state"
    files = state_files.write(
        spark, options_of(root, **more), tmp_path / "written", target, "job-20261115T000000-1"
    )
    assert rows_in(target, files) == state_of(spark, root, **more)
    assert key_ranges.are_disjoint(files)
    for file in files:
        assert file == key_ranges.describe(target / file.name)
    assert {path.name for path in target.iterdir()} == {file.name for file in files}


def test_files_of_failed_attempt_are_ignored(root, tmp_path, spark):
    (tmp_path / "written").mkdir()
    (tmp_path / "written" / "000000-1-left-0000.parquet").write_bytes(b"half of a file")
    target = tmp_path / "state"
    files = state_files.write(spark, options_of(root), tmp_path / "written", target, "job-1")
    assert rows_in(target, files) == state_of(spark, root)
    assert not (tmp_path / "written").exists()


def test_state_file_respects_row_limit(root, tmp_path, spark, monkeypatch):
    monkeypatch.setattr(limits, "MATERIALIZED_FILE_ROWS", 3)
    target = tmp_path / "state"
    files = state_files.write(spark, options_of(root), tmp_path / "written", target, "job-1")
    assert max(file.rows for file in files) == 3
    assert rows_in(target, files) == state_of(spark, root)


def test_job_keeps_session_of_another_thread(root, tmp_path, spark):
    done = []
    thread = threading.Thread(
        target=lambda: done.append(jobs.run("materialize", root, {"into": str(tmp_path / "out")}))
    )
    thread.start()
    thread.join()
    assert done[0].outcome == "done"
    assert spark.range(3).count() == 3
