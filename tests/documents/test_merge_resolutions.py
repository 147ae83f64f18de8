"""Conflicts of a merge are resolved by entity or by path; what is not needed is refused."""

from __future__ import annotations

import pytest
from forked_space import add, shown

from fourfold.content import content_id
from fourfold.errors import Conflict, InvalidInput, ReplayMismatch
from fourfold.models.documents import ABSENT, OURS, THEIRS, merge


def both_change(space):
    space.patch("urn:a", [*add("x", 1), *add("y", 1), *add("z", 1)], branch="work")
    space.patch("urn:a", [*add("x", 2), *add("y", 2)])


def test_paths_are_resolved_one_by_one(forked):
    both_change(forked)
    resolutions = {("urn:a", "/value/x"): OURS, ("urn:a", ("value", "y")): ["decided"]}
    forked.branches.merge("work", "", resolutions=resolutions)
    assert shown(forked, "urn:a")["value"] == {"x": 2, "y": ["decided"], "z": 1, "list": [1]}
    assert forked.branches.merge("work", "").commit is None


def test_path_is_resolved_as_the_source_or_as_absent(forked):
    both_change(forked)
    resolutions = {("urn:a", "/value/x"): THEIRS, ("urn:a", "/value/y"): ABSENT}
    forked.branches.merge("work", "", resolutions=resolutions)
    assert shown(forked, "urn:a")["value"] == {"x": 1, "z": 1, "list": [1]}


@pytest.mark.parametrize(("side", "value"), [(OURS, 2), (THEIRS, 1)])
def test_entity_is_resolved_as_one_side(forked, side, value):
    both_change(forked)
    forked.branches.merge("work", "", resolutions={"urn:a": side})
    assert shown(forked, "urn:a")["value"] == {"x": value, "y": value, "z": 1, "list": [1]}


def test_resolution_as_the_target_is_brought_to_other_branches(forked):
    """Only the merges with resolutions are new to the other branch, so they must be written."""
    forked.patch("urn:a", add("x", 1), branch="work")
    forked.patch("urn:a", add("x", 2))
    for name, parent in (("work/old", "work"), ("main/old", ""), ("other", "")):
        forked.branches.create(name, parent)
    for source, target in (("main/old", "work"), ("work/old", ""), ("work", "")):
        forked.branches.merge(source, target, resolutions={"urn:a": OURS})
    forked.branches.merge("work", "other")
    assert shown(forked, "urn:a", "other")["value"]["x"] == 1
    forked.branches.merge("", "other")
    assert shown(forked, "urn:a", "other")["value"]["x"] == 2


def test_conflicts_without_a_resolution_stay(forked):
    both_change(forked)
    before = forked.seq()
    with pytest.raises(Conflict) as caught:
        forked.branches.merge("work", "", resolutions={("urn:a", "/value/x"): 3})
    assert caught.value.details["conflicts"][0]["paths"] == ["/value/y"]
    assert forked.seq() == before


def test_deletion_is_resolved_by_the_empty_path(forked):
    forked.patch("urn:a", add("x", 1), branch="work")
    forked.delete("urn:a")
    forked.branches.merge("work", "", resolutions={("urn:a", ""): THEIRS})
    assert shown(forked, "urn:a")["value"]["x"] == 1


@pytest.mark.parametrize(
    "resolutions",
    [
        {("urn:a", "/value/z"): OURS},
        {("urn:a", "/value/x"): OURS, ("urn:a", "/value/nowhere"): 1},
        {("urn:b", "/value"): OURS},
        {("urn:b",): OURS},
        {("urn:a", "value"): OURS},
        {("urn:a", "/value/x", "/value/y"): OURS},
        {("urn:a", "/value/x"): OURS, ("urn:a", ("value", "x")): OURS},
        {("urn:a", "/value/x"): OURS, "urn:a": OURS},
        {("urn:a", ""): 1},
        {("urn:a", 1): 1},
        {"urn:c": OURS},
        {"urn:a": "ours"},
    ],
)
def test_resolutions_of_wrong_or_needless_paths_are_refused(forked, resolutions):
    both_change(forked)
    forked.set("urn:c", {"value": 1}, branch="work")
    before = forked.seq()
    for dry_run in (True, False):
        with pytest.raises(InvalidInput):
            forked.branches.merge("work", "", resolutions=resolutions, dry_run=dry_run)
    assert forked.seq() == before


def test_named_merge_tells_choices_from_values(forked):
    both_change(forked)
    name = {"session": "s", "local_seq": 1}
    places = {("urn:a", "/value/x"): OURS, ("urn:a", "/value/y"): ABSENT}
    first = forked.branches.merge("work", "", resolutions=places, **name)
    again = forked.branches.merge("work", "", resolutions=places, **name)
    assert (again.commit.seq, again.commit.replayed) == (first.commit.seq, True)
    for other in ("ours", THEIRS, ["ours"]):
        changed = places | {("urn:a", "/value/x"): other}
        with pytest.raises(ReplayMismatch):
            forked.branches.merge("work", "", resolutions=changed, **name)


def test_name_of_a_merge_is_that_of_earlier_versions():
    asked = merge.ask("work", "", {"urn:a": {"n": 1}}, field_level=True)
    text = '{"field_level":true,"resolutions":{"urn:a":{"n":1}},"source":"work","target":""}'
    assert asked.name == content_id(text.encode())
