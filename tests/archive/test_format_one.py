"""Objects of format 1 are deleted only after a proof that the archive tables have everything."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from random import Random

import pytest
from published_stores import (
    DID,
    Life,
    at,
    contents,
    objects_of,
    open_store,
    published,
    rebuilt,
    streams_of,
    verified,
)

import fourfold
from fourfold.cli import main
from fourfold.errors import PublisherFenced, Refused, StorageError
from fourfold.kernel import failpoints
from fourfold.store.format_one import drop_format_1

PREFIXES = ("points/", "manifests/", "databases/")


def of_format_1(url):
    return [key for key in objects_of(url) if key.startswith(PREFIXES)]


def open_tables(path, url):
    return fourfold.open(path, settings={"objects.url": str(url), "archive.format": 2})


def open_format_1(path, url):
    return fourfold.open(path, settings={"objects.url": str(url), "archive.format": 1})


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    folder = tmp_path_factory.mktemp("migrated")
    url = folder / "objects"
    with open_format_1(folder / "store", url) as store:
        life = Life(store, Random(7))
        for _ in range(2):
            life.everything()
            published(store)
    with open_tables(folder / "store", url) as store:
        published(store)
    return folder


@pytest.fixture
def migrated(tmp_path, template):
    """A store with two points of format 1 and one of format 2."""
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    return tmp_path / "store", tmp_path / "objects"


def test_dropped_format_1_leaves_an_archive_that_restores_everything(tmp_path, migrated):
    root, url = migrated
    before = contents(root), streams_of(root, settings=at(url))
    with open_tables(root, url) as store:
        assert len(store.points()) == 3
        dropped = drop_format_1(store)
        assert {entry.key for entry in dropped} >= {"points/list.json"}
        assert len(store.points()) == 1
        assert drop_format_1(store) == []
        assert store.verify(objects=True).problems == []
        store.space(DID).set("later", {})
        published(store)
        before = contents(root), before[1]
    assert of_format_1(url) == []
    again = rebuilt(tmp_path / "again", url)
    verified(again)
    assert (contents(again), streams_of(again, settings=at(url))) == before


def test_command_drops_format_1(migrated, capsys):
    root, url = migrated
    count = len(of_format_1(url))
    assert main.run(["publish", str(root), "--objects", str(url), "--drop-format-1"]) == 0
    assert f"deleted {count} objects" in capsys.readouterr().out
    assert of_format_1(url) == []
    assert main.run(["publish", str(root), "--objects", str(url), "--drop-format-1"]) == 0


def refuses(root, url, error=Refused, match=None):
    kept = of_format_1(url)
    with open_tables(root, url) as store, pytest.raises(error, match=match):
        drop_format_1(store)
    assert of_format_1(url) == kept
    assert kept


def test_archive_without_tables_refuses(tmp_path):
    url = tmp_path / "objects"
    with open_format_1(tmp_path / "store", url) as store:
        store.space(DID).set("a", {})
        published(store)
    refuses(tmp_path / "store", url, match="no tables")


def test_unpublished_changes_refuse(migrated):
    root, url = migrated
    with open_tables(root, url) as store:
        store.space("did:key:revisions").set("new", {})
    refuses(root, url, match="not published")


def test_database_in_format_1_only_refuses(migrated):
    root, url = migrated
    with open_format_1(root.with_name("other"), url.with_name("elsewhere")) as store:
        store.space(DID).set("a", {})
        published(store)
    copy_manifest(url.with_name("elsewhere"), url)
    refuses(root, url, match="in format 1 only")


def copy_manifest(source, target):
    for path in source.joinpath("manifests+").iterdir():
        target.joinpath("manifests+", path.name).write_bytes(path.read_bytes())


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
    with open_tables(root, url) as store:
        failpoints.arm("archive.format_1.deleted", "raise")
        try:
            with pytest.raises(StorageError):
                drop_format_1(store)
        finally:
            failpoints.disarm()
        assert of_format_1(url)
        assert [point.id for point in store.points()] == [store.points()[-1].id]
        drop_format_1(store)
    assert of_format_1(url) == []
