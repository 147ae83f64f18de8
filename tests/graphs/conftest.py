"""What the tests of graphs share."""

from __future__ import annotations

import pytest
from graph_nodes import open_graphs, with_notes


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
