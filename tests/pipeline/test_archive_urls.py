"""Archives that are read by their URLs have the rows of their stores at their points."""

from __future__ import annotations

import shutil
from functools import partial

import pytest
import random_graphs
import random_sessions
from archive_reads import live_rows, micros, options_of, publish, spark_rows, texts_of

import fourfold
from fourfold.errors import InvalidInput, NotFound
from fourfold.models.documents import GcPolicy
from fourfold.pipeline import archive_roots, read, sql, views
from fourfold.pipeline.archive_plan import plan_archive
from fourfold.pipeline.cut import read_cut
from fourfold.pipeline.models import model_tables
from fourfold.pipeline.options import read_options
from fourfold.query.tables import FILES
from support.s3_server import serve_s3

REVISIONS, FACTS, COLLECTED = "did:key:a", "did:key:b", "did:key:c"


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FOURFOLD_PIPELINE_CACHE_FOLDER", str(tmp_path / "cache"))


@pytest.fixture(params=["folder", "s3"])
def url(request, tmp_path, monkeypatch):
    if request.param == "folder":
        yield str(tmp_path / "archive")
        return
    with serve_s3() as server:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.access_key_id)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret_access_key)
        yield server.url("shop") + "&allow_http=true"


def open_at(root, url):
    return fourfold.open(root, settings={"objects.url": url})


def filled(tmp_path, url):
    """A store with three points; and for each a copy of its folder."""
    points, root = [], tmp_path / "store"
    with open_at(root, url) as store, open_at(tmp_path / "other", url + "-other") as other:
        graphs = random_graphs.Life(store, other)
        for number in range(3):
            for did, history in ((REVISIONS, "revisions"), (FACTS, "facts"), (COLLECTED, "facts")):
                space = store.space(did, history=history)
                space.set("a", {"n": number})
                space.patch("a", [{"op": "add", "path": "/m", "value": [number]}])
                space.set(f"b{number}", {"n": 1.5})
            space = store.space(REVISIONS)
            space.branches.create(f"branch-{number}")
            space.set("shared", {"n": number}, branch=f"branch-{number}")
            space.delete(f"b{number}")
            if not number:
                random_sessions.lives_of(store.sessions, 3, seed=number)
            store.sessions.create_session({"id": f"s{number}"})
            store.sessions.append_event(
                f"s{number}", {"type": "message/appended", "message": {"role": "user"}}
            )
            random_graphs.lives_of(graphs, 4, seed=number)
            if number:
                store.space(COLLECTED).gc(GcPolicy(keep_seqs=2))
            if number == 1:
                store.space("did:key:later").set("x", {"n": 1})
            points.append((publish(store).id, tmp_path / f"copy-{number}"))
            shutil.copytree(root, points[-1][1], ignore=shutil.ignore_patterns("objects"))
        # What is not published is not in the archive.
        store.space(REVISIONS).set("unpublished", {})
    return points


def by_url(url, options, **more):
    texts = {name: value for name, value in options.items() if name != "root"}
    return {**texts, "url": url, **more}


def check(spark, pairs):
    """Compare reads of archives with those of the folders of stores."""
    shown = spark_rows(spark, [options for options, _ in pairs])
    for rows, (options, expected) in zip(shown, pairs, strict=True):
        columns = read_options(options).table.columns
        times = {column.name for column in columns if column.type == "timestamp"}
        wanted = texts_of([micros(row, times) for row in live_rows(expected)])
        assert texts_of(rows) == wanted != [], options


def tables_of(model):
    names = [table.name for table in model_tables(model).tables.values() if table.public]
    # What a peer still lacks is restored as unknown.
    return [name for name in names if name not in {FILES, "peers"}]


