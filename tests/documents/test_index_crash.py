"""A process is killed while it maintains or builds indexes: what is left is what the log gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from index_child import DID

import fourfold
from support.crash import run

SCRIPT = Path(__file__).with_name("index_child.py")


@pytest.mark.parametrize(
    ("point", "at"), [("kernel.statement.after", 60), ("kernel.commit.before", 25)]
)
def test_a_kill_in_a_commit_leaves_index_and_log_alike(root, history, point, at):
    for life in range(2):
        crash = run(SCRIPT, "write", str(root), history, str(life), fault=f"{point}=kill@{at}")
        assert crash.killed, crash
    with fourfold.open(root) as store:
        space = store.space(DID, history=history)
        assert [info.state for info in space.indexes] == ["ready"] * 4
        assert space.verify() == []
        assert space.seq() >= int(crash.lines[-1])
        for value in range(5):
            states = space.read_many(space.ids())
            expected = [id_ for id_, state in states.items() if state.document["n"] == value]
            assert [match.id for match in space.find({"n": value}, scan=False)] == expected
            hits = space.search(f"word{value}", limit=100)
            assert sorted(hit.id for hit in hits) == expected
            near = space.search(vector=[value, 1], limit=100)
            assert sorted(hit.id for hit in near if hit.score > 0.99999) == expected


@pytest.mark.parametrize(("at", "kind"), [(2, "value"), (5, "value"), (3, "text"), (3, "vector")])
def test_a_killed_build_continues_where_it_was(root, history, at, kind):
    with fourfold.open(root) as store:
        space = store.space(DID, history=history)
        for number in range(30):
            space.set(f"e{number:02}", document(number % 3))
    crash = run(SCRIPT, "build", str(root), history, kind, fault=f"documents.index.build=kill@{at}")
    assert crash.killed, crash
    with fourfold.open(root) as store:
        space = store.space(DID, history=history)
        with space.view() as view:
            built = view.value("SELECT id FROM index_build")
        assert built == ("" if at == 1 else f"e{3 * (at - 1) - 1:02}")
        space.set("e00", document(2))
        space.set("e29", document(7))
        assert space.indexes.wait("i0-0").state == "ready"
        assert space.verify() == []
        assert (space.count({"n": 2}), space.count({"n": 7})) == (10, 1)
        assert space.count({"n": 2}, at=30) == 10
        for at in (None, 30):
            expected = [each.id for each in space.find({"n": 2}, at=at)]
            if kind == "text":
                hits = space.search("word2", at=at)
                assert sorted(hit.id for hit in hits) == expected
            if kind == "vector":
                hits = space.search(vector=[2, 1], at=at, limit=10)
                assert sorted(hit.id for hit in hits) == expected


def document(number):
    return {"n": number, "text": f"word{number}", "vector": [number, 1]}
