"""Published files and the live tail together are the rows of the store, whatever happens to it."""

from __future__ import annotations

import os
import random
import shutil
import time
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from archive_reads import archived, options_of, publish, same, spark_rows
from hypothesis import HealthCheck, given, settings
from hypothesis import seed as seeded
from random_spaces import LIVES, Life, same_states, same_versions

import fourfold
from fourfold.archive.catalog_rows import digest_tag
from fourfold.archive.table_layout import TABLES
from fourfold.errors import CorruptData, NotFound
from fourfold.models.documents import GcPolicy
from fourfold.objects import MemoryStore
from fourfold.pipeline import archive_plan, cut, read
from fourfold.pipeline.archive_plan import plan_archive
from fourfold.pipeline.cut import Cut
from fourfold.pipeline.export_cache import ExportCache
from fourfold.pipeline.options import read_options
from fourfold.store import retention, table_maintenance
from fourfold.store.restoration import rebuild

A, B, C, FACTS = (f"did:web:{name}.example" for name in ("a", "b", "c", "facts"))


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FOURFOLD_PIPELINE_CACHE_FOLDER", str(tmp_path / "cache"))


def write(store, did, number, count=6):
    space = store.space(did)
    for at in range(count):
        space.set(f"e{number}-{at}", {"n": at, "text": f"Ünïcode '{at}'"})
    space.patch(f"e{number}-1", [{"op": "increment", "path": "/n", "by": 7}])
    space.transact([{"op": "delete", "id": f"e{number}-2"}, {"op": "set", "id": "x", "value": {}}])


def say(store, sid, text):
    agent = fourfold.Runtime(store.sessions, lambda turn: fourfold.Final("done"))
    agent.start({"id": sid, "model": "any"})
    agent.run_turn(sid, text)


@pytest.mark.spark
def test_published_rows_and_tail_equal_those_of_the_store(spark, tmp_path):
    root = tmp_path / "store"
    with fourfold.open(root) as store:
        for did in (A, B):
            write(store, did, 0)
        store.space(FACTS, history="facts").set("a", {"n": 1})
        store.space(A).branches.create("draft")
        store.space(A).set("only", {"draft": True}, branch="draft")
        say(store, "s-1", "Hello.")
        assert archived(root) is None, "nothing is published yet"
        publish(store)
        write(store, A, 1)
        time_between = datetime.now(UTC)
        publish(store)
        # A tail, a branch that only the tail has, a space and a session that were never published.
        store.space(A).patch("x", [{"op": "add", "path": "/n", "value": 1}], branch="draft")
        store.space(B).branches.create("late")
        store.space(B).set("e0-1", {"late": 1}, branch="late")
        store.space(C).set("new", {"n": None})
        say(store, "s-2", "Hello.")
        assert archived(root) == {A, B, FACTS}
        same(
            spark,
            [
                options_of(root, "revisions"),
                options_of(root, "commits", space=A),
                options_of(root, "state", branch="*"),
                options_of(root, "history", branch="draft", columns="root,branch,id,seq,document"),
                options_of(root, "revisions", columns="id,root", where="id >= 'e1' and seq > 3"),
                options_of(root, "state", at=9),
                options_of(root, "revisions", at=time_between.isoformat()),
                options_of(root, "revisions", columns="id,seq", since=8),
                options_of(root, "events", at=9),
            ],
        )
        with pytest.raises(NotFound, match="unknown branch"):
            read(spark, root=root, table="state", branch="nothing")


@pytest.mark.spark
def test_rows_equal_those_of_the_store_after_maintenance(spark, tmp_path):
    root = tmp_path / "store"
    reads = [options_of(root, table) for table in ("revisions", "state", "events")]
    with fourfold.open(root) as store:
        for did in (A, B):
            write(store, did, 0)
        for sid in ("s-1", "s-2"):
            say(store, sid, "Hello.")
        publish(store)
        write(store, A, 1)
        publish(store)
        assert not retention.merge(store).failures, "compaction"
        store.space(B).gc(GcPolicy(keep_seqs=2))
        store.sessions.delete_session("s-2")
        assert archived(root) == {A}, "a collected space is read live"
        same(spark, reads)
        store.space(C).set("new", {"n": None})
        publish(store)
        store.sessions.gc(0)
        table_maintenance.purge(store)
    path = root / "spaces" / f"{A}.sqlite"
    for name in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        name.unlink(missing_ok=True)
    with fourfold.open(root) as store:
        store.space(A).set("again", {"n": 1})
        assert archived(root) == {C}, "another incarnation"
        same(spark, reads)
        publish(store)
        write(store, A, 2)
        assert archived(root) == {A, C}
        same(spark, [*reads[:1], options_of(root, "commits")])


