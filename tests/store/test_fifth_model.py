"""A fifth model is one folder and one line: `tally/` and its entry in the registry.

Nothing of the package names it. The store opens, backs up, verifies, publishes and restores it, and
the command line does too.
"""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from tally.model import MODEL, check_name

import fourfold
from fourfold import errors
from fourfold.cli import main
from fourfold.models import model as registry
from fourfold.models.model import Location
from fourfold.store import verify
from fourfold.store.background_publisher import Continuous
from fourfold.store.restoration import rebuild

TOTALS = {"tea": 3, "coffee": 1}


@pytest.fixture(autouse=True)
def registered():
    with registry.added(MODEL):
        yield


@pytest.fixture
def filled(root):
    """A store with two tallies, next to a space and a session."""
    with fourfold.open(root) as store:
        drinks = store.open("tallies/drinks")
        assert [drinks.vote("tea", 2), drinks.vote("coffee"), drinks.vote("tea")] == [1, 2, 3]
        store.open("tallies/meals").vote("soup")
        store.space("did:key:one").set("a", {"n": 1})
        store.sessions.create_session({"id": "s"})
    return root


def run(capfd, *arguments):
    """Run a command in this process; return its exit code and its document."""
    code = main.run([*map(str, arguments), "--json"])
    return code, json.loads(capfd.readouterr().out)


def test_registry_knows_the_model_by_name_and_by_file(filled):
    assert registry.model("tallies") is MODEL
    assert registry.all_models()[-1] is MODEL
    assert registry.model_of(filled / "tallies" / "drinks.sqlite") is MODEL
    assert registry.model_of_database("tallies/drinks") is MODEL
    with pytest.raises(errors.NotFound, match="unknown model 'tally'") as caught:
        registry.model("tally")
    assert "documents, sessions, graphs, streams, tallies" in caught.value.hint


def test_store_opens_the_model_once(filled):
    with fourfold.open(filled) as store:
        drinks = store.open("tallies/drinks")
        assert drinks.totals() == TOTALS
        assert store.open("tallies/drinks") is drinks
        assert "tallies/drinks.sqlite" in store.health()
        with pytest.raises(errors.InvalidInput, match="tally name"):
            store.open("tallies/../escape")
        with pytest.raises(errors.FormatError, match="unknown database"):
            store.open("tables")


def test_concurrent_first_use_opens_the_model_once(root):
    """Every thread receives the one collection, complete as its `open` made it."""
    opened = []
    waiting = threading.Barrier(8)

    def open_slowly(database, kind, context):
        opened.append(MODEL.open(database, kind, context))
        time.sleep(0.05)
        return opened[-1]

    slow = replace(MODEL, name="slow", location=Location("slow", "*.sqlite", check_name))
    with (
        registry.added(replace(slow, open=open_slowly)),
        fourfold.open(root) as store,
        ThreadPoolExecutor(8) as pool,
    ):

        def first_use(_number):
            waiting.wait()
            return store.open("slow/drinks")

        collections = set(pool.map(first_use, range(8)))
    assert collections == set(opened)
    assert len(opened) == 1


def test_streams_publish_before_they_acknowledge_from_the_first_use(root, tmp_path):
    settings = {"archive.acknowledge": "published", "objects.url": str(tmp_path / "objects")}
    with fourfold.open(root, settings=settings) as store:
        store.streams.create("a", "text/plain", body=b"x")
        assert store.archive.standing().unpublished_records == 0
    with fourfold.open(root, mode="r", settings=settings) as store:
        assert store.streams.publish_on_write is None
        with pytest.raises(errors.ReadOnly):
            _ = store.archive


def test_verify_checks_the_rules_of_the_model(filled):
    assert verify(filled).ok
    with fourfold.open(filled) as store:
        store.open("tallies/drinks").database.transact(
            lambda txn: txn.execute("UPDATE total SET votes = 9 WHERE choice = 'tea'")
        )
    problems = [*map(str, verify(filled).problems)]
    assert problems == ["total: expected {'tea': 3, 'coffee': 1}, found {'coffee': 1, 'tea': 9}"]


def test_verify_checks_the_counter_of_the_model(filled):
    with fourfold.open(filled) as store:
        store.open("tallies/drinks").database.transact(
            lambda txn: txn.execute("INSERT INTO vote (seq, choice, votes) VALUES (99, 'x', 0)")
        )
    [problem] = verify(filled).problems
    assert "its log contains 99" in problem.message


