"""A store is killed with SIGKILL while it publishes, or is rebuilt."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from published_stores import Life, contents, open_store, published, rebuilt, verified

from fourfold.store import retention
from support import crash

CHILD = Path(__file__).with_name("published_child.py")
QUICK = ("archive.upload.after=kill@9", "archive.manifest.uploaded=kill@2")
"""While there is nothing yet, or a part; and after the manifest is uploaded, not yet recorded."""
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


KEEPING = (
    "archive.pack.uploaded=kill@2",
    "archive.retired.listed=kill@3",
    "archive.collect.deleted=kill@2",
)
"""While there are packs that nothing names, lists that nothing names, and when objects are gone."""
KEEPING_SLOW = tuple(
    f"archive.{point}=kill@{at}"
    for at in (1, 4, 9)
    for point in (
        "pack.uploaded",
        "retired.listed",
        "collect.deleted",
        "manifest.intended",
        "manifest.uploaded",
        "manifest.recorded",
        "upload.after",
        "segment.built",
    )
)


def check(folder, points):
    """The store goes on publishing, and the objects rebuild it; every reported point is there.
    How many there are.
    """
    url = folder / "objects"
    with open_store(folder / "store", url) as store:
        published(store)
        assert store.verify(objects=True).problems == []
        known = [point.id for point in store.points()]
        assert set(points) <= set(known)
        expected = contents(store.root)
    again = rebuilt(folder / f"again-{len(known)}", url)
    verified(again)
    assert contents(again) == expected
    if points:
        verified(rebuilt(folder / f"known-{len(known)}", url, at=points[-1]))
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


def check_kept(folder, points):
    """The newest reported points are there, and each restores; what is left is in order."""
    with open_store(folder / "store", folder / "objects") as store:
        known = [entry.id for entry in store.points()]
        for number, point in enumerate(known):
            verified(rebuilt(folder / f"kept-{number}", folder / "objects", at=point))
        assert points[-1] in known
        assert set(points[-4:]) <= set(known)
        for grace in (1e9, 0.0):
            done = retention.collect(store, keep=retention.Keep(points=3), grace_s=grace)
            assert not done.failures
        assert not retention.merge(store).failures
        assert store.verify(objects=True).problems == []
    check(folder, points[-2:])


@pytest.mark.parametrize("fault", KEEPING)
def test_a_store_that_is_killed_while_it_merges_and_deletes_loses_no_point(tmp_path, fault):
    died = crash.run(CHILD, str(tmp_path), "3", "keep", fault=fault)
    assert died.killed, died
    check_kept(tmp_path, died.lines)


@pytest.mark.slow
@pytest.mark.parametrize("fault", KEEPING_SLOW)
def test_a_store_that_is_killed_anywhere_while_it_merges_and_deletes_loses_no_point(
    tmp_path, fault
):
    died = crash.run(CHILD, str(tmp_path), "4", "keep", fault=fault)
    assert died.killed, died
    if died.lines:
        check_kept(tmp_path, died.lines)


@pytest.mark.slow
def test_a_store_that_is_killed_again_and_again_while_it_merges_loses_no_point(tmp_path):
    random, points = Random(12), []
    for seed in range(8):
        moment = crash.Moment(acknowledgements=random.randint(2, 9), seconds=random.random() / 2)
        died = crash.run(CHILD, str(tmp_path), str(seed), "keep", kill=moment)
        assert died.killed, died
        points += died.lines
        with open_store(tmp_path / "store", tmp_path / "objects") as store:
            known = [point.id for point in store.points()]
            assert set(points[-4:]) <= set(known)
            assert store.verify(objects=True).problems == []
        for at in (known[0], known[-1]):
            verified(rebuilt(tmp_path / f"{seed}-{at}", tmp_path / "objects", at=at))


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
