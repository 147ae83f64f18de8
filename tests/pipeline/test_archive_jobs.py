"""Archive jobs: seal, bootstrap and verify on Spark equal those of the node."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from random_streams import SMALL, grown, seen

import fourfold
from fourfold.archive import manifest
from fourfold.cli import main
from fourfold.errors import NotFound, StorageError, WriterLocked
from fourfold.models.streams.archive import bootstrap, sealer
from fourfold.models.streams.model import segments_folder
from fourfold.objects import FolderStore
from fourfold.pipeline import jobs

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pytestmark = pytest.mark.spark

TIMES = {"created_at_ms", "uploaded_at_ms", "updated_at_ms", "last_segment_cut_ms", "r2_etag"}


@pytest.fixture(scope="module")
def lived_in(tmp_path_factory):
    """A store with streams of every kind; not to be changed."""
    return grown(tmp_path_factory.mktemp("lived") / "store", seed=8, steps=150)


@pytest.fixture
def copy(lived_in, tmp_path):
    """A copy of the store with its own objects, to be changed."""
    return Path(shutil.copytree(lived_in, tmp_path / "copy"))


def table(root, name):
    """Return the rows of a table without columns that depend on the time of day."""
    with fourfold.open(root, mode="r") as store, store.streams.database.read() as snapshot:
        columns = [row[0] for row in snapshot.all(f"SELECT name FROM pragma_table_info('{name}')")]
        kept = ", ".join(each for each in columns if each not in TIMES)
        return snapshot.all(f"SELECT {kept} FROM {name} ORDER BY 1, 2")


def tables(root):
    return {
        name: table(root, name)
        for name in ("streams", "segments", "stream_segment_meta", "wal_log", "manifests")
    }


def run(job, root, spark, **options):
    settings = {
        f"FOURFOLD_{name.upper().replace('.', '_')}": str(value) for name, value in SMALL.items()
    }
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        return jobs.run(job, root, options, spark=spark)
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


# Seal


def sealed_by_the_node(root):
    """Seal every stream completely, one after the other."""
    with fourfold.open(root, settings=SMALL) as store:
        archive = store.archive
        for info in store.streams.list():
            while sealer.seal(
                store.streams.database,
                info.name,
                policy=archive.policy,
                folder=archive.folder / "local",
                now_ms=store.streams.clock(),
            ):
                pass


def test_seal_job_writes_same_segments_as_node(spark, copy, tmp_path):
    twin = Path(shutil.copytree(copy, tmp_path / "twin"))
    before = seen(copy)
    sealed_by_the_node(twin)
    while (done := run("seal", copy, spark, everything=True)).outcome != "nothing":
        assert done.report["segments"] > 0
    assert tables(copy) == tables(twin)
    with fourfold.open(copy, settings=SMALL) as store:
        assert store.streams.verify() == []
        assert store.archive.standing().unsealed_records == 0
        assert not store.archive.publish_all().failures
        assert store.streams.verify() == []
    assert seen(copy) == before


def test_seal_only_seals_due_streams_and_dry_run_nothing(spark, tmp_path):
    root = tmp_path / "store"
    with fourfold.open(root) as store:
        store.streams.create("full", "text/plain").append([b"x"] * 12)
        store.streams.create("not yet", "text/plain").append([b"x"] * 2)
    planned = jobs.run("seal", root, {"everything": True}, dry_run=True)
    assert (planned.report["streams"], planned.report["records"]) == (2, 14)
    assert table(root, "segments") == []
    done = run("seal", root, spark)
    assert (done.report["streams"], done.report["records"]) == (1, 10)
    assert {row[1] for row in table(root, "segments")} == {"full"}
    assert run("seal", root, spark).outcome == "nothing"


def test_seal_refuses_store_with_another_writer(spark, tmp_path):
    root = tmp_path / "store"
    with fourfold.open(root) as store:
        store.streams.create("log", "text/plain").append([b"one"])
        with pytest.raises(WriterLocked):
            run("seal", root, spark, everything=True)
        assert store.streams.info("log").next_offset == 1
    assert run("seal", root, spark, everything=True).report["segments"] == 1


def test_seal_continues_after_stream_that_fails(spark, tmp_path):
    root = tmp_path / "store"
    with fourfold.open(root) as store:
        for name in ("a", "poisoned", "z"):
            store.streams.create(name, "text/plain").append([b"1", b"2", b"3"])
        hole = "DELETE FROM wal_log WHERE offset = 1 AND sid = ?1"
        sid = store.streams.info("poisoned").sid
        store.streams.database.transact(lambda txn: txn.execute(hole, (sid,)))
    with pytest.raises(StorageError, match="'poisoned': cannot seal"):
        run("seal", root, spark, everything=True)
    assert {row[1] for row in table(root, "segments")} == {"a", "z"}
    assert not list((root / "streams").rglob("*.partial"))
    done = jobs.run("seal", root, {"everything": True}, spark=spark, skip_bad=True)
    assert [each["source"] for each in done.skipped] == ["poisoned"]


# Bootstrap


def test_bootstrap_job_equals_bootstrap_command(spark, copy, tmp_path):
    url = str(copy / "objects")
    plain, by_job = tmp_path / "plain", tmp_path / "by-job"
    with fourfold.open(copy) as store:
        store.streams.create("late", "text/plain", body=b"known, and not published")
        store.archive.round()
    with fourfold.open(plain) as store, FolderStore(url) as objects:
        info = bootstrap(store.streams.database, objects, now_ms=store.streams.clock())
    done = run("bootstrap", by_job, spark, objects=url, contents=True)
    assert tables(by_job) == tables(plain)
    assert done.report["streams"] == len(info.restored) > 10
    assert done.report["lost"] == [each._asdict() for each in info.lost] != []
    assert done.report["records"] == info.records
    with fourfold.open(by_job) as store:
        assert store.streams.verify() == []
        assert str(store.objects.root) == url
    published = {name: rows for name, rows in seen(by_job).items() if rows}
    before = seen(copy)
    assert published
    assert all(rows == before[name][: len(rows)] for name, rows in published.items())
    again = run("bootstrap", by_job, spark, objects=url)
    assert (again.report["streams"], again.report["present"]) == (0, len(info.restored))
    with pytest.raises(NotFound):
        jobs.run("bootstrap", tmp_path / "nowhere", {"objects": url}, dry_run=True)


def test_bootstrap_with_contents_skips_stream_with_damaged_object(spark, copy, tmp_path):
    with FolderStore(copy / "objects") as objects:
        manifest_key = manifest.manifest_key("kept/0")
        key = next(manifest.decode(objects.get(manifest_key).data, manifest_key).kept()).key
        data = objects.get(key).data
        objects.put(key, data[:-20] + bytes(20))
    target = tmp_path / "target"
    done = jobs.run(
        "bootstrap",
        target,
        {"objects": str(copy / "objects"), "contents": True},
        spark=spark,
        skip_bad=True,
    )
    assert key in next(each["problem"] for each in done.skipped if each["source"] == manifest_key)
    assert "kept/0" not in seen(target)
    assert done.report["streams"] > 10


# Verify


def verified(root, spark, url):
    done = run("verify", root, spark, objects=str(url))
    faults = {(each["file"], each["problem"]) for each in done.report["first"]}
    return done.report["faults"], faults


def changed(objects, name, **changes):
    """Return a changed manifest."""
    key = manifest.manifest_key(name)
    info = json.loads(objects.get(key).data)
    for what, value in changes.items():
        if what in info["segments"]:
            info["segments"][what][-1] = value
        else:
            info[what] = value
    objects.put(key, json.dumps(info, separators=(",", ":")).encode())
    return key


def other_offsets(objects, name):
    """Write a segment with records out of order, and its manifest; return its key."""
    key = manifest.manifest_key(name)
    info = manifest.decode(objects.get(key).data, key)
    table = pq.read_table(pa.BufferReader(objects.get(next(info.kept()).key).data))
    wrong = table.set_column(0, table.schema.field(0), pa.array([0, 2, 1], pa.int64()))
    sink = pa.BufferOutputStream()
    pq.write_table(wrong, sink)
    data = sink.getvalue().to_pybytes()
    digest = hashlib.sha256(data).hexdigest()
    changed(objects, name, sha256=digest, size_bytes=len(data))
    made = manifest.segment_key(name, info.incarnation, 0, digest)
    objects.put(made, data)
    return made


def test_verify_accepts_published_objects(spark, lived_in):
    assert verified(lived_in, spark, lived_in / "objects") == (0, set())
    done = run("verify", lived_in, spark, model="streams")
    assert done.report["faults"] == 0
    assert jobs.get_job("verify").verdict(done.report) is None


def test_verify_reports_every_damage_of_objects(spark, tmp_path):
    root = tmp_path / "store"
    names = [f"s{n}" for n in range(10)]
    with fourfold.open(root) as store:
        for name in names:
            store.streams.create(name, "text/plain").append([b"one", b"two", b"three"])
        store.streams.open("s8").fork("fork").append([b"four"])
        store.archive.publish_all()
        objects = store.objects
        keys = {}
        for name in names:
            key = manifest.manifest_key(name)
            keys[name] = next(manifest.decode(objects.get(key).data, key).kept()).key
        objects.delete(keys["s0"])
        objects.put(keys["s1"], objects.get(keys["s1"]).data[:-1])
        data = objects.get(keys["s2"]).data
        objects.put(keys["s2"], data[:30] + bytes([data[30] ^ 1]) + data[31:])
        expected = {
            (keys["s0"], "object is missing"),
            (keys["s1"], "size differs"),
            (keys["s2"], "digest differs"),
            (
                changed(objects, "s3", payload_bytes=7) and keys["s3"],
                "size of the payloads differs",
            ),
            (
                changed(objects, "s4", row_groups=2) and keys["s4"],
                "number of row groups differs",
            ),
            (
                changed(objects, "s5", last_append_ms=1) and keys["s5"],
                "time of the last record differs",
            ),
            (
                changed(objects, "s6", end_offset=3, uploaded_through=3, next_offset=4)
                and keys["s6"],
                "number of rows differs",
            ),
            (
                changed(objects, "s7", next_offset=9, closed=True),
                "the stream is closed but not completely published",
            ),
            (other_offsets(objects, "s9"), "offsets are not consecutive"),
            (manifest.manifest_key("fork"), "source 's8' has no manifest"),
        }
        objects.delete(manifest.manifest_key("s8"))
    count, actual = verified(root, spark, root / "objects")
    assert actual == expected
    assert count == len(expected)
    with FolderStore(root / "objects") as objects:
        objects.put(manifest.manifest_key("s3"), b"{")
    count, actual = verified(root, spark, root / "objects")
    assert any(file == manifest.manifest_key("s3") and "manifest" in what for file, what in actual)
    done = run("verify", root, spark, objects=str(root / "objects"))
    assert jobs.get_job("verify").verdict(done.report).kind == "corrupt_data"


# From the command line


def test_archive_commands_print_their_reports(spark, tmp_path, capfd):
    root, objects, again = tmp_path / "store", tmp_path / "objects", tmp_path / "again"
    with fourfold.open(root) as store:
        store.streams.create("log", "text/plain").append([b"one", b"two"])

    def call(*arguments):
        capfd.readouterr()
        code = main.run(["pipeline", "run", *map(str, arguments)])
        return code, capfd.readouterr().out

    assert call("seal", root) == (0, "seal: nothing to do\n")
    expected = "seal: 2 records of 1 stream in 1 new segment\n"
    assert call("seal", root, "--everything") == (0, expected)
    assert main.run(["publish", str(root), "--objects", str(objects)]) == 0
    expected = "bootstrap: restored 1 stream with 2 records\n"
    assert call("bootstrap", again, "--objects", objects) == (0, expected)
    code, out = call("verify", again, "--objects", objects)
    assert (code, out) == (0, "verify: 2 files checked, all sound\n")
    [segment] = objects.joinpath("streams+").rglob("*.parquet")
    segment.unlink()
    code, out = call("verify", again, "--objects", objects)
    assert code == 8
    assert "of them damaged: 1 problems" in out
    assert "object is missing" in out


# Killed


def killed(job, root, options, draw, word, pause_s):
    """Run a job in a child process and kill it with its JVM; return True if it had ended before."""
    child = Path(__file__).with_name("archive_job_child.py")
    with subprocess.Popen(
        [sys.executable, child, job, str(root), json.dumps(options)],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        steps = draw.randint(1, 3)
        for line in process.stdout:
            steps -= line.startswith(word)
            if not steps:
                break
        time.sleep(draw.uniform(0, pause_s))
        os.killpg(process.pid, signal.SIGKILL)
        return "done" in process.stdout.read().split()


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_seal_keeps_every_record_once_after_repeated_kills(spark, tmp_path):
    root, draw = tmp_path / "store", random.Random(9)
    with fourfold.open(root) as store:
        for number in range(400):
            store.streams.create(f"s/{number}", "text/plain").append([b"%d" % n for n in range(5)])
    before = seen(root)
    kills = 0
    while kills < 4:
        if killed("seal", root, {"everything": True}, draw, "sealing", 0.8):
            break
        kills += 1
        with fourfold.open(root) as store:
            assert store.streams.verify() == []
        assert seen(root) == before
    assert kills > 1
    assert 0 < len(table(root, "segments")) < 400
    jobs.run("seal", root, {"everything": True}, spark=spark)
    rows = table(root, "segments")
    assert len(rows) == len({row[1] for row in rows}) == 400
    with fourfold.open(root) as store:
        assert store.streams.verify() == []
        files = sorted(path.name for path in (segments_folder(root) / "local").rglob("*.parquet"))
        assert len(files) == 400
        assert not store.archive.publish_all().failures
    assert seen(root) == before


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_bootstrap_completes_after_repeated_kills(spark, lived_in, tmp_path):
    url, draw = str(lived_in / "objects"), random.Random(10)
    plain, target = tmp_path / "plain", tmp_path / "target"
    with fourfold.open(plain) as store, FolderStore(url) as objects:
        bootstrap(store.streams.database, objects, now_ms=store.streams.clock())
    ended = [killed("bootstrap", target, {"objects": url}, draw, "streams", 0.02) for _ in range(3)]
    assert not all(ended)
    jobs.run("bootstrap", target, {"objects": url}, spark=spark)
    assert tables(target) == tables(plain)
    with fourfold.open(target) as store:
        assert store.streams.verify() == []