def test_backup_restores_the_model(filled, tmp_path):
    with fourfold.open(filled) as store:
        store.backup(tmp_path / "copy")
    fourfold.restore(tmp_path / "copy", tmp_path / "again")
    with fourfold.open(tmp_path / "again") as store:
        assert store.open("tallies/drinks").totals() == TOTALS
        assert store.open("tallies/drinks").vote("milk") == 4


def test_published_model_is_restored_from_objects(filled, tmp_path):
    settings = {"objects.url": str(tmp_path / "objects")}
    with fourfold.open(filled, settings=settings) as store:
        report = store.publish(["tallies"])
        report.raise_if_failed()
        names = [database.name for database in report.published]
        assert names == ["tallies/drinks", "tallies/meals"]
        assert store.verify(objects=True).ok
    with fourfold.open(tmp_path / "again", settings=settings) as store:
        assert rebuild(store).failures == {}
        assert store.open("tallies/drinks").totals() == TOTALS
        assert store.open("tallies/drinks").verify() == []
        assert store.open("tallies/drinks").vote("milk") == 4


def test_background_publisher_covers_the_model(filled, tmp_path):
    settings = {"objects.url": str(tmp_path / "objects")}
    with fourfold.open(filled, settings=settings) as store:
        report = Continuous(store).round()
        published = {database.name for database in report.published}
    assert {"tallies/drinks", "tallies/meals", "sessions", "spaces/did:key:one"} == published


def test_commands_cover_the_model(filled, tmp_path, capfd):
    objects = tmp_path / "objects"
    code, document = run(capfd, "verify", filled)
    assert code == 0
    assert "tallies/drinks.sqlite" in json.dumps(document)
    code, document = run(capfd, "publish", filled, "--model", "tallies", "--objects", objects)
    assert code == 0
    assert [row["name"] for row in document["databases"]] == ["tallies/drinks", "tallies/meals"]
    code, document = run(capfd, "bootstrap", tmp_path / "again", "--objects", objects)
    assert code == 0
    assert document["databases"][0]["name"] == "tallies/drinks"
    code, document = run(capfd, "backup", filled, tmp_path / "copy")
    assert (code, document["databases"]) == (0, 4)
    code, document = run(capfd, "restore", tmp_path / "copy", tmp_path / "third")
    assert (code, document["databases"]) == (0, 4)
    with fourfold.open(tmp_path / "third") as store:
        assert store.open("tallies/drinks").totals() == TOTALS


def test_publish_command_lists_the_models(capfd):
    assert main.run(["publish", "--help"]) == 0
    assert "documents|sessions|graphs|streams|tallies" in "".join(capfd.readouterr().out.split())


def test_registry_is_unchanged_after_the_block():
    with registry.added(MODEL):
        pass
    names = [known.name for known in registry.all_models()]
    assert names == ["documents", "sessions", "graphs", "streams", "tallies"]


def test_names_and_files_of_the_models_are_distinct():
    models = registry.all_models()
    names = [known.name for known in models]
    folders = [known.location.folder for known in models]
    stored = [kind.profile.name for known in models for kind in known.kinds]
    for values in (names, folders, stored):
        assert len(set(values)) == len(values)


def test_pipeline_reads_the_tables_of_the_model(filled):
    pytest.importorskip("pyarrow")
    pytest.importorskip("pyspark")
    from fourfold.pipeline import cut, models, plan, scan  # noqa: PLC0415 - optional dependencies
    from fourfold.pipeline.options import read_options  # noqa: PLC0415

    assert models.model_names()[-1] == "tallies"
    assert "tallies" not in models.model_names("load")
    options = read_options({"root": str(filled), "model": "tallies", "table": "votes"})
    columns = options.table.select_columns(options.columns)
    parts = plan.plan(cut.read_cut(options).bounds, options, columns)
    rows = [row for part in parts for batch in scan.read_batches(part) for row in batch.to_pylist()]
    assert [tuple(row.values()) for row in sorted(rows, key=lambda row: row["space"])] == [
        ("drinks", 1, "tea", 2),
        ("drinks", 2, "coffee", 1),
        ("drinks", 3, "tea", 1),
        ("meals", 1, "soup", 1),
    ]


def test_model_without_tables_is_unknown_to_the_pipeline():
    pytest.importorskip("pyspark")
    from fourfold.pipeline import models  # noqa: PLC0415 - optional dependencies

    bare = replace(MODEL, name="bare", location=Location("bare", "*.sqlite", check_name))
    with registry.added(replace(bare, pipeline=None)):
        assert "bare" not in models.model_names()
        with pytest.raises(errors.NotFound, match="'bare' has no tables"):
            models.get_model("bare")
