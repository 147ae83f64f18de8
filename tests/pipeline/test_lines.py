"""Lines of history: which ancestors a reader of a branch sees, and until which seq."""

from __future__ import annotations

import apsw
import pytest

import fourfold
from fourfold.pipeline import cut
from fourfold.pipeline.documents.lines import lines
from fourfold.pipeline.options import read_options
from fourfold.query.documents.lines import LineLink

DID = "did:web:s"


@pytest.fixture
def root(tmp_path):
    """A branch of a branch; each writes once."""
    with fourfold.open(tmp_path / "store") as store:
        space = store.space(DID)
        space.set("e", {"n": 1})
        space.branches.create("a")
        space.set("e", {"n": 2}, branch="a")
        space.branches.create("a/b", parent="a")
        space.set("f", {"n": 3}, branch="a/b")
        space.set("g", {"n": 4})
    return tmp_path / "store"


def links_of(root, branch):
    options = read_options({"root": str(root), "table": "state", "branch": branch})
    [(_, [line])] = list(lines(cut.read_cut(options).bounds, options))
    return line.links


def test_ancestors_are_visible_until_fork(root):
    assert links_of(root, "a/b") == (LineLink("a/b", 6), LineLink("a", 3), LineLink("", 1))


def test_caps_of_a_line_only_decrease(root):
    """No such branch is created, but a file may come from elsewhere: the branch between saw its
    parent only until its own fork.
    """
    path = root / "spaces" / f"{DID}.sqlite"
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE branch SET fork_seq = 6 WHERE name = 'a'")
    connection.close()
    assert links_of(root, "a/b")[-1] == LineLink("", 3)
    with fourfold.open(root, mode="r") as store:
        assert store.space(DID).read("g", branch="a/b") is None
