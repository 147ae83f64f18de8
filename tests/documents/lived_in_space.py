"""A small space with a bit of everything, for tests that look at what is stored."""

from __future__ import annotations


def add(path, value):
    return [{"op": "add", "path": path, "value": value}]


def lived_in(space):
    """A space with a bit of everything."""
    space.set("a", {"n": 1, "text": "hello"})
    space.transact(
        [
            {"op": "patch", "id": "a", "patches": add("/m", 2.5)},
            {"op": "set", "id": "b", "value": {"n": 1.0}},
            {"op": "delete", "id": "c"},
        ],
        reads={"confirmed": [{"id": "a", "seq": 1}]},
        session="phone",
        local_seq=7,
    )
    space.set("b", {"n": 1})
    space.branches.create("f")
    space.patch("a", add("/f", True), branch="f")
    space.branches.create("g", "f")
    space.delete("a", branch="g")
    space.patch("b", add("/n", 2), branch="g")
    space.patch("b", add("/n", 2), branch="f")
    pending = {"id": "a", "local_seqs": [7], "basis_seq": space.seq()}
    space.transact(
        [{"op": "delete", "id": "b"}], reads={"pending": [pending]}, session="phone", local_seq=8
    )
    for number in range(12):
        space.patch("long", add("/n", number))
    space.branches.delete("g")