@pytest.mark.spark
def test_rows_equal_those_of_restored_and_copied_stores(spark, tmp_path):
    url, copied = tmp_path / "objects", tmp_path / "copied"
    root, restored, own = (tmp_path / name / "store" for name in ("one", "two", "three"))
    with opened(root, url) as store:
        write(store, A, 0)
        write(store, B, 0)
        first = publish(store)
        write(store, A, 1)
        publish(store)
    with opened(restored, url) as store:
        assert not rebuild(store, at=first.id, take_over=True).failures
        write(store, A, 3)
        publish(store)
        write(store, A, 4)
        assert archived(restored) == {A, B}
    # The point of the fenced store is still there, with another history of the same file.
    assert archived(root) == {A, B}
    shutil.copytree(restored, own)
    shutil.copytree(url, copied)
    with opened(own, copied) as store:
        write(store, A, 5)
        publish(store)
    assert archived(own) == {A, B}
    three = {"roots": str(tmp_path / "*" / "store")}
    reads = [{"table": name, "columns": columns, **three} for name, columns in MANY.items()]
    same(spark, [*reads, options_of(root, "state"), options_of(restored, "commits")])


def opened(root, url):
    """Open a store whose settings name its object store, as other processes read them."""
    fourfold.open(root).close()
    path = root / "fourfold.toml"
    kept = path.read_text().partition("[objects]")[0]
    path.write_text(f'{kept}\n[objects]\nurl = "{url}"\n')
    return fourfold.open(root)


MANY = {
    "revisions": "id,seq,time",
    "commits": "root,space,seq",
    "state": "space,id,document",
}


@pytest.mark.spark
@pytest.mark.usefixtures("compiled")
def test_plan_reads_published_files_natively(spark, tmp_path):
    root = tmp_path / "store"
    with fourfold.open(root) as store:
        write(store, A, 0)
        publish(store)
        rows = read(spark, root=root, table="revisions")
        query = rows.where("id = 'e0-3' and seq > 1").select("seq", "data")
        plan = query._jdf.queryExecution().executedPlan().toString()
        [path] = query.inputFiles()
        assert "/tables+/documents.revision+/" in path
        assert (
            "PushedFilters: [IsNotNull(id), IsNotNull(seq), EqualTo(id,e0-3), GreaterThan(seq,1)]"
            in plan
        )
        assert "ReadSchema: struct<id:string,seq:bigint,data:string>" in plan
        assert "Join" not in plan, "no time is read"
        assert "Python" not in plan
        size = int(str(rows._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))
        assert 0 < size < 10_000_000
        joined = rows.join(read(spark, root=root, table="commits"), ["space", "seq"])
        plan = joined.select("id", "session")._jdf.queryExecution().executedPlan().toString()
        assert "BroadcastHashJoin" in plan


def age(root):
    """Date files back, so that their times are not too recent to be trusted."""
    then = time.time() - 10
    for path in (root / "spaces").iterdir():
        os.utime(path, (then, then))


def test_unchanged_databases_are_not_opened(tmp_path, monkeypatch):
    root = tmp_path / "store"
    with fourfold.open(root) as store:
        for did in (A, B, C):
            write(store, did, 0)
        publish(store)
        store.space(C).set("tail", {})
    age(root)
    assert archived(root) == {A, B, C}
    opened = []
    original = cut._OpenFile.__init__
    monkeypatch.setattr(
        cut._OpenFile, "__init__", lambda self, path: opened.append(path) or original(self, path)
    )
    assert archived(root) == {A, B, C}
    assert opened == []
    with fourfold.open(root) as store:
        store.space(B).set("more", {})
        options = read_options(options_of(root, "revisions"))
        plan = plan_archive(cut.read_cut(options).bounds, options)
        assert {os.path.basename(path) for path in opened} == {f"{B}.sqlite"}  # noqa: PTH119
        assert {bound.space: bound.seq - bound.since for bound in plan.tails} == {B: 1, C: 1}


