"""Nodes that end with their test."""

from __future__ import annotations

import pytest
from node import Node
from published_stores import open_store

from fourfold.kernel import failpoints
from fourfold.objects import MemoryStore


@pytest.fixture
def objects():
    with MemoryStore() as store:
        yield store


@pytest.fixture
def make(tmp_path, objects):
    """Makes nodes; all on the same objects, unless others are given."""
    made = []

    def build(name="node", over=None, **options):
        made.append(Node(tmp_path / name, over or objects, **options))
        return made[-1]

    yield build
    failpoints.disarm()
    for entry in made:
        entry.close()


@pytest.fixture
def node(make):
    return make()


@pytest.fixture
def url(tmp_path):
    return tmp_path / "objects"


@pytest.fixture
def store(tmp_path, url):
    with open_store(tmp_path / "store", url) as opened:
        yield opened