def test_every_table_has_rows_of_store_at_its_points(spark, tmp_path, url):
    points = filled(tmp_path, url)
    pairs = []
    for at, root in (points[0], points[2]):
        for model in ("documents", "sessions", "graphs"):
            for name in tables_of(model):
                options = partial(options_of, root, name, model)
                if len(live_rows(options())):
                    pairs.append((by_url(url, options(), at=at), options()))
    newest = options_of(points[2][1], "state")
    pairs.append((by_url(url, newest), newest))
    for more in (
        {"at": "3"},
        {"space": REVISIONS},
        {"branch": "branch-1", "space": REVISIONS},
        {"where": "id = 'a'"},
        {"since": "2", "space": FACTS},
    ):
        options = options_of(points[2][1], "history", **more)
        pairs.append((by_url(url, options), options))
    check(spark, pairs)


def test_spaces_are_read_without_their_files(tmp_path):
    url = str(tmp_path / "archive")
    filled(tmp_path, url)
    shutil.rmtree(tmp_path / "store")
    options = read_options(by_url(url, options_of("", "revisions")))
    plan = plan_archive(archive_roots.archive_cut(options).bounds, options)
    assert {bound.space for bound in plan.archived} == {REVISIONS, FACTS, "did:key:later"}
    assert not any(bound.path for bound in plan.archived)
    assert {bound.space for bound in plan.live} == {COLLECTED}
    assert plan.tails == ()


def test_several_archives_are_read_together(spark, tmp_path):
    urls = []
    for number in range(2):
        urls.append(str(tmp_path / f"archive-{number}"))
        with open_at(tmp_path / f"store-{number}", urls[-1]) as store:
            store.space(f"did:key:{number}").set("a", {"n": number})
            publish(store)
    rows = read(spark, url=urls, table="revisions", columns="root,space").collect()
    assert sorted(map(tuple, rows)) == [(urls[0], "did:key:0"), (urls[1], "did:key:1")]
    created = views(spark, url=",".join(urls), tables=["state"])
    assert created.names == ("state",)
    assert spark.table("state").count() == 2
    spark.catalog.dropTempView("state")
    query = "select count(*) from documents_state"
    assert sql(spark, query, url=",".join(urls))[0].collect() == [(2,)]


def test_reads_that_archives_do_not_have_are_refused(spark, tmp_path):
    url = str(tmp_path / "archive")
    with pytest.raises(NotFound, match="folder does not exist"):
        read(spark, url=url, table="revisions")
    (tmp_path / "archive").mkdir()
    with pytest.raises(NotFound, match="no archive with a restore point"):
        read(spark, url=url, table="revisions")
    with open_at(tmp_path / "store", url) as store:
        store.space(REVISIONS).set("a", {})
        publish(store)
    with pytest.raises(NotFound, match="unknown restore point"):
        read(spark, url=url, table="revisions", at="20200101T000000.000Z-0000")
    with pytest.raises(NotFound, match="has no space"):
        read(spark, url=url, table="revisions", space="did:key:none")
    with pytest.raises(InvalidInput, match="only by read, views and sql"):
        read_cut(read_options({"url": url, "table": "revisions"}))
    with pytest.raises(InvalidInput, match="files of stores"):
        read(spark, url=url, table=FILES)
    with pytest.raises(InvalidInput, match="pass either a store, folders of stores, or URLs"):
        read(spark, url=url, root=str(tmp_path / "store"), table="revisions")
    with pytest.raises(InvalidInput, match="pass either a store, folders of stores, or URLs"):
        read(spark, roots=["s3://a/b", "/folder"], table="revisions")


def test_restored_databases_are_limited_to_a_few_points(tmp_path, monkeypatch):
    monkeypatch.setattr(archive_roots, "_folders", archive_roots.LruCache(1))
    url = str(tmp_path / "archive")
    points = filled(tmp_path, url)
    for at, _ in points:
        archive_roots.archive_cut(
            read_options(by_url(url, options_of("", "events", "sessions"), at=at))
        )
    assert len(list((tmp_path / "cache").glob("restored-*"))) == 1
