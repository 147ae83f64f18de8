"""What the tests of spaces share: a store in a folder, and a space of it in every kind of
history.
"""

from __future__ import annotations

import pytest
from space_machine import DID

import fourfold
from fourfold.models.documents import HISTORIES


@pytest.fixture(params=sorted(HISTORIES))
def history(request):
    """The name of a kind of history; a test that asks for it runs on all of them."""
    return request.param


@pytest.fixture
def root(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def store(root):
    with fourfold.open(root) as opened:
        yield opened


@pytest.fixture
def space(store, history):
    return store.space(DID, history=history)


@pytest.fixture
def revisions(store):
    """A space whose history is a log of revisions, for what only such a space has."""
    return store.space(DID, history="revisions")


@pytest.fixture
def space_file(root):
    """The file of the one space, for tests that look into it or damage it."""

    def found():
        [path] = (root / "spaces").glob("*.sqlite")
        return path

    return found


@pytest.fixture
def forked(space):
    """A space with one entity and a branch `work` on which nothing was written yet."""
    space.set("urn:a", {"value": {"x": 0, "y": 0, "list": [1]}})
    space.branches.create("work")
    return space
