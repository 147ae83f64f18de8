"""What the tests of collections share: a life with branches and merges, and what is known of it."""

from __future__ import annotations

import json

import pytest

from fourfold.errors import HistoryTruncated
from fourfold.models.documents.gc.policy import GcPolicy

NEWEST = GcPolicy(keep_seqs=1)


def lived(space):
    """A life in which everything happens that a collection must respect; its forks and pins."""
    for number in range(12):
        space.set("a", {"n": number, "text": "x" * 300})
        space.patch("b", [{"op": "add", "path": f"/k{number}", "value": number}])
    space.set("gone", {"n": 1})
    space.delete("gone")
    forked = space.seq()
    space.branches.create("f")
    for number in range(12, 24):
        space.set("a", {"n": number, "text": "y" * 300})
        space.patch("b", [{"op": "append", "path": "/list", "values": [number]}])
        space.patch("b", [{"op": "add", "path": "/own", "value": number}], branch="f")
    nested = space.seq()
    space.branches.create("f/g", "f")
    for number in range(6):
        space.patch("b", [{"op": "add", "path": "/deep", "value": number}], branch="f/g")
        space.set("c", {"n": number}, branch="f")
        space.set("d", {"n": number})
    merged = space.branches.merge("f", "").source.seq
    for number in range(8):
        space.patch("d", [{"op": "increment", "path": "/n", "by": 1}])
        space.patch("b", [{"op": "add", "path": "/late", "value": number}], branch="f")
    space.branches.create("old")
    space.set("a", {"n": "on old"}, branch="old")
    space.branches.delete("old")
    for number in range(5):
        space.set("a", {"n": number, "last": True})
    return {("", forked), ("f", nested), ("f", merged)}


def remembered(space):
    """Everything that every branch ever showed."""
    known = {}
    for branch in space.branches.list(deleted=True):
        for seq in range(branch.created_seq, space.seq() + 1):
            known[branch.name, seq] = shown(space, branch.name, seq)
    return known


_REMEMBERED = {}


def lived_and_remembered(space):
    """A life, its forks and pins, and everything that every branch ever showed.

    Every life shows the same, so it is read only once for each kind of history.
    """
    points = lived(space)
    kind = space.history_kind.name
    if kind not in _REMEMBERED:
        _REMEMBERED[kind] = remembered(space)
    return points, _REMEMBERED[kind]


def shown(space, branch, at):
    ids = ("a", "b", "c", "d", "gone", "never")
    return {
        entity: state and (state.op, state.seq, json.dumps(state.document, sort_keys=True))
        for entity, state in space.read_many(ids, branch, at).items()
    } | {"ids": space.ids(branch, at)}


def check(space, known, kept=frozenset()):
    """What is at or above the horizon, and at the points in `kept`, is as it was; all else below is
    refused, unless it is on record that it stays.
    """
    horizon = space.horizon()
    with space.view() as view:
        points = {tuple(row) for row in view.all(view.sql.gc_points)}
    assert {point for point in kept if point[1] < horizon} <= points
    for (branch, seq), states in known.items():
        if seq >= horizon or (branch, seq) in points or seq == 0:
            assert shown(space, branch, seq) == states, (branch, seq)
        else:
            refused(space, lambda b=branch, s=seq: space.read("a", b, s))
            refused(space, lambda b=branch, s=seq: space.read_many(["a"], b, s))
            refused(space, lambda b=branch, s=seq: space.ids(b, s))
    assert space.verify() == []


def refused(space, call):
    """The call is refused because of the horizon, which the error names."""
    with pytest.raises(HistoryTruncated) as caught:
        call()
    assert caught.value.details["horizon"] == space.horizon()
    assert caught.value.kind == "history_truncated"


def rows(space, table):
    with space.view() as view:
        return view.value(f'SELECT count(*) FROM "{table}"')
