"""A commit starts where the last one left the log, and looks again when anything came between."""

from __future__ import annotations

import pytest

from fourfold.errors import BranchEnded, NotFound


class _Undone(Exception):
    pass


def undone(space, seq):
    """A commit inside of a transaction, or of a step of one, that is undone."""
    with space.database.write():
        assert space.set("urn:a", {"value": 2}).seq == seq
        raise _Undone


def test_seqs_stay_dense_when_a_transaction_around_commits_is_undone(space):
    space.set("urn:a", {"value": 1})
    with pytest.raises(_Undone):
        undone(space, 2)
    assert space.set("urn:a", {"value": 3}).seq == 2
    assert space.verify() == []


def test_seqs_stay_dense_when_step_of_transaction_is_undone(space):
    with space.database.write():
        assert space.set("urn:a", {"value": 1}).seq == 1
        with pytest.raises(_Undone):
            undone(space, 2)
        assert space.set("urn:b", {"value": 3}).seq == 2
    assert space.set("urn:c", {"value": 4}).seq == 3
    assert space.verify() == []


def test_branch_that_ended_since_last_commit_to_it_is_refused(space):
    space.set("urn:a", {"value": 1})
    space.branches.create("draft")
    space.set("urn:a", {"value": 2}, branch="draft")
    space.branches.delete("draft")
    with pytest.raises(BranchEnded):
        space.set("urn:a", {"value": 3}, branch="draft")
    space.set("urn:a", {"value": 4})
    with pytest.raises(BranchEnded):
        space.set("urn:a", {"value": 5}, branch="draft")
    with pytest.raises(NotFound):
        space.set("urn:a", {"value": 6}, branch="other")
    assert space.read("urn:a").document == {"value": 4}


def test_a_commit_shows_what_it_wrote_only_to_who_looks(space):
    space.set("urn:a", {"list": [1]})
    commit = space.patch("urn:a", [{"op": "append", "path": "/list", "values": [2]}])
    assert len(commit.revisions) == 1
    assert commit.revisions[0] is commit.revisions[0]
    assert commit.revisions[:1] == commit.revisions
    assert "urn:a" in repr(commit)
    assert commit != space.patch("urn:a", [{"op": "append", "path": "/list", "values": [3]}])
