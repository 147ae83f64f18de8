"""Archives of format 1 restore what they restored when they were made."""

from __future__ import annotations

import format_one
import pytest

import fourfold
from fourfold.store.restoration import rebuild
from support.properties import sample

EXPECTED = format_one.expected()


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """The address of the archive; tests only read it."""
    folder = tmp_path_factory.mktemp("format-1")
    format_one.unpack(folder)
    return str(folder / "objects")


def open_store(root, url):
    return fourfold.open(root, settings={"objects.url": url})


def test_points_are_listed_in_order(archive, tmp_path):
    with open_store(tmp_path / "store", archive) as store:
        points = store.points()
    assert [point.id for point in points] == [point for point, _ in EXPECTED["points"]]
    assert [point.restored for point in points if point.restored] == [points[5].id]


@pytest.mark.parametrize(("point", "state"), sample(EXPECTED["points"], 5))
def test_point_restores_the_recorded_state(archive, tmp_path, point, state):
    with open_store(tmp_path / "store", archive) as store:
        assert not rebuild(store, at=point).failures
        assert format_one.read_state(store) == state
        store.verify().raise_if_bad()


def test_newest_state_is_restored_without_a_point(archive, tmp_path):
    with open_store(tmp_path / "store", archive) as store:
        assert not rebuild(store).failures
        assert format_one.read_state(store) == EXPECTED["points"][-1][1]
