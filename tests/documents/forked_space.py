"""What tests of merges read and write on a space with a branch."""

from __future__ import annotations

COUNT = [{"op": "increment", "path": "/count", "by": 1}]


def shown(space, entity, name=""):
    state = space.read(entity, name)
    return None if state is None else state.document


def add(field, value):
    return [{"op": "add", "path": f"/value/{field}", "value": value}]
