"""Sessions in a store, for tests of adapters."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

import fourfold

# The conformance test says that LangGraph is missing; these cannot even be read without it.
NEEDING = [
    "test_langgraph_graphs.py",
    "test_langgraph_programs.py",
    "test_langgraph_saver.py",
]
collect_ignore = [] if find_spec("langgraph") else NEEDING


@pytest.fixture
def store(tmp_path):
    with fourfold.open(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def sessions(store):
    return store.sessions
