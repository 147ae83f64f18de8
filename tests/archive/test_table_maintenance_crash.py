"""Archive tables after kills of their maintenance: every point that is listed restores."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pytest
from published_stores import DID, LARGE, Life, contents, open_store, published, rebuilt, verified
from table_maintenance import maintained, rows_at_points

from fourfold.archive.catalog import Catalog
from fourfold.archive.delta_log import DeltaLog
from fourfold.archive.table_layout import STREAM_RECORDS, table_prefix
from fourfold.models.documents import GcPolicy
from fourfold.objects import FolderStore
from support import crash
from support.properties import with_slow

CHILD = Path(__file__).with_name("maintained_child.py")
PARTS = 20
"""Tests that share the kills before each write."""


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A store with something to purge, compact, drop and delete; and its two newest points."""
    return make_template(tmp_path_factory.mktemp("template"))


@pytest.fixture(scope="module")
def expected(tmp_path_factory, template):
    """The contents of the kept points after a maintenance that is not killed."""
    return maintained_whole(tmp_path_factory.mktemp("expected"), template)


def make_template(folder):
    with open_store(folder / "store", folder / "objects") as store:
        life = Life(store, Random(21))
        life.everything()
        published(store)
        space, sessions = store.space(DID), store.sessions
        space.blobs.put(b"x" * LARGE)
        sessions.create_session({"id": "purged"})
        sessions.append_event("purged", {"type": "turn/started", "turn": {"n": 1}})
        published(store)
        maintained(store)
        for number in range(3):
            space.set("a", {"n": number})
            life.documents()
            published(store)
        sessions.delete_session("purged")
        sessions.gc(0)
        space.gc(GcPolicy(keep_seqs=1, blobs=True, blob_age_s=0))
        published(store)
        space.set("a", {"n": "last"})
        published(store)
        points = [point.id for point in store.points()][-2:]
    return folder, points


def maintained_whole(tmp_path, template):
    folder, points = template
    whole = tmp_path / "whole"
    shutil.copytree(folder, whole)
    with open_store(whole / "store", whole / "objects") as store:
        maintained(store)
        assert [point.id for point in store.points()] == points
    return rows_at_points(whole, whole / "objects", points, "expected")


def check_killed(tmp_path, template, expected, number):
    """Kill a maintenance before a write, and check the archive; return False after the last one."""
    folder, points = template
    copy = tmp_path / f"copy-{number}"
    shutil.copytree(folder, copy)
    died = crash.run(CHILD, str(copy), str(number))
    if not died.killed:
        assert died.returncode == 0, died
        assert number > int(died.lines[-1])
        return False
    url = copy / "objects"
    with open_store(copy / "store", url) as store:
        listed = [point.id for point in store.points()]
    assert listed[-2:] == points
    for place, point in enumerate({listed[0], listed[-1]}):
        verified(rebuilt(copy / f"killed-{place}", url, at=point))
    with open_store(copy / "store", url) as store:
        maintained(store)
        assert [point.id for point in store.points()] == points
        assert store.verify(objects=True).problems == []
    check_objects(url)
    assert rows_at_points(copy, url, points, "after") == expected
    with open_store(copy / "store", url) as store:
        store.space(DID).set("a", {"n": "more"})
        published(store)
        newest = contents(store.root)
    assert contents(rebuilt(copy / "newest", url)) == newest
    shutil.rmtree(copy)
    return True


def check_objects(url):
    """Check that no object is left over, and that the catalog names the newest version."""
    with FolderStore(url) as objects:
        for table, version in Catalog(objects).refresh().tables.items():
            snapshot = DeltaLog(objects, table_prefix(table)).snapshot()
            assert snapshot.version == version
            if table == STREAM_RECORDS:
                continue
            keys = {info.key.rsplit("/", 1)[1] for info in objects.list(f"tables/{table}/0")}
            assert keys == set(snapshot.files), table


@pytest.mark.parametrize("number", with_slow([23], [2, 9, 40]))
def test_archive_survives_a_kill_of_its_maintenance(tmp_path, template, expected, number):
    assert check_killed(tmp_path, template, expected, number)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1, 1 + PARTS))
def test_archive_survives_a_kill_before_any_write_of_its_maintenance(
    tmp_path, template, expected, first
):
    """Files, commits of tables and of the catalog, checkpoints and deletions."""
    number = first
    while check_killed(tmp_path, template, expected, number):
        number += PARTS
    assert number > PARTS
