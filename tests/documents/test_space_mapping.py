"""A space as a mapping from ids to documents, and the verbs that all models share."""

from __future__ import annotations

import pytest

from fourfold.errors import InvalidInput, NotFound


def test_item_is_the_document(space):
    space.set("urn:a", {"value": {"x": 1}})
    assert space["urn:a"] == {"value": {"x": 1}}


def test_item_is_a_copy(space):
    space.set("urn:a", {"value": {"x": 1}})
    space["urn:a"]["value"]["x"] = 2
    assert space["urn:a"] == {"value": {"x": 1}}


@pytest.mark.parametrize("deleted", [False, True])
def test_missing_item_raises_not_found(space, deleted):
    if deleted:
        space.set("urn:a", {"value": 1})
        space.delete("urn:a")
    with pytest.raises(NotFound, match="no entity 'urn:a'"):
        space["urn:a"]
    with pytest.raises(KeyError):
        space["urn:a"]
    assert "urn:a" not in space


def test_contains_len_and_iteration_agree_with_ids(space):
    for name in ("urn:b", "urn:a", "urn:c"):
        space.set(name, {"value": 1})
    space.delete("urn:b")
    assert list(space) == space.ids() == ["urn:a", "urn:c"]
    assert len(space) == 2
    assert "urn:a" in space
    assert 5 not in space


def test_empty_space_is_true_and_has_no_items(space):
    assert space
    assert len(space) == 0
    assert list(space) == []


def test_iteration_shows_one_state(space, monkeypatch):
    monkeypatch.setattr("fourfold.limits.HISTORY_PAGE_ROWS", 2)
    for number in range(5):
        space.set(f"urn:{number}", {"value": number})
    ids = iter(space)
    assert next(ids) == "urn:0"
    space.delete("urn:4")
    space.set("urn:9", {"value": 9})
    assert list(ids) == ["urn:1", "urn:2", "urn:3", "urn:4"]


def test_item_of_a_wrong_type_is_refused(space):
    with pytest.raises(InvalidInput):
        space[5]


def test_position_is_the_newest_seq(space):
    assert space.position() == space.seq() == 0
    assert space.set("urn:a", {"value": 1}).seq == space.position()


def test_follow_yields_what_watch_yields(space):
    space.set("urn:a", {"value": 1})
    followed = list(space.follow(after=0, timeout=0))
    assert followed == list(space.watch(after=0, timeout=0))
    assert [commit.seq for commit in followed] == [1]
