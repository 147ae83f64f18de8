"""What the tests of graphs share."""

from __future__ import annotations

import pytest
from graph_nodes import Node, open_graphs, with_notes


@pytest.fixture
def path(tmp_path):
    return tmp_path / "backend.db"


@pytest.fixture
def graphs(path):
    opened = open_graphs(path)
    yield opened
    opened.database.close()


@pytest.fixture
def types(graphs):
    """The ids of the types of app 1, by kind."""
    return with_notes(graphs)


@pytest.fixture
def nodes(tmp_path):
    """Alice, Bob and Carol, who accept each other in the domain `notes`."""
    three = [Node(tmp_path / f"{name}.db", seed + 1) for seed, name in enumerate("abc")]
    for node in three:
        for other in three:
            if other is not node:
                node.meet(other)
    yield three
    for node in three:
        node.graphs.database.close()
