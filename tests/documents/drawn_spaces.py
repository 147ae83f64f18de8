"""Histories of a space for property tests: a list of steps that is drawn once and played on a real
space.
"""

from __future__ import annotations

import json
from contextlib import contextmanager

from hypothesis import strategies as st

import fourfold
from fourfold.errors import BranchEnded, Conflict

IDS = ("urn:a", "urn:b", "urn:c", "urn:d")
NAMES = st.integers(0, 4)
NUMBERS = st.integers(0, 3)
FIELDS = st.sampled_from(["x", "y", "z"])

WRITES = st.one_of(
    st.tuples(st.just("set"), st.sampled_from(IDS), FIELDS, NUMBERS),
    st.tuples(st.just("add"), st.sampled_from(IDS), FIELDS, NUMBERS),
    st.tuples(st.just("count"), st.sampled_from(IDS), FIELDS, NUMBERS),
    st.tuples(st.just("delete"), st.sampled_from(IDS), FIELDS, NUMBERS),
)
STEPS = st.one_of(
    st.tuples(st.just("commit"), NAMES, st.lists(WRITES, min_size=1, max_size=4)),
    st.tuples(st.just("commit"), NAMES, st.lists(WRITES, min_size=1, max_size=4)),
    st.tuples(st.just("fork"), NAMES, NUMBERS),
    st.tuples(st.just("end"), NAMES, NUMBERS),
    st.tuples(st.just("merge"), NAMES, NAMES),
    st.tuples(st.just("tidy"), st.sampled_from(["all", "log", 1, 2]), NUMBERS),
    st.tuples(st.just("burst"), NAMES, st.sampled_from(IDS)),
)
SCRIPTS = st.lists(STEPS, min_size=4, max_size=24)


def operation(write):
    kind, entity, field, number = write
    if kind == "set":
        return {"op": "set", "id": entity, "value": {"value": {field: number}}}
    if kind == "delete":
        return {"op": "delete", "id": entity}
    if kind == "add":
        patches = [{"op": "add", "path": f"/value/{field}", "value": number}]
    else:
        patches = [{"op": "increment", "path": "/value/count", "by": number + 1}]
    return {"op": "patch", "id": entity, "patches": patches}


def branch(space, number):
    """One of the branches, dead ones included."""
    every = space.branches.list(deleted=True)
    return every[number % len(every)].name


def play(space, script):
    """Everything of the script that is allowed at its place."""
    for kind, one, other in script:
        try:
            _play(space, kind, one, other)
        except (BranchEnded, Conflict):
            continue


def _play(space, kind, one, other):
    if kind == "commit":
        space.transact([operation(write) for write in other], branch=branch(space, one))
    elif kind == "burst":
        for _ in range(12):
            space.transact([operation(("count", other, "x", 1))], branch=branch(space, one))
    elif kind == "fork":
        parent = space.branches.get(branch(space, one))
        count = len(space.branches.list(deleted=True))
        at = max(parent.created_seq, space.seq() - other)
        if count < 6:
            space.branches.create(f"b{count}", parent.name, at)
    elif kind == "end" and other == 0 and branch(space, one):
        space.branches.delete(branch(space, one))
    elif kind == "merge" and branch(space, one) != branch(space, other):
        space.branches.merge(branch(space, one), branch(space, other))
    elif kind == "tidy":
        space.maintain(one, pins=[other] if other <= space.seq() else [])


def points(space):
    """Every branch at every seq at which it can be read."""
    newest = space.seq()
    return [
        (each.name, seq)
        for each in space.branches.list(deleted=True)
        for seq in range(each.created_seq, newest + 1)
    ]


def everything(space):
    """Every state of every entity, at every seq of every branch, read one by one."""
    return {
        (name, seq, entity): space.read(entity, name, seq)
        for name, seq in points(space)
        for entity in IDS
    }


@contextmanager
def played(script, history="revisions"):
    with fourfold.open(":memory:") as store:
        space = store.space("did:key:zDrawn", history=history)
        play(space, script)
        yield space


class Traced:
    """A view that remembers which queries were asked, and with what."""

    def __init__(self, view):
        self._view = view
        self.sql = view.sql
        self.snapshot = view.snapshot
        self.asked = []

    def __getattr__(self, name):
        found = getattr(self._view, name)

        def ask(sql, params=()):
            self.asked.append((sql, params))
            return found(sql, params)

        return ask

    def ids_looked_at(self):
        """The entities whose revisions were read."""
        return {
            entity
            for sql, params in self.asked
            if sql in (self.sql.newest_rows, self.sql.replays)
            for entity in json.loads(params[2])
        }