def test_statistics_exclude_files_on_the_driver(tmp_path):
    root = tmp_path / "store"
    with fourfold.open(root) as store:
        for number, did in enumerate((A, B, C)):
            write(store, did, number)
            publish(store)

    def files(**more):
        options = read_options(options_of(root, "revisions", columns="id", **more))
        [group] = plan_archive(cut.read_cut(options).bounds, options).groups
        return [len(group.whole["documents.revision"]), len(group.filtered["documents.revision"])]

    assert files() == [3, 0]
    assert files(space=B) == [1, 0]
    assert files(where=f"space in ('{A}', '{B}')") == [2, 0]
    assert files(where="id = 'e0-4'") == [1, 0]
    assert files(where="id > 'e2'") == [3, 0], "every file has x"
    assert files(where="id < 'e1'") == [1, 0]


def test_damaged_file_of_the_archive_is_reported(tmp_path):
    root = tmp_path / "store"
    with fourfold.open(root) as store:
        write(store, A, 0)
        publish(store)
    [path] = (root / "objects" / "tables+" / "documents.revision+").glob("*.parquet")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptData, match="missing or damaged"):
        archived(root)


def test_files_of_a_remote_archive_are_cached_by_digest(tmp_path):
    root = tmp_path / "store"
    with fourfold.open(root) as store:
        write(store, A, 0)
        publish(store)
        local = archive_plan._archive_of(str(root))
        local.refresh()
        [file] = local.snapshot("documents.revision").files.values()
        key = f"{TABLES}/documents.revision/{file.path}"
        data = store.objects.get(key).data
    cache = ExportCache(tmp_path / "downloads", 1 << 20)
    objects = MemoryStore()
    remote = archive_plan.ArchiveTables(objects)
    objects.put(key, data[:-1] + b"?")
    with pytest.raises(CorruptData, match="digest"):
        remote.path("documents.revision", file, cache)
    assert cache.find(digest_tag(file, key)) is None
    objects.put(key, data)
    path = remote.path("documents.revision", file, cache)
    assert path.read_bytes() == data
    objects.delete(key)
    assert remote.path("documents.revision", file, cache) == path


def compare_random(spark, root, count, seed):
    """Compare random spaces, published between their steps, with a model of full copies."""
    lives = {}
    draw = random.Random(seed)
    with fourfold.open(root) as store:

        @seeded(seed)
        @settings(max_examples=count, database=None, suppress_health_check=list(HealthCheck))
        @given(LIVES)
        def live(steps):
            did = f"did:key:z{len(lives):04}"
            history = ("revisions", "facts")[len(lives) % 2]
            lives[did] = life = Life(store.space(did, history=history))
            until = draw.randrange(len(steps) + 1)
            life.live(steps[:until])
            if draw.random() < 0.3:
                publish(store)
            for kind, one, other in steps[until:]:
                getattr(life, f"_{kind}")(one, other)

        live()
        names = archived(root)
        options = read_options(options_of(root, "state"))
        bounds = [
            replace(bound, seq=draw.randint(lives[bound.space].space.horizon(), bound.seq))
            for bound in cut.read_cut(options).bounds
        ]
        token = Cut(tuple(bounds)).token()
        reads = [options_of(root, name, branch="*", cut=token) for name in ("state", "history")]
        states, versions = spark_rows(spark, reads)
        expected, expected_versions = {}, {}
        for bound in bounds:
            expected |= lives[bound.space].states(bound)
            expected_versions |= lives[bound.space].versions(bound)
        same_states(states, expected)
        same_versions(versions, expected_versions)
        same(
            spark, [options_of(root, name, cut=token) for name in ("revisions", "commits", "facts")]
        )
    return names


@pytest.mark.spark
def test_random_spaces_equal_the_model(spark, tmp_path):
    assert compare_random(spark, tmp_path / "store", count=12, seed=5)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_more_random_spaces_equal_the_model(spark, tmp_path, seed):
    compare_random(spark, tmp_path / "store", count=60, seed=seed)
