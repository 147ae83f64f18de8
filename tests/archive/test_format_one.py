"""An archive of format 1 is restored, continued by tables, and deleted after a proof."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from published_stores import (
    DID,
    at,
    contents,
    objects_of,
    open_store,
    published,
    rebuilt,
    streams_of,
    verified,
)

from fourfold.archive.format_1.manifest import decode, file_key, manifest_key
from fourfold.cli import main
from fourfold.errors import (
    CorruptData,
    FutureFormat,
    HistoryTruncated,
    NotFound,
    PublisherFenced,
    Refused,
    StorageError,
    WriterLocked,
)
from fourfold.kernel import failpoints
from fourfold.models.documents import GcPolicy
from fourfold.objects import FolderStore
from fourfold.store import retention
from fourfold.store.format_one import drop_format_1
from fourfold.store.publish import now_ms
from fourfold.store.restoration import rebuild
from fourfold.store.retention import Keep

sys.path.append(str(Path(__file__).parents[1] / "golden"))

import format_one

PREFIXES = ("points/", "manifests/", "databases/")
POINTS = format_one.expected()["points"]
NODES = format_one.expected()["nodes"]
FACTS = "did:key:facts"
LATER_MS = 3 * 86_400_000


def of_format_1(url):
    return {key: data for key, data in objects_of(url).items() if key.startswith(PREFIXES)}


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """An archive of format 1, and the stores that published to it."""
    folder = tmp_path_factory.mktemp("format-1")
    format_one.unpack(folder, *format_one.NODES)
    return folder


@pytest.fixture
def nodes(tmp_path, template):
    """The archive, and a function that returns the root of a node; both may be changed."""
    shutil.copytree(template / "objects", tmp_path / "objects")

    def node(name):
        shutil.copytree(template / name, tmp_path / name)
        return tmp_path / name

    return node, tmp_path / "objects"


@pytest.fixture(scope="module")
def migrated_template(tmp_path_factory, template):
    folder = tmp_path_factory.mktemp("migrated")
    for name in ("objects", "publisher"):
        shutil.copytree(template / name, folder / name)
    with open_store(folder / "publisher", folder / "objects") as store:
        published(store)
    return folder


@pytest.fixture
def migrated(tmp_path, migrated_template):
    """A store whose archive has format 1 and tables."""
    shutil.copytree(migrated_template, tmp_path, dirs_exist_ok=True)
    return tmp_path / "publisher", tmp_path / "objects"


# Tables beside format 1


def test_publisher_continues_with_tables_and_loses_nothing(tmp_path, migrated):
    root, url = migrated
    with open_store(root, url) as store:
        assert [point.id for point in store.points()][:-1] == [point for point, _ in POINTS]
        assert format_one.read_state(store) == NODES["publisher"]
        assert store.verify(objects=True).problems == []
        assert published(store).point is None
    assert of_format_1(url) == of_format_1(tmp_path.joinpath("objects"))
    with open_store(tmp_path / "again", url) as again:
        assert not rebuild(again).failures
        assert format_one.read_state(again) == NODES["publisher"]
    point, state = POINTS[2]
    with open_store(tmp_path / "past", url) as past:
        assert not rebuild(past, at=point).failures
        assert format_one.read_state(past) == state
        past.space(FACTS).set("mine", {})
        failures = past.publish().failures
        assert isinstance(failures[f"spaces/{FACTS}"], PublisherFenced)


@pytest.mark.parametrize("name", ["older", "fenced"])
def test_store_with_an_older_state_does_not_start_tables(nodes, name):
    node, url = nodes
    before = of_format_1(url)
    with open_store(node(name), url) as store:
        failures = store.publish(models=["documents", "sessions", "graphs"]).failures
        assert {type(error) for error in failures.values()} == {PublisherFenced}
        assert "fourfold bootstrap" in next(iter(failures.values())).hint
        assert [point.id for point in store.points()] == [point for point, _ in POINTS]
    assert of_format_1(url) == before
    assert not [key for key in objects_of(url) if key.startswith("tables/")]


def test_another_store_does_not_start_tables(tmp_path, nodes):
    _, url = nodes
    with open_store(tmp_path / "other", url) as store:
        store.space(FACTS).set("a", {})
        error = store.publish().failures[f"spaces/{FACTS}"]
        assert isinstance(error, PublisherFenced)
        assert "no database of this store" in error.message


def test_first_store_restored_from_format_1_that_publishes_is_publisher(tmp_path, nodes):
    node, url = nodes
    for name in ("one", "two"):
        rebuilt(tmp_path / name, url)
    with open_store(tmp_path / "one", url) as one:
        one.space(FACTS).set("mine", {"n": 1})
        published(one)
        expected = format_one.read_state(one)
    for name in ("two", node("publisher").name):
        with open_store(tmp_path / name, url) as other:
            other.space(FACTS).set("theirs", {"n": 1})
            error = other.publish().failures[f"spaces/{FACTS}"]
            assert isinstance(error, PublisherFenced)
    with open_store(tmp_path / "again", url) as again:
        assert not rebuild(again).failures
        assert format_one.read_state(again) == expected


def test_store_restored_to_an_older_point_does_not_publish(tmp_path, nodes):
    _, url = nodes
    point, state = POINTS[-2]
    past = rebuilt(tmp_path / "past", url, at=point)
    with open_store(past, url) as store:
        assert format_one.read_state(store) == state
        store.space(FACTS).set("mine", {"n": 1})
        error = store.publish().failures[f"spaces/{FACTS}"]
        assert isinstance(error, PublisherFenced)
    with open_store(past, tmp_path / "elsewhere") as store:
        published(store, models=["documents", "sessions", "graphs"])
        expected = contents(past)
    assert contents(rebuilt(tmp_path / "again", tmp_path / "elsewhere")) == expected


def test_unchanged_store_at_an_older_point_does_not_publish(tmp_path, nodes):
    """A database that was created later would be missing in the tables."""
    _, url = nodes
    later = "29991231T000000.000Z-ffff"
    with FolderStore(url) as objects:
        point = json.loads(objects.get(f"points/{POINTS[-1][0]}.json").data)
        data = json.dumps({**point, "id": later, "databases": {}, "streams": {}}).encode()
        objects.put(f"points/{later}.json", data)
        listing = json.loads(objects.get("points/list.json").data)
        newest = listing["points"][-1]
        digest = hashlib.sha256(data).hexdigest()
        listing["points"].append({**newest, "id": later, "sha256": digest})
        objects.put("points/list.json", json.dumps(listing).encode())
    past = rebuilt(tmp_path / "past", url, at=POINTS[-1][0])
    with open_store(past, url) as store:
        failures = store.publish(models=["documents"]).failures
        assert {type(error) for error in failures.values()} == {PublisherFenced}


def test_older_point_is_not_taken_over(tmp_path, nodes):
    _, url = nodes
    with pytest.raises(Refused, match="format 1"):
        rebuilt(tmp_path / "past", url, at=POINTS[-2][0], take_over=True)
    assert not list(tmp_path.glob("past/spaces/*.sqlite"))
    newest = rebuilt(tmp_path / "newest", url, at=POINTS[-1][0], take_over=True)
    with open_store(newest, url) as store:
        published(store)


def test_publication_that_was_not_recorded_is_continued(nodes):
    """The manifest was replaced, and the process was killed before it recorded that."""
    node, url = nodes
    root = node("publisher")
    key = manifest_key(f"spaces/{FACTS}")
    with FolderStore(url) as objects:
        data = objects.get(key).data
        token = data[data.index(b'"token":"') + 9 :][:32]
        objects.put(key, data.replace(token, b"f" * 32))
    path = next(root.joinpath("spaces").glob("*facts*.sqlite"))
    intent = """{"token":"%s","publication":{"generation":18,"previous":17,"point":"p","at":"a",
        "position":1,"files":[]},"state":{},"change":0}"""
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE published SET intent = ?", (intent % ("f" * 32),))
        database.commit()
    # The first publication to tables is interrupted, too: it replaces the intent.
    failpoints.arm("archive.catalog.intended", "raise")
    try:
        with open_store(root, url) as store:
            assert store.publish(models=["documents"]).failures
    finally:
        failpoints.disarm()
    with open_store(root, url) as store:
        published(store)
        assert store.verify(objects=True).problems == []


def test_tables_start_while_another_process_writes_a_database(nodes):
    """Locks of files know no difference between another process and another opening."""
    node, url = nodes
    root = node("publisher")
    with open_store(root, url) as owner, open_store(root, url) as store:
        owner.space(FACTS).set("theirs", {"n": 1})
        failures = store.publish(models=["documents"]).failures
        assert {name: type(error) for name, error in failures.items()} == {
            f"spaces/{FACTS}": WriterLocked
        }
        published(owner, models=["documents"])


def test_name_of_a_deleted_space_is_free(tmp_path, nodes):
    node, url = nodes
    root = node("publisher")
    for path in root.joinpath("spaces").glob("*facts*"):
        path.unlink()
    with open_store(root, url) as store:
        store.space(FACTS).set("again", {"n": 1})
        published(store)
        expected = contents(root)
    assert contents(rebuilt(tmp_path / "again", url)) == expected


def test_format_1_values_and_points_stay_until_dropped(tmp_path, migrated):
    root, url = migrated
    values = {key for key in objects_of(url) if key.startswith("blobs/")}
    with open_store(root, url) as store:
        for did in ("did:key:revisions", FACTS):
            store.space(did).gc(GcPolicy(keep_seqs=1, blobs=True, blob_age_s=0))
        published(store)
        for later in (0, LATER_MS):
            report = retention.collect(store, keep=Keep(points=1), at_ms=now_ms() + later)
            assert not report.failures
        assert len(store.points()) == len(POINTS) + 1
        assert {key for key in objects_of(url) if key.startswith("blobs/")} == values
        point, state = POINTS[0]
        with open_store(tmp_path / "past", url) as past:
            assert not rebuild(past, at=point).failures
            assert format_one.read_state(past) == state
        drop_format_1(store)
        assert not retention.collect(store, at_ms=now_ms() + LATER_MS).failures
        left = {key for key in objects_of(url) if key.startswith("blobs/")}
        assert left < values
        assert store.verify(objects=True).problems == []


# Damage


def test_truncated_list_of_points_is_read_from_the_points(tmp_path, nodes):
    _, url = nodes
    with FolderStore(url) as objects:
        objects.put("points/list.json", objects.get("points/list.json").data[:40])
        last = objects.get(f"points/{POINTS[-1][0]}.json").data
        objects.put("points/29991231T000000.000Z-ffff.json", last[:40])
    with open_store(tmp_path / "store", url) as store:
        known = [point.id for point in store.points()]
    assert set(known) >= {point for point, _ in POINTS}
    assert known == sorted(known)
    assert known[-1] == POINTS[-1][0]


def test_damaged_object_is_named_and_the_others_are_restored(tmp_path, nodes):
    _, url = nodes
    with FolderStore(url) as objects:
        manifest = manifest_key(f"spaces/{FACTS}")
        publication = decode(objects.get(manifest).data, manifest).last
    file = next(file for file in publication.files if file.table == "occurrence")
    key = file_key(f"spaces/{FACTS}", publication.generation, file)
    with FolderStore(url) as objects:
        whole = objects.get(key).data
        objects.put(key, whole[:-3] + b"bad")
    with open_store(tmp_path / "again", url) as again:
        failures = rebuild(again).failures
        assert list(failures) == [f"spaces/{FACTS}"]
        assert key in failures[f"spaces/{FACTS}"].message
    with FolderStore(url) as objects:
        objects.put(key, whole)
    with open_store(tmp_path / "again", url) as again:
        report = rebuild(again)
        assert [done.name for done in report.restored] == [f"spaces/{FACTS}"]
        assert format_one.read_state(again) == POINTS[-1][1]


def test_manifests_of_a_later_version_and_torn_ones_are_refused(tmp_path, nodes):
    _, url = nodes
    keys = [manifest_key(name) for name in (f"spaces/{FACTS}", "graphs")]
    with FolderStore(url) as objects:
        facts, graphs = (objects.get(key).data for key in keys)
        at_ = facts.index(b'"migrations":') + len(b'"migrations":')
        objects.put(keys[0], facts[:at_] + b"99" + facts[facts.index(b",", at_) :])
        objects.put(keys[1], graphs[:60])
    with open_store(tmp_path / "again", url) as again:
        failures = rebuild(again).failures
    assert {type(error) for error in failures.values()} == {FutureFormat, CorruptData}
    assert len(failures) == 2


def test_removed_point_is_refused(tmp_path, nodes):
    _, url = nodes
    with open_store(tmp_path / "again", url) as again:
        with pytest.raises(NotFound):
            rebuild(again, at="20200101T000000.000Z-0000")
        # A list that was torn may name points that a database has removed.
        with FolderStore(url) as objects:
            data = objects.get(f"points/{POINTS[-1][0]}.json").data
            old = b"20200101T000000.000Z-0000"
            objects.put(f"points/{old.decode()}.json", data.replace(POINTS[-1][0].encode(), old))
            objects.put("points/list.json", b"{")
        failures = rebuild(again, at=old.decode()).failures
        assert HistoryTruncated in {type(error) for error in failures.values()}
        assert again.spaces() == []


# Deletion


def test_dropped_format_1_leaves_an_archive_that_restores_everything(tmp_path, migrated):
    root, url = migrated
    records = streams_of(root, settings=at(url))
    with open_store(root, url) as store:
        assert len(store.points()) == len(POINTS) + 1
        dropped = drop_format_1(store)
        assert {entry.key for entry in dropped} >= {"points/list.json"}
        assert len(store.points()) == 1
        assert drop_format_1(store) == []
        assert store.verify(objects=True).problems == []
        store.space(DID).set("later", {})
        published(store)
        before = contents(root)
    assert of_format_1(url) == {}
    again = rebuilt(tmp_path / "again", url)
    verified(again)
    assert (contents(again), streams_of(again, settings=at(url))) == (before, records)


def test_command_drops_format_1(migrated, capsys):
    root, url = migrated
    count = len(of_format_1(url))
    assert main.run(["publish", str(root), "--objects", str(url), "--drop-format-1"]) == 0
    assert f"deleted {count} objects" in capsys.readouterr().out
    assert of_format_1(url) == {}
    assert main.run(["publish", str(root), "--objects", str(url), "--drop-format-1"]) == 0


def refuses(root, url, error=Refused, match=None):
    kept = of_format_1(url)
    with open_store(root, url) as store, pytest.raises(error, match=match):
        drop_format_1(store)
    assert of_format_1(url) == kept
    assert kept


def test_archive_without_tables_refuses(nodes):
    node, url = nodes
    refuses(node("publisher"), url, match="no tables")


def test_unpublished_changes_refuse(migrated):
    root, url = migrated
    with open_store(root, url) as store:
        store.space("did:key:revisions").set("new", {})
    refuses(root, url, match="not published")


def test_database_in_format_1_only_refuses(migrated):
    root, url = migrated
    with FolderStore(url) as objects:
        data = objects.get(manifest_key("graphs")).data
        other = data.replace(b'"name":"graphs"', b'"name":"spaces/did:key:other"')
        objects.put(manifest_key("spaces/did:key:other"), other)
    refuses(root, url, match="in format 1 only")


def test_damaged_table_refuses(migrated):
    root, url = migrated
    path = next(url.joinpath("tables+", "documents.revision+").glob("*.parquet"))
    path.write_bytes(path.read_bytes()[:-20] + b"x" * 20)
    refuses(root, url, match=r"archive table documents\.revision")


def test_database_that_differs_from_the_tables_refuses(migrated):
    root, url = migrated
    path = next(path for path in root.joinpath("spaces").glob("*revisions*.sqlite"))
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE revision SET data = '{}' WHERE seq = 1")
        database.commit()
    refuses(root, url, match="differs from the archive")


def test_node_that_is_not_the_publisher_refuses(tmp_path, migrated):
    root, url = migrated
    again = rebuilt(tmp_path / "again", url)
    with open_store(again, url) as other:
        other.space(DID).set("a", {})
        published(other)
    refuses(root, url, error=PublisherFenced)


def test_interrupted_deletion_is_completed(migrated):
    root, url = migrated
    with open_store(root, url) as store:
        failpoints.arm("archive.format_1.deleted", "raise")
        try:
            with pytest.raises(StorageError):
                drop_format_1(store)
        finally:
            failpoints.disarm()
        assert of_format_1(url)
        assert [point.id for point in store.points()] == [store.points()[-1].id]
        drop_format_1(store)
    assert of_format_1(url) == {}
