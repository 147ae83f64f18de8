"""The golden archive of tables opens, verifies, restores, and is published to further."""

from __future__ import annotations

import golden_tables
import pytest
from format_one import read_state

import fourfold
from fourfold.errors import FourfoldError
from fourfold.store.restoration import rebuild
from support.properties import sample

EXPECTED = golden_tables.expected()


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """The address of the archive; tests only read it."""
    folder = tmp_path_factory.mktemp("tables")
    golden_tables.unpack(folder)
    return str(folder / "objects")


def open_store(root, url):
    return fourfold.open(root, settings={"objects.url": url})


def test_points_are_listed_in_order(archive, tmp_path):
    with open_store(tmp_path / "store", archive) as store:
        points = store.points()
    assert [point.id for point in points] == [point for point, _ in EXPECTED["points"]]
    assert any(point.restored for point in points)


@pytest.mark.parametrize(("point", "state"), sample(EXPECTED["points"], 5))
def test_point_restores_the_recorded_state(archive, tmp_path, point, state):
    with open_store(tmp_path / "store", archive) as store:
        assert not rebuild(store, at=point).failures
        assert read_state(store) == state
        store.verify().raise_if_bad()


def test_newest_state_is_restored_without_a_point(archive, tmp_path):
    with open_store(tmp_path / "store", archive) as store:
        assert not rebuild(store).failures
        assert read_state(store) == EXPECTED["points"][-1][1]


def test_publisher_reads_verifies_and_publishes_further(tmp_path):
    golden_tables.unpack(tmp_path, "publisher")
    url = str(tmp_path / "objects")
    with open_store(tmp_path / "publisher", url) as store:
        assert read_state(store) == EXPECTED["nodes"]["publisher"]
        store.verify(objects=True).raise_if_bad()
        store.space("did:key:revisions").set("new", {"n": 1})
        store.streams.open("stream0").append([b"new"])
        report = store.publish()
        report.raise_if_failed()
        store.verify(objects=True).raise_if_bad()
        state = read_state(store)
    with open_store(tmp_path / "restored", url) as store:
        assert not rebuild(store).failures
        assert read_state(store) == state


def test_fenced_store_reads_but_does_not_publish(tmp_path):
    golden_tables.unpack(tmp_path, "fenced")
    with open_store(tmp_path / "fenced", str(tmp_path / "objects")) as store:
        assert read_state(store) == EXPECTED["nodes"]["fenced"]
        store.verify().raise_if_bad()
        with pytest.raises(FourfoldError):
            store.publish().raise_if_failed()
