"""A store is killed with SIGKILL while it publishes, or is rebuilt."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from published_stores import Life, contents, open_store, published, rebuilt, verified

from fourfold.testing import crash

CHILD = Path(__file__).with_name("published_child.py")
QUICK = ("archive.upload.after=kill@9", "archive.manifest.uploaded=kill@2")
"""While there is nothing yet, or only a part; and when the manifest is up and nobody knows."""
SLOW = tuple(
    f"archive.{point}=kill@{at}"
    for at in (1, 5, 17)
    for point in (
        "segment.built",
        "segment.renamed",
        "upload.before",
        "upload.after",
        "manifest.intended",
        "manifest.uploaded",
        "manifest.recorded",
    )
)


def check(folder, points):
    """The store goes on publishing, and the objects rebuild it; every point that was told is there.
    How many there are.
    """
    url = folder / "objects"
    with open_store(folder / "store", url) as store:
        published(store)
        assert store.verify(objects=True).problems == []
        known = [each.id for each in store.points()]
        assert set(points) <= set(known)
        expected = contents(store.root)
    again = rebuilt(folder / f"again-{len(known)}", url)
    verified(again)
    assert contents(again) == expected
    if points:
        verified(rebuilt(folder / f"told-{len(known)}", url, at=points[-1]))
    return len(known)


@pytest.mark.parametrize("fault", QUICK)
def test_a_store_that_is_killed_while_it_publishes_goes_on(tmp_path, fault):
    died = crash.run(CHILD, str(tmp_path), "1", fault=fault)
    assert died.killed, died
    check(tmp_path, died.lines)


@pytest.mark.slow
@pytest.mark.parametrize("fault", SLOW)
def test_a_store_that_is_killed_anywhere_while_it_publishes_goes_on(tmp_path, fault):
    died = crash.run(CHILD, str(tmp_path), "2", fault=fault)
    assert died.killed, died
    check(tmp_path, died.lines)


@pytest.mark.slow
def test_a_store_that_is_killed_again_and_again_loses_no_point(tmp_path):
    random = Random(11)
    points = []
    for seed in range(12):
        moment = crash.Moment(acknowledgements=random.randint(0, 3), seconds=random.random() / 4)
        died = crash.run(CHILD, str(tmp_path), str(seed), kill=moment)
        assert died.killed, died
        points += died.lines
        check(tmp_path, points)


def test_a_rebuilding_that_is_killed_is_run_again(tmp_path):
    url = tmp_path / "objects"
    with open_store(tmp_path / "store", url) as store:
        Life(store, Random(3)).everything()
        published(store)
        expected = contents(store.root)
    died = crash.run(CHILD, str(tmp_path), "build", fault="kernel.commit.before=kill@40")
    assert died.killed, died
    again = rebuilt(tmp_path / "again", url)
    verified(again)
    assert contents(again) == expected
    assert not list(again.glob(".restoring"))
